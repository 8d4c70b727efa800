//! Which of the users' keys can be read how far back: a floor for every class of keys.
//!
//! A *class* is the keys whose longest prefix, of those that have a rule of retention, is the same one;
//! class 0 has the keys without any. Prefixes contain each other or have no key in common, so the key
//! space is a row of *pieces*, each of one class:
//!
//! ```text
//!   rules  /a/ (class 1), /a/b/ (class 2)
//!
//!   ""        /a/        /a/b/        /a/b0        /a0
//!   |  class 0 | class 1  |  class 2   |  class 1   |  class 0 ...
//! ```
//!
//! HISTORY files end where a piece does, so that each goes by one floor.
//!
//! What a read needs is a question to the pieces that its range meets; what a version needs is one to the
//! piece of its key.

use std::ops::Range;

use annals_format::order::has_begun;
use annals_format::space::USER;

use crate::sync::Arc;

/// The pieces of the key space, in key order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Classes {
    /// The first internal key of each piece, and its class. The first piece begins with the empty key.
    pieces: Vec<(Vec<u8>, usize)>,
    /// Of each class but 0 the class that its keys would have without it.
    enclosing: Vec<usize>,
}

impl Classes {
    /// The classes of these prefixes of users' keys, which ascend: class n is that of prefix n - 1.
    pub(crate) fn new<'p>(prefixes: impl Iterator<Item = &'p [u8]>) -> Self {
        let mut classes = Self { pieces: vec![(Vec::new(), 0)], enclosing: Vec::new() };
        // The prefixes that hold the present one, each with the first key behind it.
        let mut open: Vec<(Vec<u8>, usize)> = Vec::new();
        let enclosing = |open: &[(Vec<u8>, usize)]| open.last().map_or(0, |(_, class)| *class);
        for (prefix, class) in prefixes.zip(1..) {
            let start = [&[USER], prefix].concat();
            while let Some((end, _)) = open.pop_if(|(end, _)| *end <= start) {
                classes.begin(end, enclosing(&open));
            }
            classes.enclosing.push(enclosing(&open));
            let end = end_of(&start);
            classes.begin(start, class);
            open.push((end, class));
        }
        while let Some((end, _)) = open.pop() {
            classes.begin(end, enclosing(&open));
        }
        classes
    }

    fn begin(&mut self, start: Vec<u8>, class: usize) {
        match self.pieces.last_mut() {
            // An empty piece.
            Some(last) if last.0 == start => last.1 = class,
            _ => self.pieces.push((start, class)),
        }
    }

    /// The number of the piece that an internal key lies in.
    pub(crate) fn piece_of(&self, key: &[u8]) -> usize {
        // Without rules, which is usual.
        if self.enclosing.is_empty() {
            return 0;
        }
        self.pieces.partition_point(|(start, _)| has_begun(start, key)).saturating_sub(1)
    }

    /// The class of an internal key.
    pub(crate) fn of(&self, key: &[u8]) -> usize {
        self.pieces.get(self.piece_of(key)).map_or(0, |(_, class)| *class)
    }

    /// The classes of the pieces from that of one internal key to that of another.
    pub(crate) fn spanning(&self, first: &[u8], last: &[u8]) -> impl Iterator<Item = usize> {
        let met = self.pieces.get(self.piece_of(first)..=self.piece_of(last)).unwrap_or_default();
        met.iter().map(|(_, class)| *class)
    }

    /// The classes of the pieces that a range of internal keys meets, `end` exclusive.
    pub(crate) fn meeting(&self, range: Range<&[u8]>) -> impl Iterator<Item = usize> {
        let after = self.pieces.partition_point(|(start, _)| has_begun(start, range.start));
        let end = self.pieces.partition_point(|(start, _)| start.as_slice() < range.end);
        let met = self.pieces.get(after.saturating_sub(1)..end).unwrap_or_default();
        met.iter().map(|(_, class)| *class)
    }

    /// The class that the keys of class `class` would have without it.
    pub(crate) fn enclosing(&self, class: usize) -> usize {
        class.checked_sub(1).and_then(|at| self.enclosing.get(at)).copied().unwrap_or(0)
    }
}

/// The first internal key behind all that begin with `prefix`, which begins with the byte of a space.
pub(crate) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            break;
        }
    }
    end
}

