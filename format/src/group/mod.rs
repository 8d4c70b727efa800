//! Groups: the versions of a key, newest first, most of them as what differs from another one.
//!
//! A block of encoding 5 holds groups. One version is found and read without decoding any other but
//! those its value is made from: at most [`STEPS_MAX`] within the group and one in a neighbour.
//!
//! ```text
//! groups  := group_count:u16 prefix:prefixed group_end:u32{group_count - 1} key_hash:u8{group_count} group{group_count}
//! group   := flags:u8 versions:u8 key_suffix:prefixed
//!            revision:varint lived:varint sub:varint life [lease:varint]     those of version 0
//!            revision_offset:uint(width){versions - 1}
//!            [columns_bytes:varint columns]                                  with any column flag
//!            shape_of:u8{versions} shapes ops payload{versions}
//! life    := version:varint [create:varint]      version 0: a tombstone, which has no `create`
//! columns := [deaths] [lifetimes] [subs] [leases]                            as the flags say
//! deaths  := bitmap lived:varint{bits set}
//! lifetimes := bitmap life{bits set}
//! subs    := sub:varint{versions - 1}
//! leases  := lease:varint{versions}
//! shapes  := shape_count:u8 ops_bytes:varint widths:u8 kind:u8{shape_count} base:u8{shape_count}
//!            value_bytes:uint(width){shape_count} payload_bytes:uint(width){shape_count}
//!            ops_at:uint(width){shape_count}
//! ops     := (insert:varint copy:varint skip:varint(zigzag)){..}
//! ```
//!
//! What stands in the middle of a group has a length known at its start, so finding a version by its
//! revision touches the head and the offsets, finding its payload the shapes as well.
//!
//! Invariants, proved by `check` when a file is verified: groups ascend by key and descend by
//! revision; every structure has one encoding (the longest prefix, the narrowest offsets, no flag
//! and no shape that is not needed); all that is left over is zero. Readers that skip the proof,
//! because the checksum of the block was right, still never panic, and allocate nothing they have
//! not bounded.
//!
//! Reading order: to read `directory`, `head`, `shape`, `apply`, `value`, and `check`; to write `index`
//! and `diff`, `recent` and `table`, `choose`, `draft`, and `encode`.

mod apply;
mod check;
mod choose;
mod diff;
mod directory;
mod draft;
mod encode;
mod head;
mod index;
mod recent;
mod shape;
mod table;
mod value;

use crate::limits::VALUE_BYTES_MAX;

pub use choose::{Favour, Pack};
pub use directory::Groups;
pub use encode::{GroupsBuilder, RawGroups};
pub use head::{Fields, Group};
pub use shape::Shape;
pub use value::{Scratch, Value};

/// Most versions of a group.
pub const VERSIONS_MAX: usize = 64;
/// Most groups of a block.
pub const GROUPS_MAX: usize = 4096;
/// Most ops of a shape.
pub const OPS_MAX: usize = 4096;
/// Most steps from a version over others of its group to one that is not of [`KIND_OWN`].
pub const STEPS_MAX: usize = 8;
/// Longest value, as elsewhere.
pub const GROUP_VALUE_BYTES_MAX: u64 = VALUE_BYTES_MAX;

/// Bits of a group's flags: one less than the bytes of a revision offset.
pub const FLAGS_WIDTH: u8 = 0b11;
/// Some version did not die at the revision of the one before.
pub const FLAG_DEATHS: u8 = 1 << 2;
/// Some version does not follow the one before in its lifetime.
pub const FLAG_LIFETIMES: u8 = 1 << 3;
/// Not all versions have the same sub.
pub const FLAG_SUBS: u8 = 1 << 4;
/// All versions have the lease of the head.
pub const FLAG_LEASE: u8 = 1 << 5;
/// Not all versions have the same lease. Excludes [`FLAG_LEASE`].
pub const FLAG_LEASES: u8 = 1 << 6;
/// The flags of the columns, any of which makes `columns_bytes` present.
pub const FLAGS_COLUMNS: u8 = FLAG_DEATHS | FLAG_LIFETIMES | FLAG_SUBS | FLAG_LEASES;
/// The bit that is zero.
pub const FLAG_ZERO: u8 = 1 << 7;

/// Bits of a shape's `kind`: what the payload is. The high bits are the alphabet.
pub const KIND_BITS: u8 = 0x0f;
/// No value: the key was deleted.
pub const KIND_TOMBSTONE: u8 = 0;
/// The value.
pub const KIND_RAW: u8 = 1;
/// One zstd frame with its content size.
pub const KIND_ZSTD: u8 = 2;
/// One such frame over the dictionary of the file.
pub const KIND_ZSTD_DICTIONARY: u8 = 3;
/// Literals, inserted into copies from the dictionary's content.
pub const KIND_DICTIONARY: u8 = 4;
/// Literals, inserted into copies from another version of the group: number `base`, which is lower.
pub const KIND_OWN: u8 = 5;
/// Literals, inserted into copies from version 0 of the group `base` groups before.
pub const KIND_NEIGHBOUR: u8 = 6;

/// How far the alphabet's number stands above the kind.
pub const ALPHABET_SHIFT: u32 = 4;
/// The alphabets of packed literals, from number 1 on: two a byte, low nibble first. Number 0 is
/// literals as they are.
pub const ALPHABETS: [[u8; 16]; 2] = [*b"0123456789:-.TZ\"", *b"0123456789abcdef"];

/// What reading a group needs from whoever knows the file: zstd and the dictionary.
pub trait Codec {
    /// A decoded frame.
    type Frame: AsRef<[u8]>;

    /// Decodes the frame `stored`, which must become exactly `bytes` bytes, else `None`. It stands
    /// at `at` in the block's stored bytes, which is a key to cache it by, and was made over the
    /// file's dictionary if `dictionary` says so.
    fn frame(
        &mut self,
        at: usize,
        stored: &[u8],
        bytes: usize,
        dictionary: bool,
    ) -> Option<Self::Frame>;

    /// The content of the file's dictionary; empty if there is none.
    fn dictionary(&self) -> &[u8];
}
