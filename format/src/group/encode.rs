//! Writes blocks of groups from a stream of versions.
//!
//! Entries come in the order of the file, key ascending and revision descending, and blocks go out in
//! the same order. Nothing of a version is held but what is stored of it and, of a few, the value that
//! others may be made from: a keyframe, the version before, and the first of this and another group.
//!
//! A group that fills a block is alone in it. Groups of keys with few versions share one, until
//! another would take it above its target. That is known only as that group grows, so a block can be
//! complete while the group after it is still open: see [`GroupsBuilder::is_full`].

use std::collections::VecDeque;

use super::choose::{Chooser, Favour, Pack};
use super::directory::key_hash;
use super::draft::{Draft, Finished};
use super::table::Stored;
use super::{GROUP_VALUE_BYTES_MAX, GROUPS_MAX, KIND_TOMBSTONE};
use crate::cursor::Writer;
use crate::entry::{EntryRef, common_prefix};
use crate::limits::BLOCK_RAW_BYTES_MAX;

/// The stored bytes of a complete block, and what its header and the index must know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawGroups {
    /// What stands behind the block's header.
    pub stored: Vec<u8>,
    /// Versions in it.
    pub entry_count: u32,
    /// Bytes of all values in it.
    pub raw_bytes: u32,
    /// Key and revision of the first entry.
    pub first: (Vec<u8>, u64),
    /// Key and revision of the last entry.
    pub last: (Vec<u8>, u64),
}

/// Builds blocks of groups, entry by entry.
///
/// ```
/// use annals_format::entry::EntryRef;
/// use annals_format::group::{Favour, GroupsBuilder, Pack};
///
/// struct NoZstd;
/// impl Pack for NoZstd {
///     fn zstd(&mut self, _value: &[u8], _dictionary: bool) -> Option<Vec<u8>> {
///         None
///     }
/// }
///
/// let mut builder = GroupsBuilder::new(Favour::Fast, b"", 4096);
/// let new = EntryRef {
///     key: b"\x01/a", revision: 5, death: 9, create_revision: 3, version: 2, value: b"new",
///     ..EntryRef::default()
/// };
/// let old = EntryRef { revision: 3, death: 5, version: 1, value: b"old", ..new };
/// builder.push(&new, &mut NoZstd);
/// builder.push(&old, &mut NoZstd);
/// let mut blocks = Vec::new();
/// while let Some(block) = builder.finish() {
///     blocks.push(block);
/// }
/// assert_eq!(blocks[0].entry_count, 2);
/// assert_eq!(blocks[0].last, (b"\x01/a".to_vec(), 3));
/// ```
#[derive(Debug)]
pub struct GroupsBuilder {
    block_bytes: usize,
    chooser: Chooser,
    draft: Draft,
    /// The complete groups of the block being built, none of which fills it.
    groups: Vec<Finished>,
    /// Bytes of them in the block, but for what their keys share.
    groups_bytes: usize,
    groups_raw_bytes: u64,
    /// Complete blocks not yet taken.
    ready: VecDeque<RawGroups>,
    stored: Stored,
    alone: Stored,
}

impl GroupsBuilder {
    /// Writes blocks of about `block_bytes` at most, as far as single groups let it. `dictionary` is
    /// the content of the file's dictionary, empty if there is none.
    pub fn new(favour: Favour, dictionary: &[u8], block_bytes: usize) -> Self {
        Self {
            block_bytes,
            chooser: Chooser::new(favour, dictionary),
            draft: Draft::default(),
            groups: Vec::new(),
            groups_bytes: 0,
            groups_raw_bytes: 0,
            ready: VecDeque::new(),
            stored: Stored::default(),
            alone: Stored::default(),
        }
    }

    /// Whether a group can hold such an entry: its death is above its revision, and it is either a
    /// tombstone, without value, lifetime and version, or has a version and is not older than its
    /// lifetime.
    pub const fn holds(entry: &EntryRef<'_>) -> bool {
        let life = if entry.tombstone {
            entry.version == 0 && entry.create_revision == 0 && entry.value.is_empty()
        } else {
            entry.version > 0 && entry.create_revision <= entry.revision
        };
        life && entry.death > entry.revision && entry.value.len() as u64 <= GROUP_VALUE_BYTES_MAX
    }

