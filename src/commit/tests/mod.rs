//! The chain alone, in a small world: a log in memory, generations kept for inspection.
//!
//! The same world serves the plain tests, the loom models and the shuttle schedules. Its locks are
//! invisible to the model checkers, so nothing of the chain may be touched under one of them.

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod directed;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod limits;
#[cfg(feature = "loom")]
mod loom;
#[cfg(feature = "loom")]
mod loom_directed;
#[cfg(feature = "loom")]
mod loom_durable;
#[cfg(feature = "loom")]
mod loom_visible;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod model;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod reclaim;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod resolve;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod room;
#[cfg(all(feature = "shuttle", not(feature = "loom")))]
mod shuttle;
#[cfg(all(unix, not(any(feature = "loom", feature = "shuttle"))))]
mod speed;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod stress;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod sync;

use std::collections::BTreeMap;

use annals_format::StoreId;
use annals_format::frame::{Binding, Frame, Op};
use annals_format::space;
use bytes::Bytes;

use super::plan::Footprint;
use super::{Below, Chain, InternalKey, Log, OrderError, Plan, Point, World, Write, WriteKind};
use crate::commit::chain::Snapshot;
use crate::commit::plan::Ordered;
use crate::error::{Error, Result};
use crate::index::{Generation, GenerationSize, KeyNode, Lookup, Newest, Position, Stub, Version};
use crate::sync::plain::{AtomicI64, AtomicU64, Mutex, Ordering, lock};
use crate::sync::{Arc, epoch};
use crate::wal::BatchInfo;

pub(super) const STORE: StoreId = StoreId([7; 16]);
pub(super) const START: Position = Position { seq: 0, revision: 1, time: 0 };

/// A store's surroundings, for tests.
#[derive(Debug, Default)]
pub(super) struct Small {
    size: Mutex<Option<GenerationSize>>,
    /// All generations, oldest first.
    pub(super) generations: Mutex<Vec<Arc<Generation>>>,
    /// What the files hold: the newest version of some keys.
    pub(super) files: Mutex<BTreeMap<Vec<u8>, Stub>>,
    /// How many were made, used or not.
    pub(super) made: AtomicU64,
    /// How many there may be; `None` any number.
    pub(super) generations_max: Mutex<Option<usize>>,
    pub(super) clock: AtomicI64,
    /// How often a background thread was asked for.
    pub(super) requests: AtomicU64,
    /// How often background work was asked for.
    pub(super) works: AtomicU64,
    /// Whether there is one.
    pub(super) background: Mutex<Option<crate::sync::Thread>>,
    /// How often who sleeps was told that more is visible.
    pub(super) told: AtomicU64,
    /// Who sleeps.
    pub(super) sleeper: Mutex<Option<crate::sync::Thread>>,
}

impl World for Small {
    fn now_micros(&self) -> i64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn new_generation(&self, id: u64, least: GenerationSize) -> Arc<Generation> {
        self.made.fetch_add(1, Ordering::Relaxed);
        let usual = lock(&self.size).unwrap_or(least);
        Generation::new(id, usual.max(least))
    }

    fn has_room(&self) -> bool {
        let max = *lock(&self.generations_max);
        max.is_none_or(|max| lock(&self.generations).len() < max)
    }

    fn switched(&self, current: &Arc<Generation>) {
        let mut generations = lock(&self.generations);
        if generations.iter().all(|known| known.id() != current.id()) {
            generations.push(Arc::clone(current));
        }
    }

    fn request_work(&self) {
        self.works.fetch_add(1, Ordering::Relaxed);
    }

    fn visible_moved(&self) {
        self.told.fetch_add(1, Ordering::Relaxed);
        let sleeper = lock(&self.sleeper).clone();
        if let Some(thread) = sleeper {
            thread.unpark();
        }
    }

    fn request_lead(&self) -> bool {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let background = lock(&self.background).clone();
        background.map(|thread| thread.unpark()).is_some()
    }
}