/// The floor of every class: the oldest revision at which its keys can be read.
#[derive(Clone, Debug)]
pub(crate) struct Floors {
    classes: Arc<Classes>,
    /// By class; never empty.
    floors: Vec<u64>,
}

impl Floors {
    /// One floor for each class.
    pub(crate) fn new(classes: Arc<Classes>, floors: Vec<u64>) -> Self {
        debug_assert_eq!(floors.len(), classes.enclosing.len() + 1, "a floor for each class");
        Self { classes, floors }
    }

    /// The same floor for all keys.
    pub(crate) fn all(floor: u64) -> Self {
        Self::new(Arc::new(Classes::new(std::iter::empty())), vec![floor])
    }

    /// The classes they are of.
    pub(crate) fn classes(&self) -> &Classes {
        &self.classes
    }

    /// The floor of a class.
    pub(crate) fn of_class(&self, class: usize) -> u64 {
        self.floors.get(class).or(self.floors.first()).copied().unwrap_or(0)
    }

    /// A number for each piece whose keys can be read at no revision up to `upto`: of pieces of the same keys the
    /// same, whatever other pieces there are.
    pub(crate) fn forgotten(&self, upto: u64) -> impl Iterator<Item = u32> {
        let pieces = &self.classes.pieces;
        let starts = pieces.iter().map(|(start, _)| start.as_slice());
        // No piece begins with what ends the last one.
        let ends = starts.clone().skip(1).chain([&[][..]]);
        let spans = pieces.iter().zip(starts.zip(ends));
        let forgotten = spans.filter(move |((_, class), _)| self.of_class(*class) > upto);
        forgotten.map(|(_, (start, end))| {
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&(start.len() as u64).to_le_bytes());
            hasher.update(start);
            hasher.update(end);
            hasher.finalize()
        })
    }

    /// The floor of an internal key.
    pub(crate) fn of(&self, key: &[u8]) -> u64 {
        self.of_class(self.classes.of(key))
    }

    /// The least floor: below it nothing can be read.
    pub(crate) fn least(&self) -> u64 {
        self.floors.iter().copied().min().unwrap_or(0)
    }

    /// The greatest floor: from it on everything can be read.
    pub(crate) fn greatest(&self) -> u64 {
        self.floors.iter().copied().max().unwrap_or(0)
    }

    /// The class with the greatest floor of those that a range of internal keys meets.
    pub(crate) fn strictest(&self, range: Range<&[u8]>) -> Option<usize> {
        self.classes.meeting(range).max_by_key(|class| self.of_class(*class))
    }

    /// The least floor of the keys from one internal key to another, inclusive.
    pub(crate) fn least_in(&self, first: &[u8], last: &[u8]) -> u64 {
        let classes = self.classes.spanning(first, last);
        classes.map(|class| self.of_class(class)).min().unwrap_or_else(|| self.least())
    }

    /// The greatest floor of the keys from one internal key to another, inclusive.
    pub(crate) fn greatest_in(&self, first: &[u8], last: &[u8]) -> u64 {
        let classes = self.classes.spanning(first, last);
        classes.map(|class| self.of_class(class)).max().unwrap_or(0)
    }

    /// The class of all keys from one internal key to another, inclusive, if they have the same one.
    pub(crate) fn class_of_all(&self, first: &[u8], last: &[u8]) -> Option<usize> {
        let mut classes = self.classes.spanning(first, last);
        let class = classes.next()?;
        classes.all(|other| other == class).then_some(class)
    }

    /// A number that rises when any floor does.
    pub(crate) fn sum(&self) -> u64 {
        self.floors.iter().fold(0, |sum, floor| sum.saturating_add(*floor))
    }

    /// These floors, none above `least`: what is kept for whoever reads at that revision.
    pub(crate) fn capped(mut self, least: u64) -> Self {
        for floor in &mut self.floors {
            *floor = least.min(*floor);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn internal(key: &[u8]) -> Vec<u8> {
        [&[USER], key].concat()
    }

    /// The class of a key by the definition.
    fn class_of(prefixes: &[&[u8]], key: &[u8]) -> usize {
        let longest = (0..prefixes.len()).filter(|n| key.starts_with(prefixes[*n]));
        longest.max_by_key(|n| prefixes[*n].len()).map_or(0, |n| n + 1)
    }

    #[test]
    fn every_key_has_the_class_of_its_longest_prefix() {
        let sets: [&[&[u8]]; 6] = [
            &[],
            &[b"/a/", b"/a/b/", b"/a/b/c", b"/b/"],
            &[b"a", b"aa", b"aaa", b"ab"],
            &[b"a", b"a\xff", b"a\xff\xff", b"b"],
            &[b"\0", b"\xff", b"\xff\xff"],
            &[b"a\0", b"a\0\0", b"a\x01"],
        ];
        let parts: [&[u8]; 11] = [
            b"",
            b"\0",
            b"\x01",
            b"/",
            b"a",
            b"b",
            b"/a/",
            b"/a/b",
            b"/a/b/c",
            b"\xff",
            b"\xff\xff",
        ];
        for prefixes in sets {
            let classes = Classes::new(prefixes.iter().copied());
            let keys = parts.iter().flat_map(|a| parts.iter().map(|b| [*a, *b].concat()));
            let mut keys: Vec<Vec<u8>> = keys.filter(|key| !key.is_empty()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in &keys {
                assert_eq!(classes.of(&internal(key)), class_of(prefixes, key), "{key:?}");
            }
            for (n, prefix) in prefixes.iter().enumerate() {
                let others: Vec<&[u8]> = prefixes.iter().copied().filter(|p| p != prefix).collect();
                let outer = class_of(&others, prefix);
                let outer = if outer > n { outer + 1 } else { outer };
                assert_eq!(classes.enclosing(n + 1), outer);
            }
            // A range meets the classes of the keys in it, and others only where keys may lie between.
            for (n, start) in keys.iter().enumerate() {
                for end in &keys[n + 1..] {
                    let (start, end) = (internal(start), internal(end));
                    let met: Vec<usize> = classes.meeting(&start[..]..&end[..]).collect();
                    for key in keys.iter().map(|key| internal(key)) {
                        if key >= start && key < end {
                            assert!(met.contains(&classes.of(&key)), "{start:?}..{end:?} {key:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_range_within_a_prefix_meets_no_other_class() {
        let classes = Classes::new([&b"/a/"[..], b"/a/b/", b"/c"].into_iter());
        let met = |start: &[u8], end: &[u8]| {
            let (start, end) = (internal(start), internal(end));
            classes.meeting(&start..&end).collect::<Vec<_>>()
        };
        assert_eq!(met(b"/a/", b"/a0"), [1, 2, 1]);
        assert_eq!(met(b"/a/b/", b"/a/b0"), [2]);
        assert_eq!(met(b"/a/b/x", b"/a/b/x\0"), [2]);
        assert_eq!(met(b"/a/c", b"/a/d"), [1]);
        assert_eq!(met(b"/a/c", b"/b"), [1, 0]);
        assert_eq!(met(b"", b"/a/"), [0]);
        let all = (&[USER][..], &[USER + 1][..]);
        assert_eq!(classes.meeting(all.0..all.1).collect::<Vec<_>>(), [0, 1, 2, 1, 0, 3, 0]);
    }

    #[test]
    fn floors_are_those_of_the_classes() {
        let classes = Arc::new(Classes::new([&b"/a/"[..], b"/b/"].into_iter()));
        let floors = Floors::new(classes, vec![5, 0, 9]);
        assert_eq!([b"/a/x", b"/b/x", b"/c/x"].map(|key| floors.of(&internal(key))), [0, 9, 5]);
        assert_eq!((floors.least(), floors.greatest()), (0, 9));
        assert_eq!(floors.strictest(&[USER][..]..&[USER + 1][..]), Some(2));
        let of = |first: &[u8], last: &[u8]| {
            let (first, last) = (internal(first), internal(last));
            let (least, greatest) =
                (floors.least_in(&first, &last), floors.greatest_in(&first, &last));
            (least, greatest, floors.class_of_all(&first, &last))
        };
        assert_eq!(of(b"/a/x", b"/a/x"), (0, 0, Some(1)));
        assert_eq!(of(b"/a/x", b"/a/z"), (0, 0, Some(1)));
        assert_eq!(of(b"/a/x", b"/a0"), (0, 5, None));
        assert_eq!(of(b"/b/", b"/c"), (5, 9, None));
        assert_eq!(of(b"/c", b"/d"), (5, 5, Some(0)));
        assert_eq!(of(b"/0", b"/d"), (0, 9, None), "class 0 again behind two others");
        let capped = floors.capped(7);
        assert_eq!((capped.of(&internal(b"/b/")), capped.of(&internal(b"/c"))), (7, 5));
    }
}
