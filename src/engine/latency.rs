//! How long commits and syncs take: counts by duration, which cost a few instructions to keep.
//!
//! Durations are sorted into buckets, four to each doubling, so a figure read off them is at most a quarter
//! too large. What waits for a sync is measured each time. A commit that waits for nothing takes little longer
//! than a look at the clock: of those each thread measures its first and then one in [`SAMPLED`].

use std::cell::Cell;

use crate::clock::Stopwatch;
use crate::options::Durability;
use crate::sync::Ordering;
use crate::sync::plain::AtomicU64;

/// Of so many commits that wait for no sync one is measured.
const SAMPLED: u32 = 64;

/// Durations below 2 to the power of this, in nanoseconds, are not told apart: 64 ns.
const LEAST_BITS: u32 = 6;

/// Nor are those from 2 to the power of this on: 69 s.
const MOST_BITS: u32 = 36;

/// Buckets of each doubling: 2 to the power of this.
const PART_BITS: u32 = 2;

const BUCKETS: usize = 1 + (((MOST_BITS - LEAST_BITS) as usize) << PART_BITS);

/// Durations, counted. Threads add to it at the same time.
#[derive(Debug)]
pub(super) struct Durations {
    counts: [AtomicU64; BUCKETS],
    max_nanos: AtomicU64,
}

impl Default for Durations {
    fn default() -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Self { counts, max_nanos: AtomicU64::new(0) }
    }
}

impl Durations {
    /// Counts one.
    pub(super) fn add(&self, nanos: u64) {
        if let Some(count) = self.counts.get(bucket(nanos)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if nanos > self.max_nanos.load(Ordering::Relaxed) {
            self.max_nanos.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    /// What has been counted so far.
    pub(super) fn latency(&self) -> Latency {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).enumerate();
        let taken = counts.filter(|(_, count)| *count > 0);
        let buckets = taken.map(|(index, count)| (upto(index), count)).collect();
        Latency::of(buckets, self.max_nanos.load(Ordering::Relaxed))
    }
}

/// In which bucket a duration is counted.
fn bucket(nanos: u64) -> usize {
    let bits = nanos.checked_ilog2().unwrap_or(0);
    if bits < LEAST_BITS {
        return 0;
    }
    let octave = (bits - LEAST_BITS) as usize;
    let part = (nanos >> (bits - PART_BITS)) & ((1 << PART_BITS) - 1);
    (1 + (octave << PART_BITS) + usize::try_from(part).unwrap_or(0)).min(BUCKETS - 1)
}

/// The longest duration of a bucket.
fn upto(index: usize) -> u64 {
    let Some(above) = index.checked_sub(1) else { return (1 << LEAST_BITS) - 1 };
    if index + 1 >= BUCKETS {
        return u64::MAX;
    }
    let (octave, part) = (above >> PART_BITS, (above & ((1 << PART_BITS) - 1)) as u64);
    (((1 << PART_BITS) + part + 1) << (LEAST_BITS as usize + octave - PART_BITS as usize)) - 1
}

/// How long something took, as often as it was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Latency {
    /// How often it was measured.
    pub count: u64,
    /// Half of them took no longer than this, in nanoseconds; at most a quarter too large, like
    /// `p99_nanos`. 0 if there were none.
    pub p50_nanos: u64,
    /// 99 of 100 took no longer than this.
    pub p99_nanos: u64,
    /// The longest, exactly.
    pub max_nanos: u64,
    /// How many took how long: pairs of a longest duration in nanoseconds, ascending, and how many took no
    /// longer than that, but longer than the one before. Those that nothing fell into are left out. From 69 s
    /// on they are all counted as one, with the longest number there is.
    pub buckets: Vec<(u64, u64)>,
}

impl Latency {
    /// What such buckets say, as they stand in [`buckets`](Self::buckets).
    ///
    /// ```
    /// let latency = annals::Latency::of(vec![(1_000, 98), (9_000, 2)], 8_500);
    /// assert_eq!((latency.count, latency.p50_nanos, latency.p99_nanos), (100, 1_000, 8_500));
    /// ```
    pub fn of(buckets: Vec<(u64, u64)>, max_nanos: u64) -> Self {
        let count = buckets.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        let quantile = |percent: u64| {
            let wanted = u128::from(count) * u128::from(percent);
            let mut sum = 0_u128;
            let reached = buckets.iter().find(|(_, count)| {
                sum += u128::from(*count);
                sum * 100 >= wanted
            });
            reached.map_or(0, |(upto, _)| (*upto).min(max_nanos))
        };
        Self { count, p50_nanos: quantile(50), p99_nanos: quantile(99), max_nanos, buckets }
    }

