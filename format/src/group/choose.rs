//! Chooses how each version of a group is stored.
//!
//! A **keyframe** is a version stored in full; those after it are stored as what differs from it. A
//! read then makes two values, not a chain of them, and what differs from a keyframe is for most
//! data hardly more than what differs from the neighbour. Where it is, the version before serves as
//! the base, a bounded number of steps away from the keyframe.
//!
//! Differences from a keyframe grow as versions go by. Once they have cost as much more than the
//! least of them as another keyframe would, that comes: whatever follows, this is at most twice what
//! could have been reached (it is the rule for renting skis or buying them).
//!
//! Searching costs time, above all where nothing is found. What was found serves again: the last ops
//! are tried first, also on the next key, which takes one comparison with the base. After two versions
//! without success fewer and fewer are tried.

use super::diff::{Delta, diff};
use super::index::Index;
use super::recent::Recent;
use super::table::{Stored, Table};
use super::{
    KIND_DICTIONARY, KIND_NEIGHBOUR, KIND_OWN, KIND_ZSTD, KIND_ZSTD_DICTIONARY, STEPS_MAX,
};

/// What the writer of groups spares: the reader's time, or the room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Favour {
    /// Keyframes are stored as they are: the quickest to read.
    Raw,
    /// Keyframes up to 4 KiB are made from the dictionary, larger ones are zstd frames.
    #[default]
    Fast,
    /// Keyframes are zstd frames, and the way to them is longer.
    Small,
}

/// What writing groups needs from whoever has zstd.
pub trait Pack {
    /// One frame with its content size, over the dictionary of the file if `dictionary` says so.
    /// `None` if it would not be smaller than the value, or cannot be made.
    fn zstd(&mut self, value: &[u8], dictionary: bool) -> Option<Vec<u8>>;
}

/// Longest keyframe that is made from the dictionary, with [`Favour::Fast`].
const DICTIONARY_VALUE_BYTES_MAX: usize = 4 << 10;
/// Shortest keyframe that is a zstd frame, with [`Favour::Small`].
const SMALL_ZSTD_BYTES_MIN: usize = 256;
/// Shortest keyframe that is a zstd frame for want of a dictionary, with [`Favour::Fast`].
const FAST_ZSTD_BYTES_MIN: usize = 512;
/// Values shorter than this are stored as they are and are no base: a shape takes about as much.
const BASE_BYTES_MIN: usize = 12;
/// Longest value that others are made from: a copy of it is held.
const BASE_BYTES_MAX: usize = 64 << 20;
/// Longest value kept to be the base of the next groups of a block.
const FRONT_BYTES_MAX: usize = 64 << 10;
/// A delta with a payload up to this is good enough not to look for a better one.
const PAYLOAD_BYTES_GOOD: usize = 40;
/// Steps from a version to a keyframe, with [`Favour::Fast`].
const STEPS_FAST: usize = 3;
/// After n failures in a row only every 2^(n - 1)th version is tried, up to this n.
const FAILURES_MAX: u32 = 7;
/// The next key may be of another kind than the last ones, so no more of its versions are let pass.
const KEY_PAUSE_MAX: u32 = 3;

/// Does less and less of what does not succeed.
#[derive(Debug, Default)]
struct BackOff {
    /// In a row, up to [`FAILURES_MAX`].
    failures: u32,
    /// How many times it is not done now.
    pause: u32,
}

impl BackOff {
    fn is_due(&mut self) -> bool {
        let due = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        due
    }

    fn note(&mut self, success: bool) {
        self.failures = if success { 0 } else { (self.failures + 1).min(FAILURES_MAX) };
        self.pause = if self.failures < 2 { 0 } else { (1 << (self.failures - 1)) - 1 };
    }
}

/// A version others are made from.
#[derive(Debug, Default)]
struct Base {
    /// Its number in the group; of `front` the number of the group in the block.
    number: usize,
    /// Steps to a version that is not of [`KIND_OWN`].
    steps: usize,
    value: Vec<u8>,
    /// Built for `value` if `indexed`.
    index: Index,
    indexed: bool,
    /// There is such a version.
    present: bool,
}

impl Base {
    fn set(&mut self, number: usize, steps: usize, value: &[u8]) {
        (self.number, self.steps) = (number, steps);
        self.value.clear();
        self.value.extend_from_slice(value);
        self.indexed = false;
        self.present = true;
    }

    /// Builds the index, if it is not.
    fn index(&mut self) {
        if !self.indexed {
            self.index.build(&self.value);
            self.indexed = true;
        }
    }

    /// Makes `value` from this base, if it takes at most `limit` bytes.
    fn diff(&mut self, value: &[u8], limit: usize, delta: &mut Delta) -> bool {
        self.index();
        diff(&self.index, &self.value, value, true, limit, delta)
    }
}

/// What a value is to be made from that is not of its group.
struct Over<'a> {
    kind: u8,
    number: u8,
    base: &'a [u8],
}

/// Makes values from bases of one kind.
#[derive(Debug, Default)]
struct Maker {
    recent: Recent,
    /// Whether something better than what the last ops make is looked for.
    improvements: BackOff,
    delta: Delta,
    trial: Stored,
}

