//! Copies of many short slices, side by side in memory that they share.
//!
//! A key and a value that are told of a change have to outlive the block they were read from, and to copy
//! each into memory of its own costs more than to read it. Who keeps one of them keeps the others beside
//! it: [`CHUNK_BYTES`] at most.
//!
//! Where all of a block is told, from front to back, whole pieces of it are copied: one copy for a dozen
//! transactions. They are decoded in the copy, and their keys and values are slices of it.

use bytes::{Bytes, BytesMut};

use crate::segment::{BlockId, Replayed};

/// Copies that share memory have so many bytes together.
const CHUNK_BYTES: usize = 4096;

/// The first chunk is of so many bytes, each further one twice as large: who reads one transaction takes
/// no more than that needs.
const FIRST_BYTES: usize = 512;

/// Longer slices are copied for themselves.
const SHARED_BYTES_MAX: usize = CHUNK_BYTES / 4;

/// Where copies are made.
#[derive(Debug, Default)]
pub(super) struct Copies {
    chunk: BytesMut,
    /// The length of the last chunk that was made.
    chunk_bytes: usize,
    /// The length that the last piece was to have.
    piece_bytes: usize,
    /// A copy of a piece of a block.
    piece: Bytes,
    /// Its block.
    piece_block: BlockId,
    /// How many bytes are left of the block where the piece begins.
    piece_left: usize,
}

impl Copies {
    /// A copy of `slice`.
    #[inline]
    pub(super) fn copy(&mut self, slice: &[u8]) -> Bytes {
        if slice.is_empty() {
            return Bytes::new();
        }
        if self.chunk.capacity() < slice.len() {
            if slice.len() > SHARED_BYTES_MAX {
                return Bytes::copy_from_slice(slice);
            }
            self.make_room(slice.len());
        }
        self.chunk.extend_from_slice(slice);
        self.chunk.split().freeze()
    }

    /// The copy of a transaction, and the piece that it is a part of; `None` if the transaction is too long for
    /// that: who keeps one key of it must not keep all of it. They have to be asked for in their order.
    #[inline]
    pub(super) fn ahead(&mut self, found: &Replayed<'_>) -> Option<(&Bytes, &[u8])> {
        if found.value.len() > SHARED_BYTES_MAX {
            // Others like it may follow: little is copied ahead of them.
            self.piece_bytes = 0;
            return None;
        }
        let mut from = self.piece_left.wrapping_sub(found.rest.len());
        let end = from.saturating_add(found.value.len());
        if self.piece_block != found.block || end > self.piece.len() {
            self.next_piece(found);
            from = 0;
        }
        Some((&self.piece, self.piece.get(from..from + found.value.len())?))
    }

    /// Copies the next piece, to where the last one was if nobody keeps any of that.
    #[cold]
    fn next_piece(&mut self, found: &Replayed<'_>) {
        self.piece_bytes = (2 * self.piece_bytes).clamp(FIRST_BYTES, CHUNK_BYTES);
        let bytes = self.piece_bytes.max(found.value.len()).min(found.rest.len());
        let room = std::mem::take(&mut self.piece).try_into_mut();
        // If it is too small a new one: growing it could take more than `bytes`.
        let room = room.ok().filter(|room| room.capacity() >= bytes);
        let mut room = room.unwrap_or_else(|| BytesMut::with_capacity(bytes));
        room.clear();
        room.extend_from_slice(found.rest.get(..bytes).unwrap_or_default());
        self.piece = room.freeze();
        (self.piece_block, self.piece_left) = (found.block, found.rest.len());
    }

