//! The server around its services, from outside: the gateway beside a real etcd, TLS, limits, and how it stops.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod certificates;
mod child;
mod common;
mod contest;
#[path = "../../../../tests/support/etcd_process.rs"]
mod etcd_process;
mod gateway;
mod http;
mod process;
mod revoked;
mod secure;
mod signals;
mod snapshot;
mod socket;
mod stop;
mod tls;
mod wire;
