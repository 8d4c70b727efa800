//! Writes one segment, front to back, from sorted entries.

use std::collections::BTreeMap;

use annals_format::block::compare;
use annals_format::entry::{BlobRef, EntryRef};
use annals_format::filter::FilterKind;
use annals_format::limits::{BLOCK_RAW_BYTES_MAX, INTERNAL_KEY_BYTES_MAX};
use annals_format::segment::Footer;
use annals_format::{FileKind, FileMeta, dictionary, filter};

use super::blocks_out::BodiesOut;
use super::context::SegmentContext;
use super::groups_out::GroupsOut;
use super::sink::Sink;
use super::train::Training;
use super::tree;
use crate::error::{Error, Result};

/// What a new segment is.
#[derive(Clone, Debug)]
pub(crate) struct NewSegment {
    /// Its number, never used before in this store.
    pub(crate) number: u64,
    /// One of the five kinds of segment.
    pub(crate) kind: FileKind,
    /// Retention class.
    pub(crate) class: u32,
    /// HISTORY: the window (after, upto] of deaths. `None` = what the entries say.
    pub(crate) window: Option<(u64, u64)>,
    /// HISTORY: how its dictionary is made.
    pub(crate) training: Training,
}

impl NewSegment {
    /// A segment of the default class, without a window given.
    pub(crate) const fn new(kind: FileKind, number: u64) -> Self {
        Self { number, kind, class: 0, window: None, training: Training::Thorough }
    }
}

/// Most keys that HISTORY is asked for it lacks. A fuse filter lets fewer of those pass; but it takes ten times as long to
/// make, and a look-up touches three lines of memory where a Bloom filter has one: a get asks each L0 file, and HEAD is
/// made again and again.
const fn filter_kind(kind: FileKind) -> FilterKind {
    match kind {
        FileKind::History => FilterKind::Fuse,
        _ => FilterKind::Bloom,
    }
}

/// What an entry may take beside key and value.
const ENTRY_OVERHEAD_BYTES: u64 = 64;

/// Writes one segment. Entries are added in order; [`finish`](Self::finish) makes the file durable.
///
/// The file has its final name from the start: a file that no manifest lists is removed when the
/// store is opened. Bytes are written strictly in sequence and hashed on the way.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    new: NewSegment,
    sink: Sink,
    blocks: Blocks,
    hashes: Vec<u64>,
    counts: Counts,
}

/// What makes blocks of the entries.
#[derive(Debug)]
enum Blocks {
    Bodies(Box<BodiesOut>),
    Groups(Box<GroupsOut>),
}

#[derive(Debug, Default)]
struct Counts {
    entries: u64,
    keys: u64,
    tombstones: u64,
    value_bytes: u64,
    min_revision: u64,
    max_revision: u64,
    min_death: u64,
    max_death: u64,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    last_revision: u64,
    /// Of each blob file, how many bytes entries refer to.
    blobs: BTreeMap<u64, u64>,
}

impl SegmentWriter {
    /// Makes the file, which must not exist.
    pub(crate) fn create(context: &SegmentContext, new: NewSegment) -> Result<Self> {
        if !new.kind.is_segment() {
            return Err(Error::invalid(format!("{:?} is no kind of segment", new.kind)));
        }
        Ok(Self {
            sink: Sink::create(context, &new)?,
            blocks: match context.favour.filter(|_| new.kind == FileKind::History) {
                Some(favour) => {
                    Blocks::Groups(Box::new(GroupsOut::new(context, favour, new.training)))
                }
                None => Blocks::Bodies(Box::new(BodiesOut::new(context, new.kind))),
            },
            hashes: Vec::new(),
            counts: Counts::default(),
            new,
        })
    }

    /// Adds the next entry: key ascending, revision descending within a key, of which L0 and HEAD have
    /// one version.
    ///
    /// # Errors
    /// An entry out of order or above the limits of the format is refused and changes nothing.
    /// After any other error the file is of no use; call [`abandon`](Self::abandon).
    pub(crate) fn add(&mut self, entry: &EntryRef<'_>) -> Result<()> {
        self.check(entry)?;
        let counts = &self.counts;
        let last = (counts.entries > 0).then_some((&*counts.last_key, counts.last_revision));
        let same_key = last.is_some_and(|(key, _)| key == entry.key);
        match &mut self.blocks {
            Blocks::Bodies(bodies) => bodies.push(&mut self.sink, entry, last)?,
            Blocks::Groups(groups) => groups.push(&mut self.sink, entry)?,
        }
        self.count(entry, same_key);
        Ok(())
    }

    /// Bytes of the file so far, as if all blocks were stored: what is still to be compressed
    /// counts as it is.
    pub(crate) fn bytes(&self) -> u64 {
        let waiting = match &self.blocks {
            Blocks::Bodies(bodies) => bodies.waiting_bytes(),
            Blocks::Groups(groups) => groups.waiting_bytes(),
        };
        self.sink.offset() + waiting as u64
    }

    /// The number of the file.
    pub(crate) fn number(&self) -> u64 {
        self.new.number
    }

    /// Entries added so far.
    pub(crate) fn entries(&self) -> u64 {
        self.counts.entries
    }

