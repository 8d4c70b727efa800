//! A seal: the last batch of a WAL file that was ended on purpose.
//!
//! A file that was rolled over names its successor; a file that was closed names the manifest it
//! was closed with. Either way nothing may be missing behind the last frame, so truncation and
//! zeroed tails are found.

use crate::checksum::crc;
use crate::cursor::{Reader, SliceWriter, Writer};
use crate::error::{Problem, Result};
use crate::layout::{Layout, field};
use crate::place::Place;
use crate::wal_file::is_file_bytes;

/// Bytes of a seal.
pub const BYTES: usize = 64;

/// The byte map of a seal.
pub const LAYOUT: Layout = Layout {
    structure: "seal",
    fields: &[
        field(0, 1, "kind"),
        field(1, 7, "zero"),
        field(8, 8, "next_file"),
        field(16, 8, "next_file_bytes"),
        field(24, 8, "last_seq"),
        field(32, 8, "last_revision"),
        field(40, 8, "manifest_number"),
        field(48, 8, "manifest_bytes"),
        field(56, 4, "manifest_crc"),
        field(60, 4, "crc"),
    ],
};
const _: () = assert!(LAYOUT.bytes() == BYTES);

/// What identifies one manifest exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManifestStamp {
    /// The manifest's number.
    pub number: u64,
    /// Its length.
    pub bytes: u64,
    /// The CRC at its end.
    pub crc: u32,
}

/// Why a WAL file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealKind {
    /// The log goes on in another file.
    Rolled {
        /// The number of the next file.
        next_file: u64,
        /// How long it was made.
        next_file_bytes: u64,
    },
    /// The store was closed.
    Closed {
        /// The manifest it was closed with.
        manifest: ManifestStamp,
    },
}

/// The last batch of a WAL file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    /// Why the file ended.
    pub kind: SealKind,
    /// The seq of the last frame of the log so far.
    pub last_seq: u64,
    /// The revision after it.
    pub last_revision: u64,
}

impl Seal {
    /// The bytes of a seal in the batch at `place`.
    pub fn encode(&self, place: &Place) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let none = ManifestStamp { number: 0, bytes: 0, crc: 0 };
        let (kind, next_file, next_file_bytes, manifest) = match self.kind {
            SealKind::Rolled { next_file, next_file_bytes } => {
                (1, next_file, next_file_bytes, none)
            }
            SealKind::Closed { manifest } => (2, 0, 0, manifest),
        };
        let mut writer = SliceWriter::new(&mut bytes);
        writer.put_u8(kind);
        writer.put_zeros(7);
        writer.put_u64(next_file);
        writer.put_u64(next_file_bytes);
        writer.put_u64(self.last_seq);
        writer.put_u64(self.last_revision);
        writer.put_u64(manifest.number);
        writer.put_u64(manifest.bytes);
        writer.put_u32(manifest.crc);
        let (covered, stored) = bytes.split_at_mut(BYTES - 4);
        stored.copy_from_slice(&crc(place, &[covered]).to_le_bytes());
        bytes
    }

    /// Decodes the body of a seal batch at `place`.
    pub fn decode(bytes: &[u8], place: &Place) -> Result<Self> {
        let mut end = Reader::new(LAYOUT.structure, bytes);
        end.bytes("seal", BYTES - 4)?;
        end.checksum("crc", crc(place, &[end.consumed()]))?;
        end.finish()?;

        let mut reader = Reader::new(LAYOUT.structure, bytes);
        let kind = reader.u8("kind")?;
        reader.zeros("zero", 7)?;
        let next_file = reader.number("next_file", 0)?;
        let next_file_bytes_at = reader.position();
        let next_file_bytes = reader.u64("next_file_bytes")?;
        let last_seq = reader.number("last_seq", 0)?;
        let last_revision = reader.number("last_revision", 1)?;
        let manifest = ManifestStamp {
            number: reader.number("manifest_number", 0)?,
            bytes: reader.u64("manifest_bytes")?,
            crc: reader.u32("manifest_crc")?,
        };
        if next_file_bytes != 0 && !is_file_bytes(next_file_bytes) {
            let problem = Problem::Invalid { found: next_file_bytes };
            return Err(reader.error_at("next_file_bytes", next_file_bytes_at, problem));
        }
        let rolled = next_file != 0 && next_file_bytes != 0;
        let closed = manifest.number != 0 && manifest.bytes != 0;
        let nothing_else = match kind {
            1 => rolled && manifest == ManifestStamp { number: 0, bytes: 0, crc: 0 },
            2 => closed && next_file == 0 && next_file_bytes == 0,
            _ => false,
        };
        if !nothing_else {
            return Err(reader.error_at("kind", 0, Problem::Invalid { found: u64::from(kind) }));
        }
        let kind = match kind {
            1 => SealKind::Rolled { next_file, next_file_bytes },
            _ => SealKind::Closed { manifest },
        };
        Ok(Self { kind, last_seq, last_revision })
    }
}
