//! Stores that are put together from what another one had: equal to it at every revision, complete or no store
//! whatever stops the loading, and nothing taken that does not follow.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use annals::clock::ManualClock;
use annals::vfs::{Fault, FaultVfs, MemoryVfs};
use annals::{
    At, Change, ChangeKind, ErrorKind, KeyValue, KvHash, Load, Loading, Options, Origin, Retention,
    Store, Transaction,
};
use support::check::{self, Depth, caught, good};
use support::copies::{changes_disk, hashes, images, is_not_empty, options, sound, whole};
use support::drive::{Driver, Ended};
use support::generate::{self, Taste};
use support::model::{Model, Request};
use support::random::Random;
use support::{DIRECTORY, START_TIME};

const LOADED: &str = "loaded";

/// A store that was never compacted, and its model.
fn scripted(requests: u64, seed: u64) -> (Store, Model) {
    let clock = Arc::new(ManualClock::new(START_TIME));
    let store = options(MemoryVfs::new()).clock(Arc::clone(&clock) as _).open(DIRECTORY).unwrap();
    let driver = Driver::new(clock);
    let mut random = Random::new(seed);
    let mut taste = Taste::random(&mut random);
    taste.leases = true;
    for n in 0..requests {
        let model = driver.model().model.clone();
        let request = generate::request(&mut random, &taste, &model);
        if matches!(request, Request::Compact(_)) {
            continue;
        }
        match driver.request(&store, &request) {
            Ok(Ended::AsExpected) => {}
            other => panic!("seed {seed}: {request:?}: {other:?}"),
        }
        if n % 40 == 0 {
            store.reorganise().unwrap();
        }
    }
    let model = driver.model().model.clone();
    (store, model)
}

/// The model after a compaction, unless it is 0.
fn compacted(model: &Model, revision: u64) -> Model {
    let mut model = model.clone();
    if revision > 0 {
        model.apply(&Request::Compact(revision), START_TIME).unwrap();
    }
    model
}

/// Begins a store with what lived in the model as of the revision that it was compacted to.
fn begin(options: &Options, path: &str, model: &Model) -> annals::Result<Loading> {
    let compacted = model.compacted();
    let mut origin = Origin { time: START_TIME, ..Origin::default() };
    let mut base = Vec::new();
    if compacted > 0 {
        let Transaction { time, metadata, changes, .. } = model.transaction(compacted).clone();
        origin = Origin { time, metadata };
        let deleted = changes.into_iter().filter(|change| change.kind == ChangeKind::Delete);
        base.extend(deleted.map(|change| (change.key, change.sub, None)));
        for (key, kv) in model.state_at(compacted) {
            let changes = &model.transaction(kv.mod_revision).changes;
            let sub = changes.iter().find(|change| change.key == key).expect("it changed").sub;
            base.push((key, sub, Some(kv)));
        }
        base.sort_by(|one, next| one.0.cmp(&next.0));
    }
    let mut load = Load::create(path, options, compacted, &origin)?;
    for (key, sub, kv) in base {
        match kv {
            Some(kv) => load.base(&kv, sub)?,
            None => load.base_deleted(key, sub)?,
        }
    }
    load.begin()
}

/// Loads all that a model shows, and answers the store with its hash before it was one.
fn load(options: &Options, path: &str, model: &Model) -> annals::Result<(Store, KvHash)> {
    let mut loading = begin(options, path, model)?;
    for transaction in model.transactions(model.compacted() + 1) {
        loading.transaction(&transaction)?;
    }
    for (id, ttl) in model.leases() {
        loading.lease(*id, *ttl, Some(1_500))?;
    }
    // Of no key that is there.
    loading.set_retention("kept for ever", Retention::forever().keep_revisions(9))?;
    loading.set_retention("kept for ever", Retention::forever())?;
    assert!(loading.set_retention([b'k'; 1025], Retention::forever()).is_err());
    let hash = loading.hash()?;
    Ok((loading.finish()?, hash))
}

