//! The object layer through its public interface.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "what fails here fails the test"
)]

mod apply;
mod documents;
mod patch;
mod strategic;
