//! The REST example, asked by an HTTP client over a socket.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "what fails here fails the test")]

mod client;
mod formats;
#[path = "../../examples/kube_api/main.rs"]
mod kube_api;
mod limits;
mod server;
mod verbs;
