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
#[inline]
pub fn decode(bytes: &[u8]) -> Option<(u64, usize)> {
    let Some(word) = bytes.first_chunk::<8>() else { return decode_bytewise(bytes) };
    let word = u64::from_le_bytes(*word);
    // The top bit of each byte that ends a varint.
    let ends = !word & 0x8080_8080_8080_8080;
    if ends == 0 {
        return decode_bytewise(bytes);
    }
    // The bits up to the first of them; without the top bits, seven of each byte are left.
    let sevens = word & (ends ^ (ends - 1)) & 0x7f7f_7f7f_7f7f_7f7f;
    // The place of the first top bit is 7 more than that of its byte.
    let last = ends.trailing_zeros() & !7;
    if last > 0 && sevens >> last == 0 {
        // Over-long: the last byte is zero.
        return None;
    }
    // Two of seven bits become one of fourteen, two of these one of twenty-eight, and so on.
    let pairs = (sevens & 0x007f_007f_007f_007f) | ((sevens & 0x7f00_7f00_7f00_7f00) >> 1);
    let fours = (pairs & 0x0000_3fff_0000_3fff) | ((pairs & 0x3fff_0000_3fff_0000) >> 2);
    let value = (fours & 0x0fff_ffff) | ((fours & 0x0fff_ffff_0000_0000) >> 4);
    Some((value, last as usize / 8 + 1))
}

/// The same byte by byte: near the end, and for numbers of more than 56 bits.
fn decode_bytewise(bytes: &[u8]) -> Option<(u64, usize)> {
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
    fn eight_bytes_at_once_say_the_same_as_one_by_one() {
        let mut seed = 1_u64;
        for _ in 0..200_000 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // Top bits of each kind of length, and bytes of zero.
            let mut bytes = [0; 12];
            for (index, byte) in bytes.iter_mut().enumerate() {
                let bits = (seed >> (index * 5)).to_le_bytes()[0];
                *byte = match bits % 8 {
                    0 => 0,
                    1 => 0x80,
                    _ => bits | (u8::from(index < usize::from(bits) % 12) << 7),
                };
            }
            assert_eq!(decode(&bytes), decode_bytewise(&bytes), "{bytes:x?}");
        }
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
