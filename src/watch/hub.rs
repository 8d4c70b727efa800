//! The one reader of what has become visible, which tells the slots what is due to them.
//!
//! Locks are taken in this order: `follow`; then one of `registry`, `asked`, `recent`; then a slot's. `timed` is
//! taken with none of these held, and a slot's within it. None is held while anybody is woken, since wakers
//! are foreign code, nor by anything on the way of a commit.

use std::time::Duration;

use crate::engine::{Attendant, Door, Follow, Seen, Stats};
use crate::error::{Error, ErrorKind, Result};
use crate::kv::{Extension, KeyRange, Lagging, Store};
use crate::options::Durability;
use crate::sync::plain::{AtomicI64, AtomicU64, Mutex, MutexGuard, OnceLock, Ordering, lock};
use crate::sync::{Arc, CachePadded};

use super::interest::Interest;
use super::recent::{Held, Recent, Shared};
use super::slot::{Sleeper, Slot};

mod ending;
mod figures;
mod wake;

use ending::Ending;
use wake::{Sleepers, wake};

/// Most transactions looked at before their watches are woken.
const STEP: usize = 256;

/// How often is looked whether a notice of progress is due.
const TICK: Duration = Duration::from_millis(100);

/// Transactions with more changes than this are not decoded for several watches at once.
const SHARED_CHANGES_MAX: usize = 4_096;

/// How long and how often the thread naps, when commits come fast, before it sleeps so that one of them has
/// to wake it. That takes such a commit longer than everything else it does.
const NAP: Duration = Duration::from_micros(200);
const NAPS: u32 = 2;

/// Revisions at a time from which on commits come fast.
const FAST: u64 = 8;

/// What the watches of a store share. It keeps the store open no more than they do.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) door: Door,
    registry: Mutex<Registry>,
    /// Every slot has been offered all that was visible up to this revision. Written under `registry`.
    scanned: AtomicU64,
    /// What reads on; `None` while there are no watches.
    follow: Mutex<Option<Follow>>,
    recent: Mutex<Recent>,
    /// Slots that wait for a notice of progress which the hub has not come to.
    asked: Mutex<Vec<Arc<Slot>>>,
    timed: Mutex<Vec<Timed>>,
    /// When the first of these is due, or earlier. Written under `timed`.
    next_due: AtomicI64,
    /// Batches told by the watches, those that have ended included.
    told: CachePadded<AtomicU64>,
    /// Set once the end of the store ends the watches, in a store without threads.
    bound: OnceLock<()>,
    /// The thread, once it has begun, if the store has threads.
    attendant: OnceLock<Attendant>,
}

#[derive(Debug, Default)]
struct Registry {
    interest: Interest,
    /// Whether something reads on. Changes under the lock of `follow`, too.
    running: bool,
    /// Set when nothing will ever read on again.
    over: Option<Error>,
}

/// A watch that wants a notice of progress now and then.
#[derive(Debug)]
struct Timed {
    slot: Arc<Slot>,
    every: i64,
    due: i64,
}

/// After which revision a watch begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum After {
    /// This one, past or future.
    Revision(u64),
    /// The newest when it is registered, which is this one or a later one. What comes in between is not due,
    /// and may be compacted.
    Newest(u64),
}

impl Extension for Arc<Hub> {
    fn turn(&self) -> Result<bool> {
        Ok(!self.has_thread() && self.catch_up()?)
    }

    fn count(&self, stats: &mut Stats) {
        Hub::count(self, stats);
    }

    fn lagging(&self, most: usize) -> Vec<Lagging> {
        Hub::lagging(self, most)
    }
}

impl Hub {
    /// The hub of a store.
    ///
    /// # Errors
    /// None that a caller can bring about.
    pub(super) fn of(store: &Store) -> Result<Arc<Self>> {
        let make = || {
            Arc::new(Self {
                door: store.engine().door(),
                registry: Mutex::default(),
                scanned: AtomicU64::new(0),
                follow: Mutex::default(),
                recent: Mutex::default(),
                asked: Mutex::default(),
                timed: Mutex::default(),
                told: CachePadded::default(),
                next_due: AtomicI64::new(i64::MAX),
                bound: OnceLock::new(),
                attendant: OnceLock::new(),
            })
        };
        Ok(Arc::clone(store.watch_room().get_or_init(make)?))
    }

