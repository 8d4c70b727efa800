//! A blocked Bloom filter: a key sets [`PROBES`] bits of one line.
//!
//! ```text
//! table := line:bytes(64){line_count}
//! ```
//!
//! With `h` the hash of a key: its line is `(h >> 32) * line_count >> 32`; with `a = low 32 bits of h`,
//! `b = a * 0x9E3779B1 | 1` (mod 2^32), bit i (i from 0) is `(a + i * b) >> 23`, where bit n is bit
//! `n % 8` of byte `n / 8`.

/// Bytes of a line.
pub const LINE_BYTES: usize = 64;
/// Bits of the filter for every key.
pub const BITS_PER_KEY: u64 = 10;
/// Bits a key sets.
pub const PROBES: u8 = 6;

/// The table of a filter for keys of these hashes.
pub(super) fn build(hashes: &[u64]) -> Vec<u8> {
    let bits = (hashes.len() as u64).saturating_mul(BITS_PER_KEY);
    let line_count = bits.div_ceil(LINE_BYTES as u64 * 8).clamp(1, u64::from(u32::MAX));
    // At most u32::MAX lines; on a 32-bit machine the keys would not have fitted either.
    let mut lines = vec![[0_u8; LINE_BYTES]; usize::try_from(line_count).unwrap_or(1)];
    for hash in hashes {
        let index = line_of(*hash, line_count);
        if let Some(line) = usize::try_from(index).ok().and_then(|index| lines.get_mut(index)) {
            for bit in bits_of(*hash) {
                line[bit / 8] |= 1 << (bit % 8);
            }
        }
    }
    lines.into_flattened()
}

/// Whether a table has all bits of a hash.
pub(super) fn may_contain(table: &[u8], hash: u64) -> bool {
    let (lines, _) = table.as_chunks::<LINE_BYTES>();
    let index = line_of(hash, lines.len() as u64);
    let line = usize::try_from(index).ok().and_then(|index| lines.get(index));
    // A line that is not there cannot rule anything out.
    line.is_none_or(|line| bits_of(hash).all(|bit| line[bit / 8] & (1 << (bit % 8)) != 0))
}

/// The line of a hash: below `line_count`, which is below 2^32.
const fn line_of(hash: u64, line_count: u64) -> u64 {
    ((hash >> 32) * line_count) >> 32
}

/// The bits of a hash in its line: numbers below 512.
fn bits_of(hash: u64) -> impl Iterator<Item = usize> {
    let [a0, a1, a2, a3, ..] = hash.to_le_bytes();
    let a = u32::from_le_bytes([a0, a1, a2, a3]);
    let b = a.wrapping_mul(0x9E37_79B1) | 1;
    (0..u32::from(PROBES)).map(move |i| (a.wrapping_add(i.wrapping_mul(b)) >> 23) as usize)
}
