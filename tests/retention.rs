//! Rules of retention against a naive model of them: what a rule keeps is read back at every revision,
//! and what it has forgotten is refused with its prefix, whatever was folded, merged, compacted, closed
//! or lost in a crash in between.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

#[path = "support/random.rs"]
#[allow(dead_code, unreachable_pub, reason = "every test file uses a part of it")]
mod random;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annals::clock::{Clock as _, ManualClock};
use annals::vfs::{CrashMode, FaultVfs, MemoryVfs, Operation};
use annals::{ErrorKind, KeyRange, Options, RangeRequest, Retention, Store, delete, put, txn};
use random::Random;

const PREFIXES: [&str; 7] = ["", "/a", "/a/", "/a/deep/", "/events/", "/e", "/z"];
const KEYS: [&str; 12] = [
    "/a",
    "/a/1",
    "/a/2",
    "/a/deep/1",
    "/a/deep/2",
    "/b",
    "/e",
    "/events/1",
    "/events/2",
    "/x",
    "/z",
    "0",
];

fn tiny(disk: &MemoryVfs, clock: &Arc<ManualClock>) -> Options {
    Options::new()
        .vfs(Arc::new(disk.clone()))
        .clock(Arc::clone(clock) as _)
        .background(false)
        .store_id_seed(7)
        .memtable_bytes(16 << 10)
        .wal_bytes(64 << 10)
        .segment_bytes(4 << 10)
        .block_bytes(512)
        .history_block_bytes(1024)
        .l0_files_max(2)
        .history_windows_max(3)
        .retention_interval_seconds(0)
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    revisions: Option<u64>,
    micros: Option<u64>,
    floor: u64,
    removed: bool,
}

/// A store as its specification says: everything ever written, and what may still be asked for.
#[derive(Clone, Debug, Default)]
struct Model {
    /// The state and the time of each revision, from 1 on.
    states: Vec<(BTreeMap<&'static str, String>, i64)>,
    /// What each revision changed, from 2 on, in order of the writes.
    changes: Vec<Vec<&'static str>>,
    rules: BTreeMap<&'static str, Kept>,
    compacted: u64,
}

impl Model {
    fn new() -> Self {
        Self { states: vec![(BTreeMap::new(), 0)], ..Self::default() }
    }

    fn revision(&self) -> u64 {
        self.states.len() as u64
    }

    fn state(&self, revision: u64) -> &BTreeMap<&'static str, String> {
        &self.states[usize::try_from(revision - 1).unwrap()].0
    }

    /// The floor that the keys of a rule would have without it.
    fn floor_around(&self, prefix: &str) -> (u64, Option<&'static str>) {
        let mut shorter = self.rules.keys().filter(|p| p.len() < prefix.len());
        let outer = shorter.rfind(|p| !p.is_empty() && prefix.starts_with(**p));
        outer.map_or((self.compacted, None), |outer| self.floor_of_rule(outer))
    }

    /// The floor of the keys of which the rule for `prefix` is the one that counts, and who says so.
    fn floor_of_rule(&self, prefix: &str) -> (u64, Option<&'static str>) {
        let (name, kept) = self.rules.get_key_value(prefix).unwrap();
        let around = self.floor_around(prefix);
        let is_outrun = kept.removed && around.0 > kept.floor;
        if is_outrun { around } else { (kept.floor, Some(*name)) }
    }

    /// Rules that were taken back and say nothing any more are no rules.
    fn tidy(&mut self) {
        let says_nothing =
            |(p, kept): &(&&str, &Kept)| kept.removed && self.floor_around(p).0 >= kept.floor;
        let gone: Vec<&str> = self.rules.iter().filter(says_nothing).map(|(p, _)| *p).collect();
        self.rules.retain(|prefix, _| !gone.contains(prefix));
    }

    /// The same of a key.
    fn floor(&self, key: &str) -> (u64, Option<&'static str>) {
        let longest = self.rules.keys().filter(|p| !p.is_empty() && key.starts_with(**p));
        let longest = longest.max_by_key(|prefix| prefix.len());
        longest.map_or((self.compacted, None), |prefix| self.floor_of_rule(prefix))
    }

