//! What damage of HISTORY costs: the past of the keys that lay in the blocks that cannot be read, and of no others.
//!
//! Every key that has a superseded version which anybody can ask for has a newest one, too: in L0 or in HEAD, as a
//! tombstone if it was deleted. So the keys of a damaged block are among those that these files have between the block's
//! first key and its last, which the index tells. Whether one of them has anything in the damaged file its filter says; and
//! what was superseded before the file's window, or never, is not in it. Of what is left the past is given up: up to the
//! newest version, as nothing of a key is superseded later than that.
//!
//! How far back keys can be read is said by prefix (see [`retention`](super::retention)), and of prefixes there are few. So
//! keys that are neighbours share one where there are too many of them.

use std::collections::BTreeMap;

use annals_format::limits::RETENTION_PREFIX_BYTES_MAX;
use annals_format::space::is_user;
use annals_format::{FileKind, FileMeta};

use super::inspect::StoreFiles;
use super::retention::RULES_MAX;
use crate::error::{ErrorKind, Result};
use crate::reclaim::floors::Floors;
use crate::segment::{Leaves, NewSegment, Segment, SegmentContext, SegmentWriter};
use crate::sync::Arc;

/// By so many prefixes the past of keys is given up at most: each makes files of its own of what is superseded from then on,
/// as long as other keys can be read further back.
const PREFIXES_MAX: usize = 16;

/// What keys that are looked at one by one may take in memory.
const BYTES_MAX: usize = 16 << 20;

/// What one takes beside its bytes: about.
const OVERHEAD: usize = 64;

/// The past of some users' keys, which cannot be read any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPast {
    /// What the keys begin with; nothing for all of them.
    pub prefix: Vec<u8>,
    /// Versions that were superseded up to this revision may be missing: from behind it the keys can be read.
    pub upto: u64,
}

impl LostPast {
    /// The first revision that the keys can be read at.
    pub fn from(&self) -> u64 {
        self.upto.saturating_add(1)
    }
}

/// Where superseded versions are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostBlock {
    /// The file that they were in.
    pub file: FileMeta,
    /// No key of them is before this one. An internal key.
    pub first: Vec<u8>,
    /// No key of them is behind this one.
    pub last: Vec<u8>,
}

/// What could be kept of a HISTORY file.
#[derive(Debug)]
pub struct KeptHistory {
    /// The file that was written of it; `None` where nothing of it can be read.
    pub file: Option<FileMeta>,
    /// What is in none.
    pub lost: Vec<LostBlock>,
}

impl LostBlock {
    /// All of a file.
    pub fn all_of(file: &FileMeta) -> Self {
        let (first, last) = (file.first_key.clone(), file.last_key.clone());
        Self { file: file.clone(), first, last }
    }
}

/// Writes what can be read of a HISTORY file to another one of this number. Nothing is written where nothing can be read.
pub(super) fn keep(
    segment: &Arc<Segment>,
    context: &SegmentContext,
    number: u64,
) -> Result<KeptHistory> {
    let meta = segment.meta();
    let window = Some((meta.death_after, meta.death_upto));
    let new =
        NewSegment { class: meta.class, window, ..NewSegment::new(FileKind::History, number) };
    let mut writer = SegmentWriter::create(context, new)?;
    let mut lost = Vec::new();
    let added = blocks(segment, &mut writer, &mut lost);
    if added.is_ok() && writer.entries() > 0 {
        return Ok(KeptHistory { file: Some(writer.finish()?), lost });
    }
    writer.abandon()?;
    added?;
    Ok(KeptHistory { file: None, lost: vec![LostBlock::all_of(meta)] })
}

/// Adds all blocks that can be read, and says where the others are: where the index cannot be read, all from there on.
///
/// # Errors
/// What writing the file answers.
fn blocks(
    segment: &Arc<Segment>,
    writer: &mut SegmentWriter,
    lost: &mut Vec<LostBlock>,
) -> Result<()> {
    let meta = segment.meta();
    let mut lose = |first: &[u8], last: &[u8]| match lost.last_mut() {
        Some(before) if *before.last >= *first => before.last = last.to_vec(),
        _ => {
            lost.push(LostBlock { file: meta.clone(), first: first.to_vec(), last: last.to_vec() });
        }
    };
    let (mut refused, mut upto) = (Ok(()), meta.first_key.clone());
    let read = Leaves::each(segment, &mut |block| {
        let mut is_wrong = false;
        let read = block.read(&mut |entry, _, _| {
            if refused.is_ok() && !is_wrong {
                match writer.add(entry) {
                    // It is not what can follow: whoever wrote the file wrote it so. Nothing was added.
                    Err(error) if matches!(error.kind(), ErrorKind::InvalidArgument { .. }) => {
                        is_wrong = true;
                    }
                    added => refused = added,
                }
            }
        });
        if read.is_err() || is_wrong {
            lose(block.first(), block.upto());
        }
        upto = block.upto().to_vec();
        Ok(refused.is_ok())
    });
    if read.is_err() {
        lose(&upto, &meta.last_key);
    }
    refused
}

