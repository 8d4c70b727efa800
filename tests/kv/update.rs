//! Transactions by a function.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use annals::vfs::{Fault, FaultVfs, MemoryVfs, Operation};
use annals::{
    At, Durability, Error, ErrorKind, KeyRange, Options, Outcome, Result, Store, Update, Updated,
    delete, put,
};

use crate::{fresh, keys, numbers, one, options};

/// What does not fail but as the store does.
type Decided<T> = std::result::Result<T, Error>;

fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

#[test]
fn it_reads_one_state_and_its_own_writes() -> Result<()> {
    let store = fresh();
    store.put("a", "1")?;
    store.put("b", "2")?;
    let lease = store.lease_grant(7, std::time::Duration::from_secs(60))?.id;
    let done = store.update(|update| {
        assert_eq!(update.revision(), 3);
        assert_eq!(update.get("a")?.unwrap().value, "1");
        assert_eq!(update.get("c")?, None);
        update.put("c", "3")?;
        update.put_leased("a", "one", lease)?;
        update.delete("b")?;
        let own = update.get("a")?.unwrap();
        assert_eq!((own.value.as_ref(), numbers(&own), own.lease), (&b"one"[..], (0, 0, 0), 7));
        assert_eq!(update.get("b")?, None);
        assert_eq!(keys(&update.range(..)?), ["a", "c"]);
        assert_eq!(update.delete_range("a".."c")?, 1);
        assert_eq!(keys(&update.prefix("")?), ["c"]);
        update.put_leased("a", "again", lease)?;
        assert_eq!(keys(&update.range("a".."b")?), ["a"]);
        update.metadata("by hand");
        Decided::Ok("done")
    })?;
    assert_eq!(done, Updated { value: "done", revision: 4, changed: true });
    let state: Vec<_> = store.latest()?.range(..).collect::<Result<_>>()?;
    assert_eq!(keys(&state), ["a", "c"]);
    assert_eq!((numbers(&state[0]), state[0].lease), ((2, 4, 2), 7));
    assert_eq!(numbers(&state[1]), (4, 4, 1));
    let log: Vec<_> = store.log(4..).collect::<Result<_>>()?;
    assert_eq!((log.len(), log[0].metadata.as_ref()), (1, &b"by hand"[..]));
    assert_eq!(log[0].changes.len(), 3);
    Ok(())
}

#[test]
fn what_it_comes_to_without_a_change() -> Result<()> {
    let store = fresh();
    store.put("a", "1")?;
    let read = store.update(|update| Decided::Ok(update.get("a")?.unwrap().version))?;
    assert_eq!(read, Updated { value: 1, revision: 2, changed: false });
    // A deletion of what is not there.
    let none = store.update(|update| update.delete("b"))?;
    assert_eq!((none.revision, none.changed), (2, false));
    let (_, ticket) = store.submit_update(|update| Decided::Ok(update.get("a")?.is_some()))?;
    assert_eq!(ticket.outcome(), Outcome::Unchanged { as_of: 2 });
    let ((), ticket) = store.submit_update(|update| update.put("a", "2"))?;
    assert_eq!(ticket.wait()?.revision, 3);
    Ok(())
}

