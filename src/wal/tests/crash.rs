//! Torn batches, failed writes, and a crash at every operation.

use super::*;

/// Which sectors of the file header's page are there: all, none, all but one, or one.
fn header_pages() -> impl Iterator<Item = u32> {
    let one = (0..8).map(|sector| 1 << sector);
    [0xff, 0].into_iter().chain(one.clone()).chain(one.map(|sector: u32| 0xff - sector))
}

/// Every subset of the sectors of the batch in flight, and, of the first batch, parts of the page before it,
/// which is written with it: whole it counts, else it is dropped.
#[test]
fn a_torn_batch_is_dropped_and_reported() {
    for batches_before in [0, 2] {
        let (disk, vfs) = disk();
        let mut log = Log::open(vfs).unwrap();
        for _ in 0..batches_before {
            log.append(2, 100).unwrap();
        }
        let (before, acked) = (image(&disk), log.last_seq());
        let path = wal_path(1);
        let old = disk.read(Path::new(&path)).unwrap();
        let last = log.append(2, 1200).unwrap();
        let new = disk.read(Path::new(&path)).unwrap();
        let sectors: Vec<usize> = (0..old.len())
            .step_by(SECTOR_BYTES)
            .filter(|at| old[*at..][..SECTOR_BYTES] != new[*at..][..SECTOR_BYTES])
            .collect();
        // Every sector of every page, the header's included.
        let (first, pages) = if batches_before == 0 { (true, 2) } else { (false, 1) };
        assert_eq!(sectors.len(), 8 * pages);
        let batches = 0..1_u32 << 8;
        let subsets: Vec<u32> = if first {
            header_pages()
                .flat_map(|page| batches.clone().map(move |batch| batch << 8 | page))
                .collect()
        } else {
            batches.collect()
        };
        for subset in subsets {
            let mut bytes = old.clone();
            for (index, &at) in sectors.iter().enumerate() {
                if subset >> index & 1 == 1 {
                    bytes[at..at + SECTOR_BYTES].copy_from_slice(&new[at..at + SECTOR_BYTES]);
                }
            }
            let disk = image(&before);
            disk.overwrite(Path::new(&path), &bytes);
            let whole = subset + 1 == 1 << sectors.len();
            let (seen, recovered) = read(&disk).unwrap();
            assert_eq!(seen, all(if whole { last } else { acked }), "{subset:b}");
            let written = u64::from(subset.count_ones()) * SECTOR_BYTES as u64;
            let dropped = recovered.torn.map_or(0, |torn| torn.dropped_bytes);
            // A whole page 0 is the header of an empty file.
            let header = if first && subset & 0xff == 0xff { PAGE_BYTES } else { 0 };
            if whole {
                assert_eq!(dropped, 0);
            } else {
                assert_eq!(dropped + header as u64, written, "{subset:b}");
            }
            assert_eq!(verify_all(&disk), []);
            // The writer settles it, and what was dropped does not come back.
            let mut log = reopen(&disk);
            assert_eq!(log.seen, seen);
            log.append(1, 10).unwrap();
            assert_eq!(read(&disk).unwrap().0.len(), seen.len() + 1);
            assert_eq!(verify_all(&disk), []);
        }
    }
}

#[test]
fn after_a_failed_write_the_writer_refuses_everything() {
    let (disk, vfs) = disk();
    let faults = FaultVfs::new(vfs);
    let mut log = Log::open(Arc::new(faults.clone())).unwrap();
    let acked = log.append(2, 100).unwrap();
    let next = faults.op_count_of(Operation::Sync);
    faults.fail(Some(Operation::Sync), next, Fault::Io, false);
    let before = log.last_seq();
    assert!(log.append(1, 10).is_err());
    faults.heal();
    assert_eq!(log.last_seq(), before);
    let error = log.append(1, 10).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "{error}");
    let seen = reopen(&disk).seen;
    assert!(seen == all(acked) || seen == all(acked + 1));
}

/// Everything a session does with the log, with rolls and a spare.
fn script(vfs: Arc<dyn Vfs>, acked: &mut u64, possible: &mut u64) -> Result<()> {
    let mut log = Log::open(vfs)?;
    for batch in 0..6 {
        *possible = log.last_seq() + 4;
        *acked = log.append(4, 4000)?;
        if batch == 3 {
            log.files.prepare_spare()?;
        }
    }
    log.close()
}

/// The machine stops after every single operation, twice in a row: in the session and in the
/// recovery from it.
#[test]
fn a_crash_at_every_operation_keeps_what_was_acknowledged() {
    let (base, vfs) = disk();
    let (mut acked, mut possible) = (0, 0);
    script(vfs, &mut acked, &mut possible).unwrap();
    let operations = {
        let faults = FaultVfs::new(Arc::new(image(&base)));
        script(Arc::new(faults.clone()), &mut 0, &mut 0).unwrap();
        faults.op_count()
    };
    let modes = [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random];
    let mut images = 0;
    for stop in 0..operations {
        let disk = image(&base);
        let faults = FaultVfs::new(Arc::new(disk.clone()));
        faults.stop_after(stop);
        let (mut acked, mut possible) = (acked, possible);
        let outcome = script(Arc::new(faults), &mut acked, &mut possible);
        assert!(outcome.is_err());
        for (seed, mode) in (stop..).zip(modes) {
            let crashed = disk.crash(seed, mode);
            let (seen, _) = read(&crashed).unwrap_or_else(|error| {
                panic!("stopped after {stop}, {mode:?}, seed {seed}: {error}")
            });
            let last = seen.len() as u64;
            assert_eq!(seen, all(last));
            assert!((acked..=possible).contains(&last), "{stop} {mode:?}: {last}, acked {acked}");
            // Now the recovery is stopped as well, somewhere.
            let again = FaultVfs::new(Arc::new(crashed.clone()));
            again.stop_after(stop * 7 % 40);
            let opened = Log::open(Arc::new(again)).map(|log| log.seen);
            let crashed = if opened.is_ok() { crashed } else { crashed.crash(seed, mode) };
            let log = reopen(&crashed);
            assert_eq!(log.seen, seen, "{stop} {mode:?}");
            assert_eq!(verify_all(&crashed), [], "{stop} {mode:?}");
            images += 2;
        }
    }
    assert!(images > 300, "{images}");
}

/// Every operation fails once, in every way: what was acknowledged is there, what failed said so.
#[test]
fn an_error_at_every_operation_loses_nothing_acknowledged() {
    let counting = FaultVfs::new(Arc::new(MemoryVfs::new()));
    script(Arc::new(counting.clone()), &mut 0, &mut 0).unwrap();
    for nth in 0..counting.op_count() {
        for fault in [Fault::Io, Fault::NoSpace, Fault::Torn, Fault::Short, Fault::Interrupted] {
            let disk = MemoryVfs::new();
            let faults = FaultVfs::new(Arc::new(disk.clone()));
            faults.fail(None, nth, fault, false);
            let (mut acked, mut possible) = (0, 0);
            let outcome = script(Arc::new(faults), &mut acked, &mut possible);
            if outcome.is_ok() {
                assert_eq!(acked, 24);
            }
            for disk in [image(&disk), disk.crash(nth, CrashMode::Random)] {
                let log = reopen(&disk);
                let last = log.seen.len() as u64;
                assert_eq!(log.seen, all(last));
                assert!((acked..=possible).contains(&last), "{nth} {fault:?}: {last}, {acked}");
                assert_eq!(verify_all(&disk), [], "{nth} {fault:?}");
            }
        }
    }
}
