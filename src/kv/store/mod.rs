//! The store: every call a user makes on it.
//!
//! | file | calls |
//! | --- | --- |
//! | this one | open, close, flush, compact, where the store is |
//! | `read` | get, range, views, history, diff, log |
//! | `checkpoint` | a copy that shares the files, or is a stream |
//! | `past` | which revision a point in history is, when it was, and the hash as of it |
//! | `write` | put, delete, transactions, tickets |
//! | `swap` | compare-and-put |
//! | `modify` | read, change, write |
//! | `update` | the same with any number of keys |
//! | `revert` | keys as they were |
//! | `lease` | the records of leases |
//! | `retention` | rules: set, list, apply |
//! | `usage` | which keys take how much room |
//!
//! `watermark` says when a refusal because of a compaction stands.

mod checkpoint;
mod lease;
mod modify;
mod past;
mod read;
mod retention;
mod revert;
mod swap;
#[cfg(test)]
mod tests;
mod update;
mod usage;
mod watermark;
mod write;

use std::path::Path;
use std::sync::Arc;

use crate::engine::{OpenReport, Stats};
use crate::error::Result;
use crate::observe;
use crate::options::Options;
use crate::sync::plain::{AtomicI64, AtomicU64};

use super::eval::check::Limits;
use super::eval::lease as lease_table;
use super::extension::{ExtensionCell, Lagging};
use super::request::{CommitOptions, copy};
use super::seam::{Engine, Newest};
use super::types::Commit;

pub(crate) use lease::{AllLeases, LeaseRecords};
pub use modify::{Modified, Modify};
pub use update::{Update, Updated};
pub use usage::{SpaceOptions, SpaceSurvey};

/// A store, open.
///
/// Cloning is cheap and gives another handle to the same store; every handle can be used from
/// every thread.
///
/// The store closes when [`close`](Self::close) is called, or when the last of what keeps it open is
/// dropped: every handle does, every [`View`](crate::View), and every iterator over a range, a
/// history or the log. Until then the directory stays locked, and opening it for writing again
/// answers [`Locked`](crate::ErrorKind::Locked). A [`Watch`](crate::Watch), a [`DiffIter`](crate::DiffIter), a
/// [`Ticket`](crate::Ticket) and the bytes of a value do not keep it open.
///
/// ```
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// # let path = directory.path();
/// let store = annals::Store::open(path)?;
/// let first = store.put("/pods/a", "v1")?;
/// store.put("/pods/a", "v2")?;
/// store.delete("/pods/a")?;
///
/// assert_eq!(store.get("/pods/a")?, None);
/// let then = store.at(first.revision)?.get("/pods/a")?.expect("it was there");
/// assert_eq!(then.value, "v1");
/// # Ok::<(), annals::Error>(())
/// ```
#[derive(Clone)]
pub struct Store {
    engine: Engine,
    shared: Arc<Shared>,
    /// What the commits of this handle have where they say nothing else.
    defaults: CommitOptions,
}

/// What all handles of a store share besides the engine.
#[derive(Debug)]
struct Shared {
    report: OpenReport,
    limits: Limits,
    /// 1 once there may be leases. Set before the first one is granted and never unset, so that
    /// stores without leases need not look for the old lease of every key they write.
    leases: AtomicU64,
    /// Where the search for a free lease id starts.
    next_lease: AtomicI64,
    /// What the rooms above keep with the store.
    watch_room: ExtensionCell,
    lease_room: ExtensionCell,
}

/// What the rooms above tell, without keeping the store open.
pub(crate) trait Rooms: Send + Sync {
    /// Adds their figures.
    fn count(&self, stats: &mut Stats);

    /// The watches that are furthest behind.
    fn lagging(&self, most: usize) -> Vec<Lagging>;
}

impl Rooms for Shared {
    fn count(&self, stats: &mut Stats) {
        for room in self.rooms() {
            room.count(stats);
        }
    }