/// Checks a directory after a loading has ended or been stopped. Answers whether it is a store.
fn complete(options: &Options, model: &Model, expected: &[KvHash]) -> Result<bool, String> {
    let refused = |error: &annals::Error| {
        matches!(error.kind(), ErrorKind::NoStore { .. } | ErrorKind::NotAStore { .. })
    };
    let store = match options.clone().create(false).open(LOADED) {
        Err(error) if refused(&error) => {
            // Nor is it one for a reader, nor for who checks it.
            let read = Store::open_read_only_with(LOADED, options).map(drop);
            let checked = annals::check(Path::new(LOADED), options, &mut |_, _| {}).map(drop);
            for answer in [read, checked] {
                check::same(|| "refused".into(), &answer.is_err_and(|e| refused(&e)), &true)?;
            }
            return Ok(false);
        }
        opened => good(|| "open".into(), opened)?,
    };
    let rules: Vec<_> = store.retention().into_iter().map(|rule| rule.retention).collect();
    check::same(|| "rules".into(), &rules, &vec![Some(Retention::forever())])?;
    whole(store, options, LOADED, model, expected)?;
    Ok(true)
}

#[test]
fn what_is_loaded_is_what_was_there_at_every_revision() {
    for seed in 1..=6 {
        let (source, whole) = scripted(150, seed);
        let last = source.revision();
        for at in [0, 2, 3, last / 4, last / 2, last - 1, last] {
            if at > source.compacted_revision() {
                source.compact(at).unwrap();
            } else if at > 0 {
                continue;
            }
            let (model, expected) = (compacted(&whole, at), hashes(&source));
            let options = options(MemoryVfs::new());
            let (store, hash) = load(&options, LOADED, &model).unwrap();
            assert_eq!(Some(&hash), expected.last(), "seed {seed} at {at}");
            let checked = check::store(&store, &model, Depth::Everything);
            checked.unwrap_or_else(|found| panic!("seed {seed} at {at}: {found}"));
            assert_eq!(hashes(&store), expected, "seed {seed} at {at}");
            for lease in model.leases().keys() {
                let status = store.lease_time_to_live(*lease, false).unwrap().expect("a lease");
                assert!(status.remaining.as_millis() <= 1_500, "{status:?}");
            }
            if at > 1 {
                let transaction = model.transaction(at);
                assert_eq!(store.time_of(at).unwrap(), transaction.time);
                let found = store.at(At::Time(transaction.time)).unwrap().revision();
                assert!(found >= at);
            }
            store.close().unwrap();
            sound(&options, LOADED).unwrap();
            let done = complete(&options, &model, &expected);
            assert_eq!(done, Ok(true), "seed {seed} at {at}");
        }
    }
}

#[test]
fn leases_end_with_their_keys_after_the_time_that_was_left() {
    let clock = Arc::new(ManualClock::new(START_TIME));
    let options = options(MemoryVfs::new()).clock(Arc::clone(&clock) as _);
    let origin = Origin { time: START_TIME, ..Origin::default() };
    let mut load = Load::create(LOADED, &options, 7, &origin).unwrap();
    for (key, lease) in [("a", 5), ("b", 6), ("c", 99)] {
        load.base(&kv(key, 3, 3, lease), 0).unwrap();
    }
    let mut loading = load.begin().unwrap();
    loading.lease(5, 60, Some(2_000)).unwrap();
    loading.lease(6, 60, None).unwrap();
    loading.lease(i64::MIN, 1, Some(1_000)).unwrap();
    for (id, ttl) in [(0, 60), (5, 60), (8, 0), (8, i64::MAX)] {
        loading.lease(id, ttl, None).unwrap_err();
    }
    let store = loading.finish().unwrap();
    let run = || while store.run_background().unwrap() {};
    clock.advance(1_999_000);
    run();
    assert_eq!((store.revision(), store.stats().leases), (7, 2), "one had no key");
    clock.advance(2_000);
    run();
    assert_eq!((store.get("a").unwrap(), store.revision()), (None, 8));
    assert_eq!(store.lease_revoke(6).unwrap().deleted, ["b"]);
    // A key with a lease that was never there stays.
    assert_eq!(store.get("c").unwrap().unwrap().lease, 99);
}

