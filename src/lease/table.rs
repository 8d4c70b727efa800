//! The leases of an open store in memory: when each ends, and who is doing something to it.
//!
//! To renew a lease is to look it up and to store a number. Whatever writes its record (a grant, a
//! revocation, the end of its time, a renewal of one whose record says that less than all is left) *claims*
//! it first: then everybody else waits, so that of two who want a lease renewed and ended exactly one
//! wins, and the table says what the records say.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use annals_format::lease::Value;

use crate::clock::Clock;
use crate::engine::Attendant;
use crate::sync::Arc;
use crate::sync::plain::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, lock};

use super::entry::{Entry, Look, Note};
use super::queue::{Queue, Tick, tick_at};

/// Leases are spread over so many maps, each with a lock of its own.
const SHARDS: usize = 16;

/// After what time a lease that could not be ended is tried again.
const RETRY_MICROS: i64 = 1_000_000;

/// Every lease that is known.
pub(super) struct Table {
    shards: [Shard; SHARDS],
    queue: Queue,
    pub(super) clock: Arc<dyn Clock>,
    /// How much longer a lease may live after a crash, in microseconds; 0 for as long as it likes.
    pub(super) interval: i64,
    /// The thread, once there may be leases: it is rung whenever there is something to look at earlier than
    /// before.
    pub(super) attendant: OnceLock<Attendant>,
}

#[derive(Debug, Default)]
struct Shard {
    state: Mutex<State>,
    /// Signalled when a claim has ended.
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<i64, Entry>,
    /// How many leases were taken out.
    removals: u64,
    renewals: u64,
    /// The last stamp that was given.
    stamps: u32,
    /// How many entries are nothing but a claim.
    empty: u64,
    /// How many threads wait for the end of a claim.
    waiting: u32,
}

/// What came of the wish to renew a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// It has this time to live again.
    Done(i64),
    /// Its time is over; the end has not come yet.
    Late,
    /// Its record has to be written first.
    Noted,
    /// It is not in the table.
    Unknown,
}

impl Table {
    pub(super) fn new(clock: Arc<dyn Clock>, interval: i64) -> Self {
        let (shards, queue, attendant) = Default::default();
        Self { shards, queue, clock, interval, attendant }
    }

    /// Puts leases into the queue.
    fn push(&self, leases: impl IntoIterator<Item = (Tick, i64)>) {
        if self.queue.push(leases)
            && let Some(attendant) = self.attendant.get()
        {
            attendant.ring();
        }
    }

    /// In which part of the table a lease is.
    pub(super) fn part(id: i64) -> usize {
        // Ids that were given in a row lie apart.
        let spread = id.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        usize::try_from(spread).unwrap_or(0) % SHARDS
    }

    fn shard(&self, id: i64) -> &Shard {
        &self.shards[Self::part(id)]
    }

    pub(super) fn now(&self) -> i64 {
        self.clock.elapsed_micros()
    }

    /// Renews a lease, if that is all there is to do. Waits for who claims it.
    pub(super) fn renew(&self, id: i64) -> Renewal {
        let shard = self.shard(id);
        let mut state = lock(&shard.state);
        loop {
            let State { entries, renewals, stamps, .. } = &mut *state;
            match entries.get_mut(&id) {
                None => return Renewal::Unknown,
                Some(entry) if entry.claimed => {}
                Some(entry) => {
                    let now = self.now();
                    if entry.is_due(now) {
                        return Renewal::Late;
                    }
                    if entry.is_noted() {
                        return Renewal::Noted;
                    }
                    entry.renew(now);
                    entry.stamp = next(stamps);
                    *renewals += 1;
                    return Renewal::Done(entry.ttl);
                }
            }
            state = shard.wait(state);
        }
    }

