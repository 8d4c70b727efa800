//! Latencies in a histogram of fixed size: to record one costs an increment, however many there are.

/// Buckets to an octave: a percentile is told within 1 / `STEPS`, and never too low.
const STEPS: usize = 128;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Enough for every `u64`: the first two octaves exactly, then one row of steps for each further bit.
const BUCKETS: usize = (64 - STEP_BITS as usize + 1) * STEPS;

/// How long things took.
#[derive(Clone, Debug)]
pub struct Latency {
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
    pub fn record(&mut self, nanos: u64) {
        if let Some(count) = self.counts.get_mut(bucket(nanos)) {
            *count += 1;
        }
        self.count += 1;
        self.nanos_max = self.nanos_max.max(nanos);
    }

    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.nanos_max = self.nanos_max.max(other.nanos_max);
    }

    /// Microseconds that `per_mille` of 1000 did not exceed.
    pub fn micros(&self, per_mille: u64) -> f64 {
        let rank = (self.count * per_mille).div_ceil(1000);
        let mut seen = 0;
        for (index, &count) in self.counts.iter().enumerate() {
            seen += u64::from(count);
            if seen >= rank {
                return most(index).min(self.nanos_max) as f64 / 1000.0;
            }
        }
        self.micros_max()
    }

    pub fn micros_max(&self) -> f64 {
        self.nanos_max as f64 / 1000.0
    }
}

fn bucket(nanos: u64) -> usize {
    let bits = u64::BITS - nanos.leading_zeros();
    let shift = bits.saturating_sub(STEP_BITS + 1);
    shift as usize * STEPS + (nanos >> shift) as usize
}

/// The most nanoseconds a bucket counts.
fn most(bucket: usize) -> u64 {
    let shift = (bucket / STEPS).saturating_sub(1);
    let first = (bucket - shift * STEPS) as u64;
    (first << shift) | ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        for index in 0..BUCKETS {
            assert_eq!(bucket(most(index)), index);
            let next = most(index).checked_add(1).map(bucket);
            assert_eq!(next, (index + 1 < BUCKETS).then_some(index + 1));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        let (mut one, mut other) = (Latency::default(), Latency::default());
        for nanos in 1..=500_u64 {
            one.record(nanos * 1000);
            other.record((nanos + 500) * 1000);
        }
        one.add(&other);
        for (per_mille, micros) in [(500, 500.0), (990, 990.0), (999, 999.0), (1000, 1000.0)] {
            let found = one.micros(per_mille);
            assert!((micros..micros * 1.01).contains(&found), "{per_mille}: {found}");
        }
        assert_eq!(one.micros_max().to_bits(), 1000.0_f64.to_bits());
        assert_eq!(Latency::default().micros(999).to_bits(), 0.0_f64.to_bits());
    }
}
