//! A small engine in memory, with the engine's calls: it lets the rules of this room be tested
//! alone, and is the simplest statement of what the engine must do.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Bound;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::error::{ErrorKind, Result};
use crate::options::{Durability, Options};

#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    pub(crate) create_revision: u64,
    pub(crate) mod_revision: u64,
    #[allow(dead_code, reason = "as the engine's")]
    pub(crate) sub: u32,
    pub(crate) version: u64,
    pub(crate) lease: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct HistoryRecord {
    pub(crate) record: Record,
    pub(crate) tombstone: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    pub(crate) seq: u64,
    pub(crate) revision: u64,
    pub(crate) time: i64,
}

#[derive(Clone, Debug)]
pub(crate) enum WriteKind {
    Put { value: Bytes, lease: i64 },
    Delete,
}

#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) key: Bytes,
    pub(crate) kind: WriteKind,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint {
    pub(crate) points: Vec<(Bytes, u64)>,
    pub(crate) ranges: Vec<(Bytes, Bytes)>,
    pub(crate) exact: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) writes: Vec<Write>,
    pub(crate) compact: Option<u64>,
    pub(crate) reads: Footprint,
    pub(crate) time: Option<i64>,
    pub(crate) metadata: Bytes,
    pub(crate) buffered: bool,
}

pub(crate) enum Step {
    Read,
    Write(Plan),
}

#[derive(Debug)]
pub(crate) struct Ticket {}

impl Ticket {
    pub(crate) fn wait(&self) -> Result<()> {
        Ok(())
    }
}

impl Future for Ticket {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(()))
    }
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) position: Position,
    pub(crate) changed: bool,
    pub(crate) durability: Durability,
    pub(crate) ticket: Ticket,
}

impl Outcome {
    pub(crate) fn wait(&self) -> Result<()> {
        self.ticket.wait()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Engine {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    keys: BTreeMap<Bytes, Vec<HistoryRecord>>,
    log: Vec<Transaction>,
    position: Position,
    compacted: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    pub(crate) revision: u64,
    pub(crate) time: i64,
    pub(crate) metadata: Bytes,
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) key: Bytes,
    pub(crate) delete: bool,
    pub(crate) sub: u32,
    pub(crate) create_revision: u64,
    pub(crate) version: u64,
    pub(crate) lease: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) key: Bytes,
    pub(crate) old: Option<Record>,
    pub(crate) new: Option<Record>,
}

#[derive(Clone, Debug)]
pub(crate) struct View {
    engine: Engine,
    position: Position,
    compacted: u64,
}

pub(crate) type Snapshot = View;

