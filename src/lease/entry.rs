//! One lease in memory: when it ends, and what its record says.

use annals_format::lease::Value;

use super::queue::{TICK_MICROS, Tick, tick_at};

/// Each lease is looked at after this time at the latest, so that what is left in the queue of one that was
/// revoked goes.
pub(super) const LOOK_MICROS_MAX: i64 = 60_000_000;

/// A lease that is out of the queue: it is due, or on its way back.
const OUT: Tick = Tick::MAX;

/// One lease. All times are the store's clock of elapsed time, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// When it ends.
    pub(super) deadline: i64,
    /// The tick in which it lies in the queue. What is found there in another one is left from before.
    queued: Tick,
    /// The time to live in seconds.
    pub(super) ttl: i64,
    /// The time that is left by its record, in milliseconds. It is never less than what is really left,
    /// unless the record is just being written, or the lease renewed.
    recorded: u64,
    /// Another one after each grant, renewal and note, also if it is another lease with the same id.
    pub(super) stamp: u32,
    /// Whether somebody grants, revokes or ends it, or writes down that it was renewed. Until that one is
    /// through everybody else waits.
    pub(super) claimed: bool,
    /// Whether there is no such lease, only somebody who claims its id.
    pub(super) empty: bool,
    /// Whether it is renewed for as long as a guard lives.
    pub(super) kept: bool,
}

/// What a look at a lease from the queue comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It is gone, or lies elsewhere by now.
    Gone,
    /// It is due since this time. It does not go back into the queue.
    Due(i64),
    /// Nothing is to be done before this tick, where it is to be put.
    Later(Tick),
    /// Its record is to be written; and as before.
    Record(Value, Tick),
}

/// What a record is to say, if the lease has not been renewed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) id: i64,
    pub(super) stamp: u32,
    pub(super) value: Value,
}

impl Entry {
    /// A lease with so much time left by its record, since a moment.
    pub(super) fn new(value: Value, since: i64) -> Self {
        let recorded = value.remaining_millis();
        Self {
            deadline: after(since, recorded),
            queued: OUT,
            ttl: value.ttl,
            recorded,
            stamp: 0,
            claimed: false,
            empty: false,
            kept: false,
        }
    }

    /// Nothing but a claim.
    pub(super) fn claim() -> Self {
        let nothing = Self::new(Value::default(), 0);
        Self { claimed: true, empty: true, ..nothing }
    }

    fn whole(&self) -> Value {
        Value { ttl: self.ttl, remaining: None }
    }

    /// Gives it all its time again.
    pub(super) fn renew(&mut self, now: i64) {
        self.deadline = after(now, self.whole().whole_millis());
    }

    /// No guard keeps it any longer. Where nobody has renewed it in time, this does: the guard lived until now.
    pub(super) fn let_go(&mut self, now: i64) {
        if self.kept && self.left(now) < self.whole().whole_millis() / 3 * 2 {
            self.renew(now);
        }
        self.kept = false;
    }

    /// Its record says that all of its time is left.
    pub(super) fn recorded_whole(&mut self) {
        self.recorded = self.whole().whole_millis();
    }

    /// Whether its record has to be written when it is renewed: it says that less than all is left.
    pub(super) fn is_noted(&self) -> bool {
        self.recorded < self.whole().whole_millis()
    }

    /// Whether it has to end.
    pub(super) fn is_due(&self, now: i64) -> bool {
        !self.empty && !self.kept && now >= self.deadline
    }

    /// Whether it has to be put into the queue.
    pub(super) fn is_out(&self) -> bool {
        self.queued == OUT
    }

    /// What is left of its time, in milliseconds.
    pub(super) fn left(&self, now: i64) -> u64 {
        let left = u64::try_from(self.deadline.saturating_sub(now)).unwrap_or(0);
        // Upwards: what is written down is never too little.
        left.div_ceil(1000).min(self.whole().whole_millis())
    }

