//! A watch as its user holds it: turns what is due into batches, when it is asked for them.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Arc, current, park, park_timeout};

use super::batch::Batch;
use super::builder::Slow;
use super::hub::Hub;
use super::slot::{Next, Sleeper, Slot};
use super::tell::{Wants, log_of, tell_next};

/// Revisions of the log that are looked at in one go.
const SPAN: u64 = 4_096;

/// The same where nothing is found for long.
const SPAN_MAX: u64 = 16 * SPAN;

/// Steps that who does not wait takes after all that was there has been told: a notice may be due.
const SPARE: u32 = 8;

/// How often a watch looks for itself in a store without background threads.
const NAP: Duration = Duration::from_millis(1);

/// The changes of a range of keys, revision by revision: told as they come, or from any revision that is
/// kept. Made by [`Store::watch`](crate::Store::watch) and
/// [`Store::watch_range`](crate::Store::watch_range).
///
/// Take them by [`next`](Iterator::next), which blocks, or as a `Stream` of `futures_core`, in any
/// runtime. What is promised:
///
/// * Batches come in ascending order of their revisions, each once, and each with all changes of its
///   revision that are wanted, in the order in which the transaction did them. A revision of which nothing
///   is wanted has no batch. None is left out: whatever stands in the way ends the watch with an error.
/// * A notice of progress of revision R comes after every batch up to R.
/// * In a [`Sync`](crate::Durability::Sync) store only what is durable is told. In a
///   [`Buffered`](crate::Durability::Buffered) one a crash may take back the last of what was told; compare
///   [`incarnation`](crate::Store::incarnation) when resuming.
/// * A watch that is asked for nothing takes less than a KiB whatever is written meanwhile, holds no commit
///   up and keeps nothing from being forgotten. When it is asked again it reads the log from where
///   it was.
///
/// It ends, after the item that says why, with
///
/// * [`Compacted`](crate::ErrorKind::Compacted) when what is due next has been forgotten. A watch that has
///   nothing due never is, however much is compacted. `requested` is its
///   [`resume_revision`](Self::resume_revision);
/// * [`Lagged`](crate::ErrorKind::Lagged) if it [asked for that](crate::WatchBuilder::when_slow);
/// * [`Closed`](crate::ErrorKind::Closed), [`Poisoned`](crate::ErrorKind::Poisoned),
///   [`Corrupt`](crate::ErrorKind::Corrupt), [`Io`](crate::ErrorKind::Io);
///
/// and without an error when it is cancelled, or in a store that is open for reading only, when all that
/// is there has been told.
///
/// A watch does not keep the store open: it ends when the store is closed or the last handle is dropped.
///
/// ```
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// # let store = annals::Store::open(directory.path())?;
/// store.put("/pods/a", "1")?;
/// let mut watch = store.watch("/pods/").prefix().from(2).prev_kv().start()?;
/// store.put("/pods/a", "2")?;
/// store.delete("/pods/a")?;
/// for batch in watch.by_ref().take(3) {
///     for event in batch?.events() {
///         println!("{:?} {:?}, before: {:?}", event.kind, event.kv, event.prev_kv);
///     }
/// }
/// // In another session: store.watch("/pods/").prefix().from(resume)
/// let resume = watch.resume_revision();
/// assert_eq!(resume, 5);
/// # Ok::<(), annals::Error>(())
/// ```
pub struct Watch {
    hub: Arc<Hub>,
    slot: Arc<Slot>,
    wants: Wants,
    slow: Slow,
    /// Bytes read ahead while catching up.
    catch_up_bytes: usize,
    created_at: u64,
    /// Everything that is wanted up to this revision has been told.
    position: u64,
    /// Read, and not told yet.
    ready: VecDeque<Batch>,
    behind: Option<Behind>,
    /// Whether it goes on behind what there is.
    follows: bool,
    over: bool,
    /// Batches that a task has taken without giving way.
    pub(super) in_a_row: u32,
}

/// The part of the log that a watch reads for itself.
#[derive(Clone, Copy, Debug)]
struct Behind {
    next: u64,
    upto: u64,
    /// Revisions to be looked at in one go.
    span: u64,
    /// Whether this is how it began.
    first: bool,
}

