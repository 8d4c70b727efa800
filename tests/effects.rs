//! Every kind of error has one effect, and it is the one it tells: each is provoked here, and what
//! the store is then, at once and after a crash, is held against what it was before.
//!
//! The kinds are read from the source, so that a new one without a case here is noticed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests fail by panicking and tell how much they did"
)]

mod support;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::vfs::{CrashMode, Fault, FaultVfs, MemoryVfs, Operation};
use annals::{
    At, Durability, Effect, Error, ErrorKind, KvHash, Load, Op, Options, Origin, PutRequest,
    RangeRequest, Result, Retention, RetentionRule, Slow, Store, TxnRequest, delete, put,
};
use support::{DIRECTORY, START_TIME, tiny};

/// A store with some history on a disk that can fail and crash.
struct Place {
    disk: MemoryVfs,
    faulty: FaultVfs,
    options: Options,
    store: Store,
}

/// All that a call without an effect leaves as it is.
#[derive(Debug, PartialEq)]
struct State {
    revision: u64,
    compacted: u64,
    hash: KvHash,
    leases: Vec<i64>,
    rules: Vec<RetentionRule>,
}

fn state(store: &Store) -> State {
    let revision = store.revision();
    State {
        revision,
        compacted: store.compacted_revision(),
        hash: store.hash_at(revision).unwrap(),
        leases: store.lease_list().unwrap().iter().map(|lease| lease.id).collect(),
        rules: store.retention(),
    }
}

impl Place {
    fn new() -> Self {
        let disk = MemoryVfs::new();
        let faulty = FaultVfs::new(Arc::new(disk.clone()));
        let clock = Arc::new(ManualClock::new(START_TIME));
        let options = tiny(Arc::new(faulty.clone()), clock)
            .key_bytes_max(100)
            .value_bytes_max(10_000)
            .transaction_bytes_max(40_000)
            .transaction_operations_max(50)
            .metadata_bytes_max(100);
        let store = options.open(DIRECTORY).unwrap();
        for n in 0..30 {
            store.put(format!("key/{}", n % 5), format!("{n}").repeat(100)).unwrap();
        }
        store.lease_grant(7, Duration::from_secs(60)).unwrap();
        store.compact(10).unwrap();
        while store.run_background().unwrap() {}
        store.put("key/1", "in the log").unwrap();
        Self { disk, faulty, options, store }
    }

    /// What a crash leaves, opened.
    fn crashed(&self) -> Store {
        let disk = Arc::new(self.disk.crash(0, CrashMode::LoseAll));
        self.options.clone().vfs(disk).open(DIRECTORY).unwrap()
    }
}

