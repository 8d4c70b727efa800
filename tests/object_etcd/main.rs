//! Objects in a real etcd: what the conformance tests of objects cannot show, and a handful of what they do.
//!
//! All of them on etcd: `ANNALS_OBJECT_KV=etcd cargo test --features etcd,encryption --test object`. Where etcd is not installed, the tests here
//! say so and pass.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "what fails here fails the test"
)]

#[path = "../support/etcd.rs"]
mod etcd;
#[path = "../support/etcd_process.rs"]
mod etcd_process;

mod broken;
mod calls;
mod secure;

use std::sync::Arc;
use std::time::Duration;

use annals::object::{EtcdKv, EtcdOptions, Kind, Objects};
use serde_json::{Value, json};

use etcd::Etcd;

/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// An etcd, if it is installed.
fn start() -> Option<Etcd> {
    if !etcd::is_installed() {
        println!("etcd is not installed: not run");
        return None;
    }
    Some(Etcd::start())
}

fn connect(etcd: &Etcd) -> EtcdKv {
    EtcdKv::connect([etcd.endpoint()], EtcdOptions::new()).unwrap()
}

fn pods_in(kv: EtcdKv) -> Objects<EtcdKv> {
    Objects::new(Arc::new(kv), Kind::new("v1", "Pod", "pods"))
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}
