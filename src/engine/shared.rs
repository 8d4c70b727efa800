//! What the commit chain and the engine share: the published tables, the clock, the bells of the
//! background threads.
//!
//! The chain calls this ([`World`]) from any committing thread, so nothing here waits for another
//! thread.

use annals_format::limits::{COMMIT_TIME_MAX, COMMIT_TIME_MIN};

use crate::clock::Clock;
use crate::commit::World;
use crate::index::{FIRST_CHUNK_BYTES, Generation, GenerationSize, Spare};
use crate::options::Options;
use crate::sync::plain::{AtomicI64, Mutex, OnceLock, Ordering, lock, try_lock};
use crate::sync::{Arc, CachePadded, epoch};
use crate::wal::WalFiles;

use super::attend::Attendant;
use super::bell::Bell;
use super::credit::Credit;
use super::pressure::{Pressure, has_room};
use super::published::Published;
use super::tables::Tables;

/// Bytes of a generation that a distinct key is taken to need; decides how many it can index.
const BYTES_PER_KEY: usize = 256;

/// Chunks of memory that are kept ready while a store is written to: more than are used in the time
/// between two turns of the log thread.
const CHUNKS_READY: usize = 4;

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
    spare: Arc<Spare>,
    /// The generation after the current one, if it was made ahead. Commits only try the lock.
    next: Mutex<Option<Arc<Generation>>>,
    /// The log's files, once they are open for writing.
    pub(super) log_files: OnceLock<Arc<WalFiles>>,
    /// How far flush is behind.
    pub(super) pressure: Pressure,
    /// What background work may write beside the log.
    pub(super) credit: CachePadded<Credit>,
    /// Calls the thread that writes the log where nobody waits for it, and makes memory ahead.
    pub(super) logger: CachePadded<Bell>,
    /// Calls the thread that does all other background work.
    pub(super) worker: CachePadded<Bell>,
    /// Who is rung when more is visible, if they have asked for it.
    followers: Published<Vec<Attendant>>,
}

/// What of the current generation decides what is made ahead.
struct Current {
    id: u64,
    is_half_full: bool,
}

impl Shared {
    /// Over these tables, with this clock, these sizes, and this spare memory.
    pub(super) fn new(tables: Tables, options: &Options, spare: Arc<Spare>) -> Self {
        let (clock, memtable_bytes) = (Arc::clone(&options.clock), options.memtable_bytes);
        Self {
            tables: Published::new(tables),
            written_at: AtomicI64::new(clock.elapsed_micros()),
            clock,
            generation_size: generation_size(memtable_bytes),
            spare,
            next: Mutex::new(None),
            log_files: OnceLock::new(),
            pressure: Pressure::new(),
            credit: CachePadded::new(Credit::new(options.background_bytes_per_sync)),
            logger: CachePadded::default(),
            worker: CachePadded::default(),
            followers: Published::new(Vec::new()),
        }
    }

    /// What a generation holds, in bytes, unless a transaction needs more.
    pub(super) fn generation_bytes(&self) -> u64 {
        self.generation_size.arena_bytes as u64
    }

    /// Wall time, in microseconds since the Unix epoch, as far as a commit can have it: what is written can be given
    /// to another store.
    pub(super) fn wall_micros(&self) -> i64 {
        self.clock.now_micros().clamp(COMMIT_TIME_MIN, COMMIT_TIME_MAX)
    }

    /// Elapsed time, in microseconds.
    pub(super) fn elapsed_micros(&self) -> i64 {
        self.clock.elapsed_micros()
    }

    /// Makes ahead what a commit would have to make otherwise: some memory, and the next generation with
    /// the table of its keys. To zero the pages of these takes longer than hundreds of commits.
    pub(super) fn make_ready(&self) {
        let Some(Current { id, is_half_full }) = self.current() else { return };
        self.spare.stock(CHUNKS_READY);
        if is_half_full && self.lacks_next(id) {
            let next = Generation::following(id + 1, self.generation_size, &self.spare);
            let before = lock(&self.next).replace(next);
            drop(before);
        }
    }

    /// Whether there is something to [make ready](Self::make_ready). Asked after each sync, as nobody calls the
    /// thread that does it where every commit waits for its sync; where none does each commit calls it.
    pub(super) fn lacks_memory(&self) -> bool {
        self.current().is_some_and(|Current { id, is_half_full }| {
            self.spare.holds_less_than(CHUNKS_READY / 2) || is_half_full && self.lacks_next(id)
        })
    }

