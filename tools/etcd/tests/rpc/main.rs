//! This server asked over gRPC: beside a real etcd, as one once answered, and by itself. One program, as each takes as
//! long to build as all.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops where it fails, and says what it skipped"
)]

mod auth_etcd;
mod auth_race;
mod auth_server;
mod differential;
#[path = "../../../../tests/support/etcd_process.rs"]
mod etcd_process;
mod line;
mod odd;
#[path = "../../../../tests/recorded/mod.rs"]
mod recorded;
mod replay;
mod spelled;
mod support;
mod watch_etcd;
mod watch_stream;
