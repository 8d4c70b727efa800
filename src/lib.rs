//! annals.

pub mod clock;
mod error;
mod options;
mod sync;
pub mod vfs;

pub use crate::error::{Corruption, Effect, Error, ErrorKind, Result};
pub use crate::options::{Durability, KNOBS, Knob, KnobRange, Options, ReadMode};
