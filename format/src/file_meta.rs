//! What the manifest knows about a sealed segment file.

use crate::checksum::ContentHash;
use crate::cursor::{Reader, Writer};
use crate::entry::BlobRef;
use crate::error::{Problem, Result};
use crate::limits::INTERNAL_KEY_BYTES_MAX;
use crate::order::has_begun;
use crate::place::FileKind;

/// What the manifest knows about a sealed segment file: enough to choose the files a read has to
/// open, and to tell whether a file found on disk is the one that was sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMeta {
    /// The file's number, unique among all files of the store.
    pub number: u64,
    /// What the file is: one of the five segment kinds.
    pub kind: FileKind,
    /// Retention class; 0 is the default class.
    pub class: u32,
    /// The incarnation of the store that made the file: that of this store at the time, or of the one that it
    /// is a copy of. A file of another copy has another one, or else is the same.
    pub incarnation: u64,
    /// The file's exact length.
    pub bytes: u64,
    /// The hash of its whole content.
    pub hash: ContentHash,
    /// How many entries it holds.
    pub entries: u64,
    /// Uncompressed bytes of all values.
    pub value_bytes: u64,
    /// The first internal key.
    pub first_key: Vec<u8>,
    /// The last internal key, inclusive.
    pub last_key: Vec<u8>,
    /// The lowest revision of an entry, in L0 the lowest [`first`](crate::entry::EntryRef::first).
    pub min_revision: u64,
    /// The highest revision of an entry.
    pub max_revision: u64,
    /// HISTORY: the window is (`death_after`, `death_upto`]; otherwise 0.
    pub death_after: u64,
    /// HISTORY: the last death of the window, inclusive; otherwise 0.
    pub death_upto: u64,
    /// L0: the sequence number of the last transaction in it, by which newer files are told from
    /// older; otherwise 0.
    pub last_seq: u64,
    /// L0: entries of keys before this one have been folded into HEAD and do not count any more;
    /// otherwise empty.
    pub folded_to: Vec<u8>,
    /// L0, HEAD: the blob files in which values of its entries lie, by number, and how many bytes of each these are;
    /// otherwise none.
    pub blobs: Vec<BlobRef>,
}

impl FileMeta {
    /// Appends the encoding that stands in a manifest record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.number);
        out.put_u8(self.kind.number());
        out.put_varint(u64::from(self.class));
        out.put_varint(self.incarnation);
        out.put_varint(self.bytes);
        out.put_bytes(&self.hash.0);
        out.put_varint(self.entries);
        out.put_varint(self.value_bytes);
        out.put_prefixed(&self.first_key);
        out.put_prefixed(&self.last_key);
        out.put_varint(self.min_revision);
        out.put_varint(self.max_revision);
        out.put_varint(self.death_after);
        out.put_varint(self.death_upto);
        if self.kind == FileKind::L0 {
            out.put_varint(self.last_seq);
            out.put_prefixed(&self.folded_to);
        }
        if self.kind.may_refer() && !self.blobs.is_empty() {
            out.put_varint(self.blobs.len() as u64);
            self.blobs.iter().for_each(|blob| blob.encode(out));
        }
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let number = reader.varint_number("number", 1)?;
        let kind_at = reader.position();
        let kind_number = reader.u8("kind")?;
        let kind = FileKind::from_number(kind_number).filter(|kind| kind.is_segment()).ok_or_else(
            || {
                let found = u64::from(kind_number);
                reader.error_at("kind", kind_at, Problem::Invalid { found })
            },
        )?;
        let mut meta = Self {
            number,
            kind,
            class: reader.varint_u32("class")?,
            incarnation: reader.varint_number("incarnation", 1)?,
            bytes: reader.varint("bytes")?,
            hash: ContentHash(reader.array("hash")?),
            entries: reader.varint("entries")?,
            value_bytes: reader.varint("value_bytes")?,
            first_key: reader.prefixed("first_key", INTERNAL_KEY_BYTES_MAX)?.to_vec(),
            last_key: reader.prefixed("last_key", INTERNAL_KEY_BYTES_MAX)?.to_vec(),
            min_revision: reader.varint_number("min_revision", 0)?,
            max_revision: reader.varint_number("max_revision", 0)?,
            death_after: reader.varint_number("death_after", 0)?,
            death_upto: reader.varint_number("death_upto", 0)?,
            last_seq: 0,
            folded_to: Vec::new(),
            blobs: Vec::new(),
        };
        if kind == FileKind::L0 {
            meta.last_seq = reader.varint("last_seq")?;
            meta.folded_to = reader.prefixed("folded_to", INTERNAL_KEY_BYTES_MAX)?.to_vec();
        }
        if kind.may_refer() && !reader.is_empty() {
            meta.blobs = decode_blobs(reader)?;
        }
        for (field, low, high) in [
            ("max_revision", meta.min_revision, meta.max_revision),
            ("death_upto", meta.death_after, meta.death_upto),
        ] {
            if low > high {
                return Err(reader.error(field, Problem::Invalid { found: high }));
            }
        }
        if meta.first_key > meta.last_key {
            return Err(reader.error("last_key", Problem::Order));
        }
        // Of a file that is folded whole nothing is left to be listed.
        if !has_begun(&meta.folded_to, &meta.last_key) {
            return Err(reader.error("folded_to", Problem::Order));
        }
        Ok(meta)
    }
}

