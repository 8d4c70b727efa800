//! What the commit chain and the engine share: the published tables, the clock, the bells of the
//! background threads.
//!
//! The chain calls this ([`World`]) from any committing thread, so nothing here waits for another
//! thread.

use crate::clock::Clock;
use crate::commit::World;
use crate::index::{Generation, GenerationSize, SpareChunks};
use crate::options::Options;
use crate::sync::plain::{AtomicI64, Ordering};
use crate::sync::{Arc, CachePadded, epoch};

use super::bell::Bell;
use super::credit::Credit;
use super::pressure::{Pressure, has_room};
use super::published::Published;
use super::tables::Tables;

/// Bytes of a generation that a distinct key is taken to need; decides how many it can index.
const BYTES_PER_KEY: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    /// Generations and files, as of now.
    pub(super) tables: Published<Tables>,
    clock: Arc<dyn Clock>,
    /// When the log was written last, by the clock.
    written_at: AtomicI64,
    generation_size: GenerationSize,
    /// Memory of flushed generations, for the next one.
    spare: Arc<SpareChunks>,
    /// How far flush is behind.
    pub(super) pressure: Pressure,
    /// What background work may write beside the log.
    pub(super) credit: CachePadded<Credit>,
    /// Calls the thread that writes the log where nobody waits for it.
    pub(super) logger: CachePadded<Bell>,
    /// Calls the thread that does all other background work.
    pub(super) worker: CachePadded<Bell>,
}

impl Shared {
    /// Over these tables, with this clock and these sizes.
    pub(super) fn new(tables: Tables, options: &Options) -> Self {
        let (clock, memtable_bytes) = (Arc::clone(&options.clock), options.memtable_bytes);
        Self {
            tables: Published::new(tables),
            written_at: AtomicI64::new(clock.elapsed_micros()),
            clock,
            generation_size: generation_size(memtable_bytes),
            spare: SpareChunks::new(generation_size(memtable_bytes).arena_bytes),
            pressure: Pressure::new(),
            credit: CachePadded::new(Credit::new(options.background_bytes_per_sync)),
            logger: CachePadded::default(),
            worker: CachePadded::default(),
        }
    }

    /// What a generation holds, in bytes, unless a transaction needs more.
    pub(super) fn generation_bytes(&self) -> u64 {
        self.generation_size.arena_bytes as u64
    }

    /// Wall time, in microseconds since the Unix epoch.
    pub(super) fn wall_micros(&self) -> i64 {
        self.clock.now_micros()
    }

    /// Elapsed time, in microseconds.
    pub(super) fn elapsed_micros(&self) -> i64 {
        self.clock.elapsed_micros()
    }

    /// The log has been written: somebody commits.
    pub(super) fn log_written(&self) {
        self.written_at.store(self.clock.elapsed_micros(), Ordering::Relaxed);
    }

    /// How many microseconds are left, by the store's clock, until nobody has committed for `micros`.
    pub(super) fn until_quiet(&self, micros: i64) -> u64 {
        let quiet_at = self.written_at.load(Ordering::Relaxed).saturating_add(micros);
        u64::try_from(quiet_at.saturating_sub(self.clock.elapsed_micros())).unwrap_or(0)
    }

    /// The tables of now, to keep.
    pub(super) fn tables(&self) -> Tables {
        self.tables.load(&epoch::pin()).clone()
    }
}

/// The size of a generation that is to take about `memtable_bytes`.
pub(super) fn generation_size(memtable_bytes: u64) -> GenerationSize {
    let arena_bytes = usize::try_from(memtable_bytes).unwrap_or(usize::MAX);
    GenerationSize { arena_bytes, keys: (arena_bytes / BYTES_PER_KEY).max(64) }
}

impl World for Shared {
    fn now_micros(&self) -> i64 {
        self.clock.now_micros()
    }

    fn new_generation(&self, id: u64, least: GenerationSize) -> Arc<Generation> {
        Generation::with_memory(id, self.generation_size.max(least), &self.spare)
    }

    fn has_room(&self) -> bool {
        has_room(self.tables.load(&epoch::pin()))
    }

    fn switched(&self, current: &Arc<Generation>) {
        let guard = epoch::pin();
        let switched = self.tables.update(&guard, |tables| {
            // Late calls: it is there, or it came and went.
            if tables.generations.first().is_some_and(|first| first.id() >= current.id()) {
                return None;
            }
            let generations = std::iter::once(current).chain(tables.generations.iter());
            let generations = generations.cloned().collect();
            Some(Tables { generations, files: Arc::clone(&tables.files) })
        });
        if switched {
            self.pressure.froze();
            self.worker.ring();
        }
    }

    fn request_lead(&self) -> bool {
        // In this order; see `Bell::leave`.
        self.logger.ring_urgently();
        self.logger.is_attended()
    }

    fn request_work(&self) {
        self.worker.ring();
    }
}