#[test]
fn an_error_of_the_function_ends_it() -> Result<()> {
    #[derive(Debug)]
    enum Mine {
        NotEnough(u64),
        Store(Error),
    }
    impl From<Error> for Mine {
        fn from(error: Error) -> Self {
            Self::Store(error)
        }
    }
    let store = options().transaction_operations_max(1_000).open("store")?;
    store.put("a", "1")?;
    let outcome = store.update(|update| {
        update.put("b", "half done")?;
        let has = number(&update.get("a")?.unwrap().value);
        if has < 5 { Err(Mine::NotEnough(has)) } else { Ok(()) }
    });
    assert!(matches!(outcome, Err(Mine::NotEnough(1))), "{outcome:?}");
    let refused = |outcome: std::result::Result<Updated<()>, Mine>| match outcome {
        Err(Mine::Store(error)) => error,
        other => panic!("{other:?}"),
    };
    let error = refused(store.update(|update| Ok(update.put("", "")?)));
    assert!(matches!(error.kind(), ErrorKind::EmptyKey), "{error}");
    let error = refused(store.update(|update| Ok(update.put_leased("b", "", 99)?)));
    assert!(matches!(error.kind(), ErrorKind::LeaseNotFound { .. }), "{error}");
    let error = refused(store.update(|update| {
        update.put("b", "")?;
        update.time(i64::MAX);
        Ok(())
    }));
    assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
    let error = refused(store.update(|update| {
        for n in 0..1_001_u32 {
            update.put(n.to_be_bytes(), "")?;
        }
        Ok(())
    }));
    assert!(matches!(error.kind(), ErrorKind::TooManyOperations { .. }), "{error}");
    assert_eq!((store.revision(), store.get("b")?), (2, None));
    Ok(())
}

/// How often the function was called if something else was done before its first return.
fn calls(store: &Store, read: impl Fn(&mut Update<'_>) -> Result<()>, between: impl Fn()) -> u64 {
    let mut calls = 0;
    let done = store.update(|update| {
        calls += 1;
        read(update)?;
        if calls == 1 {
            between();
        }
        update.put("own", calls.to_string())?;
        Decided::Ok(())
    });
    assert_eq!(done.unwrap().revision, store.revision());
    calls
}

#[test]
fn it_is_done_again_only_if_something_of_what_it_read_has_changed() {
    let store = fresh();
    for key in ["a", "b", "c", "d"] {
        store.put(key, "1").unwrap();
    }
    let get = |key: &'static str| move |update: &mut Update<'_>| update.get(key).map(drop);
    let range = |update: &mut Update<'_>| update.range("b".."d").map(drop);
    let put = |key: &'static str| {
        let store = store.clone();
        move || _ = store.put(key, "2").unwrap()
    };
    let delete = |key: &'static str| {
        let store = store.clone();
        move || _ = store.delete(key).unwrap()
    };
    assert_eq!(calls(&store, get("a"), put("b")), 1);
    assert_eq!(calls(&store, get("a"), put("a")), 2, "a newer version");
    assert_eq!(calls(&store, get("x"), put("x")), 2, "a key that was absent");
    assert_eq!(calls(&store, get("y"), put("own")), 1, "what it writes it has not read");
    assert_eq!(calls(&store, get("x"), delete("x")), 2, "a key that was there");
    assert_eq!(calls(&store, get("x"), delete("x")), 1, "nothing was deleted");
    assert_eq!(calls(&store, range, put("b")), 2, "a newer version in the range");
    assert_eq!(calls(&store, range, put("bb")), 2, "a key that comes into the range");
    assert_eq!(calls(&store, range, delete("bb")), 2, "a key that goes from the range");
    assert_eq!(calls(&store, range, put("d")), 1, "the end is not in the range");
    assert_eq!(calls(&store, range, put("a")), 1);
    // A key that came and went is a change, too.
    let there_and_back = || {
        store.put("c1", "").unwrap();
        store.delete("c1").unwrap();
    };
    assert_eq!(calls(&store, range, there_and_back), 2);
    assert_eq!(calls(&store, get("c1"), there_and_back), 2);
    assert_eq!(calls(&store, |update| update.delete_range("b".."d").map(drop), put("c")), 2);
    assert_eq!(calls(&store, |update| update.range("d".."b").map(drop), put("c")), 1);
}

