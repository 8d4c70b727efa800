//! One version of one key, as the memtable keeps it.

use std::ptr;

use annals_format::limits;

use crate::sync::UnsafeCell;

/// The newest version of a key in older structures (frozen generations and files): what a write
/// needs to know about the past, without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stub {
    /// Revision of the version (its seq in the system space).
    pub(crate) revision: u64,
    /// Revision that created the key; 0 for a tombstone.
    pub(crate) create_revision: u64,
    /// Number of writes since the creation, 1 for the creation; 0 for a tombstone.
    pub(crate) version: u64,
    /// The lease the key is attached to, 0 for none.
    pub(crate) lease: i64,
    /// Whether the version deletes the key.
    pub(crate) tombstone: bool,
}

/// A version: a put, a tombstone, or one of the two ends of a chain, a stub and `ABSENT`.
///
/// It fills a cache line. `bound` and `jump` are written by the thread that prepares the transaction,
/// until the node is linked to the chain; after that nothing here changes.
///
/// # A hundred thousand versions
///
/// A key that is written all the time has a long chain, and a reader of an old revision must not walk
/// it version by version. So each version has a second pointer, `jump`, to the nearest older one of a
/// higher *level*. Levels are geometrically distributed (a version has at least level `n` with
/// probability `4^-n`) and computed from the revision, so they take no room. All versions that a jump
/// passes over are newer than the one it leads to: a search follows it if that one is still too new,
/// and else steps to the next. It takes O(log n) steps on average, as in a skip list, of which this is
/// one whose nodes have one tower of height one each.
///
/// To find where a new version jumps to takes a look at the head alone in three of four cases, and
/// else one along the jumps from there for each level it has.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Version {
    bound: UnsafeCell<Bound>,
    /// The nearest older version of a higher level, or the end of the chain; null if that is not known.
    jump: UnsafeCell<*const Self>,
    lease: i64,
    /// Points into the frame, which lies in the same generation.
    value: *const u8,
    value_bytes: u32,
    /// [`Kind`] in the upper bits.
    sub_and_kind: u32,
}

#[cfg(not(feature = "loom"))]
const _: () = assert!(size_of::<Version>() == 64);

/// What a version says that depends on its place in the chain: fixed before each attempt to link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// The head this version replaces. Null only where recovery did not look it up.
    pub(crate) older: *const Version,
    /// Revision; seq for a key of the system space; 0 for `ABSENT`.
    pub(crate) at: u64,
    pub(crate) create_revision: u64,
    pub(crate) version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    Put = 0,
    Tombstone = 1 << SUB_BITS,
    /// The newest version below is a put; its value is there, not here.
    Stub = 2 << SUB_BITS,
    /// The newest version below is a tombstone.
    StubTombstone = 3 << SUB_BITS,
    /// There is nothing below.
    Absent = 4 << SUB_BITS,
}

const SUB_BITS: u32 = 28;
const SUB_MASK: u32 = (1 << SUB_BITS) - 1;
const _: () = assert!(limits::TRANSACTION_OPERATIONS_MAX <= SUB_MASK as u64);

/// The level of the end of a chain, which is above all others.
const LEVEL_OF_END: u32 = u32::MAX;

// SAFETY: the raw pointers lead into the generation that holds the version, which is `Sync`;
// `bound` is written by one thread before the version is published and never after.
unsafe impl Send for Version {}
// SAFETY: as above.
unsafe impl Sync for Version {}

/// The level of a version of this revision: well spread over any sequence of revisions.
fn level_of(at: u64) -> u32 {
    // The finalizer of SplitMix64, cut short (Steele, Lea and Flood, 2014).
    let mixed = (at ^ at >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb).leading_zeros() / 2
}

/// Where a version of this level jumps to, if it comes after `older`.
fn jump_of(level: u32, mut older: Option<&Version>) -> *const Version {
    while let Some(version) = older {
        let found = version.level();
        if found > level {
            return version;
        }
        // SAFETY: as for `Version::bound`.
        let jump = version.jump.with(|cell| unsafe { *cell });
        if found == level {
            // Of a higher level: no need to look.
            return jump;
        }
        // SAFETY: null, or a version of the same generation.
        older = unsafe { jump.as_ref() };
    }
    ptr::null()
}

impl Version {
    /// A version not yet bound to a place in the chain. `value` is `None` for a tombstone, and must
    /// lie in the generation of the version.
    pub(super) fn unbound(value: Option<*const [u8]>, lease: i64, sub: u32) -> Self {
        let kind = if value.is_some() { Kind::Put } else { Kind::Tombstone };
        let value = value.unwrap_or(ptr::slice_from_raw_parts(ptr::null(), 0));
        // Values are bounded far below 4 GiB.
        let value_bytes = u32::try_from(value.len()).unwrap_or(u32::MAX);
        let bound = Bound { older: ptr::null(), at: 0, create_revision: 0, version: 0 };
        let (bound, jump) = (UnsafeCell::new(bound), UnsafeCell::new(ptr::null()));
        let sub_and_kind = sub & SUB_MASK | kind as u32;
        Self { bound, jump, lease, value: value.cast(), value_bytes, sub_and_kind }
    }

