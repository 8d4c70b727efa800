//! Server-side apply, and the managed fields that come with an object, by anybody who can send a request.

use std::sync::LazyLock;

use annals::object::Schema;
use annals::object::apply::{FieldManager, apply, track};
use serde_json::{Value, json};

use crate::input::Input;

/// A schema with lists, sets and maps of every kind, and a place where anything may be.
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "additionalProperties": text});
    let set = json!({"type": "array", "items": text, "x-kubernetes-list-type": "set"});
    let map = |items: Value| {
        json!({"type": "array", "items": items, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"]})
    };
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let port = json!({"type": "object", "properties": {"name": text, "port": {"type": "integer"}}});
    let container = json!({"type": "object", "properties": {
        "name": text, "args": {"type": "array", "items": text}, "ports": map(port)}});
    let schema = json!({"type": "object", "properties": {
        "apiVersion": text, "kind": text,
        "metadata": {"type": "object", "properties": {
            "name": text, "uid": text, "finalizers": set, "labels": texts, "annotations": texts}},
        "spec": {"type": "object", "properties": {
            "containers": map(container),
            "replicas": {"type": "integer"},
            "tolerations": {"type": "array", "items": any, "x-kubernetes-list-type": "atomic"},
            "strategy": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"type": text}},
            "raw": any}},
        "status": {"type": "object", "properties": {"phase": text}},
    }});
    Schema::from_openapi(&schema).expect("it is a schema")
});

/// Flags: what others own is taken, and there is an object already.
const FORCE: u8 = 2;
const LIVE: u8 = 4;
/// The write is an update, not an apply.
const UPDATE: u8 = 8;

fn manager(name: &str) -> FieldManager<'_> {
    let now = "2026-11-22T14:00:00Z";
    FieldManager { name, api_version: "v1", subresource: "", now, reset_fields: &[&["status"]] }
}

/// A byte of flags, a line with the object that is there, and what is applied behind it. What comes of it can be
/// applied once more, and then nothing changes.
pub(crate) fn applied(data: &[u8]) -> bool {
    let mut input = Input(data);
    let flags = input.byte();
    let Some(end) = input.0.iter().position(|byte| *byte == b'\n') else { return false };
    let (live, wanted) = (input.bytes(end), input.0);
    let Ok(live) = serde_json::from_slice::<Value>(live) else { return false };
    let Ok(wanted) = serde_json::from_slice::<Value>(wanted) else { return false };
    let manager = manager("fuzzer");
    let result = if flags & UPDATE != 0 {
        track(&live, wanted.clone(), &SCHEMA, &manager)
    } else {
        let live = (flags & LIVE != 0).then_some(&live);
        apply(live, &wanted, &SCHEMA, &manager, flags & FORCE != 0)
    };
    let made = match result {
        Ok(made) => made,
        Err(status) => {
            assert!(matches!(status.code(), 400 | 409 | 422 | 500), "{status:?}");
            assert!(status.code() != 409 || flags & FORCE == 0, "it was forced");
            // Only the fields that are there already, and cannot be read, are the server's fault.
            assert!(status.code() != 500 || flags & LIVE != 0, "{status:?}");
            return false;
        }
    };
    assert!(made.is_object());
    let text = made.to_string();
    assert_eq!(serde_json::from_str::<Value>(&text).expect("it can be read again"), made);
    if flags & UPDATE == 0 {
        let again = apply(Some(&made), &wanted, &SCHEMA, &manager, false);
        let again = again.expect("what was applied can be applied again");
        assert_eq!(again, made, "nothing changes the second time");
    }
    true
}

/// Applies and updates that are accepted, by name and flags.
pub(crate) fn seeds() -> Vec<(&'static str, u8, Vec<u8>)> {
    let set = json!({"f:spec": {
        "f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:args": {}}},
        "f:replicas": {}, "f:tolerations": {},
    }, "f:metadata": {"f:finalizers": {"v:\"x\"": {}}, "f:labels": {"f:a": {}}}});
    let entry = |manager: &str, operation: &str, fields: &Value| {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": "2026-11-22T13:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": fields})
    };
    let live = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "uid": "u", "finalizers": ["x", "y"], "labels": {"a": "1"},
            "managedFields": [entry("fuzzer", "Apply", &set), entry("other", "Update", &json!({"f:spec": {"f:raw": {}}}))]},
        "spec": {"containers": [{"name": "web", "args": ["a"]}, {"name": "log"}], "replicas": 3,
            "tolerations": [{"key": "k"}], "raw": {"x": 1}, "strategy": {"type": "A"}},
        "status": {"phase": "Running"},
    });
    let wanted = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "finalizers": ["z"], "labels": {"b": "2"}},
        "spec": {"containers": [{"name": "web", "ports": [{"name": "http", "port": 80}]}, {"name": "new"}],
            "raw": {"y": 2}},
        "status": {"phase": "Failed"},
    });
    let lines = |live: &Value, wanted: &Value| format!("{live}\n{wanted}").into_bytes();
    let mut changed = live.clone();
    changed["spec"]["replicas"] = json!(4);
    vec![
        ("forced", FORCE | LIVE, lines(&live, &wanted)),
        ("created", 0, lines(&Value::Null, &wanted)),
        ("update", UPDATE, lines(&live, &changed)),
        ("update_creates", UPDATE, lines(&Value::Null, &changed)),
    ]
}
