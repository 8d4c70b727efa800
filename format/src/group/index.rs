//! Where in a base eight bytes stand: what the search for matches starts from.
//!
//! A list of positions sorted by the hash of what stands there, made by counting: linear in the
//! base, without a map whose order would depend on anything else, and of bounded size.

/// Bytes of which the hash is taken: the shortest match the index finds.
const WINDOW_BYTES: usize = 8;
/// Positions of a base that are indexed at most. In longer bases every second one is, or every
/// fourth and so on: what long values share is long.
const POSITIONS_MAX: usize = 1 << 16;
/// How many positions with the same hash are looked at.
const CANDIDATES_MAX: usize = 8;

/// Where in a base eight bytes with a given hash stand.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// By hash: where in `positions` those with a lower hash end.
    ends: Vec<u32>,
    /// By hash, then ascending.
    positions: Vec<u32>,
    /// Distance between two positions.
    step: usize,
    /// The hash is what is left of the product.
    shift: u32,
}

impl Index {
    /// Indexes `base`, forgetting what was indexed before.
    pub(super) fn build(&mut self, base: &[u8]) {
        let windows = (base.len() + 1).saturating_sub(WINDOW_BYTES);
        self.step = windows.div_ceil(POSITIONS_MAX).next_power_of_two();
        let count = windows.div_ceil(self.step);
        let slots = count.next_power_of_two().max(16);
        self.shift = u64::BITS - slots.trailing_zeros();
        self.ends.clear();
        self.ends.resize(slots + 1, 0);
        self.positions.clear();
        self.positions.resize(count, 0);
        let (step, shift) = (self.step, self.shift);
        let hashes = |from: usize| word(base, from * step).map_or(0, |window| hash(window, shift));
        // Counted, summed up, and filled from the back: a sort by hash that keeps the order.
        for slot in (0..count).map(hashes) {
            if let Some(end) = self.ends.get_mut(slot) {
                *end += 1;
            }
        }
        let mut sum = 0;
        for end in &mut self.ends {
            sum += *end;
            *end = sum;
        }
        for number in (0..count).rev() {
            if let Some(end) = self.ends.get_mut(hashes(number)) {
                *end -= 1;
                // A base is at most 2^29 bytes long.
                let position = u32::try_from(number * step).unwrap_or(u32::MAX);
                if let Some(place) = self.positions.get_mut(*end as usize) {
                    *place = position;
                }
            }
        }
    }

    /// Positions that may be those of `window`: the nearest to `near` on either side.
    pub(super) fn candidates(&self, window: u64, near: usize) -> impl Iterator<Item = usize> + '_ {
        let slot = hash(window, self.shift);
        let end = |slot: usize| self.ends.get(slot).map_or(0, |end| *end as usize);
        let all = self.positions.get(end(slot)..end(slot + 1)).unwrap_or_default();
        let at = match all.len() {
            0..=CANDIDATES_MAX => all.len() / 2,
            _ => all.partition_point(|position| (*position as usize) < near),
        };
        let from = at.saturating_sub(CANDIDATES_MAX / 2);
        all.iter().skip(from).take(CANDIDATES_MAX).map(|position| *position as usize)
    }
}

fn hash(window: u64, shift: u32) -> usize {
    usize::try_from(window.wrapping_mul(0x9e37_79b1_85eb_ca87) >> shift).unwrap_or(0)
}

/// The eight bytes at `at`, if there are as many.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}