/// What came of one step.
pub(super) enum Step {
    /// The next item.
    Item(Result<Batch>),
    /// There may be one at the next step.
    Again,
    /// Nothing: the sleeper is woken when there may be something.
    Asleep,
    /// There never will be one again.
    Over,
}

impl Watch {
    pub(super) fn new(
        hub: Arc<Hub>,
        slot: Arc<Slot>,
        (wants, slow, catch_up_bytes): (Wants, Slow, usize),
        created_at: u64,
        scanned: u64,
        follows: bool,
    ) -> Self {
        let position = slot.after;
        let behind = Behind { next: position + 1, upto: scanned, span: SPAN, first: true };
        let behind = (position < scanned || !follows).then_some(behind);
        if behind.is_some() {
            slot.reads_from(position + 1);
        }
        let ready = VecDeque::new();
        let over = false;
        Self {
            hub,
            slot,
            wants,
            slow,
            catch_up_bytes,
            created_at,
            position,
            ready,
            behind,
            follows,
            over,
            in_a_row: 0,
        }
    }

    /// The next item if it is there or comes within `timeout`; `None` also when the watch
    /// [has ended](WatchHandle::is_ended): a loop that goes on at `None` has to ask
    /// `watch.handle().is_ended()` there, or it turns for ever once the watch is over.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// let mut watch = store.watch("/a").start()?;
    /// assert!(watch.next_timeout(Duration::from_millis(1)).is_none());
    /// store.put("/a", "1")?;
    /// let batch = watch.next_timeout(Duration::from_secs(60)).expect("told at once")?;
    /// assert_eq!(batch.revision(), 2);
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<Result<Batch>> {
        let watch = Stopwatch::start();
        let (goal, mut spare) = (self.newest(), SPARE);
        let left = || {
            let passed = Duration::from_micros(watch.micros());
            timeout.checked_sub(passed).filter(|left| !left.is_zero())
        };
        loop {
            // At least one step, and always to where there is something, or nothing of what was there.
            match self.step(|| Sleeper::Thread(current())) {
                Step::Item(item) => return Some(item),
                Step::Over => return None,
                Step::Again if left().is_none() && self.is_past(goal, &mut spare) => {
                    self.slot.awake();
                    return None;
                }
                Step::Again => {}
                Step::Asleep => {
                    let Some(left) = left() else {
                        self.slot.awake();
                        return None;
                    };
                    park_timeout(if self.hub.has_thread() { left } else { left.min(NAP) });
                }
            }
        }
    }

    /// The next item if it is there already; `None` also when the watch
    /// [has ended](WatchHandle::is_ended). It may read files, but waits for nobody.
    ///
    /// What has become visible takes the background thread a moment to pass on. In a store without
    /// [background threads](crate::Options::background) it is looked for here.
    pub fn try_next(&mut self) -> Option<Result<Batch>> {
        let (goal, mut spare) = (self.newest(), SPARE);
        loop {
            match self.step(Sleeper::default) {
                Step::Item(item) => return Some(item),
                Step::Over | Step::Asleep => return None,
                Step::Again if self.is_past(goal, &mut spare) => return None,
                Step::Again => {}
            }
        }
    }

    /// The revision from which another watch would tell what this one has not told yet. It also moves when
    /// nothing that is wanted happens, as far as this watch has been asked.
    ///
    /// In between the [fragments](crate::WatchBuilder::fragment) of a revision it is that revision.
    pub fn resume_revision(&self) -> u64 {
        self.position.saturating_add(1)
    }

    /// The newest revision when the watch was made.
    pub fn created_at(&self) -> u64 {
        self.created_at
    }

    /// What ends the watch, or asks it for progress, from anywhere.
    pub fn handle(&self) -> WatchHandle {
        WatchHandle { hub: Arc::clone(&self.hub), slot: Arc::clone(&self.slot) }
    }

    /// The newest revision there is to tell by now. Who does not wait looks no further, or it would go on as
    /// long as others write.
    fn newest(&self) -> u64 {
        self.hub.door.revision().max(self.hub.scanned())
    }