/// The name of a kind, as in the source.
fn name_of(kind: &ErrorKind) -> String {
    let text = format!("{kind:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned()
}

/// The kinds, as the source has them.
fn kinds() -> BTreeSet<String> {
    let source = include_str!("../src/error.rs");
    let body = source.split("pub enum ErrorKind {").nth(1).unwrap().split("\n}").next().unwrap();
    let variant = |line: &str| {
        let name = line.strip_prefix("    ")?;
        let is_name = name.starts_with(|c: char| c.is_ascii_uppercase());
        is_name.then(|| name.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned())
    };
    body.lines().filter_map(variant).collect()
}

/// The calls that are refused, each with the kind it is refused with.
fn refused(place: &Place) -> Vec<(&'static str, Error)> {
    fn error<T: Debug>(result: Result<T>) -> Error {
        result.expect_err("it is refused")
    }
    let store = &place.store;
    place.disk.overwrite(Path::new("full/notes"), b"mine");
    let txn = |ops: Vec<Op>| TxnRequest { success: ops, ..TxnRequest::default() };
    let mut slow =
        store.watch("key/1").from(11).when_slow(Slow::Lagged { revisions: 0 }).start().unwrap();
    let lagged = loop {
        match slow.next_timeout(Duration::ZERO) {
            Some(Err(error)) => break error,
            Some(Ok(_)) => {}
            // All of the past is told: what follows is not asked for in time.
            None => {
                store.put("key/1", "2").unwrap();
                store.put("key/1", "3").unwrap();
            }
        }
    };
    let put_with = |request: PutRequest| error(store.put_with(request));
    // A refusal that is not certain yet: what it was decided on is not durable.
    let not_durable = store.submit(txn(vec![put("key/2", "4")])).unwrap();
    let uncertain = PutRequest::new("none", "").ignore_value();
    let would_wait = error(store.try_submit(&txn(vec![uncertain.into()])));
    not_durable.wait().unwrap();
    vec![
        ("Lagged", lagged),
        ("WouldWait", would_wait),
        ("EmptyKey", error(store.put("", "v"))),
        ("KeyTooLong", error(store.put("k".repeat(101), "v"))),
        ("ValueTooLong", error(store.put("k", vec![0; 10_001]))),
        (
            "TransactionTooLarge",
            error(store.txn().then((0..5).map(|n| put(format!("{n}"), vec![0; 9_000]))).commit()),
        ),
        (
            "TooManyOperations",
            error(store.txn().then((0..51).map(|n| delete(format!("{n}")))).commit()),
        ),
        (
            "MetadataTooLong",
            error(store.txn().then([put("k", "v")]).metadata(vec![0; 101]).commit()),
        ),
        ("DuplicateKey", error(store.txn().then([put("k", "1"), put("k", "2")]).commit())),
        ("KeyNotFound", put_with(PutRequest::new("none", "").ignore_value())),
        ("ValueProvided", put_with(PutRequest::new("key/1", "v").ignore_value())),
        ("LeaseProvided", put_with(PutRequest::new("key/1", "v").lease(7).ignore_lease())),
        ("LeaseNotFound", put_with(PutRequest::new("k", "v").lease(8))),
        ("LeaseNotFound", error(store.lease_revoke(9))),
        ("LeaseNotFound", error(store.lease_keep_alive(9))),
        ("LeaseExists", error(store.lease_grant(7, Duration::from_secs(60)))),
        ("LeaseTtlTooLarge", error(store.lease_grant(11, Duration::MAX))),
        ("InvalidArgument", error(store.at(0).map(drop))),
        ("InvalidArgument", error(store.txn().then([put("k", "v")]).time(i64::MAX).commit())),
        ("InvalidOption", error(place.options.clone().set("memtable_bytes", "no number"))),
        ("Compacted", error(store.compact(3))),
        (
            "Compacted",
            error(store.transact(txn(vec![put("k", "v"), RangeRequest::new("k").at(3).into()]))),
        ),
        ("FutureRevision", error(store.compact(1_000))),
        ("FutureRevision", error(store.at(1_000).map(drop))),
        ("NoRevisionAtTime", error(store.at(At::Time(1)).map(drop))),
        ("Locked", error(place.options.open(DIRECTORY).map(drop))),
        ("NotEmpty", error(store.checkpoint("full"))),
        ("NotEmpty", error(Load::create("full", &place.options, 0, &Origin::default()).map(drop))),
        (
            "NoStore",
            error(Store::open_read_only_with(Path::new("nothing"), &place.options).map(drop)),
        ),
    ]
}

#[test]
fn refusals_change_nothing_at_once_or_after_a_crash() {
    let mut place = Place::new();
    let mut seen = BTreeSet::new();
    // The watch of one case needs commits of its own.
    refused(&place);
    for n in 0..64 {
        place.store.set_retention(format!("rule/{n}"), Some(Retention::forever())).unwrap();
    }
    let error = place.store.set_retention("rule", Some(Retention::forever())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TooManyRules { .. }), "{error}");
    seen.insert(name_of(error.kind()));

    let before_last = place.store.revision();
    for (wanted, error) in refused(&place) {
        assert_eq!(name_of(error.kind()), wanted, "{error}");
        assert_eq!(error.effect(), Effect::None, "{error}");
        seen.insert(wanted.to_owned());
    }
    // But for the two commits that the watch was behind by, and the one that was not durable.
    assert_eq!(place.store.revision(), before_last + 3);
    let now = state(&place.store);
    assert_eq!(state(&place.crashed()), now);
    for name in ["k", "none"] {
        assert!(place.store.get(name).unwrap().is_none(), "{name}");
    }

    // Those that the whole store refuses with.
    let reader = Store::open_read_only_with(Path::new(DIRECTORY), &place.options).unwrap();
    let other = place.store.clone();
    let file = MemoryVfs::new();
    file.overwrite(Path::new("file/something else"), b"x");
    let foreign = place.options.clone().vfs(Arc::new(file));
    place.store.clone().close().unwrap();
    for (wanted, error) in [
        ("ReadOnly", reader.put("k", "v").unwrap_err()),
        ("Closed", other.put("k", "v").unwrap_err()),
        ("NotAStore", foreign.open("file").map(drop).unwrap_err()),
    ] {
        assert_eq!((name_of(error.kind()), error.effect()), (wanted.to_owned(), Effect::None));
        seen.insert(wanted.to_owned());
    }
    drop((other, reader));
    place.store = place.options.open(DIRECTORY).unwrap();
    assert_eq!(state(&place.store), now);

    // Those of the machine and of files have tests of their own, below and elsewhere.
    for elsewhere in ["Io", "NoSpace", "Corrupt", "Poisoned", "OutcomeUnknown"] {
        seen.insert(elsewhere.to_owned());
    }
    // A file of a later format is made by the test of manifests in `src/manifest.rs`.
    seen.insert("UnsupportedVersion".to_owned());
    // A store with lost times is what a repair makes, see `tools/annals/tests/repair_mended.rs`.
    seen.insert("TimeUnknown".to_owned());
    assert_eq!(kinds().difference(&seen).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(seen.difference(&kinds()).collect::<Vec<_>>(), Vec::<&String>::new());
}

/// A write or sync of the log fails: the commit in flight may be there or not, and says so; all later
/// ones change nothing, and say that.
#[test]
fn a_failed_log_leaves_one_outcome_open_and_no_other() {
    let (mut there, mut not_there) = (0, 0);
    for (operation, fault) in [
        (Operation::Write, Fault::Io),
        (Operation::Write, Fault::NoSpace),
        (Operation::Write, Fault::Torn),
        (Operation::Sync, Fault::Io),
        // What it wrote may be on the disk.
        (Operation::Sync, Fault::Interrupted),
    ] {
        let place = Place::new();
        let before = state(&place.store);
        place.faulty.fail(Some(operation), place.faulty.op_count_of(operation), fault, false);
        let error = place.store.put("key/0", "in flight").unwrap_err();
        let ErrorKind::OutcomeUnknown { revision, .. } = error.kind() else { panic!("{error}") };
        assert_eq!((*revision, error.effect()), (before.revision + 1, Effect::Unknown));
        place.faulty.heal();
        for _ in 0..3 {
            let calls = [
                place.store.put("k", "v").map(drop),
                place.store.delete("key/1").map(drop),
                place.store.compact(before.revision).map(drop),
                place.store.lease_revoke(7).map(drop),
                place.store.lease_grant(8, Duration::from_secs(60)).map(drop),
                place.store.set_retention("k", Some(Retention::forever())),
                place.store.txn().then([put("k", "v")]).commit().map(drop),
                place.store.modify("k", |_| annals::Modify::put("v")).map(drop),
                place.store.reorganise(),
            ];
            for (n, call) in calls.into_iter().enumerate() {
                let error = call.expect_err("the store is poisoned");
                assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "{n}: {error}");
                assert_eq!(error.effect(), Effect::None);
            }
        }
        // What was ordered and could not be made durable is as unknown as before.
        assert_eq!(place.store.flush().unwrap_err().effect(), Effect::Unknown);
        // Reads go on, at what was durable.
        assert_eq!(state(&place.store), before);
        for mode in [CrashMode::LoseAll, CrashMode::KeepAll] {
            let disk = Arc::new(place.disk.crash(0, mode));
            let store = place.options.clone().vfs(disk).open(DIRECTORY).unwrap();
            if store.revision() == before.revision {
                assert_eq!(state(&store), before);
                not_there += 1;
            } else {
                assert_eq!(store.revision(), *revision);
                assert_eq!(store.get("key/0").unwrap().unwrap().value, "in flight");
                there += 1;
            }
        }
    }
    // Unknown means just that.
    assert!(there > 0 && not_there > 0, "{there} there, {not_there} not");
}

