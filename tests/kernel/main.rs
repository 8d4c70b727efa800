//! The real kernel: processes that are killed, power that is cut, syncs and system calls that fail, limits,
//! files that somebody else changes.
//!
//! | file | job |
//! | --- | --- |
//! | `kill` | K1: `kill -9` at any moment, with an oracle outside |
//! | `power` | K2: power cuts of real file systems, ext4 and xfs |
//! | `fsync` | K3: a sync that fails once |
//! | `syscalls` | K4: every call of the system fails, or is the last one |
//! | `limits` | K5: no room, no descriptors, no memory |
//! | `odd` | K6: two processes, a fork, permissions, links, pipes, names |
//! | `mapped` | K7: sealed files that somebody cuts or overwrites |
//! | `clock` | a monotonic clock that begins anew |
//! | `session`, `single`, `work` | the processes that are killed, and what they do |
//! | `oracle` | what the store must hold afterwards |
//! | `process`, `child` | children of these tests |
//! | `disk`, `sys` | file systems in images; calls of the system |
//!
//! The test program starts itself as the process that dies. What the machine does not allow is skipped with
//! a message: mounts and loop devices need root, for instance.

#![cfg(target_os = "linux")]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::missing_panics_doc,
    unreachable_pub,
    missing_docs,
    reason = "tests fail by panicking and tell how much they did"
)]

mod child;
mod clock;
mod disk;
mod fsync;
mod kill;
mod limits;
mod mapped;
mod odd;
mod oracle;
mod power;
mod process;
mod session;
mod single;
#[path = "../support/mod.rs"]
mod support;
mod sys;
mod syscalls;
mod work;
