//! Finds what a value shares with a base: copies of ranges of the base and literals between them.
//!
//! ```text
//! base    {"name":"web","restarts":4,"phase":"Running","at":"10:24:17"}
//! value   {"name":"web","restarts":5,"phase":"Running","at":"10:31:02"}
//! ops      copy 25      insert 1, skip 1, copy 27           insert 8, skip 8, copy 2
//! ```
//!
//! The base is indexed once by a hash of eight bytes. The value is then read from front to back: at
//! each position the range that continues where the last copy would be by now is tried first, for
//! most changes leave the length of things as it is, then the ranges that the index knows, those near
//! that place. Text of many like lines has like ranges everywhere, and a copy from elsewhere costs
//! the way there and back.
//!
//! Versions of one key change in the same places over and over, so their ops can be the same to the
//! byte, and then they are stored once. What spoils this is chance: of two times of day more or
//! fewer leading digits agree. So the ends of a copy are moved to the ends of words, and what
//! changed is stored as whole words.
//!
//! Where nothing has been found for a while it looks at fewer and fewer positions: random bytes have no
//! match, and what was stepped over at the beginning of one is found backwards.
//!
//! Everything is deterministic, with fixed multipliers and no map that has an order of its own. Time is
//! linear in base and value, memory is what [`Index`] takes.

use super::OPS_MAX;
use super::apply::Op;
use super::index::{Index, word};
use crate::entry::common_prefix;

/// A match of this length is taken without looking for a longer one.
const MATCH_BYTES_ENOUGH: usize = 48;
/// The shortest copy between words: its op is paid once for many versions, literals every time.
const WORDS_COPY_MIN: usize = 4;
/// The shortest copy elsewhere: its op takes about as much.
const PLAIN_COPY_MIN: usize = 7;
/// The shortest copy between words from further away than [`NEAR_BYTES`].
const FAR_COPY_MIN: usize = 16;
/// Up to here a skip takes two bytes.
const NEAR_BYTES: usize = 1 << 13;
/// An end of a copy is moved by at most so many bytes. Longer "words" are encoded data.
const WORD_BYTES_MAX: usize = 40;

/// For so many positions without a match one more is stepped over each time.
const MISSES_PER_STEP: usize = 16;

/// How a value is made from a base. The buffers are used again for the next one.
#[derive(Clone, Debug, Default)]
pub(super) struct Delta {
    /// Makes the whole value.
    pub(super) ops: Vec<Op>,
    /// What the inserts take, one after the other.
    pub(super) literals: Vec<u8>,
    /// Bytes the ops take on disk.
    pub(super) ops_bytes: usize,
}

impl Delta {
    /// Bytes of ops and literals on disk.
    pub(super) const fn stored_bytes(&self) -> usize {
        self.ops_bytes + self.literals.len()
    }

    fn clear(&mut self) {
        self.ops.clear();
        self.literals.clear();
        self.ops_bytes = 0;
    }

    /// Takes ops that are known to make `value`.
    pub(super) fn take(&mut self, ops: &[Op], value: &[u8]) {
        self.clear();
        self.ops.extend_from_slice(ops);
        let mut at = 0;
        for op in ops {
            self.literals.extend_from_slice(value.get(at..at + op.insert).unwrap_or_default());
            at += op.insert + op.copy;
            self.ops_bytes += op.stored_bytes();
        }
    }

    fn push(&mut self, literals: &[u8], copy: usize, skip: isize) {
        let op = Op { insert: literals.len(), copy, skip };
        self.ops_bytes += op.stored_bytes();
        self.ops.push(op);
        self.literals.extend_from_slice(literals);
    }
}

/// A range that value and base share.
#[derive(Clone, Copy, Debug, Default)]
struct Match {
    at: usize,
    from: usize,
    bytes: usize,
}

/// One run of the search. `covered` bytes of the value are made so far, and `cursor` is where the
/// decoder's cursor in the base then stands.
struct Search<'a> {
    base: &'a [u8],
    value: &'a [u8],
    /// The base is a version of the same key: things are where they were.
    words: bool,
    covered: usize,
    cursor: usize,
    /// How far, at the last long match, the place in the base was ahead of that in the value.
    ahead: isize,
}

