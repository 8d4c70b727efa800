//! Arguments at their extremes: each is answered, or refused with a typed error and nothing changed; and the store
//! goes on, also after a reopening.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::vfs::{MemoryVfs, Vfs};
use annals::{
    DeleteRangeRequest, ErrorKind, LEASE_TTL_MAX, LeaseGrantRequest, Op, Options, PutRequest,
    RangeRequest, Retention, Store, TxnRequest, get, put, txn,
};
use support::watchdog::Watchdog;
use support::{DIRECTORY, START_TIME};

fn options(disk: &MemoryVfs, clock: &Arc<ManualClock>) -> Options {
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    Options::default().vfs(vfs).clock(Arc::clone(clock) as _)
}

/// A store with something in it.
fn filled() -> (MemoryVfs, Arc<ManualClock>, Store) {
    let disk = MemoryVfs::new();
    let clock = Arc::new(ManualClock::new(START_TIME));
    let store = Store::open_with(DIRECTORY, &options(&disk, &clock)).unwrap();
    for n in 0..100 {
        store.put(format!("key/{:02}", n % 10), [n]).unwrap();
    }
    (disk, clock, store)
}

fn kind<T: std::fmt::Debug>(answer: annals::Result<T>) -> ErrorKind {
    answer.expect_err("it must be refused").into_kind()
}

/// A transaction in a transaction, so deep.
fn nested(depth: u32, in_failure: bool) -> TxnRequest {
    let mut request = txn().then([put("deep", "x")]);
    for _ in 0..depth {
        request = if in_failure { txn().or_else([request]) } else { txn().then([request]) };
    }
    request
}

/// Runs it in a thread with a small stack.
fn with_little_stack(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(512 << 10);
    thread.spawn(run).unwrap().join().unwrap();
}

#[test]
fn deep_transactions_are_refused_and_dropped() {
    with_little_stack(|| {
        let _watchdog = Watchdog::new(Duration::from_secs(60));
        let (.., store) = filled();
        let revision = store.revision();
        for depth in [129, 1000, 100_000] {
            for in_failure in [false, true] {
                let refused = kind(store.transact(nested(depth, in_failure)));
                assert!(matches!(refused, ErrorKind::InvalidArgument { .. }), "{refused:?}");
                let refused = kind(store.submit(nested(depth, in_failure)).map(|_| ()));
                assert!(matches!(refused, ErrorKind::InvalidArgument { .. }), "{refused:?}");
                let builder = store.txn().then([get("key/00")]).then([nested(depth, in_failure)]);
                let refused = kind(builder.commit());
                assert!(matches!(refused, ErrorKind::InvalidArgument { .. }), "{refused:?}");
                drop(nested(depth, in_failure));
                drop(Op::from(nested(depth, in_failure)));
            }
        }
        // Many beside each other, each deep.
        let wide = txn().then((0..50).map(|_| nested(2000, false)));
        assert!(matches!(kind(store.transact(wide)), ErrorKind::InvalidArgument { .. }));
        assert_eq!(store.revision(), revision);
        for depth in [0, 1, 127, 128] {
            let answer = store.transact(nested(depth, false)).unwrap();
            assert!(answer.succeeded);
        }
        assert_eq!(store.get("deep").unwrap().unwrap().version, 4);
    });
}

#[test]
fn numbers_of_operations() {
    let (disk, clock, store) = filled();
    let ops = |count: u32| (0..count).map(|n| put(n.to_be_bytes(), ""));
    let refused = kind(store.transact(txn().then(ops(1_000_001))));
    assert!(matches!(refused, ErrorKind::TooManyOperations { .. }), "{refused:?}");
    let reads = (0..1_000_001).map(|_| get("key/00"));
    let refused = kind(store.transact(txn().then(reads)));
    assert!(matches!(refused, ErrorKind::TooManyOperations { .. }), "{refused:?}");
    let revision = store.transact(txn().then(ops(1_000_000))).unwrap().revision;
    // All of them in one delete, and one more than may be.
    let refused = kind(store.delete_range(DeleteRangeRequest::prefix("")));
    assert!(matches!(refused, ErrorKind::TooManyOperations { .. }), "{refused:?}");
    assert_eq!(store.revision(), revision);
    store.close().unwrap();
    let store = Store::open_with(DIRECTORY, &options(&disk, &clock)).unwrap();
    assert_eq!(store.latest().unwrap().count(..).unwrap(), 1_000_010);
    let deleted = store.delete_range(DeleteRangeRequest::new("\0").range_end("key")).unwrap();
    assert_eq!(deleted.deleted, 1_000_000);
    store.close().unwrap();
    let store = Store::open_with(DIRECTORY, &options(&disk, &clock)).unwrap();
    assert_eq!(store.latest().unwrap().count(..).unwrap(), 10);
}