    fn least(&self) -> u64 {
        let rules = self.rules.keys().filter(|prefix| !prefix.is_empty());
        rules.map(|prefix| self.floor_of_rule(prefix).0).chain([self.compacted]).min().unwrap()
    }

    fn set(&mut self, prefix: &'static str, wanted: Option<(Option<u64>, Option<u64>)>) {
        let floor = if prefix.is_empty() { 0 } else { self.floor(prefix).0 };
        match wanted {
            Some((revisions, micros)) => {
                self.rules.insert(prefix, Kept { revisions, micros, floor, removed: false });
            }
            None => {
                if let Some(kept) = self.rules.get_mut(prefix) {
                    *kept = Kept { revisions: None, micros: None, floor, removed: true };
                }
                if prefix.is_empty() || self.floor_around(prefix).0 >= floor {
                    self.rules.remove(prefix);
                }
            }
        }
    }

    /// Brings the rules to where they have come at `now`.
    fn apply(&mut self, now: i64) {
        let newest = self.revision();
        let by_age = |micros: u64| {
            let then = now - i64::try_from(micros).unwrap();
            let not_later = (2..=newest).rev();
            let mut not_later =
                not_later.filter(|r| self.states[usize::try_from(r - 1).unwrap()].1 <= then);
            not_later.next().unwrap_or(0)
        };
        let floor = |kept: &Kept| match (kept.revisions, kept.micros.map(by_age)) {
            (Some(count), Some(age)) => age.min(newest.saturating_sub(count)),
            (Some(count), None) => newest.saturating_sub(count),
            (None, age) => age.unwrap_or(0),
        };
        let floors: Vec<(&str, u64)> =
            self.rules.iter().map(|(prefix, kept)| (*prefix, floor(kept))).collect();
        for (prefix, floor) in floors {
            let kept = self.rules.get_mut(prefix).unwrap();
            let now = if prefix.is_empty() { &mut self.compacted } else { &mut kept.floor };
            if floor > (*now).max(1) {
                *now = floor;
            }
        }
        self.tidy();
    }

    /// Whether a range of keys, whole prefixes or all, can be read at a revision: the greatest floor in it.
    fn floor_of_range(&self, range: &KeyRange) -> u64 {
        // A key of every class that may have keys in the range.
        let of_rules = self.rules.keys().filter(|p| !p.is_empty()).map(|p| format!("{p}\0"));
        let start = String::from_utf8(range.start().to_vec()).unwrap();
        let candidates = of_rules.chain(["/a!", "/b", "0", &start].map(String::from));
        let candidates = candidates.filter(|key| range.contains(key.as_bytes()));
        candidates.map(|key| self.floor(&key).0).max().unwrap_or(0)
    }
}

