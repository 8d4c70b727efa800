//! Rules of retention: how far back the keys with a prefix can be read, and putting that in force.
//!
//! A rule is the record of a system key, so it is durable, ordered and recovered like any other write.
//! What readers and background work go by is a table of them in memory:
//!
//! ```text
//!   set_rule, apply_retention:    record ordered -> durable -> table published
//!   reader:                       pin R -> fence -> floors of the table and watermark -> refused, or not
//!   reclaim:                      floors of the table and watermark -> fence -> pins
//! ```
//!
//! Why nothing is dropped that a live view can ask for: reader and reclaim meet as [`super::pins`] says,
//! with the table in the place of the watermark. If reclaim does not see the pin, its fence is before the
//! reader's, so the reader finds the table that reclaim went by, or a later one, whose floors are not
//! lower, and is refused. A reader first looks at `highest`, which is raised before a table is published:
//! if no floor is above its revision, it need not load the table.
//!
//! Why nothing is answered that has been dropped or refused, not even after a crash: a table is published
//! when its records are durable, and the floor of a key never falls. A new rule begins with the floor
//! that its keys had; a rule taken back keeps its record until the rule that takes its place has come as
//! far ([`rules`]).
//!
//! Why a new rule keeps what it promises from its place in the order on: it is ordered only if the
//! watermark is still the one it was made with, and from before that until its table is published
//! reclaim goes by no higher watermark (`changing`). Reclaim learns the watermark first and looks at
//! `changing` then, with a fence between: so either it sees that, or its watermark is not above that of
//! the rule; or the change is over, and it finds the table.
//!
//! Records are written by this file alone, one change at a time, so the table is what the records say.

#[cfg(test)]
mod damaged_tests;
mod records;
mod rules;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::ops::Range;

use annals_format::retention::Rule;
use annals_format::space;
use bytes::Bytes;

use crate::commit::{Footprint, OrderError, Plan};
use crate::error::{Error, ErrorKind, Result};
use crate::index::Place;
use crate::reclaim::floors::Floors;
use crate::sync::epoch;
use crate::sync::plain::{AtomicI64, AtomicU64, Mutex, MutexGuard, lock, try_lock};
use crate::sync::{Arc, AtomicBool, Ordering, fence};

use super::core::Core;
use super::lost_past::LostPast;
use super::published::Published;
use super::scan::end_of_space;
use super::times::revision_at_time;
use super::transact::Older;

pub(super) use self::records::Records;
pub(super) use self::rules::Before;
use self::rules::Change;
pub(crate) use self::rules::{Limits, Rules};

/// Most rules of a store, those taken back and not yet forgotten included.
pub(crate) const RULES_MAX: usize = 64;

/// After how long rules are applied that could not be, as memory was full, in microseconds.
const SOON_MICROS: i64 = 1_000_000;

/// The rules in force. See the module.
#[derive(Debug)]
pub(super) struct Retention {
    table: Published<Arc<Rules>>,
    /// No rule has a floor above this.
    highest: AtomicU64,
    /// Whether there is a rule beside that of the empty prefix.
    any: AtomicBool,
    /// While a rule is being changed: the watermark from before; else `u64::MAX`.
    changing: AtomicU64,
    /// Held while records are written.
    writer: Mutex<()>,
    /// When the rules are to be applied next, by the elapsed time of the store's clock.
    due_at: AtomicI64,
}

impl Retention {
    /// No rules.
    pub(super) fn new() -> Self {
        Self {
            table: Published::new(Arc::new(Rules::new(Vec::new()))),
            highest: AtomicU64::new(0),
            any: AtomicBool::new(false),
            changing: AtomicU64::new(u64::MAX),
            writer: Mutex::new(()),
            due_at: AtomicI64::new(i64::MIN),
        }
    }

    /// As long as this is held, the table is what all records say, and all of these are durable.
    pub(super) fn still(&self) -> MutexGuard<'_, ()> {
        lock(&self.writer)
    }

    fn rules(&self) -> Arc<Rules> {
        Arc::clone(self.table.load(&epoch::pin()))
    }

    /// A watermark, and how far back the keys of each rule can be read with it, for the manifest. Both of one moment:
    /// a rule that was taken back goes when the watermark has come as far.
    pub(super) fn listed_with(&self, watermark: impl Fn() -> u64) -> (u64, Vec<(Vec<u8>, u64)>) {
        loop {
            let rules = self.rules();
            let compacted = watermark();
            if Arc::ptr_eq(&rules, &self.rules()) {
                return (compacted, rules.listed(compacted));
            }
        }
    }

    fn publish(&self, rules: Rules) {
        let highest = rules.prefixed.iter().map(|(_, rule)| rule.floor).max().unwrap_or(0);
        self.highest.fetch_max(highest, Ordering::SeqCst);
        let any = !rules.prefixed.is_empty();
        if any {
            self.any.store(true, Ordering::SeqCst);
        }
        let rules = Arc::new(rules);
        self.table.update(&epoch::pin(), |_| Some(Arc::clone(&rules)));
        if !any {
            self.any.store(false, Ordering::SeqCst);
        }
        Published::<Arc<Rules>>::tidy();
    }
}

