//! Patches: the public tables of RFC 6902 and RFC 7396, and the examples of the source documents.
//!
//! row 33: patch_types_are_named_and_others_refused, what_a_patch_cannot_do_is_told_as_upstream_tells_it
//! row 34: json_patch_tables, the_json_patch_of_the_documents, all_operations_of_a_json_patch_or_none
//! row 35: merge_patch_table, the_merge_patches_of_the_documents

use annals::object::{PatchType, Result, Schema, json_patch, merge_patch};
use serde_json::{Value, json};

fn patch_json(document: &Value, patch: &Value) -> Result<Value> {
    json_patch(document, patch.to_string().as_bytes())
}

fn patch_merge(document: &Value, patch: &Value) -> Value {
    merge_patch(document, patch.to_string().as_bytes()).expect("it is JSON")
}

#[test]
fn json_patch_tables() {
    let tables = [
        include_str!("fixtures/json-patch-tests.json"),
        include_str!("fixtures/json-patch-spec-tests.json"),
    ];
    let mut cases = 0;
    for table in tables {
        let table: Vec<Value> = serde_json::from_str(table).expect("a list of cases");
        for case in table {
            // Those that are switched off there hold here as well, but for the one that is written with a
            // member twice: of two, the last counts, as everywhere.
            if case["error"] == "patch has two 'op' members" {
                continue;
            }
            cases += 1;
            let patched = patch_json(&case["doc"], &case["patch"]);
            match case.get("error") {
                Some(_) => assert_eq!(patched.expect_err("an error").code(), 422, "{case}"),
                None => {
                    let expected = case.get("expected").unwrap_or(&case["doc"]);
                    assert_eq!(&patched.expect("it applies"), expected, "{case}");
                }
            }
        }
    }
    assert_eq!(cases, 94 + 17, "the tables are whole");
}

#[test]
fn merge_patch_table() {
    let table: Vec<[Value; 3]> =
        serde_json::from_str(include_str!("fixtures/rfc7396.json")).expect("a list of cases");
    assert_eq!(table.len(), 15);
    for [document, patch, expected] in table {
        assert_eq!(patch_merge(&document, &patch), expected, "{document} {patch}");
    }
    // What an API server does otherwise: nulls in lists are taken as they are.
    let patched = patch_merge(&json!({}), &json!({"a": [{"b": null}, null]}));
    assert_eq!(patched, json!({"a": [{"b": null}, null]}));
}

/// A pod with two containers.
fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"containers": [
            {"name": "web", "image": "web:1"},
            {"name": "log", "image": "log:1"},
        ]},
    })
}

#[test]
fn the_json_patch_of_the_documents() {
    // A container is put at the place of index 1, and the image of the first is replaced.
    let patch = json!([
        {"op": "add", "path": "/spec/containers/1", "value": {"name": "new", "image": "new:1"}},
        {"op": "replace", "path": "/spec/containers/0/image", "value": "web:2"},
    ]);
    let patched = patch_json(&pod(), &patch).expect("it applies");
    assert_eq!(
        patched["spec"]["containers"],
        json!([
            {"name": "web", "image": "web:2"},
            {"name": "new", "image": "new:1"},
            {"name": "log", "image": "log:1"},
        ])
    );
}

#[test]
fn all_operations_of_a_json_patch_or_none() {
    let pod = pod();
    let before = pod.clone();
    let failing = [
        json!({"op": "remove", "path": "/spec/nothing"}),
        json!({"op": "test", "path": "/metadata/name", "value": "other"}),
        json!({"op": "replace", "path": "/spec/containers/7", "value": {}}),
        json!({"op": "move", "from": "/spec", "path": "/spec/containers"}),
        json!({"op": "copy", "from": "/nothing", "path": "/spec"}),
        json!({"op": "spam", "path": "/spec"}),
    ];
    for last in failing {
        let patch = json!([
            {"op": "add", "path": "/metadata/labels/new", "value": "yes"},
            {"op": "remove", "path": "/spec/containers/0"},
            last,
        ]);
        let status = patch_json(&pod, &patch).expect_err("the last fails");
        assert_eq!(status.code(), 422, "{status}");
        assert_eq!(pod, before);
    }
}

#[test]
fn the_merge_patches_of_the_documents() {
    // A label is added; a list is replaced as a whole; null removes, and so cannot be set.
    let labelled = patch_merge(&pod(), &json!({"metadata": {"labels": {"tier": "front"}}}));
    assert_eq!(labelled["metadata"]["labels"], json!({"app": "web", "tier": "front"}));
    let containers = json!([{"name": "new", "image": "new:1"}]);
    let replaced = patch_merge(&pod(), &json!({"spec": {"containers": containers}}));
    assert_eq!(replaced["spec"]["containers"], containers);
    let removed =
        patch_merge(&labelled, &json!({"metadata": {"labels": {"app": null, "x": null}}}));
    assert_eq!(removed["metadata"]["labels"], json!({"tier": "front"}));
}

