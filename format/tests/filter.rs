//! Filters: golden files, every key passes, few others do, and damage that no decoder may panic on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test that is how to fail")]

mod harness;

use std::time::Instant;

use annals_format::checksum::FileSeed;
use annals_format::filter::{
    self, FILTER_HEADER_BYTES, FILTER_LAYOUT, Filter, FilterKind, Shape, fuse,
};
use annals_format::{DecodeError, FileKind, Place, Problem, StoreId};
use harness::{Dump, damage_everywhere, golden};

const PLACE: Place =
    Place { store: StoreId(*b"annals of a test"), kind: FileKind::Head, file: 12, offset: 4096 };

fn seed() -> FileSeed {
    FileSeed::new(&PLACE)
}

fn hash(key: u64) -> u64 {
    filter::hash_key(format!("/registry/pods/{key}").as_bytes())
}

fn encoded(kind: FilterKind, hashes: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    filter::encode(&mut out, kind, hashes, seed(), PLACE.offset);
    out
}

fn decode(bytes: &[u8]) -> Result<Filter<'_>, DecodeError> {
    Filter::check_crc(bytes, seed(), PLACE.offset)?;
    Filter::decode(bytes)
}

fn is_fuse(filter: &Filter<'_>) -> bool {
    matches!(filter.shape(), Shape::Fuse(_))
}

#[test]
fn filters_are_golden_and_pass_their_keys() {
    let hashes: Vec<u64> = (0..60_u32).map(|key| filter::hash_key(&key.to_le_bytes())).collect();
    for (kind, name) in [(FilterKind::Bloom, "bloom"), (FilterKind::Fuse, "fuse")] {
        let encoded = encoded(kind, &hashes);
        let title = format!("a {name} filter of the keys 0 to 59, as four bytes each");
        let mut dump = Dump::new(&title, &encoded);
        dump.layout(&FILTER_LAYOUT);
        for _ in 0..(encoded.len() - FILTER_HEADER_BYTES) / 16 {
            dump.bytes(16, "table");
        }
        let bytes = golden(&format!("segment-filter-{name}-v1.hex"), &dump.finish());
        damage_everywhere(&bytes, false, &|bytes| decode(bytes).map(drop), &|_, error| {
            matches!(error.problem, Problem::Checksum { .. })
        });
        let filter = Filter::decode(&bytes).unwrap();
        assert_eq!(is_fuse(&filter), kind == FilterKind::Fuse);
        assert!(hashes.iter().all(|hash| filter.may_contain(*hash)));
        let kept = Filter::from_parts(filter.shape(), filter.table());
        assert!(hashes.iter().all(|hash| kept.may_contain(*hash)));
        assert!((0..10_000).any(|key| !kept.may_contain(hash(key))));
    }
}

#[test]
fn every_key_passes_whatever_their_number_and_few_others_do() {
    let sizes = (1..200).chain([300, 303, 304, 1009, 1010, 1011, 5000, 40_000, 130_000]);
    for size in sizes {
        let hashes: Vec<u64> = (0..size).map(hash).collect();
        for (kind, passing) in [(FilterKind::Bloom, 0.02), (FilterKind::Fuse, 0.006)] {
            let bytes = encoded(kind, &hashes);
            let filter = decode(&bytes).unwrap();
            assert_eq!(is_fuse(&filter), kind == FilterKind::Fuse, "{size} keys");
            assert!(hashes.iter().all(|hash| filter.may_contain(*hash)), "{kind:?}: {size} keys");
            if size >= 40_000 {
                let absent = 200_000..300_000_u32;
                let passed = absent.filter(|key| filter.may_contain(hash(u64::from(*key)))).count();
                let most = 100_000.0 * passing;
                let passed = f64::from(u32::try_from(passed).unwrap());
                assert!(passed < most, "{kind:?}: {passed} of 100,000 absent keys pass");
            }
        }
    }
}

#[test]
fn a_fuse_filter_is_smaller_where_there_are_many_keys() {
    let hashes: Vec<u64> = (0..130_000).map(hash).collect();
    let [bloom, fuse] =
        [FilterKind::Bloom, FilterKind::Fuse].map(|kind| encoded(kind, &hashes).len());
    assert!(fuse < bloom * 97 / 100, "{fuse} beside {bloom}");
}