    /// What was measured after `earlier`, which is an answer of the same store before this one. Of the
    /// longest only is known that it took no longer than `max_nanos` says.
    ///
    /// ```
    /// # use annals::Latency;
    /// let earlier = Latency::of(vec![(1_000, 5)], 900);
    /// let now = Latency::of(vec![(1_000, 5), (4_000, 1)], 3_500);
    /// assert_eq!(now.since(&earlier), Latency::of(vec![(4_000, 1)], 3_500));
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |upto: u64| {
            let found = earlier.buckets.iter().find(|bucket| bucket.0 == upto);
            found.map_or(0, |(_, count)| *count)
        };
        let left =
            self.buckets.iter().map(|(upto, count)| (*upto, count.saturating_sub(before(*upto))));
        let left: Vec<(u64, u64)> = left.filter(|(_, count)| *count > 0).collect();
        let max = left.last().map_or(0, |(upto, _)| (*upto).min(self.max_nanos));
        Self::of(left, max)
    }
}

/// Begins to measure a commit, if it is one of those that are.
pub(super) fn measure(durability: Durability) -> Option<Stopwatch> {
    thread_local! {
        static COMMITS: Cell<u32> = const { Cell::new(0) };
    }
    let sampled = || {
        COMMITS.with(|commits| {
            let before = commits.get();
            commits.set(before.wrapping_add(1));
            before % SAMPLED == 0
        })
    };
    (durability == Durability::Sync || sampled()).then(Stopwatch::start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps_and_are_a_quarter_wide_at_most() {
        let mut least = 0;
        for index in 0..BUCKETS - 1 {
            let most = upto(index);
            assert_eq!((bucket(least), bucket(most)), (index, index));
            assert!(index == 0 || (most - least) * 4 < least + 4, "{least} to {most}");
            least = most + 1;
        }
        assert_eq!(least, 7 << (MOST_BITS - 3));
        assert_eq!((bucket(least), bucket(u64::MAX)), (BUCKETS - 1, BUCKETS - 1));
    }

    #[test]
    fn quantiles_are_of_the_bucket_that_reaches_them_and_no_more_than_the_longest() {
        let durations = Durations::default();
        assert_eq!(durations.latency(), Latency::default());
        for nanos in 1..=1_000 {
            durations.add(nanos * 1_000);
        }
        let latency = durations.latency();
        assert_eq!((latency.count, latency.max_nanos), (1_000, 1_000_000));
        assert!((500_000..=625_000).contains(&latency.p50_nanos), "{latency:?}");
        assert!((990_000..=1_000_000).contains(&latency.p99_nanos), "{latency:?}");
        durations.add(7_000_000);
        let later = durations.latency().since(&latency);
        assert_eq!((later.count, later.max_nanos), (1, 7_000_000));
    }

    #[test]
    fn one_of_many_that_wait_for_nothing_is_measured_and_all_that_wait() {
        std::thread::spawn(|| {
            let count = |durability| (0..640).filter_map(|_| measure(durability)).count();
            assert_eq!(count(Durability::Buffered), 10);
            assert_eq!(count(Durability::Sync), 640);
        })
        .join()
        .unwrap();
    }
}