#[test]
fn a_crash_leaves_no_store_or_all_of_it() {
    let (source, whole) = scripted(60, 9);
    let at = source.revision() / 2;
    source.compact(at).unwrap();
    let (model, expected) = (compacted(&whole, at), Arc::new(hashes(&source)));
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let failures = Arc::new(Mutex::new(Vec::<String>::new()));
    let (checked, stores) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let look = {
        let (model, expected, failures) = (model.clone(), Arc::clone(&expected), failures.clone());
        let (checked, stores) = (Arc::clone(&checked), Arc::clone(&stores));
        move |place: String| {
            for image in images(&disk) {
                let found = caught(|| complete(&options(image.clone()), &model, &expected));
                checked.fetch_add(1, Ordering::Relaxed);
                match found {
                    Ok(is_store) => drop(stores.fetch_add(is_store.into(), Ordering::Relaxed)),
                    Err(found) => failures.lock().unwrap().push(format!("{place}: {found}")),
                }
            }
        }
    };
    let (dirty, before) = (AtomicBool::new(true), look.clone());
    let active = Arc::new(AtomicBool::new(true));
    let looking = Arc::clone(&active);
    faulty.observe(move |number, kind| {
        if looking.load(Ordering::Relaxed) && dirty.swap(changes_disk(kind), Ordering::Relaxed) {
            before(format!("before operation {number} ({kind:?})"));
        }
    });
    let (store, _) = load(&options(faulty), LOADED, &model).unwrap();
    active.store(false, Ordering::Relaxed);
    let early = stores.load(Ordering::Relaxed);
    let sound = checked.load(Ordering::Relaxed);
    look("at the end".into());
    let late = stores.load(Ordering::Relaxed) - early;
    assert_eq!(late, checked.load(Ordering::Relaxed) - sound, "what has returned is durable");
    println!("{} images, {early} and {late} stores", checked.load(Ordering::Relaxed));
    let failures = failures.lock().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(checked.load(Ordering::Relaxed) > 60);
    drop(store);
}

#[test]
fn a_failure_leaves_no_store_or_all_of_it() {
    let (source, whole) = scripted(60, 10);
    let at = source.revision() / 2;
    source.compact(at).unwrap();
    let (model, expected) = (compacted(&whole, at), hashes(&source));
    for fault in [Fault::Io, Fault::NoSpace, Fault::Torn] {
        let mut failed = 0;
        for nth in 0.. {
            let disk = MemoryVfs::new();
            let faulty = FaultVfs::new(Arc::new(disk.clone()));
            faulty.fail(None, nth, fault, false);
            let loaded = load(&options(faulty.clone()), LOADED, &model);
            let failure = loaded.map(drop);
            let is_store = complete(&options(disk), &model, &expected);
            let is_store = is_store.unwrap_or_else(|found| panic!("{fault:?} {nth}: {found}"));
            assert!(failure.is_err() || is_store, "{fault:?} {nth}");
            failed += u64::from(failure.is_err());
            if faulty.fired() == 0 {
                break;
            }
        }
        assert!(failed > 20, "{fault:?}: {failed}");
    }
}

fn kv(key: &str, create_revision: u64, mod_revision: u64, lease: i64) -> KeyValue {
    let version = mod_revision - create_revision + 1;
    let (key, value) = (key.to_owned().into(), "value".into());
    KeyValue { key, value, create_revision, mod_revision, version, lease }
}

