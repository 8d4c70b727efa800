//! Sealed segment files: L0, HEAD, HISTORY, EVENTS and blobs.
//!
//! A segment is written front to back by a [`SegmentWriter`] from sorted entries, synced, and never
//! changed. A [`Segment`] answers point reads as of a revision through its B+tree index, and
//! [`Cursor`]s walk it in both directions; a [`Replay`] goes through EVENTS. The bytes are defined in `annals_format`; this room adds
//! the I/O: mapping, caching, compression.
//!
//! Invariants:
//! 1. Entries ascend by key and descend by revision within a key; no (key, revision) twice.
//! 2. Nothing read from a file is believed before the checksum of its structure has been compared.
//!    Blocks and pages read from a map (newest versions, groups of superseded ones, and what a replay
//!    goes through) are compared on first touch and trusted from then on; what is read with `pread` is
//!    compared every time it comes from the file.
//! 3. No length from a file is allocated before it has been bounded.
//! 4. A point read decodes one page a level and at most one block, however many entries there are; where the value lies in a
//!    blob file, the same again there.
//! 5. A writer holds one block, the index and eight bytes a key in memory (HISTORY also what its
//!    dictionary is trained on, and the values that others of a group are made from); never the
//!    file. To make the filter takes 20 bytes a key more of HISTORY, and 1.25 of L0 and HEAD, when all else is
//!    written.

mod bits;
mod blobs;
mod blocks;
mod blocks_out;
mod body_cursor;
mod cache;
mod compress;
mod concat;
mod context;
mod cursor;
mod find;
mod group_codec;
mod group_cursor;
mod groups_out;
mod handles;
mod inspect;
mod leaves;
mod merge;
mod opened;
mod rank;
mod reader;
mod regain;
mod replay;
mod sealed;
mod sink;
mod source;
mod train;
mod tree;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use concat::ConcatCursor;
pub(crate) use context::SegmentContext;
pub(crate) use cursor::Cursor;
pub use inspect::{BlockInfo, PageInfo};
pub(crate) use leaves::Leaves;
pub(crate) use merge::{EntryCursor, MergeCursor};
#[cfg(test)]
pub(crate) use reader::Entry;
pub(crate) use reader::{Segment, Version, Want};
pub(crate) use replay::{BlockId, Replay, Replayed};
pub(crate) use sealed::SealedFile;
pub(crate) use train::Training;
pub(crate) use writer::{NewSegment, SegmentWriter};
