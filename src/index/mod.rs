//! The memtable: every version written since the last flush, readable while it is written.
//!
//! A **generation** is one memtable: an arena, a hash table and an ordered index of distinct keys,
//! and the commit chain's nodes with their frames. It takes writes until it is full, then the chain
//! switches to the next one, the frozen one is flushed to a file, and it is freed whole.
//!
//! ```text
//!   hash (find one key)          ordered keys (walk a range)
//!        |                                |
//!        +-----------> KeyNode <----------+        one per distinct internal key
//!                        | head
//!                        v
//!                     Version 9 --older--> Version 5 --older--> stub 3 | ABSENT | nothing
//!                        ^                    ^
//!                     Node (rev 9)  <------ Node (rev 5)            the commit chain, by `next`
//!                        | frame               | frame              values lie inside the frames
//! ```
//!
//! Invariants:
//!
//! 1. Nothing is ever taken out of a generation: keys, versions and nodes live until its last
//!    `Arc` goes. So a reference into a generation is valid for as long as the generation is.
//! 2. A key is in the ordered index before it is in the hash table, and in both before a version of
//!    it is linked to the chain. A key without versions means nothing to a reader.
//! 3. Version chains are strictly descending in revision (in seq for the system space), and end in
//!    a *stub* (the newest version in older structures), in `ABSENT` (older structures have none)
//!    or in null (not looked up).
//! 4. A head is null only until it is resolved, once, by CAS. From then on only the commit chain
//!    changes it, in chain order.
//! 5. What a linked node or an installed version says never changes, except `Node::next`, once.
#![expect(unsafe_code, reason = "arena memory and lock-free lists; see the SAFETY notes")]

mod arena;
mod generation;
mod hash;
mod key;
mod marks;
mod node;
mod ordered;
mod spare;
mod version;
mod zeroed;

pub(crate) use arena::FIRST_CHUNK_BYTES;
pub(crate) use generation::{Full, Generation, GenerationSize, Transaction};
pub(crate) use key::{KeyNode, Lookup, Newest};
pub(crate) use node::{Change, FrameCursor, FrameRef, Link, Node, Place, Position};
pub(crate) use ordered::KeyCursor;
pub(crate) use spare::Spare;
pub(crate) use version::{Bound, Stub, Version};
