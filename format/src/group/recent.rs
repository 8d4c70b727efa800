//! The last ops that made versions from a base, to be tried on the next one.

use std::collections::VecDeque;

use super::apply::Op;
use super::diff::Delta;

/// How many are tried.
const RECENT_MAX: usize = 6;

/// The last ops over bases of one kind, the latest first.
#[derive(Debug, Default)]
pub(super) struct Recent {
    lists: VecDeque<List>,
}

#[derive(Debug)]
struct List {
    ops: Vec<Op>,
    inserted: usize,
    value_bytes: usize,
}

impl Recent {
    /// Makes `value` from `base` with those ops that leave the fewest literals, if any make it.
    pub(super) fn make(&self, base: &[u8], value: &[u8], delta: &mut Delta) -> bool {
        let mut best: Option<&List> = None;
        for list in self.lists.iter().filter(|list| list.value_bytes == value.len()) {
            let is_better = best.is_none_or(|best| list.inserted < best.inserted);
            if is_better && fits(&list.ops, base, value) {
                best = Some(list);
            }
        }
        if let Some(list) = best {
            delta.take(&list.ops, value);
        }
        best.is_some()
    }

    /// Puts the ops to the front of those that are tried.
    pub(super) fn remember(&mut self, ops: &[Op], value_bytes: usize) {
        if let Some(at) = self.lists.iter().position(|list| list.ops == ops) {
            if let Some(lists) = self.lists.make_contiguous().get_mut(..=at) {
                lists.rotate_right(1);
            }
            return;
        }
        let inserted = ops.iter().map(|op| op.insert).sum();
        let oldest = if self.lists.len() == RECENT_MAX { self.lists.pop_back() } else { None };
        let mut list = oldest.unwrap_or(List { ops: Vec::new(), inserted, value_bytes });
        list.ops.clear();
        list.ops.extend_from_slice(ops);
        (list.inserted, list.value_bytes) = (inserted, value_bytes);
        self.lists.push_front(list);
    }
}

/// Whether the ops make this value from this base, with whatever literals.
fn fits(ops: &[Op], base: &[u8], value: &[u8]) -> bool {
    let (mut at, mut cursor) = (0_usize, 0_usize);
    for op in ops {
        at += op.insert;
        let Some(from) = cursor.checked_add_signed(op.skip) else { return false };
        cursor = from + op.copy;
        let (made, taken) = (value.get(at..at + op.copy), base.get(from..cursor));
        if made.is_none() || made != taken {
            return false;
        }
        at += op.copy;
    }
    at == value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ops_serve_again_and_the_fewest_literals_win() {
        let op = |insert, copy, skip| Op { insert, copy, skip };
        let (base, value) = (b"abcdefgh", b"abXdefgh");
        let (few, many) = ([op(0, 2, 0), op(1, 5, 1)], [op(4, 4, 4)]);
        let (mut recent, mut delta) = (Recent::default(), Delta::default());
        assert!(!recent.make(base, value, &mut delta));
        recent.remember(&few, 8);
        recent.remember(&many, 8);
        assert!(recent.make(base, value, &mut delta));
        assert_eq!((&*delta.ops, &*delta.literals), (&few[..], &b"X"[..]));
        assert!(recent.make(base, b"zzzzefgh", &mut delta));
        assert_eq!((&*delta.ops, &*delta.literals), (&many[..], &b"zzzz"[..]));
        assert!(!recent.make(base, b"abXdefg", &mut delta), "another length");
        assert!(!recent.make(base, b"abcdefgX", &mut delta));
        // The one that was used last stays the longest.
        for insert in 1..=5 {
            recent.remember(&few, 8);
            recent.remember(&[op(insert, 3, 0)], insert + 3);
        }
        assert_eq!(recent.lists.len(), RECENT_MAX);
        recent.remember(&[op(6, 3, 0)], 9);
        assert!(recent.make(base, value, &mut delta));
        assert!(!recent.make(base, b"zzzzefgh", &mut delta));
    }
}