    /// The revision up to which all slots have been offered everything.
    pub(super) fn scanned(&self) -> u64 {
        self.scanned.load(Ordering::Acquire)
    }

    /// A transaction that several watches want.
    pub(super) fn recent(&self, revision: u64) -> Option<Arc<Shared>> {
        lock(&self.recent).find(revision)
    }

    // ---- Coming and going. ----

    /// Registers a watch of `range`. Answers its slot, and the revision after which changes are offered to
    /// it.
    ///
    /// # Errors
    /// `Closed`, or what kept the hub from beginning.
    pub(super) fn register(
        self: &Arc<Self>,
        store: &Store,
        range: KeyRange,
        after: After,
    ) -> Result<(Arc<Slot>, u64)> {
        let registry = lock(&self.registry);
        if registry.running {
            return Ok(self.enter(registry, range, after));
        }
        drop(registry);
        // While this is locked nobody begins or rests.
        let mut follow = lock(&self.follow);
        if follow.is_none() {
            self.begin(store, &mut follow)?;
        }
        let entered = self.enter(lock(&self.registry), range, after);
        drop(follow);
        self.ring();
        Ok(entered)
    }

    /// Adds a slot, where something reads on. It is one step with the offers of the hub: what is not offered
    /// to the slot is not above `scanned`.
    fn enter(
        &self,
        mut registry: MutexGuard<'_, Registry>,
        range: KeyRange,
        after: After,
    ) -> (Arc<Slot>, u64) {
        let scanned = self.scanned();
        let after = match after {
            After::Revision(after) => after,
            After::Newest(known) => known.max(scanned),
        };
        let slot = Arc::new(Slot::new(range, after, scanned));
        registry.interest.add(Arc::clone(&slot));
        (slot, scanned)
    }

    /// Begins to read on.
    fn begin(self: &Arc<Self>, store: &Store, follow: &mut Option<Follow>) -> Result<()> {
        if let Some(error) = &lock(&self.registry).over {
            return Err(error.clone());
        }
        if self.has_thread() && self.attendant.get().is_none() {
            let mut ending = Ending { hub: Arc::clone(self), begun: false };
            let duty = Box::new(move |attendant: &Attendant| {
                ending.begun = true;
                ending.hub.work(attendant)
            });
            let _ = self.attendant.set(store.engine().attend("annals-watch", duty)?);
        } else if !self.has_thread() && self.bound.get().is_none() {
            let ending = Ending { hub: Arc::clone(self), begun: true };
            store.engine().keep_until_closed(Box::new(ending))?;
            let _ = self.bound.set(());
        }
        let (at, visible) = self.newest()?;
        let mut registry = lock(&self.registry);
        self.scanned.store(visible, Ordering::Release);
        registry.running = true;
        *follow = Some(at);
        Ok(())
    }

    /// What reads on from the newest visible revision, and that.
    fn newest(&self) -> Result<(Follow, u64)> {
        loop {
            let visible = self.door.latest()?.revision();
            match Follow::at(&self.door, visible + 1) {
                // Much has happened since, and all of it is compacted: the newest is another one.
                Err(error) if matches!(error.kind(), ErrorKind::Compacted { .. }) => {}
                at => return at.map(|at| (at, visible)),
            }
        }
    }

    /// Ends what a slot gets. Whoever sleeps there is woken.
    pub(super) fn remove(&self, slot: &Arc<Slot>) {
        // First: once it is out of the registry, what is `scanned` is no more told to it.
        let sleeper = slot.cancel();
        let mut registry = lock(&self.registry);
        let was_last = registry.interest.remove(slot) && registry.interest.len() == 0;
        drop(registry);
        wake(vec![sleeper]);
        if slot.is_timed() {
            lock(&self.timed).retain(|timed| !Arc::ptr_eq(&timed.slot, slot));
        }
        if !was_last {
            return;
        }
        // What reads on holds on to the past.
        if self.has_thread() {
            self.ring();
        } else {
            self.rest();
        }
    }