/// Makes `value` from `base`, which is what `index` was built from. Answers false, and leaves
/// something useless in `delta`, once more than `limit` bytes would be stored.
///
/// With `words` the ends of copies are moved to the ends of words.
pub(super) fn diff(
    index: &Index,
    base: &[u8],
    value: &[u8],
    words: bool,
    limit: usize,
    delta: &mut Delta,
) -> bool {
    delta.clear();
    let mut search = Search { base, value, words, covered: 0, cursor: 0, ahead: 0 };
    let copy_min = if words { WORDS_COPY_MIN } else { PLAIN_COPY_MIN };
    let (mut at, mut misses) = (0, 0);
    while let Some(window) = word(value, at) {
        if delta.stored_bytes() + (at - search.covered) > limit || delta.ops.len() + 2 > OPS_MAX {
            return false;
        }
        let Some(mut found) = search.longest(index, window, at) else {
            misses += 1;
            at += 1 + misses / MISSES_PER_STEP;
            continue;
        };
        if !words && found.bytes < MATCH_BYTES_ENOUGH {
            // One byte later there is sometimes a much longer one.
            let later = word(value, at + 1).and_then(|w| search.longest(index, w, at + 1));
            if let Some(later) = later.filter(|later| later.bytes > found.bytes + 1) {
                found = later;
            }
        }
        if words {
            search.trim(&mut found);
        }
        if found.bytes < copy_min {
            at += 1;
            continue;
        }
        search.copy(found, delta);
        (at, misses) = (search.covered, 0);
    }
    if words && search.covered < value.len() {
        let mut tail = search.tail();
        search.trim(&mut tail);
        if tail.bytes >= 2 {
            search.copy(tail, delta);
        }
    }
    let rest = value.get(search.covered..).unwrap_or_default();
    if !rest.is_empty() {
        delta.push(rest, 0, 0);
    }
    delta.stored_bytes() <= limit
}

impl Search<'_> {
    /// The longest match that covers the eight bytes of the value at `at`.
    fn longest(&self, index: &Index, window: u64, at: usize) -> Option<Match> {
        let diagonal = self.cursor + (at - self.covered);
        // A short copy from far away must not lead astray.
        let home = at.checked_add_signed(self.ahead).unwrap_or(diagonal);
        let mut best = Match::default();
        for from in [diagonal, home] {
            if word(self.base, from) == Some(window) {
                let grown = self.grow(at, from);
                if grown.bytes >= MATCH_BYTES_ENOUGH {
                    return Some(grown);
                }
                if grown.bytes > best.bytes {
                    best = grown;
                }
            }
        }
        for from in index.candidates(window, home) {
            if from == diagonal || from == home || word(self.base, from) != Some(window) {
                continue;
            }
            let grown = self.grow(at, from);
            // The way there and back is stored as well.
            if self.words && grown.bytes < FAR_COPY_MIN && from.abs_diff(home) > NEAR_BYTES {
                continue;
            }
            // What lies near the cursor is more likely to be the same thing.
            let nearer = from.abs_diff(home) < best.from.abs_diff(home);
            if grown.bytes > best.bytes + 2 || (grown.bytes + 2 >= best.bytes && nearer) {
                best = grown;
            }
        }
        (best.bytes > 0).then_some(best)
    }

    /// The match around a position where one is known, as far as it goes to both sides.
    fn grow(&self, at: usize, from: usize) -> Match {
        let tail = |bytes, start| <[u8]>::get(bytes, start..).unwrap_or_default();
        let forward = common_prefix(tail(self.value, at), tail(self.base, from));
        let open = self.value.get(self.covered..at).unwrap_or_default();
        let before = self.base.get(..from).unwrap_or_default();
        let back = common_suffix(open, before);
        Match { at: at - back, from: from - back, bytes: forward + back }
    }

    /// What the rest of the value and the end of the base share.
    fn tail(&self) -> Match {
        let open = self.value.get(self.covered..).unwrap_or_default();
        let bytes = common_suffix(open, self.base);
        Match { at: self.value.len() - bytes, from: self.base.len() - bytes, bytes }
    }

    /// Moves the ends of a match to the ends of words.
    fn trim(&self, found: &mut Match) {
        let head = (0..found.bytes.min(WORD_BYTES_MAX + 1))
            .find(|by| !self.cuts_word(found.at + by, found.from + by));
        // A match that is one word, or part of one, vanishes.
        let head = head.unwrap_or(found.bytes);
        if head <= WORD_BYTES_MAX {
            *found =
                Match { at: found.at + head, from: found.from + head, bytes: found.bytes - head };
        }
        let tail = (0..found.bytes.min(WORD_BYTES_MAX + 1)).find(|by| {
            let bytes = found.bytes - by;
            !self.cuts_word(found.at + bytes, found.from + bytes)
        });
        let tail = tail.unwrap_or(found.bytes);
        if tail <= WORD_BYTES_MAX {
            found.bytes -= tail;
        }
    }

    /// Whether a copy that begins or ends at these two places would cut a word.
    fn cuts_word(&self, at: usize, from: usize) -> bool {
        is_inside(self.value, at) || is_inside(self.base, from)
    }

    fn copy(&mut self, found: Match, delta: &mut Delta) {
        let literals = self.value.get(self.covered..found.at).unwrap_or_default();
        // Positions in slices, whose lengths are below 2^63.
        let from = found.from.cast_signed();
        delta.push(literals, found.bytes, from - self.cursor.cast_signed());
        if found.bytes >= MATCH_BYTES_ENOUGH {
            self.ahead = from - found.at.cast_signed();
        }
        self.covered = found.at + found.bytes;
        self.cursor = found.from + found.bytes;
    }
}

