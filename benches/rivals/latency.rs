//! Latencies in a histogram of fixed size: to record one costs an increment, however many there are.
//!
//! `benches/peers` has this file, too, and runs its tests.

/// Buckets to an octave: a percentile is told within 1 / `STEPS`, and never too low.
const STEPS: usize = 128;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Enough for every `u64`: the first two octaves exactly, then one row of steps for each further bit.
const BUCKETS: usize = (64 - STEP_BITS as usize + 1) * STEPS;

/// How long things took.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    counts: Box<[u32]>,
    count: u64,
    nanos_max: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into(), count: 0, nanos_max: 0 }
    }
}

impl Latency {
    pub(crate) fn record(&mut self, nanos: u64) {
        if let Some(count) = self.counts.get_mut(bucket(nanos)) {
            *count += 1;
        }
        self.count += 1;
        self.nanos_max = self.nanos_max.max(nanos);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.nanos_max = self.nanos_max.max(other.nanos_max);
    }

    /// Nanoseconds that this many of 10,000 did not exceed.
    pub(crate) fn nanos(&self, per_myriad: u64) -> u64 {
        let rank = (self.count * per_myriad).div_ceil(10_000);
        let mut seen = 0;
        for (index, &count) in self.counts.iter().enumerate() {
            seen += u64::from(count);
            if seen >= rank {
                return most(index).min(self.nanos_max);
            }
        }
        self.nanos_max
    }
}

fn bucket(nanos: u64) -> usize {
    let bits = u64::BITS - nanos.leading_zeros();
    let shift = bits.saturating_sub(STEP_BITS + 1);
    let step = usize::try_from(nanos >> shift).unwrap_or(usize::MAX);
    shift as usize * STEPS + step
}

/// The most nanoseconds a bucket counts.
fn most(bucket: usize) -> u64 {
    let shift = (bucket / STEPS).saturating_sub(1);
    let first = (bucket - shift * STEPS) as u64;
    (first << shift) | ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    // No `use`: in a bench without a harness the tests are left out.
    #[test]
    fn buckets_follow_each_other_without_gaps() {
        for index in 0..super::BUCKETS {
            assert_eq!(super::bucket(super::most(index)), index);
            let next = super::most(index).checked_add(1).map(super::bucket);
            assert_eq!(next, (index + 1 < super::BUCKETS).then_some(index + 1));
        }
        assert_eq!(super::bucket(u64::MAX), super::BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        let (mut one, mut other) = (super::Latency::default(), super::Latency::default());
        for nanos in 1..=500_u64 {
            one.record(nanos * 1000);
            other.record((nanos + 500) * 1000);
        }
        one.add(&other);
        for (per_myriad, nanos) in [(5_000, 500_000), (9_900, 990_000), (9_990, 999_000)] {
            let found = one.nanos(per_myriad);
            assert!((nanos..nanos + nanos / 100).contains(&found), "{per_myriad}: {found}");
        }
        assert_eq!(one.nanos(10_000), 1_000_000);
        assert_eq!(super::Latency::default().nanos(9_990), 0);
    }
}
