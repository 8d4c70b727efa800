//! Files that lose their names while they are open, and what reads of many files hold.

use super::*;
use crate::segment::handles::OPEN_FILES_MAX;

/// Everything that reads the file, compared with what was written.
fn read_all(segment: &Arc<Segment>, entries: &[Entry]) {
    for entry in entries {
        let found = segment.get(&entry.key, entry.version.revision).unwrap();
        assert_eq!(found.as_ref(), Some(entry));
    }
    for mut cursor in [segment.cursor(), segment.cold_cursor()] {
        cursor.seek_first().unwrap();
        for entry in entries {
            assert_eq!(cursor.to_entry().as_ref(), Some(entry));
            cursor.next().unwrap();
        }
    }
    assert_eq!(problems(segment), Vec::<String>::new());
}

#[test]
fn a_file_stays_readable_when_its_name_is_removed() {
    for mode in [ReadMode::Mmap, ReadMode::Pread] {
        for (kind, codec) in STORED {
            let (_disk, context) = context(mode, codec);
            let entries = sample(kind, 40, 50);
            let meta = write(&context, NewSegment::new(kind, 1), &entries);
            let segment = open(&context, &meta);
            segment.hold().unwrap();
            context.remove(kind, 1).unwrap();
            // Other files take the descriptor's place.
            for number in 2..=OPEN_FILES_MAX + 1 {
                let meta = write(&context, NewSegment::new(kind, number), &entries[..1]);
                open(&context, &meta);
            }
            read_all(&segment, &entries);
        }
    }
}

#[test]
fn a_file_that_is_neither_held_nor_mapped_is_missed_by_name() {
    let (_disk, context) = context(ReadMode::Pread, HistoryCodec::Fast);
    let entries = sample(FileKind::L0, 40, 50);
    let meta = write(&context, NewSegment::new(FileKind::L0, 1), &entries);
    let segment = open(&context, &meta);
    context.remove(FileKind::L0, 1).unwrap();
    context.handles.forget(1);
    let error = segment.get(&entries[0].key, u64::MAX).unwrap_err();
    let damage = error.corruption().expect("what the manifest lists must be there");
    assert_eq!(damage.file, context.path(FileKind::L0, 1));
}
