//! The object layer through its public interface.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "what fails here fails the test"
)]
#![allow(clippy::doc_markdown, reason = "the heads of modules name tests")]

mod delete;
mod documents;
mod generation;
mod kit;
mod names;
mod patch;
mod patching;
mod race;
mod registry;
mod strategic;
