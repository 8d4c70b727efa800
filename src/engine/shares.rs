//! How the bytes of a file are divided: into what is alive, what is past, and what is dead.
//!
//! Decided by what the manifest and the file's own footer say, so it costs the same for a file of any
//! size, and is an estimate where a file holds more than one of them.

use std::iter::Sum;
use std::ops::Add;

use annals_format::{FileKind, FileMeta};

use crate::error::Result;
use crate::segment::Leaves;

use super::core::Core;
use super::tables::SealedFile;

/// The bytes of a file, or of many. They add up to its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares {
    /// Newest versions of keys that are alive.
    pub(super) live: u64,
    /// What is superseded, and tombstones, as long as somebody can ask for it.
    pub(super) history: u64,
    /// What changed, as long as somebody can ask for it.
    pub(super) events: u64,
    /// What nobody can ask for any more.
    pub(super) dead: u64,
}

/// What the footer of a file of newest versions counts.
#[derive(Clone, Copy, Debug)]
struct Counts {
    entries: u64,
    tombstones: u64,
}

/// A file, divided. What a fold has taken over of an L0 file lies before the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Divided {
    /// Bytes of the blocks that a fold has taken over, of which nothing counts any more.
    pub(super) folded_blocks: u64,
    /// Their part of the file's length.
    pub(super) folded: u64,
    /// What the rest of the file's length is.
    pub(super) rest: Shares,
}

impl Divided {
    /// Divides a file, in a store that answers `keep` and what is later.
    ///
    /// Of a file of newest versions the footer is read once, of an L0 file that is folded in part some
    /// pages of its index; where that fails, all of the file counts as alive, and whoever needs the file
    /// tells.
    ///
    /// Of a blob file what entries refer to is alive, `referenced` bytes of values, and the rest dead.
    pub(super) fn of(file: &SealedFile, referenced: u64, keep: u64) -> Self {
        let meta = file.meta();
        let all = meta.bytes;
        let rest = match meta.kind {
            FileKind::L0 | FileKind::Head => {
                return Self::of_newest(file, keep).unwrap_or(Self {
                    rest: Shares { live: all, ..Shares::default() },
                    ..Self::default()
                });
            }
            FileKind::Blob => {
                let live = share(all, referenced, meta.value_bytes);
                Shares { live, dead: all - live, ..Shares::default() }
            }
            FileKind::History => {
                let dead = below(keep, (meta.death_after, meta.death_upto), all);
                Shares { history: all - dead, dead, ..Shares::default() }
            }
            _ => {
                let dead = below(keep, revisions(meta), all);
                Shares { events: all - dead, dead, ..Shares::default() }
            }
        };
        Self { rest, ..Self::default() }
    }

    fn of_newest(file: &SealedFile, keep: u64) -> Result<Self> {
        let (meta, segment) = (file.meta(), file.open()?);
        let footer = segment.footer()?;
        let counts = Counts { entries: footer.entries, tombstones: footer.tombstones };
        let folded_blocks = if meta.folded_to.is_empty() {
            0
        } else {
            Leaves::from(segment, &meta.folded_to)?.span().map_or(0, |block| block.start)
        };
        let folded = share(meta.bytes, folded_blocks, segment.block_bytes()?);
        let rest = Shares::of_newest(meta, meta.bytes - folded, counts, keep);
        Ok(Self { folded_blocks, folded, rest })
    }
}

impl Shares {
    /// Of one file, see [`Divided`].
    pub(super) fn of(file: &SealedFile, referenced: u64, keep: u64) -> Self {
        let Divided { folded, rest, .. } = Divided::of(file, referenced, keep);
        Self { dead: folded, ..Self::default() } + rest
    }

