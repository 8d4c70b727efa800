//! A door for the bench `rivals`: three ways to order the same transactions over the same memtable.
//!
//! Not for users. It exists with the feature `bench-internals` only (and in this crate's own tests),
//! and promises nothing. [`Chained`] is the chain as the store uses it. [`Memtable`] is what another
//! way of ordering needs: it makes a [`Draft`] of a transaction, which any number of threads do at
//! once, and orders a draft for whoever has the one [`Token`]; who gets the token, and when, is the
//! rival's own affair. Evaluation, look-up of keys, nodes, versions and frames are the same code for
//! all. Nothing is written to a log, but a background thread walks the frames as a writer would.
//!
//! A transaction here compares the `mod_revision` of each of its keys with what it is, and puts a
//! value to each. Old generations are dropped as they fill: what only they knew is forgotten.

mod exclusive;
mod mailbox;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::hint::black_box;
use std::time::Duration;

use annals_format::{StoreId, space};

use super::{Below, Chain, InternalKey, Log, OrderError, Plan, Point, World, Write, WriteKind};
use crate::error::Result;
use crate::index::{Generation, GenerationSize, KeyNode, Newest, Position, Stub};
use crate::sync::plain::{AtomicU64, Mutex, Ordering, lock};
use crate::sync::{Arc, epoch, sleep};
use crate::wal::BatchInfo;
pub use exclusive::{Draft, Memtable, NoDraft, Retired, Spare, Token, Verdict};
pub use mailbox::Mailbox;

/// How long a stalled transaction sleeps.
pub const STALL: Duration = Duration::from_millis(1);

const STORE: StoreId = StoreId([7; 16]);
const START: Position = Position { seq: 0, revision: 1, time: 0 };

/// A key, encoded once.
#[derive(Clone, Debug)]
pub struct Key(InternalKey);

impl Key {
    /// The key of this name.
    pub fn new(name: &str) -> Self {
        Self(InternalKey::from_slice(&space::Key::User(name.as_bytes()).encode()))
    }
}

/// What one thread works with. Its values live for `'r`.
#[derive(Debug)]
pub struct Worker<'r> {
    plan: Plan<'r>,
    tables: Tables,
}

/// The newest generation, and the one before.
#[derive(Clone, Debug)]
struct Tables {
    current: Arc<Generation>,
    before: Option<Arc<Generation>>,
}

/// Where threads learn of new tables: once per generation each.
#[derive(Debug)]
struct Recent {
    size: GenerationSize,
    tables: Mutex<Tables>,
    /// Number of the current generation.
    id: AtomicU64,
}

/// The chain, in a small world.
#[derive(Debug)]
pub struct Chained {
    chain: Chain,
    recent: Arc<Recent>,
}

impl Chained {
    /// An empty store with generations of this many bytes and distinct keys.
    pub fn new(arena_bytes: usize, keys: usize) -> Self {
        let recent = Recent::new(GenerationSize { arena_bytes, keys });
        let first = recent.tables().current;
        let chain = Chain::new(&STORE, START, 0, first, recent.clone());
        chain.open_log(Box::new(Nowhere));
        Self { chain, recent }
    }

    /// What a further thread needs.
    pub fn worker<'r>(&self) -> Worker<'r> {
        Worker { plan: Plan::default(), tables: self.recent.tables() }
    }

    /// Commits, and answers how often a conflict made it begin again. With `stall` it sleeps once,
    /// decided and not linked: what the others can run into there is the same until the link.
    ///
    /// # Panics
    /// When the transaction exceeds the format's limits.
    pub fn commit<'r>(
        &self,
        worker: &mut Worker<'r>,
        keys: &[&Key],
        value: &'r [u8],
        mut stall: bool,
    ) -> u64 {
        let mut quiet = self.chain.quiet();
        for conflicts in 0.. {
            let guard = epoch::pin();
            let snapshot = self.chain.begin(&guard);
            let generation = snapshot.node.generation();
            worker.refresh(generation.id(), &self.recent);
            let (Worker { plan, tables }, revision) = (&mut *worker, snapshot.position().revision);
            evaluate(plan, tables, (generation, revision), keys, value);
            // Who names no time asks the world for it, and this world sleeps before it answers.
            plan.time = (!std::mem::take(&mut stall)).then_some(1);
            let below = Older { tables, recent: &self.recent };
            match self.chain.order(&snapshot, plan, &below) {
                Ok(_) => return conflicts,
                Err(OrderError::Conflict) => quiet.conflict(),
                Err(error) => panic!("a transaction of the bench: {error:?}"),
            }
        }
        unreachable!("a u64 of conflicts")
    }

    /// Walks the frames that are not yet walked, as the writer of a log would.
    pub fn write_out(&self) {
        let _ = self.chain.lead_once();
    }

    /// The newest revision; a fresh store is at 1.
    pub fn revision(&self) -> u64 {
        self.chain.applied().revision
    }
}

