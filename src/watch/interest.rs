//! Who wants to hear of a key: one table of single keys, one tree of ranges.
//!
//! The tree is an array: intervals sorted by where they begin, the middle of a part being its root, each
//! with the greatest end of its part. So it has no pointers, and finding all intervals around a key takes
//! O(log n) steps and some for each found. It is never changed: what is added lies in a short list
//! beside it, what is removed leaves a hole, and when there are too many of both it is made anew. That is
//! after a number of changes in proportion to its size, so each costs O(log n), amortised.

use std::cmp::Ordering;
use std::collections::HashMap;

use annals_format::order::has_begun;
use bytes::Bytes;
use smallvec::SmallVec;

use crate::kv::KeyRange;
use crate::sync::Arc;

use super::slot::Slot;

/// Additions, and removals, that a tree of any size bears.
const LOOSE_MIN: usize = 64;

/// The slots of all watches, by what they want.
#[derive(Debug, Default)]
pub(super) struct Interest {
    keys: HashMap<Bytes, SmallVec<[Arc<Slot>; 1]>>,
    /// Sorted by start, then by address.
    tree: Vec<Interval>,
    /// How many intervals of the tree are holes.
    holes: usize,
    /// Ranges that are not yet in the tree.
    loose: Vec<Arc<Slot>>,
    len: usize,
}

#[derive(Debug)]
struct Interval {
    start: Bytes,
    /// Of the slot, also once it was removed: by start and address it is found.
    address: usize,
    /// `None` once it was removed.
    slot: Option<Arc<Slot>>,
    /// The greatest end of the part of which this is the middle; `None` if one is without end.
    reach: Option<Bytes>,
}

impl Interest {
    /// How many slots there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// All slots.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        let tree = self.tree.iter().filter_map(|interval| interval.slot.as_ref());
        self.keys.values().flatten().chain(tree).chain(&self.loose)
    }

    /// Calls `found` with each slot that wants `key`, once.
    pub(super) fn find(&self, key: &[u8], found: &mut impl FnMut(&Arc<Slot>)) {
        if let Some(slots) = self.keys.get(key) {
            slots.iter().for_each(&mut *found);
        }
        find(&self.tree, key, found);
        self.loose.iter().filter(|slot| slot.range.contains(key)).for_each(found);
    }

    /// Adds a slot, which is not there yet.
    pub(super) fn add(&mut self, slot: Arc<Slot>) {
        self.len += 1;
        if is_single(&slot.range) {
            self.keys.entry(slot.range.start().clone()).or_default().push(slot);
        } else {
            self.loose.push(slot);
            self.tidy();
        }
    }

    /// Takes a slot out. Answers whether it was there.
    pub(super) fn remove(&mut self, slot: &Arc<Slot>) -> bool {
        let was_there =
            if is_single(&slot.range) { self.remove_key(slot) } else { self.remove_range(slot) };
        self.len -= usize::from(was_there);
        was_there
    }

    fn remove_key(&mut self, slot: &Arc<Slot>) -> bool {
        let key = slot.range.start();
        let Some(slots) = self.keys.get_mut(key) else { return false };
        let Some(at) = slots.iter().position(|one| Arc::ptr_eq(one, slot)) else { return false };
        slots.swap_remove(at);
        if slots.is_empty() {
            self.keys.remove(key);
            if self.keys.capacity() > 4 * (self.keys.len() + LOOSE_MIN) {
                self.keys.shrink_to_fit();
            }
        } else if slots.capacity() > 4 * slots.len().max(LOOSE_MIN) {
            slots.shrink_to_fit();
        }
        true
    }

    fn remove_range(&mut self, slot: &Arc<Slot>) -> bool {
        if let Some(at) = self.loose.iter().position(|one| Arc::ptr_eq(one, slot)) {
            self.loose.swap_remove(at);
            return true;
        }
        let wanted = (slot.range.start(), address(slot));
        let at = self.tree.binary_search_by(|one| (&one.start, one.address).cmp(&wanted));
        let Some(interval) = at.ok().and_then(|at| self.tree.get_mut(at)) else { return false };
        // A hole may have had the same address.
        if interval.slot.take().is_none() {
            return false;
        }
        self.holes += 1;
        self.tidy();
        true
    }

    /// Makes the tree anew if too much is not as it should be.
    fn tidy(&mut self) {
        if self.loose.len().max(self.holes) <= LOOSE_MIN.max(self.tree.len() / 8) {
            return;
        }
        let mut slots: Vec<Arc<Slot>> = Vec::with_capacity(self.tree.len() + self.loose.len());
        slots.extend(self.tree.drain(..).filter_map(|interval| interval.slot));
        slots.append(&mut self.loose);
        // Mostly sorted, which this sort is quick with.
        slots.sort_by(|a, b| (a.range.start(), address(a)).cmp(&(b.range.start(), address(b))));
        self.tree = slots
            .into_iter()
            .map(|slot| Interval {
                start: slot.range.start().clone(),
                address: address(&slot),
                reach: slot.range.end().cloned(),
                slot: Some(slot),
            })
            .collect();
        set_reach(&mut self.tree);
        self.holes = 0;
    }
}