fn check(store: &Store, model: &Model, random: &mut Random) {
    assert_eq!((store.revision(), store.compacted_revision()), (model.revision(), model.compacted));
    let revisions: Vec<u64> = if random.one_in(4) {
        (1..=model.revision()).collect()
    } else {
        (0..6).map(|_| random.between(1, model.revision() + 1)).collect()
    };
    for revision in revisions.into_iter().chain([model.revision()]) {
        let view = match store.at(revision) {
            Ok(view) => view,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Compacted { .. }), "{error}");
                assert!(revision < model.least(), "{error}");
                continue;
            }
        };
        assert!(revision >= model.least(), "{revision} is below all floors");
        for key in KEYS {
            let (floor, prefix) = model.floor(key);
            let expected = model.state(revision).get(key);
            match view.get(key) {
                Ok(found) => {
                    assert!(revision >= floor, "{key} is read at {revision} below {floor}");
                    let found = found.map(|kv| String::from_utf8(kv.value.to_vec()).unwrap());
                    assert_eq!(found.as_ref(), expected, "{key} at {revision}, floor {floor}");
                }
                Err(error) => {
                    let ErrorKind::Compacted { requested, compacted, prefix: named } =
                        error.into_kind()
                    else {
                        panic!("{key} at {revision}")
                    };
                    assert_eq!((requested, compacted), (revision, floor), "{key}");
                    assert_eq!(named.as_deref(), prefix.map(str::as_bytes), "{key}");
                    assert!(revision < floor, "{key} at {revision} is kept from {floor}");
                }
            }
        }
        for prefix in PREFIXES.into_iter().chain(["/a/deep/1", "/a/2", "/c"]) {
            let range = KeyRange::prefix(prefix);
            let expected: Vec<&str> = model.state(revision).keys().copied().collect();
            let expected: Vec<&str> =
                expected.into_iter().filter(|key| key.starts_with(prefix)).collect();
            let found: Result<Vec<_>, _> = view.range(range.clone()).collect();
            let request = RangeRequest::prefix(prefix).at(revision);
            if prefix.is_empty() {
                // etcd's spelling of every key.
            } else if let Ok(answer) = store.range(request) {
                assert!(found.is_ok());
                assert_eq!(answer.kvs.len(), expected.len());
            } else {
                assert!(found.is_err());
            }
            let is_kept = revision >= model.floor_of_range(&range);
            assert_eq!(found.is_ok(), is_kept, "{prefix} at {revision}");
            assert_eq!(view.count(range).is_ok(), is_kept);
            if let Ok(found) = found {
                let found: Vec<&[u8]> = found.iter().map(|kv| &kv.key[..]).collect();
                let expected: Vec<&[u8]> = expected.iter().map(|key| key.as_bytes()).collect();
                assert_eq!(found, expected, "{prefix} at {revision}");
            }
        }
    }
    check_history(store, model);
    check_log(store, model, random);
}

/// Every key's history ends at its own floor.
fn check_history(store: &Store, model: &Model) {
    for key in KEYS {
        let floor = model.floor(key).0;
        let mut expected = Vec::new();
        for revision in (2..=model.revision()).rev() {
            if !model.changes[usize::try_from(revision - 2).unwrap()].contains(&key) {
                continue;
            }
            let is_alive = model.state(revision).contains_key(key);
            if revision < floor && !is_alive {
                break;
            }
            expected.push((revision, is_alive));
            if revision <= floor {
                break;
            }
        }
        let found = store.history(key).map(Result::unwrap);
        let found: Vec<_> =
            found.map(|version| (version.mod_revision, !version.tombstone)).collect();
        assert_eq!(found, expected, "{key} above {floor}");
    }
}

/// The log of a range, and what differs in it, go back as far as its keys do.
fn check_log(store: &Store, model: &Model, random: &mut Random) {
    let ranges = PREFIXES.map(KeyRange::prefix).into_iter().chain([KeyRange::key("/events/1")]);
    for range in ranges {
        let floor = model.floor_of_range(&range);
        let from = random.between(1, model.revision() + 1);
        let to = random.between(from, model.revision() + 1);
        assert_eq!(store.diff(from, to, range.clone()).is_ok(), from >= floor, "{range:?} {from}");
        for first in [None, Some(from)] {
            let log = match first {
                None => store.log_of(.., range.clone()),
                Some(first) => store.log_of(first.., range.clone()),
            };
            let found: Result<Vec<_>, _> = log.with_values().collect();
            let first = first.unwrap_or(floor);
            let Ok(found) = found else {
                assert!(first < floor, "the log of {range:?} from {first}, floor {floor}");
                continue;
            };
            assert!(first >= floor, "the log of {range:?} from {first}, floor {floor}");
            let mut expected = Vec::new();
            for revision in first.max(2)..=model.revision() {
                let changed = &model.changes[usize::try_from(revision - 2).unwrap()];
                let in_range = changed.iter().filter(|key| range.contains(key.as_bytes()));
                expected.extend(in_range.map(|key| {
                    (revision, key.as_bytes(), model.state(revision).get(key).map(String::as_bytes))
                }));
            }
            let found = found.iter().flat_map(|t| t.changes.iter().map(|c| (t.revision, c)));
            let found: Vec<_> = found.map(|(r, c)| (r, &c.key[..], c.value.as_deref())).collect();
            assert_eq!(found, expected, "the log of {range:?} from {first}");
        }
    }
}

