//! Which keys take how much room: a walk over the indexes of all files, in key order.
//!
//! The files are divided into streams, of which each is in key order by itself: every L0 file, HEAD,
//! every blob file and every HISTORY window. The walk takes the stream whose next block begins first, and puts that block
//! to the prefix its keys have. What the keys at the ends of a block begin with is in the index, see
//! `segment::leaves`, and so is how many keys the block makes live; how many entries it has is in its header.
//! A block between two labels, or of whose first key the index has less than a label, is read and divided as its
//! entries are. There are few of these unless the labels are many: from [`BLOCKS_READ_MAX`] on none is read.
//!
//! A *label* is the part of a key up to and with its last delimiter, of those that the depth allows.
//! A block between two labels that is not read is halved. Where all
//! that is known of a key is shorter than its label, the label at the other end of the block decides, if
//! it begins with that; else the label is that of the level above.
//!
//! ```text
//! depth 2     first begins with   last begins with   put to
//!   block 1   /pods/a/x           /pods/             /pods/a/
//!   block 2   /pods/b             /pods/b/y          /pods/b/
//!   block 3   /pods/b/yz          /services/c/       /pods/b/ and /services/c/, half each
//!   block 4   /services/c/k       /services/         /services/c/
//! ```
//!
//! Invariants:
//!
//! 1. What is handed out adds up to the length of the files, as far as they are in the range: each file
//!    is divided over its blocks with its index, filter and dictionary.
//! 2. A label is complete when no stream has a block that begins at or before its last key. Until then it
//!    is open; few are: those that the next block begins with, and for each stream those of one block.
//!    So memory is bounded by the files' number and by how many labels are asked for.

mod walk;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use bytes::Bytes;

use crate::error::Result;

use super::core::Core;
use super::tables::FileSet;
use walk::{Stream, streams};

/// Blocks that are read, see the head of the file.
const BLOCKS_READ_MAX: usize = 2048;

/// How many blocks are looked at in one step.
const STEP_BLOCKS: usize = 1024;

/// What to tell apart, in terms of internal keys.
#[derive(Clone, Debug)]
pub(crate) struct SpaceQuery {
    /// Only keys that begin with this.
    pub(crate) prefix: Vec<u8>,
    /// What ends a part of a key.
    pub(crate) delimiter: u8,
    /// How many parts behind the prefix are told apart.
    pub(crate) depth: usize,
    /// How many prefixes are named.
    pub(crate) top: usize,
}

/// The room that the keys with one prefix take in the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PrefixSpace {
    /// What the keys begin with. Keys that go on with a longer prefix that is named as well are not
    /// counted again here.
    pub prefix: Bytes,
    /// Bytes that hold their newest versions, as [`Stats::live_bytes`](crate::Stats::live_bytes).
    pub live_bytes: u64,
    /// Bytes that hold what is superseded or deleted and can still be read.
    pub history_bytes: u64,
    /// Bytes that hold what can be read no more, and wait for background work.
    pub dead_bytes: u64,
    /// How many keys are alive, but for those in blocks at the ends of the prefix, of which half are told.
    pub keys: u64,
    /// How many versions the files hold, tombstones and what waits to be removed among them; exact in the same
    /// way.
    pub versions: u64,
}

/// Answer of [`Store::space`](crate::Store::space): the room that keys take, by prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Space {
    /// The prefixes that take most, the largest first; of equals the first by name.
    pub prefixes: Vec<PrefixSpace>,
    /// How many more prefixes there are.
    pub other_prefixes: u64,
    /// What these take together.
    pub other: PrefixSpace,
}

impl PrefixSpace {
    /// All bytes of it.
    pub fn bytes(&self) -> u64 {
        self.live_bytes.saturating_add(self.history_bytes).saturating_add(self.dead_bytes)
    }

    fn add(&mut self, more: &Self) {
        for (sum, figure) in [
            (&mut self.live_bytes, more.live_bytes),
            (&mut self.history_bytes, more.history_bytes),
            (&mut self.dead_bytes, more.dead_bytes),
            (&mut self.versions, more.versions),
            (&mut self.keys, more.keys),
        ] {
            *sum = sum.saturating_add(figure);
        }
    }

    /// Each figure by a rule.
    fn map(&self, rule: impl Fn(u64) -> u64) -> Self {
        Self {
            prefix: Bytes::new(),
            live_bytes: rule(self.live_bytes),
            history_bytes: rule(self.history_bytes),
            dead_bytes: rule(self.dead_bytes),
            keys: rule(self.keys),
            versions: rule(self.versions),
        }
    }
}

/// What a block takes, or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Amount {
    /// All but the keys.
    of: PrefixSpace,
    /// Keys that are made live, less those that an L0 file ends.
    living: i64,
}

impl Amount {
    fn add(&mut self, more: &Self) {
        self.of.add(&more.of);
        self.living = self.living.saturating_add(more.living);
    }

    /// A half of it, and the other one.
    fn halves(&self) -> (Self, Self) {
        let half = Self { of: self.of.map(|figure| figure / 2), living: self.living / 2 };
        let rest = self.of.map(|figure| figure - figure / 2);
        (half, Self { of: rest, living: self.living - self.living / 2 })
    }

