//! The process that is killed: it opens the store, and says on its standard output what it was
//! answered, line by line, as soon as it is.
//!
//! | line | says |
//! | --- | --- |
//! | `O revision compacted` | the store is open |
//! | `A revision token` | this transaction is durable |
//! | `C revision` | so is this compaction |
//! | `G lease`, `V lease`, `v lease` | this lease is granted; will be revoked; is revoked |
//! | `W revision digest` | the watch was told this; `X revision`: it begins anew here |
//! | `E text` | a call failed |
//! | `LATE token` | a commit was acknowledged that began after one had failed: never |
//! | `END` | the store was closed |

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use annals::{
    ChangeKind, ErrorKind, LeaseGrantRequest, Options, PutRequest, ReadMode, Store, delete_prefix,
    mod_revision, put,
};

use crate::support::random::Random;
use crate::work::{Plan, Token, digest};

/// What the parent sets for the child.
pub fn setting(name: &str) -> Option<String> {
    std::env::var(format!("ANNALS_KERNEL_{name}")).ok()
}

pub fn number<T: FromStr>(name: &str, default: T) -> T {
    setting(name).and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Files so small that there are flushes, folds and new log files all the time.
pub fn options(read_mode: ReadMode) -> Options {
    Options::new()
        .memtable_bytes(16 << 10)
        .wal_bytes(64 << 10)
        .segment_bytes(8 << 10)
        .block_bytes(1 << 10)
        .history_block_bytes(1 << 10)
        .l0_files_max(2)
        .history_windows_max(3)
        .blob_value_bytes(128)
        .cache_bytes(64 << 10)
        .retention_interval_seconds(1)
        .read_mode(read_mode)
}

/// One line for the parent.
pub fn say(line: &str) {
    static OUT: Mutex<()> = Mutex::new(());
    let _one = OUT.lock().unwrap();
    let mut out = std::io::stdout();
    // A parent that is gone is told nothing.
    let _ = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
}

/// Where the store is.
pub fn directory() -> PathBuf {
    PathBuf::from(setting("DIR").expect("the parent says where the store is"))
}

/// Does what the token stands for, and says so.
pub fn step(store: &Store, token: Token, mine: &mut Vec<i64>) -> annals::Result<()> {
    let text = token.to_string();
    let value = |key: &str| token.value(key);
    let mark = || put(token.mark(), value(&token.mark()));
    let txn = store.txn().metadata(&text);
    let done = match token.plan() {
        Plan::Puts(keys) => txn.then(keys.iter().map(|key| put(key, value(key)))).commit()?,
        Plan::Swap(key) => {
            let read = store.get(&key)?.map_or(0, |kv| kv.mod_revision);
            let txn = store.txn().metadata(format!("{text} {read}"));
            let txn = txn.when([mod_revision(&key).eq(read)]);
            txn.then([put(&key, value(&key))]).or_else([mark()]).commit()?
        }
        Plan::Delete(prefix) => txn.then([delete_prefix(prefix), mark()]).commit()?,
        Plan::Leased { key, short } => {
            let ttl = if short { 1 } else { 100_000 };
            let request =
                LeaseGrantRequest { ttl_min: 1, ..LeaseGrantRequest::new(token.lease(), ttl) };
            let lease = store.lease_grant_with(request)?.id;
            if !short {
                say(&format!("G {lease}"));
                mine.push(lease);
            }
            if mine.len() > 6 {
                let oldest = mine.remove(0);
                say(&format!("V {oldest}"));
                store.lease_revoke(oldest)?;
                say(&format!("v {oldest}"));
            }
            // One that ends soon may have ended already.
            let leased = txn.then([PutRequest::new(&key, value(&key)).lease(lease)]).commit();
            match leased {
                Err(error) if short && matches!(error.kind(), ErrorKind::LeaseNotFound { .. }) => {
                    store.txn().metadata(&text).then([mark()]).commit()?
                }
                leased => leased?,
            }
        }
    };
    say(&format!("A {} {text}", done.revision));
    Ok(())
}

/// Whether nothing may be acknowledged any more after this error.
pub fn is_final(error: &annals::Error) -> bool {
    matches!(error.kind(), ErrorKind::Poisoned { .. } | ErrorKind::OutcomeUnknown { .. })
}

/// Writes until a call fails, and a few times more.
fn write(store: &Store, session: u64, thread: u64, stop: &AtomicBool, failed: &AtomicBool) {
    let limit = number("COMMITS", u64::MAX);
    let (mut mine, mut failures) = (Vec::new(), 0);
    let mut number = 1;
    while number <= limit && !stop.load(Ordering::Acquire) {
        let token = Token { session, thread, number };
        let late = failed.load(Ordering::Acquire);
        match step(store, token, &mut mine) {
            Ok(()) if late => say(&format!("LATE {token}")),
            Ok(()) => number += 1,
            Err(error) => {
                if is_final(&error) {
                    failed.store(true, Ordering::Release);
                }
                say(&format!("E {token} {error}"));
                failures += 1;
                if failures == 4 {
                    return;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Compacts to revisions up to `upto`, or, where that is 0, to what others have just written.
fn compact(store: &Store, session: u64, stop: &AtomicBool) {
    let mut random = Random::new(session);
    let upto = number("COMPACT", 0_u64);
    while !stop.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(random.below(40)));
        let newest = if upto == 0 { store.revision().saturating_sub(100) } else { upto };
        let low = store.compacted_revision() + 1;
        if low <= newest {
            let at = random.between(low, newest + 1);
            match store.compact(at) {
                Ok(_) => say(&format!("C {at}")),
                Err(error) => say(&format!("E compact {error}")),
            }
        }
        if random.one_in(8) && store.reorganise().is_err() {
            return;
        }
    }
}

/// Says what a watch of all keys is told.
fn watch(store: &Store, stop: &AtomicBool) {
    let mut from = number("WATCH", 2_u64);
    while !stop.load(Ordering::Acquire) {
        let mut watch = match store.watch("").prefix().from(from).start() {
            Ok(watch) => watch,
            Err(error) => return say(&format!("E watch {error}")),
        };
        loop {
            match watch.next_timeout(Duration::from_millis(50)) {
                None if stop.load(Ordering::Acquire) || watch.handle().is_ended() => return,
                None => {}
                Some(Ok(batch)) => {
                    let events = batch.events().iter();
                    let events =
                        events.map(|e| (e.kind == ChangeKind::Put, &*e.kv.key, &*e.kv.value));
                    say(&format!("W {} {}", batch.revision(), digest(events)));
                }
                Some(Err(error)) => {
                    let ErrorKind::Compacted { compacted, .. } = error.kind() else {
                        return say(&format!("E watch {error}"));
                    };
                    from = *compacted;
                    say(&format!("X {from}"));
                    break;
                }
            }
        }
    }
}

/// The process: everything at once, until it is killed or its standard input ends.
pub fn run() {
    let session = number("SESSION", 1);
    let mode = if session % 3 == 2 { ReadMode::Pread } else { ReadMode::Mmap };
    let store = match options(mode).open(directory()) {
        Ok(store) => store,
        Err(error) => return say(&format!("E open {error}")),
    };
    say(&format!("O {} {}", store.revision(), store.compacted_revision()));
    let (stop, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let (stop, failed) = (&stop, &failed);
    thread::scope(|scope| {
        scope.spawn(|| compact(&store, session, stop));
        scope.spawn(|| watch(&store, stop));
        for thread in 0..number("THREADS", 4) {
            let store = &store;
            scope.spawn(move || write(store, session, thread, stop, failed));
        }
        let _ = std::io::stdin().read(&mut [0]);
        stop.store(true, Ordering::Release);
    });
    match store.close() {
        Ok(()) => say("END"),
        Err(error) => say(&format!("E close {error}")),
    }
}
