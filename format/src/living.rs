//! What each entry of a segment adds to the number of living keys.
//!
//! An entry has a **weight** of 1, 0 or -1, so that over all entries of HEAD and L0 that lie between
//! two keys the weights add up to the number of users' keys that live there, as of the newest flush:
//!
//! * In HEAD, which has one version of a key: 1 for a put, 0 for a tombstone.
//! * In L0: what the version changes. A put weighs 1 if it began a lifetime (its `version` is 1), else
//!   0, as the key lived before it; a tombstone weighs -1, as only a key that lives can be deleted. The
//!   weights of a key's versions add up to whether it lives after them, less whether it lived before.
//! * 0 in HISTORY and EVENTS, and for keys of the system space.

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
        FileKind::L0 if entry.tombstone => -1,
        FileKind::L0 => i64::from(entry.version <= 1),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(kind: FileKind, key: &[u8]) -> [i64; 3] {
        let born = EntryRef { version: 1, ..EntryRef::default() };
        let changed = EntryRef { version: 7, ..EntryRef::default() };
        let deleted = EntryRef { tombstone: true, ..EntryRef::default() };
        [born, changed, deleted].map(|entry| weight(kind, key, &entry))
    }

    #[test]
    fn head_counts_what_lives_and_l0_what_changes() {
        assert_eq!(weights(FileKind::Head, b"\x01k"), [1, 1, 0]);
        assert_eq!(weights(FileKind::L0, b"\x01k"), [1, 0, -1]);
        assert_eq!(weights(FileKind::History, b"\x01k"), [0, 0, 0]);
        assert_eq!(weights(FileKind::Events, &[1; 8]), [0, 0, 0]);
        assert_eq!(weights(FileKind::Head, b"\x00L"), [0, 0, 0]);
        assert_eq!(weights(FileKind::L0, b"\x00L"), [0, 0, 0]);
    }
}