/// While a rule is being changed.
struct Changing<'a>(&'a Retention);

impl<'a> Changing<'a> {
    fn begin(core: &'a Core) -> Self {
        let before = core.chain.durable_place().compacted;
        core.retention.changing.store(before, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Self(&core.retention)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.changing.store(u64::MAX, Ordering::SeqCst);
    }
}

impl Core {
    /// To be called by a reader after its pin of `requested` can be seen: what it is held to. `None`:
    /// every key can be read at that revision.
    ///
    /// # Errors
    /// `Compacted`: no key can.
    pub(super) fn limits_at(&self, requested: u64) -> Result<Option<Arc<Limits>>> {
        let compacted = self.compacted();
        if compacted <= requested && self.retention.highest.load(Ordering::SeqCst) <= requested {
            return Ok(None);
        }
        let limits = self.limits_now();
        if limits.floors.greatest() <= requested {
            return Ok(None);
        }
        if limits.floors.least() > requested {
            return Err(ErrorKind::Compacted { requested, compacted, prefix: None }.into());
        }
        Ok(Some(Arc::new(limits)))
    }

    /// What readers are held to as of now: rules and watermark of one moment. A later watermark would
    /// refuse what a new rule has begun to keep; later rules rely on their watermark, as those that are
    /// taken back go when it has come as far.
    fn limits_now(&self) -> Limits {
        loop {
            let rules = self.retention.rules();
            let compacted = self.compacted();
            if Arc::ptr_eq(&rules, &self.retention.rules()) {
                return Limits { floors: rules.floors(compacted), rules };
            }
        }
    }

    /// What readers are held to as of now, with this watermark.
    pub(super) fn limits_with(&self, compacted: u64) -> Limits {
        let rules = self.retention.rules();
        Limits { floors: rules.floors(compacted), rules }
    }

    /// Refuses to read a half-open range of internal keys, of a state with this watermark, as of
    /// `requested`. The empty end is the end of the space; an empty range is refused by the watermark.
    ///
    /// # Errors
    /// `Compacted`.
    pub(super) fn check_past(
        &self,
        range: Range<&[u8]>,
        requested: u64,
        compacted: u64,
    ) -> Result<()> {
        let end = if range.end.is_empty() { end_of_space(range.start) } else { range.end.to_vec() };
        if self.retention.any.load(Ordering::SeqCst) && range.start < end.as_slice() {
            return self.limits_with(compacted).check(range.start..&end, requested);
        }
        if compacted > requested {
            return Err(ErrorKind::Compacted { requested, compacted, prefix: None }.into());
        }
        Ok(())
    }

    /// The oldest revision at which an internal key can be read.
    pub(super) fn floor_of(&self, key: &[u8]) -> u64 {
        let any = self.retention.any.load(Ordering::SeqCst);
        if any { self.limits_now().floors.of(key) } else { self.compacted() }
    }

    /// The oldest revision at which any key can be read, with this watermark.
    pub(super) fn least_floor(&self, compacted: u64) -> u64 {
        self.limits_with(compacted).floors.least()
    }

    /// The oldest revision at which all keys of a range of internal keys can be read; an empty end is the
    /// end of the space. Of an empty range it is the watermark.
    pub(super) fn floor_of_range(&self, range: Range<&[u8]>) -> u64 {
        let end = if range.end.is_empty() { end_of_space(range.start) } else { range.end.to_vec() };
        if range.start >= end.as_slice() {
            return self.compacted();
        }
        let Limits { floors, .. } = self.limits_now();
        floors.strictest(range.start..&end).map_or(0, |class| floors.of_class(class))
    }

    /// Of each key the oldest revision that somebody may ask for, now or after a crash; what is below
    /// may go. Nothing may once newest versions could not be read: what repairs them is what else there is.
    pub(super) fn keep_floors(&self) -> Floors {
        let (oldest, floors) = self.pins.keep(|| {
            let compacted = self.chain.durable_place().compacted;
            fence(Ordering::SeqCst);
            let changing = self.retention.changing.load(Ordering::SeqCst);
            let floors = self.retention.rules().floors(compacted).capped(changing);
            (floors.greatest(), floors)
        });
        floors.capped(if self.context.has_unreadable() { 0 } else { oldest })
    }

