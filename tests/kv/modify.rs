//! Changing a key by what it is.

use std::sync::Arc;
use std::time::Duration;

use annals::vfs::{Fault, FaultVfs, MemoryVfs, Operation};
use annals::{
    Effect, ErrorKind, KeyValue, Modified, Modify, Options, Outcome, Result, Store, Ticket,
};

use crate::{fresh, numbers, one};

/// One more than what is there.
fn more(current: Option<&KeyValue>) -> Modify {
    let count: u64 =
        current.map_or(0, |kv| String::from_utf8_lossy(&kv.value).parse().expect("a number"));
    Modify::put((count + 1).to_string())
}

/// A store in which nothing becomes durable by itself.
fn still(vfs: Arc<dyn annals::vfs::Vfs>) -> Store {
    Options::new().vfs(vfs).background(false).open("store").expect("a fresh store opens")
}

#[test]
fn a_key_becomes_what_is_answered() -> Result<()> {
    let store = fresh();
    assert_eq!(store.modify("a", more)?, Modified::Committed { revision: 2 });
    assert_eq!(store.modify("a", more)?, Modified::Committed { revision: 3 });
    assert_eq!(
        (one(&store, "a")?.value.as_ref(), numbers(&one(&store, "a")?)),
        (&b"2"[..], (2, 3, 2))
    );
    assert_eq!(store.modify("a", |_| Modify::Keep)?, Modified::Unchanged { as_of: 3 });
    assert_eq!(store.modify("b", |_| Modify::Keep)?, Modified::Unchanged { as_of: 3 });
    assert_eq!(store.modify("b", |_| Modify::Delete)?, Modified::Unchanged { as_of: 3 });
    assert_eq!(store.modify("a", |_| Modify::Delete)?, Modified::Committed { revision: 4 });
    assert_eq!(store.get("a")?, None);
    let mut seen = Vec::new();
    store.modify("a", |current| {
        seen.push(current.cloned());
        Modify::put("again")
    })?;
    assert_eq!(seen, [None]);
    assert_eq!(numbers(&one(&store, "a")?), (5, 5, 1));
    Ok(())
}

#[test]
fn a_lease_is_named_each_time() -> Result<()> {
    let store = fresh();
    for id in [7, 8] {
        store.lease_grant(id, Duration::from_secs(60))?;
    }
    let with = |lease| move |_: Option<&KeyValue>| Modify::Put { value: b"v".to_vec(), lease };
    store.modify("a", with(7))?;
    store.modify("b", with(7))?;
    store.modify("b", with(8))?;
    store.modify("c", with(8))?;
    assert_eq!(store.modify("c", |_| Modify::put("free"))?, Modified::Committed { revision: 6 });
    store.lease_revoke(7)?;
    assert_eq!(store.get("a")?, None);
    assert_eq!(one(&store, "b")?.lease, 8);
    store.lease_revoke(8)?;
    assert_eq!((store.get("b")?, one(&store, "c")?.lease), (None, 0));
    refused!(store.modify("d", with(7)), ErrorKind::LeaseNotFound { lease: 7 });
    assert_eq!(store.get("d")?, None);
    Ok(())
}

#[test]
fn what_is_refused_changes_nothing() -> Result<()> {
    let vfs = Arc::new(MemoryVfs::new());
    let options = Options::new().vfs(vfs).key_bytes_max(8).value_bytes_max(8);
    let store = options.open("store")?;
    store.modify("a", |_| Modify::put("12345678"))?;
    let asked = |key: &str| store.modify(key, |_| panic!("asked"));
    refused!(asked(""), ErrorKind::EmptyKey);
    refused!(asked("123456789"), ErrorKind::KeyTooLong { bytes: 9, max: 8 });
    refused!(
        store.modify("a", |_| Modify::put("123456789")),
        ErrorKind::ValueTooLong { bytes: 9, max: 8 }
    );
    assert_eq!((one(&store, "a")?.value.as_ref(), store.revision()), (&b"12345678"[..], 2));
    store.clone().close()?;
    refused!(store.modify("a", more), ErrorKind::Closed);
    let reader = Store::open_read_only_with("store", &options)?;
    assert_eq!(reader.modify("a", |_| Modify::Keep)?, Modified::Unchanged { as_of: 2 });
    refused!(reader.modify("a", |_| Modify::put("1")), ErrorKind::ReadOnly);
    Ok(())
}