    /// Stops reading on if there are no watches.
    fn rest(&self) -> bool {
        let forgotten = {
            let mut follow = lock(&self.follow);
            let mut registry = lock(&self.registry);
            if registry.interest.len() > 0 {
                return false;
            }
            *follow = None;
            registry.running = false;
            drop(registry);
            lock(&self.recent).clear()
        };
        // Foreign code, now that no lock is held.
        drop(forgotten);
        true
    }

    /// What is offered to a slot from now on comes after the revision answered: the rest is in the log.
    pub(super) fn resume(&self, slot: &Slot) -> u64 {
        let _registry = lock(&self.registry);
        let scanned = self.scanned();
        slot.resume_after(scanned);
        scanned
    }

    // ---- Progress. ----

    /// Asks for a notice once everything that is visible now has been told.
    pub(super) fn ask_progress(&self, slot: &Arc<Slot>) {
        if self.door.is_read_only() {
            return;
        }
        slot.ask_progress(self.door.revision());
        let mut asked = lock(&self.asked);
        // Under the lock: the hub looks at what is asked after it has come further.
        let (sleeper, must_wait) = slot.reach(self.scanned());
        if must_wait && !slot.set_listed(true) {
            asked.push(Arc::clone(slot));
        }
        drop(asked);
        wake(vec![sleeper]);
    }

    /// Has a slot asked for notices, every so many microseconds in which it was offered nothing.
    pub(super) fn ask_progress_every(&self, slot: &Arc<Slot>, every: i64) {
        let due = self.now().saturating_add(every);
        slot.set_timed();
        let mut timed = lock(&self.timed);
        timed.push(Timed { slot: Arc::clone(slot), every, due });
        self.next_due.fetch_min(due, Ordering::Relaxed);
        drop(timed);
        self.ring();
    }

    /// Asks for the notices that are due.
    fn tick(&self) {
        // Not the clock, either, where nobody wants any.
        let next_due = self.next_due.load(Ordering::Relaxed);
        if next_due == i64::MAX || self.now() < next_due {
            return;
        }
        let now = self.now();
        let mut due = Vec::new();
        let mut timed = lock(&self.timed);
        for timed in timed.iter_mut().filter(|timed| timed.due <= now) {
            timed.due = now.saturating_add(timed.every);
            if !timed.slot.has_stirred() {
                due.push(Arc::clone(&timed.slot));
            }
        }
        let next_due = timed.iter().map(|timed| timed.due).min().unwrap_or(i64::MAX);
        self.next_due.store(next_due, Ordering::Relaxed);
        drop(timed);
        for slot in &due {
            self.ask_progress(slot);
        }
    }

    fn now(&self) -> i64 {
        self.door.options().clock.elapsed_micros()
    }

    // ---- Reading on. ----