    /// Says where in the queue it will lie.
    pub(super) fn queue(&mut self, tick: Tick) -> Tick {
        // Nothing is looked at that late.
        self.queued = tick.min(OUT - 1);
        self.queued
    }

    /// When to look at it next.
    pub(super) fn next_look(&self, now: i64, interval: i64) -> Tick {
        let most = now.saturating_add(LOOK_MICROS_MAX);
        if self.kept {
            let third = after(0, self.whole().whole_millis() / 3);
            let often = if interval > 0 { third.min(interval) } else { third };
            return tick_at(now.saturating_add(often).min(most)) - 1;
        }
        let mut tick = tick_at(self.deadline.min(most));
        if interval > 0 {
            // When so much is lost that a record is due; those of one grain together.
            let due =
                self.deadline.saturating_sub(after(0, self.recorded)).saturating_add(interval);
            let grain = grain(interval);
            tick = tick.min(tick_at(due.div_euclid(grain).saturating_mul(grain)));
        }
        tick
    }

    /// Whether by its record it has so much more time than it really has that another one is due. Then it is
    /// taken as written.
    pub(super) fn note(&mut self, now: i64, lost: i64) -> Option<Value> {
        let left = self.left(now);
        if self.empty || self.kept || after(0, self.recorded.saturating_sub(left)) < lost {
            return None;
        }
        self.recorded = left;
        Some(Value { remaining: Some(left), ..self.whole() })
    }

    /// A look at it, as it comes out of the queue.
    pub(super) fn look(&mut self, tick: Tick, now: i64, interval: i64) -> Look {
        if self.empty || self.queued != tick {
            return Look::Gone;
        }
        if self.claimed {
            // Whoever claims it has not put it anywhere.
            return Look::Later(self.queue(tick_at(now).saturating_add(1)));
        }
        if self.is_due(now) {
            self.queued = OUT;
            return Look::Due(self.deadline);
        }
        if self.kept {
            self.renew(now);
        }
        let lost = interval - grain(interval);
        let note = if interval > 0 { self.note(now, lost) } else { None };
        // Not in this tick again, which would never end: a note may be a rounding short of being due.
        let tick = self.next_look(now, interval).max(now.div_euclid(TICK_MICROS).saturating_add(1));
        let tick = self.queue(tick);
        note.map_or(Look::Later(tick), |note| Look::Record(note, tick))
    }
}

/// Records are written as much too early as this at most, so that many are written together.
pub(super) fn grain(interval: i64) -> i64 {
    (interval / 16).max(TICK_MICROS)
}

