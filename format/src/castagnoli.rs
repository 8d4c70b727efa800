//! CRC-32C, the checksum etcd makes its hash of keys and values with, in pieces that can be joined.
//!
//! The polynomial is Castagnoli's, bits reflected, register and result inverted, as in iSCSI, in Go's
//! `hash/crc32`, and in processors. Nothing annals writes is checked by it: it is here for
//! answers that have to be equal to etcd's.

/// The polynomial, its highest power in the lowest bit.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// What a byte does to the register `n` bytes later.
static TABLES: [[u32; 256]; 8] = tables();

/// x to the power of 8 * 2^n.
static POWERS: [u32; 64] = powers();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "it is below 256")]
        let mut register = byte as u32;
        let mut table = 0;
        while table < 8 {
            let mut bit = 0;
            while bit < 8 {
                register = times_x(register);
                bit += 1;
            }
            tables[table][byte] = register;
            table += 1;
        }
        byte += 1;
    }
    tables
}

const fn powers() -> [u32; 64] {
    let mut powers = [0; 64];
    let mut power = ONE >> 8;
    let mut n = 0;
    while n < 64 {
        powers[n] = power;
        power = product(power, power);
        n += 1;
    }
    powers
}

/// A polynomial times x, modulo [`POLYNOMIAL`].
const fn times_x(a: u32) -> u32 {
    if a & 1 == 0 { a >> 1 } else { a >> 1 ^ POLYNOMIAL }
}

/// The product of two polynomials, modulo [`POLYNOMIAL`].
const fn product(a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    let mut rest = a;
    // The coefficients of `a` from the lowest power on, with `b` times that power.
    while rest != 0 {
        if rest & ONE != 0 {
            sum ^= b;
        }
        rest <<= 1;
        b = times_x(b);
    }
    sum
}

/// The CRC-32C of bytes taken in so far, and how many these are.
///
/// ```
/// use annals_format::castagnoli::Crc32c;
///
/// let whole = Crc32c::of(b"123456789");
/// assert_eq!(whole.value(), 0xE306_9283);
/// assert_eq!(Crc32c::of(b"1234").followed_by(Crc32c::of(b"56789")), whole);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crc32c {
    value: u32,
    length: u64,
}

impl Crc32c {
    /// Of no bytes.
    pub const fn new() -> Self {
        Self { value: 0, length: 0 }
    }

    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut crc = Self::new();
        crc.update(bytes);
        crc
    }

    /// From what another told: [`value`](Self::value) and [`length`](Self::length).
    pub const fn from_parts(value: u32, length: u64) -> Self {
        Self { value, length }
    }

    /// Takes in the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        let mut register = !self.value;
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            let mixed = (u64::from_le_bytes(*word) ^ u64::from(register)).to_be_bytes();
            register = 0;
            for (table, byte) in TABLES.iter().zip(mixed) {
                register ^= table[usize::from(byte)];
            }
        }
        for byte in rest {
            let [low, ..] = register.to_le_bytes();
            register = register >> 8 ^ TABLES[0][usize::from(low ^ byte)];
        }
        self.value = !register;
        self.length = self.length.wrapping_add(bytes.len() as u64);
    }

    /// Of these bytes, then those of `next`, which are not needed for it. It takes as many steps as the
    /// length of `next` has bits.
    #[must_use]
    pub fn followed_by(self, next: Self) -> Self {
        // Each further byte multiplies the register by x^8; the inversions cancel out.
        let mut value = self.value;
        for (bit, power) in POWERS.iter().enumerate() {
            if next.length >> bit == 0 {
                break;
            }
            if next.length >> bit & 1 == 1 {
                value = product(*power, value);
            }
        }
        Self { value: value ^ next.value, length: self.length.wrapping_add(next.length) }
    }

    /// The checksum.
    pub const fn value(self) -> u32 {
        self.value
    }

    /// How many bytes were taken in.
    pub const fn length(self) -> u64 {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bit by bit, from the definition.
    fn naive(bytes: &[u8]) -> u32 {
        let mut register = u32::MAX;
        for byte in bytes {
            register ^= u32::from(*byte);
            for _ in 0..8 {
                register = register >> 1 ^ if register & 1 == 1 { 0x82F6_3B78 } else { 0 };
            }
        }
        !register
    }

    #[test]
    fn the_examples_of_rfc_3720_hold() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        assert_eq!(Crc32c::of(&[0; 32]).value(), 0x8A91_36AA);
        assert_eq!(Crc32c::of(&[0xFF; 32]).value(), 0x62A8_AB43);
        assert_eq!(Crc32c::of(&ascending).value(), 0x46DD_794E);
        assert_eq!(Crc32c::of(&descending).value(), 0x113F_DB5C);
        assert_eq!(Crc32c::of(b"").value(), 0);
    }

    #[test]
    fn very_long_pieces_are_joined() {
        // 2^40 zeros, joined from halves, behind one byte, against squaring from the other side.
        let mut zeros = Crc32c::of(&[0]);
        for _ in 0..40 {
            zeros = zeros.followed_by(zeros);
        }
        assert_eq!(zeros.length(), 1 << 40);
        let left = Crc32c::of(b"x").followed_by(zeros).followed_by(zeros);
        let right = Crc32c::of(b"x").followed_by(zeros.followed_by(zeros));
        assert_eq!(left, right);
    }

    proptest! {
        #[test]
        fn pieces_make_the_same_as_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 2),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            let (a, b, c) = (&bytes[..cuts[0]], &bytes[cuts[0]..cuts[1]], &bytes[cuts[1]..]);
            let whole = Crc32c::of(&bytes);
            prop_assert_eq!((whole.value(), whole.length()), (naive(&bytes), bytes.len() as u64));
            let [x, y, z] = [a, b, c].map(Crc32c::of);
            prop_assert_eq!(x.followed_by(y).followed_by(z), whole);
            prop_assert_eq!(x.followed_by(y.followed_by(z)), whole);
            let mut streamed = Crc32c::from_parts(x.value(), x.length());
            streamed.update(b);
            streamed.update(c);
            prop_assert_eq!(streamed, whole);
        }
    }
}
