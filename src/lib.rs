//! annals.

pub mod clock;
mod commit;
mod error;
mod index;
mod options;
mod sync;
pub mod vfs;

pub use crate::error::{Corruption, Effect, Error, ErrorKind, Result};
pub use crate::options::{Durability, KNOBS, Knob, KnobRange, Options, ReadMode};
