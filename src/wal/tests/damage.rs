//! Damage to acknowledged data is refused, with file and offset.

use super::*;

/// Damages one file of a store and says whether anybody noticed, in `open` and in `verify`.
fn assert_refused(disk: &MemoryVfs, path: &str, bytes: &[u8], offset: usize, what: &str) {
    let damaged = image(disk);
    damaged.overwrite(Path::new(path), bytes);
    let error = read(&damaged).map(|(seen, _)| seen).expect_err(what);
    let damage = error.corruption().unwrap_or_else(|| panic!("{what}: {error}")).clone();
    assert_eq!(damage.file, Path::new(path), "{what}: {damage}");
    let sector = (offset - offset % SECTOR_BYTES) as u64;
    let near = sector.saturating_sub(SECTOR_BYTES as u64)..=sector + SECTOR_BYTES as u64;
    assert!(near.contains(&damage.offset), "{what}: {damage}");
    let before = damaged.trace_hash();
    assert!(Log::open(Arc::new(damaged.clone())).is_err(), "{what}");
    assert_eq!(damaged.read(Path::new(path)).unwrap(), bytes, "{what}: nothing was written");
    assert_ne!(before, damaged.trace_hash());
    assert!(!verify_all(&damaged).is_empty(), "{what}");
}

#[test]
fn every_flipped_bit_of_a_closed_log_is_refused() {
    let disk = closed_store();
    let bytes = disk.read(Path::new(&wal_path(1))).unwrap();
    assert_eq!(bytes.len() % PAGE_BYTES, 0);
    for bit in (0..bytes.len() * 8).step_by(if cfg!(miri) { 997 } else { 1 }) {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let image = image(&disk);
        image.overwrite(Path::new(&wal_path(1)), &damaged);
        let error = read(&image).expect_err("damaged");
        let damage = error.corruption().unwrap_or_else(|| panic!("bit {bit}: {error}"));
        let sector = (bit / 8 / SECTOR_BYTES * SECTOR_BYTES) as u64;
        let within = sector..sector + SECTOR_BYTES as u64;
        assert!(within.contains(&damage.offset), "bit {bit}: {damage}");
    }
}

#[test]
fn every_cut_and_extension_of_a_log_is_refused() {
    for disk in [closed_store(), killed_store()] {
        let path = wal_path(1);
        let bytes = disk.read(Path::new(&path)).unwrap();
        let step = if bytes.len() > 64 << 10 { 509 } else { 1 };
        for cut in (0..bytes.len()).step_by(step).chain((0..bytes.len()).step_by(4096)) {
            let image = image(&disk);
            image.overwrite(Path::new(&path), &bytes[..cut]);
            let error = read(&image).expect_err("cut");
            assert!(error.corruption().is_some(), "cut at {cut}: {error}");
        }
        for extra in [1, 511, 512, 4096, 8192] {
            for fill in [0, 0xa5] {
                let image = image(&disk);
                let longer = [bytes.as_slice(), &vec![fill; extra]].concat();
                image.overwrite(Path::new(&path), &longer);
                let error = read(&image).expect_err("extended");
                assert!(error.corruption().is_some(), "{extra} bytes of {fill}: {error}");
            }
        }
    }
}

#[test]
fn rot_in_a_killed_log_is_refused_with_file_and_offset() {
    let disk = killed_store();
    let path = wal_path(1);
    let bytes = disk.read(Path::new(&path)).unwrap();
    // Every byte of the part in use, and some of the empty rest.
    for at in (0..24 << 10).chain((24 << 10..bytes.len()).step_by(1021)) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        if at % 257 == 0 {
            assert_refused(&disk, &path, &damaged, at, &format!("byte {at}"));
        } else {
            let image = image(&disk);
            image.overwrite(Path::new(&path), &damaged);
            let error = read(&image).expect_err("damaged");
            let damage = error.corruption().unwrap();
            assert_eq!(damage.offset / 512, at as u64 / 512, "{damage}");
        }
    }
}