    /// The current generation; `None` as long as what is made ahead of need may never be needed, since half of
    /// the first chunk of the first one is not filled.
    fn current(&self) -> Option<Current> {
        let guard = epoch::pin();
        let current = self.tables.load(&guard).generations.first()?;
        let (id, used) = (current.id(), current.bytes_used() as u64);
        let is_half_full = used >= self.generation_bytes() / 2;
        (id > 1 || is_half_full || used >= FIRST_CHUNK_BYTES as u64 / 2)
            .then_some(Current { id, is_half_full })
    }

    /// Whether no generation after `id` has been made ahead. False, too, in the moment in which another thread
    /// puts one in or takes it out: whoever asks next finds out.
    fn lacks_next(&self, id: u64) -> bool {
        try_lock(&self.next).is_some_and(|next| next.as_ref().is_none_or(|next| next.id() <= id))
    }

    /// The generation that was made ahead.
    #[cfg(test)]
    pub(super) fn made_next(&self) -> Option<u64> {
        lock(&self.next).as_ref().map(|next| next.id())
    }

    /// From now on this one is rung when more is visible than somebody who follows has seen.
    pub(super) fn add_follower(&self, follower: &Attendant) {
        self.followers
            .update(&epoch::pin(), |all| Some(all.iter().chain([follower]).cloned().collect()));
    }

    /// Takes that back, once.
    pub(super) fn remove_follower(&self, follower: &Attendant) {
        self.followers.update(&epoch::pin(), |all| {
            let at = all.iter().position(|other| other.is_same(follower))?;
            let (before, after) = (all.get(..at)?, all.get(at + 1..)?);
            Some([before, after].concat())
        });
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
        self.wall_micros()
    }

    fn new_generation(&self, id: u64, least: GenerationSize) -> Arc<Generation> {
        let size = self.generation_size.max(least);
        let fits = |next: &mut Arc<Generation>| next.id() == id && next.is_at_least(size);
        let ahead = try_lock(&self.next).and_then(|mut next| next.take_if(fits));
        // Without touching its memory in advance: several threads may ask at the same time, and all but one of
        // these generations are dropped. To zero the pages of each took every one of them tens of milliseconds.
        ahead.unwrap_or_else(|| Generation::as_needed(id, size, &self.spare))
    }

    fn has_room(&self) -> bool {
        has_room(self.tables.load(&epoch::pin()))
    }

    #[inline]
    fn log_takes(&self, logged_bytes: u64, compacts: bool) -> bool {
        self.log_files.get().is_none_or(|files| files.takes(logged_bytes, compacts))
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

    fn visible_moved(&self) {
        for follower in self.followers.load(&epoch::pin()) {
            follower.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tables::FileSet;

    fn shared(current: u64) -> Shared {
        let options = Options::new().memtable_bytes(1 << 20);
        let spare = Spare::new(1 << 20);
        let size = generation_size(options.memtable_bytes);
        let generation = Generation::as_needed(current, size, &spare);
        let files = Arc::new(FileSet::new(std::iter::empty()));
        Shared::new(Tables { generations: [generation].into(), files }, &options, spare)
    }

    /// Takes half of the room of the current generation.
    fn fill(shared: &Shared) {
        let tables = shared.tables();
        for number in 0..600_u32 {
            let key = [&[1; 900][..], &number.to_be_bytes()].concat();
            tables.generations[0].get_or_insert(&key).expect("room");
        }
    }

    const ANY: GenerationSize = GenerationSize { arena_bytes: 0, keys: 0 };

    #[test]
    fn the_next_generation_is_made_ahead_and_used_once() {
        let shared = shared(3);
        let ahead = || shared.made_next();
        shared.make_ready();
        assert_eq!(ahead(), None, "nobody has written much yet");
        fill(&shared);
        shared.make_ready();
        assert_eq!(ahead(), Some(4));
        let made = Arc::as_ptr(lock(&shared.next).as_ref().expect("there is one"));
        shared.make_ready();
        let next = shared.new_generation(4, ANY);
        assert_eq!((Arc::as_ptr(&next), next.id()), (made, 4));
        assert_eq!(ahead(), None);
        assert_eq!(shared.new_generation(4, ANY).id(), 4, "also for another thread that asks");
    }

    #[test]
    fn what_was_made_ahead_is_kept_from_who_asks_for_another() {
        let shared = shared(3);
        fill(&shared);
        assert!(shared.lacks_memory());
        shared.make_ready();
        assert!(!shared.lacks_memory());
        for id in [3, 5] {
            assert_eq!(shared.new_generation(id, ANY).id(), id);
        }
        let large = GenerationSize { arena_bytes: 8 << 20, keys: 0 };
        assert!(shared.new_generation(4, large).is_at_least(large));
        assert_eq!(shared.made_next(), Some(4));
    }
}