impl Worker<'_> {
    /// Looks for new tables if `generation` is not the current one of those at hand.
    fn refresh(&mut self, generation: u64, recent: &Recent) {
        if self.tables.current.id() != generation {
            self.tables = recent.tables();
        }
    }
}

/// Fills in the plan of a transaction from a generation as of a revision, and from what lies below.
fn evaluate<'r>(
    plan: &mut Plan<'r>,
    tables: &Tables,
    (generation, revision): (&Generation, u64),
    keys: &[&Key],
    value: &'r [u8],
) {
    *plan = Plan::default();
    for Key(key) in keys {
        let newest = match newest_at(generation, key, revision) {
            Newest::Unknown => tables.newest_below(key, generation.id()),
            known => known,
        };
        let newest = stub(newest);
        let kind = WriteKind::Put { value: Cow::Borrowed(value), lease: 0 };
        // Not `clone`, which goes byte by byte.
        let key = || InternalKey::from_slice(key);
        plan.writes.push(Write { key: key(), kind });
        plan.reads.points.push(Point::new(key(), newest));
    }
}

fn newest_at(generation: &Generation, key: &[u8], revision: u64) -> Newest {
    generation.find(key).map_or(Newest::Unknown, |node: &KeyNode| node.newest_at(revision))
}

fn stub(newest: Newest) -> Option<Stub> {
    match newest {
        Newest::Known(stub) => Some(stub),
        Newest::Absent | Newest::Unknown => None,
    }
}

impl Tables {
    /// The newest version of a key below a generation; unknown if the tables are not those.
    fn newest_below(&self, key: &[u8], generation: u64) -> Newest {
        let below = match generation.checked_sub(self.current.id()) {
            Some(0) => self.before.as_ref(),
            Some(1) => Some(&self.current),
            _ => return Newest::Unknown,
        };
        let newest = below.and_then(|below| stub(newest_at(below, key, u64::MAX)));
        newest.map_or(Newest::Absent, Newest::Known)
    }
}

impl Recent {
    fn new(size: GenerationSize) -> Arc<Self> {
        let tables = Tables { current: Generation::new(1, size), before: None };
        Arc::new(Self { size, tables: Mutex::new(tables), id: AtomicU64::new(1) })
    }

    fn tables(&self) -> Tables {
        lock(&self.tables).clone()
    }

    /// Goes on to a new generation, unless it is known. Answers the tables of before, which the
    /// caller drops where that keeps nobody waiting.
    fn push(&self, current: &Arc<Generation>) -> Option<Tables> {
        let mut tables = lock(&self.tables);
        if tables.current.id() >= current.id() {
            return None;
        }
        let before = Some(tables.current.clone());
        let next = Tables { current: current.clone(), before };
        self.id.store(current.id(), Ordering::Release);
        Some(std::mem::replace(&mut *tables, next))
    }
}

impl World for Recent {
    fn now_micros(&self) -> i64 {
        sleep(STALL);
        1
    }

    fn new_generation(&self, id: u64, least: GenerationSize) -> Arc<Generation> {
        Generation::new(id, self.size.max(least))
    }

    fn has_room(&self) -> bool {
        true
    }

    fn switched(&self, current: &Arc<Generation>) {
        drop(self.push(current));
    }

    fn request_lead(&self) -> bool {
        false
    }

    fn request_work(&self) {}
}

/// The past of a key, from the tables at hand if they serve.
struct Older<'a> {
    tables: &'a Tables,
    recent: &'a Recent,
}

impl Below for Older<'_> {
    fn newest(&self, key: &[u8], generation: u64) -> Result<Option<Stub>> {
        Ok(stub(match self.tables.newest_below(key, generation) {
            Newest::Unknown => self.recent.tables().newest_below(key, generation),
            known => known,
        }))
    }
}

/// A log that looks at each frame and keeps nothing.
#[derive(Debug)]
struct Nowhere;

impl Log for Nowhere {
    fn append(&mut self, frames: &mut dyn Iterator<Item = &[u8]>, _: BatchInfo) -> Result<()> {
        for frame in frames {
            black_box(frame);
        }
        Ok(())
    }
}
