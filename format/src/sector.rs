//! Sectors: how bytes lie in a WAL file, so that after a crash *never written*, *torn* and
//! *rotten* can be told apart.
//!
//! A WAL file is a sequence of 512-byte sectors, the unit a disk writes or does not write. A
//! written sector is 508 bytes of data and a CRC-32 that is never zero, bound to the sector's own
//! place. So there are three kinds and no fourth:
//!
//! - all 512 bytes zero: never written, for the file was zero-filled when it was made;
//! - the CRC holds: written, whole, and meant for this place;
//! - anything else: rot.
//!
//! What is written is whole pages, and every sector of them is such a sector: those behind the last
//! byte have data of zeros. So each batch has eight sectors at least, and one that is zeroed later
//! leaves others that tell of it.
//!
//! The CRC also covers a flag byte that is not stored: 1 in the first sector of a batch (or of the
//! file header), else 0. A reader learns it from which of the two checksums holds, and so finds
//! the start of a batch without trusting any length.

use crate::checksum::FileSeed;
use crate::cursor::is_zero;

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;
/// Bytes of data in a sector.
pub const DATA_BYTES: usize = 508;
/// Bytes of a page: every batch starts on a page boundary and is written in whole pages.
pub const PAGE_BYTES: usize = 4096;

const _: () = assert!(PAGE_BYTES.is_multiple_of(SECTOR_BYTES));
const _: () = assert!(DATA_BYTES + size_of::<u32>() == SECTOR_BYTES);

/// What a sector turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sector<'a> {
    /// All zero: nothing was ever written here.
    Unwritten,
    /// Written, whole, and in its place.
    Written {
        /// Whether it is the first sector of a batch or of the file header.
        first: bool,
        /// Its data.
        data: &'a [u8; DATA_BYTES],
    },
    /// Neither: bytes have changed since they were written.
    Rotten {
        /// The checksum stored in it.
        expected: u32,
        /// The checksum of its data, for a sector that is not the first of a batch.
        found: u32,
    },
}

impl<'a> Sector<'a> {
    /// Looks at the sector at `offset` of the file that `seed` stands for.
    pub fn read(seed: FileSeed, offset: u64, bytes: &'a [u8; SECTOR_BYTES]) -> Self {
        let Some((data, trailer)) = bytes.split_first_chunk::<DATA_BYTES>() else {
            return Self::Rotten { expected: 0, found: 0 };
        };
        let expected = trailer.first_chunk().map_or(0, |trailer| u32::from_le_bytes(*trailer));
        if expected == 0 && is_zero(data) {
            return Self::Unwritten;
        }
        let found = trailer_crc(seed, offset, data, false);
        if expected == found {
            return Self::Written { first: false, data };
        }
        if expected == trailer_crc(seed, offset, data, true) {
            return Self::Written { first: true, data };
        }
        Self::Rotten { expected, found }
    }
}

/// How many bytes a file needs for `logical` bytes: whole sectors, filled up to whole pages.
pub const fn stored_bytes(logical: u64) -> u64 {
    let sectors = logical.div_ceil(DATA_BYTES as u64);
    (sectors * SECTOR_BYTES as u64).next_multiple_of(PAGE_BYTES as u64)
}

/// How many logical bytes fit into so many of a file: the other way round.
pub const fn logical_bytes_in(stored: u64) -> u64 {
    let pages = stored / PAGE_BYTES as u64;
    pages * (PAGE_BYTES / SECTOR_BYTES * DATA_BYTES) as u64
}

/// Collects logical bytes and lays them out as sectors.
///
/// Filling and sealing are two steps, because a batch learns its place in the file only when its
/// size is known. One buffer serves for ever: [`clear`](Self::clear) keeps its memory.
///
/// ```
/// use annals_format::{FileKind, Place, StoreId};
/// use annals_format::{checksum::FileSeed, sector::{Sector, SectorBuffer}};
/// let seed = FileSeed::new(&Place::start_of(StoreId([1; 16]), FileKind::Wal, 1));
/// let mut buffer = SectorBuffer::default();
/// buffer.push(b"hello");
/// buffer.seal(seed, 4096);
/// assert_eq!(buffer.sealed().len(), 4096);
/// let (first, _) = buffer.sealed().split_first_chunk().unwrap();
/// assert!(matches!(Sector::read(seed, 4096, first), Sector::Written { first: true, .. }));
/// // The same bytes anywhere else are rot.
/// assert!(matches!(Sector::read(seed, 8192, first), Sector::Rotten { .. }));
/// ```
#[derive(Debug, Default)]
pub struct SectorBuffer {
    /// Whole sectors, and at the end one that is being filled; trailers are zero until sealed.
    bytes: Vec<u8>,
    logical: u64,
}