#[test]
fn a_base_that_cannot_have_been_is_refused() {
    let options = options(MemoryVfs::new());
    let origin = Origin { time: START_TIME, ..Origin::default() };
    let mut load = Load::create(LOADED, &options, 10, &origin).unwrap();
    load.base(&kv("b", 3, 10, 0), 1).unwrap();
    let wrong = [
        (kv("b", 3, 5, 0), "after the one before"),
        (kv("a", 3, 5, 0), "after the one before"),
        (kv("", 3, 5, 0), "no key"),
        (kv("c", 3, 11, 0), "up to the one compacted to"),
        (kv("c", 1, 1, 0), "up to the one compacted to"),
        (kv("c", 1, 5, 0), "older than its lifetime"),
        (KeyValue { create_revision: 6, ..kv("c", 3, 5, 0) }, "older than its lifetime"),
        (KeyValue { version: 0, ..kv("c", 3, 5, 0) }, "that it cannot have"),
        (KeyValue { version: 1, ..kv("c", 3, 5, 0) }, "that it cannot have"),
        (KeyValue { version: 4, ..kv("c", 3, 5, 0) }, "that it cannot have"),
        (KeyValue { version: 2, ..kv("c", 5, 5, 0) }, "that it cannot have"),
        (KeyValue { version: u64::MAX, ..kv("c", 3, 5, 0) }, "that it cannot have"),
        (KeyValue { key: vec![b'c'; (1 << 20) + 1].into(), ..kv("c", 3, 5, 0) }, "no key"),
    ];
    for (wrong, why) in wrong {
        let error = load.base(&wrong, 0).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    load.base(&kv("c", 10, 10, 0), 1).unwrap();
    let error = load.begin().unwrap_err();
    assert!(error.to_string().contains("one place of their transaction"), "{error}");
    // What is there is no store, and no place for another.
    let error = Load::create(LOADED, &options, 10, &origin).unwrap_err();
    is_not_empty(&error, LOADED, None);
    let error = options.open(LOADED).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotAStore { .. }), "{error}");
    assert!(error.to_string().contains("not finished: remove it"), "{error}");

    for (compacted, time) in [(10, i64::MAX), (u64::MAX, START_TIME), (1 << 62, START_TIME)] {
        let origin = Origin { time, ..Origin::default() };
        Load::create("none", &options, compacted, &origin).unwrap_err();
    }
    let long = Origin { metadata: vec![0; (64 << 10) + 1].into(), ..origin.clone() };
    let error = Load::create("none", &options, 10, &long).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::MetadataTooLong { .. }), "{error}");
    options.open("store").unwrap().put("a", "").unwrap();
    let error = Load::create("store", &options, 10, &origin).unwrap_err();
    is_not_empty(&error, "store", Some("CURRENT"));
    // Without a revision compacted to nothing can have lived.
    Load::create("fresh", &options, 0, &origin).unwrap().base(&kv("a", 2, 2, 0), 0).unwrap_err();
}

#[test]
fn a_transaction_that_does_not_follow_is_refused_and_changes_nothing() {
    let options = options(MemoryVfs::new());
    let origin = Origin { time: START_TIME, ..Origin::default() };
    let mut load = Load::create(LOADED, &options, 10, &origin).unwrap();
    load.base(&kv("a", 3, 5, 0), 0).unwrap();
    let mut loading = load.begin().unwrap();
    let put = |key: &str, sub, create_revision, version| Change {
        kind: ChangeKind::Put,
        key: key.to_owned().into(),
        sub,
        create_revision,
        version,
        lease: 0,
        value: Some("new".into()),
    };
    let delete =
        |key: &str, sub| Change { kind: ChangeKind::Delete, value: None, ..put(key, sub, 0, 0) };
    let of = |revision, changes: &[Change]| Transaction {
        revision,
        time: START_TIME,
        metadata: "by hand".into(),
        changes: changes.to_vec(),
    };
    let good = [put("a", 0, 3, 4), put("b", 1, 11, 1)];
    let refused = |loading: &mut Loading, wrong: &Transaction, why: &str| {
        let error = loading.transaction(wrong).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(loading.revision(), 10);
    };
    for revision in [0, 10, 12, u64::MAX] {
        refused(&mut loading, &of(revision, &good), "does not follow revision 10");
    }
    let early = Transaction { time: START_TIME - 1, ..of(11, &good) };
    refused(&mut loading, &early, "earlier time");
    let never = Transaction { time: i64::MAX, ..of(11, &good) };
    refused(&mut loading, &never, "years 1 to 9999");
    for (wrong, why) in [
        (vec![], "changes nothing"),
        (vec![put("a", 0, 3, 3)], "makes version 3 of a"),
        (vec![put("a", 0, 11, 1)], "makes version 1 of a"),
        (vec![put("b", 0, 3, 1)], "created at 3"),
        (vec![delete("b", 0)], "deletes b, which is absent"),
        (vec![put("a", 1, 3, 4)], "its change 0 in place 1"),
        (vec![good[0].clone(), put("b", 2, 11, 1)], "its change 1 in place 2"),
        (vec![put("b", 0, 11, 1), good[0].clone()], "its change 1 in place 0"),
        (vec![good[0].clone(), delete("a", 1)], "changes a twice"),
        (vec![Change { value: None, ..good[0].clone() }], "no value for a"),
        (vec![put("", 0, 11, 1)], "no key"),
    ] {
        refused(&mut loading, &of(11, &wrong), why);
    }
    let long = Transaction { metadata: vec![0; (64 << 10) + 1].into(), ..of(11, &good) };
    loading.transaction(&long).unwrap_err();

    loading.transaction(&of(11, &good)).unwrap();
    assert_eq!(loading.revision(), 11, "nobody has waited for the disk");
    loading.transaction(&of(12, &[delete("a", 0)])).unwrap();
    let store = loading.finish().unwrap();
    let log = store.log(..).with_values().collect::<Result<Vec<_>, _>>().unwrap();
    let empty = Transaction { metadata: "".into(), ..of(10, &[]) };
    assert_eq!(log, [empty, of(11, &good), of(12, &[delete("a", 0)])]);
    // Files with that empty transaction are joined with others, and forgotten, as any.
    store.reorganise().unwrap();
    assert_eq!(store.log(..).count(), 3);
    store.compact(12).unwrap();
    store.reorganise().unwrap();
    assert_eq!(store.latest().unwrap().count(..).unwrap(), 1);
    store.close().unwrap();
    sound(&options, LOADED).unwrap();
}

