//! References to values that are not where they say.

use std::path::PathBuf;

use annals_format::entry::{BlobRef, EntryRef};
use annals_format::segment::HEADER_BYTES;
use annals_format::{FileKind, FileMeta};

use super::*;
use crate::error::Error;
use crate::segment::SealedFile;

const KEY: &[u8] = b"\x01k";

fn entry(revision: u64) -> EntryRef<'static> {
    let (create_revision, version) = (revision, 1);
    EntryRef { key: KEY, revision, create_revision, version, ..EntryRef::default() }
}

fn written(
    context: &SegmentContext,
    kind: FileKind,
    number: u64,
    entry: &EntryRef<'_>,
) -> FileMeta {
    let mut writer = SegmentWriter::create(context, NewSegment::new(kind, number)).unwrap();
    writer.add(entry).unwrap();
    writer.finish().unwrap()
}

/// Where a get, a walk and a check find damage, if they do.
fn damage(head: &Arc<Segment>) -> [Option<(PathBuf, u64)>; 3] {
    let place =
        |error: Error| error.corruption().map(|found| (found.file.clone(), found.offset)).unwrap();
    let mut cursor = head.cursor();
    cursor.seek_first().unwrap();
    let mut checked = Vec::new();
    head.verify_blobs(&mut |found| checked.push((found.file, found.offset))).unwrap();
    assert!(checked.len() < 2, "{checked:?}");
    [
        head.find_at(KEY, 9, Want::Value).err().map(place),
        cursor.value().err().map(place),
        checked.pop(),
    ]
}

#[test]
fn a_reference_is_to_the_same_version_of_the_same_key() {
    for mode in [ReadMode::Mmap, ReadMode::Pread] {
        let (_, context) = context(mode, HistoryCodec::Fast);
        let context = Arc::new(context);
        let value = [7; 100];
        let blob = written(&context, FileKind::Blob, 1, &EntryRef { value: &value, ..entry(5) });
        let other = EntryRef { key: b"\x01j", value: &value, ..entry(5) };
        let other = written(&context, FileKind::Blob, 2, &other);
        for (number, (revision, file, bytes), is_right) in [
            (3, (5, 1, 100), true),
            (4, (6, 1, 100), false),
            (5, (5, 1, 99), false),
            (6, (5, 2, 100), false),
            (7, (5, 9, 100), false),
        ] {
            let refers = EntryRef { blob: Some(BlobRef { file, bytes }), ..entry(revision) };
            let head = written(&context, FileKind::Head, number, &refers);
            let files = SealedFile::all(&context, &[head, blob.clone(), other.clone()], []);
            let head = files[0].open().unwrap();
            let expected = (head.path().to_path_buf(), HEADER_BYTES as u64);
            let expected =
                if is_right { [None, None, None] } else { [0; 3].map(|_| Some(expected.clone())) };
            assert_eq!(
                damage(head),
                expected,
                "{mode:?}: revision {revision} in {file}, {bytes} bytes"
            );
            let found = head.find_at(KEY, 9, Want::Fields).unwrap().unwrap();
            assert_eq!(
                (found.revision, found.value.len()),
                (revision, 0),
                "nobody asks for the value"
            );
        }
    }
}

#[test]
fn only_newest_versions_refer_and_only_to_what_they_do_not_have() {
    let (_, context) = context(ReadMode::Mmap, HistoryCodec::Fast);
    let blob = Some(BlobRef { file: 1, bytes: 9 });
    for (kind, entry) in [
        (FileKind::Blob, EntryRef { blob, ..entry(5) }),
        (FileKind::History, EntryRef { blob, death: 6, ..entry(5) }),
        (FileKind::Head, EntryRef { blob, value: b"v", ..entry(5) }),
        (FileKind::Head, EntryRef { blob, tombstone: true, ..entry(5) }),
    ] {
        let mut writer = SegmentWriter::create(&context, NewSegment::new(kind, 1)).unwrap();
        assert!(writer.add(&entry).is_err(), "{kind:?}");
        writer.abandon().unwrap();
    }
}
