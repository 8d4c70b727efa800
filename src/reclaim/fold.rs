//! The fate of every version in a fold, and in a merge of windows: pure decisions, no I/O.
//!
//! A *fold* merges flushed files (L0) and the newest versions below them (HEAD) into new HEAD files
//! and, of each class of keys, a HISTORY window. An L0 file has one version of a key, the newest of the
//! generations it was made of, and says
//! in `first` which was the oldest there; those between are in HISTORY since the flush. So the fold
//! meets the versions of a key that nothing superseded within their own generation, newest first. Each
//! of them but the newest was superseded by the *oldest* version of the next newer generation that has
//! the key, and goes to HISTORY with that revision as its *death*.
//!
//! ```text
//!   key  from  revision  first            watermark 5
//!   a    L0    12 put      9   -> HEAD            the newest version of its key
//!   a    L0     7 put      6   -> HISTORY death 9 by then the later generation had begun on the key
//!   a    HEAD   2 put          -> HISTORY death 6 still the value at 5, the oldest revision kept
//!   b    L0     5 tombstone 5  -> HEAD            not older than the watermark: the event at 5 is readable
//!   c    L0     4 tombstone 4  -> dropped         nothing reads below 5
//!   c    HEAD   3 put          -> dropped         died at 4, before the watermark
//! ```
//!
//! Invariants:
//!
//! 1. A version that is the answer for some revision at or after the watermark is kept, and so is
//!    the version that died exactly at the watermark. The watermark of a key is the floor of its class
//!    ([`super::floors`]).
//! 2. Every kept version of the user space lands in exactly one of HEAD and HISTORY.
//! 3. Of the system space only the newest version is kept, and no tombstone: it is read as of now.

use annals_format::entry::EntryRef;
use annals_format::space::is_system;

use super::floors::Floors;

/// Where a version goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Into HEAD, or into the L0 file that several become: the newest version of its key.
    Newest,
    /// Into the HISTORY window of its death.
    History {
        /// The revision that superseded it.
        death: u64,
    },
    /// Nowhere: no read can ask for it.
    Drop,
    /// It cannot be: the file of the next newer version says that what superseded this version came
    /// before it.
    Contradicted,
}

/// Decides the fate of versions that come sorted by key ascending, revision descending.
#[derive(Debug)]
pub(crate) struct Folder {
    floors: Floors,
    /// The floor of the key: versions that died before this, and older tombstones, are dropped.
    watermark: u64,
    key: Vec<u8>,
    /// `first` of the version before: what superseded the next one of the same key.
    newer: Option<u64>,
    /// Whether nothing lies below what is folded, so that where there is no version there is none.
    bottom: bool,
}

impl Folder {
    /// A fold that keeps of each key what reads at its floor and later can ask for.
    pub(crate) fn new(floors: Floors) -> Self {
        Self { floors, watermark: 0, key: Vec::new(), newer: None, bottom: true }
    }

    /// A merge of L0 files: HEAD, or another L0 file, may have older versions of the keys, so every
    /// key keeps its newest, tombstones too.
    pub(crate) fn above_head(floors: Floors) -> Self {
        Self { bottom: false, ..Self::new(floors) }
    }

    /// The fate of the next version.
    pub(crate) fn fate(&mut self, entry: &EntryRef<'_>) -> Fate {
        let newer = if self.newer.is_some() && self.key == entry.key {
            self.newer
        } else {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            self.watermark = self.floors.of(entry.key);
            None
        };
        // A version of HEAD has no `first`, and nothing older comes after it.
        self.newer = Some(entry.first);
        let kept = !self.bottom || !entry.tombstone;
        if is_system(entry.key) {
            return if newer.is_none() && kept { Fate::Newest } else { Fate::Drop };
        }
        match newer {
            None if !kept && entry.revision < self.watermark => Fate::Drop,
            None => Fate::Newest,
            Some(death) if death <= entry.revision => Fate::Contradicted,
            Some(death) if death < self.watermark => Fate::Drop,
            Some(death) => Fate::History { death },
        }
    }
}

