//! Patches of objects that are stored: the loop around them.
//!
//! row 30: a_version_in_a_patch_is_a_lock, patches_of_different_fields_do_not_conflict
//! row 33: each_type_of_patch_ends_in_an_update, what_fails_is_told_by_its_code

use std::thread;

use annals::object::{DeleteOptions, Kind, KindStrategy, PatchOptions, PatchType, Result, Schema};
use serde_json::{Value, json};

use super::kit::{
    assert_refused, create, generation, get, pod, pods, pods_by, put, refused, store, version,
};
use super::under::Objects;

fn patch_with(
    objects: &Objects,
    patch_type: PatchType,
    patch: &Value,
    options: &PatchOptions,
) -> Result<Value> {
    let patch = patch.to_string();
    Ok(objects.patch("default", "web", patch_type, patch.as_bytes(), options)?.0)
}

fn patch(objects: &Objects, patch_type: PatchType, patch: &Value) -> Result<Value> {
    patch_with(objects, patch_type, patch, &PatchOptions::default())
}

/// Of a kind with containers that are merged by their names.
fn schema() -> Schema {
    Schema::from_openapi(&json!({
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"containers": {
            "type": "array",
            "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "image": {"type": "string"},
            }},
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "name",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        }}}},
    }))
    .expect("a schema")
}

fn pods_with_schema() -> Objects {
    let pods = pods().schema(schema());
    create(
        &pods,
        json!({
            "metadata": {"name": "web", "labels": {"app": "nginx"}},
            "spec": {"containers": [{"name": "nginx", "image": "nginx:1.24"}, {"name": "log", "image": "log:1"}]},
        }),
    );
    pods
}

#[test]
fn each_type_of_patch_ends_in_an_update() {
    let replaced = json!([{"name": "nginx", "image": "nginx:1.25"}]);
    let merged =
        json!([{"name": "nginx", "image": "nginx:1.25"}, {"name": "log", "image": "log:1"}]);
    let cases = [
        (
            PatchType::Json,
            json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "nginx:1.25"}]),
            &merged,
        ),
        // A merge patch replaces lists, a strategic one merges them.
        (PatchType::Merge, json!({"spec": {"containers": replaced}}), &replaced),
        (PatchType::StrategicMerge, json!({"spec": {"containers": replaced}}), &merged),
    ];
    for (patch_type, change, expected) in cases {
        let pods = pods_with_schema();
        let patched = patch(&pods, patch_type, &change).unwrap();
        assert_eq!(&patched["spec"]["containers"], expected, "{patch_type:?}");
        assert_eq!((generation(&patched), version(&patched)), (2, "3"), "{patch_type:?}");
        assert_eq!(get(&pods, "web").unwrap(), patched);
        // What is so already is not written again.
        if patch_type != PatchType::Json {
            assert_eq!(patch(&pods, patch_type, &change).unwrap(), patched);
        }
    }
}

#[test]
fn a_version_in_a_patch_is_a_lock() {
    let pods = pods();
    let made = create(&pods, pod("web"));
    let locked =
        |version: &str| json!({"metadata": {"resourceVersion": version}, "spec": {"a": version}});
    patch(&pods, PatchType::Merge, &locked(version(&made))).unwrap();
    let status = refused(patch(&pods, PatchType::Merge, &locked(version(&made))));
    assert_eq!(status.code(), 409);
    assert!(status.message().contains("the object has been modified"), "{status}");
    // As a test, it is told in another way.
    let stale = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": version(&made)},
        {"op": "add", "path": "/spec/b", "value": 1},
    ]);
    assert_eq!(refused(patch(&pods, PatchType::Json, &stale)).code(), 422);
    let there = get(&pods, "web").unwrap();
    assert_eq!(there["spec"], json!({"nodeName": "machine", "a": "2"}));
}

