//! Arbitrary bytes taken apart into numbers and slices; past the end everything is zero.

/// The bytes that are left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    /// A number below `bound`, which is at most 256 and not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        u64::from(self.byte()) % bound
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// At most `max` bytes.
    pub(crate) fn bytes(&mut self, max: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(max.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_the_end_there_are_zeros() {
        let mut input = Input(&[1, 2, 0, 9]);
        assert_eq!((input.byte(), input.u16(), input.bytes(5)), (1, 2, &[9][..]));
        assert_eq!((input.is_empty(), input.below(3), input.u16()), (true, 0, 0));
    }
}
