//! What the operations of a transaction have done to its keys, for those that come after them.

use std::collections::BTreeMap;

use bytes::Bytes;

/// What a transaction did to one key.
pub(super) enum Overlaid {
    Put {
        value: Bytes,
        lease: i64,
        /// Its place in the writes.
        write: usize,
        /// The place of its attachment in the system writes.
        attachment: Option<usize>,
    },
    Deleted,
}

/// What was done to each key. A transaction whose operations do not look at one another makes no map:
/// to drop even an empty one would take a fiftieth of the instructions of a put.
#[derive(Default)]
pub(super) struct Overlay(Option<BTreeMap<Bytes, Overlaid>>);

impl Overlay {
    pub(super) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(BTreeMap::is_empty)
    }

    pub(super) fn contains_key(&self, key: &Bytes) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn get(&self, key: &Bytes) -> Option<&Overlaid> {
        self.0.as_ref()?.get(key)
    }

    /// Answers what was done to the key before.
    pub(super) fn insert(&mut self, key: Bytes, done: Overlaid) -> Option<Overlaid> {
        self.0.get_or_insert_default().insert(key, done)
    }

    /// From a key on, in key order.
    pub(super) fn from(&self, start: &Bytes) -> impl Iterator<Item = (&Bytes, &Overlaid)> {
        self.0.iter().flat_map(move |map| map.range::<Bytes, _>(start..))
    }
}
