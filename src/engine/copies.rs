//! Copies of many short slices, side by side in memory that they share.
//!
//! A key and a value that are told of a change have to outlive the block they were read from, and to copy
//! each into memory of its own costs more than to read it. Who keeps one of them keeps the others beside
//! it: [`CHUNK_BYTES`] at most.

use bytes::{Bytes, BytesMut};

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
}