    fn lagging(&self, most: usize) -> Vec<Lagging> {
        self.watch_room.lagging(most)
    }
}

impl Shared {
    fn rooms(&self) -> [&ExtensionCell; 2] {
        [&self.watch_room, &self.lease_room]
    }
}

impl Options {
    /// Opens the store in `directory`, with these options.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let path = directory.path();
    /// use annals::{Durability, Options};
    ///
    /// let store = Options::new().durability(Durability::Buffered).open(path)?;
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn open(&self, directory: impl AsRef<Path>) -> Result<Store> {
        Store::open_with(directory, self)
    }
}

impl Store {
    /// Opens the store in `directory` for reading and writing, making a new one where there is
    /// nothing, with the default options.
    ///
    /// # Errors
    ///
    /// [`Locked`](crate::ErrorKind::Locked) when another handle has it open for writing,
    /// [`NotAStore`](crate::ErrorKind::NotAStore) when the directory holds something else or is a file,
    /// [`Corrupt`](crate::ErrorKind::Corrupt) when a file is damaged.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(directory, &Options::new())
    }

    /// Opens the store without what the rooms above add.
    pub(crate) fn open_alone(directory: &Path, options: &Options) -> Result<Self> {
        let (engine, report) = Engine::open(directory, options)?;
        Self::over(engine, report)
    }

    /// Opens the store in `directory` for reading only: nothing is written, and a live writer is
    /// not disturbed. It shows the store as it was durable when it was opened; [`refreshed`](Self::refreshed)
    /// answers one that shows what has come since. A [watch](Self::watch) of it tells what there is and ends: to
    /// follow a writer of another process, begin the next one at the
    /// [`resume_revision`](crate::Watch::resume_revision) of the last, in the store refreshed.
    ///
    /// # Errors
    ///
    /// [`NoStore`](crate::ErrorKind::NoStore) where there is none; else as [`Store::open`].
    pub fn open_read_only(directory: impl AsRef<Path>) -> Result<Self> {
        Self::open_read_only_with(directory, &Options::new())
    }

    /// Opens the store in `directory` for reading only, with `options`.
    ///
    /// # Errors
    ///
    /// As [`Store::open_read_only`].
    pub fn open_read_only_with(directory: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let (engine, report) = Engine::open_read_only(directory.as_ref(), options)?;
        Self::over(engine, report)
    }

    pub(in crate::kv) fn over(engine: Engine, report: OpenReport) -> Result<Self> {
        let leases = lease_table::any(&Newest::of(&engine)?)?;
        let options = engine.options();
        let shared = Shared {
            report,
            limits: Limits::of(options),
            leases: AtomicU64::new(u64::from(leases)),
            next_lease: AtomicI64::new(options.clock.now_micros()),
            watch_room: ExtensionCell::default(),
            lease_room: ExtensionCell::default(),
        };
        Ok(Self { engine, shared: Arc::new(shared), defaults: CommitOptions::default() })
    }

    /// Another handle to the same store, whose commits have this metadata where they are given none: who writes, or on whose
    /// behalf. It is that of puts, deletes, [`modify`](Self::modify), [`compare_and_put`](Self::compare_and_put),
    /// transactions, [`update`](Self::update) and revocations of leases, also by a [session](Self::lease); other handles are what
    /// they were. What the end of a lease deletes has metadata of its own.
    ///
    /// It costs a copy of the metadata, which its clones share.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::Modify;
    ///
    /// let by_ada = store.with_metadata("by ada")?;
    /// by_ada.put("/flags/dark", "on")?;
    /// by_ada.modify("/flags/beta", |_| Modify::put("on"))?;
    /// by_ada.txn().then([annals::delete("/flags/dark")]).metadata("by ada: it broke").commit()?;
    /// store.put("/flags/dark", "off")?;
    ///
    /// let told: Vec<_> = store.log(..).map(|one| Ok(one?.metadata)).collect::<annals::Result<_>>()?;
    /// assert_eq!(told, ["by ada", "by ada", "by ada: it broke", ""]);
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`MetadataTooLong`](crate::ErrorKind::MetadataTooLong).
    pub fn with_metadata(&self, metadata: impl AsRef<[u8]>) -> Result<Self> {
        let defaults = CommitOptions { metadata: copy(metadata), ..CommitOptions::default() };
        self.limits().commit(&defaults)?;
        Ok(Self { defaults, ..self.clone() })
    }

    /// Forgets what only reads below `revision` could see. Takes constant time. Reads at
    /// `revision` itself stay possible. Keys that have a [rule of retention](Store::set_retention) of
    /// their own are left to that.
    ///
    /// Space is given back in the background, once no view needs it: files of which all is
    /// forgotten are removed, and a file of old versions that has forgotten half of its revisions is written
    /// again without them. When nobody has committed for five seconds a quarter is enough, and the file of
    /// changes ([`Store::log`], watches) that the revision lies in is written again, too; until then that one
    /// keeps at most [`Options::segment_bytes`](crate::Options::segment_bytes) of what is forgotten.
    /// [`Store::reorganise`] waits for none of this.
    ///
    /// `compact(0)` forgets nothing; as in etcd it succeeds once on a store never compacted.
    ///
    /// # Errors
    ///
    /// [`Compacted`](crate::ErrorKind::Compacted) when it is not above the last one,
    /// [`FutureRevision`](crate::ErrorKind::FutureRevision).
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// for n in 0..5 {
    ///     store.put("/counter", n.to_string())?;
    /// }
    /// store.compact(4)?;
    /// assert!(store.at(3).is_err());
    /// assert_eq!(store.at(4)?.get("/counter")?.expect("still there").value, "2");
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn compact(&self, revision: u64) -> Result<Commit> {
        let ((), done) =
            self.write(&CommitOptions::default(), |evaluation| evaluation.compact(revision))?;
        done.acknowledge()
    }

    /// What opening the store found and did.
    pub fn open_report(&self) -> &OpenReport {
        &self.shared.report
    }

    /// For a store open for reading only: what the writer has made durable since, as a new handle,
    /// or `None` if that is nothing.
    ///
    /// Costs what opening the store costs, also to find that there is nothing new.
    ///
    /// # Errors
    ///
    /// As [`Store::open_read_only`].
    pub fn refreshed(&self) -> Result<Option<Self>> {
        let newer = self.engine.refreshed()?;
        newer.map(|(engine, report)| Self::over(engine, report)).transpose()
    }

    /// Makes everything ordered so far durable: also what was acknowledged `Buffered`, and what was
    /// submitted and not waited for.
    ///
    /// # Errors
    ///
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) when the sync fails;
    /// [`Closed`](crate::ErrorKind::Closed).
    pub fn flush(&self) -> Result<()> {
        self.engine.flush()
    }

    /// Does one unit of background work; false when there was none to do. Only needed where
    /// [`Options`] turned the background threads off.
    ///
    /// # Errors
    ///
    /// [`Corrupt`](crate::ErrorKind::Corrupt), or [`Io`](crate::ErrorKind::Io) of the device, once for each file that cannot be
    /// read: it is left as it is, and the next call goes on with what does not need it
    /// ([`Stats::damaged_files`](crate::Stats::damaged_files)). [`NoSpace`](crate::ErrorKind::NoSpace), or `Io` for want
    /// of a descriptor, and the same is tried again. After any other `Io` the store accepts no more writes. [`Closed`](crate::ErrorKind::Closed),
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly), [`Poisoned`](crate::ErrorKind::Poisoned).
    pub fn run_background(&self) -> Result<bool> {
        // What one of them cannot do keeps the others from nothing.
        let rooms = self.shared.rooms().map(ExtensionCell::turn);
        let any = self.engine.run_background()?;
        rooms.into_iter().try_fold(any, |any, turn| Ok(turn? || any))
    }

    /// Moves everything in memory to files, folds and merges these, and does all other background
    /// work there is. A store does this by itself as it grows, and when nobody writes to it; asking for
    /// it makes the files of a small store look like those of a large one, and reads of the past the
    /// quickest they can be: each call may write most of HISTORY again. It returns when all of it is done, and writes
    /// without regard for commits, which are slower meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Store::run_background`], but that of damage comes at the end, when all has been done that it does not concern.
    pub fn reorganise(&self) -> Result<()> {
        // Without threads a watch that nobody asks would hold on to what it has not looked at.
        let watches = self.shared.watch_room.turn();
        self.engine.reorganise()?;
        watches.map(drop)
    }

    /// The current revision, as [`Store::latest`] would see it; 1 for a fresh store.
    pub fn revision(&self) -> u64 {
        self.engine.revision()
    }

    /// The revision last compacted to; 0 when the store never was. How far back keys with rules of
    /// their own can be read is said by [`Store::retention`].
    pub fn compacted_revision(&self) -> u64 {
        self.engine.compacted_revision()
    }

    /// The newest revision that is durable.
    pub fn durable_revision(&self) -> u64 {
        self.engine.durable_revision()
    }

    /// Tells the histories of a store apart: 1 in a new store, and one more after each opening that followed no
    /// clean close. Where commits were acknowledged [`Buffered`](crate::Durability::Buffered), a crash takes back
    /// the last of them, and their revisions are given again: the same revision of two incarnations
    /// may be two different commits.
    ///
    /// What is written to a copy, a [checkpoint](Self::checkpoint) or a [restored](crate::restore) backup, is
    /// another history, too: a copy begins with a number far above, taken by chance.
    pub fn incarnation(&self) -> u64 {
        self.engine.incarnation()
    }

    /// Figures about the store: revisions, memory, files, work done. Cheap enough to be asked for
    /// every second.
    pub fn stats(&self) -> Stats {
        let mut stats = self.engine.stats();
        self.shared.count(&mut stats);
        if observe::HAS_GAUGES {
            stats.show(self.path());
        }
        stats
    }

    /// The directory the store is in.
    pub fn path(&self) -> &Path {
        self.engine.path()
    }

    /// Closes the store: makes everything durable, marks it as cleanly closed, and gives up the lock
    /// of the directory, whoever has handles, views or iterators still. Other handles
    /// and views answer [`Closed`](crate::ErrorKind::Closed) from then on; iterators of which an item
    /// was taken go on, but for a log that has to look a value up ([`Log::with_values`](crate::Log::with_values)). A commit that is on its way answers `Closed` too, or is durable.
    ///
    /// Not to be called by a waker: that may run in a thread which has to end its work first. (It may drop handles.)
    ///
    /// # Errors
    ///
    /// As [`Store::flush`].
    pub fn close(self) -> Result<()> {
        self.engine.close()
    }

    /// What keeps the store open.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What the rooms above tell.
    pub(crate) fn rooms(&self) -> Arc<dyn Rooms> {
        Arc::<Shared>::clone(&self.shared)
    }

    /// What the room `watch` keeps with the store.
    pub(crate) fn watch_room(&self) -> &ExtensionCell {
        &self.shared.watch_room
    }

    /// What the room `lease` keeps with the store.
    pub(crate) fn lease_room(&self) -> &ExtensionCell {
        &self.shared.lease_room
    }

    fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// What a commit has that says nothing of it.
    pub(crate) fn defaults(&self) -> &CommitOptions {
        &self.defaults
    }

    /// Options with what they leave out.
    pub(crate) fn completed(&self, mut options: CommitOptions) -> CommitOptions {
        if options.metadata.is_empty() {
            options.metadata = self.defaults.metadata.clone();
        }
        options
    }
}
