//! `CURRENT`: 64 bytes that name the manifest in force, a copy of that manifest, and the 64 bytes once more.
//!
//! So what it and the manifest say stands in two places each, and damage in one of them costs nothing. A file of 64
//! bytes, as the first builds wrote it, has no copy.

use crate::checksum::crc;
use crate::cursor::{Reader, SliceWriter, Writer};
use crate::error::{DecodeError, Problem, Result};
use crate::layout::{Layout, field};
use crate::manifest::Manifest;
use crate::place::{FileKind, Place, StoreId};
use crate::seal::ManifestStamp;

/// `"ancu"`: a `CURRENT` file starts here.
pub const MAGIC: u32 = u32::from_le_bytes(*b"ancu");
/// The version this build writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;
/// The length of what names the manifest, which a file begins and ends with.
pub const BYTES: usize = 64;

/// The byte map of what names the manifest.
pub const LAYOUT: Layout = Layout {
    structure: "current",
    fields: &[
        field(0, 4, "magic"),
        field(4, 4, "format_version"),
        field(8, 16, "store"),
        field(24, 8, "manifest_number"),
        field(32, 8, "manifest_bytes"),
        field(40, 4, "manifest_crc"),
        field(44, 16, "zero"),
        field(60, 4, "crc"),
    ],
};
const _: () = assert!(LAYOUT.bytes() == BYTES);

/// What names the manifest in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current {
    /// The store.
    pub store: StoreId,
    /// The manifest in force: number, exact length and checksum.
    pub manifest: ManifestStamp,
}

/// The content of a file `CURRENT`, as far as it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentFile<'a> {
    /// Which manifest is in force.
    pub current: Current,
    /// The copy of that manifest, unchecked; `None` where the file has none.
    pub copy: Option<&'a [u8]>,
    /// What is wrong with one of the two places that name the manifest, where the other is whole.
    pub damage: Option<DecodeError>,
}

impl<'a> CurrentFile<'a> {
    /// The bytes of the file that puts a manifest in force, of which these are the bytes.
    pub fn encode(current: &Current, manifest: &[u8]) -> Vec<u8> {
        let ends = current.encode();
        [&ends, manifest, &ends].concat()
    }

    /// Decodes the whole file, but for the copy of the manifest.
    ///
    /// # Errors
    /// Neither its begin nor its end can be decoded, or they name different manifests.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let (first, rest) = bytes.split_at(bytes.len().min(BYTES));
        let first = Current::decode(first);
        if rest.is_empty() {
            return Ok(Self { current: first?, copy: None, damage: None });
        }
        let (copy, last) = rest.split_at(rest.len().saturating_sub(BYTES));
        let last_at = BYTES + copy.len();
        let last = Current::decode(last).map_err(|error| error.behind(last_at as u64));
        let (current, damage) = match (first, last) {
            (Ok(first), Ok(last)) if first == last => (first, None),
            (Ok(first), Ok(last)) => {
                let (expected, found) = (first.manifest.number, last.manifest.number);
                let problem = Problem::Mismatch { expected, found };
                let offset = last_at as u64 + 24;
                let (structure, field) = (LAYOUT.structure, "manifest_number");
                return Err(DecodeError { structure, field, offset, problem });
            }
            // Of a newer format, and whole: what else is in the file nobody here can tell.
            (Err(error), _) | (_, Err(error)) if error.is_newer_version() => return Err(error),
            (Ok(first), Err(error)) => {
                // The file may be cut, or longer than it was.
                let bytes = usize::try_from(first.manifest.bytes).unwrap_or(usize::MAX);
                let copy = rest.get(..bytes).unwrap_or(rest);
                return Ok(Self { current: first, copy: Some(copy), damage: Some(error) });
            }
            (Err(error), Ok(last)) => (last, Some(error)),
            (Err(error), Err(_)) => return Err(error),
        };
        Ok(Self { current, copy: Some(copy), damage })
    }

    /// Decodes the copy of the manifest; `None` where the file has none.
    ///
    /// # Errors
    /// The copy is not the manifest in force: it is damaged.
    pub fn manifest(&self) -> Result<Option<Manifest>> {
        let Some(copy) = self.copy else { return Ok(None) };
        let decoded = Manifest::decode_stamped(copy);
        let (manifest, stamp) = decoded.map_err(|error| error.behind(BYTES as u64))?;
        let Current { store, manifest: expected } = self.current;
        if (manifest.store, stamp) == (store, expected) {
            return Ok(Some(manifest));
        }
        let (expected, found) = (u64::from(expected.crc), u64::from(stamp.crc));
        let problem = Problem::Mismatch { expected, found };
        let offset = (BYTES + copy.len().saturating_sub(4)) as u64;
        Err(DecodeError { structure: "manifest", field: "crc", offset, problem })
    }
}

impl Current {
    /// Its bytes.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let mut writer = SliceWriter::new(&mut bytes);
        writer.put_u32(MAGIC);
        writer.put_u32(FORMAT_VERSION);
        writer.put_bytes(&self.store.0);
        writer.put_u64(self.manifest.number);
        writer.put_u64(self.manifest.bytes);
        writer.put_u32(self.manifest.crc);
        writer.put_zeros(16);
        let (covered, stored) = bytes.split_at_mut(BYTES - 4);
        stored.copy_from_slice(&crc(&place(self.store), &[covered]).to_le_bytes());
        bytes
    }

    /// Decodes exactly that many bytes. The checksum is checked before the version, so that damage is not
    /// taken for a newer format.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(LAYOUT.structure, bytes);
        reader.magic(MAGIC)?;
        let mut version = reader.clone();
        reader.bytes("format_version", 4)?;
        let store = StoreId(reader.array("store")?);
        let manifest = ManifestStamp {
            number: reader.u64("manifest_number")?,
            bytes: reader.u64("manifest_bytes")?,
            crc: reader.u32("manifest_crc")?,
        };
        let mut zero = reader.clone();
        reader.bytes("zero", 16)?;
        reader.checksum("crc", crc(&place(store), &[reader.consumed()]))?;
        reader.finish()?;
        version.version(FORMAT_VERSION)?;
        zero.zeros("zero", 16)?;
        Ok(Self { store, manifest })
    }
}

const fn place(store: StoreId) -> Place {
    Place::start_of(store, FileKind::Current, 0)
}
