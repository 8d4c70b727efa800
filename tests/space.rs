//! Which keys take how much room: `Store::space` and the shares in `Store::stats`, against stores of
//! which it is known.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::path::Path;
use std::sync::Arc;

use annals::inspect::StoreFiles;
use annals::vfs::MemoryVfs;
use annals::{Options, PrefixSpace, ReadMode, Space, SpaceOptions, Store};
use annals_format::FileKind;
use annals_format::name::FileName;

const DIR: &str = "/store";

/// How many keys each prefix has, how often each is written, and how long the values are.
const PREFIXES: [(&str, u64, u64, usize); 4] = [
    ("/events/", 600, 2, 100),
    ("/logs/app/", 300, 1, 1500),
    ("/logs/db/", 100, 1, 1500),
    ("/pods/", 40, 40, 700),
];

fn options(disk: &MemoryVfs) -> Options {
    Options::new()
        .vfs(Arc::new(disk.clone()))
        .background(false)
        .memtable_bytes(256 << 10)
        .wal_bytes(256 << 10)
        .segment_bytes(128 << 10)
        .block_bytes(2048)
        .history_block_bytes(2048)
}

/// Bytes that no two values have in common and that do not compress.
fn value(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 56) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

/// A store with the prefixes that are wanted, written in turns.
fn filled(disk: &MemoryVfs, wanted: impl Fn(&str) -> bool) -> Store {
    let store = options(disk).open(DIR).unwrap();
    for round in 0..40 {
        for (number, (prefix, keys, rounds, bytes)) in (0..).zip(PREFIXES) {
            if !wanted(prefix) || round >= rounds {
                continue;
            }
            for key in 0..keys {
                let value = value((number << 40) + (key << 20) + round, bytes);
                store.put(format!("{prefix}{key:05}"), value).unwrap();
                while store.run_background().unwrap() {}
            }
        }
    }
    store
}

/// Length of the files of versions.
fn listed(store: &Store) -> u64 {
    let stats = store.stats();
    stats.l0.bytes + stats.head.bytes + stats.history.bytes
}

fn sum(space: &Space) -> u64 {
    space.prefixes.iter().map(PrefixSpace::bytes).sum::<u64>() + space.other.bytes()
}

fn named<'a>(space: &'a Space, prefix: &str) -> &'a PrefixSpace {
    space.prefixes.iter().find(|found| found.prefix == prefix).unwrap()
}

#[test]
fn each_prefix_takes_what_a_store_of_it_alone_takes() {
    let disk = MemoryVfs::new();
    let store = filled(&disk, |_| true);
    for is_folded in [false, true] {
        if is_folded {
            store.reorganise().unwrap();
        }
        let space = store.space(SpaceOptions::new().depth(2)).unwrap();
        // Whatever is in files is told, and nothing twice.
        assert_eq!(sum(&space), listed(&store), "{space:#?}");
        assert_eq!(space.prefixes[0].prefix, "/pods/", "{space:#?}");
        assert!(space.prefixes.is_sorted_by_key(|found| std::cmp::Reverse(found.bytes())));
    }
    let space = store.space(SpaceOptions::new().depth(2)).unwrap();
    for (prefix, ..) in PREFIXES {
        let alone = filled(&MemoryVfs::new(), |wanted| wanted == prefix);
        alone.reorganise().unwrap();
        let found = named(&space, prefix);
        let stats = alone.stats();
        for (what, found, truth) in [
            ("all", found.bytes(), listed(&alone)),
            ("live", found.live_bytes, stats.live_bytes),
            ("history", found.history_bytes, stats.history_bytes),
        ] {
            assert!(found.abs_diff(truth) * 10 <= truth, "{prefix} {what}: {found} {truth}");
        }
        assert_eq!(found.dead_bytes, 0);
    }
    let entries = PREFIXES.iter().map(|(_, keys, rounds, _)| keys * rounds).sum::<u64>();
    assert_eq!(space.prefixes.iter().map(|found| found.versions).sum::<u64>(), entries);
    let keys = PREFIXES.iter().map(|(_, keys, ..)| keys).sum::<u64>();
    assert_eq!(space.prefixes.iter().map(|found| found.keys).sum::<u64>(), keys);
}