    /// Whether everything up to `goal` has been told, and no notice of progress is likely to be due. A watch
    /// that is offered nothing more goes on to its end.
    fn is_past(&self, goal: u64, spare: &mut u32) -> bool {
        if !self.follows || self.position < goal || self.slot.is_over() {
            return false;
        }
        *spare = spare.saturating_sub(1);
        *spare == 0
    }

    /// Does the next thing there is to do; `sleeper` is asked for if that is nothing.
    pub(super) fn step(&mut self, sleeper: impl FnOnce() -> Sleeper) -> Step {
        if self.over {
            return Step::Over;
        }
        // Else the slot says so below.
        if (self.behind.is_some() || !self.ready.is_empty()) && self.slot.is_cancelled() {
            return self.end(None);
        }
        if let Some(batch) = self.ready.pop_front() {
            if self.ready.is_empty() {
                self.ready = VecDeque::new();
            }
            if let Err(error) = self.check_visible(batch.revision()) {
                return self.end(Some(error));
            }
            return self.item(batch);
        }
        if let Some(behind) = self.behind {
            return self.read_log(behind);
        }
        if !self.follows {
            return self.end(None);
        }
        if !self.hub.has_thread() {
            // A failure has ended the watch already.
            let _ = self.hub.catch_up();
        }
        // In this order: what the hub had come to before the slot was found empty has all been told.
        let scanned = self.hub.scanned();
        match self.slot.next(scanned) {
            Next::Revision(revision) if revision <= self.position => Step::Again,
            Next::Revision(revision) => {
                self.position = revision - 1;
                match self.check_lag().and_then(|()| self.tell(revision)) {
                    Ok(Some(batch)) => self.item(batch),
                    Ok(None) => {
                        self.position = revision;
                        Step::Again
                    }
                    Err(error) => self.end(Some(error)),
                }
            }
            Next::Overflow(revision) => {
                self.position = self.position.max(revision - 1);
                let upto = self.hub.resume(&self.slot);
                let next = self.position + 1;
                self.behind = Some(Behind { next, upto, span: SPAN, first: false });
                self.slot.reads_from(next);
                Step::Again
            }
            Next::Progress => {
                self.position = self.position.max(scanned);
                Step::Item(Ok(Batch::progress(self.position)))
            }
            Next::Again => Step::Again,
            Next::Ended(error) => self.end(error),
            Next::Nothing => {
                self.position = self.position.max(scanned);
                if self.slot.sleep(scanned, sleeper()) { Step::Asleep } else { Step::Again }
            }
        }
    }

    fn item(&mut self, batch: Batch) -> Step {
        self.position = batch.revision() - u64::from(!batch.is_last_fragment());
        self.hub.has_told();
        if self.behind.is_some() {
            self.slot.reads_from(self.position + 1);
        }
        Step::Item(Ok(batch))
    }

    fn end(&mut self, error: Option<Error>) -> Step {
        self.over = true;
        (self.behind, self.ready) = (None, VecDeque::new());
        self.hub.remove(&self.slot);
        error.map_or(Step::Over, |error| Step::Item(Err(error)))
    }

    fn check_lag(&self) -> Result<()> {
        let Slow::Lagged { revisions } = self.slow else { return Ok(()) };
        let (resume, current) = (self.resume_revision(), self.hub.scanned());
        if current.saturating_sub(self.position) <= revisions {
            return Ok(());
        }
        Err(ErrorKind::Lagged { resume, current }.into())
    }

    /// Fails if a revision that was visible is no more: it never became durable, and never will.
    fn check_visible(&self, revision: u64) -> Result<()> {
        let door = &self.hub.door;
        if door.revision() >= revision {
            return Ok(());
        }
        Err(door.failure().unwrap_or_else(|| missing(revision)))
    }

    /// What is told of a revision that is due: the first batch, of which the others are made ready. None if
    /// nothing of it is wanted.
    fn tell(&mut self, revision: u64) -> Result<Option<Batch>> {
        self.check_visible(revision)?;
        let (door, range) = (&self.hub.door, &self.slot.range);
        let mut first = None;
        let mut each = |batch| match first {
            None => first = Some(batch),
            Some(_) => self.ready.push_back(batch),
        };
        if let Some(shared) = self.hub.recent(revision) {
            shared.tell(range, &self.wants, || door.view(revision), &mut each)?;
        } else {
            let mut log = log_of(door, range, (revision, revision), &self.wants)?;
            if tell_next(&mut log, door, &self.wants, &mut each)?.is_none() {
                // It was visible, and it was there.
                return Err(door.failure().unwrap_or_else(|| missing(revision)));
            }
        }
        Ok(first)
    }

