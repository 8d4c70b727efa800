//! Every byte annals writes.
//!
//! This crate knows encodings, checksums and limits and nothing else: no I/O, no clock, no
//! threads, no `unsafe`. Decoders borrow from the slice they are given, never panic, and never
//! allocate from a length they have not bounded.
//!
//! Reading order: [`place`] says where bytes live, [`checksum`] mixes that place into every CRC,
//! [`cursor`] and [`varint`] read fields, [`error`] is what a decoder answers; then the files themselves, structure by structure.
#![forbid(unsafe_code)]
#![expect(
    clippy::missing_errors_doc,
    reason = "every decoder fails in the one way that DecodeError documents"
)]

#[doc = include_str!("../SPEC.md")]
#[allow(clippy::doc_markdown, reason = "its tables name fields as they are")]
pub mod spec {
    #[doc = include_str!("../SPEC-segment.md")]
    pub mod segment {}
    #[doc = include_str!("../SPEC-backup.md")]
    pub mod backup {}
}

pub mod backup;
pub mod batch;
pub mod block;
pub mod checksum;
pub mod current;
pub mod cursor;
pub mod dictionary;
pub mod entry;
pub mod error;
pub mod events;
pub mod file_meta;
pub mod filter;
pub mod frame;
pub mod group;
pub mod layout;
pub mod lease;
pub mod limits;
pub mod living;
pub mod manifest;
pub mod name;
pub mod order;
pub mod page;
pub mod place;
pub mod retention;
pub mod seal;
pub mod sector;
pub mod segment;
pub mod space;
pub mod varint;
pub mod wal_file;

pub use checksum::ContentHash;
pub use error::{DecodeError, Problem};
pub use file_meta::FileMeta;
pub use frame::Frame;
pub use manifest::{Manifest, WalFile};
pub use place::{FileKind, Place, StoreId};
pub use seal::ManifestStamp;