impl Maker {
    /// Stores `value` as what differs from the base, if that takes at most `limit` bytes. Else `stored` is
    /// left with anything.
    fn store(
        &mut self,
        over: Over<'_>,
        index: &Index,
        value: &[u8],
        limit: usize,
        stored: &mut Stored,
    ) -> bool {
        let Over { kind, number, base } = over;
        let take = |stored: &mut Stored, delta: &Delta| {
            stored.delta(kind, number, value.len(), &delta.ops, &delta.literals);
            stored.alone_bytes()
        };
        let delta = &mut self.delta;
        let known = self.recent.make(base, value, delta);
        let mut bytes = if known { take(stored, delta) } else { usize::MAX };
        let is_good = known && stored.payload.len() <= PAYLOAD_BYTES_GOOD;
        if !known || (!is_good && self.improvements.is_due()) {
            let better = diff(index, base, value, false, limit.min(bytes), delta)
                && take(&mut self.trial, delta) < bytes;
            if better {
                std::mem::swap(stored, &mut self.trial);
                bytes = stored.alone_bytes();
            }
            if known {
                self.improvements.note(better);
            }
        }
        if bytes <= limit {
            self.recent.remember(&stored.ops, value.len());
        }
        bytes <= limit
    }
}

/// Chooses how versions are stored, group after group of one file.
#[derive(Debug, Default)]
pub(super) struct Chooser {
    favour: Favour,
    dictionary: Vec<u8>,
    dictionary_index: Index,

    /// The last version of the group that was stored in full.
    keyframe: Base,
    /// What the keyframe takes, or would without another group.
    keyframe_bytes: usize,
    /// The last version that can be a base, if it is not the keyframe.
    last: Base,
    /// Version 0 of the group, once it is no longer the keyframe.
    first: Base,
    /// Version 0 of an earlier group of the block.
    front: Base,

    /// Ops over keyframes. Those over the keyframe before often serve: values of one kind change in the
    /// same places.
    recent: Recent,
    over_dictionary: Maker,
    over_front: Maker,
    /// The least payload over this keyframe, and by how much the others exceed it.
    least: usize,
    excess: usize,
    /// Whether other versions of the group are tried as a base at all, and whether something better
    /// than what the last ops make is looked for.
    tries: BackOff,
    improvements: BackOff,

    delta: Delta,
    trial: Stored,
}

impl Chooser {
    pub(super) fn new(favour: Favour, dictionary: &[u8]) -> Self {
        let mut dictionary_index = Index::default();
        dictionary_index.build(dictionary);
        Self {
            favour,
            dictionary: dictionary.to_vec(),
            dictionary_index,
            least: usize::MAX,
            ..Self::default()
        }
    }

    /// A group begins. `same_key` says that the one before was of the same key.
    pub(super) fn begin(&mut self, same_key: bool) {
        self.keyframe.present = false;
        self.last.present = false;
        self.first.present = false;
        if !same_key {
            self.tries.pause = self.tries.pause.min(KEY_PAUSE_MAX);
        }
    }

    /// The group ends and is number `group` of its block. If `stands_alone`, its version 0 is not
    /// made from another group.
    pub(super) fn end(&mut self, group: usize, stands_alone: bool) {
        let zero = if self.first.present { &mut self.first } else { &mut self.keyframe };
        let is_zero = zero.present && zero.number == 0;
        if stands_alone && is_zero && zero.value.len() <= FRONT_BYTES_MAX {
            std::mem::swap(&mut self.front, zero);
            self.front.number = group;
        }
    }

    /// A block ends: no later group is made from one before.
    pub(super) fn end_block(&mut self) {
        self.front.present = false;
    }

    /// Chooses for version `number` of group `group`, which is not a tombstone. Answers true if
    /// `stored` is made from another group; `alone` is then what stands for itself.
    pub(super) fn choose(
        &mut self,
        (group, number): (usize, usize),
        value: &[u8],
        table: &mut Table,
        pack: &mut dyn Pack,
        stored: &mut Stored,
        alone: &mut Stored,
    ) -> bool {
        if value.len() < BASE_BYTES_MIN {
            stored.raw(value);
            return false;
        }
        if value.len() > BASE_BYTES_MAX {
            self.full(value, pack, stored);
            return false;
        }
        if self.keyframe.present && self.tries.is_due() {
            let found = self.over_own(number, value, table, stored);
            self.tries.note(found);
            if found {
                return false;
            }
        }
        self.full(value, pack, alone);
        self.keyframe_bytes = alone.alone_bytes();
        let neighbour = number == 0 && self.over_neighbour(group, value, stored);
        if !neighbour {
            std::mem::swap(stored, alone);
        }
        if self.keyframe.present && self.keyframe.number == 0 {
            std::mem::swap(&mut self.first, &mut self.keyframe);
        }
        self.keyframe.set(number, 0, value);
        self.last.present = false;
        (self.least, self.excess) = (usize::MAX, 0);
        neighbour
    }