#[test]
fn patches_of_different_fields_do_not_conflict() {
    let pods = pods();
    create(&pods, pod("web"));
    thread::scope(|scope| {
        for number in 0..16 {
            let pods = pods.clone();
            scope.spawn(move || {
                for step in 0..20 {
                    let label = format!("label-{number}");
                    let change = json!({"metadata": {"labels": {label: step.to_string()}}});
                    patch(&pods, PatchType::Merge, &change).expect("it is made on what is there");
                }
            });
        }
    });
    let there = get(&pods, "web").unwrap();
    let labels = there["metadata"]["labels"].as_object().unwrap();
    assert_eq!(labels.len(), 16);
    assert!(labels.values().all(|value| value == "19"), "{labels:?}");
    assert_eq!(version(&there), (2 + 16 * 20).to_string());
}

#[test]
fn what_fails_is_told_by_its_code() {
    use PatchType::{Json, Merge, StrategicMerge};
    let operations: Vec<_> =
        (0..10_001).map(|_| json!({"op": "test", "path": "/kind", "value": "Pod"})).collect();
    let cases = [
        (Json, "no JSON".to_owned(), 400),
        (Json, "{}".into(), 400),
        (Json, json!([{"op": "remove", "path": "/none"}]).to_string(), 422),
        (Json, json!([{"op": "test", "path": "/kind", "value": "Node"}]).to_string(), 422),
        (Json, json!(operations).to_string(), 413),
        (Json, json!([{"op": "replace", "path": "", "value": 5}]).to_string(), 422),
        (Merge, "no JSON".into(), 400),
        (Merge, "[]".into(), 400),
        (Merge, "5".into(), 400),
        (StrategicMerge, "no JSON".into(), 400),
        (StrategicMerge, json!({"$patch": "guess"}).to_string(), 400),
        // What comes out is not one of these objects.
        (Merge, json!({"kind": "Node"}).to_string(), 422),
        (Merge, json!({"apiVersion": "v2"}).to_string(), 422),
        (Merge, json!({"metadata": "text"}).to_string(), 422),
        (StrategicMerge, json!({"kind": "Node"}).to_string(), 422),
        (Merge, json!({"metadata": {"name": "api"}}).to_string(), 400),
        (Merge, json!({"metadata": {"namespace": "other"}}).to_string(), 400),
        (Merge, json!({"metadata": null}).to_string(), 400),
        (Merge, json!({"metadata": {"labels": {"a": 1}}}).to_string(), 422),
        (Merge, json!({"metadata": {"labels": {"-a": "b"}}}).to_string(), 422),
        (Merge, json!({"metadata": {"uid": "other"}}).to_string(), 422),
    ];
    let pods = pods_with_schema();
    let made = get(&pods, "web").unwrap();
    for (patch_type, bytes, code) in cases {
        let shown = &bytes[..bytes.len().min(100)];
        let patched =
            pods.patch("default", "web", patch_type, bytes.as_bytes(), &PatchOptions::default());
        assert_eq!(refused(patched).code(), code, "{patch_type:?} {shown}");
    }
    assert_eq!(get(&pods, "web").unwrap(), made, "none of them has changed anything");

    let status = refused(patch(&pods, Merge, &json!({"metadata": {"labels": {"a": 1}}})));
    let [cause] = &status.details().causes[..] else { panic!("{status:?}") };
    assert_eq!((cause.field.as_str(), cause.reason.as_str()), ("patch", "FieldValueInvalid"));
    let why = "json: cannot unmarshal object into field metadata.labels of type map[string]string";
    let what = "Pod \"web\" is invalid: patch: Invalid value: ";
    assert!(status.message().starts_with(what), "{status}");
    assert!(status.message().ends_with(why), "{status}");

    let absent = json!({"spec": {}}).to_string();
    let patched =
        pods.patch("default", "absent", Merge, absent.as_bytes(), &PatchOptions::default());
    assert_refused(patched, 404, "pods \"absent\" not found");
}

#[test]
fn a_kind_without_a_schema_takes_no_strategic_merge_patch() {
    let foos = Objects::new(store(), Kind::new("example.com/v1", "Foo", "foos"));
    create(&foos, json!({"metadata": {"name": "web"}}));
    let message = "the body of the request was in an unknown format - accepted media types include: \
                   application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    assert_refused(patch(&foos, PatchType::StrategicMerge, &json!({})), 415, message);
}