    /// Claims the id of a lease, whether there is one or not. Waits for who claims it now.
    pub(super) fn claim(&self, id: i64) -> Claim<'_> {
        let shard = self.shard(id);
        let mut state = lock(&shard.state);
        while state.entries.get(&id).is_some_and(|entry| entry.claimed) {
            state = shard.wait(state);
        }
        let State { entries, empty, .. } = &mut *state;
        let entry = entries.entry(id).or_insert_with(|| {
            *empty += 1;
            Entry::claim()
        });
        entry.claimed = true;
        Claim { table: self, id, entry: *entry, is_over: false }
    }

    /// Claims a lease that is due, if it is and nobody else does. `taken`: only if it is out of the queue;
    /// if somebody else does it is put back there, for whoever that is may leave it as it is.
    pub(super) fn claim_due(&self, id: i64, taken: bool) -> Option<Claim<'_>> {
        let shard = self.shard(id);
        let mut state = lock(&shard.state);
        let entry = state.entries.get_mut(&id)?;
        let now = self.now();
        if taken && entry.claimed && !entry.empty && entry.is_out() {
            let tick = entry.queue(tick_at(now).saturating_add(1));
            drop(state);
            self.push([(tick, id)]);
            return None;
        }
        if entry.claimed || !entry.is_due(now) || taken && !entry.is_out() {
            return None;
        }
        entry.claimed = true;
        Some(Claim { table: self, id, entry: *entry, is_over: false })
    }

    /// Adds a lease that was found in its record, if `removals` is how many had been taken out of its part
    /// of the table before the record was read. Else somebody may have revoked it since. Nor is it added while
    /// somebody claims its id who does not know of it, and may drop the claim: it would be in no table then.
    pub(super) fn adopt(&self, id: i64, entry: Entry, removals: u64) -> bool {
        let shard = self.shard(id);
        let mut state = lock(&shard.state);
        let known = state.entries.get(&id);
        let is_known = known.is_some_and(|entry| !entry.empty);
        if !is_known && (known.is_some() || state.removals != removals) {
            return false;
        }
        let place = (!is_known).then(|| {
            let mut entry = entry;
            let tick = entry.queue(entry.next_look(self.now(), self.interval));
            state.entries.insert(id, entry);
            state.stamp(id);
            (tick, id)
        });
        drop(state);
        self.push(place);
        true
    }

    /// How many leases have been taken out of each part of the table.
    pub(super) fn removals(&self) -> [u64; SHARDS] {
        std::array::from_fn(|part| lock(&self.shards[part].state).removals)
    }

    /// A lease as it is just now.
    pub(super) fn get(&self, id: i64) -> Option<Entry> {
        let state = lock(&self.shard(id).state);
        state.entries.get(&id).filter(|entry| !entry.empty).copied()
    }

    /// Whether a guard keeps a lease: one that was revoked nobody keeps, nor one that was granted with its id since.
    pub(super) fn keeps(&self, id: i64) -> bool {
        self.get(id).is_some_and(|entry| entry.kept)
    }

    /// Whether a lease has not been renewed since a note of it was taken, nor gone, and there is no newer
    /// note of it: of all notes of a lease one is current, so no transaction writes two.
    pub(super) fn is_current(&self, note: &Note) -> bool {
        let state = lock(&self.shard(note.id).state);
        state.entries.get(&note.id).is_some_and(|entry| entry.stamp == note.stamp)
    }

    /// No guard keeps a lease any longer.
    pub(super) fn let_go(&self, id: i64) {
        // It lies in the queue, where it was to be looked at well before its end.
        let now = self.now();
        if let Some(entry) = lock(&self.shard(id).state).entries.get_mut(&id) {
            entry.let_go(now);
        }
    }

    /// Takes leases that have come up out of the queue, one tick's, some thousands at most, and looks what
    /// is to be done. Answers whether there were any.
    pub(super) fn look(&self, found: &mut Found) -> bool {
        let Some((tick, ids)) = self.queue.pop(self.now()) else { return false };
        let later = ids.into_iter().filter_map(|id| {
            let mut state = lock(&self.shard(id).state);
            let entry = state.entries.get_mut(&id)?;
            match entry.look(tick, self.now(), self.interval) {
                Look::Gone => None,
                Look::Due(since) => {
                    found.due.push_back((since, id));
                    None
                }
                Look::Later(tick) => Some((tick, id)),
                Look::Record(value, tick) => {
                    // An older one that still waits to be written is void.
                    found.notes.push(Note { id, stamp: state.stamp(id), value });
                    Some((tick, id))
                }
            }
        });
        let later: Vec<(Tick, i64)> = later.collect();
        self.push(later);
        true
    }

    /// Notes of all leases that by their records have so much more time than they really have, in
    /// microseconds, from one part of the table after the other.
    pub(super) fn notes(&self, lost: i64) -> impl Iterator<Item = Vec<Note>> {
        self.shards.iter().map(move |shard| {
            let (mut state, now) = (lock(&shard.state), self.now());
            let State { entries, stamps, .. } = &mut *state;
            let unclaimed = entries.iter_mut().filter(|(_, entry)| !entry.claimed);
            let notes = unclaimed.filter_map(|(id, entry)| {
                let value = entry.note(now, lost)?;
                entry.stamp = next(stamps);
                Some(Note { id: *id, stamp: entry.stamp, value })
            });
            notes.collect()
        })
    }

    /// After how many microseconds there is something to look at, if ever.
    pub(super) fn until_next(&self) -> Option<u64> {
        let next = self.queue.next()?;
        Some(u64::try_from(next.saturating_sub(self.now())).unwrap_or(0))
    }

    /// How many leases there are, and how many renewals there have been.
    pub(super) fn counts(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(leases, renewals), shard| {
            let state = lock(&shard.state);
            (leases + state.entries.len() as u64 - state.empty, renewals + state.renewals)
        })
    }
}

