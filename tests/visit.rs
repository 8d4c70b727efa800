//! A log that is visited in place shows what its iterator makes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod support;

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Duration;

use annals::vfs::MemoryVfs;
use annals::{ErrorKind, KeyRange, Log, Options, Store, Transaction, delete, put};
use support::open_tiny;

/// All that comes next, copied out of where it lies.
fn visited(mut log: Log) -> annals::Result<Vec<Transaction>> {
    let mut found = Vec::new();
    let broke: Option<()> = log.visit(|transaction| {
        let copy = transaction.to_transaction();
        let changes = transaction.changes();
        assert_eq!(changes.len(), copy.changes.len());
        for (change, copy) in changes.zip(&copy.changes) {
            assert_eq!((change.key, change.value), (&copy.key[..], copy.value.as_deref()));
        }
        let words = format!("{transaction:?}");
        assert!(words.contains(&format!("revision: {}", copy.revision)), "{words}");
        found.push(copy);
        ControlFlow::Continue(())
    })?;
    assert_eq!(broke, None);
    assert!(log.next().is_none(), "all of it has been shown");
    Ok(found)
}

/// Transactions of up to four changes with metadata and leases, some of their values too long for EVENTS and for
/// blocks; the last of them in memory alone.
fn filled() -> Store {
    let store = open_tiny(Arc::new(MemoryVfs::new())).unwrap();
    store.lease_grant(7, Duration::from_secs(600)).unwrap();
    for n in 0..400_u64 {
        let value = |k: u64| vec![b'v'; [0, 10, 200, 1_025, 3_000][((n + k) % 5) as usize]];
        let key = |k: u64| format!("{}{}", ["a/", "b/"][(k % 2) as usize], (n * 7 + k) % 40);
        let mut ops: Vec<annals::Op> = (0..n % 4).map(|k| put(key(k), value(k))).collect();
        ops.push(annals::PutRequest::new(key(9), value(9)).lease([0, 7][(n % 2) as usize]).into());
        ops.push(delete(format!("a/{}", n % 40)));
        let by = if n % 3 == 0 { "by hand" } else { "" };
        // The key that is put last may be the one that is deleted.
        if store.txn().then(ops).metadata(by).commit().is_err() {
            store.txn().then([put(key(3), value(3))]).metadata(by).commit().unwrap();
        }
        if n < 350 {
            while store.run_background().unwrap() {}
        }
    }
    store
}

#[test]
fn it_shows_what_the_iterator_makes() {
    let store = filled();
    assert!(store.stats().events.files > 1 && store.stats().memtable_bytes > 0);
    let newest = store.revision();
    let spans = [
        (None, u64::MAX),
        (Some(50), 60),
        (Some(newest - 3), newest),
        (Some(380), 390),
        (Some(60), 50),
        (Some(newest + 1), newest + 9),
    ];
    for (from, upto) in spans {
        let span = (from.map_or(Bound::Unbounded, Bound::Included), Bound::Included(upto));
        let logs = || {
            [
                store.log(span),
                store.log(span).with_values(),
                store.log_of(span, KeyRange::prefix("a/")),
                store.log_of(span, KeyRange::prefix("b/")).with_values(),
                store.log_of(span, KeyRange::prefix("c")),
            ]
        };
        for (one, other) in logs().into_iter().zip(logs()) {
            let made = other.collect::<annals::Result<Vec<_>>>().unwrap();
            assert_eq!(visited(one).unwrap(), made, "{from:?} to {upto}");
        }
    }
    let all = visited(store.log(..).with_values()).unwrap();
    assert_eq!(all.len() as u64, newest - 1);
    let long =
        |change: &annals::Change| change.value.as_ref().is_some_and(|value| value.len() > 1_024);
    assert!(all.iter().any(|transaction| transaction.changes.iter().any(long)));
}

#[test]
fn it_goes_on_where_it_broke_off_by_either_way() {
    let store = filled();
    let expected: Vec<_> = store.log(..).with_values().map(Result::unwrap).collect();
    for every in [1, 2, 7, 100] {
        let (mut log, mut found, mut in_place) = (store.log(..).with_values(), Vec::new(), true);
        loop {
            let before = found.len();
            if in_place {
                let mut left = every;
                let broke = log.visit(|transaction| {
                    found.push(transaction.to_transaction());
                    left -= 1;
                    if left == 0 {
                        ControlFlow::Break(transaction.revision())
                    } else {
                        ControlFlow::Continue(())
                    }
                });
                assert_eq!(broke.unwrap(), (left == 0).then(|| found.last().unwrap().revision));
            } else {
                found.extend(log.by_ref().take(every).map(Result::unwrap));
            }
            in_place = !in_place;
            if found.len() == before {
                break;
            }
        }
        assert_eq!(found, expected, "every {every}");
    }
}

#[test]
fn what_has_been_compacted_is_refused_once_and_what_was_begun_goes_on() {
    let store = filled();
    let begun = store.log(..).with_values();
    let expected: Vec<_> = store.log(..).with_values().map(Result::unwrap).collect();
    store.compact(store.revision()).unwrap();
    store.reorganise().unwrap();
    assert_eq!(visited(begun).unwrap(), expected);
    let mut refused = store.log(2..);
    let error = refused.visit(|_| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Compacted { requested: 2, .. }), "{error}");
    assert_eq!(refused.visit(|_| ControlFlow::Break(())).unwrap(), None);
}

#[test]
fn a_damaged_block_is_told_and_nothing_of_it_or_behind_it_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().history_block_bytes(512);
    let store = options.open(directory.path()).unwrap();
    for n in 0..200 {
        store.put(format!("key {}", n % 10), format!("value {n}")).unwrap();
    }
    store.reorganise().unwrap();
    store.close().unwrap();
    let seg = directory.path().join("seg");
    let file = seg.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let file =
        file.into_iter().find(|path| path.extension().is_some_and(|e| e == "events")).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.len() / 3;
    bytes[at] ^= 0x10;
    std::fs::write(&file, bytes).unwrap();

    let store = options.open(directory.path()).unwrap();
    let mut log = store.log(2..).with_values();
    let (mut next, mut whole) = (2, Vec::new());
    let error = log.visit(|transaction| {
        assert_eq!(transaction.revision(), next);
        next += 1;
        whole.push(transaction.to_transaction());
        ControlFlow::<()>::Continue(())
    });
    let error = error.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupt(_)), "{error}");
    assert!(error.to_string().contains(".events"), "{error}");
    assert!(next < 202, "it ended where it was damaged");
    assert_eq!(log.visit(|_| ControlFlow::Break(())).unwrap(), None);
    let made: Vec<_> = store.log(2..).with_values().map_while(Result::ok).collect();
    assert_eq!(whole, made);
    // What ends before the damage is not told of it.
    let before: annals::Result<Vec<_>> = store.log(..next).with_values().collect();
    assert_eq!(before.unwrap(), whole);
    assert_eq!(visited(store.log(..next).with_values()).unwrap(), whole);
    let none = store.log_of(..next, KeyRange::prefix("nothing")).next();
    assert!(none.is_none(), "{none:?}");
}
