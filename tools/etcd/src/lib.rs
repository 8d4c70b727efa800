//! A server of etcd's version 3 protocol over an annals store.

pub mod config;
mod config_file;
mod config_flags;
mod config_url;
mod gateway;
mod gateway_json;
mod gateway_paths;
pub mod http;
pub mod log;
pub mod metrics;
mod metrics_process;
pub mod proto;
pub mod serve;
mod serve_calls;
mod serve_conn;
mod serve_notify;
pub mod tls;
mod tls_files;

/// The version of etcd whose behaviour this is, told to clients that ask.
pub const VERSION: &str = "3.6.5";