fn write(store: &Store, model: &mut Model, clock: &ManualClock, random: &mut Random) {
    clock.advance(i64::try_from(random.below(3)).unwrap() * 500_000);
    let mut state = model.state(model.revision()).clone();
    let mut ops = Vec::new();
    let mut changed: Vec<&str> = Vec::new();
    for _ in 0..random.between(1, 4) {
        let key = *random.pick(&KEYS);
        if changed.contains(&key) {
            continue;
        }
        if random.one_in(4) && state.remove(key).is_some() {
            ops.push(delete(key));
        } else {
            let value = format!("{} {}", model.revision() + 1, "v".repeat(random.index(300)));
            ops.push(put(key, &value));
            state.insert(key, value);
        }
        changed.push(key);
    }
    let done = store.transact(txn().then(ops)).unwrap();
    model.states.push((state, clock.now_micros()));
    model.changes.push(changed);
    assert_eq!(done.revision, model.revision());
}

fn random_rule(random: &mut Random) -> Option<(Option<u64>, Option<u64>)> {
    let revisions = random.one_in(2).then(|| random.below(60));
    let micros = random.one_in(2).then(|| random.below(40) * 500_000);
    (!random.one_in(3)).then_some((revisions, micros))
}

fn run(seed: u64, steps: u64) {
    let mut random = Random::new(seed);
    let mut disk = MemoryVfs::new();
    let clock = Arc::new(ManualClock::new(1_000_000));
    let mut store = tiny(&disk, &clock).open("store").unwrap();
    let mut model = Model::new();
    for step in 0..steps {
        match random.below(40) {
            0 => {
                let prefix = *random.pick(&PREFIXES);
                let wanted = random_rule(&mut random);
                let retention = wanted.map(|(revisions, micros)| {
                    let forever = Retention::forever();
                    let by_revisions = revisions.map_or(forever, |n| forever.keep_revisions(n));
                    micros.map_or(by_revisions, |m| by_revisions.keep_for(Duration::from_micros(m)))
                });
                store.set_retention(prefix, retention).unwrap();
                model.set(prefix, wanted);
            }
            1 | 2 => {
                store.apply_retention().unwrap();
                model.apply(clock.now_micros());
            }
            3 => {
                let to = random.between(1, model.revision() + 1);
                assert_eq!(store.compact(to).is_ok(), to > model.compacted);
                model.compacted = model.compacted.max(to);
            }
            4 => store.reorganise().unwrap(),
            5 | 6 => while store.run_background().unwrap() {},
            7 if random.one_in(3) => {
                store.close().unwrap();
                store = tiny(&disk, &clock).open("store").unwrap();
            }
            8 if random.one_in(3) => {
                // A crash loses nothing that was acknowledged, a floor least of all.
                disk = disk.crash(random.next(), CrashMode::Random);
                store = tiny(&disk, &clock).open("store").unwrap();
            }
            9 | 10 => {
                check(&store, &model, &mut random);
                let reader = tiny(&disk, &clock);
                let reader = Store::open_read_only_with("store", &reader).unwrap();
                check(&reader, &model, &mut random);
            }
            _ => write(&store, &mut model, &clock, &mut random),
        }
        if step % 64 == 0 {
            check(&store, &model, &mut random);
        }
    }
    store.reorganise().unwrap();
    check(&store, &model, &mut random);
}

#[test]
fn rules_of_all_kinds_keep_what_they_say_and_no_more_can_be_read() {
    let first: u64 = std::env::var("ANNALS_SEED").map_or(1, |seed| seed.parse().unwrap());
    for seed in first..first + 12 {
        println!("seed {seed}");
        run(seed, 500);
    }
}

