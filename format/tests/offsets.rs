//! Where an error says that it is: the very byte, also inside a record of a manifest and in the directory of a block of
//! groups.
#![allow(clippy::unwrap_used, reason = "in a test that is how to fail")]

mod samples;

use annals_format::block::{Body, BodyBuilder};
use annals_format::entry::EntryRef;
use annals_format::events::{self, EventKind, EventRef, Transaction, TransactionBuilder};
use annals_format::group::Groups;
use annals_format::limits::NUMBER_MAX;
use annals_format::{DecodeError, FileKind, Manifest, Problem, WalFile};

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
    // Three groups, no prefix, where the first two end, what their keys are, and ten bytes.
    let stored = |ends: [u32; 2]| {
        let mut bytes = vec![3, 0, 0];
        bytes.extend(ends.iter().flat_map(|end| end.to_le_bytes()));
        bytes.extend([0; 3]);
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
    assert_eq!(of_end([15, 25], 1), (7, Problem::TooLong { max: 24, found: 25 }));
    assert_eq!(of_end([15, 15], 1), (7, Problem::Order));
    assert_eq!(of_end([15, 14], 1), (7, Problem::Order));
    assert_eq!(of_end([13, 14], 0), (3, Problem::Order), "it ends before the first begins");
    assert_eq!(of_end([15, 24], 2), (11, Problem::Order), "nothing is left for the last");
    assert_eq!(of_end([15, 16], 3), (11, Problem::TooLong { max: 2, found: 3 }));
    assert_ne!(error([15, 24], 1).field, "group_end", "it may end where the block does");
    assert_ne!(error([15, 23], 2).field, "group_end");
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

/// Entries of EVENTS with these revisions and values of a byte, and where each begins.
fn entries(revisions: &[u64]) -> (Vec<u8>, Vec<usize>) {
    let mut body = BodyBuilder::new(FileKind::Events);
    for revision in revisions {
        let key = revision.to_be_bytes();
        let revision = *revision;
        body.push(&EntryRef { key: &key, revision, value: b"v", ..EntryRef::default() });
    }
    let body = body.finish().body;
    let parsed = Body::parse(&body, FileKind::Events).unwrap();
    let run: Vec<_> = parsed.run(0).unwrap().map(|item| item.unwrap().offset).collect();
    (body[..parsed.entries_bytes()].to_vec(), run)
}

#[test]
fn entries_of_events_are_read_as_any_entry_is() {
    let revisions: Vec<u64> = (0..40).chain([255, 256, 70_000, 1 << 40, NUMBER_MAX]).collect();
    let (bytes, starts) = entries(&revisions);
    let (mut at, mut before) = (0, None);
    for (revision, start) in revisions.iter().zip(starts) {
        let found = events::entry(&bytes, at, before).unwrap().unwrap();
        assert_eq!((found.revision, found.value, at), (*revision, &b"v"[..], start));
        (at, before) = (found.next, Some(*revision));
    }
    assert_eq!(events::entry(&bytes, at, before), Ok(None));
    assert!(events::entry(&bytes, bytes.len() + 1, None).is_err());
}

#[test]
fn entries_of_events_hold_nothing_but_transactions() {
    let (bytes, starts) = entries(&[300, 301]);
    let second = starts[1];
    // shared, length of the suffix, suffix, flags, revision in two bytes, sub, create_revision, version, value
    assert_eq!(bytes[second..], [7, 1, 0x2d, 0, 0xad, 2, 0, 0, 0, 1, b'v']);
    let error = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[second + at] = byte;
        let error = events::entry(&bytes, second, Some(300)).unwrap_err();
        assert!(error.offset >= second as u64, "{error}");
        (error.field, error.problem)
    };
    assert_eq!(error(0, 9), ("shared", Problem::TooLong { max: 8, found: 9 }));
    assert_eq!(error(0, 6), ("suffix", Problem::Invalid { found: 7 }));
    assert_eq!(error(2, 0x2c), ("suffix", Problem::Order));
    assert_eq!(error(3, 1), ("flags", Problem::Invalid { found: 1 }));
    assert_eq!(error(4, 0xae), ("revision", Problem::Mismatch { expected: 301, found: 302 }));
    assert_eq!(error(6, 1), ("sub", Problem::NotZero));
    assert_eq!(error(7, 1), ("create_revision", Problem::NotZero));
    assert_eq!(error(8, 1), ("version", Problem::NotZero));
    assert_eq!(error(9, 2), ("value", Problem::Truncated { needed: 2, have: 1 }));
    // Alone it shares with nothing; cut anywhere it is not whole.
    assert!(events::entry(&bytes, second, None).is_err());
    for end in second + 1..bytes.len() {
        assert!(events::entry(&bytes[..end], second, Some(300)).is_err(), "cut at {end}");
    }
}