#[test]
fn options_of_a_patch_have_to_fit_its_type() {
    let pods = pods_with_schema();
    let forced = PatchOptions { force: Some(true), ..PatchOptions::default() };
    let message = "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply \
                   patch";
    assert_refused(patch_with(&pods, PatchType::Merge, &json!({}), &forced), 422, message);
    let message = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply \
                   patch";
    assert_refused(patch(&pods, PatchType::Apply, &json!({})), 422, message);
    let elsewhere = PatchOptions { subresource: "scale".into(), ..PatchOptions::default() };
    let nowhere = patch_with(&pods, PatchType::Merge, &json!({}), &elsewhere);
    assert_refused(nowhere, 404, "the server could not find the requested resource");
}

#[test]
fn a_patch_of_the_status_changes_the_status_alone() {
    let pods = pods_by(KindStrategy::new().with_status());
    let made = create(&pods, pod("web"));
    let change = json!({
        "spec": {"nodeName": "another"}, "metadata": {"labels": {"a": "b"}},
        "status": {"phase": "Running"},
    });
    let status = PatchOptions { subresource: "status".into(), ..PatchOptions::default() };
    let told = patch_with(&pods, PatchType::Merge, &change, &status).unwrap();
    assert_eq!((generation(&told), &told["spec"]), (1, &made["spec"]));
    assert_eq!((&told["status"], told["metadata"].get("labels")), (&change["status"], None));

    let other = json!({"spec": {"nodeName": "another"}, "status": {"phase": "Failed"}});
    let moved = patch(&pods, PatchType::Merge, &other).unwrap();
    assert_eq!((generation(&moved), &moved["status"]), (2, &change["status"]));
}

#[test]
fn a_dry_patch_writes_nothing() {
    let pods = pods();
    let made = create(&pods, pod("web"));
    let dry = PatchOptions { dry_run: true, ..PatchOptions::default() };
    let change = json!({"spec": {"nodeName": "another"}});
    let would = patch_with(&pods, PatchType::Merge, &change, &dry).unwrap();
    assert_eq!((generation(&would), version(&would)), (2, version(&made)));
    assert_eq!(get(&pods, "web").unwrap(), made);
}

#[test]
fn owners_that_are_the_same_are_one() {
    let pods = pods();
    create(&pods, pod("web"));
    let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "Node", "name": "one", "uid": uid});
    let change = json!({"metadata": {"ownerReferences": [owner("a"), owner("b"), owner("a")]}});
    let patched = patch(&pods, PatchType::Merge, &change).unwrap();
    assert_eq!(patched["metadata"]["ownerReferences"], json!([owner("a"), owner("b")]));

    // However it is written, and however many there are.
    let mut many = pod("many");
    many["metadata"]["ownerReferences"] =
        (0..100_000).map(|n| owner(if n % 2 == 0 { "a" } else { "b" })).collect();
    let mut made = create(&pods, many.clone());
    assert_eq!(made["metadata"]["ownerReferences"], json!([owner("a"), owner("b")]));
    made["metadata"]["ownerReferences"] = json!([owner("b"), owner("b")]);
    let written = put(&pods, &made).unwrap();
    assert_eq!(written["metadata"]["ownerReferences"], json!([owner("b")]));
}

#[test]
fn the_last_finalizer_may_be_patched_away() {
    let pods = pods();
    let mut stuck = pod("web");
    stuck["metadata"]["finalizers"] = json!(["example.com/wait"]);
    create(&pods, stuck);
    assert!(!pods.delete("default", "web", &DeleteOptions::default()).unwrap().is_deleted);
    let change = json!({"metadata": {"finalizers": null}});
    patch(&pods, PatchType::Merge, &change).unwrap();
    assert_eq!(refused(get(&pods, "web")).code(), 404);
}