    /// Of `all` bytes of a file of newest versions.
    fn of_newest(meta: &FileMeta, all: u64, counts: Counts, keep: u64) -> Self {
        let Counts { entries, tombstones } = counts;
        let without_values = meta.bytes.saturating_sub(meta.value_bytes);
        let without_values = share(all, without_values, meta.bytes);
        let past = share(without_values, tombstones, entries);
        let dead = below(keep, revisions(meta), past);
        Self { live: all - past, history: past - dead, dead, ..Self::default() }
    }
}

impl Core {
    /// The oldest revision that is answered, or pinned. Not [`Core::keep_floors`], which is for who reclaims:
    /// that notes what holds the work up.
    pub(super) fn oldest_answered(&self) -> u64 {
        let durable = self.chain.durable_place().compacted;
        self.pins.pinned().fold(self.least_floor(durable), u64::min)
    }
}

impl Add for Shares {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            live: self.live.saturating_add(other.live),
            history: self.history.saturating_add(other.history),
            events: self.events.saturating_add(other.events),
            dead: self.dead.saturating_add(other.dead),
        }
    }
}

impl Sum for Shares {
    fn sum<I: Iterator<Item = Self>>(shares: I) -> Self {
        shares.fold(Self::default(), Self::add)
    }
}

/// The revisions of a file's entries, as (before the first, the last].
fn revisions(meta: &FileMeta) -> (u64, u64) {
    (meta.min_revision.saturating_sub(1), meta.max_revision)
}

/// The part of `bytes` that is of the revisions below `keep`, where they are spread evenly over
/// (`after`, `upto`].
fn below(keep: u64, (after, upto): (u64, u64), bytes: u64) -> u64 {
    let below = keep.saturating_sub(1).min(upto).saturating_sub(after);
    share(bytes, below, upto.saturating_sub(after))
}

/// `whole * part / all`, at most `whole`; 0 of nothing.
pub(super) fn share(whole: u64, part: u64, all: u64) -> u64 {
    let product = u128::from(whole) * u128::from(part.min(all));
    u64::try_from(product / u128::from(all.max(1))).unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use annals_format::ContentHash;

    use super::*;

    fn meta(kind: FileKind, span: (u64, u64)) -> FileMeta {
        FileMeta {
            number: 1,
            kind,
            class: 0,
            incarnation: 1,
            bytes: 1000,
            hash: ContentHash::default(),
            entries: 10,
            value_bytes: 900,
            first_key: vec![1],
            last_key: vec![1, 2],
            min_revision: span.0 + 1,
            max_revision: span.1,
            death_after: 0,
            death_upto: 0,
            last_seq: 0,
            folded_to: Vec::new(),
            blobs: Vec::new(),
        }
    }

    #[test]
    fn tombstones_are_past_until_they_are_dead() {
        let meta = meta(FileKind::L0, (100, 200));
        let newest = |tombstones, keep| {
            let counts = Counts { entries: 10, tombstones };
            let shares = Shares::of_newest(&meta, meta.bytes, counts, keep);
            assert_eq!(shares.live + shares.history + shares.dead, meta.bytes);
            (shares.live, shares.history, shares.dead)
        };
        assert_eq!(newest(0, 0), (1000, 0, 0));
        assert_eq!(newest(1, 0), (990, 10, 0));
        assert_eq!(newest(5, 101), (950, 50, 0));
        assert_eq!(newest(5, 151), (950, 25, 25));
        assert_eq!(newest(5, 201), (950, 0, 50));
        assert_eq!(newest(10, u64::MAX), (900, 0, 100), "values that are not there");
    }

    #[test]
    fn what_died_at_the_watermark_is_kept() {
        assert_eq!(below(101, (100, 200), 1000), 0);
        assert_eq!(below(102, (100, 200), 1000), 10);
        assert_eq!(below(200, (100, 200), 1000), 990);
        assert_eq!(below(201, (100, 200), 1000), 1000);
        assert_eq!(below(u64::MAX, (0, u64::MAX), u64::MAX), u64::MAX - 1);
        assert_eq!(below(5, (7, 7), 1000), 0);
        assert_eq!(share(u64::MAX, 3, 2), u64::MAX);
    }
}