    /// Without a thread: reads all that is visible by now, and tells the slots. Answers whether that was
    /// anything. What others write meanwhile does not keep it.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub(super) fn catch_up(&self) -> Result<bool> {
        let visible = self.door.revision();
        let mut any = false;
        while self.turn()? > 0 {
            any = true;
            if self.scanned() >= visible {
                break;
            }
        }
        Ok(any)
    }

    /// Reads some of what has become visible, and tells the slots. Answers by how many revisions that was.
    ///
    /// # Errors
    /// What reading answers; all watches have ended with it.
    pub(super) fn turn(&self) -> Result<u64> {
        // Declared first, so dropped last: foreign code runs then, where no lock is held.
        let mut gone = Held::default();
        // Woken when this is left, by a panic, too.
        let mut sleepers = Sleepers(Vec::new());
        let mut follow = lock(&self.follow);
        let Some(reader) = &mut *follow else { return Ok(0) };
        let before = self.scanned();
        let read = reader.step(STEP, &mut |seen| self.offer(seen, &mut sleepers.0, &mut gone));
        if let Ok(upto) = read {
            let _registry = lock(&self.registry);
            self.scanned.store(upto.max(before), Ordering::Release);
        }
        let (read, failed) = match read {
            Err(error) => self.meet(&mut follow, error),
            Ok(upto) => (Ok(upto), Vec::new()),
        };
        sleepers.0.extend(failed);
        let scanned = self.scanned();
        lock(&self.asked).retain(|slot| {
            let (sleeper, must_wait) = slot.reach(scanned);
            if sleeper.is_some() {
                sleepers.0.push(sleeper);
            }
            if !must_wait {
                slot.set_listed(false);
            }
            must_wait
        });
        // Foreign code may take long, and without a thread nobody knows when the next turn is.
        if (!self.has_thread() || sleepers.has_task())
            && let Some(reader) = &mut *follow
        {
            reader.let_go();
        }
        drop(follow);
        drop(sleepers);
        self.tick();
        read.map(|_| scanned.saturating_sub(before))
    }

    /// Offers a transaction to all who want to hear of it.
    fn offer(&self, seen: &Seen<'_>, sleepers: &mut Vec<Sleeper>, gone: &mut Held) {
        let revision = seen.revision();
        let (mut takers, mut changes) = (0, 0);
        let registry = lock(&self.registry);
        for key in seen.keys() {
            changes += 1;
            registry.interest.find(key, &mut |slot| {
                if let Some(sleeper) = slot.offer(revision) {
                    takers += 1;
                    if sleeper.is_some() {
                        sleepers.push(sleeper);
                    }
                }
            });
        }
        // Within the lock, as `register` and `resume` count on it.
        self.scanned.store(revision, Ordering::Release);
        drop(registry);
        if takers > 1
            && changes <= SHARED_CHANGES_MAX
            && let Ok(transaction) = seen.decode(true)
        {
            lock(&self.recent).add(transaction, gone);
        }
    }

    /// What becomes of an error. If the store goes on, it may be damage that concerns few watches, or a
    /// passing one: each reads for itself what could not be read here, and meets it or does not. Answers who is
    /// to be woken.
    fn meet(&self, follow: &mut Option<Follow>, error: Error) -> (Result<u64>, Vec<Sleeper>) {
        let next = follow.as_ref().map(Follow::next);
        let goes_on = !matches!(error.kind(), ErrorKind::Closed | ErrorKind::Poisoned { .. });
        if let Some(next) = next
            && goes_on
            && let Ok((at, visible)) = self.newest()
        {
            let registry = lock(&self.registry);
            *follow = Some(at);
            let skipped = registry.interest.slots().map(|slot| slot.skip(next)).collect();
            self.scanned.store(visible, Ordering::Release);
            return (Ok(visible), skipped);
        }
        let sleepers = self.fail(follow, &error);
        (Err(error), sleepers)
    }

    /// Ends all watches there are with an error. Answers who is to be woken. Others may begin anew.
    fn fail(&self, follow: &mut Option<Follow>, error: &Error) -> Vec<Sleeper> {
        let mut registry = lock(&self.registry);
        *follow = None;
        registry.running = false;
        registry.interest.slots().map(|slot| slot.fail(error)).collect()
    }

    // ---- The thread. ----

    /// Whether the store has background threads.
    pub(super) fn has_thread(&self) -> bool {
        self.door.options().background && !self.door.is_read_only()
    }

    fn ring(&self) {
        if let Some(attendant) = self.attendant.get() {
            attendant.ring();
        }
    }

    /// What the thread does. Answers when it is to look again although nobody rings.
    fn work(&self, attendant: &Attendant) -> Option<Duration> {
        // In a `Sync` store it is who has led a sync that wakes, and who waits for it sleeps anyway.
        let may_nap = self.door.options().durability == Durability::Buffered;
        let mut naps = NAPS;
        while !attendant.is_dismissed() {
            match self.turn() {
                // They all have ended; the next one begins anew.
                Err(_) => return None,
                Ok(0) if self.rest() => return None,
                Ok(0) if naps < NAPS => {
                    naps += 1;
                    attendant.nap(NAP);
                }
                Ok(0) => {
                    let sleeps = lock(&self.follow).as_mut().is_none_or(|at| at.rest(attendant));
                    if sleeps {
                        return (!lock(&self.timed).is_empty()).then_some(TICK);
                    }
                }
                Ok(revisions) if revisions >= FAST && may_nap => naps = 0,
                Ok(_) => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
