//! A binary fuse filter (Graf and Lemire, 2022) of 8-bit fingerprints, for sets that never change.
//!
//! ```text
//! table := segment:bytes(2^length_log){segments + 2}
//! ```
//!
//! A key has a fingerprint and a byte in each of three neighbouring segments; the XOR of the three is
//! the fingerprint. With `h` the hash of the key, `x = mix(h + seed)`, `length = 2^length_log`, all
//! modulo 2^64:
//!
//! ```text
//! mix(x):      x ^= x >> 33; x *= 0xff51afd7ed558ccd; x ^= x >> 33; x *= 0xc4ceb9fe1a85ec53; x ^= x >> 33
//! first place  p = the high 64 bits of the 128-bit product x * (segments * length)
//! second       (p + length) with its low length_log bits XORed with those of x >> 18
//! third        (p + 2 * length) with its low length_log bits XORed with those of x
//! fingerprint  the low byte of x ^ x >> 32
//! ```
//!
//! The bytes are found by peeling: as long as a place is used by one key only, that key is put aside,
//! to be decided after all others. When no key is left each is given, last one first, the byte that
//! makes its XOR right at the place that was its alone. If keys are left that share all their places,
//! another seed is tried.

/// The longest segment is 2^18 bytes.
pub const LENGTH_LOG_MAX: u8 = 18;

/// Seeds tried before a set is given up. One in ten or fewer fails, so all of these never do.
const ATTEMPTS: u64 = 32;

/// The least number of keys at which a segment has 2^3, 2^4, ... bytes: 3.33^(n - 2.25).
const LENGTHS: [u64; 16] = [
    3,
    9,
    28,
    92,
    304,
    1_010,
    3_365,
    11_206,
    37_314,
    124_256,
    413_774,
    1_377_867,
    4_588_297,
    15_279_030,
    50_879_170,
    169_427_636,
];

/// What the header of such a filter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fuse {
    /// Added to every hash.
    pub seed: u64,
    /// A segment has 2^`length_log` bytes.
    pub length_log: u8,
    /// Segments that the first place of a key may lie in: all but the last two.
    pub segments: u32,
}

/// Places of the table and the hashes of the keys that use them, while keys are put aside.
struct Slots {
    /// How many keys use a place, times 4, and the XOR of which of their places it is.
    counts: Vec<u8>,
    /// The XOR of their mixed hashes.
    hashes: Vec<u64>,
}

impl Fuse {
    /// The shape for so many keys, and the seed of an attempt.
    fn new(keys: u64, attempt: u64) -> Option<Self> {
        let keys = keys.max(2);
        let class = LENGTHS.partition_point(|least| *least <= keys);
        let length_log = u8::try_from(class + 2).ok()?;
        // The table has 0.875 + 0.25 ln(10^6) / ln(keys) bytes a key, and 1.125 at least; in 1024ths, with
        // log2 in 256ths, interpolated between powers of two.
        let whole = keys.ilog2();
        let log2 = u64::from(whole) * 256 + (keys.checked_mul(256)? >> whole) - 256;
        let factor = (896 + 1_306_237 / log2).max(1152);
        let capacity = keys.checked_mul(factor)? / 1024;
        let segments = capacity.div_ceil(1 << length_log).saturating_sub(2).max(1);
        let segments = u32::try_from(segments).ok()?;
        Some(Self { seed: mix(attempt + 1), length_log, segments })
    }

    /// Bytes of the table.
    pub(super) const fn table_bytes(&self) -> u64 {
        (self.segments as u64 + 2) << self.length_log
    }

    /// Whether the bytes of a hash make up its fingerprint.
    pub(super) fn may_contain(&self, table: &[u8], hash: u64) -> bool {
        let mixed = mix(hash.wrapping_add(self.seed));
        let [a, b, c] = self.places(mixed);
        match (table.get(a), table.get(b), table.get(c)) {
            (Some(a), Some(b), Some(c)) => a ^ b ^ c == fingerprint(mixed),
            // Places that are not there cannot rule anything out.
            _ => true,
        }
    }

