//! Entries out of order under a right checksum: a walk refuses them, and does not give them in their
//! wrong place.

use annals_format::block::{BLOCK_HEADER_BYTES, BlockHeader};
use annals_format::checksum::FileSeed;
use annals_format::{FileKind, Place};

use super::*;

/// One version each of three keys of one letter.
fn entries(kind: FileKind) -> Vec<Entry> {
    let entry = |(key, revision): (&'static [u8], u64)| Entry {
        key: Bytes::from_static(key),
        version: Version {
            revision,
            sub: 0,
            tombstone: false,
            create_revision: revision,
            version: 1,
            lease: 0,
            death: if kind == FileKind::History { revision + 1 } else { 0 },
            first: if kind == FileKind::L0 { revision } else { 0 },
            lived: false,
            value: Bytes::new(),
        },
    };
    [(&b"w"[..], 9), (b"x", 9), (b"~", 9)].map(entry).into()
}

/// Makes another letter of the only `~` in the file's first block, and its checksum right.
fn forge(
    disk: &MemoryVfs,
    context: &SegmentContext,
    meta: &FileMeta,
    block: &BlockInfo,
    letter: u8,
) {
    let path = context.path(meta.kind, meta.number);
    let mut bytes = disk.read(&path).unwrap();
    let start = usize::try_from(block.offset).unwrap();
    let span = start..start + block.bytes as usize;
    let (header, stored) = BlockHeader::decode(&bytes[span.clone()], meta.kind).unwrap();
    let mut stored = stored.to_vec();
    let at: Vec<usize> = (0..stored.len()).filter(|at| stored[*at] == b'~').collect();
    assert_eq!(at.len(), 1, "the key and nothing else");
    stored[at[0]] = letter;
    let place = Place { store: STORE, kind: meta.kind, file: meta.number, offset: 0 };
    let mut forged = Vec::new();
    header.encode(&mut forged, FileSeed::new(&place), block.offset, &stored);
    assert_eq!(forged.len(), BLOCK_HEADER_BYTES + stored.len());
    bytes[span].copy_from_slice(&forged);
    disk.overwrite(&path, &bytes);
}

/// The keys that a walk gives before it ends, and whether it ended well.
fn walk(context: &SegmentContext, meta: &FileMeta) -> (Vec<Bytes>, bool) {
    let mut cursor = open(context, meta).cursor();
    let mut keys = Vec::new();
    let mut gone = cursor.seek_first();
    while gone.is_ok() {
        let Some(entry) = cursor.to_entry() else { return (keys, true) };
        keys.push(entry.key);
        gone = cursor.next();
    }
    assert!(gone.unwrap_err().corruption().is_some());
    (keys, false)
}

#[test]
fn a_walk_refuses_keys_that_do_not_ascend() {
    for kind in [FileKind::Head, FileKind::L0, FileKind::History] {
        let (disk, context) = context(ReadMode::Mmap, HistoryCodec::Raw);
        let meta = write(&context, NewSegment::new(kind, 3), &entries(kind));
        let found = blocks(&open(&context, &meta));
        let [block] = &found[..] else { panic!("one block") };
        for (letter, good) in [(b'y', true), (b'x', false), (b'a', false)] {
            let disk = disk.crash(0, crate::vfs::CrashMode::KeepAll);
            let options = Options::new().vfs(Arc::new(disk.clone()));
            let context = SegmentContext::new(Path::new(DIR), STORE, 1, &options);
            forge(&disk, &context, &meta, block, letter);
            let (keys, ended) = walk(&context, &meta);
            let letter = char::from(letter);
            assert_eq!((keys.len(), ended), (if good { 3 } else { 2 }, good), "{kind:?} {letter}");
        }
    }
}
