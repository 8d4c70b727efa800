//! Appending, rolling over, closing, and reading back.

use super::*;

#[test]
fn what_was_appended_is_found_again() {
    let (disk, vfs) = disk();
    let mut log = Log::open(vfs).unwrap();
    let mut last = 0;
    for batch in 1..40 {
        last = log.append(batch % 5 + 1, usize::try_from(batch * 97).unwrap()).unwrap();
    }
    for image in [image(&disk), disk.crash(1, CrashMode::LoseAll)] {
        let (seen, recovered) = read(&image).unwrap();
        assert_eq!(seen, all(last));
        assert_eq!(recovered.last_revision, last + 1);
        assert_eq!((recovered.torn, recovered.closed), (None, false));
        assert_eq!(verify_all(&image), []);
        assert_eq!(reopen(&image).seen, all(last));
    }
    log.close().unwrap();
    let (seen, recovered) = read(&disk).unwrap();
    assert_eq!(seen, all(last));
    assert!(recovered.closed);
    assert_eq!(verify_all(&disk), []);
}

#[test]
fn sessions_follow_each_other() {
    let (disk, _) = disk();
    let mut last = 0;
    for session in 0..12 {
        let mut log = reopen(&disk);
        assert_eq!(log.seen, all(last));
        for _ in 0..session % 4 {
            last = log.append(2, 100).unwrap();
        }
        if session % 3 == 0 {
            log.close().unwrap();
        }
        assert_eq!(verify_all(&disk), []);
    }
    assert_eq!(read(&disk).unwrap().0, all(last));
}

#[test]
fn the_log_rolls_over_and_flushed_files_are_forgotten() {
    let (disk, vfs) = disk();
    let mut log = Log::open(vfs).unwrap();
    let (mut last, mut spares) = (0, 0);
    for batch in 0..200 {
        last = log.append(1, 3000).unwrap();
        if batch % 2 == 0 {
            spares += u32::from(log.files.prepare_spare().unwrap());
        }
    }
    assert!(spares > 0);
    let listed = log.files.listed();
    assert!(listed.len() >= 4, "{listed:?}");
    assert!(listed.iter().rev().skip(1).all(|file| file.end.is_some()));
    // The manifest still lists the first file only: the rest is found by the seals.
    assert_eq!(read(&disk).unwrap().0, all(last));
    assert_eq!(verify_all(&disk), []);

    let flushed = 100;
    let numbers = log.files.dispensable(flushed);
    log.files.forget(&numbers);
    assert!(!numbers.is_empty());
    log.manifest.wal = log.files.listed();
    (log.manifest.flushed_seq, log.manifest.flushed_revision) = (flushed, flushed + 1);
    log.store.store(&mut log.manifest).unwrap();
    log.files.remove(&numbers).unwrap();
    let (seen, _) = read(&image(&disk)).unwrap();
    assert_eq!(seen, (flushed + 1..=last).collect::<Vec<_>>());
    assert_eq!(verify_all(&disk), []);
    log.append(1, 10).unwrap();
    log.close().unwrap();
    assert_eq!(reopen(&disk).last_seq(), last + 1);
}

#[test]
fn a_batch_larger_than_the_file_gets_a_stretched_file() {
    for spare in [false, true] {
        let (disk, vfs) = disk();
        let mut log = Log::open(vfs).unwrap();
        log.append(20, 4000).unwrap();
        if spare {
            assert!(log.files.prepare_spare().unwrap());
        }
        log.append(1, 65 << 20).unwrap();
        let last = log.append(2, 100).unwrap();
        assert_eq!(read(&disk.crash(0, CrashMode::LoseAll)).unwrap().0, all(last));
        assert_eq!(verify_all(&disk), []);
        log.close().unwrap();
        assert_eq!(reopen(&disk).seen, all(last));
    }
}

#[test]
fn a_reader_beside_a_live_writer_sees_a_prefix() {
    let (disk, vfs) = disk();
    let mut log = Log::open(vfs).unwrap();
    for _ in 0..60 {
        let last = log.append(2, 2000).unwrap();
        let before = disk.paths();
        assert_eq!(read(&disk).unwrap().0, all(last));
        assert_eq!(disk.paths(), before);
    }
}

#[test]
fn a_reader_racing_a_writer_sees_a_prefix_and_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let batches = 150;
    let on_disk: Arc<dyn Vfs> = Arc::new(crate::vfs::OsVfs::new());
    for (vfs, dir) in [(disk().1, Path::new(DIR)), (on_disk, dir.path())] {
        let mut log = Log::open_in(Arc::clone(&vfs), dir).unwrap();
        std::thread::scope(|scope| {
            let (begun, may_go_on) = std::sync::mpsc::channel();
            let writer = scope.spawn(move || {
                let mut last = log.append(2, 2000).unwrap();
                // On a busy machine the log would be written before the reader begins.
                may_go_on.recv().unwrap();
                for _ in 1..batches {
                    last = log.append(2, 2000).unwrap();
                }
                last
            });
            let mut reads = 0;
            loop {
                let finished = writer.is_finished();
                let manifest = ManifestStore::new(Arc::clone(&vfs), dir).load().unwrap().unwrap();
                let mut seen = Vec::new();
                let context = context_in(&vfs, dir);
                recover(&context, &manifest, Mode::ReadOnly, &mut |frame, _| {
                    check_frame(frame);
                    seen.push(frame.seq);
                    Ok(())
                })
                .unwrap();
                assert_eq!(seen, all(seen.len() as u64));
                reads += 1;
                if reads == 1 {
                    begun.send(()).unwrap();
                }
                if finished {
                    assert_eq!(seen, all(writer.join().unwrap()));
                    break;
                }
            }
            assert!(reads > 1);
        });
    }
}
