//! A distinct key of a generation, with the chain of its versions.

use std::ptr;

use super::version::{Stub, Version};
use crate::sync::{AtomicPtr, Ordering};

/// A distinct internal key. Found by the hash table, walked by the ordered index.
///
/// It begins a cache line, and the key and the tower follow it there: of most keys all is in one line,
/// which is what a search in either index has to fetch.
///
/// ```text
/// KeyNode (24 bytes) | key | to the next multiple of 8 | tower
/// ```
#[derive(Debug)]
#[repr(C)]
pub(crate) struct KeyNode {
    /// Null until resolved; then the newest applied version, a stub or `ABSENT`.
    ///
    /// Only two things write it: `resolve`, once, from null; and the commit chain, in chain order.
    head: AtomicPtr<Version>,
    /// The key's bytes, in the generation's arena. After them, aligned, come `height` links of the ordered
    /// index.
    key: *const u8,
    key_bytes: u32,
    height: u8,
}

/// Offset of the tower from the key.
pub(super) const fn tower_offset(key_bytes: usize) -> Option<usize> {
    key_bytes.checked_next_multiple_of(align_of::<AtomicPtr<KeyNode>>())
}

/// The newest version of a key at or below some revision, as one generation knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lookup<'g> {
    /// A put or tombstone of this generation: the answer.
    Found(&'g Version),
    /// This generation has none: look in older structures.
    Below,
    /// Neither this generation nor any older structure has one.
    Absent,
}

/// What a generation knows of the newest version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Newest {
    /// Nothing: look in older structures.
    Unknown,
    /// The key never existed, here or below.
    Absent,
    /// The newest version, of this generation or below.
    Known(Stub),
}

// SAFETY: the raw pointers lead to memory of the generation that holds the node: bytes that never
// change, and atomics.
unsafe impl Send for KeyNode {}
// SAFETY: as above.
unsafe impl Sync for KeyNode {}

impl KeyNode {
    /// A key whose bytes and tower lie in the generation's arena.
    ///
    /// # Safety
    /// `key` is initialised, and so are `height` links at [`tower_offset`] from it, aligned and in the same
    /// allocation. Both outlive the node, and are not written except through the tower's atomics.
    pub(super) unsafe fn new(key: *const [u8], height: usize) -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
            key: key.cast(),
            key_bytes: u32::try_from(key.len()).unwrap_or(u32::MAX),
            height: u8::try_from(height).unwrap_or(u8::MAX),
        }
    }

    /// The internal key.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        // SAFETY: the contract of `new`.
        unsafe { std::slice::from_raw_parts(self.key, self.key_bytes as usize) }
    }

    /// The links of the ordered index, lowest first.
    #[inline]
    pub(super) fn tower(&self) -> &[AtomicPtr<Self>] {
        let offset = tower_offset(self.key_bytes as usize).unwrap_or_default();
        // SAFETY: the contract of `new`.
        let tower = unsafe { self.key.add(offset) };
        #[expect(clippy::cast_ptr_alignment, reason = "the contract of `new`")]
        let tower = tower.cast::<AtomicPtr<Self>>();
        // SAFETY: the contract of `new`.
        unsafe { std::slice::from_raw_parts(tower, usize::from(self.height)) }
    }

    /// The head: `None` before it is resolved.
    #[inline]
    pub(crate) fn head(&self) -> Option<&Version> {
        // SAFETY: null, or a version of the generation that holds `self`. Acquire pairs with the
        // Release of `install` and `resolve`, so what the version says is visible.
        unsafe { self.head.load(Ordering::Acquire).as_ref() }
    }

    /// Resolves the head to `end` unless it is resolved already.
    pub(super) fn resolve(&self, end: *const Version) {
        let end = end.cast_mut();
        let null = ptr::null_mut();
        let _ = self.head.compare_exchange(null, end, Ordering::Release, Ordering::Acquire);
    }

    /// Makes `version` the head if the head is still the one it was bound to. Failure means that
    /// another thread did it; see the story in `commit`.
    ///
    /// # Safety
    /// `version` is bound, belongs to the generation that holds `self`, and its node is linked.
    #[inline]
    pub(crate) unsafe fn install(&self, version: &Version) {
        let older = version.bound().older.cast_mut();
        if self.head.load(Ordering::Acquire) == older {
            let version = ptr::from_ref(version).cast_mut();
            let _ =
                self.head.compare_exchange(older, version, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// The head's word, for who changes it by other means than the chain's: see `commit::rivals`.
    ///
    /// # Safety
    /// What is stored there is bound, belongs to the generation that holds `self`, and nobody else
    /// stores there at the same time.
    #[cfg(all(
        any(test, feature = "bench-internals"),
        not(any(feature = "loom", feature = "shuttle"))
    ))]
    pub(crate) unsafe fn head_word(&self) -> &AtomicPtr<Version> {
        &self.head
    }

    /// The newest version with a revision of at most `at` (seq in the system space; `u64::MAX` is
    /// the newest).
    #[inline]
    pub(crate) fn at(&self, at: u64) -> Lookup<'_> {
        let mut next = self.head();
        while let Some(version) = next {
            if version.is_absent() {
                return Lookup::Absent;
            }
            if !version.is_real() {
                return Lookup::Below;
            }
            if version.at() <= at {
                return Lookup::Found(version);
            }
            next = version.towards(at);
        }
        Lookup::Below
    }

    /// The newest version, of this generation or, as a stub, of an older structure.
    #[cfg(test)]
    pub(crate) fn newest(&self) -> Newest {
        self.newest_at(u64::MAX)
    }

    /// The newest version at or below `at` as far as this generation knows, stubs included.
    ///
    /// This is what a footprint's `seen` must be taken from where it answers: a validation compares
    /// with the same chain, also after older structures forgot a tombstone that a stub remembers.
    pub(crate) fn newest_at(&self, at: u64) -> Newest {
        let mut next = self.head();
        while let Some(version) = next {
            if version.is_absent() {
                return Newest::Absent;
            }
            if version.at() <= at {
                return Newest::Known(version.stub());
            }
            next = version.towards(at);
        }
        Newest::Unknown
    }

    /// How many versions [`at`](Self::at) looks at.
    #[cfg(test)]
    pub(crate) fn steps(&self, at: u64) -> usize {
        let newer = |version: &&Version| version.is_real() && version.at() > at;
        let walk = std::iter::successors(self.head(), |version| version.towards(at));
        walk.take_while(newer).count() + 1
    }

    /// Whether the key lived before its oldest version in this generation; false without a version.
    pub(crate) fn lived(&self) -> bool {
        let oldest = std::iter::successors(self.head(), |version| version.towards(0))
            .take_while(|version| version.is_real())
            .last();
        // Only a key that lives is deleted, or put with a number above 1.
        oldest.is_some_and(|oldest| oldest.is_tombstone() || oldest.version() > 1)
    }

    /// The versions of this generation, newest first, without the end of the chain.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &Version> {
        std::iter::successors(self.head(), |version| version.older())
            .take_while(|version| version.is_real())
    }
}
