//! Clients that mean no good, or know no better: what they cost, and what others notice of it.
//!
//! The server is a process of its own, whose memory can be looked at. Limits are told with wide margins; nothing here
//! depends on how fast a machine is. `ANNALS_ABUSE=long` makes everything larger.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test stops where it fails, and says what it measured"
)]

mod cancelled;
mod crash;
mod disk;
mod failing;
mod floods;
mod latency;
mod leases;
mod malformed;
mod server;
mod slow;
mod wire;