#[test]
fn zeroed_sectors_are_refused_except_in_the_last_batch_of_a_killed_log() {
    for (disk, closed) in [(closed_store(), true), (killed_store(), false)] {
        let path = wal_path(1);
        let bytes = disk.read(Path::new(&path)).unwrap();
        let last_written = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        for at in (0..=last_written).step_by(SECTOR_BYTES) {
            let mut damaged = bytes.clone();
            damaged[at..at + SECTOR_BYTES].fill(0);
            if damaged == bytes {
                continue;
            }
            let last_batch = at >= last_written / PAGE_BYTES * PAGE_BYTES;
            let image = image(&disk);
            image.overwrite(Path::new(&path), &damaged);
            match read(&image) {
                Err(error) => assert!(error.corruption().is_some(), "sector at {at}: {error}"),
                // The named limit: it looks like a tear, and open says that it dropped something.
                Ok((seen, recovered)) => {
                    assert!(!closed && last_batch, "sector at {at}: {seen:?}");
                    assert_eq!(seen, all(4));
                    let torn = recovered.torn.expect("said so");
                    let start = last_written / PAGE_BYTES * PAGE_BYTES;
                    assert_eq!((torn.end, torn.missing), (start as u64, at as u64));
                    assert_eq!(torn.dropped_bytes, (PAGE_BYTES - SECTOR_BYTES) as u64);
                }
            }
        }
    }
}

#[test]
fn missing_swapped_and_foreign_files_are_refused() {
    let (disk, vfs) = disk();
    let mut log = Log::open(vfs).unwrap();
    for _ in 0..100 {
        log.append(1, 3000).unwrap();
    }
    drop(log);
    let files: Vec<_> = disk.paths().into_iter().filter(|path| path.contains("/wal/")).collect();
    assert!(files.len() >= 3, "{files:?}");
    let contents: Vec<_> = files.iter().map(|path| disk.read(Path::new(path)).unwrap()).collect();
    for (index, path) in files.iter().enumerate() {
        let image = image(&disk);
        image.remove(Path::new(path)).unwrap();
        let error = read(&image).expect_err("missing");
        assert_eq!(error.corruption().unwrap().file, Path::new(path), "{error}");
        for (other, content) in contents.iter().enumerate() {
            if other != index {
                let image = disk.crash(0, CrashMode::KeepAll);
                image.overwrite(Path::new(path), content);
                assert!(read(&image).expect_err("swapped").corruption().is_some());
                let zeros = vec![0; contents[index].len()];
                image.overwrite(Path::new(path), &zeros);
                match read(&image) {
                    Err(error) => assert!(error.corruption().is_some()),
                    // The last file of a killed log, wholly zeroed, was never written.
                    Ok(_) => assert_eq!(index, files.len() - 1),
                }
            }
        }
    }
    // A file behind the last one may exist, but only as zeros.
    let next = wal_path(files.len() as u64 + 1);
    let image = image(&disk);
    image.overwrite(Path::new(&next), &[0; 8192]);
    assert!(verify_all(&image).is_empty());
    image.overwrite(Path::new(&next), &contents[0]);
    let found = verify_all(&image);
    assert!(!found.is_empty() && found.iter().all(|damage| damage.file == Path::new(&next)));
    assert!(Log::open(Arc::new(image.clone())).is_err());
}

#[test]
fn a_log_of_another_store_is_refused() {
    let disk = killed_store();
    let vfs: Arc<dyn Vfs> = Arc::new(disk);
    let manifest = ManifestStore::new(Arc::clone(&vfs), DIR).load().unwrap().unwrap();
    let other = WalContext { store: StoreId([1; 16]), ..context(&vfs) };
    let error = recover(&other, &manifest, Mode::ReadOnly, &mut |_, _| Ok(())).unwrap_err();
    assert!(error.corruption().is_some());
}
