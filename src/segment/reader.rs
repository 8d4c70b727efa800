//! An open segment, and point reads in it.

use std::path::Path;
use std::sync::Arc;

use annals_format::checksum::FileSeed;
use annals_format::entry::EntryRef;
use annals_format::layout::Layout;
use annals_format::segment::{FOOTER_BYTES, Footer, HEADER_BYTES, Header};
use annals_format::{FileMeta, Place};
use bytes::Bytes;

use super::bits::Bits;
use super::blocks::Caching;
use super::cache::BlockCache;
use super::context::SegmentContext;
use super::opened::Opened;
use super::sealed::Blobs;
use super::source::Source;
use crate::error::{Error, Result};
use crate::sync::plain::OnceLock;

/// One version of one key, owning what it refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg(test)]
pub(crate) struct Entry {
    /// The internal key.
    pub(crate) key: Bytes,
    /// The rest.
    pub(crate) version: Version,
}

/// How much of a version a look-up wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// All of it.
    Value,
    /// All but the value, which is left empty: it may not have to be decoded.
    Fields,
}

impl Want {
    /// What a read wants that may want keys only.
    pub(crate) const fn unless(keys_only: bool) -> Self {
        if keys_only { Self::Fields } else { Self::Value }
    }
}

/// One version, without the key it was asked for by.
#[expect(clippy::struct_field_names, reason = "`version` is etcd's word for the number")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    /// The revision (for system keys the sequence number) that wrote it.
    pub(crate) revision: u64,
    /// Position of the write within its transaction.
    pub(crate) sub: u32,
    /// It says that the key was deleted.
    pub(crate) tombstone: bool,
    /// Revision that began the key's lifetime; 0 in a tombstone.
    pub(crate) create_revision: u64,
    /// 1 for the first version of a lifetime; 0 in a tombstone.
    pub(crate) version: u64,
    /// The lease attached; 0 = none.
    pub(crate) lease: i64,
    /// HISTORY: the revision that superseded it; else 0.
    pub(crate) death: u64,
    /// L0: the revision of the oldest version of the key that was flushed with it; else 0.
    pub(crate) first: u64,
    /// L0: the key was alive before `first`.
    pub(crate) lived: bool,
    /// The value, kept alive with the block it lies in.
    pub(crate) value: Bytes,
}

impl Version {
    pub(super) fn new(fields: &EntryRef<'_>, value: Bytes) -> Self {
        Self {
            revision: fields.revision,
            sub: fields.sub,
            tombstone: fields.tombstone,
            create_revision: fields.create_revision,
            version: fields.version,
            lease: fields.lease,
            death: fields.death,
            first: fields.first,
            lived: fields.lived,
            value,
        }
    }
}

#[cfg(test)]
impl Entry {
    /// The same, borrowed.
    pub(crate) fn as_ref(&self) -> EntryRef<'_> {
        EntryRef {
            key: &self.key,
            revision: self.version.revision,
            sub: self.version.sub,
            tombstone: self.version.tombstone,
            create_revision: self.version.create_revision,
            version: self.version.version,
            lease: self.version.lease,
            death: self.version.death,
            first: self.version.first,
            lived: self.version.lived,
            value: &self.version.value,
            blob: None,
        }
    }
}

/// A sealed segment file that the manifest lists.
///
/// Opening compares the length of the file and maps it; header and footer are read when something is
/// first asked of it. So opening a store costs the same per file however large the files are.
#[derive(Debug)]
pub(crate) struct Segment {
    meta: FileMeta,
    source: Arc<Source>,
    blobs: Blobs,
    place: Place,
    cache: BlockCache,
    opened: OnceLock<Opened>,
}

impl Segment {
    /// Opens the file that `meta` describes, whose entries may refer to values in `blobs`. Those files are opened when
    /// such a value is asked for.
    ///
    /// # Errors
    /// Corruption if the file is missing or has another length than the manifest says.
    pub(crate) fn open(context: &SegmentContext, meta: &FileMeta, blobs: &Blobs) -> Result<Self> {
        Ok(Self {
            meta: meta.clone(),
            source: Arc::new(Source::open(context, meta)?),
            blobs: Arc::clone(blobs),
            place: context.place(meta.kind, meta.number),
            cache: context.cache.clone(),
            opened: OnceLock::new(),
        })
    }

    /// A file of which the ends are known otherwise than by reading them.
    pub(super) fn of_opened(context: &SegmentContext, meta: &FileMeta, opened: Opened) -> Self {
        Self {
            meta: meta.clone(),
            source: Arc::clone(&opened.source),
            blobs: Arc::clone(&opened.blobs),
            place: context.place(meta.kind, meta.number),
            cache: opened.cache.clone(),
            opened: OnceLock::from(opened),
        }
    }

    /// Keeps the file readable when its name is removed. Whoever is about to do that, or reads beside
    /// a writer who may, calls this before. It takes a descriptor only of a file that is not mapped.
    pub(crate) fn hold(&self) -> Result<()> {
        self.source.hold()
    }

    /// What the manifest says of it.
    pub(crate) fn meta(&self) -> &FileMeta {
        &self.meta
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        self.source.path()
    }

    /// False if the segment certainly has no version of `key`.
    pub(crate) fn may_contain(&self, key: &[u8]) -> Result<bool> {
        if key < self.meta.first_key.as_slice() || key > self.meta.last_key.as_slice() {
            return Ok(false);
        }
        self.opened()?.may_contain(key)
    }