    fn finish(self, label: Vec<u8>) -> PrefixSpace {
        let keys = u64::try_from(self.living).unwrap_or(0);
        PrefixSpace { prefix: label.into(), keys, ..self.of }
    }
}

/// The walk.
#[derive(Debug)]
pub(crate) struct Survey {
    query: SpaceQuery,
    streams: Vec<Stream>,
    /// How many blocks may still be read.
    reads_left: usize,
    /// The streams that have a block, by what it begins with.
    order: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    open: BTreeMap<Vec<u8>, Amount>,
    /// The smallest on top.
    top: BinaryHeap<Ranked>,
    space: Space,
}

/// The labels of a block; none where it is not in the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place<'k> {
    One(Option<&'k [u8]>),
    Between(Option<&'k [u8]>, Option<&'k [u8]>),
}

/// Less is more bytes, then the earlier prefix.
#[derive(Debug)]
struct Ranked(PrefixSpace);

impl Survey {
    /// A walk over the files of now.
    pub(super) fn new(core: &Core, query: SpaceQuery) -> Result<Self> {
        core.check_open()?;
        Self::over(&core.shared.tables().files, query, core.oldest_answered())
    }

    /// A walk over files, in a store that answers `keep` and what is later.
    pub(super) fn over(files: &FileSet, query: SpaceQuery, keep: u64) -> Result<Self> {
        let mut survey = Self {
            streams: streams(files, &query.prefix, keep),
            query,
            reads_left: BLOCKS_READ_MAX,
            order: BinaryHeap::new(),
            open: BTreeMap::new(),
            top: BinaryHeap::new(),
            space: Space::default(),
        };
        for number in 0..survey.streams.len() {
            survey.advance(number)?;
        }
        Ok(survey)
    }

    /// Looks at some blocks. Answers whether there are more.
    pub(crate) fn step(&mut self) -> Result<bool> {
        for _ in 0..STEP_BLOCKS {
            let Some(Reverse((first, number))) = self.order.pop() else {
                self.close(|_| true);
                return Ok(false);
            };
            self.close(|label| is_past(label, &first));
            if let Some(walk) = self.streams.get(number).and_then(|stream| stream.at.as_ref()) {
                let amount = walk.amount()?;
                let place = self.query.place(walk.leaves.first(), walk.leaves.last());
                let is_sure =
                    matches!(place, Place::One(_)) && !self.query.is_short(walk.leaves.first());
                match place {
                    _ if !is_sure && self.reads_left > 0 => {
                        self.reads_left -= 1;
                        walk.divide(&self.query, &amount, &mut self.open)?;
                    }
                    Place::One(label) => add(&mut self.open, label, &amount),
                    Place::Between(before, after) => {
                        let (half, rest) = amount.halves();
                        add(&mut self.open, before, &half);
                        add(&mut self.open, after, &rest);
                    }
                }
            }
            self.advance(number)?;
        }
        Ok(true)
    }

    /// Goes to the end and answers what was found.
    pub(crate) fn finish(mut self) -> Result<Space> {
        while self.step()? {}
        let Self { top, mut space, .. } = self;
        space.prefixes = top.into_sorted_vec().into_iter().map(|ranked| ranked.0).collect();
        Ok(space)
    }

    /// Puts the next block of a stream in its place, if there is one in the range.
    fn advance(&mut self, number: usize) -> Result<()> {
        let Some(stream) = self.streams.get_mut(number) else { return Ok(()) };
        if let Some(walk) = stream.next(&self.query.prefix)?
            && !is_past(&self.query.prefix, walk.leaves.first())
        {
            self.order.push(Reverse((walk.leaves.first().to_vec(), number)));
        }
        Ok(())
    }

    /// Takes the open labels that are complete in.
    fn close(&mut self, is_complete: impl Fn(&[u8]) -> bool) {
        while let Some(label) = self.open.keys().find(|label| is_complete(label)).cloned() {
            let Some(found) = self.open.remove(&label) else { continue };
            if found == Amount::default() {
                continue;
            }
            self.top.push(Ranked(found.finish(label)));
            if self.top.len() > self.query.top
                && let Some(Ranked(least)) = self.top.pop()
            {
                self.space.other_prefixes += 1;
                self.space.other.add(&least);
            }
        }
    }
}

fn add(open: &mut BTreeMap<Vec<u8>, Amount>, label: Option<&[u8]>, amount: &Amount) {
    let Some(label) = label else { return };
    match open.get_mut(label) {
        Some(found) => found.add(amount),
        None => drop(open.insert(label.to_vec(), amount.clone())),
    }
}

/// Whether a key that begins with `known` is after all that begin with `prefix`.
fn is_past(prefix: &[u8], known: &[u8]) -> bool {
    known > prefix && !known.starts_with(prefix)
}

