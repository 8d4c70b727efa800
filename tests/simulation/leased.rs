//! Leases of a run: none ends before its time, each ends with all its keys at one revision.

use std::collections::BTreeMap;

use annals::Store;
use annals::clock::{Clock as _, ManualClock};

use crate::support::check::{Found, good, same};
use crate::support::model::Model;

/// Within this much a lease whose time is over has ended, where somebody looks; in microseconds.
const TICK: i64 = 200_000;

/// A request takes a millisecond by the clock, and times are kept in milliseconds.
const SOON: i64 = 5_000;

/// When leases are due, by the clock that never goes back; and how many changes there had been when each was known.
#[derive(Debug, Default)]
pub(crate) struct Leased(BTreeMap<i64, (i64, usize)>);

impl Leased {
    /// Knows leases that have come, and forgets those that have gone.
    pub(crate) fn follow(&mut self, model: &Model, clock: &ManualClock) {
        self.0.retain(|id, _| model.leases().contains_key(id));
        for (id, ttl) in model.leases() {
            let due = clock.elapsed_micros() + ttl * 1_000_000;
            self.0.entry(*id).or_insert((due, model.len()));
        }
    }

    pub(crate) fn renewed(&mut self, id: i64, ttl: i64, clock: &ManualClock) {
        if let Some((due, _)) = self.0.get_mut(&id) {
            *due = clock.elapsed_micros() + ttl * 1_000_000;
        }
    }

    pub(crate) fn some(&self, nth: usize) -> Option<i64> {
        self.0.keys().nth(nth % self.0.len().max(1)).copied()
    }

    /// Moves the clock until of every lease it is certain whether it is due. Answers those that are.
    pub(crate) fn due(&self, clock: &ManualClock) -> Vec<i64> {
        loop {
            let now = clock.elapsed_micros();
            let unsure = |due: i64| (now - TICK..=now + SOON).contains(&due);
            if !self.0.values().any(|(due, _)| unsure(*due)) {
                break;
            }
            clock.advance(TICK);
        }
        let now = clock.elapsed_micros();
        self.0.iter().filter(|it| it.1.0 <= now).map(|(id, _)| *id).collect()
    }

    /// After an opening leases have at least the time that they had; it may be more after a crash.
    pub(crate) fn reopened(&mut self, store: &Store, model: &Model, clock: &ManualClock) -> Found {
        let now = clock.elapsed_micros();
        let before = std::mem::take(&mut self.0);
        for (id, ttl) in model.leases() {
            let what = || format!("lease {id}");
            let status = good(what, store.lease_time_to_live(*id, false))?;
            let status = status.ok_or_else(|| format!("lease {id} is gone"))?;
            let left = i64::try_from(status.remaining.as_micros()).unwrap();
            same(what, &status.granted_ttl, ttl)?;
            // One that was granted since may be lost, and the one of the same number before it be there again.
            let known = before.get(id).filter(|(_, changes)| *changes <= model.len());
            let least = known.map_or(0, |(due, _)| (due - now).max(0));
            if left + 1_000 < least || left > ttl * 1_000_000 {
                return Err(format!("lease {id} has {left} us left, not {least}, of {ttl} s"));
            }
            self.0.insert(*id, (now + left, model.len()));
        }
        Ok(())
    }
}
