//! The object layer through its public interface.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::doc_markdown,
    clippy::too_many_lines,
    reason = "what fails here fails the test; the rows at the heads of files name tests, which are tables"
)]

mod delete;
mod documents;
mod encrypt;
mod generation;
mod kit;
mod names;
mod patch;
mod patching;
mod race;
mod registry;
mod strategic;