#[test]
fn keys_of_the_same_hash_are_one() {
    let mut hashes: Vec<u64> = (0..1000).map(hash).collect();
    hashes.extend((0..500).map(hash));
    let bytes = encoded(FilterKind::Fuse, &hashes);
    let filter = decode(&bytes).unwrap();
    assert!(is_fuse(&filter));
    assert!(hashes.iter().all(|hash| filter.may_contain(*hash)));
}

/// Every value of every byte of the header, and of some of the table, with no checksum compared.
#[test]
fn no_damage_panics_or_goes_beyond_the_table() {
    let hashes: Vec<u64> = (0..300).map(hash).collect();
    for kind in [FilterKind::Bloom, FilterKind::Fuse] {
        let good = encoded(kind, &hashes);
        let read = |bytes: &[u8]| {
            if let Ok(filter) = Filter::decode(bytes) {
                for hash in hashes.iter().chain([&0, &u64::MAX]) {
                    filter.may_contain(*hash);
                }
            }
        };
        for at in (0..FILTER_HEADER_BYTES).chain((FILTER_HEADER_BYTES..good.len()).step_by(97)) {
            for value in 0..=255 {
                let mut bad = good.clone();
                bad[at] = value;
                read(&bad);
            }
        }
        for end in 0..good.len() {
            read(&good[..end]);
        }
        // A table that is shorter than its shape, which no decoder lets pass.
        let filter = Filter::decode(&good).unwrap();
        for bytes in [0, 1, 63, filter.table().len() - 1] {
            let short = Filter::from_parts(filter.shape(), &filter.table()[..bytes]);
            let _: usize = hashes.iter().filter(|hash| short.may_contain(**hash)).count();
        }
    }
}

#[test]
fn headers_that_do_not_add_up_are_refused() {
    let hashes: Vec<u64> = (0..300).map(hash).collect();
    let refused = |kind: FilterKind, at: usize, value: u8| {
        let mut bad = encoded(kind, &hashes);
        assert_ne!(bad[at], value);
        bad[at] = value;
        Filter::decode(&bad).unwrap_err().field
    };
    assert_eq!(refused(FilterKind::Bloom, 4, 0), "kind");
    assert_eq!(refused(FilterKind::Bloom, 4, 3), "kind");
    assert_eq!(refused(FilterKind::Bloom, 5, 7), "shape");
    assert_eq!(refused(FilterKind::Bloom, 6, 1), "zero");
    assert_eq!(refused(FilterKind::Bloom, 16, 0), "parts");
    assert_eq!(refused(FilterKind::Bloom, 20, 1), "seed");
    assert_eq!(refused(FilterKind::Fuse, 5, fuse::LENGTH_LOG_MAX + 1), "shape");
    assert_eq!(refused(FilterKind::Fuse, 5, 2), "parts");
    assert_eq!(refused(FilterKind::Fuse, 16, 1), "parts");
    assert_eq!(refused(FilterKind::Fuse, 19, 255), "parts");
}

#[test]
#[ignore = "prints figures and proves nothing"]
#[expect(clippy::cast_precision_loss, reason = "the figures are rounded")]
fn figures_of_both_kinds() {
    for size in [1_000_u64, 30_000, 100_000, 1_000_000, 10_000_000] {
        let hashes: Vec<u64> = (0..size).map(hash).collect();
        let absent: Vec<u64> = (size..size + 1_000_000).map(hash).collect();
        let present: Vec<u64> =
            absent.iter().map(|hash| hashes[usize::try_from(hash % size).unwrap()]).collect();
        for kind in [FilterKind::Bloom, FilterKind::Fuse] {
            let started = Instant::now();
            let bytes = encoded(kind, &hashes);
            let built = started.elapsed().as_nanos() / u128::from(size);
            let filter = Filter::decode(&bytes).unwrap();
            let look = |keys: &[u64]| {
                let started = Instant::now();
                let passed = keys.iter().filter(|hash| filter.may_contain(**hash)).count();
                (started.elapsed().as_nanos() as f64 / keys.len() as f64, passed)
            };
            let (absent, passed) = look(&absent);
            let (present, _) = look(&present);
            let bits = bytes.len() as f64 * 8.0 / size as f64;
            println!(
                "{kind:?} of {size}: {bits:.2} bits a key, {built} ns a key to build, {absent:.1} ns absent, \
                 {present:.1} ns present, {passed} of a million absent pass"
            );
        }
    }
}