/// At least one blob file, in the order of the numbers.
fn decode_blobs(reader: &mut Reader<'_>) -> Result<Vec<BlobRef>> {
    let at = reader.position();
    let found = reader.varint("blob_count")?;
    // Each takes two bytes at least.
    let max = reader.remaining() as u64 / 2;
    if found == 0 || found > max {
        return Err(reader.error_at("blob_count", at, Problem::TooLong { max, found }));
    }
    let mut blobs: Vec<BlobRef> = Vec::new();
    for _ in 0..found {
        let at = reader.position();
        let blob = BlobRef::decode(reader)?;
        if blobs.last().is_some_and(|last| last.file >= blob.file) {
            return Err(reader.error_at("blob_file", at, Problem::Order));
        }
        blobs.push(blob);
    }
    Ok(blobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_round_trips() {
        let meta = FileMeta {
            number: 12,
            kind: FileKind::History,
            class: 3,
            incarnation: 5,
            bytes: 1 << 40,
            hash: ContentHash([9; 16]),
            entries: 300,
            value_bytes: 70_000,
            first_key: b"\x01a".to_vec(),
            last_key: vec![0xff; 300],
            min_revision: 2,
            max_revision: 500,
            death_after: 100,
            death_upto: 600,
            last_seq: 0,
            folded_to: Vec::new(),
            blobs: Vec::new(),
        };
        let l0 = FileMeta {
            kind: FileKind::L0,
            last_seq: 700,
            folded_to: b"\x01b".to_vec(),
            ..meta.clone()
        };
        for meta in [meta, l0.clone()] {
            round_trips(&meta);
        }
        let blobs = vec![BlobRef { file: 3, bytes: 70_000 }, BlobRef { file: 9, bytes: 1 << 50 }];
        let mut bytes = Vec::new();
        let refers = FileMeta { blobs, ..l0.clone() };
        refers.encode(&mut bytes);
        let mut reader = Reader::new("file record", &bytes);
        assert_eq!(FileMeta::decode(&mut reader).as_ref(), Ok(&refers));
        assert_eq!(reader.finish(), Ok(()));
        // One that refers to nothing ends where a list would begin.
        let mut without = Vec::new();
        l0.encode(&mut without);
        for cut in (0..bytes.len()).filter(|cut| *cut != without.len()) {
            FileMeta::decode(&mut Reader::new("file record", &bytes[..cut])).unwrap_err();
        }
        for (file, wanted) in [(3, "blob_file"), (0, "blob_file")] {
            let blobs = vec![BlobRef { file: 3, bytes: 1 }, BlobRef { file, bytes: 1 }];
            let mut bytes = Vec::new();
            FileMeta { blobs, ..l0.clone() }.encode(&mut bytes);
            let error = FileMeta::decode(&mut Reader::new("file record", &bytes)).unwrap_err();
            assert_eq!(error.field, wanted);
        }
    }

    fn round_trips(meta: &FileMeta) {
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        let mut reader = Reader::new("file record", &bytes);
        assert_eq!(FileMeta::decode(&mut reader).as_ref(), Ok(meta));
        assert_eq!(reader.finish(), Ok(()));
        for cut in 0..bytes.len() {
            FileMeta::decode(&mut Reader::new("file record", &bytes[..cut])).unwrap_err();
        }
    }

    #[test]
    fn a_file_that_is_folded_whole_is_not_listed() {
        let meta = FileMeta {
            number: 12,
            kind: FileKind::L0,
            class: 0,
            incarnation: 1,
            bytes: 1,
            hash: ContentHash([9; 16]),
            entries: 1,
            value_bytes: 0,
            first_key: b"\x01a".to_vec(),
            last_key: b"\x01c".to_vec(),
            min_revision: 2,
            max_revision: 2,
            death_after: 0,
            death_upto: 0,
            last_seq: 3,
            folded_to: b"\x01d".to_vec(),
            blobs: Vec::new(),
        };
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        let error = FileMeta::decode(&mut Reader::new("file record", &bytes)).unwrap_err();
        assert_eq!(error.field, "folded_to");
    }
}