#[test]
fn a_range_is_divided_as_deep_as_asked_for() {
    let store = filled(&MemoryVfs::new(), |_| true);
    store.reorganise().unwrap();
    let all = store.space(SpaceOptions::new().depth(2)).unwrap();
    let prefixes = |options: SpaceOptions| -> Vec<String> {
        let space = store.space(options).unwrap();
        let names =
            space.prefixes.iter().map(|found| String::from_utf8_lossy(&found.prefix).into());
        names.collect()
    };
    assert_eq!(prefixes(SpaceOptions::new()), ["/pods/", "/logs/", "/events/"]);
    assert_eq!(prefixes(SpaceOptions::new().prefix("/lo")), ["/logs/"]);
    assert_eq!(prefixes(SpaceOptions::new().prefix("/logs/")), ["/logs/app/", "/logs/db/"]);
    assert_eq!(prefixes(SpaceOptions::new().prefix("/logs").depth(0)), ["/logs"]);
    assert_eq!(prefixes(SpaceOptions::new().prefix("/nothing/")), [""; 0]);
    assert_eq!(prefixes(SpaceOptions::new().delimiter(b's')), ["/pods", "/logs", "/events"]);
    // Of a range as much is told as of the whole store.
    let logs = store.space(SpaceOptions::new().prefix("/logs/").depth(0)).unwrap();
    let within = named(&all, "/logs/app/").bytes() + named(&all, "/logs/db/").bytes();
    assert!(sum(&logs).abs_diff(within) * 50 <= within, "{} {within}", sum(&logs));
}

#[test]
fn what_is_not_named_is_summed_up() {
    let store = filled(&MemoryVfs::new(), |prefix| prefix != "/logs/db/");
    for key in 0..2000 {
        store.put(format!("/tenants/{:04}/{key:04}", key / 10), value(key, 300)).unwrap();
        while store.run_background().unwrap() {}
    }
    store.reorganise().unwrap();
    let all = store.space(SpaceOptions::new().depth(2).top(usize::MAX)).unwrap();
    assert_eq!((all.other_prefixes, all.other.bytes()), (0, 0));
    assert!(all.prefixes.len() > 150);
    for top in [0, 2, 20] {
        let some = store.space(SpaceOptions::new().depth(2).top(top)).unwrap();
        assert_eq!(some.prefixes, all.prefixes[..top]);
        assert_eq!(some.other_prefixes, (all.prefixes.len() - top) as u64);
        assert_eq!(sum(&some), sum(&all));
    }
}

#[test]
fn the_shares_add_up_and_compaction_makes_history_dead() {
    let disk = MemoryVfs::new();
    let store = filled(&disk, |_| true);
    let check = |store: &Store| {
        let stats = store.stats();
        let shares = stats.live_bytes + stats.history_bytes + stats.event_bytes + stats.dead_bytes;
        assert_eq!(shares, stats.listed_bytes() - stats.wal_bytes);
        stats
    };
    check(&store);
    store.reorganise().unwrap();
    let before = check(&store);
    assert!(before.dead_bytes == 0 && before.history_bytes > 4 * before.live_bytes / 5);
    // As long as somebody holds on to the past, it is history.
    let held = store.at(store.revision() / 2).unwrap();
    store.compact(store.revision()).unwrap();
    let pinned = check(&store);
    assert!(pinned.history_bytes > before.history_bytes / 4, "{pinned:?}");
    drop(held);
    let after = check(&store);
    assert_eq!(after.live_bytes, before.live_bytes);
    assert!(after.dead_bytes > 9 * (before.history_bytes + before.event_bytes) / 10, "{after:?}");
    let dead = store.space(SpaceOptions::new()).unwrap();
    let pods = named(&dead, "/pods/");
    assert!(pods.dead_bytes > 9 * pods.history_bytes, "{pods:?}");
    store.reorganise().unwrap();
    assert!(check(&store).dead_bytes < after.dead_bytes / 20);
    // Deleted keys are alive no more.
    store.txn().then([annals::delete_prefix("/logs/")]).commit().unwrap();
    store.reorganise().unwrap();
    let deleted = check(&store);
    assert!(deleted.live_bytes < before.live_bytes / 2, "{deleted:?}");
}