/// How many prefixes may be given up: of more rules than there may be, some would be for keys around those that are lost.
fn most(files: &StoreFiles) -> usize {
    PREFIXES_MAX.min(RULES_MAX.saturating_sub(files.manifest().floors.len()))
}

/// What is lost of the past of users' keys, of each up to a revision, by prefixes.
pub(super) fn past_of_keys<'k>(
    files: &StoreFiles,
    lost: impl Iterator<Item = (&'k [u8], u64)>,
) -> Vec<LostPast> {
    let mut keys = Keys::default();
    for (key, upto) in lost {
        keys.add(key, upto);
    }
    by_prefix(&keys.all, most(files))
}

/// Whose past is lost with these blocks.
pub(super) fn past_of(files: &StoreFiles, lost: &[LostBlock]) -> Result<Vec<LostPast>> {
    let floors = files.floors();
    let mut keys = Keys::default();
    for block in lost {
        if !keys.of(files, block, &floors)? {
            // Too many, so what all of them begin with. The rules of what is longer go by that, too.
            let (first, last) = (users(&block.first), users(&block.last));
            let shared = first.get(..common(first, last)).unwrap_or_default();
            keys.forget(shared);
            keys.add(shared, block.file.death_upto);
        }
    }
    Ok(by_prefix(&keys.all, most(files)))
}

/// What users' keys are, or begin with, and up to where versions of them were superseded.
#[derive(Default)]
struct Keys {
    all: BTreeMap<Vec<u8>, u64>,
    bytes: usize,
}

impl Keys {
    /// Adds what of a key can be the prefix of a rule.
    fn add(&mut self, key: &[u8], upto: u64) {
        let max = usize::try_from(RETENTION_PREFIX_BYTES_MAX).unwrap_or(usize::MAX);
        let key = key.get(..max).unwrap_or(key);
        match self.all.get_mut(key) {
            Some(known) => *known = upto.max(*known),
            None => {
                self.bytes += key.len() + OVERHEAD;
                self.all.insert(key.to_vec(), upto);
            }
        }
    }

    /// Takes away those that begin with this.
    fn forget(&mut self, prefix: &[u8]) {
        self.all.retain(|key, _| !key.starts_with(prefix));
        self.bytes = self.all.keys().map(|key| key.len() + OVERHEAD).sum();
    }

    /// Adds those that may have versions in the block which can be asked for. Answers whether there was room for all.
    fn of(&mut self, files: &StoreFiles, block: &LostBlock, floors: &Floors) -> Result<bool> {
        let damaged = files.opened(&block.file).ok();
        // A filter that cannot be read says nothing.
        let may_be_in = |key: &[u8]| {
            damaged.as_ref().is_none_or(|damaged| damaged.may_contain(key).unwrap_or(true))
        };
        let newest = |meta: &&FileMeta| matches!(meta.kind, FileKind::L0 | FileKind::Head);
        for meta in files.manifest().files.iter().filter(newest) {
            let is_apart = meta.last_key < block.first || block.last < meta.first_key;
            if is_apart || meta.max_revision <= block.file.death_after {
                continue;
            }
            let segment = files.opened(meta)?;
            let mut cursor = segment.cold_cursor();
            cursor.seek(&block.first, u64::MAX)?;
            while let Some(entry) = cursor.entry().filter(|entry| *entry.key <= *block.last) {
                // Nothing of a key is superseded later than by its newest version.
                let upto = entry.revision.min(block.file.death_upto);
                if is_user(entry.key)
                    && entry.revision > block.file.death_after
                    && upto >= floors.of(entry.key)
                    && entry.key >= meta.folded_to.as_slice()
                    && may_be_in(entry.key)
                {
                    self.add(users(entry.key), upto);
                    if self.bytes > BYTES_MAX {
                        return Ok(false);
                    }
                }
                cursor.next()?;
            }
        }
        Ok(true)
    }
}