    /// The end of the chain of a key whose newest older version is known; `None` makes `ABSENT`.
    pub(super) fn end(stub: Option<Stub>) -> Self {
        let (stub, kind) = match stub {
            Some(stub) if stub.tombstone => (stub, Kind::StubTombstone),
            Some(stub) => (stub, Kind::Stub),
            None => {
                let none = Stub {
                    revision: 0,
                    create_revision: 0,
                    version: 0,
                    lease: 0,
                    tombstone: false,
                };
                (none, Kind::Absent)
            }
        };
        let bound = UnsafeCell::new(Bound {
            older: ptr::null(),
            at: stub.revision,
            create_revision: stub.create_revision,
            version: stub.version,
        });
        let (jump, lease) = (UnsafeCell::new(ptr::null()), stub.lease);
        Self { bound, jump, lease, value: ptr::null(), value_bytes: 0, sub_and_kind: kind as u32 }
    }

    /// Fixes the version's place in the chain.
    ///
    /// # Safety
    /// The version's node is not linked, and this thread is the one that prepares it.
    pub(crate) unsafe fn bind(&self, bound: Bound) {
        // SAFETY: by contract no other thread can reach this version.
        self.bound.with_mut(|cell| unsafe { *cell = bound });
        // SAFETY: null, or a version of the same generation, which outlives `self`.
        let jump = jump_of(level_of(bound.at), unsafe { bound.older.as_ref() });
        // SAFETY: as above.
        self.jump.with_mut(|cell| unsafe { *cell = jump });
    }

    /// What was fixed before the link.
    #[inline]
    pub(crate) fn bound(&self) -> Bound {
        // SAFETY: whoever reaches a version through a head or a linked node does so by an Acquire
        // load that pairs with the Release CAS that published it; after that it never changes. The
        // thread that prepares it reads what it wrote itself.
        self.bound.with(|cell| unsafe { *cell })
    }

    /// Revision of the version; seq for a key of the system space; 0 for `ABSENT`.
    #[inline]
    pub(crate) fn at(&self) -> u64 {
        self.bound().at
    }

    /// Revision that created the key; 0 for a tombstone and in the system space.
    pub(crate) fn create_revision(&self) -> u64 {
        self.bound().create_revision
    }

    /// Number of writes since the key was created; 0 for a tombstone and in the system space.
    pub(crate) fn version(&self) -> u64 {
        self.bound().version
    }

    /// The lease the key is attached to, 0 for none.
    pub(crate) fn lease(&self) -> i64 {
        self.lease
    }

    /// Number of the change among the user-space changes of its transaction, from 0.
    pub(crate) fn sub(&self) -> u32 {
        self.sub_and_kind & SUB_MASK
    }

    /// Whether the version deletes the key (a stub of a tombstone does too).
    pub(crate) fn is_tombstone(&self) -> bool {
        self.is(Kind::Tombstone) || self.is(Kind::StubTombstone)
    }

    /// Whether this is a put or a tombstone of this generation, and not the end of a chain.
    #[inline]
    pub(crate) fn is_real(&self) -> bool {
        self.is(Kind::Put) || self.is(Kind::Tombstone)
    }

    /// Whether this says that the key has no version below.
    #[inline]
    pub(crate) fn is_absent(&self) -> bool {
        self.is(Kind::Absent)
    }

    /// Whether the key lives as of this version.
    pub(crate) fn is_alive(&self) -> bool {
        self.is(Kind::Put) || self.is(Kind::Stub)
    }

    #[inline]
    fn is(&self, kind: Kind) -> bool {
        self.sub_and_kind & !SUB_MASK == kind as u32
    }

    fn level(&self) -> u32 {
        if self.is_real() { level_of(self.at()) } else { LEVEL_OF_END }
    }

    /// The value; empty for anything but a put. It lives in the generation.
    pub(crate) fn value(&self) -> &[u8] {
        if self.value_bytes == 0 {
            return &[];
        }
        // SAFETY: `unbound` took pointer and length from one slice of the generation's memory,
        // which outlives `self` and is not written after the version is reachable: the header of
        // the frame is patched until the link, the payload, where values lie, never.
        unsafe { std::slice::from_raw_parts(self.value, self.value_bytes as usize) }
    }

    /// The next older version in this generation's chain, a stub or `ABSENT` included.
    #[inline]
    pub(crate) fn older(&self) -> Option<&Self> {
        // SAFETY: null, or a version of the same generation, which outlives `self`.
        unsafe { self.bound().older.as_ref() }
    }

    /// The next version on the way to the newest one at or before `at`, which is older than this.
    #[inline]
    pub(super) fn towards(&self, at: u64) -> Option<&Self> {
        // SAFETY: as for `bound`.
        let jump = self.jump.with(|cell| unsafe { *cell });
        // SAFETY: null, or a version of the same generation, which outlives `self`.
        let jump = unsafe { jump.as_ref() };
        jump.filter(|jump| jump.is_real() && jump.at() > at).or_else(|| self.older())
    }

    /// What a write or an older generation's reader needs of the newest version.
    pub(crate) fn stub(&self) -> Stub {
        let Bound { at, create_revision, version, .. } = self.bound();
        let tombstone = self.is_tombstone();
        Stub { revision: at, create_revision, version, lease: self.lease, tombstone }
    }
}