    /// The rules in force, where there are any beside that of the empty prefix.
    pub(super) fn rules_seen(&self) -> Option<Arc<Rules>> {
        self.retention.any.load(Ordering::SeqCst).then(|| self.retention.rules())
    }

    /// Every rule with its prefix and the oldest revision at which its keys can be read.
    pub(super) fn rules(&self) -> Vec<(Bytes, Rule)> {
        let limits = self.limits_now();
        let floor = |prefix: &Bytes| {
            let class = limits.floors.classes().of(&[&[space::USER], &prefix[..]].concat());
            limits.floors.of_class(if prefix.is_empty() { 0 } else { class })
        };
        limits.rules.all().map(|(p, rule)| (p.clone(), Rule { floor: floor(&p), ..rule })).collect()
    }

    /// Sets the rule of a prefix, or takes it back. Durable when it returns.
    ///
    /// # Errors
    /// `TooManyRules`; what keeps the store from writing; `OutcomeUnknown` if the sync fails.
    pub(super) fn set_rule(&self, prefix: &[u8], wanted: Option<Rule>) -> Result<()> {
        let _writer = lock(&self.retention.writer);
        let old = self.retention.rules();
        self.change(true, &|place| {
            let rules = old.edited(prefix, wanted, place.compacted);
            let count = rules.all().count();
            if count > RULES_MAX && count > old.all().count() {
                return Err(ErrorKind::TooManyRules { max: RULES_MAX as u64 }.into());
            }
            Ok(Some(Change { rules, compact: None }))
        })?;
        Ok(())
    }

    /// Brings every rule to where it has come by now. Answers whether a floor rose.
    ///
    /// # Errors
    /// As [`set_rule`](Self::set_rule); what reading the times of revisions answers.
    pub(super) fn apply_retention(&self) -> Result<bool> {
        self.check_writable()?;
        let _writer = lock(&self.retention.writer);
        Ok(self.apply(true)?.unwrap_or(false))
    }

    /// The same, if it is time for that. It waits for no room in memory, which this thread may have to
    /// make.
    pub(super) fn apply_retention_when_due(&self) -> Result<bool> {
        if self.until_retention() != Some(0) {
            return Ok(false);
        }
        self.check_writable()?;
        let applied = match try_lock(&self.retention.writer) {
            Some(_writer) => self.apply(false),
            None => Ok(None),
        };
        let interval = i64::try_from(self.options.retention_interval_micros()).unwrap_or(i64::MAX);
        let wait = if matches!(applied, Ok(None)) { SOON_MICROS.min(interval) } else { interval };
        let due_at = self.shared.elapsed_micros().saturating_add(wait);
        self.retention.due_at.store(due_at, Ordering::Relaxed);
        // A file that cannot be read is read again next time, unlike what background work chooses.
        if !applied.as_ref().is_err_and(Error::is_damage) {
            self.note_failure(&applied);
        }
        Ok(applied?.unwrap_or(false))
    }

    /// How many microseconds are left until rules are to be applied, if they are to be.
    pub(super) fn until_retention(&self) -> Option<u64> {
        if self.options.retention_interval_micros() == 0 || self.check_writable().is_err() {
            return None;
        }
        if !self.retention.table.load(&epoch::pin()).act() {
            return None;
        }
        let left = self.retention.due_at.load(Ordering::Relaxed);
        Some(u64::try_from(left.saturating_sub(self.shared.elapsed_micros())).unwrap_or(0))
    }

    /// Gives up the past of keys that is lost, and what was forgotten `before` by rules
    /// and compactions that are lost: the rules of these keys rise, and the watermark. Durable when it returns. Answers
    /// which keys cannot be read as far back as before, by prefix, as that is lost, or as their rule is.
    ///
    /// # Errors
    /// As [`set_rule`](Self::set_rule).
    pub(super) fn give_up(&self, lost: &[LostPast], before: &Before<'_>) -> Result<Vec<LostPast>> {
        let _writer = lock(&self.retention.writer);
        let old = self.retention.rules();
        let given_up = RefCell::new(Vec::new());
        self.change(true, &|place| {
            let (change, by_loss) = old.without(lost, before, place);
            given_up.replace(by_loss);
            Ok(change)
        })?;
        let (rules, compacted) = (self.retention.rules(), self.compacted());
        let floors = rules.floors(compacted);
        let mut given_up = given_up.into_inner();
        for (prefix, floor) in before.floors {
            let has_rule = rules.all().any(|(other, rule)| other == *prefix && !rule.removed);
            let now = floors.of(&[&[space::USER], &prefix[..]].concat());
            let is_told = given_up.iter().any(|lost| lost.prefix == *prefix);
            if !has_rule && now > *floor && !is_told {
                given_up.push(LostPast { prefix: prefix.clone(), upto: now - 1 });
            }
        }
        Ok(given_up)
    }