impl Engine {
    pub(crate) fn open(_: &Path, _: &Options) -> Result<Self> {
        let engine = Self::default();
        engine.lock().position.revision = 1;
        Ok(engine)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn latest(&self) -> Result<View> {
        let state = self.lock();
        Ok(View { engine: self.clone(), position: state.position, compacted: state.compacted })
    }

    pub(crate) fn view(&self, revision: u64) -> Result<View> {
        let mut view = self.latest()?;
        if revision > view.position.revision {
            let current = view.position.revision;
            return Err(ErrorKind::FutureRevision { requested: revision, current }.into());
        }
        if revision < view.compacted {
            let compacted = view.compacted;
            return Err(ErrorKind::Compacted { requested: revision, compacted }.into());
        }
        view.position.revision = revision;
        Ok(view)
    }

    pub(crate) fn transact(
        &self,
        _: Option<Durability>,
        evaluate: &mut dyn FnMut(&Snapshot) -> Result<Step>,
    ) -> Result<Outcome> {
        let snapshot = self.latest()?;
        match evaluate(&snapshot)? {
            Step::Read => {
                let (position, changed) = (snapshot.position, false);
                Ok(Outcome { position, changed, durability: Durability::Sync, ticket: Ticket {} })
            }
            Step::Write(plan) => self.order(plan),
        }
    }

    fn order(&self, plan: Plan) -> Result<Outcome> {
        let mut state = self.lock();
        let state = &mut *state;
        let user = plan.writes.iter().any(|write| write.key.first() == Some(&1));
        let mut at = state.position;
        at.seq += 1;
        at.time = plan.time.unwrap_or_default().max(at.time);
        at.revision += u64::from(user);
        if let Some(requested) = plan.compact {
            if requested > at.revision {
                return Err(ErrorKind::FutureRevision { requested, current: at.revision }.into());
            }
            if requested <= state.compacted {
                let compacted = state.compacted;
                return Err(ErrorKind::Compacted { requested, compacted }.into());
            }
            state.compacted = requested;
        }
        let mut events = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for (sub, write) in plan.writes.into_iter().enumerate() {
            assert!(seen.insert(write.key.clone()), "one version per key per transaction");
            let system = write.key.first() == Some(&0);
            let mod_revision = if system { at.seq } else { at.revision };
            let versions = state.keys.entry(write.key.clone()).or_default();
            let old = versions.last().filter(|old| !old.tombstone).map(|old| old.record.clone());
            let mut record = Record { key: write.key, mod_revision, ..Record::default() };
            record.sub = u32::try_from(sub).unwrap_or(u32::MAX);
            let tombstone = match write.kind {
                WriteKind::Delete => {
                    assert!(old.is_some(), "a delete of an absent key");
                    true
                }
                WriteKind::Put { value, lease } => {
                    record.value = value;
                    record.lease = lease;
                    record.create_revision =
                        old.as_ref().map_or(mod_revision, |o| o.create_revision);
                    record.version = old.as_ref().map_or(1, |old| old.version + 1);
                    false
                }
            };
            versions.push(HistoryRecord { record, tombstone });
            if !system {
                events.extend(versions.last().map(|version| Event {
                    key: version.record.key.clone(),
                    delete: version.tombstone,
                    sub: version.record.sub,
                    create_revision: version.record.create_revision,
                    version: version.record.version,
                    lease: version.record.lease,
                }));
            }
        }
        state.position = at;
        if user {
            let Position { revision, time, .. } = at;
            state.log.push(Transaction { revision, time, metadata: plan.metadata, events });
        }
        Ok(Outcome { position: at, changed: true, durability: Durability::Sync, ticket: Ticket {} })
    }

    pub(crate) fn log(&self) -> Vec<Transaction> {
        self.lock().log.clone()
    }

    pub(crate) fn diff(
        &self,
        from: u64,
        to: u64,
        start: &[u8],
        end: &[u8],
    ) -> Result<Vec<Difference>> {
        let (old, new) = (self.view(from)?, self.view(to)?);
        let mut differences: BTreeMap<Bytes, Difference> = BTreeMap::new();
        for record in new.scan(start, end, false) {
            let record = record?;
            let key = record.key.clone();
            let difference = Difference { key: key.clone(), old: None, new: Some(record) };
            differences.insert(key, difference);
        }
        for record in old.scan(start, end, false) {
            let record = record?;
            let key = record.key.clone();
            let none = Difference { key: key.clone(), old: None, new: None };
            differences.entry(key).or_insert(none).old = Some(record);
        }
        let changed = |difference: &Difference| {
            let revision = |record: &Option<Record>| record.as_ref().map(|r| r.mod_revision);
            revision(&difference.old) != revision(&difference.new)
        };
        Ok(differences.into_values().filter(changed).collect())
    }

    pub(crate) fn revision_at_time(&self, requested: i64) -> Result<u64> {
        let state = self.lock();
        let last = state.log.iter().rev().find(|transaction| transaction.time <= requested);
        let oldest = state.log.first().map(|transaction| transaction.time);
        last.map(|transaction| transaction.revision)
            .ok_or_else(|| ErrorKind::NoRevisionAtTime { requested, oldest }.into())
    }

    pub(crate) fn revision(&self) -> u64 {
        self.lock().position.revision
    }

    pub(crate) fn durable_revision(&self) -> u64 {
        self.lock().position.revision
    }

    pub(crate) fn compacted(&self) -> u64 {
        self.lock().compacted
    }

    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "as the engine's")]
    pub(crate) fn flush(&self) -> Result<()> {
        Ok(())
    }

    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "as the engine's")]
    pub(crate) fn run_background(&self) -> Result<bool> {
        Ok(false)
    }

    #[allow(clippy::unnecessary_wraps, reason = "as the engine's")]
    pub(crate) fn close(self) -> Result<()> {
        Ok(())
    }
}

impl View {
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        let state = self.engine.lock();
        Ok(state.keys.get(key).and_then(|versions| self.pick(versions)))
    }

    pub(crate) fn seen(&self, key: &[u8]) -> Result<u64> {
        let state = self.engine.lock();
        let last = state.keys.get(key).and_then(|versions| versions.last());
        Ok(last.map_or(0, |version| version.record.mod_revision))
    }

    pub(crate) fn scan(&self, start: &[u8], end: &[u8], keys_only: bool) -> Vec<Result<Record>> {
        let state = self.engine.lock();
        let space_end = [start.first().copied().unwrap_or_default() + 1];
        let end = if end.is_empty() { &space_end[..] } else { end };
        if end <= start {
            return Vec::new();
        }
        let range = (Bound::Included(start), Bound::Excluded(end));
        let found = state.keys.range::<[u8], _>(range).filter_map(|(_, v)| self.pick(v));
        let bare = |mut record: Record| {
            if keys_only {
                record.value.clear();
            }
            Ok(record)
        };
        found.map(bare).collect()
    }

    fn pick(&self, versions: &[HistoryRecord]) -> Option<Record> {
        let system = versions.first()?.record.key.first() == Some(&0);
        let at = if system { u64::MAX } else { self.position.revision };
        let version = versions.iter().rev().find(|version| version.record.mod_revision <= at)?;
        (!version.tombstone).then(|| version.record.clone())
    }

    pub(crate) fn history(&self, key: &[u8]) -> Vec<HistoryRecord> {
        let state = self.engine.lock();
        let versions = state.keys.get(key).cloned().unwrap_or_default();
        versions
            .into_iter()
            .filter(|v| v.record.mod_revision <= self.position.revision)
            .rev()
            .collect()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }
}