    /// Reads a piece of the log. What it holds on to meanwhile it gives back.
    fn read_log(&mut self, mut behind: Behind) -> Step {
        let next = behind.next;
        // All before has been told, as nothing is ready.
        self.position = self.position.max(next - 1);
        if next > behind.upto {
            self.behind = None;
            self.slot.reads_from(0);
            return Step::Again;
        }
        let read = match self.check_lag() {
            Err(error) if !behind.first => Err(error),
            _ => self.read_ahead(&mut behind),
        };
        self.behind = Some(behind);
        match read {
            // First what could be read.
            Err(error) if behind.next == next => self.end(Some(error)),
            _ => Step::Again,
        }
    }

    /// Makes ready what there is in the next revisions, and moves behind what it has looked at.
    fn read_ahead(&mut self, behind: &mut Behind) -> Result<()> {
        let (door, range) = (&self.hub.door, &self.slot.range);
        let last = behind.upto.min(behind.next.saturating_add(behind.span - 1));
        let mut log = log_of(door, range, (behind.next, last), &self.wants)?;
        let mut bytes = 0;
        loop {
            let told = tell_next(&mut log, door, &self.wants, &mut |batch| {
                bytes += batch.bytes();
                self.ready.push_back(batch);
            })?;
            let Some(revision) = told else { break };
            behind.next = revision + 1;
            if bytes >= self.catch_up_bytes {
                return Ok(());
            }
        }
        self.check_visible(last)?;
        // Where there is little, more can be looked at.
        behind.span = if self.ready.is_empty() { SPAN_MAX.min(2 * behind.span) } else { SPAN };
        behind.next = last + 1;
        Ok(())
    }
}

/// A revision that was visible is not in the log.
fn missing(revision: u64) -> Error {
    Error::invalid(format!("revision {revision} was to be told, and is not in the log"))
}

impl Iterator for Watch {
    type Item = Result<Batch>;

    /// Waits for the next item; `None` once the watch has ended.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.step(|| Sleeper::Thread(current())) {
                Step::Item(item) => return Some(item),
                Step::Over => return None,
                Step::Again => {}
                Step::Asleep if self.hub.has_thread() => park(),
                Step::Asleep => park_timeout(NAP),
            }
        }
    }
}

impl std::iter::FusedIterator for Watch {}

impl Drop for Watch {
    fn drop(&mut self) {
        self.hub.remove(&self.slot);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut watch = f.debug_struct("Watch");
        watch.field("range", &self.slot.range).field("position", &self.position);
        watch.field("ready", &self.ready.len()).field("behind", &self.behind);
        watch.field("over", &self.over).finish_non_exhaustive()
    }
}

/// Ends a [`Watch`], or asks it for progress, from any thread. It keeps neither the watch nor the store
/// alive.
#[derive(Clone, Debug)]
pub struct WatchHandle {
    hub: Arc<Hub>,
    slot: Arc<Slot>,
}

impl WatchHandle {
    /// Ends the watch: it tells nothing more, and whoever waits for it is woken.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// let watch = store.watch("/a").start()?;
    /// let handle = watch.handle();
    /// let told = std::thread::spawn(move || watch.count());
    /// handle.cancel();
    /// assert_eq!(told.join().expect("it has ended"), 0);
    /// assert!(handle.is_ended());
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn cancel(&self) {
        self.hub.remove(&self.slot);
    }

    /// Asks the watch for a [notice of progress](Batch::is_progress): it tells one once it has told
    /// everything that is visible now. One is told however often it was asked for before.
    ///
    /// A watch from a future revision tells none before that revision is the next one.
    pub fn request_progress(&self) {
        self.hub.ask_progress(&self.slot);
    }

    /// Whether the watch has ended: by being cancelled or dropped, or with an error, which it may still
    /// have to tell.
    pub fn is_ended(&self) -> bool {
        self.slot.is_over()
    }
}
