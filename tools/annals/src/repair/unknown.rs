//! Newest versions that were in blocks that cannot be read, as far as nothing else tells of them.
//!
//! A file says how many entries it has, so it is known how many are missing, and between which keys. Of a key between these
//! that was written at a revision that the file is of, one of them is a version: that is no longer unknown,
//! whatever the key was since.

use std::collections::HashSet;
use std::ops::{Bound, RangeBounds as _, RangeInclusive};

use annals_format::FileMeta;
use annals_format::space::Key;
use bytes::Bytes;

/// So many keys are remembered at most; of more it is said that they may be lost.
const KNOWN: usize = 1 << 20;

/// Internal keys between two that were read, or up to an end of the file.
pub(super) type Between = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The entries of all files that are missing.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    entries: u64,
    /// Where, and at which revisions they were written.
    places: Vec<(Between, RangeInclusive<u64>)>,
    known: HashSet<Bytes>,
}

impl Unknown {
    /// So many entries of a file of newest versions are missing, between such keys.
    pub(super) fn add(&mut self, meta: &FileMeta, entries: u64, between: Vec<Between>) {
        if entries > 0 {
            self.entries += entries;
            let revisions = meta.min_revision..=meta.max_revision;
            self.places.extend(between.into_iter().map(|keys| (keys, revisions.clone())));
        }
    }

    /// A user's key was written at a revision.
    pub(super) fn written(&mut self, key: &[u8], revision: u64) {
        if self.places.is_empty() || self.known.len() >= KNOWN {
            return;
        }
        let internal = Key::User(key).encode();
        let is_in = |(keys, revisions): &(Between, RangeInclusive<u64>)| {
            revisions.contains(&revision) && keys.contains(&internal)
        };
        if self.places.iter().any(is_in) {
            self.known.insert(Bytes::copy_from_slice(key));
        }
    }

    /// A user's key was deleted so long ago that no version says so.
    pub(super) fn gone(&mut self, key: &[u8]) {
        self.known.remove(key);
    }

    /// What was said of keys that were written does not count.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// How many there are at most.
    pub(super) fn left(&self) -> u64 {
        self.entries.saturating_sub(self.known.len() as u64)
    }
}
