//! The last transactions that several watches wanted, decoded once for all of them, and what is told of them: watches
//! of the same range and wishes tell the same batches.

use std::collections::VecDeque;

use crate::engine::{Transaction, View};
use crate::error::Result;
use crate::kv::KeyRange;
use crate::sync::Arc;
use crate::sync::plain::{AtomicUsize, OnceLock, Ordering};

use super::batch::Batch;
use super::tell::{Wants, tell};

/// Most transactions kept.
const COUNT_MAX: usize = 256;

/// Most bytes of keys, values and metadata kept when the next transaction comes, as far as they are counted; the batches
/// made of them until then may take as much again.
const BYTES_MAX: usize = 4 << 20;

/// What an event takes beside its key and value.
const EVENT_BYTES: usize = 96;

/// Values up to this length that a file lends are copied for batches which are kept: else these would hold on to files and
/// blocks. With longer ones they are not kept.
const COPIED_MAX: usize = BYTES_MAX / 8;

/// How many different ranges and wishes share what is told of a transaction. What more there are makes batches of its own.
const GROUPS_MAX: usize = 4;

/// Transactions with all they changed, by ascending revision. Long values are left out.
#[derive(Debug, Default)]
pub(super) struct Recent {
    held: Held,
    bytes: Arc<AtomicUsize>,
}

/// Transactions that are held, or are to be let go. What users have derived of their batches goes with them, whose end is
/// foreign code.
#[must_use = "it is to be dropped where no lock is held"]
#[derive(Debug, Default)]
pub(super) struct Held(VecDeque<Arc<Shared>>);

/// A transaction for several watches.
#[derive(Debug)]
pub(super) struct Shared {
    transaction: Transaction,
    groups: [OnceLock<Group>; GROUPS_MAX],
    /// What all of it takes, also counted in `all`.
    bytes: AtomicUsize,
    all: Arc<AtomicUsize>,
}

/// What watches of one range and the same wishes tell.
#[derive(Debug)]
struct Group {
    range: KeyRange,
    wants: Wants,
    batches: Vec<Batch>,
}

impl Recent {
    /// The transaction with a revision, if it is here.
    pub(super) fn find(&self, revision: u64) -> Option<Arc<Shared>> {
        let at =
            self.held.0.binary_search_by_key(&revision, |held| held.transaction.revision).ok()?;
        self.held.0.get(at).cloned()
    }

    /// Adds one with a revision above all others, and forgets the oldest as far as need be, which go to `gone`.
    pub(super) fn add(&mut self, transaction: Transaction, gone: &mut Held) {
        let bytes = bytes_of(&transaction);
        let last = self.held.0.back().map(|last| last.transaction.revision);
        if bytes > BYTES_MAX / 4 || last.is_some_and(|last| last >= transaction.revision) {
            return;
        }
        let (groups, all) = (Default::default(), Arc::clone(&self.bytes));
        let shared = Shared { transaction, groups, bytes: AtomicUsize::new(0), all };
        shared.count(bytes);
        self.held.0.push_back(Arc::new(shared));
        while self.held.0.len() > COUNT_MAX || self.bytes.load(Ordering::Relaxed) > BYTES_MAX {
            let Some(oldest) = self.held.0.pop_front() else { break };
            // Who still tells it holds it a moment longer.
            oldest.count_off();
            gone.0.push_back(oldest);
        }
    }

    /// Lets go of all.
    pub(super) fn clear(&mut self) -> Held {
        std::mem::take(&mut self.held)
    }
}

impl Shared {
    /// What a watch of `range` tells of it; `view` answers the state as of it.
    ///
    /// # Errors
    /// What `view` and its reads answer.
    pub(super) fn tell(
        &self,
        range: &KeyRange,
        wants: &Wants,
        view: impl Fn() -> Result<View>,
        each: &mut impl FnMut(Batch),
    ) -> Result<()> {
        for place in &self.groups {
            match place.get() {
                Some(group) if group.wants == *wants && group.range == *range => {
                    group.batches.iter().cloned().for_each(each);
                    return Ok(());
                }
                Some(_) => {}
                None => {
                    let mut batches = Vec::new();
                    let mut both = |batch: Batch| {
                        batches.push(batch.clone());
                        each(batch);
                    };
                    let owned = tell(&self.transaction, range, wants, COPIED_MAX, view, &mut both)?;
                    if owned {
                        self.keep(place, range, wants, batches);
                    }
                    return Ok(());
                }
            }
        }
        tell(&self.transaction, range, wants, 0, view, each).map(drop)
    }

    /// Keeps batches for other watches, if there is room.
    fn keep(&self, place: &OnceLock<Group>, range: &KeyRange, wants: &Wants, batches: Vec<Batch>) {
        // Twice: for what is derived of them.
        let bytes = batches.iter().map(|batch| 2 * batch.bytes()).sum::<usize>();
        let all = self.all.load(Ordering::Relaxed);
        if bytes > BYTES_MAX / 4 || all + bytes > 2 * BYTES_MAX {
            return;
        }
        let group = Group { range: range.clone(), wants: wants.clone(), batches };
        if place.set(group).is_ok() {
            self.count(bytes);
        }
    }

