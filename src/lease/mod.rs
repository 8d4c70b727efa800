//! The lease room: when leases end.
//!
//! A lease is a record in the system key space, and the `lease` of the keys attached to it; the room
//! [`kv`](crate::kv) writes both. This room has the clock: a [`table`] in memory of when each ends, a
//! [`queue`] of when to look at which, and a thread, or [`Store::run_background`], which ends those whose
//! time is over ([`expire`]), and from time to time writes down what is left of the others. [`load`] makes
//! the table anew when the store is opened.
//!
//! Time is the store's clock of elapsed time, which never goes back and counts only while the store is
//! open; the time of day plays no part.
//!
//! Invariants:
//!
//! 1. No lease ends early: what its record says is never less than what is left of its time, and a
//!    renewal that raises what is left above that is durable before it is answered.
//! 2. None lives for ever: each lease of the table lies in the queue, is due, or is claimed by somebody
//!    who puts it back; each record is in the table once it is loaded.
//! 3. Who renews a lease and who ends it never both succeed: the end claims it first, and a renewal that
//!    finds it claimed, or its time over, waits until it is gone.
//! 4. The thread holds no engine, so it keeps no store open, and ends before the store is closed.

mod api;
mod entry;
mod expire;
mod guard;
mod list;
mod load;
mod queue;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::clock::Stopwatch;
use crate::engine::{Attendant, Stats};
use crate::error::{Error, ErrorKind, Result};
use crate::kv::{Extension, LeaseRecords, Store};
use crate::observe::{Span, Task};
use crate::sync::Arc;
use crate::sync::plain::{AtomicBool, AtomicU64, Mutex, Ordering, lock};

use self::table::{Found, Table};

pub use guard::LeaseGuard;
pub use list::{LeaseIter, LeaseStatus};

/// How often the thread looks where time is not that of the system.
const POLL: Duration = Duration::from_millis(50);

/// How many times as long as it works the thread sleeps, while others commit and very many leases end.
const SHARE: u32 = 2;

/// After what time the thread tries again what has failed.
const RETRY: Duration = Duration::from_secs(1);

/// What keeps the time of a store's leases.
#[derive(Debug)]
struct Leases {
    table: Table,
    records: LeaseRecords,
    /// When the store was opened, by its clock of elapsed time.
    opened: i64,
    /// Whether every record is in the table. Set under `loading`.
    loaded: AtomicBool,
    loading: Mutex<()>,
    /// What is to be done about leases that have come up.
    found: Mutex<Found>,
    expired: AtomicU64,
    starting: Mutex<()>,
}

/// Does what the thread does when it is dismissed, where there is none.
struct AtTheEnd(Arc<Leases>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        self.0.write_down_all();
    }
}

impl Extension for Arc<Leases> {
    fn turn(&self) -> Result<bool> {
        Leases::turn(self)
    }

    fn count(&self, stats: &mut Stats) {
        (stats.leases, stats.lease_renewals) = self.table.counts();
        stats.leases_expired = self.expired.load(Ordering::Relaxed);
        stats.lease_overdue_micros = self.overdue();
        stats.lease_next_micros = self.table.until_next();
    }
}

/// Begins to keep the time of the leases of a store that was just opened for writing.
///
/// # Errors
/// The system refuses a thread.
pub(crate) fn open(store: &Store) -> Result<()> {
    let options = store.engine().options();
    if !options.lease_expiry {
        return Ok(());
    }
    let interval = i64::try_from(options.lease_checkpoint_interval_micros()).unwrap_or(i64::MAX);
    let table = Table::new(Arc::clone(&options.clock), interval);
    let leases = Leases {
        opened: table.now(),
        table,
        records: store.lease_records(),
        loaded: AtomicBool::new(!store.has_leases()),
        loading: Mutex::default(),
        found: Mutex::default(),
        expired: AtomicU64::new(0),
        starting: Mutex::new(()),
    };
    let leases = store.lease_room().get_or_init(|| Arc::new(leases))?;
    if !options.background {
        store.engine().keep_until_closed(Box::new(AtTheEnd(Arc::clone(leases))))?;
    }
    if store.has_leases() { leases.attend(store) } else { Ok(()) }
}

