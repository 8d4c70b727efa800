//! The last transactions that several watches wanted, decoded once for all of them.

use std::collections::VecDeque;

use crate::engine::Transaction;
use crate::sync::Arc;

/// Most transactions kept.
const COUNT_MAX: usize = 256;

/// Most bytes of keys, values and metadata kept, as far as they are counted.
const BYTES_MAX: usize = 4 << 20;

/// What an event takes beside its key and value.
const EVENT_BYTES: usize = 96;

/// Transactions with all they changed, by ascending revision. Long values are left out.
#[derive(Debug, Default)]
pub(super) struct Recent {
    held: VecDeque<(Arc<Transaction>, usize)>,
    bytes: usize,
}

impl Recent {
    /// The transaction with a revision, if it is here.
    pub(super) fn find(&self, revision: u64) -> Option<Arc<Transaction>> {
        let at = self.held.binary_search_by_key(&revision, |(held, _)| held.revision).ok()?;
        self.held.get(at).map(|(held, _)| Arc::clone(held))
    }

    /// Adds one with a revision above all others, and forgets the oldest as far as need be.
    pub(super) fn add(&mut self, transaction: Transaction) {
        let bytes = bytes_of(&transaction);
        if bytes > BYTES_MAX / 4
            || self.held.back().is_some_and(|(last, _)| last.revision >= transaction.revision)
        {
            return;
        }
        self.held.push_back((Arc::new(transaction), bytes));
        self.bytes += bytes;
        while self.held.len() > COUNT_MAX || self.bytes > BYTES_MAX {
            let Some((_, bytes)) = self.held.pop_front() else { break };
            self.bytes -= bytes;
        }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn bytes_of(transaction: &Transaction) -> usize {
    let events = transaction.events.iter();
    let bytes = |value: &bytes::Bytes| value.len();
    let sum: usize = events
        .map(|event| EVENT_BYTES + event.key.len() + event.value.as_ref().map_or(0, bytes))
        .sum();
    sum + transaction.metadata.len() + EVENT_BYTES
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::engine::Event;

    fn transaction(revision: u64, bytes: usize) -> Transaction {
        let event = Event {
            key: Bytes::from_static(b"k"),
            value: Some(Bytes::from(vec![0; bytes])),
            delete: false,
            sub: 0,
            create_revision: revision,
            version: 1,
            lease: 0,
        };
        Transaction { revision, time: 0, metadata: Bytes::new(), events: vec![event] }
    }

    #[test]
    fn the_last_ones_are_found_and_the_older_forgotten() {
        let mut recent = Recent::default();
        for revision in 0..1_000 {
            recent.add(transaction(2 * revision, 10));
        }
        assert_eq!(recent.find(1_998).expect("the last").revision, 1_998);
        assert!(recent.find(1_997).is_none());
        assert_eq!(recent.held.len(), COUNT_MAX);
        assert!(recent.find(2 * (1_000 - COUNT_MAX as u64)).is_some() && recent.find(0).is_none());
        recent.clear();
        assert!(recent.find(1_998).is_none());
    }

    #[test]
    fn bytes_are_bounded_and_what_is_too_long_is_not_kept() {
        let mut recent = Recent::default();
        for revision in 0..100 {
            recent.add(transaction(revision, 100_000));
            assert!(recent.bytes <= BYTES_MAX);
        }
        assert!(recent.held.len() > 30);
        recent.add(transaction(100, BYTES_MAX));
        assert!(recent.find(100).is_none() && recent.find(99).is_some());
        // Not twice, nor behind what is there.
        recent.add(transaction(99, 1));
        assert_eq!(
            recent.find(99).expect("kept").events[0].value.as_ref().map(Bytes::len),
            Some(100_000)
        );
    }
}