fn next(stamps: &mut u32) -> u32 {
    *stamps = stamps.wrapping_add(1);
    *stamps
}

impl State {
    /// Has notes of an entry void. Answers its stamp from now on.
    fn stamp(&mut self, id: i64) -> u32 {
        let stamp = next(&mut self.stamps);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.stamp = stamp;
        }
        stamp
    }

    fn replace(&mut self, id: i64, entry: Option<Entry>) {
        let old = match entry {
            Some(entry) => self.entries.insert(id, entry),
            None => self.entries.remove(&id),
        };
        self.empty -= u64::from(old.is_some_and(|old| old.empty));
    }
}

/// What is to be done about leases that were looked at.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Those that are due, with the time since when.
    pub(super) due: VecDeque<(i64, i64)>,
    /// What is to be written into the records of others.
    pub(super) notes: Vec<Note>,
}

impl Shard {
    /// Waits until some claim has ended.
    fn wait<'s>(&self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        state.waiting += 1;
        let mut state = self.released.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }
}

/// The right to change what the record of a lease says. It ends as it is dropped, which leaves everything as
/// it was.
///
/// It is held while a record becomes durable, and who waits for that may lead the sync and wake the tasks of
/// others. So a waker must not call for a lease: it might wait for the claim of the thread it runs on.
#[must_use = "everybody else waits"]
pub(super) struct Claim<'t> {
    table: &'t Table,
    id: i64,
    /// As it was when it was claimed.
    pub(super) entry: Entry,
    is_over: bool,
}

impl Claim<'_> {
    pub(super) fn id(&self) -> i64 {
        self.id
    }

    /// Whether its time is over by now.
    pub(super) fn is_due(&self) -> bool {
        self.entry.is_due(self.table.now())
    }

    /// A note of what was before is void from now on.
    pub(super) fn void_notes(&self) {
        lock(&self.table.shard(self.id).state).stamp(self.id);
    }

    /// There is this lease now, with all of its time left.
    pub(super) fn put(self, value: Value, since: i64, kept: bool) {
        self.end(|table, state, id, now| {
            let mut entry = Entry::new(value, since);
            entry.kept = kept;
            let tick = entry.queue(entry.next_look(now, table.interval));
            state.replace(id, Some(entry));
            state.stamp(id);
            Some(tick)
        });
    }

    /// It has been renewed, and its record says so.
    pub(super) fn renewed(self) {
        self.end(|table, state, id, now| {
            let entry = state.entries.get_mut(&id)?;
            entry.claimed = false;
            entry.renew(now);
            entry.recorded_whole();
            state.renewals += 1;
            let is_out = entry.is_out();
            is_out.then(|| entry.queue(entry.next_look(now, table.interval)))
        });
    }

    /// There is no such lease any more.
    pub(super) fn remove(self) {
        self.end(|_, state, id, _| {
            state.replace(id, None);
            state.removals += 1;
            None
        });
    }

    fn end(mut self, how: impl FnOnce(&Table, &mut State, i64, i64) -> Option<Tick>) {
        self.is_over = true;
        self.table.release(self.id, how);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.table.release(self.id, |_, state, id, now| {
            let entry = state.entries.get_mut(&id)?;
            if entry.empty {
                state.replace(id, None);
                return None;
            }
            entry.claimed = false;
            entry.is_out().then(|| entry.queue(tick_at(now.saturating_add(RETRY_MICROS))))
        });
    }
}

impl Table {
    /// Ends a claim.
    fn release(&self, id: i64, how: impl FnOnce(&Self, &mut State, i64, i64) -> Option<Tick>) {
        let shard = self.shard(id);
        let mut state = lock(&shard.state);
        let tick = how(self, &mut state, id, self.now());
        let is_waited_for = state.waiting > 0;
        drop(state);
        if is_waited_for {
            shard.released.notify_all();
        }
        self.push(tick.map(|tick| (tick, id)));
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (leases, renewals) = self.counts();
        f.debug_struct("Table")
            .field("leases", &leases)
            .field("renewals", &renewals)
            .finish_non_exhaustive()
    }
}