/// What keeps the time of the leases of a store, if anything does.
fn leases(store: &Store) -> Option<&Arc<Leases>> {
    store.lease_room().get()
}

impl Leases {
    /// Starts the thread, unless it runs or the store has none.
    fn attend(self: &Arc<Self>, store: &Store) -> Result<()> {
        if self.table.attendant.get().is_some() || !store.engine().options().background {
            return Ok(());
        }
        let _starting = lock(&self.starting);
        if self.table.attendant.get().is_none() {
            let its_own = Arc::clone(self);
            let duty = move |me: &Attendant| its_own.work(me);
            let attendant = store.engine().attend("annals-lease", Box::new(duty))?;
            self.table.attendant.get_or_init(|| attendant);
        }
        Ok(())
    }

    /// What the thread does whenever it is called, and after so much time.
    fn work(&self, me: &Attendant) -> Option<Duration> {
        if me.is_dismissed() {
            // The store is closed as soon as this is done.
            self.write_down_all();
        }
        while !me.is_dismissed() {
            let (begun, before) = (Stopwatch::start(), self.records.revision());
            match self.turn() {
                Ok(true) => self.give_way(me, &begun, before),
                Ok(false) => return self.pause(),
                Err(error) if is_final(&error) => return None,
                // What failed is tried again later. Nothing else waits for that.
                Err(_) if self.has_due() => {}
                Err(_) => {
                    return Some(self.pause().map_or(RETRY, |pause| pause.clamp(POLL, RETRY)));
                }
            }
        }
        None
    }

    /// Where very many leases end at once while others commit, sleeps longer than it took to end some: each of
    /// those takes part in a sync that others wait for, and the processor from them.
    fn give_way(&self, me: &Attendant, begun: &Stopwatch, before: u64) {
        let others = self.records.revision().saturating_sub(before) > expire::GROUP as u64;
        if others && self.has_due() {
            me.nap(Duration::from_nanos(begun.nanos()) * SHARE);
        }
    }

    /// How long the thread sleeps.
    fn pause(&self) -> Option<Duration> {
        let until = Duration::from_micros(self.table.until_next()?);
        Some(if self.table.clock.is_system() { until } else { POLL })
    }

    /// Whether there are leases to end at once. Each turn makes them fewer, also one that fails, once all
    /// are loaded.
    fn has_due(&self) -> bool {
        self.loaded.load(Ordering::Acquire) && !lock(&self.found).due.is_empty()
    }

    /// Whether the store is about to be closed.
    fn is_dismissed(&self) -> bool {
        self.table.attendant.get().is_some_and(Attendant::is_dismissed)
    }

    /// Does one unit of work. Answers whether there was any.
    ///
    /// # Errors
    /// What reading and writing the records answers. What was to be done is done later.
    fn turn(&self) -> Result<bool> {
        if !self.load(|| self.is_dismissed())? {
            return Ok(false);
        }
        let mut found = lock(&self.found);
        loop {
            let due = found.take_due();
            if due.is_empty() && !found.has_many_notes() && self.table.look(&mut found) {
                continue;
            }
            // However many leases are due, the notes of others do not wait until the last has ended.
            let notes = found.take_notes();
            drop(found);
            let span = (!due.is_empty()).then(|| Span::of(Task::LeaseExpiry));
            let expired = {
                let _within = span.as_ref().map(Span::enter);
                self.expire(&due)
            };
            let written = self.write_down(&notes, None);
            return expired.and(written).map(|()| !due.is_empty() || !notes.is_empty());
        }
    }
}

/// Whether nothing can be written any more.
fn is_final(error: &Error) -> bool {
    use ErrorKind::{Closed, OutcomeUnknown, Poisoned, ReadOnly};

    matches!(error.kind(), Closed | ReadOnly | Poisoned { .. } | OutcomeUnknown { .. })
}
