//! How many keys of a range live, without looking at each of them.
//!
//! ```text
//!   HEAD ----------- two look-ups a file: the keys that live
//!   L0 files ------- two look-ups a file: by how many each flush changed that
//!   generations ---- a walk over their keys in the range: by how many what came since changed it
//! ```
//!
//! All three are sums of what single keys add, and for a key they add up, whatever the order: each
//! structure says whether the key lives after its versions there, less whether it lived before them,
//! and "before" in one is "after" in the next older one that has the key. That a version tells what was
//! before it is a promise of the commit chain, which fixes it with the version's place: a tombstone
//! takes its place only if the key lives, and the number of a put is 1 only if it does not.
//!
//! Files tell this of the newest of their versions. So a state that is older than one of them is
//! counted by a walk over all its keys.

use annals_format::order::later;
use annals_format::space::is_user;

use crate::error::{Error, Result};
use crate::index::{Generation, KeyNode, Lookup};
use crate::sync::Arc;

use super::scan::{Scan, end_of_space};
use super::tables::{FileSet, Tables};

/// How many keys from `start` to before `end` (empty: to the end of the space) live as of `at`.
pub(super) fn count(tables: &Tables, (start, end): (&[u8], &[u8]), at: u64) -> Result<u64> {
    if !is_user(start) || !tables.files_are_within(at) {
        let scan = Scan::new(tables.clone(), at, (start, end), true, None);
        return scan.map(|record| record.map(|_| 1)).sum();
    }
    let end = if end.is_empty() { end_of_space(start) } else { end.to_vec() };
    if start >= end.as_slice() {
        return Ok(0);
    }
    let mut living = tables.files.living(start, &end)?;
    for generation in tables.generations.iter() {
        living += changed(generation, start, &end, at);
    }
    // No store that was written by this library comes here.
    u64::try_from(living).map_err(|_| tables.files.miscounted(living))
}

impl Tables {
    /// Whether no version of a user's key in L0 or HEAD is newer than `at`.
    ///
    /// What the oldest generation begins after is what the files have.
    fn files_are_within(&self, at: u64) -> bool {
        self.generations.last().is_some_and(|oldest| oldest.root().position().revision <= at)
    }
}

impl FileSet {
    /// How many users' keys from `start` to before `end` live as of the newest version in the files.
    fn living(&self, start: &[u8], end: &[u8]) -> Result<i64> {
        let first = self.head.partition_point(|file| file.meta().last_key.as_slice() < start);
        let head = self.head.iter().skip(first);
        let head = head.take_while(|file| file.meta().first_key.as_slice() < end);
        // No sum of so few as there are entries overflows.
        let mut living = 0;
        for file in self.l0.iter().chain(head) {
            let meta = file.meta();
            // What is folded is in HEAD.
            let start = later(start, &meta.folded_to);
            if start < end && start <= meta.last_key.as_slice() && meta.first_key.as_slice() < end {
                living += file.open()?.living(start, end)?;
            }
        }
        Ok(living)
    }

    #[cold]
    fn miscounted(&self, living: i64) -> Error {
        let Some(file) = self.l0.first().or(self.head.first()) else {
            return Error::invalid("fewer keys than none live in the log");
        };
        match file.open() {
            Ok(file) => {
                let what = "ranks of this file and older ones";
                Error::corrupt(file.path(), 0, what, "no fewer keys than none", living.to_string())
            }
            Err(error) => error,
        }
    }
}

/// By how many the versions of a generation up to `at` changed the number of living keys in a range.
fn changed(generation: &Arc<Generation>, start: &[u8], end: &[u8], at: u64) -> i64 {
    let mut keys = generation.cursor();
    let mut changed = 0;
    keys.seek(start);
    while let Some(node) = keys.node().filter(|node| node.key() < end) {
        changed += change(node, at);
        keys.next();
    }
    changed
}

fn change(node: &KeyNode, at: u64) -> i64 {
    match node.at(at) {
        Lookup::Found(newest) => i64::from(!newest.is_tombstone()) - i64::from(node.lived()),
        Lookup::Below | Lookup::Absent => 0,
    }
}
