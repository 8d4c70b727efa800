//! What is in segments already is passed over, and checked by who asks.

use super::*;

/// A killed log of batches of 1, 3, 2 and 4 frames, of 30, 300, 2,000 and 1 bytes, of which the first `flushed`
/// frames are in segments.
fn flushed(flushed: u64) -> MemoryVfs {
    let (disk, vfs) = disk();
    let mut log = Log::open(vfs).unwrap();
    for (frames, bytes) in [(1, 30), (3, 300), (2, 2000), (4, 1)] {
        log.append(frames, bytes).unwrap();
    }
    log.manifest.flushed_seq = flushed;
    log.manifest.flushed_revision = flushed + 1;
    log.manifest.flushed_time = time_of(flushed);
    log.store.store(&mut log.manifest).unwrap();
    image(&disk)
}

/// Where the batches start, and where the last ends.
const BATCHES: [usize; 5] = [4096, 8192, 12288, 20480, 24576];
const LAST_SEQS: [u64; 4] = [1, 4, 6, 10];

#[test]
fn only_what_is_not_flushed_is_handed_over() {
    for count in 0..=10 {
        let disk = flushed(count);
        let rest: Vec<u64> = (count + 1..=10).collect();
        let (seen, recovered) = read(&disk).unwrap();
        assert_eq!((seen, recovered.last_seq, recovered.last_revision), (rest.clone(), 10, 11));
        let mut log = reopen(&disk);
        assert_eq!(log.seen, rest);
        // And the log goes on behind it.
        log.append(2, 100).unwrap();
        assert_eq!(reopen(&image(&disk)).recovered.last_seq, 12);
        log.close().unwrap();
        let (seen, recovered) = read(&disk).unwrap();
        assert_eq!((seen.last(), recovered.closed), (Some(&12), true));
    }
}

#[test]
fn damage_to_what_is_flushed_is_for_verify_and_all_other_is_refused() {
    for count in [0, 3, 4, 5, 6, 10] {
        let disk = flushed(count);
        let path = wal_path(1);
        let bytes = disk.read(Path::new(&path)).unwrap();
        let (mut passed_over, mut refused) = (0, 0);
        for at in (0..BATCHES[4]).step_by(if cfg!(miri) { 997 } else { 61 }) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            let image = image(&disk);
            image.overwrite(Path::new(&path), &damaged);
            let batch = BATCHES.partition_point(|start| *start <= at).checked_sub(1);
            let first_sector = BATCHES.iter().any(|start| (*start..start + 512).contains(&at));
            let is_flushed = batch.is_some_and(|batch| LAST_SEQS[batch] < count);
            let found = read(&image);
            if is_flushed && !first_sector {
                assert_eq!(found.unwrap().0, (count + 1..=10).collect::<Vec<_>>(), "byte {at}");
                passed_over += 1;
            } else {
                let damage = found.expect_err("damaged").corruption().unwrap().clone();
                assert_eq!(damage.offset / 512, at as u64 / 512, "byte {at}: {damage}");
                refused += 1;
            }
            let verified = verify_all(&image);
            let offset = verified.first().expect("verify reads all of it").offset;
            assert_eq!(offset / 512, at as u64 / 512, "byte {at}: {verified:?}");
        }
        assert!(refused > 0 && (passed_over > 0) == (count > 1), "{count}: {passed_over}");
    }
}

/// Passing over does not take the log's word for where it has to go on.
#[test]
fn a_log_that_does_not_reach_what_is_flushed_is_refused() {
    let disk = flushed(10);
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let store = ManifestStore::new(Arc::clone(&vfs), DIR);
    let mut manifest = store.load().unwrap().unwrap();
    (manifest.flushed_seq, manifest.flushed_revision) = (11, 12);
    store.store(&mut manifest).unwrap();
    assert!(read(&disk).unwrap_err().corruption().is_some());
    // The revision is compared, too, within a batch and at its end.
    for seq in [9, 10] {
        (manifest.flushed_seq, manifest.flushed_revision) = (seq, seq + 2);
        store.store(&mut manifest).unwrap();
        assert!(read(&disk).unwrap_err().corruption().is_some());
    }
}
