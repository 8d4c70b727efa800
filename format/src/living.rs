//! What each entry of a segment adds to the number of living keys.
//!
//! An entry has a **weight** of 1, 0 or -1, so that over all entries of HEAD and L0 that lie between
//! two keys the weights add up to the number of users' keys that live there, as of the newest flush:
//!
//! * In HEAD, which has one version of a key: 1 for a put, 0 for a tombstone.
//! * In L0: whether the key lives after the transactions that the file was made of (1 or 0), less
//!   whether it lived before them, which its entry says.
//! * 0 in HISTORY, EVENTS and blob files, and for keys of the system space.

use crate::entry::EntryRef;
use crate::place::FileKind;
use crate::space;

/// The weight of an entry with this key; `entry.key` is not looked at.
pub fn weight(kind: FileKind, key: &[u8], entry: &EntryRef<'_>) -> i64 {
    if !space::is_user(key) {
        return 0;
    }
    match kind {
        FileKind::Head => i64::from(!entry.tombstone),
        FileKind::L0 => i64::from(!entry.tombstone) - i64::from(entry.lived),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a put and a tombstone, of a key that did not live before and one that did.
    fn weights(kind: FileKind, key: &[u8]) -> [i64; 4] {
        let of = |tombstone, lived| EntryRef { tombstone, lived, ..EntryRef::default() };
        let entries = [of(false, false), of(false, true), of(true, false), of(true, true)];
        entries.map(|entry| weight(kind, key, &entry))
    }

    #[test]
    fn head_counts_what_lives_and_l0_what_changes() {
        assert_eq!(weights(FileKind::Head, b"\x01k"), [1, 1, 0, 0]);
        assert_eq!(weights(FileKind::L0, b"\x01k"), [1, 0, 0, -1]);
        for (kind, key) in [
            (FileKind::History, b"\x01k"),
            (FileKind::Events, &[1; 2]),
            (FileKind::Head, b"\x00L"),
            (FileKind::L0, b"\x00L"),
        ] {
            assert_eq!(weights(kind, key), [0; 4], "{kind:?} {key:?}");
        }
    }
}
