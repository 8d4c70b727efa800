//! Patches of objects, by anybody who can send a request.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use annals::object::{PatchType, Schema};
use serde_json::{Value, json};

use crate::input::Input;

/// The types of patches, by the first byte of an input.
const TYPES: [PatchType; 3] = [PatchType::Json, PatchType::Merge, PatchType::StrategicMerge];

/// What `copy` operations may add to an object, beside what the patch says.
const COPIED_BYTES_MAX: usize = 3 << 20;

/// A schema with every way of merging.
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let merged = |items: Value| {
        json!({
            "type": "array",
            "items": items,
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "name",
        })
    };
    let text = json!({"type": "string"});
    let values = json!({"type": "array", "items": text, "x-kubernetes-patch-strategy": "merge"});
    let port = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let container =
        json!({"type": "object", "properties": {"ports": merged(port), "args": values}});
    let schema = json!({"type": "object", "properties": {
        "metadata": {"type": "object", "properties": {"finalizers": values}},
        "spec": {"type": "object", "properties": {
            "containers": merged(container),
            "tolerations": {"type": "array", "items": {"type": "object"}},
            "strategy": {"type": "object", "x-kubernetes-patch-strategy": "retainKeys"},
            "raw": {"type": "object", "x-kubernetes-patch-strategy": "replace"},
        }},
    }});
    Schema::from_openapi(&schema).expect("it is a schema")
});

/// A byte that says which patch, a line with an object, and the patch behind it. What comes of it is an object that
/// can be read again, is no larger than what was sent allows, and comes of it a second time.
pub(crate) fn patch(data: &[u8]) -> bool {
    let mut input = Input(data);
    let patch_type = TYPES[input.below(TYPES.len() as u64) as usize];
    let Some(end) = input.0.iter().position(|byte| *byte == b'\n') else { return false };
    let (object, patch) = (input.bytes(end), input.0);
    let Ok(object) = serde_json::from_slice::<Value>(object) else { return false };
    let before = object.clone();
    let patched = patch_type.patch(&object, patch, &SCHEMA);
    assert_eq!(object, before);
    assert_eq!(patched, patch_type.patch(&object, patch, &SCHEMA));
    match patched {
        Ok(patched) => {
            assert!(patched.is_object());
            let text = patched.to_string();
            assert_eq!(
                serde_json::from_str::<Value>(&text).expect("it can be read again"),
                patched
            );
            // Numbers and escapes are at most so much longer than they were sent.
            let sent = object.to_string().len() + 20 * patch.len();
            assert!(text.len() <= sent + COPIED_BYTES_MAX);
            if patch_type == PatchType::StrategicMerge {
                let (had, has) = (directives(&object), directives(&patched));
                assert!(has.is_subset(&had), "{has:?}");
            }
            true
        }
        Err(status) => {
            assert!(matches!(status.code(), 400 | 413 | 415 | 422), "{status:?}");
            // The shortest patch that is too large: 10,001 operations of two bytes.
            assert!(status.code() != 413 || patch.len() > 20_000);
            false
        }
    }
}

/// The names of fields, wherever they are, that would be directives in a patch.
fn directives(value: &Value) -> BTreeSet<&str> {
    let is_directive = |name: &&str| {
        ["$patch", "$retainKeys"].contains(name)
            || name.starts_with("$setElementOrder")
            || name.starts_with("$deleteFromPrimitiveList")
    };
    match value {
        Value::Object(fields) => {
            let own = fields.keys().map(String::as_str).filter(is_directive);
            own.chain(fields.values().flat_map(directives)).collect()
        }
        Value::Array(items) => items.iter().flat_map(directives).collect(),
        _ => BTreeSet::new(),
    }
}

/// Patches that are accepted, by name and type.
pub(crate) fn seeds() -> Vec<(String, u8, Vec<u8>)> {
    let object = json!({
        "metadata": {"name": "web", "labels": {"a/b": "1", "m~n": "2"}, "finalizers": ["x", "y"]},
        "spec": {
            "containers": [
                {"name": "web", "image": "web:1", "args": ["a"], "ports": [{"name": "http", "port": 80}]},
                {"name": "log", "image": "log:1"},
            ],
            "tolerations": [{"key": "k"}],
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "raw": {"x": null},
            "replicas": 3,
        },
    });
    let patches = [
        (
            "operations",
            0,
            json!([
                {"op": "test", "path": "/metadata/labels/a~1b", "value": "1"},
                {"op": "test", "path": "/spec/replicas", "value": 3.0},
                {"op": "add", "path": "/spec/containers/1", "value": {"name": "new"}},
                {"op": "add", "path": "/spec/containers/-", "value": {"name": "last"}},
                {"op": "replace", "path": "/spec/containers/0/image", "value": "web:2"},
                {"op": "remove", "path": "/metadata/labels/m~0n"},
                {"op": "move", "from": "/spec/raw", "path": "/spec/moved"},
                {"op": "copy", "from": "/spec/containers", "path": "/spec/moved/containers"},
            ]),
        ),
        (
            "whole",
            0,
            json!([
                {"op": "test", "path": "", "value": object},
                {"op": "copy", "from": "", "path": "/spec/all"},
                {"op": "move", "from": "/spec", "path": ""},
            ]),
        ),
        (
            "merge",
            1,
            json!({"metadata": {"labels": {"a/b": null, "c": {"d": null}}}, "spec": {"containers": [1]}}),
        ),
        (
            "lists",
            2,
            json!({"spec": {
                "containers": [
                    {"name": "log", "$patch": "delete"},
                    {"name": "web", "args": ["b"], "ports": [{"name": "http", "port": 81}, {"name": "x"}]},
                    {"name": "new", "x": null},
                ],
                "tolerations": [],
            }}),
        ),
        (
            "directives",
            2,
            json!({
                "metadata": {
                    "$setElementOrder/finalizers": ["z", "y"],
                    "$deleteFromPrimitiveList/finalizers": ["x"],
                    "finalizers": ["z"],
                    "labels": {"$patch": "replace", "q": "1"},
                },
                "spec": {
                    "$setElementOrder/containers": [{"name": "log"}, {"name": "web"}],
                    "containers": [{"name": "web", "$retainKeys": ["name", "args"], "args": []}],
                    "strategy": {"$retainKeys": ["type"], "type": "Recreate"},
                    "raw": {"$retainKeys": ["y"], "y": 1, "z": null},
                },
            }),
        ),
        ("replace", 2, json!({"spec": {"containers": [{"name": "only"}, {"$patch": "replace"}]}})),
    ];
    let line = |patch: Value| format!("{object}\n{patch}").into_bytes();
    patches.into_iter().map(|(name, kind, patch)| (name.to_owned(), kind, line(patch))).collect()
}