fn address(slot: &Arc<Slot>) -> usize {
    Arc::as_ptr(slot).addr()
}

/// Whether a range is that of one key.
fn is_single(range: &KeyRange) -> bool {
    let start = range.start();
    range.end().is_some_and(|end| {
        end.len() == start.len() + 1 && end.starts_with(start) && end.last() == Some(&0)
    })
}

/// Finds the greatest end of every part. An interval's own end is in `reach` before.
fn set_reach(part: &mut [Interval]) {
    let (left, rest) = part.split_at_mut(part.len() / 2);
    let Some((interval, right)) = rest.split_first_mut() else { return };
    set_reach(left);
    set_reach(right);
    for part in [&*left, right].iter().filter_map(|part| part.get(part.len() / 2)) {
        if later(part.reach.as_ref(), interval.reach.as_ref()).is_gt() {
            interval.reach.clone_from(&part.reach);
        }
    }
}

/// Which of two ends is later; no end is the latest.
fn later(a: Option<&Bytes>, b: Option<&Bytes>) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => a.cmp(b),
    }
}

/// As deep as the logarithm of the part's length.
fn find(part: &[Interval], key: &[u8], found: &mut impl FnMut(&Arc<Slot>)) {
    let (left, rest) = part.split_at(part.len() / 2);
    let Some((interval, right)) = rest.split_first() else { return };
    if interval.reach.as_ref().is_some_and(|reach| reach[..] <= *key) {
        return;
    }
    find(left, key, found);
    if has_begun(&interval.start, key) {
        if let Some(slot) = interval.slot.as_ref().filter(|slot| slot.range.contains(key)) {
            found(slot);
        }
        find(right, key, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(range: KeyRange) -> Arc<Slot> {
        Arc::new(Slot::new(range, 0, 0))
    }

    fn found(interest: &Interest, key: &[u8]) -> Vec<usize> {
        let mut addresses = Vec::new();
        interest.find(key, &mut |slot| addresses.push(Arc::as_ptr(slot).addr()));
        addresses.sort_unstable();
        addresses
    }

    #[test]
    fn one_key_is_told_from_a_range() {
        assert!(is_single(&KeyRange::key("a")) && is_single(&KeyRange::between("a", "a\0")));
        assert!(!is_single(&KeyRange::prefix("a")) && !is_single(&KeyRange::from_key("a")));
        assert!(!is_single(&KeyRange::between("a", "b\0")));
        assert!(!is_single(&KeyRange::between("a", "a\0\0")));
    }

    #[test]
    fn who_wants_a_key_is_found_as_by_a_walk() {
        // A simple generator: the tests of this crate need no other.
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            (seed >> 33) % below
        };
        let mut interest = Interest::default();
        let mut slots: Vec<Arc<Slot>> = Vec::new();
        let mut most = 0;
        for step in 0..6_000 {
            // It grows, and then shrinks.
            if random(10) < if step < 3_000 { 8 } else { 3 } || slots.is_empty() {
                let key = format!("{:03}", random(400));
                let range = match random(6) {
                    0 => KeyRange::key(&key),
                    1 => KeyRange::prefix(&key[..2]),
                    2 => KeyRange::from_key(&key),
                    3 => KeyRange::all(),
                    _ => KeyRange::between(&key, format!("{:03}", random(400))),
                };
                slots.push(slot(range));
                interest.add(Arc::clone(slots.last().expect("just pushed")));
            } else {
                let at = usize::try_from(random(slots.len() as u64)).expect("small");
                assert!(interest.remove(&slots.swap_remove(at)));
            }
            most = most.max(slots.len());
            assert_eq!((interest.len(), interest.slots().count()), (slots.len(), slots.len()));
            let key = format!("{:03}", random(400));
            let wants = slots.iter().filter(|slot| slot.range.contains(key.as_bytes()));
            let mut expected: Vec<_> = wants.map(|slot| Arc::as_ptr(slot).addr()).collect();
            expected.sort_unstable();
            assert_eq!(found(&interest, key.as_bytes()), expected, "step {step}, key {key}");
        }
        assert!(most > 1_000 && slots.len() < most / 2);
        assert!(interest.loose.len() < most / 4 && interest.holes < most / 4);
        for slot in &slots {
            assert!(interest.remove(slot));
            assert!(!interest.remove(slot), "it is gone");
        }
        assert_eq!((interest.len(), interest.keys.len()), (0, 0));
    }

    #[test]
    fn many_watches_of_one_prefix_come_and_go() {
        let mut interest = Interest::default();
        let slots: Vec<_> = (0..2_000).map(|_| slot(KeyRange::prefix("/pods/"))).collect();
        for slot in &slots {
            interest.add(Arc::clone(slot));
        }
        assert_eq!(found(&interest, b"/pods/a").len(), 2_000);
        assert!(found(&interest, b"/pods0").is_empty());
        assert!(slots.iter().all(|slot| interest.remove(slot)));
        assert!(found(&interest, b"/pods/a").is_empty());
        assert!(interest.tree.len() <= 2 * LOOSE_MIN, "holes are swept");
    }
}