#[test]
fn the_log_of_no_keys_is_empty_whatever_the_rules() {
    let (disk, clock) = (MemoryVfs::new(), Arc::new(ManualClock::new(1_000_000)));
    let store = tiny(&disk, &clock).open("store").unwrap();
    for number in 0..20 {
        store.put(if number % 2 == 0 { "/b/k" } else { "/c" }, format!("{number}")).unwrap();
    }
    store.set_retention("/b/", Some(Retention::forever().keep_revisions(1))).unwrap();
    store.apply_retention().unwrap();
    store.compact(9).unwrap();
    for (start, end) in [("/b/", "/b/"), ("/b0", "/b0"), ("/z", "/a"), ("/a", "/a")] {
        let none = KeyRange::between(start, end);
        let events = store.log_of(.., none).map(|found| found.unwrap().changes.len());
        assert_eq!(events.sum::<usize>(), 0, "{start} to {end}");
    }
}

#[test]
fn a_log_that_is_refused_says_from_where_on_its_keys_are_kept() {
    let (disk, clock) = (MemoryVfs::new(), Arc::new(ManualClock::new(1_000)));
    let store = tiny(&disk, &clock).open("/store").unwrap();
    store.set_retention("/a/", Some(Retention::forever().keep_revisions(20))).unwrap();
    for n in 0..40 {
        store.put(if n % 2 == 0 { "/a/1" } else { "/x" }, n.to_string()).unwrap();
    }
    store.apply_retention().unwrap();
    store.compact(30).unwrap();
    let kept = store.oldest_readable(KeyRange::prefix("/a/"));
    assert_eq!((kept, store.oldest_readable(KeyRange::prefix("/x"))), (21, 30));
    for (prefix, floor, rule) in [("/a/", 21, Some("/a/")), ("/x", 30, None)] {
        let refused = store.log_of(5.., KeyRange::prefix(prefix)).next().unwrap().unwrap_err();
        let ErrorKind::Compacted { requested, compacted, prefix } = refused.kind() else {
            panic!("{refused}");
        };
        let prefix = prefix.as_ref().map(|prefix| std::str::from_utf8(prefix).unwrap());
        assert_eq!((*requested, *compacted, prefix), (5, floor, rule));
    }
    assert_eq!(store.log_of(21.., KeyRange::prefix("/a/")).map(Result::unwrap).count(), 10);
}

/// The floors that a manifest lists belong to its watermark, also in a copy that has come further than the last
/// manifest of the store.
#[test]
fn a_copy_lists_how_far_back_its_keys_can_be_read() {
    let (disk, clock) = (MemoryVfs::new(), Arc::new(ManualClock::new(1_700_000_000_000_000)));
    let options = tiny(&disk, &clock);
    let store = options.open("data").unwrap();
    let put_until = |revision: u64| {
        while store.revision() < revision {
            store.put("/a/1", "x").unwrap();
        }
    };
    put_until(20);
    store.compact(10).unwrap();
    store.set_retention("/a/", Some(Retention::forever())).unwrap();
    put_until(60);
    store.compact(50).unwrap();
    store.checkpoint("copied").unwrap();
    let mut stream = Vec::new();
    store.backup(&mut stream).unwrap();
    let into = annals::RestoreOptions::new().options(options.clone());
    annals::restore(stream.as_slice(), "restored", &into).unwrap();
    for made in ["copied", "restored"] {
        let files = annals::inspect::StoreFiles::open(made, &options).unwrap();
        let manifest = files.manifest();
        assert_eq!((manifest.compacted, &manifest.floors[..]), (50, &[(b"/a/".to_vec(), 10)][..]));
    }
}