/// Also if the deletion has been forgotten otherwise, by compaction and fold.
#[test]
fn what_was_deleted_is_told_whatever_is_forgotten() {
    let store = fresh();
    for n in 0..9 {
        store.put(format!("k{n}"), "").unwrap();
    }
    store.reorganise().unwrap();
    let forget = |key: &str| {
        store.delete(key).unwrap();
        store.put("other", "").unwrap();
        store.compact(store.revision()).unwrap();
        store.reorganise().unwrap();
    };
    let range = |update: &mut Update<'_>| update.range("k".."l").map(drop);
    assert_eq!(calls(&store, range, || forget("k3")), 2);
    assert_eq!(calls(&store, |update| update.get("k5").map(drop), || forget("k5")), 2);
    assert_eq!(calls(&store, |update| update.get("k6").map(drop), || forget("k7")), 1);
}

/// Each must leave one on call: deciding by comparisons of what they change, both would go.
#[test]
fn nobody_leaves_because_of_what_is_no_more() {
    let store = fresh();
    let threads = ["ada", "ben", "cem", "dor"];
    for name in threads {
        store.put(format!("on/{name}"), "").unwrap();
    }
    std::thread::scope(|scope| {
        for name in threads {
            let store = &store;
            scope.spawn(move || {
                let key = format!("on/{name}");
                for _ in 0..200 {
                    store
                        .update(|update| {
                            let others = update.prefix("on/")?;
                            if update.get(&key)?.is_none() {
                                update.put(&key, "")?;
                            } else if others.len() > 1 {
                                update.delete(&key)?;
                            }
                            Decided::Ok(())
                        })
                        .unwrap();
                }
            });
        }
    });
    assert!(store.revision() > 300, "{}", store.revision());
    for revision in 5..=store.revision() {
        assert!(store.at(revision).unwrap().prefix("on/").next().is_some(), "at {revision}");
    }
}

/// Money goes from one account to another, and accounts come and go: at no revision is there more or less.
#[test]
fn a_sum_over_a_range_stays_what_it_is() {
    const SUM: u64 = 1000;
    for durability in [Durability::Sync, Durability::Buffered] {
        let store = Options::new()
            .vfs(Arc::new(MemoryVfs::new()))
            .memtable_bytes(16 << 10)
            .wal_bytes(64 << 10)
            .durability(durability)
            .open("store")
            .unwrap();
        store.put("account/0", SUM.to_string()).unwrap();
        let again = AtomicU64::new(0);
        let move_some = |thread: u64, round: u64| {
            let mut calls = 0;
            let name = format!("account/{}", (thread * 7 + round * 3) % 10);
            store
                .update(|update| {
                    calls += 1;
                    let accounts = update.prefix("account/")?;
                    let sum: u64 = accounts.iter().map(|kv| number(&kv.value)).sum();
                    assert_eq!(sum, SUM, "what is read is one state");
                    let mine = accounts.iter().find(|kv| kv.key == name.as_bytes());
                    let other = accounts.iter().find(|kv| kv.key != name.as_bytes());
                    let Some(other) = other else { return Decided::Ok(()) };
                    let has = mine.map_or(0, |kv| number(&kv.value));
                    let takes = number(&other.value).min(1 + round * 37 % 400);
                    update.put(&name, (has + takes).to_string())?;
                    match number(&other.value) - takes {
                        0 => update.delete(&other.key)?,
                        left => update.put(&other.key, left.to_string())?,
                    }
                    Ok(())
                })
                .unwrap();
            again.fetch_add(calls - 1, Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let move_some = &move_some;
                scope.spawn(move || (0..150).for_each(|round| move_some(thread, round)));
            }
        });
        for revision in 2..=store.revision() {
            let view = store.at(revision).unwrap();
            let sum = view.prefix("account/").map(|kv| number(&kv.unwrap().value)).sum::<u64>();
            assert_eq!(sum, SUM, "at {revision}");
        }
        println!("{} revisions, {} calls again", store.revision(), again.into_inner());
        assert!(store.revision() > 500);
    }
}