    /// Writes the rest, syncs the file and answers what the manifest must know of it. The name
    /// becomes durable when the caller syncs the directory.
    pub(crate) fn finish(self) -> Result<FileMeta> {
        let (death_after, death_upto) = self.window();
        let Self { new, mut sink, blocks, hashes, counts } = self;
        let dictionary = match blocks {
            Blocks::Bodies(bodies) => bodies.finish(&mut sink)?,
            Blocks::Groups(groups) => groups.finish(&mut sink)?,
        };
        let index_offset = sink.offset();
        let blocks = sink.take_blocks();
        let block_count = u32::try_from(blocks.len())
            .map_err(|_| Error::invalid("a segment has more than 2^32 blocks"))?;
        let tree = tree::build(blocks, sink.seed, index_offset)
            .ok_or_else(|| Error::invalid("a segment has more than 2^32 pages"))?;
        sink.append(&tree.bytes)?;

        let filter_offset = sink.offset();
        if !hashes.is_empty() {
            let mut section = Vec::new();
            filter::encode(&mut section, filter_kind(new.kind), &hashes, sink.seed, filter_offset);
            sink.append(&section)?;
        }
        let dictionary_offset = sink.offset();
        if let Some(content) = dictionary {
            let mut section = Vec::new();
            dictionary::encode(&mut section, &content, sink.seed, dictionary_offset);
            sink.append(&section)?;
        }

        let footer = Footer {
            place: sink.place.at(sink.offset()),
            class: new.class,
            incarnation: sink.incarnation,
            entries: counts.entries,
            keys: counts.keys,
            tombstones: counts.tombstones,
            value_bytes: counts.value_bytes,
            min_revision: counts.min_revision,
            max_revision: counts.max_revision,
            death_after,
            death_upto,
            block_count,
            page_count: tree.page_count,
            index_offset,
            root: tree.root,
            height: tree.height,
            filter_offset,
            filter_bytes: dictionary_offset - filter_offset,
            dictionary_bytes: sink.offset() - dictionary_offset,
            living: sink.living(),
        };
        let mut section = Vec::new();
        footer.encode(&mut section);
        sink.append(&section)?;
        let (bytes, hash) = sink.finish()?;
        Ok(FileMeta {
            number: new.number,
            kind: new.kind,
            class: new.class,
            incarnation: footer.incarnation,
            bytes,
            hash,
            entries: counts.entries,
            value_bytes: counts.value_bytes,
            first_key: counts.first_key,
            last_key: counts.last_key,
            min_revision: counts.min_revision,
            max_revision: counts.max_revision,
            death_after,
            death_upto,
            // Of a flush the caller knows it.
            last_seq: 0,
            folded_to: Vec::new(),
            blobs: counts.blobs.iter().map(|(&file, &bytes)| BlobRef { file, bytes }).collect(),
        })
    }

    /// Gives up: removes the file.
    pub(crate) fn abandon(self) -> Result<()> {
        self.sink.abandon()
    }

    fn check(&self, entry: &EntryRef<'_>) -> Result<()> {
        let counts = &self.counts;
        let in_order = counts.entries == 0
            || compare(&counts.last_key, counts.last_revision, entry.key, entry.revision).is_lt();
        let one_version = self.new.kind.has_one_version();
        let what = if one_version && counts.entries > 0 && counts.last_key == entry.key {
            "a file of newest versions has one of a key"
        } else if !in_order {
            "entries of a segment must ascend by key and descend by revision"
        } else if entry.key.len() as u64 > INTERNAL_KEY_BYTES_MAX {
            "a key is longer than a segment can hold"
        } else if (entry.key.len() + entry.value.len()) as u64 + ENTRY_OVERHEAD_BYTES
            > BLOCK_RAW_BYTES_MAX
        {
            "a value is longer than a segment can hold"
        } else if self.new.kind == FileKind::History && entry.death <= entry.revision {
            "a superseded version must have died after it was written"
        } else if self.new.kind == FileKind::L0 && entry.first > entry.revision {
            "the oldest version of a key must not be after the newest"
        } else if entry.tombstone && (!entry.value.is_empty() || entry.blob.is_some()) {
            "a tombstone cannot have a value"
        } else if entry.blob.is_some() && !(self.new.kind.may_refer() && entry.value.is_empty()) {
            "only a newest version can have its value elsewhere, and then has none here"
        } else if matches!(self.blocks, Blocks::Groups(_)) && !GroupsOut::holds(entry) {
            "a superseded version must have a number of 1 at least and be no older than its lifetime, and a tombstone neither"
        } else {
            return Ok(());
        };
        Err(Error::invalid(what))
    }

    fn count(&mut self, entry: &EntryRef<'_>, same_key: bool) {
        if !same_key && self.new.kind.has_filter() {
            self.hashes.push(filter::hash_key(entry.key));
        }
        // The lowest revision that the entry speaks of.
        let oldest = if self.new.kind == FileKind::L0 { entry.first } else { entry.revision };
        let counts = &mut self.counts;
        if counts.entries == 0 {
            counts.first_key = entry.key.to_vec();
            (counts.min_revision, counts.max_revision) = (oldest, entry.revision);
            (counts.min_death, counts.max_death) = (entry.death, entry.death);
        }
        if !same_key {
            counts.keys += 1;
            counts.last_key.clear();
            counts.last_key.extend_from_slice(entry.key);
        }
        counts.entries += 1;
        counts.tombstones += u64::from(entry.tombstone);
        counts.value_bytes += entry.value.len() as u64;
        counts.last_revision = entry.revision;
        if let Some(BlobRef { file, bytes }) = entry.blob {
            let all = counts.blobs.entry(file).or_default();
            *all = all.saturating_add(bytes);
        }
        counts.min_revision = counts.min_revision.min(oldest);
        counts.max_revision = counts.max_revision.max(entry.revision);
        counts.min_death = counts.min_death.min(entry.death);
        counts.max_death = counts.max_death.max(entry.death);
    }

    fn window(&self) -> (u64, u64) {
        match (self.new.kind, self.new.window) {
            (FileKind::History, Some(window)) => window,
            (FileKind::History, None) => {
                (self.counts.min_death.saturating_sub(1), self.counts.max_death)
            }
            _ => (0, 0),
        }
    }
}