/// Whether a version of a HISTORY window can still be asked for.
pub(crate) fn keeps(entry: &EntryRef<'_>, watermark: u64) -> bool {
    entry.death >= watermark
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::floors::Classes;
    use crate::sync::Arc;

    fn put(key: &'static [u8], revision: u64, first: u64) -> EntryRef<'static> {
        let (create_revision, version) = (revision, 1);
        EntryRef { key, revision, first, create_revision, version, ..EntryRef::default() }
    }

    fn tombstone(key: &'static [u8], revision: u64) -> EntryRef<'static> {
        EntryRef { key, revision, first: revision, tombstone: true, ..EntryRef::default() }
    }

    fn fates(watermark: u64, entries: &[EntryRef<'_>]) -> Vec<Fate> {
        let mut folder = Folder::new(Floors::all(watermark));
        entries.iter().map(|entry| folder.fate(entry)).collect()
    }

    #[test]
    fn the_example_of_the_room() {
        let entries = [
            put(b"\x01a", 12, 9),
            put(b"\x01a", 7, 6),
            put(b"\x01a", 2, 0),
            tombstone(b"\x01b", 5),
            tombstone(b"\x01c", 4),
            put(b"\x01c", 3, 0),
        ];
        let expected = [
            Fate::Newest,
            Fate::History { death: 9 },
            Fate::History { death: 6 },
            Fate::Newest,
            Fate::Drop,
            Fate::Drop,
        ];
        assert_eq!(fates(5, &entries), expected);
    }

    #[test]
    fn what_died_at_the_watermark_is_kept_and_what_died_before_is_not() {
        let entries = [put(b"\x01a", 12, 9), put(b"\x01a", 7, 6), put(b"\x01a", 2, 0)];
        for (watermark, second, third) in [
            (6, Fate::History { death: 9 }, Fate::History { death: 6 }),
            (7, Fate::History { death: 9 }, Fate::Drop),
            (9, Fate::History { death: 9 }, Fate::Drop),
            (10, Fate::Drop, Fate::Drop),
        ] {
            assert_eq!(fates(watermark, &entries), [Fate::Newest, second, third], "{watermark}");
        }
    }

    #[test]
    fn a_store_never_compacted_drops_nothing_of_the_user_space() {
        let entries = [tombstone(b"\x01a", 4), put(b"\x01a", 3, 0), put(b"\x01b", 2, 0)];
        let expected = [Fate::Newest, Fate::History { death: 4 }, Fate::Newest];
        assert_eq!(fates(0, &entries), expected);
    }

    #[test]
    fn every_key_has_the_watermark_of_its_class() {
        let classes = Arc::new(Classes::new([&b"audit/"[..], b"events/"].into_iter()));
        let mut folder = Folder::new(Floors::new(classes, vec![5, 0, 9]));
        let entries = [
            put(b"\x01audit/a", 4, 4),
            put(b"\x01audit/a", 3, 3),
            tombstone(b"\x01audit/b", 2),
            put(b"\x01b", 7, 7),
            put(b"\x01b", 3, 3),
            put(b"\x01b", 2, 2),
            put(b"\x01events/a", 9, 9),
            put(b"\x01events/a", 8, 8),
            put(b"\x01events/a", 7, 7),
            tombstone(b"\x01events/b", 8),
        ];
        let expected = [
            Fate::Newest,
            Fate::History { death: 4 },
            Fate::Newest,
            Fate::Newest,
            Fate::History { death: 7 },
            Fate::Drop,
            Fate::Newest,
            Fate::History { death: 9 },
            Fate::Drop,
            Fate::Drop,
        ];
        let fates: Vec<Fate> = entries.iter().map(|entry| folder.fate(entry)).collect();
        assert_eq!(fates, expected);
    }

    #[test]
    fn files_that_contradict_each_other_cost_no_version() {
        for (first, watermark) in [(3, 0), (4, 0), (1, 9)] {
            let entries = [put(b"\x01a", 8, first), put(b"\x01a", 4, 4)];
            assert_eq!(fates(watermark, &entries), [Fate::Newest, Fate::Contradicted], "{first}");
        }
        let fine = [put(b"\x01a", 8, 5), put(b"\x01a", 4, 4)];
        assert_eq!(fates(0, &fine), [Fate::Newest, Fate::History { death: 5 }]);
    }

    #[test]
    fn the_system_space_keeps_only_what_lives_now() {
        let entries = [
            put(b"\x00A", 9, 8),
            put(b"\x00A", 7, 7),
            tombstone(b"\x00L", 8),
            put(b"\x00L", 6, 6),
            put(b"\x01a", 2, 2),
        ];
        let mut folder = Folder::new(Floors::all(0));
        let fates: Vec<Fate> = entries.iter().map(|entry| folder.fate(entry)).collect();
        assert_eq!(fates, [Fate::Newest, Fate::Drop, Fate::Drop, Fate::Drop, Fate::Newest]);
    }
}
