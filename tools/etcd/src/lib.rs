//! A server of etcd's version 3 protocol over an annals store.
//!
//! [`server::Server`] is a store and what its services share, [`services::Services`] all services as one. Requests go
//! through `requests` into the store's own and come back through `answers`; the store has etcd's semantics already.

pub mod alarm;
pub(crate) mod answers;
pub mod auth;
pub(crate) mod cluster;
pub mod compactor;
pub mod config;
pub mod directory;
pub(crate) mod errors;
mod gateway;
pub(crate) mod held;
pub mod http;
pub(crate) mod kv;
mod lease;
pub(crate) mod line;
pub mod log;
pub(crate) mod maintenance;
pub mod member;
pub mod metrics;
pub mod proto;
pub(crate) mod range_stream;
pub(crate) mod requests;
pub mod serve;
pub mod server;
pub mod services;
pub mod snapshot;
pub mod tls;
pub(crate) mod watch;

/// The version of etcd whose behaviour this server has, and which it tells.
pub const VERSION: &str = "3.6.6";
