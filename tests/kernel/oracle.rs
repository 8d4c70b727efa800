//! Outside of the process that dies: what the store must hold afterwards.
//!
//! It keeps the whole state as of the last revision it has checked, and after each session follows the
//! store's own log from there: every transaction must be one that the session can have done, decided
//! rightly on the state before it, and whole; each thread's in its order, without a gap; and all that were
//! acknowledged must be there, at the revision they were told. The state that the store shows must be
//! what comes of it. What is found is a text, so that the caller can add where it was.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use annals::{Change, ChangeKind, KeyValue, Options, ReadMode, Store, Transaction};
use bytes::Bytes;

use crate::process::Heard;
use crate::session::options;
use crate::support::random::Random;
use crate::work::{Plan, Token, digest};

type State = BTreeMap<Bytes, KeyValue>;
type Found<T = ()> = Result<T, String>;

/// What is known of one store.
#[derive(Debug)]
pub struct Oracle {
    pub directory: PathBuf,
    /// The state at `revision`, which has been checked.
    state: State,
    pub revision: u64,
    compacted: u64,
    /// The last transaction of each thread.
    last: BTreeMap<(u64, u64), u64>,
    /// What a watch must be told of a revision.
    digests: BTreeMap<u64, String>,
    /// The next revision that a watch is due to tell.
    pub watch_from: u64,
    /// Leases that nobody has tried to revoke.
    leases: BTreeSet<i64>,
    revoked: BTreeSet<i64>,
    pub transactions: u64,
    pub acknowledged: u64,
    pub told: u64,
    pub torn: u64,
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Found {
    if holds { Ok(()) } else { Err(what()) }
}

fn good<T>(what: &str, result: annals::Result<T>) -> Found<T> {
    result.map_err(|error| format!("{what}: {error}"))
}

impl Oracle {
    /// For a directory without a store.
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            state: State::new(),
            revision: 1,
            compacted: 0,
            last: BTreeMap::new(),
            digests: BTreeMap::new(),
            watch_from: 2,
            leases: BTreeSet::new(),
            revoked: BTreeSet::new(),
            transactions: 0,
            acknowledged: 0,
            told: 0,
            torn: 0,
        }
    }

    fn options(seed: u64) -> Options {
        options(if seed.is_multiple_of(2) { ReadMode::Mmap } else { ReadMode::Pread })
    }

    /// Checks every byte of the directory, then what the store says against what a session was told. The
    /// store is opened for reading only, or, for some seeds, for writing.
    pub fn verify(&mut self, heard: &Heard, seed: u64) -> Found {
        ensure(heard.late.is_empty(), || {
            format!("acknowledged after a commit had failed: {:?}", heard.late)
        })?;
        let options = Self::options(seed);
        let nothing = heard.opened.is_none() && self.revision == 1;
        if nothing && heard.acknowledged.is_empty() && !self.directory.join("CURRENT").exists() {
            return Ok(());
        }
        let report = good("check", annals::check(&self.directory, &options, &mut |_, _| ()))?;
        ensure(report.damage.is_empty() && report.unchecked.is_empty(), || {
            format!("check: {:?} {:?}", report.damage, report.unchecked)
        })?;
        self.torn += u64::from(report.torn.is_some());
        let write = seed % 3 == 1;
        let store = if write {
            // Time passes for no lease here.
            options.lease_expiry(false).background(false).open(&self.directory)
        } else {
            Store::open_read_only_with(&self.directory, &options)
        };
        let store = good("open", store)?;
        self.compare(heard, &store, seed)?;
        if write {
            good("close", store.close())?;
        } else {
            drop(store);
        }
        crate::sys::let_go();
        Ok(())
    }

    /// What the store says against what a session was told.
    pub fn compare(&mut self, heard: &Heard, store: &Store, seed: u64) -> Found {
        let (newest, compacted) = (store.revision(), store.compacted_revision());
        ensure(compacted >= self.compacted.max(heard.compacted), || {
            format!("compacted to {compacted}, had been to {} {}", self.compacted, heard.compacted)
        })?;
        self.compacted = compacted;
        if compacted <= self.revision {
            let view = good("the state checked before", store.at(self.revision.max(1)))?;
            same(&view_of(&view)?, &self.state, self.revision)?;
        } else {
            self.pass_over(heard, store, compacted)?;
        }
        let first = self.revision + 1;
        let mut random = Random::new(seed);
        let sample = if newest >= first { random.between(first, newest + 1) } else { 0 };
        let mut tokens = BTreeMap::new();
        if newest >= first {
            for transaction in store.log(first..).with_values() {
                let transaction = good("log", transaction)?;
                let revision = transaction.revision;
                ensure(revision == self.revision + 1, || {
                    format!("revision {revision} follows {}", self.revision)
                })?;
                let token = self.apply(&transaction);
                let token = token.map_err(|wrong| format!("revision {revision}: {wrong}"))?;
                if let Some(token) = token {
                    tokens.insert(revision, token);
                }
                if revision == sample {
                    same(&view_of(&good("view", store.at(sample))?)?, &self.state, sample)?;
                }
            }
        }
        ensure(self.revision == newest, || {
            format!("the log ends at {}, not {newest}", self.revision)
        })?;
        same(&view_of(&good("view", store.latest())?)?, &self.state, newest)?;
        for (revision, token) in &heard.acknowledged {
            ensure(*revision < first || tokens.get(revision) == Some(token), || {
                let there = tokens.get(revision);
                format!("{token} was acknowledged at {revision}, where {there:?} is, of {newest}")
            })?;
            self.acknowledged += 1;
        }
        self.check_told(heard)?;
        self.check_leases(heard, store)
    }

    /// The store was compacted to beyond what has been checked: the state there is taken as it is, if it has
    /// everything that was acknowledged before.
    fn pass_over(&mut self, heard: &Heard, store: &Store, compacted: u64) -> Found {
        let state = view_of(&good("the oldest view", store.at(compacted))?)?;
        for (revision, token) in &heard.acknowledged {
            if *revision > compacted {
                // It is looked for in the log.
                continue;
            }
            let last = self.last.entry((token.session, token.thread)).or_default();
            *last = token.number.max(*last);
            let Plan::Puts(keys) = token.plan() else { continue };
            for key in keys {
                // Only prefixes of `m/1` are ever deleted.
                let found = state.get(key.as_bytes());
                let there = found.is_some_and(|kv| {
                    kv.mod_revision > *revision
                        || kv.mod_revision == *revision && kv.value == token.value(&key)
                });
                ensure(there || found.is_none() && key.starts_with("m/1"), || {
                    format!("{key} of {token} at {revision} is not at {compacted}: {found:?}")
                })?;
            }
        }
        for kv in state.values() {
            ensure(kv.mod_revision <= compacted, || format!("{kv:?} at {compacted}"))?;
        }
        (self.state, self.revision) = (state, compacted);
        Ok(())
    }

    /// Takes one transaction of the log into the state, if it is one that can have been done there.
    fn apply(&mut self, transaction: &Transaction) -> Found<Option<Token>> {
        let changes = &transaction.changes;
        let text = String::from_utf8_lossy(&transaction.metadata);
        let mut words = text.split(' ');
        let token = words.next().and_then(Token::parse);
        if let Some(token) = token {
            let thread = (token.session, token.thread);
            let expected = self.last.get(&thread).map_or(1, |last| last + 1);
            ensure(token.number == expected, || {
                format!("{token} follows number {} of its thread", expected - 1)
            })?;
            self.last.insert(thread, token.number);
            let read = words.next().and_then(|word| word.parse::<u64>().ok());
            self.check_plan(token, read, changes)?;
        } else {
            self.check_end_of_lease(changes)?;
        }
        let empty = Bytes::new();
        let events = changes.iter();
        let events = events
            .map(|c| (c.kind == ChangeKind::Put, &*c.key, &**c.value.as_ref().unwrap_or(&empty)));
        self.digests.insert(transaction.revision, digest(events));
        for change in changes {
            let before = self.state.get(&change.key);
            let Some(value) = &change.value else {
                ensure(before.is_some(), || format!("{:?} was not there", change.key))?;
                self.state.remove(&change.key);
                continue;
            };
            let after = KeyValue {
                key: copy(&change.key),
                value: copy(value),
                create_revision: before.map_or(transaction.revision, |kv| kv.create_revision),
                mod_revision: transaction.revision,
                version: before.map_or(0, |kv| kv.version) + 1,
                lease: change.lease,
            };
            let said = (change.create_revision, change.version);
            ensure(said == (after.create_revision, after.version), || format!("{change:?}"))?;
            self.state.insert(after.key.clone(), after);
        }
        self.revision = transaction.revision;
        self.transactions += 1;
        Ok(Some(token).flatten())
    }

    fn check_plan(&self, token: Token, read: Option<u64>, changes: &[Change]) -> Found {
        let mut expected = BTreeMap::new();
        let mut lease = 0;
        let mark = token.mark();
        match token.plan() {
            Plan::Puts(keys) => expected.extend(keys.into_iter().map(|key| (key, true))),
            Plan::Swap(key) => {
                let before = self.state.get(key.as_bytes()).map_or(0, |kv| kv.mod_revision);
                let read = read.ok_or("it does not say what it compared")?;
                expected.insert(if read == before { key } else { mark }, true);
            }
            Plan::Delete(prefix) => {
                expected.insert(mark, true);
                let keys = self.state.keys().filter(|key| key.starts_with(prefix.as_bytes()));
                expected.extend(keys.map(|key| (String::from_utf8_lossy(key).into_owned(), false)));
            }
            Plan::Leased { short: true, .. } if changes.first().is_some_and(|c| c.key == mark) => {
                expected.insert(mark, true);
            }
            Plan::Leased { key, .. } => {
                lease = token.lease();
                expected.insert(key, true);
            }
        }
        let found: BTreeMap<String, bool> = changes
            .iter()
            .map(|c| (String::from_utf8_lossy(&c.key).into_owned(), c.kind == ChangeKind::Put))
            .collect();
        ensure(found == expected, || format!("{token} did {found:?}, not {expected:?}"))?;
        for change in changes.iter().filter(|change| change.kind == ChangeKind::Put) {
            let value = token.value(&String::from_utf8_lossy(&change.key));
            ensure(change.value.as_deref() == Some(&value) && change.lease == lease, || {
                format!("{token}: {:?} has another value", change.key)
            })?;
        }
        Ok(())
    }

    /// All keys of one lease, and nothing else.
    fn check_end_of_lease(&self, changes: &[Change]) -> Found {
        let of = changes.first().and_then(|change| self.state.get(&change.key));
        let lease = of.map_or(0, |kv| kv.lease);
        let keys = self.state.values().filter(|kv| kv.lease == lease).map(|kv| &kv.key);
        let deleted = changes.iter().filter(|change| change.kind == ChangeKind::Delete);
        let whole = keys.collect::<BTreeSet<_>>() == deleted.map(|change| &change.key).collect();
        ensure(lease != 0 && whole, || format!("nobody did this, lease {lease}: {changes:?}"))
    }

    /// Every revision was told once, in order, as it is in the log.
    fn check_told(&mut self, heard: &Heard) -> Found {
        for (revision, told) in &heard.told {
            let Some(told) = told else {
                ensure(*revision >= self.watch_from, || format!("begun anew at {revision}"))?;
                self.watch_from = *revision;
                continue;
            };
            ensure(*revision == self.watch_from, || {
                format!("{revision} was told where {} was due", self.watch_from)
            })?;
            ensure(*revision <= self.revision, || {
                format!("{revision} was told, and is gone: the newest is {}", self.revision)
            })?;
            if let Some(expected) = self.digests.get(revision) {
                ensure(told == expected, || {
                    format!("of {revision} was told {told}, not {expected}")
                })?;
            }
            self.watch_from += 1;
            self.told += 1;
        }
        Ok(())
    }

    fn check_leases(&mut self, heard: &Heard, store: &Store) -> Found {
        self.leases.extend(&heard.granted);
        self.leases.retain(|lease| !heard.revoking.contains(lease));
        self.revoked.extend(&heard.revoked);
        let found = good("leases", store.lease_list())?;
        let found: BTreeSet<i64> = found.iter().map(|lease| lease.id).collect();
        let (lost, back) =
            (self.leases.difference(&found).next(), self.revoked.intersection(&found).next());
        ensure(lost.is_none() && back.is_none(), || {
            format!("a lease was lost: {lost:?}, or is back: {back:?}")
        })
    }
}

/// What is kept must not keep a file mapped.
fn copy(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// Every key of a view, found by a scan.
fn view_of(view: &annals::View) -> Found<State> {
    let copied = |kv: KeyValue| {
        let (key, value) = (copy(&kv.key), copy(&kv.value));
        (key.clone(), KeyValue { key, value, ..kv })
    };
    let items = view.range(..).map(|item| item.map(copied));
    good("scan", items.collect())
}

fn same(found: &State, expected: &State, revision: u64) -> Found {
    if found == expected {
        return Ok(());
    }
    let keys = found.keys().chain(expected.keys());
    let wrong = keys.clone().find(|key| found.get(*key) != expected.get(*key));
    let of = |state: &State| {
        wrong.and_then(|key| state.get(key)).map(|kv| {
            let start = kv.value.slice(..kv.value.len().min(40));
            format!(
                "{start:?} of {} created {} version {}",
                kv.mod_revision, kv.create_revision, kv.version
            )
        })
    };
    Err(format!("at {revision} {wrong:?} is {:?}, not {:?}", of(found), of(expected)))
}