    /// For who holds `writer`. `None`: memory is full.
    fn apply(&self, patient: bool) -> Result<Option<bool>> {
        let old = self.retention.rules();
        if !old.act() {
            return Ok(Some(false));
        }
        let mut wanted = Vec::new();
        for (prefix, rule) in old.all().filter(|(_, rule)| !rule.removed) {
            let floor = match self.floor_by(&rule) {
                // Times that cannot be read keep more; that is no reason to refuse writes. Whoever asks
                // for it to be done is told.
                Err(error) if !patient && error.is_damage() => 0,
                found => found?,
            };
            wanted.push((prefix, floor));
        }
        self.change(patient, &|place| Ok(old.raised(&wanted, place.compacted)))
    }

    /// The oldest revision that a rule keeps as of now; 0 if it keeps all.
    fn floor_by(&self, rule: &Rule) -> Result<u64> {
        let newest = self.visible().revision;
        let by_revisions = rule.revisions.map(|count| newest.saturating_sub(count));
        let by_age = match rule.age {
            None => None,
            Some(age) => {
                let age = i64::try_from(age).unwrap_or(i64::MAX);
                let then = self.shared.wall_micros().saturating_sub(age);
                Some(match revision_at_time(self, then) {
                    // Nothing is as old, or only the empty store.
                    Err(error) => match *error.kind() {
                        ErrorKind::NoRevisionAtTime { .. } => 0,
                        ErrorKind::TimeUnknown { first, .. } => first,
                        _ => return Err(error),
                    },
                    Ok(1) => 0,
                    Ok(found) => found.min(newest),
                })
            }
        };
        // Both: what either keeps.
        Ok(by_revisions.into_iter().chain(by_age).min().unwrap_or(0))
    }

    /// Orders what `decide` makes of the newest state, makes it durable, and puts it in force; for who
    /// holds `writer`. Answers whether there was anything to change; `None` if memory is full, or the
    /// disk where the log needs it, and this is not to wait.
    fn change(
        &self,
        patient: bool,
        decide: &dyn Fn(Place) -> Result<Option<Change>>,
    ) -> Result<Option<bool>> {
        let old = self.retention.rules();
        let changing = Changing::begin(self);
        let mut doubled = 0;
        let (rules, position) = loop {
            // However many generations wait for their flush, there is room for this in the one of now, and where the
            // disk is full it may be what gives the space back that a flush needs. Else it is not urgent.
            if !patient && self.must_wait_for_flush() && self.no_room().is_none() {
                return Ok(None);
            }
            let guard = epoch::pin();
            self.check_writable()?;
            let snapshot = self.chain.begin(&guard);
            let place = snapshot.place();
            let Some(Change { rules, compact }) = decide(place)? else { return Ok(Some(false)) };
            let reads = Footprint { oldest_read: Some(place.compacted), ..Footprint::default() };
            let writes = rules.writes_over(&old).collect();
            let plan = Plan { writes, compact, reads, doubled, ..Plan::default() };
            if plan.writes.is_empty() && compact.is_none() {
                return Ok(Some(false));
            }
            match self.chain.order(&snapshot, &plan, &Older { core: self }) {
                Ok(ordered) => break (rules, ordered.position),
                Err(OrderError::Conflict) => {}
                Err(OrderError::NoRoom { doubled: asked }) => {
                    doubled = asked;
                    if !patient {
                        return Ok(None);
                    }
                    drop(guard);
                    self.wait_for_flush()?;
                }
                Err(OrderError::LogFull { logged_bytes, frame_bytes }) => {
                    drop(guard);
                    // Nothing that the background thread would have to do itself.
                    match self.wait_for_log((logged_bytes, frame_bytes), compact.is_some()) {
                        Err(_) if !patient => return Ok(None),
                        made => made?,
                    }
                }
                Err(OrderError::Failed(error)) => return Err(error),
            }
        };
        if let Err(error) = self.chain.wait(position, false) {
            // Nobody knows which rules there are: what either keeps stays.
            std::mem::forget(changing);
            return Err(error);
        }
        self.retention.publish(rules);
        drop(changing);
        self.swept.store(0, Ordering::Relaxed);
        self.shared.worker.ring();
        Ok(Some(true))
    }
}
