//! Named scripts of everything a store does to a disk, and who runs them: alone, with a fault, or with a look at the
//! disk before each operation. The tests `crash`, `faults`, `lying` and `simulation` share them.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "tests fail by panicking, and every test uses another part of it"
)]

pub mod run;
pub mod scripts;

use annals::vfs::CrashMode;

use crate::support::model::Request;

/// A step of a script. Steps that need an open store are skipped when there is none.
#[derive(Clone, Debug)]
pub enum Step {
    Open,
    Do(Request),
    /// Transactions that are submitted together.
    Burst(Vec<Request>),
    /// So many units of background work at most.
    Background(u64),
    Reorganise,
    /// The log is written out, and memory too.
    Flush,
    /// The store keeps so many revisions from now on.
    Keep(u64),
    /// What that rule says is done.
    Apply,
    /// A copy is made while the store is open.
    Checkpoint(String),
    /// A backup is made, and restored as another store.
    Restore(String),
    /// Reads everything there is.
    Look,
    Close,
    /// The store is closed by being dropped, and nobody hears how that went.
    Drop,
    /// The process is killed: what it wrote stays in the page cache.
    Kill,
    /// The power is cut, and what was not synced is lost or kept in the way of the seed.
    Cut(u64, CrashMode),
}

/// A script with a name.
#[derive(Clone, Debug)]
pub struct Workload {
    pub name: &'static str,
    pub steps: Vec<Step>,
    /// Whether a commit is acknowledged only when it is durable.
    pub sync: bool,
}