    /// Appends an entry, which must sort after the one before it and be one that a group
    /// [`holds`](Self::holds): the caller has checked it.
    pub fn push(&mut self, entry: &EntryRef<'_>, pack: &mut dyn Pack) {
        debug_assert!(Self::holds(entry), "not an entry of a group");
        let same_key = !self.draft.is_empty() && self.draft.key == entry.key;
        if !same_key || self.draft.ends_before(entry.revision) {
            self.end_group();
        }
        let raw_bytes = self.groups_raw_bytes + self.draft.raw_bytes + entry.value.len() as u64;
        if raw_bytes > BLOCK_RAW_BYTES_MAX {
            self.end_group();
            self.end_block();
        }
        if self.draft.is_empty() {
            self.draft.begin(entry.key);
            self.chooser.begin(same_key);
        }
        let mut alone = None;
        if entry.tombstone {
            self.stored.whole(KIND_TOMBSTONE, 0);
        } else {
            let number = (self.groups.len(), self.draft.len());
            let (stored, other) = (&mut self.stored, &mut self.alone);
            let table = &mut self.draft.table;
            if self.chooser.choose(number, entry.value, table, pack, stored, other) {
                alone = Some(&self.alone);
            }
        }
        self.draft.push(entry, &self.stored, alone);
        if !self.groups.is_empty() && self.block_bytes_now() > self.block_bytes {
            self.end_block();
        }
    }

    /// Whether a block is complete: take it with [`finish`](Self::finish) before more are.
    pub fn is_full(&self) -> bool {
        !self.ready.is_empty()
    }

    /// About the bytes that have not been taken yet.
    pub fn stored_bytes(&self) -> usize {
        let ready: usize = self.ready.iter().map(|block| block.stored.len()).sum();
        ready + self.block_bytes_now()
    }

    /// The next block: a complete one, or if there is none the one being built. At the end of a file
    /// call it until there is none left.
    pub fn finish(&mut self) -> Option<RawGroups> {
        if self.ready.is_empty() {
            self.end_group();
            self.end_block();
        }
        self.ready.pop_front()
    }

    /// About the bytes that the complete groups of the block and the open one take.
    fn block_bytes_now(&self) -> usize {
        if self.groups.is_empty() && self.draft.is_empty() {
            return 0;
        }
        let draft = if self.draft.is_empty() { 0 } else { 5 + self.draft.stored_bytes() };
        let last = self.groups.last().map(|group| &*group.key);
        let last = if self.draft.is_empty() { last } else { Some(&*self.draft.key) };
        let first = self.groups.first().map(|group| &*group.key);
        let shared = common_prefix(first.unwrap_or_default(), last.unwrap_or_default());
        let groups = self.groups.len() + usize::from(!self.draft.is_empty());
        4 + shared + self.groups_bytes + draft - shared * (groups - 1).min(self.groups.len())
    }

    /// Ends the open group, if there is one.
    fn end_group(&mut self) {
        let stands_alone = self.draft.stands_alone();
        let Some(group) = (!self.draft.is_empty()).then(|| self.draft.finish()).flatten() else {
            return;
        };
        self.draft.begin(&[]);
        self.chooser.end(self.groups.len(), stands_alone);
        self.groups_bytes += 5 + 3 + group.key.len() + group.rest.len();
        self.groups_raw_bytes += group.raw_bytes;
        self.groups.push(group);
        if self.groups.len() == GROUPS_MAX || self.block_bytes_now() >= self.block_bytes {
            self.end_block();
        }
    }

    /// Ends the block before the open group, if it has a group.
    fn end_block(&mut self) {
        let (Some(first), Some(last)) = (self.groups.first(), self.groups.last()) else { return };
        let prefix = common_prefix(&first.key, &last.key);
        let mut stored = Vec::with_capacity(self.groups_bytes);
        // At most GROUPS_MAX.
        stored.put_u16(u16::try_from(self.groups.len()).unwrap_or(u16::MAX));
        stored.put_prefixed(first.key.get(..prefix).unwrap_or_default());
        let ends_at = stored.len();
        stored.put_zeros(4 * (self.groups.len() - 1));
        for group in &self.groups {
            stored.put_u8(key_hash(group.key.get(prefix..).unwrap_or_default()));
        }
        let mut ends = Vec::with_capacity(4 * self.groups.len());
        for group in &self.groups {
            stored.put_bytes(&group.start);
            stored.put_prefixed(group.key.get(prefix..).unwrap_or_default());
            stored.put_bytes(&group.rest);
            // Bounded by the raw bytes, and the keys of small groups.
            ends.put_u32(u32::try_from(stored.len()).unwrap_or(u32::MAX));
        }
        ends.truncate(4 * (self.groups.len() - 1));
        if let Some(place) = stored.get_mut(ends_at..ends_at + ends.len()) {
            place.copy_from_slice(&ends);
        }
        let versions: usize = self.groups.iter().map(|group| group.versions).sum();
        let block = RawGroups {
            stored,
            entry_count: u32::try_from(versions).unwrap_or(u32::MAX),
            raw_bytes: u32::try_from(self.groups_raw_bytes).unwrap_or(u32::MAX),
            first: (first.key.clone(), first.newest),
            last: (last.key.clone(), last.oldest),
        };
        self.ready.push_back(block);
        self.groups.clear();
        self.groups_bytes = 0;
        self.groups_raw_bytes = 0;
        self.chooser.end_block();
        if !self.draft.is_empty() {
            self.draft.detach();
        }
    }
}