/// Whether the bytes before and at `at` belong to one word: a name, a number, a time, a hash.
fn is_inside(bytes: &[u8], at: usize) -> bool {
    let Some((before, after)) = at.checked_sub(1).map(|before| (before, at)) else { return false };
    if !is_word(bytes, before) || !is_word(bytes, after) {
        return false;
    }
    // A number's unit is not part of it: digits are packed, letters are not.
    let byte = |index: usize| bytes.get(index).copied().unwrap_or(b' ');
    let is_unit = |byte: u8| matches!(byte, b'g'..=b'z' | b'G'..=b'S' | b'U'..=b'Y');
    let (before, after) = (byte(before), byte(after));
    !(before.is_ascii_digit() && is_unit(after) || is_unit(before) && after.is_ascii_digit())
}

/// Whether this byte is part of a word. Punctuation is between letters or digits.
fn is_word(bytes: &[u8], at: usize) -> bool {
    let is = |index: usize| bytes.get(index).is_some_and(u8::is_ascii_alphanumeric);
    let is_joint = || bytes.get(at).is_some_and(|byte| matches!(byte, b'-' | b'.' | b':'));
    is(at) || (is_joint() && at > 0 && is(at - 1) && is(at + 1))
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a decoder does with the delta.
    fn apply(delta: &Delta, base: &[u8]) -> Vec<u8> {
        let (mut out, mut literals, mut cursor) = (Vec::new(), &*delta.literals, 0_usize);
        for op in &delta.ops {
            let (taken, rest) = literals.split_at(op.insert);
            out.extend_from_slice(taken);
            literals = rest;
            let from = cursor.checked_add_signed(op.skip).unwrap();
            cursor = from + op.copy;
            out.extend_from_slice(&base[from..cursor]);
        }
        assert!(literals.is_empty());
        out
    }

    fn diff_of(base: &[u8], value: &[u8], words: bool) -> Delta {
        let (mut index, mut delta) = (Index::default(), Delta::default());
        index.build(base);
        assert!(diff(&index, base, value, words, usize::MAX, &mut delta));
        assert_eq!(apply(&delta, base), value);
        let bytes: usize = delta.ops.iter().copied().map(Op::stored_bytes).sum();
        assert_eq!(delta.ops_bytes, bytes);
        delta
    }

    #[test]
    fn only_what_changed_is_stored_and_as_whole_words() {
        let base = br#"{"name":"web","restarts":4,"phase":"Running","at":"10:24:17"}"#;
        let value = br#"{"name":"web","restarts":5,"phase":"Running","at":"10:31:02"}"#;
        let delta = diff_of(base, value, true);
        assert_eq!(delta.literals, b"510:31:02");
        let again = br#"{"name":"web","restarts":7,"phase":"Running","at":"10:24:18"}"#;
        assert_eq!(diff_of(base, again, true).ops, delta.ops);
        assert_eq!(diff_of(base, base, true).literals, b"");
    }

    #[test]
    fn any_two_values_round_trip() {
        let mut state = 1_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 40).unwrap()
        };
        for round in 0..400 {
            let letters = 1 + random() % 40;
            let bytes = random() % 3000;
            let base: Vec<u8> =
                (0..bytes).map(|_| b' ' + u8::try_from(random() % letters).unwrap()).collect();
            let mut value = base.clone();
            for _ in 0..random() % 6 {
                let at = random() % (value.len() + 1);
                let to = (at + random() % 30).min(value.len());
                let with: Vec<u8> =
                    b"0123456789abcdefghijklmnopqrstuvwxyz"[..random() % 30].to_vec();
                value.splice(at..to, with);
            }
            diff_of(&base, &value, round % 2 == 0);
            diff_of(&value, &base, round % 2 == 0);
        }
        for (base, value) in [(&b""[..], &b""[..]), (b"", b"abc"), (b"abc", b""), (b"ab", b"ab")] {
            diff_of(base, value, true);
            diff_of(base, value, false);
        }
    }

    #[test]
    fn a_long_base_is_indexed_sparsely_and_still_found() {
        let base: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut value = base[300_000..500_000].to_vec();
        value.splice(100_000..100_003, *b"something else");
        let delta = diff_of(&base, &value, false);
        assert!(delta.stored_bytes() < 100, "{}", delta.stored_bytes());
    }

    #[test]
    fn among_lines_that_are_all_alike_the_one_nearby_is_taken() {
        let lines = |numbers: std::ops::Range<u32>| -> String {
            let line = |n| format!("      description: field {}\n      type: object\n", n % 40);
            numbers.map(line).collect()
        };
        let base = lines(0..2000);
        let value = format!("{}      nullable: true\n{}", lines(0..1003), lines(1003..2000));
        let delta = diff_of(base.as_bytes(), value.as_bytes(), true);
        assert!(delta.ops.len() <= 3, "{:?}", delta.ops);
        assert!(delta.literals.len() <= 24, "{}", delta.literals.escape_ascii());
    }

    #[test]
    fn a_hopeless_search_ends_at_the_limit() {
        let (mut index, mut delta) = (Index::default(), Delta::default());
        let base = vec![b'a'; 1000];
        index.build(&base);
        let value: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        assert!(!diff(&index, &base, &value, true, 64, &mut delta));
        assert!(delta.literals.len() < 128, "{}", delta.literals.len());
    }
}
