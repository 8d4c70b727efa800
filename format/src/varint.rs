//! Canonical LEB128: seven bits a byte, least significant first, top bit = more follows.
//!
//! Every number has exactly one encoding: an over-long form (a last byte of zero after others) is
//! an error, so that equal structures have equal bytes.

/// The most bytes a varint of 64 bits takes.
pub const VARINT_BYTES_MAX: usize = 10;

/// How many bytes `value` takes.
#[inline]
pub const fn len(value: u64) -> usize {
    // Seven bits a byte, and zero takes one byte too. This is `bits.div_ceil(7)` for up to 64 bits,
    // without a division.
    let bits = 64 - (value | 1).leading_zeros();
    ((bits * 9 + 64) >> 6) as usize
}

/// Writes `value` to the start of `out`; answers the bytes and how many of them count.
pub fn encode(value: u64) -> ([u8; VARINT_BYTES_MAX], usize) {
    let mut bytes = [0; VARINT_BYTES_MAX];
    let mut used = 0;
    let mut rest = value;
    for slot in &mut bytes {
        used += 1;
        // The low seven bits, so nothing is lost.
        let low = rest.to_le_bytes()[0] & 0x7f;
        rest >>= 7;
        if rest == 0 {
            *slot = low;
            break;
        }
        *slot = low | 0x80;
    }
    (bytes, used)
}

/// Reads a varint from the start of `bytes`: the value and how many bytes it took, or `None` if it
/// is unfinished, over-long or above 64 bits.
pub fn decode(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    let mut shift = 0_u32;
    for (index, &byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        let low = u64::from(byte & 0x7f);
        if shift == 63 && low > 1 {
            return None;
        }
        value |= low << shift;
        if byte & 0x80 == 0 {
            let over_long = byte == 0 && index > 0;
            return (!over_long).then_some((value, index + 1));
        }
        shift += 7;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_around_every_length_round_trip() {
        for bits in 0..64 {
            for value in [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + 1] {
                let (bytes, used) = encode(value);
                assert_eq!(used, len(value), "{value}");
                assert_eq!(decode(&bytes[..used]), Some((value, used)));
                assert_eq!(decode(&bytes[..used - 1]), None);
            }
        }
        assert_eq!(len(u64::MAX), VARINT_BYTES_MAX);
        let (bytes, used) = encode(u64::MAX);
        assert_eq!(decode(&bytes[..used]), Some((u64::MAX, used)));
    }

    #[test]
    fn other_forms_are_refused() {
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[0x80, 0x00]), None);
        assert_eq!(decode(&[0xff, 0x00]), None);
        assert_eq!(decode(&[0x80; 10]), None);
        let mut above = [0xff; 10];
        above[9] = 2;
        assert_eq!(decode(&above), None);
    }
}
