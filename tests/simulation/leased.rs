//! Leases of a run: none ends before its time, each ends with all its keys at one revision.

use std::collections::BTreeMap;

use annals::Store;
use annals::clock::{Clock as _, ManualClock};
use bytes::Bytes;

use crate::run::Simulation;
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

/// The steps in which time passes.
impl Simulation {
    /// Time passes, and what is due is done.
    pub(crate) fn time(&mut self) -> Found {
        let micros = self.random.below(20_000_000).cast_signed();
        self.tell("time", &micros);
        self.core.driver.clock.advance(micros);
        if self.random.one_in(3) {
            // The clock of the wall jumps, which is nothing to leases.
            let now = self.core.driver.clock.now_micros();
            let jump = self.random.below(20_000_000).cast_signed();
            self.core.driver.clock.set_now(now + jump);
        }
        self.expire()
    }

    /// Leases that are due end. Of one it is known what becomes of the store, whatever fails or stops meanwhile; which
    /// of several ends first is the store's choice, so nothing fails then.
    pub(crate) fn expire(&mut self) -> Found {
        let Some(store) = self.core.store.clone() else { return Ok(()) };
        if self.core.poisoned {
            return Ok(());
        }
        let due = self.leased.due(&self.core.driver.clock);
        if due.is_empty() {
            return Ok(());
        }
        self.tell("expire", &due);
        let now = self.core.driver.clock.now_micros();
        let several = due.len() > 1;
        if several {
            if self.fired() {
                self.core.store = None;
                return Ok(());
            }
            self.disarm();
        } else {
            self.revoked(due[0], now)?;
        }
        let before = store.revision();
        loop {
            match store.run_background() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.core.tolerate(&error)?;
                    break;
                }
            }
        }
        if several {
            self.ended(&store, before, due.clone(), now)?;
        }
        let list = store.lease_list();
        if self.fired() {
            // How far it came is seen at the next opening.
            self.core.store = None;
            return Ok(());
        }
        let list = good(|| "leases".into(), list)?;
        let found: BTreeMap<i64, i64> = list.iter().map(|lease| (lease.id, lease.ttl)).collect();
        let mut truth = self.core.driver.model();
        same(|| format!("leases after {due:?}"), &found, truth.model.leases())?;
        same(|| "revision".into(), &store.revision(), &truth.model.revision())?;
        if self.core.driver.sync {
            truth.acknowledged = truth.model.len();
        }
        self.counts.expired += due.len() as u64;
        drop(truth);
        let model = self.core.driver.model().model.clone();
        self.leased.follow(&model, &self.core.driver.clock);
        Ok(())
    }

    fn revoked(&self, id: i64, now: i64) -> Found {
        let ended = self.core.driver.model().model.expire(id, now);
        ended.map(drop).map_err(|refused| format!("lease {id}: {refused:?}"))
    }

    /// Several leases have ended: each with all its keys at one revision.
    fn ended(&self, store: &Store, before: u64, mut due: Vec<i64>, now: i64) -> Found {
        for transaction in store.log(before + 1..) {
            let changes = good(|| "log".into(), transaction)?.changes;
            let keys: Vec<Bytes> = changes.into_iter().map(|change| change.key).collect();
            let attached = |id: &i64| self.core.driver.model().model.attached(*id) == keys;
            let at = due.iter().position(attached);
            let at = at.ok_or_else(|| format!("{keys:?} went, of no lease of {due:?}"))?;
            self.revoked(due.remove(at), now)?;
        }
        due.into_iter().try_for_each(|id| self.revoked(id, now))
    }

    pub(crate) fn keep_alive(&mut self) -> Found {
        self.expire()?;
        let Some(store) = self.core.store.clone() else { return Ok(()) };
        let nth = self.random.index(8);
        let Some(id) = self.leased.some(nth) else { return Ok(()) };
        self.tell("keep alive", &id);
        match store.lease_keep_alive(id) {
            Ok(ttl) => {
                self.leased.renewed(id, ttl, &self.core.driver.clock);
                Ok(())
            }
            Err(error) => self.core.tolerate(&error),
        }
    }
}