/// A version that is older than the floor of its key is still current. What is known of its transaction is told: when it
/// was, as long as any key is kept as far back, whatever has been written again meanwhile.
#[test]
fn a_version_has_its_time_as_long_as_the_store_knows_it() {
    let (disk, clock) = (MemoryVfs::new(), Arc::new(ManualClock::new(1_700_000_000_000_000)));
    let options = tiny(&disk, &clock);
    let mut store = options.open("data").unwrap();
    store.set_retention("/audit/", Some(Retention::forever())).unwrap();
    let mut times = Vec::new();
    for key in ["/audit/1", "/old", "/audit/2", "/deleted"] {
        clock.advance(1_000_000);
        let by = |what: &str| format!("{what} {key}");
        let made = store.txn().then([put(key, "v")]).metadata(by("put")).commit().unwrap();
        times.push(store.time_of(made.revision).unwrap());
    }
    store.delete("/deleted").unwrap();
    while store.revision() < 60 {
        store.put("/busy", "x".repeat(300)).unwrap();
    }
    let origin = |store: &Store, key: &str| {
        let version = store.history(key).with_origin().next().unwrap().unwrap();
        let known = store.time_of(version.mod_revision).ok();
        let origin = version.origin.map(|origin| (origin.time, origin.metadata));
        assert_eq!(origin.as_ref().map(|(time, _)| *time), known, "{key}");
        origin
    };
    assert_eq!(origin(&store, "/old"), Some((times[1], "put /old".into())));
    store.compact(50).unwrap();
    for _ in 0..2 {
        assert_eq!(origin(&store, "/audit/1"), Some((times[0], "put /audit/1".into())));
        // What it was attached went with the change.
        assert_eq!(origin(&store, "/old"), Some((times[1], "".into())));
        // Nor is more shown of the past than before.
        assert_eq!(store.history("/deleted").with_origin().count(), 0);
        assert_eq!(store.history("/busy").with_origin().count(), 11);
        store.reorganise().unwrap();
        store.close().unwrap();
        store = options.open("data").unwrap();
    }
    store.set_retention("/audit/", None).unwrap();
    store.compact(55).unwrap();
    assert_eq!((origin(&store, "/old"), origin(&store, "/audit/1")), (None, None));
}

/// The floors of a copy's manifest are those of its own rules, whatever becomes of the rules of the store while it
/// is made: by others a repair of the copy would answer what is gone, or give up what is there.
#[test]
fn a_copy_lists_the_floors_of_its_own_moment() {
    for taken_back in [false, true] {
        let (disk, clock) = (MemoryVfs::new(), Arc::new(ManualClock::new(1_700_000_000_000_000)));
        let faulty = FaultVfs::new(Arc::new(disk.clone()));
        let options = tiny(&disk, &clock).vfs(Arc::new(faulty.clone()));
        let store = Arc::new(options.open("data").unwrap());
        let few = Retention::forever().keep_revisions(10);
        store.set_retention("/a/", Some(few)).unwrap();
        for n in 0..200 {
            store.put(format!("/a/{}", n % 7), "x".repeat(60)).unwrap();
        }
        store.reorganise().unwrap();
        store.apply_retention().unwrap();
        store.put("/b", "").unwrap();
        if taken_back {
            store.set_retention("/a/", None).unwrap();
        }
        let (there, files) = (Arc::clone(&store), AtomicU64::new(0));
        faulty.observe(move |_, operation| {
            // All that is in the copy has been fixed by now.
            if operation == Operation::Create && files.fetch_add(1, Ordering::SeqCst) == 1 {
                if taken_back {
                    there.compact(there.revision()).unwrap();
                } else {
                    for _ in 0..50 {
                        there.put("/b", "").unwrap();
                    }
                }
                assert!(there.apply_retention().unwrap());
            }
        });
        store.checkpoint("copied").unwrap();
        faulty.observe(|_, _| {});
        let read = tiny(&disk, &clock);
        let copy = Store::open_read_only_with("copied", &read).unwrap();
        let rules = copy.retention();
        let floors: Vec<_> = rules.iter().map(|rule| (rule.prefix.to_vec(), rule.floor)).collect();
        assert_eq!(floors.len(), 1);
        let files = annals::inspect::StoreFiles::open("copied", &read).unwrap();
        assert_eq!(files.manifest().floors, floors, "taken back: {taken_back}");
        assert_eq!(files.manifest().compacted, copy.compacted_revision());
    }
}