    /// Three different places below `table_bytes`.
    fn places(&self, mixed: u64) -> [usize; 3] {
        let length = 1_u64 << self.length_log;
        let first =
            (u128::from(mixed) * u128::from(u64::from(self.segments) << self.length_log)) >> 64;
        let first = first as u64;
        let second = (first + length) ^ ((mixed >> 18) & (length - 1));
        let third = (first + 2 * length) ^ (mixed & (length - 1));
        // A table that is in memory is below what a usize counts.
        [first, second, third].map(|place| usize::try_from(place).unwrap_or(usize::MAX))
    }

    /// The table for keys of these hashes, unless this seed does not do.
    fn fill(&self, hashes: &[u64]) -> Option<Vec<u8>> {
        let bytes = usize::try_from(self.table_bytes()).ok()?;
        let mut slots = Slots { counts: vec![0; bytes], hashes: vec![0; bytes] };
        for hash in hashes {
            let mixed = mix(hash.wrapping_add(self.seed));
            for (number, place) in (0..).zip(self.places(mixed)) {
                slots.add(place, number, mixed)?;
            }
        }
        let aside = self.peel(&mut slots, hashes.len())?;
        let mut table = vec![0_u8; bytes];
        for (mixed, number) in aside.into_iter().rev() {
            let places = self.places(mixed);
            let others = places.iter().fold(0, |sum, place| sum ^ table.get(*place).unwrap_or(&0));
            // Its own place is still 0.
            *table.get_mut(*places.get(usize::from(number))?)? = fingerprint(mixed) ^ others;
        }
        Some(table)
    }

    /// Puts all keys aside, in an order in which each has a place that none after it uses.
    fn peel(&self, slots: &mut Slots, keys: usize) -> Option<Vec<(u64, u8)>> {
        let mut aside = Vec::with_capacity(keys);
        let mut alone: Vec<usize> =
            (0..slots.counts.len()).filter(|at| slots.is_alone(*at)).collect();
        while let Some(at) = alone.pop() {
            if !slots.is_alone(at) {
                continue;
            }
            let (number, mixed) = (*slots.counts.get(at)? & 3, *slots.hashes.get(at)?);
            aside.push((mixed, number));
            for (number, place) in (0..).zip(self.places(mixed)) {
                slots.remove(place, number, mixed)?;
                if slots.is_alone(place) {
                    alone.push(place);
                }
            }
        }
        (aside.len() == keys).then_some(aside)
    }
}

impl Slots {
    fn add(&mut self, place: usize, number: u8, mixed: u64) -> Option<()> {
        let count = self.counts.get_mut(place)?;
        *count = count.checked_add(4)? ^ number;
        *self.hashes.get_mut(place)? ^= mixed;
        Some(())
    }

    fn remove(&mut self, place: usize, number: u8, mixed: u64) -> Option<()> {
        let count = self.counts.get_mut(place)?;
        *count = count.checked_sub(4)? ^ number;
        *self.hashes.get_mut(place)? ^= mixed;
        Some(())
    }

    fn is_alone(&self, place: usize) -> bool {
        self.counts.get(place).is_some_and(|count| count >> 2 == 1)
    }
}

/// The filter for keys of these hashes; `None` if no seed does.
pub(super) fn build(hashes: &[u64]) -> Option<(Fuse, Vec<u8>)> {
    let first = Fuse::new(hashes.len() as u64, 0)?;
    if let Some(table) = first.fill(hashes) {
        return Some((first, table));
    }
    // Keys of the same hash can never be told apart, and need not be.
    let mut hashes = hashes.to_vec();
    hashes.sort_unstable();
    hashes.dedup();
    (1..ATTEMPTS).find_map(|attempt| {
        let fuse = Fuse::new(hashes.len() as u64, attempt)?;
        Some((fuse, fuse.fill(&hashes)?))
    })
}

/// The finalizer of `MurmurHash3`.
const fn mix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

const fn fingerprint(mixed: u64) -> u8 {
    let [low, ..] = (mixed ^ mixed >> 32).to_le_bytes();
    low
}
