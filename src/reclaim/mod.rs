//! Background work on sealed files: deciding what is due, and what becomes of each version.
//!
//! The engine's worker does the work; here are the decisions, free of threads and publication:
//! [`plan`] chooses files, [`fold`] the fate of every version, [`floors`] how far back each key is kept.

pub(crate) mod floors;
pub(crate) mod flush;
pub(crate) mod fold;
pub(crate) mod merge;
pub(crate) mod output;
pub(crate) mod plan;