    /// Begins the chunk again if nobody keeps any of it, else another one.
    #[cold]
    fn make_room(&mut self, bytes: usize) {
        if self.chunk.try_reclaim(bytes) {
            return;
        }
        let double = (2 * self.chunk_bytes).clamp(FIRST_BYTES, CHUNK_BYTES);
        self.chunk_bytes = double.max(bytes);
        self.chunk = BytesMut::with_capacity(self.chunk_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_what_was_copied_and_stay_so() {
        let mut copies = Copies::default();
        let part = |n: usize| vec![u8::try_from(n % 251).expect("a byte"); n * 37 % 1_500];
        let made: Vec<Bytes> = (0..500).map(|n| copies.copy(&part(n))).collect();
        assert!(made.iter().enumerate().all(|(n, copy)| *copy == part(n)));
    }

    #[test]
    fn memory_that_nobody_keeps_is_used_again() {
        let mut copies = Copies::default();
        // The chunks grow first.
        (0..100).for_each(|_| drop(copies.copy(&[7; 300])));
        let mut places: Vec<usize> =
            (0..100).map(|_| copies.copy(&[7; 300]).as_ptr().addr()).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() <= CHUNK_BYTES / 300, "{} places", places.len());
    }

    #[test]
    fn a_kept_copy_keeps_no_more_than_a_chunk() {
        let mut copies = Copies::default();
        let (mut kept, mut chunks) = (Vec::new(), 0);
        for _ in 0..200 {
            kept.push(copies.copy(&[1; 100]));
            assert!(copies.chunk_bytes <= CHUNK_BYTES);
            chunks += usize::from(copies.chunk.capacity() < 100);
        }
        assert!(chunks >= 200 * 100 / CHUNK_BYTES, "{chunks} chunks");
        // What is longer lies alone, and is no reason to make another chunk.
        let long = copies.copy(&[2; CHUNK_BYTES]);
        assert_eq!(long.len(), CHUNK_BYTES);
    }

    /// A block, its bytes, the lengths of its transactions.
    type Block = (BlockId, Vec<u8>, Vec<usize>);

    /// Blocks of transactions of many lengths.
    fn blocks() -> Vec<Block> {
        let mut random = 7_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from((random >> 33) % bound).expect("small")
        };
        let block = |n: u64| {
            let lengths: Vec<usize> = (0..60).map(|_| 1 + below(SHARED_BYTES_MAX as u64)).collect();
            let bytes =
                (0..lengths.iter().sum()).map(|_| u8::try_from(below(256)).expect("a byte"));
            // The same offsets in one file after the other.
            (BlockId { file: n / 4, offset: n % 4 * 512 }, bytes.collect(), lengths)
        };
        (1..13).map(block).collect()
    }

    /// Goes through the blocks, in which there is something between two transactions.
    fn through(copies: &mut Copies, mut each: impl FnMut(&mut Copies, usize, Bytes, &[u8])) {
        let mut count = 0;
        for (block, bytes, lengths) in blocks() {
            let mut rest = bytes.as_slice();
            for length in lengths {
                let value = rest.get(..length * 3 / 4 + 1).expect("within");
                let found = Replayed { revision: 1, value, rest, block };
                let (piece, copy) = copies.ahead(&found).expect("it is not too long");
                let copy = piece.slice_ref(copy);
                each(copies, count, copy, value);
                rest = rest.get(length..).expect("within");
                count += 1;
            }
        }
    }

    #[test]
    fn pieces_are_what_was_copied_and_stay_so() {
        for keeps in [1, 2, 7, 50] {
            let mut kept = Vec::new();
            through(&mut Copies::default(), |_, count, copy, value| {
                assert_eq!(copy, value);
                if count % keeps == 0 {
                    kept.push((copy, value.to_vec()));
                }
            });
            assert!(kept.iter().all(|(copy, value)| copy == value));
        }
    }

    #[test]
    fn pieces_that_nobody_keeps_are_used_again_and_none_is_larger_than_a_chunk() {
        let mut places = Vec::new();
        through(&mut Copies::default(), |copies, count, copy, _| {
            // The pieces grow first.
            if count > 100 {
                places.push(copy.as_ptr().addr() / CHUNK_BYTES);
            }
            drop(copy);
            assert_room(copies);
        });
        places.sort_unstable();
        places.dedup();
        assert!(places.len() <= 4, "{} places", places.len());
        // Blocks that end, as the last one of a file.
        let (mut copies, bytes) = (Copies::default(), vec![1; CHUNK_BYTES]);
        for length in (30..CHUNK_BYTES).step_by(7) {
            let rest = &bytes[..length];
            let block = BlockId { file: 1, offset: length as u64 };
            let found = Replayed { revision: 1, value: &rest[..30], rest, block };
            assert!(copies.ahead(&found).is_some());
            assert_room(&mut copies);
        }
    }

    /// A piece that nobody keeps has room for a chunk at most.
    fn assert_room(copies: &mut Copies) {
        let room = std::mem::take(&mut copies.piece).try_into_mut().expect("nobody keeps it");
        assert!(room.capacity() <= CHUNK_BYTES, "{} bytes", room.capacity());
        copies.piece = room.freeze();
    }

    #[test]
    fn little_is_copied_ahead_of_a_transaction_that_is_copied_by_itself() {
        let (mut copies, block) = (Copies::default(), vec![1; 64 << 10]);
        let (small, large) = (30, 2_000);
        let mut rest = block.as_slice();
        let mut most = 0;
        while rest.len() > small + large {
            let block = BlockId { file: 1, offset: 512 };
            let found = |bytes| Replayed { revision: 1, value: &rest[..bytes], rest, block };
            assert!(copies.ahead(&found(small)).is_some());
            most = most.max(copies.piece.len());
            assert!(copies.ahead(&found(large)).is_none());
            rest = &rest[small + large..];
        }
        assert!(most <= FIRST_BYTES, "{most} bytes");
    }
}
