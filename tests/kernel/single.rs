//! Children with one thread, in which the same calls of the system come in the same order every time.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use annals::{Options, ReadMode, Store};

use crate::session::{directory, is_final, number, options, say, step};
use crate::work::{Plan, Token};

/// What one thread did, and must find again.
#[derive(Debug)]
struct Single {
    session: u64,
    number: u64,
    mine: Vec<i64>,
    /// Who wrote a key last, of those whose outcome is known.
    keys: BTreeMap<String, Token>,
    failed: bool,
}

impl Single {
    fn new() -> Self {
        let session = number("SESSION", 1);
        Self { session, number: 1, mine: Vec::new(), keys: BTreeMap::new(), failed: false }
    }

    /// Does the next transaction; whether it was acknowledged.
    fn step(&mut self, store: &Store) -> bool {
        let token = Token { session: self.session, thread: 0, number: self.number };
        let done = step(store, token, &mut self.mine);
        match token.plan() {
            Plan::Puts(keys) => {
                for key in keys {
                    self.keys.remove(&key);
                    if done.is_ok() {
                        self.keys.insert(key, token);
                    }
                }
            }
            Plan::Delete(prefix) => self.keys.retain(|key, _| !key.starts_with(prefix)),
            Plan::Swap(_) | Plan::Leased { .. } => {}
        }
        match done {
            Ok(()) => {
                self.number += 1;
                if self.failed {
                    say(&format!("LATE {token}"));
                }
                true
            }
            Err(error) => {
                self.failed |= is_final(&error);
                say(&format!("E {token} {error}"));
                false
            }
        }
    }

    /// Reads what it wrote. An error is none of what is looked for here, a wrong answer is.
    fn read(&self, store: &Store) -> u64 {
        let mut errors = 0;
        for (key, token) in &self.keys {
            match store.get(key) {
                Ok(Some(kv)) if kv.value == token.value(key) => {}
                Ok(found) => say(&format!("WRONG {key} of {token} is {found:?}")),
                Err(_) => errors += 1,
            }
        }
        for item in store.latest().into_iter().flat_map(|view| view.range(..)) {
            errors += u64::from(item.is_err());
        }
        for item in store.log(store.compacted_revision() + 1..).with_values() {
            errors += u64::from(item.is_err());
        }
        errors
    }
}

fn noted<T>(what: &str, result: annals::Result<T>) -> Option<T> {
    result.map_err(|error| say(&format!("E {what} {error}"))).ok()
}

fn alone(mode: ReadMode) -> Options {
    options(mode).background(false).lease_expiry(false)
}

fn wait_for_parent() {
    let _ = std::io::stdin().read(&mut [0]);
}

/// Commits, waits to be told that the disk fails now, and that it works again.
pub fn steady() {
    let Some(store) = noted("open", alone(ReadMode::Mmap).open(directory())) else { return };
    say(&format!("O {} {}", store.revision(), store.compacted_revision()));
    let mut single = Single::new();
    while single.number <= number("COMMITS", 20) && single.step(&store) {}
    say("READY");
    wait_for_parent();
    while single.number <= 2_000 && single.step(&store) {}
    let mut refused = 0;
    let mut again = |single: &mut Single| {
        for _ in 0..5 {
            refused += u64::from(!single.step(&store));
        }
        refused
    };
    again(&mut single);
    say(&format!("READ {}", single.read(&store)));
    say("FAILED");
    wait_for_parent();
    let refused = again(&mut single);
    say(&format!("REFUSED {refused}"));
    say(&format!("READ {}", single.read(&store)));
    if noted("close", store.close()).is_some() {
        say("END");
    }
}

/// Everything a store does, once: whatever fails, it goes on with the next thing.
pub fn sweep() {
    let directory = directory();
    let (read_mode, mut single) = (ReadMode::Mmap, Single::new());
    say("BEGIN");
    let first = noted("open", alone(read_mode).open(&directory));
    if let Some(store) = first {
        say(&format!("O {} {}", store.revision(), store.compacted_revision()));
        many(&mut single, &store, 14);
        noted("reorganise", store.reorganise());
        many(&mut single, &store, 10);
        compact(&store);
        noted("reorganise", store.reorganise());
        single.read(&store);
        noted("checkpoint", store.checkpoint(beside(&directory)));
        many(&mut single, &store, 6);
        noted("close", store.close());
    }
    (single.failed, single.session) = (false, single.session + 1);
    single.number = 1;
    if let Some(store) = noted("open", alone(ReadMode::Pread).open(&directory)) {
        single.read(&store);
        many(&mut single, &store, 4);
        noted("flush", store.flush());
        single.read(&store);
        // Not closed: as if it were killed.
        std::mem::forget(store);
    }
    if let Some(store) = noted("open", Store::open_read_only_with(&directory, &alone(read_mode))) {
        single.read(&store);
    }
    say("END");
}

/// Where a checkpoint goes.
pub fn beside(directory: &Path) -> std::path::PathBuf {
    directory.with_extension("copy")
}

fn many(single: &mut Single, store: &Store, count: u32) {
    for _ in 0..count {
        single.step(store);
    }
}

fn compact(store: &Store) {
    let at = store.revision().saturating_sub(5);
    if noted("compact", store.compact(at)).is_some() {
        say(&format!("C {at}"));
    }
}
