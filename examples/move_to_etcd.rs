//! The same program on an embedded store and on an etcd cluster: only the line that opens what the objects lie in is another.
//!
//! `cargo run --features etcd --example move_to_etcd -- http://127.0.0.1:2379`; without an endpoint it uses the store alone.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;

use annals::object::kv::Kv;
use annals::object::{
    CreateOptions, DeleteOptions, EtcdKv, EtcdOptions, Kind, ListOptions, Objects, UpdateOptions,
    WatchOptions,
};
use serde_json::json;

/// The program. It knows objects, and not what they lie in.
fn program<K: Kv>(kv: K) -> Result<(), Box<dyn Error>> {
    let deployments = Objects::new(Arc::new(kv), Kind::new("apps/v1", "Deployment", "deployments"));
    let before = deployments.list("default", &ListOptions::default())?;
    let resource_version = before.resource_version;
    let options = WatchOptions { resource_version, ..WatchOptions::default() };
    let watch = deployments.watch("default", &options)?;

    let web = json!({"metadata": {"name": "web"}, "spec": {"replicas": 1}});
    let made = deployments.create("default", web, &CreateOptions::default())?;
    deployments.modify("default", "web", &UpdateOptions::default(), |web| {
        web["spec"]["replicas"] = 3.into();
        Ok(())
    })?;
    // Who has read the first version comes too late.
    let late = deployments.update("default", "web", made, &UpdateOptions::default());
    if let Err(status) = late {
        println!("  {}: {}", status.code(), status.message());
    }
    deployments.delete("default", "web", &DeleteOptions::default())?;
    for event in watch.take(3) {
        println!("  {:?}: {} replicas", event.kind, event.object["spec"]["replicas"]);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    println!("in a store of this process:");
    program(annals::Store::open(directory.path())?)?;
    let Some(endpoint) = std::env::args().nth(1) else {
        println!("give the endpoint of an etcd to see it there");
        return Ok(());
    };
    println!("in the etcd at {endpoint}:");
    program(EtcdKv::connect([endpoint], EtcdOptions::new().key_prefix("move-to-etcd"))?)
}
