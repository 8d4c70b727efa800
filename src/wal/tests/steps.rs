//! Steps whose only trace is what lies on the disk, and what a writer is asked for that it cannot do.

use annals_format::name::UNFINISHED;

use super::files::next_file_bytes;
use super::*;
use crate::error::ErrorKind;

#[test]
fn a_batch_that_does_not_follow_is_refused_and_changes_nothing() {
    // How many frames there are, and the numbers that they are said to have.
    for (count, first_seq, last_seq) in [(0, 4, 3), (1, 5, 5), (1, 3, 3), (2, 4, 4), (1, 4, 5)] {
        let (disk, vfs) = disk();
        let mut log = Log::open(vfs).unwrap();
        log.append(3, 10).unwrap();
        let before = disk.content_hash();
        let frames: Vec<_> = (0..count).map(|at| frame(first_seq + at, 10)).collect();
        let info = BatchInfo { first_seq, last_seq, last_revision: last_seq + 1, durable_upto: 3 };
        let mut frames = frames.iter().map(Vec::as_slice);
        let refused = log.writer.append(&mut frames, info).unwrap_err();
        let is_argument = matches!(refused.kind(), ErrorKind::InvalidArgument { .. });
        assert!(is_argument, "{count} frames from {first_seq} to {last_seq}: {refused:?}");
        assert_eq!(disk.content_hash(), before);
    }
}

#[test]
fn files_double_up_to_the_size_configured() {
    let (_, vfs) = disk();
    let context = WalContext { wal_bytes: 1 << 20, ..context(&vfs) };
    let sizes: Vec<u64> =
        std::iter::successors(Some(256 << 10), |bytes| Some(next_file_bytes(&context, *bytes)))
            .take(4)
            .collect();
    assert_eq!(sizes, [256 << 10, 512 << 10, 1 << 20, 1 << 20]);
}

#[test]
fn a_spare_is_made_when_half_a_file_is_full_and_then_used() {
    let (disk, vfs) = disk();
    let mut log = Log::open(vfs).unwrap();
    let file_bytes = disk.read(Path::new(&wal_path(1))).unwrap().len() as u64;
    // The page of the header, and two of each batch.
    let mut tail = 4096;
    while tail <= file_bytes / 2 {
        assert!(!log.files.spare_is_wanted() && !log.files.prepare_spare().unwrap());
        log.append(1, 5000).unwrap();
        tail += 2 * 4096;
    }
    assert!(log.files.spare_is_wanted());
    let paths = disk.paths();
    assert!(log.files.prepare_spare().unwrap() && !log.files.spare_is_wanted());
    let made: Vec<_> = disk.paths().into_iter().filter(|path| !paths.contains(path)).collect();
    assert_eq!(made, [wal_path(2)]);
    let ops = disk.op_count();
    assert!(!log.files.prepare_spare().unwrap());
    assert_eq!(disk.op_count(), ops, "there is one");
}

#[test]
fn what_a_crash_left_half_made_is_removed_and_nothing_else() {
    let (_disk, vfs) = disk();
    Log::open(Arc::clone(&vfs)).unwrap().close().unwrap();
    let half = format!("{DIR}/wal/00000009.wal{UNFINISHED}");
    let foreign = [
        format!("{DIR}/wal/00000009.head{UNFINISHED}"),
        format!("{DIR}/wal/notes{UNFINISHED}"),
        format!("{DIR}/wal/notes"),
    ];
    for path in foreign.iter().chain([&half]) {
        vfs.create(Path::new(path)).unwrap();
    }
    let directory = format!("{DIR}/wal/00000010.wal{UNFINISHED}");
    vfs.create_dir_all(Path::new(&directory)).unwrap();
    Log::open(Arc::clone(&vfs)).unwrap().close().unwrap();
    let names: Vec<_> = vfs.list(Path::new(&format!("{DIR}/wal"))).unwrap();
    let is_there =
        |path: &str| names.iter().any(|entry| path.ends_with(&format!("/{}", entry.name)));
    assert!(!is_there(&half));
    assert!(foreign.iter().all(|path| is_there(path)) && is_there(&directory), "{names:?}");
}
