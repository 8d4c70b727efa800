//! etcd's semantics, edge by edge: revisions, ranges, puts and deletes, transactions, compaction,
//! leases; then what this interface adds. Each test is named by the rule it holds to.

#![allow(clippy::expect_used, reason = "a test stops where it fails")]

/// Asserts that a call fails with a kind of error.
macro_rules! refused {
    ($call:expr, $kind:pat $(if $guard:expr)?) => {
        match $call {
            Ok(done) => panic!("not refused: {done:?}"),
            Err(error) => match error.kind() {
                $kind $(if $guard)? => {}
                other => panic!("refused for another reason: {other:?}"),
            },
        }
    };
}

mod metadata;
mod modify;
mod reads_and_writes;
mod state;
mod transactions;
mod update;

use std::sync::Arc;

use annals::vfs::MemoryVfs;
use annals::{KeyValue, Options, Result, Store};

fn options() -> Options {
    Options::new().vfs(Arc::new(MemoryVfs::new())).memtable_bytes(1 << 20).wal_bytes(1 << 20)
}

fn fresh() -> Store {
    options().open("store").expect("a fresh store opens")
}

fn numbers(kv: &KeyValue) -> (u64, u64, u64) {
    (kv.create_revision, kv.mod_revision, kv.version)
}

fn keys(kvs: &[KeyValue]) -> Vec<&str> {
    kvs.iter().map(|kv| std::str::from_utf8(&kv.key).expect("text")).collect()
}

fn one(store: &Store, key: &str) -> Result<KeyValue> {
    Ok(store.get(key)?.expect("the key is alive"))
}

fn five() -> Result<Store> {
    let store = fresh();
    for key in ["b", "a", "d", "c", "e"] {
        store.put(key, format!("value of {key}"))?; // revisions 2 to 6
    }
    store.put("c", "again")?; // 7
    Ok(store)
}