#[test]
fn whatever_number_a_base_has_the_key_can_be_written_on() {
    let options = options(MemoryVfs::new());
    let origin = Origin { time: START_TIME, ..Origin::default() };
    let mut load = Load::create(LOADED, &options, 10, &origin).unwrap();
    let versions = [("a", 10, 1), ("b", 3, 2), ("c", 3, 8), ("d", 9, 2)];
    for (sub, (key, create_revision, version)) in (0..).zip(versions) {
        load.base(&KeyValue { version, ..kv(key, create_revision, 10, 0) }, sub).unwrap();
    }
    let store = load.begin().unwrap().finish().unwrap();
    for (key, ..) in versions {
        store.put(key, "on").unwrap();
    }
    drop(store);
    let store = options.open(LOADED).unwrap();
    for (key, create_revision, version) in versions {
        let kv = store.get(key).unwrap().unwrap();
        assert_eq!((kv.create_revision, kv.version), (create_revision, version + 1));
    }
    sound(&options, LOADED).unwrap();
}

#[test]
fn after_a_failure_no_key_is_left_out() {
    let origin = Origin { time: START_TIME, ..Origin::default() };
    let mut failed = 0;
    for nth in 0.. {
        let disk = MemoryVfs::new();
        let faulty = FaultVfs::new(Arc::new(disk.clone()));
        let small = options(faulty.clone());
        let mut load = Load::create(LOADED, &small, 100, &origin).unwrap();
        faulty.fail(None, faulty.op_count() + nth, Fault::NoSpace, false);
        // Whoever has made room tries again.
        let key =
            |n: u64| KeyValue { value: vec![7; 500].into(), ..kv(&format!("{n:03}"), 2, 9, 0) };
        for n in 0..60 {
            if load.base(&key(n), 0).is_err() {
                let _ = load.base(&key(n), 0);
            }
        }
        let fired = faulty.fired();
        let store = load.begin().and_then(Loading::finish);
        if let Ok(store) = &store {
            assert_eq!(store.latest().unwrap().count(..).unwrap(), 60, "operation {nth}");
        }
        failed += u64::from(store.is_err());
        if fired == 0 {
            break;
        }
    }
    assert!(failed > 10, "{failed}");
}

#[test]
fn a_store_that_was_put_in_the_place_of_another_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("loaded");
    let origin = Origin { time: START_TIME, ..Origin::default() };
    let begin = || {
        let mut load = Load::create(&path, &Options::new(), 10, &origin).unwrap();
        load.base(&kv("a", 3, 10, 0), 0).unwrap();
        load
    };
    let dead = begin();
    std::fs::remove_dir_all(&path).unwrap();
    let store = begin().begin().unwrap().finish().unwrap();
    store.put("b", "").unwrap();
    store.close().unwrap();
    assert!(dead.begin().is_err());
    let store = Store::open(&path).unwrap();
    assert_eq!((store.revision(), store.latest().unwrap().count(..).unwrap()), (11, 2));
}
