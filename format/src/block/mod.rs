//! A data block: a checked header and a run of sorted entries.
//!
//! ```text
//! block   := header(24) stored(stored_bytes)
//! stored  := body | zstd(body) | zstd(body, dictionary) | zstd(body, base) | groups    as `encoding` says
//! body    := entry* restart_offset:u32{restart_count} restart_count:u32
//! ```
//!
//! Entries ascend by key and descend by revision within a key. Keys are prefix-compressed, except at
//! **restart points**, whose offsets stand at the end: a search is a binary search over the restart
//! points and a scan of the few entries of one run.
//!
//! Invariants: the body is never empty; the first restart is at 0; restarts ascend; an entry at a
//! restart point shares nothing with the entry before it. [`Body::check`] proves all of it; readers
//! that skip the proof (because the CRC was right) still never panic: every step is bounded.

mod body;
mod build;
mod header;

use std::cmp::Ordering;

pub use body::{Body, Run};
pub use build::{BodyBuilder, RESTART_INTERVAL, RawBlock};
pub use header::{BLOCK_HEADER_BYTES, BLOCK_MAGIC, BlockHeader, Encoding};

/// The order of entries: key ascending, then revision descending.
pub fn compare(a_key: &[u8], a_revision: u64, b_key: &[u8], b_revision: u64) -> Ordering {
    a_key.cmp(b_key).then(b_revision.cmp(&a_revision))
}
