//! The object layer through its public interface.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::doc_markdown,
    clippy::too_many_lines,
    unreachable_pub,
    reason = "what fails here fails the test"
)]

mod documents;
mod follow;
mod list;
mod pages;
mod patch;
mod strategic;
mod watch;
mod world;