/// Reads, and what others do meanwhile, by chance: called again if and only if that touches what was read.
#[test]
fn a_conflict_is_what_touches_what_was_read_and_nothing_else() {
    for seed in 0..150_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut below = move |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let store = Options::new()
            .vfs(Arc::new(MemoryVfs::new()))
            .memtable_bytes(16 << 10)
            .wal_bytes(64 << 10)
            .segment_bytes(4 << 10)
            .l0_files_max(1)
            .background(false)
            .open("store")
            .unwrap();
        let name = |n: u64| format!("{n:02}");
        let mut alive = BTreeSet::new();
        for _ in 0..below(60) {
            let key = name(below(40));
            store.put(&key, "x".repeat(300)).unwrap();
            alive.insert(key);
        }
        if below(2) == 0 {
            store.reorganise().unwrap();
        }
        let gets: Vec<String> = (0..below(4)).map(|_| name(below(40))).collect();
        let ranges: Vec<(String, String)> =
            (0..below(3)).map(|_| below(40)).map(|from| (name(from), name(from + 6))).collect();
        let others: Vec<(bool, String)> =
            (0..below(6)).map(|_| (below(2) == 0, name(below(40)))).collect();
        let (flushes, compacts) = (below(2) == 0, below(2) == 0);
        let mut touched = false;
        for (puts, key) in &others {
            let has_changed = if *puts {
                alive.insert(key.clone());
                true
            } else {
                alive.remove(key)
            };
            let is_read =
                gets.contains(key) || ranges.iter().any(|(from, to)| from <= key && key < to);
            touched |= has_changed && is_read;
        }
        let mut calls = 0;
        store
            .update(|update| {
                calls += 1;
                for key in &gets {
                    update.get(key)?;
                }
                for (from, to) in &ranges {
                    update.range(KeyRange::between(from, to))?;
                }
                if calls == 1 {
                    for (puts, key) in &others {
                        let op = if *puts { put(key, "y".repeat(300)) } else { delete(key) };
                        store.txn().then([op]).commit()?;
                    }
                    if compacts {
                        store.compact(store.revision()).or_else(|error| match error.kind() {
                            ErrorKind::Compacted { .. } => store.put("zz", ""),
                            _ => Err(error),
                        })?;
                    }
                    if flushes {
                        store.reorganise()?;
                    }
                }
                update.put("own", "")?;
                Decided::Ok(())
            })
            .unwrap();
        assert_eq!(
            calls,
            if touched { 2 } else { 1 },
            "seed {seed}: {gets:?} {ranges:?} {others:?}"
        );
    }
}

#[test]
fn nothing_is_told_before_it_is_certain() {
    let disk = FaultVfs::new(Arc::new(MemoryVfs::new()));
    let store = Options::new().vfs(Arc::new(disk.clone())).background(false).open("store").unwrap();
    store.put("a", "1").unwrap();
    // What it reads is in the order, and never on the disk.
    let ((), before) = store.submit_update(|update| update.put("a", "2")).unwrap();
    disk.fail(Some(Operation::Sync), disk.op_count_of(Operation::Sync), Fault::Io, false);
    let mut seen = None;
    let read = store.update(|update| {
        seen = update.get("a")?.map(|kv| kv.value);
        Decided::Ok(())
    });
    assert_eq!(seen.as_deref(), Some(&b"2"[..]));
    assert!(matches!(read.unwrap_err().kind(), ErrorKind::Poisoned { .. }));
    assert!(matches!(before.wait().unwrap_err().kind(), ErrorKind::OutcomeUnknown { .. }));
    let refused = store.update(|update| update.put("b", "")).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Poisoned { .. }), "{refused}");
    assert_eq!(one(&store, "a").unwrap().value, "1");
}

