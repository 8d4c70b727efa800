//! Where an error says that it is: the very byte, also inside a record of a manifest and in the directory of a block of
//! groups.
#![allow(clippy::unwrap_used, reason = "in a test that is how to fail")]

mod samples;

use annals_format::events::{EventKind, EventRef, Transaction, TransactionBuilder};
use annals_format::group::Groups;
use annals_format::limits::NUMBER_MAX;
use annals_format::{DecodeError, Manifest, Problem, WalFile};

/// What a manifest with this log file is refused for, and how many bytes after the start of its record.
fn refused(file: WalFile) -> (&'static str, usize, Problem) {
    let mut manifest = samples::manifest();
    manifest.wal = vec![file];
    let (bytes, _) = manifest.encode();
    let error = Manifest::decode(&bytes).unwrap_err();
    // The number of the file, in two bytes, stands nowhere else.
    let number = [0xf7, 0x7f];
    let start = bytes.windows(2).position(|pair| pair == number).unwrap();
    (error.field, usize::try_from(error.offset).unwrap() - start, error.problem)
}

#[test]
fn in_a_record_of_a_manifest() {
    let number = 0x3ff7;
    let file = WalFile { number, incarnation: 1, file_bytes: 5, end: None };
    assert_eq!(refused(file), ("file_bytes", 3, Problem::Invalid { found: 5 }));
    let file = WalFile { number, incarnation: 1, file_bytes: 8192, end: Some(8193) };
    let too_long = Problem::TooLong { max: 8192, found: 8193 };
    assert_eq!(refused(file), ("end", 6, too_long));
}

/// A segment is made by the store as it is or was, never as it will be.
#[test]
fn incarnations_of_segments() {
    let refused = |incarnation| {
        let mut manifest = samples::manifest();
        manifest.files[1].incarnation = incarnation;
        Manifest::decode(&manifest.encode().0)
            .map(drop)
            .map_err(|error| (error.field, error.problem))
    };
    let of_store = samples::manifest().incarnation;
    assert_eq!((refused(1), refused(of_store)), (Ok(()), Ok(())));
    for found in [0, of_store + 1] {
        assert_eq!(refused(found), Err(("incarnation", Problem::Invalid { found })));
    }
    let (max, found) = (NUMBER_MAX, NUMBER_MAX + 1);
    assert_eq!(refused(found), Err(("incarnation", Problem::TooLong { max, found })));
}

#[test]
fn in_the_directory_of_groups() {
    // Three groups, no prefix, where the first two end, and ten bytes.
    let stored = |ends: [u32; 2]| {
        let mut bytes = vec![3, 0, 0];
        bytes.extend(ends.iter().flat_map(|end| end.to_le_bytes()));
        bytes.extend([0xff; 10]);
        bytes
    };
    let error = |ends, group| -> DecodeError {
        let bytes = stored(ends);
        Groups::parse(&bytes).unwrap().group(group).map(drop).unwrap_err()
    };
    let of_end = |ends, group| {
        let error = error(ends, group);
        assert_eq!((error.structure, error.field), ("groups", "group_end"));
        (error.offset, error.problem)
    };
    assert_eq!(of_end([12, 22], 1), (7, Problem::TooLong { max: 21, found: 22 }));
    assert_eq!(of_end([12, 12], 1), (7, Problem::Order));
    assert_eq!(of_end([12, 11], 1), (7, Problem::Order));
    assert_eq!(of_end([10, 11], 0), (3, Problem::Order), "it ends before the first begins");
    assert_eq!(of_end([12, 21], 2), (11, Problem::Order), "nothing is left for the last");
    assert_eq!(of_end([12, 13], 3), (11, Problem::TooLong { max: 2, found: 3 }));
    assert_ne!(error([12, 21], 1).field, "group_end", "it may end where the block does");
    assert_ne!(error([12, 20], 2).field, "group_end");
}

#[test]
fn no_more_events_than_there_is_room_for() {
    // The shortest there are: three bytes each.
    let mut builder = TransactionBuilder::new();
    for sub in 0..5 {
        builder.push(&EventRef { kind: EventKind::Delete, key: b"", sub, ..EventRef::default() });
    }
    assert_eq!((builder.count(), builder.event_bytes()), (5, 15));
    let mut value = Vec::new();
    builder.finish(0, 7, b"", &mut value);
    let transaction = Transaction::decode(&value).unwrap();
    assert_eq!((transaction.count, transaction.events().count()), (5, 5));
    let at = value.len() - 16;
    value[at] = 6;
    let error = Transaction::decode(&value).unwrap_err();
    assert_eq!((error.field, error.offset), ("count", at as u64));
    assert_eq!(error.problem, Problem::TooLong { max: 5, found: 6 });
}