impl SpaceQuery {
    /// Where a block belongs, of what its first and last key begin with.
    fn place<'k>(&'k self, first: &'k [u8], last: &'k [u8]) -> Place<'k> {
        let prefix = self.prefix.as_slice();
        match (self.label(first), self.label(last)) {
            (Some(a), Some(b)) if a == b => Place::One(Some(a)),
            // All that is known of the one key is what the label of the other begins with.
            (_, Some(b)) if b.starts_with(first) => Place::One(Some(b)),
            (Some(a), _) if a.starts_with(last) => Place::One(Some(a)),
            (None, None) if prefix.starts_with(first) && prefix.starts_with(last) => {
                Place::One(Some(prefix))
            }
            (a, b) => Place::Between(a, b),
        }
    }

    /// Whether the label of a key that begins with `known`, or is that, may be longer than what is known.
    fn is_short(&self, known: &[u8]) -> bool {
        let Some(rest) = known.strip_prefix(self.prefix.as_slice()) else {
            return self.prefix.starts_with(known);
        };
        let leading = usize::from(self.depth > 0 && rest.first() == Some(&self.delimiter));
        let parts = rest.iter().skip(leading).filter(|byte| **byte == self.delimiter).count();
        parts < self.depth
    }

    /// The label of a key, as far as it is known; `None` if it is not known to be in the range.
    fn label<'k>(&self, known: &'k [u8]) -> Option<&'k [u8]> {
        label(&self.prefix, self.delimiter, self.depth, known)
    }
}

/// The part of a key up to and with the last delimiter that the depth allows behind the prefix.
pub(crate) fn label<'k>(
    prefix: &[u8],
    delimiter: u8,
    depth: usize,
    key: &'k [u8],
) -> Option<&'k [u8]> {
    let rest = key.strip_prefix(prefix)?;
    // A key may begin with a delimiter; no part ends there.
    let leading = usize::from(depth > 0 && rest.first() == Some(&delimiter));
    let ends = rest.iter().enumerate().skip(leading);
    let ends = ends.filter(|(_, byte)| **byte == delimiter).map(|(at, _)| at + 1);
    let end = ends.take(depth).last().unwrap_or(leading);
    key.get(..prefix.len() + end)
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        let bytes = other.0.bytes().cmp(&self.0.bytes());
        bytes.then_with(|| self.0.prefix.cmp(&other.0.prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(prefix: &str, depth: usize) -> SpaceQuery {
        SpaceQuery { prefix: prefix.into(), delimiter: b'/', depth, top: 3 }
    }

    #[test]
    fn a_label_ends_with_a_delimiter() {
        for (prefix, depth, key, label) in [
            ("", 0, "/a/b", Some("")),
            ("", 1, "/a/b", Some("/a/")),
            ("", 1, "a/b", Some("a/")),
            ("", 1, "/a", Some("/")),
            ("", 1, "a", Some("")),
            ("", 2, "/a/b/c/d", Some("/a/b/")),
            ("", 9, "/a/b/c/d", Some("/a/b/c/")),
            ("", 1, "//a/b", Some("//")),
            ("/a", 1, "/ab/c", Some("/ab/")),
            ("/a", 1, "/a/c/d", Some("/a/c/")),
            ("/a/", 1, "/a/c/d", Some("/a/c/")),
            ("/a/", 1, "/a/c", Some("/a/")),
            ("/a/", 1, "/a", None),
            ("/a/", 1, "/b/c", None),
        ] {
            let found = query(prefix, depth).label(key.as_bytes()).map(<[u8]>::to_vec);
            assert_eq!(found.as_deref(), label.map(str::as_bytes), "{prefix} {depth} {key}");
        }
    }

    #[test]
    fn a_block_is_put_to_the_label_that_its_ends_agree_on_or_halved() {
        let place = |prefix, first: &str, last: &str| {
            let query = query(prefix, 2);
            let text =
                |label: Option<&[u8]>| label.map(|l| String::from_utf8_lossy(l).into_owned());
            match query.place(first.as_bytes(), last.as_bytes()) {
                Place::One(label) => (text(label), text(label)),
                Place::Between(before, after) => (text(before), text(after)),
            }
        };
        let one = |label: &str| (Some(label.to_owned()), Some(label.to_owned()));
        assert_eq!(place("", "/pods/a/x", "/pods/"), one("/pods/a/"));
        assert_eq!(place("", "/pods/b", "/pods/b/y"), one("/pods/b/"));
        assert_eq!(place("", "/services/c/k", ""), one("/services/c/"));
        assert_eq!(place("", "/p", "/"), one("/"));
        let halves = (Some("/pods/b/".to_owned()), Some("/services/c/".to_owned()));
        assert_eq!(place("", "/pods/b/yz", "/services/c/"), halves);
        // Half of it, or nothing, is not in the range.
        assert_eq!(place("/s/", "/pods/b/yz", "/s/c/"), (None, Some("/s/c/".to_owned())));
        assert_eq!(place("/s/", "/s/c/z", "/t/c/"), (Some("/s/c/".to_owned()), None));
        assert_eq!(place("/s/", "/a", "/z"), (None, None));
        assert_eq!(place("/s/", "/s", "/"), one("/s/"));
    }
}