impl SectorBuffer {
    /// Forgets the content and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.logical = 0;
    }

    /// How many logical bytes have been pushed.
    pub const fn logical_bytes(&self) -> u64 {
        self.logical
    }

    /// How many bytes of memory the buffer holds on to.
    pub const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Appends logical bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.logical += bytes.len() as u64;
        loop {
            let filled = self.bytes.len() % SECTOR_BYTES;
            let (now, later) = bytes.split_at(bytes.len().min(DATA_BYTES - filled));
            self.bytes.extend_from_slice(now);
            if filled + now.len() == DATA_BYTES {
                self.bytes.extend_from_slice(&[0; SECTOR_BYTES - DATA_BYTES]);
            }
            if later.is_empty() {
                return;
            }
            bytes = later;
        }
    }

    /// Replaces the first bytes pushed, which must lie within one sector.
    ///
    /// # Panics
    /// If fewer bytes have been pushed, or more than one sector's data is given.
    pub fn overwrite_start(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= DATA_BYTES, "the start is within the first sector");
        self.bytes[..bytes.len()].copy_from_slice(bytes);
    }

    /// Fills up the last page with zeros and writes the checksum of every sector, for bytes that
    /// will stand at `offset`. May be called again for another place.
    pub fn seal(&mut self, seed: FileSeed, offset: u64) {
        self.bytes.resize(self.bytes.len().next_multiple_of(PAGE_BYTES), 0);
        let mut place = offset;
        let (sectors, _) = self.bytes.as_chunks_mut::<SECTOR_BYTES>();
        for sector in sectors {
            let (data, trailer) = sector.split_at_mut(DATA_BYTES);
            let crc = trailer_crc(seed, place, data, place == offset);
            trailer.copy_from_slice(&crc.to_le_bytes());
            place += SECTOR_BYTES as u64;
        }
    }

    /// The sealed bytes: whole pages.
    pub fn sealed(&self) -> &[u8] {
        &self.bytes
    }
}

/// The CRC-32 in a sector's trailer; 0 is stored as 1, so that no written sector is all zero.
#[inline]
fn trailer_crc(seed: FileSeed, offset: u64, data: &[u8], first: bool) -> u32 {
    seed.crc(offset, &[data, &[u8::from(first)]]).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{FileKind, Place, StoreId};

    fn seed() -> FileSeed {
        FileSeed::new(&Place::start_of(StoreId([3; 16]), FileKind::Wal, 9))
    }

    /// The data of all written sectors, and how many are written.
    fn read_back(bytes: &[u8], offset: u64) -> (Vec<u8>, usize) {
        let (mut data, mut written) = (Vec::new(), 0);
        for (index, sector) in bytes.as_chunks::<SECTOR_BYTES>().0.iter().enumerate() {
            match Sector::read(seed(), offset + (index * SECTOR_BYTES) as u64, sector) {
                Sector::Written { first, data: found } => {
                    assert_eq!(first, index == 0);
                    assert_eq!(written, index, "no gap");
                    written += 1;
                    data.extend_from_slice(found);
                }
                Sector::Unwritten => {}
                Sector::Rotten { .. } => panic!("sector {index} is rotten"),
            }
        }
        (data, written)
    }

    #[test]
    fn every_length_round_trips_in_pieces_of_every_size() {
        let mut buffer = SectorBuffer::default();
        for length in (1..2200).chain([507, 508, 509, 1016, 1017, 4064, 4065]) {
            let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
            buffer.clear();
            for piece in bytes.chunks(1 + length % 600) {
                buffer.push(piece);
            }
            buffer.overwrite_start(&bytes[..1]);
            buffer.seal(seed(), 0);
            buffer.seal(seed(), 8192);
            assert_eq!(buffer.sealed().len() as u64, stored_bytes(length as u64));
            let (data, written) = read_back(buffer.sealed(), 8192);
            assert_eq!((written * SECTOR_BYTES) as u64, stored_bytes(length as u64));
            assert_eq!(data[..length], bytes);
            assert!(is_zero(&data[length..]));
        }
    }

    #[test]
    fn data_of_zeros_is_not_an_unwritten_sector() {
        let mut buffer = SectorBuffer::default();
        buffer.push(&[0; 4 * DATA_BYTES]);
        buffer.seal(seed(), 4096);
        assert_eq!(read_back(buffer.sealed(), 4096).1, 8);
    }

    #[test]
    fn every_flipped_bit_is_rot() {
        let mut buffer = SectorBuffer::default();
        buffer.push(b"some bytes");
        buffer.seal(seed(), 0);
        let (sector, _) = buffer.sealed().split_first_chunk::<SECTOR_BYTES>().unwrap();
        for bit in 0..SECTOR_BYTES * 8 {
            let mut damaged = *sector;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Sector::read(seed(), 0, &damaged), Sector::Rotten { .. }), "{bit}");
            let mut unwritten = [0; SECTOR_BYTES];
            unwritten[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Sector::read(seed(), 0, &unwritten), Sector::Rotten { .. }), "{bit}");
        }
    }
}