#[test]
fn it_may_use_the_store_and_panic() {
    let store = fresh();
    store.put("a", "1").unwrap();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = store.update(|update| -> Decided<()> {
            update.put("a", "2")?;
            panic!("as functions do");
        });
    }));
    assert!(caught.is_err());
    let done = store.update(|update| {
        let before = store.at(At::Revision(2)).unwrap().get("a")?;
        store.update(|inner| inner.put("b", "inner"))?;
        update.put("c", before.unwrap().value)?;
        Decided::Ok(())
    });
    assert_eq!(done.unwrap().revision, 4);
    assert_eq!(one(&store, "a").unwrap().value, "1");
    store.clone().close().unwrap();
    let closed = store.update(|update| Decided::Ok(update.get("a")?.is_some())).unwrap_err();
    assert!(matches!(closed.kind(), ErrorKind::Closed), "{closed}");
}

#[test]
fn keys_become_what_they_were() -> Result<()> {
    let store = fresh();
    let minute = std::time::Duration::from_secs(60);
    for id in [7, 8] {
        store.lease_grant(id, minute)?;
    }
    let leased = |key: &str, value: &str, lease| {
        store.put_with(annals::PutRequest::new(key, value).lease(lease)).map(drop)
    };
    store.put("k/same", "1")?; // 2
    store.put("k/changed", "1")?;
    store.put("k/gone", "1")?;
    leased("k/leased", "1", 7)?;
    leased("k/ended", "1", 8)?; // 6
    let then = store.revision();
    store.put("k/same", "1")?;
    store.put("k/changed", "2")?;
    store.delete("k/gone")?;
    store.put("k/leased", "1")?;
    store.put("k/new", "1")?;
    store.put("other", "1")?;
    store.lease_revoke(8)?; // deletes k/ended
    let done = store.update(|update| {
        update.put("k/own", "undone")?;
        update.put("elsewhere", "stays")?;
        update.revert(then, KeyRange::prefix("k/"))
    })?;
    assert_eq!((done.value, done.revision), (5, 14));
    let state: Vec<_> = store.latest()?.range(..).collect::<Result<_>>()?;
    let state: Vec<_> = state
        .iter()
        .map(|kv| (kv.key.as_ref(), kv.value.as_ref(), kv.lease, kv.mod_revision))
        .collect();
    let expected: [(&[u8], &[u8], i64, u64); 7] = [
        (b"elsewhere", b"stays", 0, 14),
        (b"k/changed", b"1", 0, 14),
        (b"k/ended", b"1", 0, 14),
        (b"k/gone", b"1", 0, 14),
        (b"k/leased", b"1", 7, 14),
        (b"k/same", b"1", 0, 7),
        (b"other", b"1", 0, 12),
    ];
    assert_eq!(state, expected);
    // The lease has ended: it is as it was as far as that goes.
    let none = store.update(|update| update.revert(then, KeyRange::prefix("k/")))?;
    assert_eq!((none.value, none.changed), (0, false));
    // And back again.
    let back = store.update(|update| update.revert(13, KeyRange::all()))?;
    assert_eq!(back.value, 6, "all that the first one changed");
    let revert = |to: u64| store.update(|update| update.revert(to, ..));
    refused!(revert(99), ErrorKind::FutureRevision { requested: 99, .. });
    refused!(revert(0), ErrorKind::InvalidArgument { .. });
    store.compact(10)?;
    refused!(revert(9), ErrorKind::Compacted { .. });
    assert_eq!(store.revision(), 15);
    Ok(())
}

#[test]
fn a_revert_undoes_what_comes_meanwhile_too() {
    let store = fresh();
    for key in ["a", "b"] {
        store.put(key, "1").unwrap();
    }
    store.lease_grant(9, std::time::Duration::from_secs(60)).unwrap();
    store.put_with(annals::PutRequest::new("c", "1").lease(9)).unwrap();
    store.put("c", "2").unwrap();
    let mut calls = 0;
    let done = store.update(|update| {
        calls += 1;
        let count = update.revert(4, ..)?;
        match calls {
            // What was as it was then when it was looked at.
            1 => drop(store.delete("b")?),
            2 => drop(store.lease_revoke(9)?),
            _ => {}
        }
        Decided::Ok(count)
    });
    assert_eq!((calls, done.unwrap().value), (3, 2));
    let state: Vec<_> = store.latest().unwrap().range(..).map(|kv| kv.unwrap()).collect();
    assert_eq!(keys(&state), ["a", "b", "c"]);
    assert!(state.iter().all(|kv| kv.value == "1" && kv.lease == 0));
}

