//! Every byte annals writes.
//!
//! This crate knows encodings, checksums and limits and nothing else: no I/O, no clock, no
//! threads, no `unsafe`. Decoders borrow from the slice they are given, never panic, and never
//! allocate from a length they have not bounded.
//!
//! Reading order: [`place`] says where bytes live, [`checksum`] mixes that place into every CRC,
//! [`cursor`] and [`varint`] are the only code that indexes bytes, [`error`] is what a decoder
//! answers; then the files themselves, structure by structure.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod cursor;
pub mod error;
pub mod file_meta;
pub mod layout;
pub mod limits;
pub mod name;
pub mod place;
pub mod varint;

pub use checksum::ContentHash;
pub use error::{DecodeError, Problem};
pub use file_meta::FileMeta;
pub use place::{FileKind, Place, StoreId};