/// A buffered commit that was answered before the failure keeps its answer only until the crash; one
/// that comes after it is refused.
#[test]
fn after_a_failure_buffered_commits_are_refused_too() {
    let place = Place::new();
    let buffered = |key: &str| {
        place.store.txn().then([put(key, "v")]).durability(Durability::Buffered).commit()
    };
    buffered("early").unwrap();
    place.faulty.fail(
        Some(Operation::Sync),
        place.faulty.op_count_of(Operation::Sync),
        Fault::Io,
        false,
    );
    assert_eq!(place.store.stats().failure, None);
    assert_eq!(place.store.put("k", "v").unwrap_err().effect(), Effect::Unknown);
    let failure = place.store.stats().failure.unwrap();
    assert!(failure.contains("sync"), "{failure}");
    let error = buffered("late").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "{error}");
    assert!(place.store.get("late").unwrap().is_none());
    assert!(place.crashed().get("late").unwrap().is_none());
}

/// An error of reading has no effect but on the call it answers.
#[test]
fn a_failed_read_answers_one_call() {
    let mut place = Place::new();
    place.options = place.options.read_mode(annals::ReadMode::Pread).cache_bytes(0);
    place.store.reorganise().unwrap();
    let before = state(&place.store);
    place.store.close().unwrap();
    // Nothing is in the log or in a cache.
    place.store = place.options.open(DIRECTORY).unwrap();
    place.faulty.fail(
        Some(Operation::Read),
        place.faulty.op_count_of(Operation::Read),
        Fault::Io,
        false,
    );
    let error = place.store.get("key/2").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}");
    assert_eq!(error.effect(), Effect::None);
    assert_eq!(state(&place.store), before);
    place.store.put("key/2", "goes on").unwrap();
}
