//! When to look at which lease.
//!
//! Time is cut into ticks. A lease lies in the queue once, in a tick that is not later than the next thing
//! that can happen to it; a renewal does not move it. Whoever takes it out looks what has become of it,
//! and puts it back if its time has not come.

use std::collections::BTreeMap;

use crate::sync::plain::{Mutex, lock};

/// Length of a tick, in microseconds: a lease ends at most so much too late, and never too early.
pub(super) const TICK_MICROS: i64 = 100_000;

/// How many leases are taken at a time.
pub(super) const PIECE: usize = 4096;

/// The number of a stretch of time, by the store's clock of elapsed time.
pub(super) type Tick = i64;

/// The first tick that begins at a time or after it.
pub(super) fn tick_at(micros: i64) -> Tick {
    micros.div_euclid(TICK_MICROS).saturating_add(i64::from(micros.rem_euclid(TICK_MICROS) != 0))
}

/// Leases by the tick in which to look at them. One mutex: renewals, of which there are many, do not come
/// here.
#[derive(Debug, Default)]
pub(super) struct Queue(Mutex<BTreeMap<Tick, Vec<i64>>>);

impl Queue {
    /// Puts leases in. Answers whether one of them is now the first of all.
    pub(super) fn push(&self, leases: impl IntoIterator<Item = (Tick, i64)>) -> bool {
        let mut ticks = lock(&self.0);
        let first = ticks.first_key_value().map_or(Tick::MAX, |(tick, _)| *tick);
        let mut is_first = false;
        for (tick, lease) in leases {
            is_first |= tick < first;
            ticks.entry(tick).or_default().push(lease);
        }
        is_first
    }

    /// Takes out some leases of the first tick, if that has begun by a time.
    pub(super) fn pop(&self, now: i64) -> Option<(Tick, Vec<i64>)> {
        let mut ticks = lock(&self.0);
        let mut first = ticks.first_entry()?;
        let tick = *first.key();
        if tick.saturating_mul(TICK_MICROS) > now {
            return None;
        }
        let left = first.get().len().saturating_sub(PIECE);
        let taken = first.get_mut().split_off(left);
        if left == 0 {
            first.remove();
        }
        Some((tick, taken))
    }

    /// When the first tick begins.
    pub(super) fn next(&self) -> Option<i64> {
        let ticks = lock(&self.0);
        ticks.first_key_value().map(|(tick, _)| tick.saturating_mul(TICK_MICROS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_does_not_begin_before_the_time() {
        for (micros, tick) in [
            (0, 0),
            (1, 1),
            (99_999, 1),
            (100_000, 1),
            (100_001, 2),
            (-1, 0),
            (-100_000, -1),
            (-100_001, -1),
            (i64::MAX, i64::MAX / TICK_MICROS + 1),
        ] {
            assert_eq!(tick_at(micros), tick, "{micros}");
        }
    }

    #[test]
    fn leases_come_out_in_the_order_of_their_ticks_and_not_before() {
        let queue = Queue::default();
        assert_eq!((queue.next(), queue.pop(i64::MAX)), (None, None));
        assert!(queue.push([(5, 50), (3, 30)]));
        assert!(!queue.push([(3, 31), (4, 40)]));
        assert!(!queue.push([]));
        assert!(queue.push([(2, 20)]));
        assert_eq!(queue.next(), Some(200_000));
        assert_eq!(queue.pop(199_999), None);
        assert_eq!(queue.pop(200_000), Some((2, vec![20])));
        assert_eq!(queue.pop(299_999), None);
        assert_eq!(queue.pop(1_000_000), Some((3, vec![30, 31])));
        assert_eq!(queue.pop(1_000_000), Some((4, vec![40])));
        assert_eq!(queue.pop(1_000_000), Some((5, vec![50])));
        assert_eq!((queue.next(), queue.pop(i64::MAX)), (None, None));
    }

    #[test]
    fn a_full_tick_comes_out_in_pieces_and_whole() {
        let queue = Queue::default();
        let many = 2 * PIECE + 7;
        queue.push((0..).take(many).map(|lease| (1, lease)));
        let mut found = Vec::new();
        let mut pieces = 0;
        while let Some((1, piece)) = queue.pop(TICK_MICROS) {
            assert!(piece.len() <= PIECE);
            found.extend(piece);
            pieces += 1;
        }
        found.sort_unstable();
        assert_eq!((pieces, found), (3, (0..).take(many).collect()));
        assert_eq!(queue.next(), None);
    }
}