#[test]
fn lengths() {
    let (disk, clock, store) = filled();
    let revision = store.revision();
    let (key, value) = (vec![b'k'; 64 << 10], vec![b'v'; 16 << 20]);
    let (longer_key, longer) = ([&key[..], b"k"].concat(), [&value[..], b"v"].concat());
    assert!(matches!(kind(store.put("", "x")), ErrorKind::EmptyKey));
    assert!(matches!(kind(store.put(&longer_key, "x")), ErrorKind::KeyTooLong { .. }));
    assert!(matches!(kind(store.put("k", &longer)), ErrorKind::ValueTooLong { .. }));
    let swapped = store.compare_and_put(&longer_key, 0, "x");
    assert!(matches!(kind(swapped), ErrorKind::KeyTooLong { .. }));
    assert_eq!(store.get(&longer_key).unwrap(), None);
    assert_eq!(store.history(&longer_key).count(), 0);
    assert_eq!(store.delete(&longer_key).unwrap().deleted, 0);
    assert_eq!(store.revision(), revision);
    store.put(&key, &value).unwrap();
    store.close().unwrap();
    let store = Store::open_with(DIRECTORY, &options(&disk, &clock)).unwrap();
    assert_eq!(store.get(&key).unwrap().unwrap().value.len(), value.len());
}

#[test]
fn revisions_and_ranges() {
    let (.., store) = filled();
    let newest = store.revision();
    for far in [newest + 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        let refused = [
            kind(store.at(far)),
            kind(store.compact(far)),
            kind(store.time_of(far)),
            kind(store.hash_at(far)),
            kind(store.range(RangeRequest::prefix("key").at(far))),
            kind(store.diff(2, far, ..).and_then(Iterator::collect::<annals::Result<Vec<_>>>)),
        ];
        for refused in refused {
            assert!(matches!(refused, ErrorKind::FutureRevision { .. }), "{far}: {refused:?}");
        }
        let read = Op::from(RangeRequest::new("key/00").at(far));
        let refused = kind(store.transact(txn().then([read, put("x", "")])));
        assert!(matches!(refused, ErrorKind::FutureRevision { .. }), "{far}: {refused:?}");
        let told = store.log(far..).collect::<annals::Result<Vec<_>>>();
        assert!(told.as_ref().map_or(true, Vec::is_empty), "{told:?}");
        let _ = store.log(2..=far).collect::<annals::Result<Vec<_>>>();
        let _ = store.history("key/00").since(far).collect::<annals::Result<Vec<_>>>();
        let _ = store.history("key/00").until(far).collect::<annals::Result<Vec<_>>>();
        let mut watch = store.watch("key/00").from(far).start().unwrap();
        store.put("key/00", "watched").unwrap();
        assert!(far == newest + 1 || watch.next_timeout(Duration::from_millis(20)).is_none());
        let outcome = store.compare_and_put("key/00", far, "x").unwrap();
        assert!(far == newest + 1 || !format!("{outcome:?}").is_empty());
    }
    let newest = store.revision();
    assert!(matches!(kind(store.at(0)), ErrorKind::InvalidArgument { .. }));
    assert!(matches!(kind(store.hash_at(0)), ErrorKind::InvalidArgument { .. }));
    // From a later revision to an earlier one.
    for from in [newest, u64::MAX] {
        let refused = kind(store.diff(from, 2, ..).map(|_| ()));
        assert!(matches!(refused, ErrorKind::InvalidArgument { .. }), "{refused:?}");
    }
    let mut history = store.history("key/00").since(50).until(3);
    assert!(history.next().is_none_or(|item| item.is_err()));
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is tried")]
    let mut log = store.log(50..3);
    assert!(log.next().is_none_or(|item| item.is_err()));
    // An end before the start.
    let reversed = RangeRequest::new("key/05").range_end("key/03");
    assert_eq!(store.range(reversed.clone()).unwrap().kvs.len(), 0);
    assert_eq!(store.range(reversed.count_only()).unwrap().count, 0);
    let reversed = DeleteRangeRequest::new("key/05").range_end("key/03");
    assert_eq!(store.delete_range(reversed).unwrap().deleted, 0);
    let view = store.latest().unwrap();
    assert_eq!(view.range("key/05".."key/03").count(), 0);
    assert_eq!(view.range("key/05".."key/03").rev().count(), 0);
    assert_eq!(view.count("key/05".."key/03").unwrap(), 0);
    assert_eq!(view.range(..).limit(u64::MAX).count(), view.range(..).count());
    assert_eq!(store.range(RangeRequest::prefix("").limit(u64::MAX)).unwrap().kvs.len(), 10);
    assert!(store.watch_range("key/05".."key/03").start().is_err());
    assert_eq!(store.oldest_readable("key/05".."key/03"), 0);
    assert_eq!(store.revision(), newest);
}

