//! Reads as of a fixed revision, and the iterators they return.

use crate::error::Result;

use super::range::AsKeyRange;
use super::types::{Diff, KeyValue, Transaction, Version};

/// The store as of one revision.
///
/// A view never blocks and is never blocked; what it can see stays readable as long as it lives,
/// whatever is compacted meanwhile. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct View {}

impl View {
    /// The revision the view shows.
    pub fn revision(&self) -> u64 {
        1
    }

    /// The version of `key` as of the view, or `None` when it was not alive.
    ///
    /// # Errors
    ///
    /// [`Corrupt`](crate::ErrorKind::Corrupt) or [`Io`](crate::ErrorKind::Io) from the files.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<KeyValue>> {
        Ok(None)
    }

    /// The keys in `range`, in byte order, from either end.
    pub fn range(&self, range: impl AsKeyRange) -> RangeIter {
        RangeIter {}
    }

    /// The keys that begin with `prefix`; the empty prefix is every key.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> RangeIter {
        RangeIter {}
    }

    /// How many keys are alive in `range`.
    ///
    /// # Errors
    ///
    /// As [`View::get`].
    pub fn count(&self, range: impl AsKeyRange) -> Result<u64> {
        Ok(0)
    }

    /// The retained versions of `key` up to the view's revision, newest first.
    pub fn history(&self, key: impl AsRef<[u8]>) -> History {
        History {}
    }
}

/// Iterates over key-values in byte order; made by [`View::range`]. After an error it ends.
#[derive(Debug)]
#[must_use = "iterators are lazy"]
pub struct RangeIter {}

impl RangeIter {
    /// Leaves the values out.
    pub fn keys_only(self) -> Self {
        self
    }

    /// Goes from the last key to the first. (It takes the place of [`Iterator::rev`].)
    pub fn rev(self) -> Self {
        self
    }

    /// Ends after `limit` key-values.
    pub fn limit(self, limit: u64) -> Self {
        self
    }
}

impl Iterator for RangeIter {
    type Item = Result<KeyValue>;

    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}

impl DoubleEndedIterator for RangeIter {
    fn next_back(&mut self) -> Option<Self::Item> {
        None
    }
}

/// Iterates over the versions of a key, newest first; made by [`Store::history`](crate::Store::history).
#[derive(Debug)]
#[must_use = "iterators are lazy"]
pub struct History {}

impl Iterator for History {
    type Item = Result<Version>;

    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}

/// Iterates over differences in key order; made by [`Store::diff`](crate::Store::diff).
#[derive(Debug)]
#[must_use = "iterators are lazy"]
pub struct DiffIter {}

impl Iterator for DiffIter {
    type Item = Result<Diff>;

    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}

/// Iterates over transactions, oldest first; made by [`Store::log`](crate::Store::log).
#[derive(Debug)]
#[must_use = "iterators are lazy"]
pub struct Log {}

impl Log {
    /// Reads the values written, too.
    pub fn with_values(self) -> Self {
        self
    }
}

impl Iterator for Log {
    type Item = Result<Transaction>;

    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}