/// The time so many milliseconds after another.
fn after(since: i64, millis: u64) -> i64 {
    let micros = i64::try_from(millis).unwrap_or(i64::MAX).saturating_mul(1000);
    since.saturating_add(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const MINUTE: i64 = 60 * SECOND;

    fn granted(ttl: i64, now: i64) -> Entry {
        Entry::new(Value { ttl, remaining: None }, now)
    }

    /// Puts it where it says it wants to be looked at, and looks at it then.
    fn next(entry: &mut Entry, now: i64, interval: i64) -> (i64, Look) {
        let tick = entry.next_look(now, interval);
        entry.queue(tick);
        let then = (tick * TICK_MICROS).max(now);
        (then, entry.look(tick, then, interval))
    }

    #[test]
    fn a_lease_is_due_at_its_time_and_not_before() {
        let mut entry = granted(2, SECOND);
        assert!(!entry.is_due(3 * SECOND - 1) && entry.is_due(3 * SECOND));
        assert_eq!(next(&mut entry, SECOND, 0), (3 * SECOND, Look::Due(3 * SECOND)));
        assert!(entry.is_due(3 * SECOND) && entry.is_out());
        // Between two ticks: in the next one.
        let mut entry = granted(2, SECOND + 1);
        let due = Look::Due(3 * SECOND + 1);
        assert_eq!(next(&mut entry, SECOND + 1, 0), (3 * SECOND + TICK_MICROS, due));
    }

    #[test]
    fn a_renewed_lease_is_found_later_when_it_comes_up() {
        let mut entry = granted(2, 0);
        let tick = entry.next_look(0, 0);
        entry.queue(tick);
        entry.renew(SECOND);
        assert_eq!(entry.look(tick, 2 * SECOND, 0), Look::Later(30));
        assert_eq!(entry.look(tick, 2 * SECOND, 0), Look::Gone, "it lies elsewhere");
        assert_eq!(entry.look(30, 3 * SECOND, 0), Look::Due(3 * SECOND));
    }

    #[test]
    fn what_is_left_is_rounded_up_and_never_more_than_all() {
        let entry = granted(2, 0);
        let left = [-1, 0, 1, 1000, 1_999_999, 2_000_000, i64::MAX].map(|now| entry.left(now));
        assert_eq!(left, [2000, 2000, 2000, 1999, 1, 0, 0]);
        let longest = granted(i64::MAX, 1);
        assert_eq!(longest.deadline, i64::MAX);
        assert!(!longest.is_due(i64::MAX - 1));
    }

    #[test]
    fn a_record_is_written_before_an_interval_is_lost() {
        let mut entry = granted(3600, 0);
        let (mut now, mut recorded, mut written) = (0, 3_600_000, 0);
        loop {
            let (then, look) = next(&mut entry, now, MINUTE);
            assert!(then > now || written == 0, "it gets on: {now}");
            assert!(recorded - entry.left(then) <= 60_000 || !matches!(look, Look::Later(_)));
            now = then;
            match look {
                Look::Record(value, _) => {
                    let left = value.remaining.unwrap();
                    assert_eq!(left, entry.left(now));
                    let lost = recorded - left;
                    assert!((56_250..=60_000).contains(&lost), "lost {lost}");
                    (recorded, written) = (left, written + 1);
                }
                Look::Later(_) => {}
                Look::Due(3_600_000_000) => break,
                other => panic!("{other:?}"),
            }
        }
        assert!((59..=64).contains(&written), "{written} records");
    }

    #[test]
    fn a_lease_renewed_often_enough_is_never_recorded() {
        let mut entry = granted(90, 0);
        let mut now = 0;
        let mut looks = 0;
        while now < 100 * MINUTE {
            let tick = entry.next_look(now, MINUTE);
            entry.queue(tick);
            let then = tick * TICK_MICROS;
            // Every 30 s.
            let renewals = now / (30 * SECOND) + 1..=then / (30 * SECOND);
            renewals.for_each(|n| entry.renew(n * 30 * SECOND));
            assert!(matches!(entry.look(tick, then, MINUTE), Look::Later(_)), "{then}");
            (now, looks) = (then, looks + 1);
        }
        assert!(looks < 250, "{looks} looks");
        assert!(!entry.is_noted());
    }

    #[test]
    fn a_kept_lease_is_renewed_by_each_look() {
        let mut entry = granted(3, 0);
        entry.kept = true;
        let mut now = 0;
        for _ in 0..100 {
            let (then, look) = next(&mut entry, now, MINUTE);
            assert!(matches!(look, Look::Later(_)) && then - now <= SECOND, "{look:?}");
            assert_eq!(entry.deadline, then + 3 * SECOND);
            now = then;
        }
        entry.kept = false;
        let ended = (0..10).find_map(|_| {
            let (then, look) = next(&mut entry, now, MINUTE);
            now = then;
            matches!(look, Look::Due(_)).then_some(then)
        });
        assert_eq!(ended, Some(entry.deadline));
    }

    #[test]
    fn a_claimed_lease_stays_in_the_queue() {
        let mut entry = granted(1, 0);
        entry.queue(10);
        entry.claimed = true;
        assert_eq!(entry.look(10, 2 * SECOND, MINUTE), Look::Later(21));
        entry.claimed = false;
        assert_eq!(entry.look(21, 2 * SECOND + TICK_MICROS, MINUTE), Look::Due(SECOND));
        assert_eq!(Entry::claim().look(Tick::MAX, i64::MAX, MINUTE), Look::Gone);
    }
}