#[test]
fn who_comes_in_between_is_seen() -> Result<()> {
    let store = fresh();
    store.put("a", "1")?;
    let mut seen = Vec::new();
    // The function may use the store, and changes what it was asked about three times.
    let outcome = store.modify("a", |current| {
        let value = current.map(|kv| kv.value.clone());
        match seen.len() {
            0 => store.put("a", "2").map(drop),
            1 => store.delete("a").map(drop),
            2 => store.put("a", "1").map(drop),
            _ => store.put("elsewhere", "").map(drop),
        }
        .expect("a write");
        seen.push(value.clone());
        Modify::put([&value.unwrap_or_default()[..], b"!"].concat())
    })?;
    let text = |text: &'static str| Some(text.into());
    assert_eq!(seen, [text("1"), text("2"), None, text("1")]);
    assert_eq!(outcome, Modified::Committed { revision: 7 });
    assert_eq!(one(&store, "a")?.value, "1!");
    Ok(())
}

#[test]
fn a_panic_in_the_function_leaves_the_store_as_it_was() -> Result<()> {
    let store = fresh();
    let asked = || store.modify("a", |_| panic!("on purpose"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(asked)).is_err());
    assert_eq!(store.modify("a", more)?, Modified::Committed { revision: 2 });
    store.close()
}

#[test]
fn modifications_go_on_from_what_is_not_durable_and_share_a_sync() -> Result<()> {
    let store = still(Arc::new(MemoryVfs::new()));
    store.put("a", "0")?;
    let before = store.stats().batches;
    let tickets = (0..64).map(|_| store.submit_modify("a", more)).collect::<Result<Vec<_>>>()?;
    let keep = store.submit_modify("a", |_| Modify::Keep)?;
    assert_eq!(one(&store, "a")?.value, "0", "a reader sees only what is durable");
    let outcomes: Vec<_> = tickets.iter().map(Ticket::outcome).collect();
    let expected: Vec<_> = (3..67).map(|revision| Outcome::Committed { revision }).collect();
    assert_eq!(outcomes, expected);
    assert_eq!(keep.outcome(), Outcome::Unchanged { as_of: 66 });
    for ticket in tickets.into_iter().chain([keep]) {
        assert!(ticket.wait()?.succeeded);
    }
    assert_eq!((one(&store, "a")?.value.as_ref(), store.stats().batches - before), (&b"64"[..], 1));
    Ok(())
}

#[test]
fn nothing_is_told_of_what_a_failed_sync_has_lost() -> Result<()> {
    let faulty = FaultVfs::new(Arc::new(MemoryVfs::new()));
    let store = still(Arc::new(faulty.clone()));
    store.put("a", "0")?;
    let ticket = store.submit_modify("a", more)?;
    faulty.fail(Some(Operation::Sync), faulty.op_count_of(Operation::Sync), Fault::Io, false);
    // It has seen the 1, so it may not say that nothing was to be done.
    let mut seen = Vec::new();
    let kept = store.modify("a", |current| {
        seen.push(current.cloned().expect("it is there").value);
        Modify::Keep
    });
    assert_eq!(seen, ["1"]);
    assert_eq!(kept.expect_err("the sync failed").effect(), Effect::None);
    assert_eq!(ticket.wait().expect_err("the sync failed").effect(), Effect::Unknown);
    assert_eq!(one(&store, "a")?.value, "0");
    refused!(store.modify("a", more), ErrorKind::Poisoned { .. });
    Ok(())
}

#[test]
fn no_modification_is_lost_between_threads() -> Result<()> {
    const THREADS: u64 = 16;
    const EACH: u64 = 100;
    let store = fresh();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                for n in 0..EACH {
                    // Others delete a second key, and put it again.
                    store.modify("counter", more).expect("a modification");
                    let flip = |current: Option<&KeyValue>| match current {
                        Some(_) => Modify::Delete,
                        None => Modify::put(format!("{thread} {n}")),
                    };
                    store.modify("flag", flip).expect("a modification");
                }
            });
        }
    });
    let counter = one(&store, "counter")?;
    assert_eq!(counter.value, (THREADS * EACH).to_string());
    assert_eq!((counter.version, store.revision()), (THREADS * EACH, 1 + 2 * THREADS * EACH));
    // As many puts as deletes, in turn.
    assert_eq!(store.get("flag")?, None);
    let history = store.history("flag").collect::<Result<Vec<_>>>()?;
    assert_eq!(history.len() as u64, THREADS * EACH);
    assert!(history.iter().enumerate().all(|(n, version)| version.tombstone == (n % 2 == 0)));
    Ok(())
}
