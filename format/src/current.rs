//! `CURRENT`: the 64 bytes that name the manifest in force.

use crate::checksum::crc;
use crate::cursor::{Reader, SliceWriter, Writer};
use crate::error::Result;
use crate::layout::{Layout, field};
use crate::place::{FileKind, Place, StoreId};
use crate::seal::ManifestStamp;

/// `"ancu"`: a `CURRENT` file starts here.
pub const MAGIC: u32 = u32::from_le_bytes(*b"ancu");
/// The version this build writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;
/// The length of the file, exactly.
pub const BYTES: usize = 64;

/// The byte map of the file.
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

/// The content of `CURRENT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current {
    /// The store.
    pub store: StoreId,
    /// The manifest in force: number, exact length and checksum.
    pub manifest: ManifestStamp,
}

impl Current {
    /// The bytes of the file.
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

    /// Decodes the whole file. The checksum is checked before the version, so that damage is not
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