#[test]
fn patch_types_are_named_and_others_refused() {
    let table = [
        ("application/json-patch+json", PatchType::Json),
        ("application/merge-patch+json; charset=utf-8", PatchType::Merge),
        ("application/strategic-merge-patch+json;v=1", PatchType::StrategicMerge),
        ("application/apply-patch+yaml", PatchType::Apply),
    ];
    for (named, patch_type) in table {
        assert_eq!(PatchType::from_content_type(named), Ok(patch_type));
    }
    for other in
        ["", "application/json", "Application/json-patch+json", "; application/json-patch+json"]
    {
        let status = PatchType::from_content_type(other).expect_err(other);
        assert_eq!(status.code(), 415);
        assert_eq!(
            status.message(),
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, \
             application/strategic-merge-patch+json, application/apply-patch+yaml"
        );
    }
    let status = PatchType::Apply.patch(&pod(), b"{}", &Schema::any()).expect_err("who applies?");
    assert_eq!(status.code(), 415);
}

#[test]
fn what_a_patch_cannot_do_is_told_as_upstream_tells_it() {
    let table: [(PatchType, Value, u16, &str); 15] = [
        (PatchType::Json, json!({}), 400, "error decoding patch: it is not a list of operations"),
        (PatchType::Json, json!([7]), 400, "error decoding patch: it is not a list of operations"),
        (PatchType::Json, json!([{}]), 422, "Unexpected kind: unknown"),
        (PatchType::Json, json!([{"op": "spam", "path": "/a"}]), 422, "Unexpected kind: spam"),
        (
            PatchType::Json,
            json!([{"op": "remove", "path": "/spec/x"}]),
            422,
            "remove operation does not apply: doc is missing path: \"/spec/x\": missing value",
        ),
        (
            PatchType::Json,
            json!([{"op": "test", "path": "/kind", "value": "Job"}]),
            422,
            "testing value /kind failed: test failed",
        ),
        (
            PatchType::Json,
            json!([{"op": "add", "path": "kind", "value": 1}]),
            422,
            "add operation failed to decode path: not a JSON pointer: \"kind\"",
        ),
        (
            PatchType::Json,
            json!([{"op": "copy", "path": "/kind"}]),
            422,
            "copy operation failed to decode from: missing value",
        ),
        (
            PatchType::Json,
            json!([{"op": "add", "path": "/kind"}]),
            422,
            "add operation failed to decode value: missing value",
        ),
        (
            PatchType::Json,
            json!([{"op": "move", "from": "/spec", "path": "/spec/containers/-"}]),
            422,
            "move operation does not apply: a value cannot be moved into itself: /spec/containers/-",
        ),
        (
            PatchType::Json,
            json!([{"op": "replace", "path": "", "value": [1]}]),
            422,
            " \"\" is invalid: patch: Invalid value: \"list\": the patched object is not an object",
        ),
        (
            PatchType::Json,
            json!(vec![json!({"op": "test", "path": "/kind", "value": "Pod"}); 10_001]),
            413,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
        ),
        (PatchType::Merge, json!([1]), 400, "error decoding patch: it is not an object"),
        (PatchType::Merge, json!("text"), 400, "error decoding patch: it is not an object"),
        (PatchType::Merge, json!(null), 400, "error decoding patch: it is not an object"),
    ];
    for (patch_type, patch, code, message) in table {
        let patch = patch.to_string();
        let status = patch_type.patch(&pod(), patch.as_bytes(), &Schema::any()).expect_err(message);
        assert_eq!((status.code(), status.message()), (code, message));
    }
    for patch_type in [PatchType::Json, PatchType::Merge] {
        let patch = |bytes: &[u8]| patch_type.patch(&pod(), bytes, &Schema::any());
        let status = patch(b"{\"a\":").expect_err("it ends too early");
        assert_eq!(status.code(), 400);
        assert!(status.message().starts_with("error decoding patch: EOF"), "{status}");
        let status = patch(&vec![b' '; (3 << 20) + 1]).expect_err("it is too large");
        assert_eq!(status.code(), 413);
        assert_eq!(status.message(), "Request entity too large: limit is 3145728");
    }
}

#[test]
fn what_is_stored_is_not_told() {
    let document = json!({"data": {"password": "stored"}});
    let patch = json!([{"op": "copy", "from": "/data/password", "path": ""}]);
    let patched = PatchType::Json.patch(&document, patch.to_string().as_bytes(), &Schema::any());
    let status = patched.expect_err("it is no object");
    assert_eq!(status.code(), 422);
    assert!(!format!("{status:?}").contains("stored"), "{status:?}");
}
