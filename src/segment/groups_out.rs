//! Makes blocks of groups, for HISTORY: most versions as what differs from another one.
//!
//! The first versions of a file wait until it is decided whether the file gets a dictionary. Then
//! each is stored as it comes; no more is held than what others may be made from.

use std::ops::Range;

use annals_format::block::Encoding;
use annals_format::entry::EntryRef;
use annals_format::group::{Favour, GroupsBuilder, RawGroups, VERSIONS_MAX};
use annals_format::page::Separator;

use super::context::SegmentContext;
use super::group_codec::FilePack;
use super::sink::{Sink, Stored};
use super::train::{self, Training};
use crate::error::Result;

/// What an entry that waits takes beside key and value.
const ENTRY_BYTES: usize = 32;

/// The blocks of a segment being written.
#[derive(Debug)]
pub(super) struct GroupsOut {
    favour: Favour,
    training: Training,
    level: i32,
    block_bytes: usize,
    /// Entries waiting for the dictionary to be trained on some of them.
    waiting: Waiting,
    /// What stores entries, once it is known over what.
    builder: Option<(GroupsBuilder, FilePack)>,
    dictionary: Option<Vec<u8>>,
    /// The last entry of the block stored last.
    last: Option<(Vec<u8>, u64)>,
}

/// Entries, back to back.
#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    entries: Vec<(EntryRef<'static>, Range<usize>, Range<usize>)>,
    /// How many versions of the last key came before its last one.
    nth: usize,
    /// Bytes of what samples are made of.
    sample_bytes: usize,
}

impl Waiting {
    fn push(&mut self, entry: &EntryRef<'_>) {
        let last = self.entries.last().map(|(_, key, _)| key.clone());
        let key = match last.filter(|key| self.part(key) == entry.key) {
            Some(key) => {
                self.nth += 1;
                key
            }
            None => {
                self.nth = 0;
                self.append(entry.key)
            }
        };
        if self.nth.is_multiple_of(VERSIONS_MAX) {
            self.sample_bytes += train::sample(entry.value).len();
        }
        let value = self.append(entry.value);
        self.entries.push((EntryRef { key: &[], value: &[], ..*entry }, key, value));
    }

    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn part(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    fn entries(&self) -> impl Iterator<Item = EntryRef<'_>> + Clone {
        self.entries.iter().map(|(fields, key, value)| EntryRef {
            key: self.part(key),
            value: self.part(value),
            ..*fields
        })
    }

    fn bytes(&self) -> usize {
        self.bytes.len() + ENTRY_BYTES * self.entries.len()
    }

    /// The values that will be stored in full, as a rule: the first of each group.
    fn keyframes(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let mut last: Option<&[u8]> = None;
        let mut nth = 0;
        self.entries().filter_map(move |entry| {
            nth = if last == Some(entry.key) { nth + 1 } else { 0 };
            last = Some(entry.key);
            (nth % VERSIONS_MAX == 0 && !entry.tombstone).then_some(entry.value)
        })
    }
}

impl GroupsOut {
    /// Blocks for a file of HISTORY.
    pub(super) fn new(context: &SegmentContext, favour: Favour, training: Training) -> Self {
        Self {
            favour,
            training,
            level: context.level,
            block_bytes: context.group_block_bytes,
            waiting: Waiting::default(),
            builder: None,
            dictionary: None,
            last: None,
        }
    }

    /// Whether groups can hold such an entry.
    pub(super) const fn holds(entry: &EntryRef<'_>) -> bool {
        GroupsBuilder::holds(entry)
    }

    /// Adds the next entry.
    pub(super) fn push(&mut self, sink: &mut Sink, entry: &EntryRef<'_>) -> Result<()> {
        if let Some((builder, pack)) = &mut self.builder {
            builder.push(entry, pack);
            return self.store(sink, false);
        }
        self.waiting.push(entry);
        if self.is_enough() { self.train(sink, false) } else { Ok(()) }
    }

    /// Whether what waits is enough to decide on the dictionary.
    fn is_enough(&self) -> bool {
        self.waiting.bytes() >= train::WAITING_BYTES
            || self.waiting.sample_bytes >= self.training.sample_bytes()
    }

    /// Bytes of what is not in the file yet; of what waits for the dictionary, before compression.
    pub(super) fn waiting_bytes(&self) -> usize {
        let built = self.builder.as_ref().map_or(0, |(builder, _)| builder.stored_bytes());
        self.waiting.bytes() + built
    }

    /// Stores what is left, and answers the dictionary of the file.
    pub(super) fn finish(mut self, sink: &mut Sink) -> Result<Option<Vec<u8>>> {
        if self.builder.is_none() {
            self.train(sink, true)?;
        }
        self.store(sink, true)?;
        Ok(self.dictionary)
    }

    /// Decides on the dictionary and stores the entries that waited for it.
    fn train(&mut self, sink: &mut Sink, complete: bool) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        // What is stored as it is needs none.
        if self.favour != Favour::Raw && self.training.pays(waiting.keyframes()) {
            // Of long ones only the beginning counts, as they hardly gain.
            let values = waiting.keyframes().map(train::sample);
            self.dictionary =
                train::train(values, train::VALUE_DICTIONARY_BYTES, self.level, complete);
        }
        let content = self.dictionary.as_deref();
        let builder =
            GroupsBuilder::new(self.favour, content.unwrap_or_default(), self.block_bytes);
        self.builder = Some((builder, FilePack::new(self.level, content)));
        waiting.entries().try_for_each(|entry| self.push(sink, &entry))
    }

    /// Appends the blocks that are complete, or all.
    fn store(&mut self, sink: &mut Sink, all: bool) -> Result<()> {
        let Some((builder, _)) = &mut self.builder else { return Ok(()) };
        while all || builder.is_full() {
            let Some(block) = builder.finish() else { break };
            append(sink, &mut self.last, block)?;
        }
        Ok(())
    }
}

fn append(sink: &mut Sink, last: &mut Option<(Vec<u8>, u64)>, block: RawGroups) -> Result<()> {
    let separator = last.as_ref().map_or_else(Separator::first, |(key, revision)| {
        Separator::between((key, *revision), &block.first.0)
    });
    let stored = Stored {
        encoding: Encoding::Groups,
        bytes: &block.stored,
        raw_bytes: block.raw_bytes as usize,
        entry_count: block.entry_count,
        base_distance: 0,
        weight: 0,
    };
    sink.block(separator, &stored)?;
    *last = Some(block.last);
    Ok(())
}
