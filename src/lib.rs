//! annals.

pub mod clock;
mod error;
#[allow(dead_code, reason = "consumed by the engine")]
mod manifest;
mod options;
mod sync;
pub mod vfs;
#[allow(dead_code, unused_imports, reason = "consumed by the engine")]
mod wal;

pub use crate::error::{Corruption, Effect, Error, ErrorKind, Result};
pub use crate::options::{Durability, KNOBS, Knob, KnobRange, Options, ReadMode};