#[test]
fn a_survey_goes_on_over_files_that_are_removed() {
    for mode in [ReadMode::Mmap, ReadMode::Pread] {
        let disk = MemoryVfs::new();
        let writer = filled(&disk, |_| true);
        let reader = Store::open_read_only_with(DIR, &options(&disk).read_mode(mode)).unwrap();
        let before = listed(&reader);
        let survey = reader.survey(SpaceOptions::new()).unwrap();
        let own = writer.survey(SpaceOptions::new()).unwrap();
        writer.compact(writer.revision()).unwrap();
        writer.reorganise().unwrap();
        assert!(listed(&writer) < before);
        assert_eq!(sum(&survey.finish().unwrap()), before);
        assert_eq!(sum(&own.finish().unwrap()), before);
    }
}

/// Long and short values in one file, few and many versions of a key: an average over the file says nothing of
/// either.
#[test]
fn keys_and_versions_are_those_of_the_prefix_not_of_the_file() {
    let disk = MemoryVfs::new();
    let store = options(&disk).open(DIR).unwrap();
    for n in 0..2000_u64 {
        store.put(format!("/small/{n:05}"), value(n, 8)).unwrap();
        store.put(format!("/large/{:05}", n / 40), value(n, 900)).unwrap();
    }
    for n in 0..500_u64 {
        store.delete(format!("/small/{n:05}")).unwrap();
    }
    store.reorganise().unwrap();
    let check = || {
        let space = store.space(SpaceOptions::new()).unwrap();
        assert_eq!(space.prefixes.len(), 2, "{space:?}");
        let [large, small] = ["/large/", "/small/"].map(|prefix| named(&space, prefix));
        assert_eq!((large.keys, small.keys), (50, 1500), "{space:?}");
        (large.versions, small.versions)
    };
    let (large, small) = check();
    assert_eq!(large, 2000);
    // With the tombstones, and what they deleted.
    assert_eq!(small, 2500);
    // Puts of keys that are there make none, in files that are not folded yet either.
    for n in 0..400_u64 {
        store.put(format!("/large/{:05}", n % 50), value(n, 900)).unwrap();
        while store.run_background().unwrap() {}
    }
    assert!(store.stats().l0.files > 0);
    let (large, _) = check();
    assert!((2100..=2400).contains(&large), "{large}");
}

#[test]
fn a_damaged_index_is_told() {
    let disk = MemoryVfs::new();
    let store = filled(&disk, |_| true);
    store.reorganise().unwrap();
    store.close().unwrap();
    let files = StoreFiles::open(DIR, &options(&disk)).unwrap();
    let meta = files.manifest().files.iter().find(|meta| meta.kind == FileKind::History).unwrap();
    let root = files.segment(meta).unwrap().footer().unwrap().root.offset;
    let path = Path::new(DIR).join(FileName::new(meta.kind, meta.number).to_string());
    let mut bytes = disk.read(&path).unwrap();
    bytes[usize::try_from(root).unwrap() + 40] ^= 1;
    disk.overwrite(&path, &bytes);
    let store = Store::open_read_only_with(DIR, &options(&disk)).unwrap();
    let error = store.space(SpaceOptions::new()).unwrap_err();
    assert_eq!(error.corruption().unwrap().file, path);
}