#[test]
fn rules_of_retention_and_jumping_clocks() {
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    let year = 365 * 86_400 * 1_000_000_i64;
    let far = Duration::from_micros(u64::MAX);
    let all = [
        Retention::forever().keep_revisions(0),
        Retention::forever().keep_revisions(u64::MAX),
        Retention::forever().keep_for(Duration::ZERO),
        Retention::forever().keep_for(Duration::from_nanos(1)),
        Retention::forever().keep_for(far),
        Retention::forever().keep_for(Duration::MAX),
        Retention::forever().keep_revisions(u64::MAX).keep_for(Duration::MAX),
        Retention::forever().keep_revisions(0).keep_for(Duration::ZERO),
    ];
    let times =
        [0, -1, START_TIME + 300 * year, START_TIME, i64::MIN, i64::MAX, -5000 * year, START_TIME];
    for rule in all {
        let (disk, clock, store) = filled();
        store.set_retention("key/0", Some(rule)).unwrap();
        store.set_retention("", Some(rule)).unwrap();
        for now in times {
            clock.set_now(now);
            let put = store.put("key/01", now.to_be_bytes()).unwrap();
            assert!((annals::COMMIT_TIME_MIN..=annals::COMMIT_TIME_MAX).contains(&put.time));
            store.apply_retention().unwrap();
            // Neither more nor less than the rule says can be read, as far as it names revisions.
            let floor = store.oldest_readable("key/01".."key/02");
            match (rule.revisions(), rule.age()) {
                (Some(0), None) => assert_eq!(floor, store.revision()),
                (Some(u64::MAX), _) => assert_eq!(floor, 0, "{rule:?} at {now}"),
                _ => assert!(floor <= store.revision()),
            }
            assert_eq!(store.get("key/01").unwrap().unwrap().value, now.to_be_bytes()[..]);
            for n in 0..10 {
                assert!(store.get(format!("key/{n:02}")).unwrap().is_some());
            }
            store.reorganise().unwrap();
        }
        let (floor, hash) = (store.oldest_readable(..), store.hash_at(annals::At::Latest).unwrap());
        store.close().unwrap();
        let store = Store::open_with(DIRECTORY, &options(&disk, &clock)).unwrap();
        assert_eq!(store.oldest_readable(..), floor);
        assert_eq!(store.hash_at(annals::At::Latest).unwrap(), hash);
        let report = annals::check(DIRECTORY, &options(&disk, &clock), &mut |_, _| ()).unwrap();
        assert!(report.damage.is_empty() && report.unchecked.is_empty(), "{report:?}");
    }
    let (.., store) = filled();
    let forever = Some(Retention::forever());
    store.set_retention([b'p'; 1024], forever).unwrap();
    let refused = kind(store.set_retention([b'p'; 1025], forever));
    assert!(matches!(refused, ErrorKind::KeyTooLong { .. }));
    for n in 0..63_u8 {
        store.set_retention([n], forever).unwrap();
    }
    let refused = kind(store.set_retention([63], forever));
    assert!(matches!(refused, ErrorKind::TooManyRules { .. }));
    // There is nothing to take back.
    store.set_retention([63], None).unwrap();
    assert_eq!(store.retention().len(), 64);
}

#[test]
fn leases() {
    let (disk, clock, store) = filled();
    let revision = store.revision();
    for ttl in [i64::MIN, -1, 0, 1, LEASE_TTL_MAX, LEASE_TTL_MAX + 1, i64::MAX] {
        for ttl_min in [i64::MIN, 0, 1, LEASE_TTL_MAX, LEASE_TTL_MAX + 1, i64::MAX] {
            let granted = store.lease_grant_with(LeaseGrantRequest { id: 0, ttl, ttl_min });
            let wanted = ttl.max(ttl_min);
            match granted {
                Ok(lease) => {
                    assert!((1..=LEASE_TTL_MAX).contains(&wanted) && lease.ttl == wanted);
                    store.lease_revoke(lease.id).unwrap();
                }
                Err(error) => {
                    assert!(!(1..=LEASE_TTL_MAX).contains(&wanted), "{ttl} {ttl_min}: {error}");
                }
            }
        }
    }
    for id in [i64::MIN, -1, 1, i64::MAX] {
        store.lease_grant_with(LeaseGrantRequest::new(id, LEASE_TTL_MAX)).unwrap();
        assert!(matches!(
            kind(store.lease_grant(id, Duration::from_secs(5))),
            ErrorKind::LeaseExists { .. }
        ));
        let key = format!("leased/{id}");
        store.put_with(PutRequest::new(&key, "x").lease(id)).unwrap();
    }
    // As long as elapsed time can be.
    for step in [0, 1 << 40, i64::MAX / 4, i64::MAX / 4] {
        clock.advance(step);
        for id in [i64::MIN, -1, 1, i64::MAX] {
            match store.lease_keep_alive(id) {
                Ok(ttl) => assert_eq!(ttl, LEASE_TTL_MAX),
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::LeaseNotFound { .. }), "{error}");
                }
            }
        }
        store.flush().unwrap();
    }
    assert!(store.revision() > revision);
    let left = store.lease_list().unwrap().len();
    store.close().unwrap();
    clock.set_now(i64::MIN);
    let store = Store::open_with(DIRECTORY, &options(&disk, &clock)).unwrap();
    assert!(store.lease_list().unwrap().len() <= left);
    assert!(store.get("key/00").unwrap().is_some());
}