/// The user's key of an internal one.
fn users(internal: &[u8]) -> &[u8] {
    internal.get(1..).filter(|_| is_user(internal)).unwrap_or_default()
}

/// How many bytes two keys have in common at the front.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// These keys by prefix: each key by itself if there are few, else as many groups of neighbours as there may be, parted
/// where they have the least in common.
fn by_prefix(keys: &BTreeMap<Vec<u8>, u64>, most: usize) -> Vec<LostPast> {
    let sorted: Vec<&[u8]> = keys.keys().map(Vec::as_slice).collect();
    let mut cuts: Vec<usize> = (1..sorted.len()).collect();
    cuts.sort_by_key(|at| common(sorted[at - 1], sorted[*at]));
    cuts.truncate(most.max(1) - 1);
    cuts.sort_unstable();
    let ends = cuts.iter().copied().chain([sorted.len()]);
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let groups = starts.zip(ends).filter_map(|(start, end)| sorted.get(start..end));
    let mut prefixes: BTreeMap<&[u8], u64> = BTreeMap::new();
    for group in groups {
        if let (Some(first), Some(last)) = (group.first(), group.last()) {
            prefixes.insert(&first[..common(first, last)], 0);
        }
    }
    // The longest prefix decides, which another group may have brought.
    for (key, upto) in keys {
        let longest = (0..=key.len()).rev().find(|length| prefixes.contains_key(&key[..*length]));
        if let Some(known) = longest.and_then(|length| prefixes.get_mut(&key[..length])) {
            *known = (*upto).max(*known);
        }
    }
    let lost = prefixes.into_iter();
    lost.map(|(prefix, upto)| LostPast { prefix: prefix.to_vec(), upto }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grouped(keys: &[(&str, u64)], most: usize) -> Vec<(String, u64)> {
        let keys = keys.iter().map(|(key, upto)| (key.as_bytes().to_vec(), *upto)).collect();
        let lost = by_prefix(&keys, most).into_iter();
        lost.map(|lost| (String::from_utf8_lossy(&lost.prefix).into_owned(), lost.upto)).collect()
    }

    #[test]
    fn few_keys_are_given_up_one_by_one() {
        assert_eq!(grouped(&[], 4), []);
        let found = grouped(&[("/a/1", 7), ("/a/2", 9)], 4);
        assert_eq!(found, [("/a/1".to_owned(), 7), ("/a/2".to_owned(), 9)]);
    }

    #[test]
    fn of_many_keys_neighbours_go_together() {
        let keys = [("/a/1", 7), ("/a/2", 9), ("/b/1", 3), ("/b/2", 2), ("/b/33", 4), ("/b/34", 1)];
        assert_eq!(grouped(&keys, 2), [("/a/".to_owned(), 9), ("/b/".to_owned(), 4)]);
        assert_eq!(grouped(&keys, 1), [("/".to_owned(), 9)]);
        assert_eq!(grouped(&keys, 0), grouped(&keys, 1));
        let whole: Vec<_> = keys.map(|(key, upto)| (key.to_owned(), upto)).into();
        assert_eq!(grouped(&keys, 6), whole);
    }

    #[test]
    fn every_key_is_given_up_by_the_longest_prefix_that_it_has() {
        // Whatever there is, and however it is grouped.
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 33).unwrap() % below
        };
        for _ in 0..2_000 {
            let mut keys = BTreeMap::new();
            for _ in 0..random(12) {
                let key: Vec<u8> = (0..random(5)).map(|_| [b'a', b'b'][random(2)]).collect();
                keys.insert(key, random(100) as u64 + 1);
            }
            let most = random(5);
            let lost = by_prefix(&keys, most);
            assert!(lost.len() <= most.max(1), "{keys:?} {lost:?}");
            for (key, upto) in &keys {
                let of = lost.iter().filter(|lost| key.starts_with(&lost.prefix));
                let longest = of.max_by_key(|lost| lost.prefix.len());
                assert!(
                    longest.is_some_and(|lost| lost.upto >= *upto),
                    "{key:?} {keys:?} {lost:?}"
                );
            }
        }
    }
}