    /// Stores the version over another one of the group, if that pays.
    fn over_own(
        &mut self,
        number: usize,
        value: &[u8],
        table: &mut Table,
        stored: &mut Stored,
    ) -> bool {
        let full = in_proportion(self.keyframe_bytes, value.len(), self.keyframe.value.len());
        let limit = full / 10 * 7;
        let mut found = self.recent.make(&self.keyframe.value, value, &mut self.delta);
        if found {
            self.take_delta(false, value.len());
            std::mem::swap(stored, &mut self.trial);
        }
        let mut steps = 1;
        let is_good = |stored: &Stored| stored.payload.len() <= PAYLOAD_BYTES_GOOD;
        if !found || (!is_good(stored) && self.improvements.is_due()) {
            let at_first = found.then(|| table.added_bytes(stored));
            let mut known = at_first.unwrap_or(limit).min(limit);
            if self.keyframe.diff(value, known, &mut self.delta) {
                self.take_delta(false, value.len());
                if table.added_bytes(&self.trial) <= known {
                    std::mem::swap(stored, &mut self.trial);
                    known = table.added_bytes(stored);
                    found = true;
                }
            }
            // A step more has to pay.
            let limit = if found { known / 4 * 3 } else { known };
            let is_good = found && is_good(stored);
            if self.last.present && !is_good && self.last.diff(value, limit, &mut self.delta) {
                self.take_delta(true, value.len());
                if table.added_bytes(&self.trial) <= limit {
                    std::mem::swap(stored, &mut self.trial);
                    known = table.added_bytes(stored);
                    steps = self.last.steps + 1;
                    found = true;
                }
            }
            if let Some(at_first) = at_first {
                self.improvements.note(known < at_first);
            }
        }
        if !found || table.added_bytes(stored) > limit {
            return false;
        }
        let payload = stored.payload.len();
        self.least = self.least.min(payload);
        self.excess += payload - self.least;
        if self.excess > full {
            return false;
        }
        if steps == 1 {
            self.recent.remember(&stored.ops, value.len());
        }
        let steps_max = if self.favour == Favour::Small { STEPS_MAX } else { STEPS_FAST };
        if steps < steps_max {
            self.last.set(number, steps, value);
        }
        true
    }

    /// Makes a trial of the delta, over the keyframe or over the last version.
    fn take_delta(&mut self, over_last: bool, value_bytes: usize) {
        let base = if over_last { &self.last } else { &self.keyframe };
        let number = u8::try_from(base.number).unwrap_or(u8::MAX);
        let Delta { ops, literals, .. } = &self.delta;
        self.trial.delta(KIND_OWN, number, value_bytes, ops, literals);
    }

    /// Stores version 0 over that of an earlier group, if that pays against `keyframe_bytes`.
    fn over_neighbour(&mut self, group: usize, value: &[u8], stored: &mut Stored) -> bool {
        let limit = self.keyframe_bytes / 10 * 7;
        // Where versions of one key have nothing in common, groups of it have not either.
        if !self.front.present || self.favour == Favour::Raw || self.tries.failures > 1 {
            return false;
        }
        let distance = group.checked_sub(self.front.number).map(u8::try_from);
        let Some(Ok(distance @ 1..)) = distance else { return false };
        let front = &mut self.front;
        front.index();
        let over = Over { kind: KIND_NEIGHBOUR, number: distance, base: &front.value };
        self.over_front.store(over, &front.index, value, limit, stored)
    }

    /// Stores the version without any other.
    fn full(&mut self, value: &[u8], pack: &mut dyn Pack, stored: &mut Stored) {
        // What saves less than a tenth is not worth the time of decoding it.
        let worth = value.len() / 10 * 9;
        let dictionary = !self.dictionary.is_empty();
        let (zstd, worth) = match self.favour {
            Favour::Raw => (false, 0),
            Favour::Small => (value.len() >= SMALL_ZSTD_BYTES_MIN, worth),
            Favour::Fast if value.len() > DICTIONARY_VALUE_BYTES_MAX => (true, worth),
            Favour::Fast if dictionary => (false, worth),
            Favour::Fast => (value.len() >= FAST_ZSTD_BYTES_MIN, value.len() / 10 * 7),
        };
        if zstd {
            let frame = pack.zstd(value, dictionary).filter(|frame| frame.len() < worth);
            if let Some(frame) = frame {
                let kind = if dictionary { KIND_ZSTD_DICTIONARY } else { KIND_ZSTD };
                stored.whole(kind, value.len());
                stored.payload.extend_from_slice(&frame);
                return;
            }
        } else if dictionary && worth > 0 {
            let over = Over { kind: KIND_DICTIONARY, number: 0, base: &self.dictionary };
            if self.over_dictionary.store(over, &self.dictionary_index, value, worth, stored) {
                return;
            }
        }
        stored.raw(value);
    }
}

/// What `of` bytes take if `to` bytes take `bytes`.
fn in_proportion(bytes: usize, of: usize, to: usize) -> usize {
    let product = (bytes as u64).saturating_mul(of as u64);
    usize::try_from(product / (to as u64).max(1)).unwrap_or(usize::MAX)
}