    /// In this order: what is counted off has been counted.
    fn count(&self, bytes: usize) {
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Release);
    }

    fn count_off(&self) {
        self.all.fetch_sub(self.bytes.swap(0, Ordering::Acquire), Ordering::Relaxed);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.count_off();
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
    use crate::error::ErrorKind;

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
        Transaction { revision, time: 0, metadata: Bytes::new(), events: [event].into() }
    }

    fn add(recent: &mut Recent, transaction: Transaction) {
        recent.add(transaction, &mut Held::default());
    }

    #[test]
    fn the_last_ones_are_found_and_the_older_forgotten() {
        let mut recent = Recent::default();
        for revision in 0..1_000 {
            add(&mut recent, transaction(2 * revision, 10));
        }
        assert_eq!(recent.find(1_998).expect("the last").transaction.revision, 1_998);
        assert!(recent.find(1_997).is_none());
        assert_eq!(recent.held.0.len(), COUNT_MAX);
        assert!(recent.find(2 * (1_000 - COUNT_MAX as u64)).is_some() && recent.find(0).is_none());
        drop(recent.clear());
        assert!(recent.find(1_998).is_none());
    }

    #[test]
    fn bytes_are_bounded_and_what_is_too_long_is_not_kept() {
        let mut recent = Recent::default();
        for revision in 0..100 {
            add(&mut recent, transaction(revision, 100_000));
            assert!(recent.bytes.load(Ordering::Relaxed) <= BYTES_MAX);
        }
        assert!(recent.held.0.len() > 30);
        add(&mut recent, transaction(100, BYTES_MAX));
        assert!(recent.find(100).is_none() && recent.find(99).is_some());
        // Not twice, nor behind what is there.
        add(&mut recent, transaction(99, 1));
        assert_eq!(
            recent.find(99).expect("kept").transaction.events[0].value.as_ref().map(Bytes::len),
            Some(100_000)
        );
    }

    fn wants() -> Wants {
        Wants { puts: true, deletes: true, keys_only: false, prev_kv: false, fragment: None }
    }

    fn told(shared: &Shared, range: &KeyRange, wants: &Wants) -> Vec<Batch> {
        let (mut batches, view) = (Vec::new(), || Err(ErrorKind::Closed.into()));
        shared.tell(range, wants, view, &mut |batch| batches.push(batch)).expect("all is there");
        batches
    }

    /// Whether two batches are one.
    fn are_one(one: &Batch, other: &Batch) -> bool {
        let mark = one.derived(|_| ());
        Arc::ptr_eq(&mark, &other.derived(|_| ()))
    }

    #[test]
    fn watches_that_want_the_same_share_a_batch_and_others_do_not() {
        let mut recent = Recent::default();
        add(&mut recent, transaction(5, 10));
        let shared = recent.find(5).expect("it is here");
        let (all, key) = (KeyRange::all(), KeyRange::key("k"));
        let first = &told(&shared, &all, &wants())[0];
        assert!(are_one(first, &told(&shared, &all, &wants())[0]));
        assert!(!are_one(first, &told(&shared, &key, &wants())[0]));
        let keys = Wants { keys_only: true, ..wants() };
        let only_keys = &told(&shared, &all, &keys)[0];
        assert!(only_keys.events()[0].kv.value.is_empty());
        assert_eq!(first.events()[0].kv.value.len(), 10);
        let none = Wants { puts: false, ..wants() };
        assert_eq!(told(&shared, &all, &none), []);
        assert_eq!(told(&shared, &all, &none), []);
        // All places are taken: told the same, not shared.
        let other = KeyRange::prefix("k");
        let (one, two) = (told(&shared, &other, &wants()), told(&shared, &other, &wants()));
        assert_eq!((&one, &one[0]), (&two, first));
        assert!(!are_one(&one[0], &two[0]));
        assert!(are_one(first, &told(&shared, &all, &wants())[0]));
    }

    #[test]
    fn what_could_not_be_told_is_tried_again() {
        let mut recent = Recent::default();
        let mut long = transaction(5, 10);
        long.events[0].value = None;
        add(&mut recent, long);
        let shared = recent.find(5).expect("it is here");
        let closed = || Err(ErrorKind::Closed.into());
        for _ in 0..2 {
            let told = shared.tell(&KeyRange::all(), &wants(), closed, &mut |_| unreachable!());
            assert!(told.is_err());
        }
    }

    #[test]
    fn batches_are_counted_and_no_more_than_there_is_room_for_kept() {
        let mut recent = Recent::default();
        let bytes = |recent: &Recent| recent.bytes.load(Ordering::Relaxed);
        for revision in 0..100 {
            add(&mut recent, transaction(revision, 100_000));
        }
        let before = bytes(&recent);
        let held: Vec<_> = (0..100).filter_map(|revision| recent.find(revision)).collect();
        for shared in &held {
            for range in [KeyRange::all(), KeyRange::key("k"), KeyRange::prefix("k")] {
                assert_eq!(told(shared, &range, &wants()).len(), 1);
            }
            assert!(bytes(&recent) <= 2 * BYTES_MAX);
        }
        assert!(bytes(&recent) > before + BYTES_MAX / 2, "as many as there is room for");
        add(&mut recent, transaction(100, 1));
        assert!(recent.held.0.len() < held.len() && recent.find(100).is_some());
        assert!(
            bytes(&recent) <= BYTES_MAX && bytes(&recent) > BYTES_MAX / 2,
            "no more than need be"
        );
        // What is forgotten and still told is counted as long as that takes.
        let forgotten = &held[0];
        assert_eq!(told(forgotten, &KeyRange::prefix("kk"), &wants()).len(), 0);
        drop(held);
        drop(recent.clear());
        assert_eq!(bytes(&recent), 0);
    }
}
