//! Blocks of groups: the golden file, groups put together by hand, and every way to lie.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test that is how to fail")]

mod groups_made;
mod harness;

use annals_format::group::{Groups, Scratch};
use groups_made::{Backwards, DICTIONARY, Row, SAMPLE_COUNTS, rows, sample, sample_rows};

#[test]
fn every_kind_and_column_is_read() {
    let stored = sample();
    assert_eq!(rows(&stored, SAMPLE_COUNTS.0, SAMPLE_COUNTS.1), Ok(sample_rows()));
}

/// What a search for a key finds, by looking at all.
fn expected(key: &[u8], at: u64) -> Option<Row> {
    sample_rows().into_iter().find(|row| row.0 == key && row.1 <= at)
}

#[test]
fn searches_find_what_a_walk_finds() {
    let stored = sample();
    let groups = Groups::parse(&stored).unwrap();
    let (mut codec, mut scratch) = (Backwards(DICTIONARY), Scratch::default());
    let keys = [&b""[..], b"\x01", b"\x01/p", b"\x01/p/", b"\x01/p/a", b"\x01/p/aa", b"\x01/p/b"];
    for key in keys.into_iter().chain([&b"\x01/p/c"[..], b"\x02"]) {
        for at in (0..1010).chain([u64::MAX]) {
            let found = groups.seek(key, at).unwrap().map(|(number, version)| {
                let group = groups.group(number).unwrap();
                let fields = group.fields(version).unwrap();
                let value = groups.value(number, version, &mut codec, &mut scratch).unwrap();
                let value = value.as_ref().to_vec();
                assert_eq!(group.value_bytes(version).unwrap() as usize, value.len());
                let life = (fields.create_revision, fields.version);
                let value = (!fields.tombstone).then_some(value);
                let key = [groups.prefix(), group.key_suffix()].concat();
                (
                    key,
                    fields.revision,
                    fields.death,
                    fields.sub,
                    life.0,
                    life.1,
                    fields.lease,
                    value,
                )
            });
            assert_eq!(found, expected(key, at), "{key:?} at {at}");
        }
    }
}