impl Below for Small {
    fn newest(&self, key: &[u8], generation: u64) -> Result<Option<Stub>> {
        let generations = lock(&self.generations).clone();
        for older in generations.iter().rev().filter(|older| older.id() < generation) {
            match older.find(key).map_or(Newest::Unknown, KeyNode::newest) {
                Newest::Known(stub) => return Ok(Some(stub)),
                Newest::Absent => return Ok(None),
                Newest::Unknown => {}
            }
        }
        Ok(lock(&self.files).get(key).copied())
    }
}

/// A batch as it was logged.
type Batch = (BatchInfo, Vec<Vec<u8>>);

/// A log in memory that may fail.
#[derive(Clone, Debug, Default)]
pub(super) struct VectorLog {
    pub(super) batches: Arc<Mutex<Vec<Batch>>>,
    /// Appends left before one fails; `None` never fails.
    pub(super) fail_after: Arc<Mutex<Option<usize>>>,
    /// How long an append takes, microseconds.
    pub(super) delay: Arc<AtomicU64>,
}

impl Log for VectorLog {
    fn append(&mut self, frames: &mut dyn Iterator<Item = &[u8]>, batch: BatchInfo) -> Result<()> {
        match &mut *lock(&self.fail_after) {
            Some(0) => return Err(Error::invalid("the disk is gone")),
            Some(left) => *left -= 1,
            None => {}
        }
        let delay = self.delay.load(Ordering::Relaxed);
        if delay > 0 {
            std::thread::sleep(std::time::Duration::from_micros(delay));
        }
        let frames = frames.map(<[u8]>::to_vec).collect();
        lock(&self.batches).push((batch, frames));
        Ok(())
    }
}

/// A chain with its world and its log.
#[derive(Clone, Debug)]
pub(super) struct Fixture {
    pub(super) chain: Arc<Chain>,
    pub(super) world: Arc<Small>,
    pub(super) log: VectorLog,
}

/// A version as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) at: u64,
    pub(super) create_revision: u64,
    pub(super) version: u64,
    pub(super) value: Vec<u8>,
}

pub(super) fn internal(key: impl AsRef<[u8]>) -> InternalKey {
    InternalKey::from_slice(&user(key))
}

pub(super) fn user(key: impl AsRef<[u8]>) -> Bytes {
    space::Key::User(key.as_ref()).encode().into()
}

pub(super) fn put(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Write<'static> {
    let value = value.as_ref().to_vec().into();
    Write { key: internal(key), kind: WriteKind::Put { value, lease: 0 } }
}

pub(super) fn delete(key: impl AsRef<[u8]>) -> Write<'static> {
    Write { key: internal(key), kind: WriteKind::Delete }
}