#[test]
fn in_a_store_open_for_reading_it_reads() -> Result<()> {
    let options = options();
    options.open("store")?.put("a", "1")?;
    let store = Store::open_read_only_with("store", &options)?;
    let read = store.update(|update| Decided::Ok(update.prefix("a")?.len()))?;
    assert_eq!(read, Updated { value: 1, revision: 2, changed: false });
    refused!(store.update(|update| update.put("a", "2")), ErrorKind::ReadOnly);
    Ok(())
}

/// Two keys that both read and one writes each: never both 0, if each writes on what is so where its write lands.
#[test]
fn a_key_that_is_only_read_must_be_as_it_was() {
    let store = fresh();
    store.txn().then([put("x", "1"), put("y", "1")]).commit().unwrap();
    std::thread::scope(|scope| {
        for own in ["x", "y", "x", "y"] {
            let store = &store;
            scope.spawn(move || {
                for _ in 0..500 {
                    let (_, _ticket) = store
                        .submit_update(|update| {
                            let both = [update.get("x")?, update.get("y")?].map(|kv| kv.unwrap());
                            // What takes time after these two were looked at once more.
                            for n in 0..100 {
                                update.get(format!("z{n}"))?;
                            }
                            let has_spare = both.iter().all(|kv| kv.value == "1");
                            update.put(own, if has_spare { "0" } else { "1" })?;
                            Decided::Ok(has_spare)
                        })
                        .unwrap();
                }
            });
        }
    });
    store.flush().unwrap();
    let mut seen = BTreeSet::new();
    for revision in 2..=store.revision() {
        let view = store.at(revision).unwrap();
        let both = ["x", "y"].map(|key| number(&view.get(key).unwrap().unwrap().value));
        seen.insert(both);
        assert_ne!(both, [0, 0], "at {revision}");
    }
    assert!(seen.len() == 3, "{seen:?}");
}

/// What a call asked for that was in vain says nothing of the next one.
#[test]
fn a_call_that_asks_for_less_does_not_make_the_next_one_tell_too_early() {
    let disk = FaultVfs::new(Arc::new(MemoryVfs::new()));
    let store = Options::new().vfs(Arc::new(disk.clone())).background(false).open("store").unwrap();
    store.put("a", "1").unwrap();
    let mut calls = 0;
    let read = store.update(|update| {
        calls += 1;
        let found = update.get("a")?.unwrap().value;
        if calls == 1 {
            update.durability(Durability::Buffered);
            update.put("b", "")?;
            // In the order, and never on the disk.
            let _ticket = store.submit(annals::txn().then([put("a", "2")]))?;
            disk.fail(Some(Operation::Sync), disk.op_count_of(Operation::Sync), Fault::Io, false);
        }
        Decided::Ok(found)
    });
    assert_eq!(calls, 2);
    assert!(matches!(read.unwrap_err().kind(), ErrorKind::Poisoned { .. }));
}

#[test]
fn a_revert_to_now_undoes_nothing_that_is_on_its_way() {
    let store =
        Options::new().vfs(Arc::new(MemoryVfs::new())).background(false).open("store").unwrap();
    store.put("a", "1").unwrap();
    let ticket = store.submit(annals::txn().then([put("a", "2")])).unwrap();
    let done = store.update(|update| update.revert(At::Latest, ..)).unwrap();
    assert_eq!((done.value, done.changed), (0, false));
    ticket.wait().unwrap();
    assert_eq!(one(&store, "a").unwrap().value, "2");
}