    /// The newest version of `key` with a revision of at most `at`; in HISTORY only if it had not
    /// died by then, since its successor, the answer, lies elsewhere.
    ///
    /// Costs one page a level and at most one block. In L0 and HEAD the value is not copied; in
    /// HISTORY it is made from what its group stores, or keeps its decoded block alive.
    pub(crate) fn find_at(&self, key: &[u8], at: u64, want: Want) -> Result<Option<Version>> {
        if key < self.meta.first_key.as_slice() || key > self.meta.last_key.as_slice() {
            return Ok(None);
        }
        self.find_within(key, at, want)
    }

    /// The same, for who has found that the key is not before the first one of the file, nor after the last.
    pub(crate) fn find_within(&self, key: &[u8], at: u64, want: Want) -> Result<Option<Version>> {
        if at < self.meta.min_revision {
            return Ok(None);
        }
        let opened = self.opened()?;
        if !opened.may_contain(key)? {
            return Ok(None);
        }
        let Some(handle) = opened.locate(key, at)? else { return Ok(None) };
        opened.block(handle, Caching::Keep, &mut None)?.find_at(opened, key, at, want)
    }

    /// The newest version of `key`, without a look into a filter.
    pub(super) fn find_unfiltered(&self, key: &[u8], caching: Caching) -> Result<Option<Version>> {
        let opened = self.opened()?;
        let Some(handle) = opened.locate(key, u64::MAX)? else { return Ok(None) };
        opened.block(handle, caching, &mut None)?.find_at(opened, key, u64::MAX, Want::Value)
    }

    /// As [`find_at`](Self::find_at), with the key.
    #[cfg(test)]
    pub(crate) fn get(&self, key: &[u8], at: u64) -> Result<Option<Entry>> {
        let found = self.find_at(key, at, Want::Value)?;
        Ok(found.map(|version| Entry { key: Bytes::copy_from_slice(key), version }))
    }

    /// What the footer says.
    pub(crate) fn footer(&self) -> Result<&Footer> {
        Ok(self.opened()?.footer())
    }

    pub(super) fn opened(&self) -> Result<&Opened> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        // Two threads may do this at once; either result is as good, and neither waits for the other
        // longer than it takes to move one.
        let opened = self.read_ends()?;
        Ok(self.opened.get_or_init(|| opened))
    }

    /// Reads and checks header and footer.
    fn read_ends(&self) -> Result<Opened> {
        let footer_bytes = FOOTER_BYTES as u64;
        let Some(footer_offset) =
            self.meta.bytes.checked_sub(footer_bytes).filter(|at| *at >= HEADER_BYTES as u64)
        else {
            let found = format!("{} bytes", self.meta.bytes);
            return Err(self.source.corrupt(0, "segment", "header and footer", found));
        };
        let header = self.read(0, HEADER_BYTES)?;
        let header = Header::decode(&header, &self.place)
            .map_err(|error| self.source.undecodable(0, &error))?;
        let footer = self.read(footer_offset, FOOTER_BYTES)?;
        let footer = Footer::decode(&footer, &self.place.at(footer_offset))
            .map_err(|error| self.source.undecodable(footer_offset, &error))?;
        let (of_header, of_footer) = (&Header::LAYOUT, &Footer::LAYOUT);
        let (meta, at) = (&self.meta, footer_offset);
        for (layout, at, field, found, expected) in [
            (of_header, 0, "class", u64::from(header.class), u64::from(meta.class)),
            (of_header, 0, "incarnation", header.incarnation, meta.incarnation),
            (of_footer, at, "class", footer.class.into(), meta.class.into()),
            (of_footer, at, "incarnation", footer.incarnation, meta.incarnation),
            (of_footer, at, "entries", footer.entries, meta.entries),
            (of_footer, at, "min_revision", footer.min_revision, meta.min_revision),
            (of_footer, at, "max_revision", footer.max_revision, meta.max_revision),
            (of_footer, at, "death_after", footer.death_after, meta.death_after),
            (of_footer, at, "death_upto", footer.death_upto, meta.death_upto),
        ] {
            self.compare(layout, at, field, found, expected)?;
        }
        Ok(Opened {
            source: Arc::clone(&self.source),
            cache: self.cache.clone(),
            seed: FileSeed::new(&self.place),
            kind: self.meta.kind,
            number: self.meta.number,
            checked_blocks: Bits::new(footer.block_count),
            checked_pages: Bits::new(footer.page_count),
            filter: OnceLock::new(),
            dictionary: OnceLock::new(),
            footer,
            blobs: Arc::clone(&self.blobs),
        })
    }

    /// What a file says of itself and what the manifest says of it must agree.
    fn compare(
        &self,
        layout: &Layout,
        at: u64,
        field: &str,
        found: u64,
        expected: u64,
    ) -> Result<()> {
        if found == expected {
            return Ok(());
        }
        let place = layout.fields.iter().find(|place| place.name == field);
        let offset = at + place.map_or(0, |place| place.offset as u64);
        let structure = format!("{}: {field}, against the manifest", layout.structure);
        let (expected, found) = (expected.to_string(), found.to_string());
        Err(self.source.corrupt(offset, structure, expected, found))
    }

    /// The error for a file that is not what the manifest says.
    pub(crate) fn corrupt(&self, structure: &str, expected: String, found: String) -> Error {
        self.source.corrupt(0, structure, expected, found)
    }

    /// Bytes of the file as they are, also when it has lost its name.
    pub(crate) fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        self.source.read(offset, bytes)
    }
}