pub(super) fn plan(writes: impl Into<Vec<Write<'static>>>) -> Plan<'static> {
    Plan { writes: writes.into().into(), ..Plan::default() }
}

/// A plan that also requires some keys to stand at some revisions.
pub(super) fn cas(writes: impl Into<Vec<Write<'static>>>, points: &[(&str, u64)]) -> Plan<'static> {
    let points = points.iter().map(|(key, seen)| Point::at(user(key), *seen)).collect();
    Plan { reads: Footprint { points, ..Footprint::default() }, ..plan(writes) }
}

impl Fixture {
    /// A store with generations of this size, a log, and no background thread.
    pub(super) fn new(size: GenerationSize) -> Self {
        let fixture = Self::without_log(size, START);
        fixture.chain.open_log(Box::new(fixture.log.clone()));
        fixture
    }

    pub(super) fn without_log(size: GenerationSize, start: Position) -> Self {
        let world = Arc::new(Small::default());
        *lock(&world.size) = Some(size);
        let first = Generation::new(1, size);
        lock(&world.generations).push(Arc::clone(&first));
        let host: Arc<dyn World> = world.clone();
        let chain = Arc::new(Chain::new(&STORE, start, 0, first, host));
        Self { chain, world, log: VectorLog::default() }
    }

    pub(super) fn small() -> Self {
        Self::new(GenerationSize { arena_bytes: 1 << 16, keys: 100 })
    }

    /// One attempt, from a fresh snapshot.
    pub(super) fn try_order(&self, plan: &Plan<'_>) -> Result<Ordered, OrderError> {
        let guard = epoch::pin();
        let snapshot = self.chain.begin(&guard);
        self.chain.order(&snapshot, plan, &*self.world)
    }

    /// Orders what cannot conflict.
    pub(super) fn order(&self, plan: &Plan<'_>) -> Ordered {
        self.try_order(plan).expect("nothing to conflict with")
    }

    /// Evaluates and orders until it gets a place, or the evaluation gives up. Answers the outcome
    /// and how often it conflicted.
    pub(super) fn transact(
        &self,
        mut evaluate: impl FnMut(&Self, &Snapshot<'_>) -> Option<Plan<'static>>,
    ) -> (Option<Ordered>, usize) {
        for conflicts in 0.. {
            let guard = epoch::pin();
            let snapshot = self.chain.begin(&guard);
            let Some(plan) = evaluate(self, &snapshot) else { return (None, conflicts) };
            match self.chain.order(&snapshot, &plan, &*self.world) {
                Ok(ordered) => return (Some(ordered), conflicts),
                Err(OrderError::Conflict) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        unreachable!()
    }

    /// What a reader pinned at `revision` sees of a user key.
    pub(super) fn read(&self, key: impl AsRef<[u8]>, revision: u64) -> Option<Seen> {
        self.read_internal(&user(key), revision)
    }

    pub(super) fn read_internal(&self, key: &[u8], at: u64) -> Option<Seen> {
        let generations = lock(&self.world.generations).clone();
        for generation in generations.iter().rev() {
            let Some(node) = generation.find(key) else { continue };
            match node.at(at) {
                Lookup::Found(version) if version.is_tombstone() => return None,
                Lookup::Found(version) => return Some(seen(version)),
                Lookup::Absent => return None,
                Lookup::Below => {}
            }
        }
        None
    }

    /// What a plan must list for a key: the revision of its newest version as of `revision`.
    pub(super) fn seen(&self, key: impl AsRef<[u8]>, revision: u64) -> u64 {
        self.newest(key, revision, u64::MAX).map_or(0, |stub| stub.revision)
    }

    /// A put of a key that depends on the version of it that a snapshot shows, which the plan names
    /// whole, as an evaluation in the engine does.
    pub(super) fn replacing(&self, snapshot: &Snapshot<'_>, key: &str) -> Plan<'static> {
        // Others may be known here, but not to the snapshot: for loom these are not there yet.
        let generation = snapshot.generation();
        let newest = self.newest(key, snapshot.position().revision, generation);
        let mut plan = plan([put(key, "new")]);
        plan.reads.points.push(Point::new(internal(key), newest));
        plan
    }

    /// The newest version of a key as of `revision`, in the generations up to this one.
    pub(super) fn newest(
        &self,
        key: impl AsRef<[u8]>,
        revision: u64,
        generation: u64,
    ) -> Option<Stub> {
        let key = user(key);
        let generations = lock(&self.world.generations).clone();
        for generation in generations.iter().rev().filter(|older| older.id() <= generation) {
            match generation.find(&key).map_or(Newest::Unknown, |node| node.newest_at(revision)) {
                Newest::Known(stub) => return Some(stub),
                Newest::Absent => return None,
                Newest::Unknown => {}
            }
        }
        lock(&self.world.files).get(&key[..]).copied()
    }

    /// All frames of all generations, in order, as encoded.
    pub(super) fn frames(&self) -> Vec<Vec<u8>> {
        let upto = self.chain.applied().seq;
        let mut frames = Vec::new();
        for generation in lock(&self.world.generations).clone() {
            let mut cursor = generation.frames();
            while let Some(frame) = cursor.next(upto) {
                frames.push(frame.bytes().to_vec());
            }
        }
        frames
    }

    /// Checks every invariant of DESIGN section 4 that holds at rest, and answers the revisions
    /// each key was written at, oldest first.
    pub(super) fn verify(&self) -> BTreeMap<Vec<u8>, Vec<u64>> {
        let binding = Binding::new(&STORE);
        let frames = self.frames();
        let mut keys: BTreeMap<Vec<u8>, Vec<Seen>> = BTreeMap::new();
        let mut last = START;
        for bytes in &frames {
            let (frame, length) = Frame::decode(bytes, &binding).expect("a whole frame");
            assert_eq!(length, bytes.len());
            assert_eq!(frame.seq, last.seq + 1, "the log is dense");
            let step = u64::from(frame.takes_revision());
            assert_eq!(frame.revision, last.revision + step, "revisions are dense");
            assert!(frame.time >= last.time, "time does not go back");
            last = Position { seq: frame.seq, revision: frame.revision, time: frame.time };
            for op in frame.ops() {
                let (key, value) = match op.op {
                    Op::Put { key, value, .. } => (key, Some(value)),
                    Op::Delete { key } => (key, None),
                    Op::Compact { .. } => continue,
                };
                let is_user = space::is_user(key);
                let at = if is_user { frame.revision } else { frame.seq };
                let history = keys.entry(key.to_vec()).or_default();
                let file = lock(&self.world.files).get(key).copied();
                let (create, version) = match (value, history.last()) {
                    (None, _) => (0, 0),
                    (Some(_), _) if !is_user => (0, 0),
                    (Some(_), Some(old)) if old.version > 0 => {
                        (old.create_revision, old.version + 1)
                    }
                    (Some(_), None) => match file.filter(|stub| !stub.tombstone) {
                        Some(stub) => (stub.create_revision, stub.version + 1),
                        None => (at, 1),
                    },
                    (Some(_), Some(_)) => (at, 1),
                };
                assert_eq!((op.create_revision, op.version), (create, version), "of {key:?}");
                let value = value.unwrap_or_default().to_vec();
                history.push(Seen { at, create_revision: create, version, value });
            }
        }
        assert_eq!(last, self.chain.applied(), "everything linked is applied");
        assert!(self.chain.durable() <= self.chain.applied());
        self.verify_chains(&keys);
        self.verify_log(&frames);
        let revisions = |(key, history): (Vec<u8>, Vec<Seen>)| {
            (key, history.iter().map(|version| version.at).collect())
        };
        keys.into_iter().map(revisions).collect()
    }

    /// The chains of all generations together are what the frames say, strictly descending.
    fn verify_chains(&self, keys: &BTreeMap<Vec<u8>, Vec<Seen>>) {
        let generations = lock(&self.world.generations).clone();
        for (key, history) in keys {
            let mut chained = Vec::new();
            for generation in generations.iter().rev() {
                if let Some(node) = generation.find(key) {
                    chained.extend(node.versions().map(seen));
                }
            }
            assert!(chained.windows(2).all(|pair| pair[0].at > pair[1].at), "descending");
            chained.reverse();
            assert_eq!(&chained, history, "of {key:?}");
        }
        for generation in &generations {
            let mut cursor = generation.cursor();
            let mut ordered = Vec::new();
            cursor.seek_first();
            while let Some(node) = cursor.node() {
                assert!(std::ptr::eq(generation.find(node.key()).expect("in the table"), node));
                ordered.push(node.key().to_vec());
                cursor.next();
            }
            assert!(ordered.windows(2).all(|pair| pair[0] < pair[1]), "distinct and in order");
            assert_eq!(ordered.len(), generation.key_count());
        }
    }

    /// The log holds what the chain holds, in the same order, up to `durable`.
    fn verify_log(&self, frames: &[Vec<u8>]) {
        let mut upto = 0;
        for (batch, logged) in lock(&self.log.batches).iter() {
            assert_eq!((batch.first_seq, batch.durable_upto), (upto + 1, upto));
            assert_eq!(batch.last_seq, upto + logged.len() as u64);
            let from = usize::try_from(upto).expect("small");
            assert_eq!(logged, &frames[from..from + logged.len()]);
            upto = batch.last_seq;
        }
        assert_eq!(self.chain.durable().seq, upto, "what is durable is what was logged");
    }
}

pub(super) fn seen(version: &Version) -> Seen {
    Seen {
        at: version.at(),
        create_revision: version.create_revision(),
        version: version.version(),
        value: version.value().to_vec(),
    }
}

/// A small generator, so that a failure can be repeated from its seed.
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn one_of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[usize::try_from(self.below(items.len() as u64)).expect("an index")]
    }
}

pub(super) fn is_conflict(result: Result<Ordered, OrderError>) -> bool {
    result.is_err_and(|error| matches!(error, OrderError::Conflict))
}
