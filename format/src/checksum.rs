//! Checksums: CRC-32 bound to a [`Place`] for structures, xxh3-128 for whole files.
//!
//! CRC-32 (the IEEE polynomial) finds every flipped bit and every damaged run of up to 32 bits in
//! a structure; the content hash of a sealed file, kept in the manifest, finds what is wider.
//!
//! A placed CRC covers, in this order: the store id (16 bytes), the file kind (1), the file
//! number (8, little-endian), the offset (8, little-endian), then the bytes themselves.

use std::fmt;

use crc32fast::Hasher;
use xxhash_rust::xxh3::Xxh3;

use crate::place::{Place, StoreId};

/// The CRC-32 of `parts`, one after the other, bound to where they live.
pub fn crc(place: &Place, parts: &[&[u8]]) -> u32 {
    let mut hasher = FileSeed::new(place).hasher_at(place.offset);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// The CRC-32 of bytes whose place is not known when they are made (a frame is encoded before the
/// log gives it an offset), bound to the store and to what they are.
pub fn crc_unplaced(store: &StoreId, tag: u8, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&store.0);
    hasher.update(&[tag]);
    hasher.update(bytes);
    hasher.finalize()
}

/// The part of a placed CRC that is the same for a whole file, computed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSeed(u32);

impl FileSeed {
    /// The seed of the file that `place` lies in.
    pub fn new(place: &Place) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(&place.store.0);
        hasher.update(&[place.kind.number()]);
        hasher.update(&place.file.to_le_bytes());
        Self(hasher.finalize())
    }

    /// A hasher that has taken in the file and the offset.
    pub(crate) fn hasher_at(self, offset: u64) -> Hasher {
        let mut hasher = Hasher::new_with_initial(self.0);
        hasher.update(&offset.to_le_bytes());
        hasher
    }

    /// The same as [`crc`] for bytes at `offset` of this file.
    pub fn crc(self, offset: u64, parts: &[&[u8]]) -> u32 {
        let mut hasher = self.hasher_at(offset);
        for part in parts {
            hasher.update(part);
        }
        hasher.finalize()
    }
}

/// The xxh3-128 hash of a whole file, little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ContentHash(pub [u8; 16]);

impl ContentHash {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = ContentHasher::new();
        hasher.update(bytes);
        hasher.finish()
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentHash({self})")
    }
}

/// Computes a [`ContentHash`] piece by piece.
#[derive(Clone)]
pub struct ContentHasher(Box<Xxh3>);

impl ContentHasher {
    /// A hasher that has seen nothing.
    pub fn new() -> Self {
        Self(Box::new(Xxh3::new()))
    }

    /// Takes in the next bytes of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of everything taken in so far.
    pub fn finish(&self) -> ContentHash {
        ContentHash(self.0.digest128().to_le_bytes())
    }
}

impl Default for ContentHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ContentHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ContentHasher").field(&self.finish()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::FileKind;

    const PLACE: Place =
        Place { store: StoreId([7; 16]), kind: FileKind::Wal, file: 3, offset: 512 };

    #[test]
    fn every_part_of_the_place_changes_the_checksum() {
        let base = crc(&PLACE, &[b"abc"]);
        assert_eq!(base, crc(&PLACE, &[b"a", b"", b"bc"]));
        assert_eq!(base, FileSeed::new(&PLACE).crc(512, &[b"abc"]));
        assert_ne!(base, crc(&PLACE.at(513), &[b"abc"]));
        assert_ne!(base, crc(&Place { file: 4, ..PLACE }, &[b"abc"]));
        assert_ne!(base, crc(&Place { kind: FileKind::L0, ..PLACE }, &[b"abc"]));
        assert_ne!(base, crc(&Place { store: StoreId([8; 16]), ..PLACE }, &[b"abc"]));
    }

    #[test]
    fn the_seed_is_the_crc_of_the_documented_bytes() {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&[7; 16]);
        bytes.push(3);
        bytes.extend_from_slice(&3_u64.to_le_bytes());
        bytes.extend_from_slice(&512_u64.to_le_bytes());
        bytes.extend_from_slice(b"abc");
        assert_eq!(crc(&PLACE, &[b"abc"]), crc32fast::hash(&bytes));
    }

    #[test]
    fn the_content_hash_streams() {
        let mut hasher = ContentHasher::new();
        hasher.update(b"hello ");
        hasher.update(b"world");
        assert_eq!(hasher.finish(), ContentHash::of(b"hello world"));
        assert_ne!(ContentHash::of(b"hello world"), ContentHash::of(b"hello worle"));
    }
}
