//! What tests of objects share: stores in memory, kinds, and what is expected of failures.

use std::sync::Arc;

use super::under::{Objects, Store};
use annals::clock::ManualClock;
use annals::object::{
    CreateOptions, GetOptions, Kind, KindStrategy, Result, Status, UpdateOptions,
};
use annals::vfs::MemoryVfs;
use annals::{Durability, Options};
use serde_json::{Value, json};

/// 2023-11-14T22:13:20Z.
pub(crate) const NOW: i64 = 1_700_000_000;

pub(crate) fn store() -> Arc<Store> {
    let options = Options::new().vfs(Arc::new(MemoryVfs::new())).durability(Durability::Buffered);
    Arc::new(Store::or(|| options.open("store").expect("a fresh store opens")))
}

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(NOW * 1_000_000))
}

pub(crate) fn pod_kind() -> Kind {
    Kind::new("v1", "Pod", "pods")
}

pub(crate) fn pods_by(strategy: KindStrategy) -> Objects {
    Objects::new(store(), pod_kind()).clock(clock()).strategy(strategy)
}

pub(crate) fn pods() -> Objects {
    pods_by(KindStrategy::new())
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeName": "machine"}})
}

/// Made as it is, in the namespace `default`.
pub(crate) fn create(objects: &Objects, object: Value) -> Value {
    objects.create("default", object, &CreateOptions::default()).expect("it is created")
}

pub(crate) fn get(objects: &Objects, name: &str) -> Result<Value> {
    objects.get("default", name, &GetOptions::default())
}

/// Puts it in place of the one of its name.
pub(crate) fn put(objects: &Objects, object: &Value) -> Result<Value> {
    let name = object["metadata"]["name"].as_str().expect("it has a name");
    Ok(objects.update("default", name, object.clone(), &UpdateOptions::default())?.0)
}

pub(crate) fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

pub(crate) fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// What a call that has to fail says.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(call: Result<T>) -> Status {
    match call {
        Ok(done) => panic!("not refused: {done:?}"),
        Err(status) => status,
    }
}

#[track_caller]
pub(crate) fn assert_refused<T: std::fmt::Debug>(call: Result<T>, code: u16, message: &str) {
    let status = refused(call);
    assert_eq!((status.code(), status.message()), (code, message));
}
