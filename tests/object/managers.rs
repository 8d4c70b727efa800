//! Who owns which field of objects that are stored: applies, and what other writes do to them.
//!
//! row 33: an_apply_creates_and_changes_what_it_owns
//! row 36: an_apply_creates_and_changes_what_it_owns

use std::sync::Arc;

use annals::clock::ManualClock;
use annals::object::{
    CreateOptions, KindStrategy, PatchOptions, PatchType, Reason, Result, UpdateOptions,
};
use serde_json::{Value, json};

use super::kit::{NOW, generation, get, pod, pod_kind, pods, pods_by, refused, store, version};
use super::under::Objects;

fn by(manager: &str) -> PatchOptions {
    PatchOptions { field_manager: manager.into(), ..PatchOptions::default() }
}

fn apply_with(objects: &Objects, wanted: &Value, options: &PatchOptions) -> Result<(Value, bool)> {
    let wanted = wanted.to_string();
    objects.patch("default", "web", PatchType::Apply, wanted.as_bytes(), options)
}

fn apply(objects: &Objects, wanted: &Value, manager: &str) -> Result<Value> {
    Ok(apply_with(objects, wanted, &by(manager))?.0)
}

fn wanted(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec})
}

/// Manager, operation and subresource of each entry.
fn managers(object: &Value) -> Vec<(&str, &str, &str)> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries
        .map(|entry| {
            let text = |field: &str| entry[field].as_str().unwrap_or_default();
            (text("manager"), text("operation"), text("subresource"))
        })
        .collect()
}

#[test]
fn an_apply_creates_and_changes_what_it_owns() {
    let pods = pods();
    let (made, is_new) = apply_with(&pods, &wanted(json!({"a": 1, "b": 1})), &by("one")).unwrap();
    assert!(is_new);
    assert_eq!((version(&made), generation(&made)), ("2", 1));
    assert!(
        made["metadata"]["uid"].is_string() && made["metadata"]["creationTimestamp"].is_string()
    );
    assert_eq!(managers(&made), [("one", "Apply", "")]);
    let entry = &made["metadata"]["managedFields"][0];
    assert_eq!(entry["fieldsV1"], json!({"f:spec": {".": {}, "f:a": {}, "f:b": {}}}));
    assert_eq!(
        (&entry["apiVersion"], &entry["time"]),
        (&json!("v1"), &json!("2023-11-14T22:13:20Z"))
    );

    // The same again is no write.
    let (same, is_new) = apply_with(&pods, &wanted(json!({"a": 1, "b": 1})), &by("one")).unwrap();
    assert!(!is_new);
    assert_eq!(same, made);
    // What is no longer wanted goes.
    let less = apply(&pods, &wanted(json!({"a": 2})), "one").unwrap();
    assert_eq!((&less["spec"], generation(&less)), (&json!({"a": 2}), 2));

    let status = refused(apply(&pods, &wanted(json!({"a": 3})), "two"));
    assert_eq!((status.code(), status.reason()), (409, Reason::Conflict));
    assert_eq!(status.message(), "Apply failed with 1 conflict: conflict with \"one\": .spec.a");
    let cause = &status.details().causes[0];
    assert_eq!((cause.reason.as_str(), cause.field.as_str()), ("FieldManagerConflict", ".spec.a"));
    let forced = PatchOptions { force: Some(true), ..by("two") };
    let (taken, _) = apply_with(&pods, &wanted(json!({"a": 3})), &forced).unwrap();
    assert_eq!(taken["spec"], json!({"a": 3}));
    // The map itself is still wanted by both.
    assert_eq!(managers(&taken), [("one", "Apply", ""), ("two", "Apply", "")]);
    assert_eq!(get(&pods, "web").unwrap(), taken);
}

#[test]
fn other_writes_take_what_they_change() {
    let pods = pods();
    let mut object = apply(&pods, &wanted(json!({"a": 1, "b": 1})), "one").unwrap();
    object["spec"]["a"] = 2.into();
    let options = UpdateOptions { field_manager: "editor".into(), ..UpdateOptions::default() };
    let (object, _) = pods.update("default", "web", object, &options).unwrap();
    assert_eq!(managers(&object), [("one", "Apply", ""), ("editor", "Update", "")]);
    let status = refused(apply(&pods, &wanted(json!({"a": 1, "b": 1})), "one"));
    assert_eq!(status.code(), 409, "a belongs to the editor: {status}");

    // Who gives no name is unknown, once anybody keeps count.
    let patch = br#"{"spec": {"b": 7}}"#;
    let nameless = PatchOptions::default();
    let (object, _) = pods.patch("default", "web", PatchType::Merge, patch, &nameless).unwrap();
    let owned: Vec<_> = object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| (entry["manager"].as_str(), entry["fieldsV1"]["f:spec"].clone()))
        .collect();
    let expected = [
        // The map itself, which nobody has taken away.
        (Some("one"), json!({})),
        (Some("editor"), json!({"f:a": {}})),
        (Some("unknown"), json!({"f:b": {}})),
    ];
    assert_eq!(owned, expected);
}

#[test]
fn nobody_keeps_count_of_what_nobody_named_writes() {
    let pods = pods();
    let made = super::kit::create(&pods, pod("web"));
    assert_eq!(made["metadata"].get("managedFields"), None);
    let named = CreateOptions { field_manager: "maker".into(), ..CreateOptions::default() };
    let made = pods.create("default", pod("api"), &named).unwrap();
    assert_eq!(managers(&made), [("maker", "Update", "")]);
    // An apply to what was there before counts that, too.
    let applied = apply(&pods, &wanted(json!({"a": 1})), "one").unwrap();
    assert_eq!(managers(&applied), [("one", "Apply", ""), ("before-first-apply", "Update", "")]);
}

#[test]
fn a_status_belongs_to_who_writes_the_status() {
    let pods = pods_by(KindStrategy::new().with_status());
    let mut both = wanted(json!({"a": 1}));
    both["status"] = json!({"phase": "Running"});
    let made = apply(&pods, &both, "one").unwrap();
    assert_eq!(made.get("status"), None);
    assert_eq!(
        made["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec": {".": {}, "f:a": {}}})
    );

    let of_status = PatchOptions { subresource: "status".into(), ..by("kubelet") };
    both["spec"] = json!({"a": 2});
    let (told, _) = apply_with(&pods, &both, &of_status).unwrap();
    assert_eq!((&told["status"], &told["spec"]), (&both["status"], &json!({"a": 1})));
    assert_eq!(managers(&told), [("kubelet", "Apply", "status"), ("one", "Apply", "")]);
    assert_eq!(generation(&told), 1);
    let entry = &told["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(*entry, json!({"f:status": {".": {}, "f:phase": {}}}));

    let mut changed = told;
    changed["status"]["phase"] = "Failed".into();
    let options = UpdateOptions { field_manager: "other".into(), ..UpdateOptions::default() };
    let changed = pods.update_status("default", "web", changed, &options).unwrap();
    assert!(
        managers(&changed).contains(&("other", "Update", "status")),
        "{:?}",
        managers(&changed)
    );
}

#[test]
fn what_an_apply_cannot_be_is_told() {
    let pods = pods();
    let bytes = |bytes: &str| {
        pods.patch("default", "web", PatchType::Apply, bytes.as_bytes(), &by("one"))
            .map(|done| done.0)
    };
    for (body, code) in [
        ("no JSON", 400),
        ("[]", 400),
        ("5", 400),
        ("{\"apiVersion\": \"v1\", \"kind\": \"Pod\"}", 400),
        ("{\"apiVersion\": \"v2\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"web\"}}", 400),
        ("{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"web\"}}", 400),
        ("{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"api\"}}", 400),
        (
            "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"web\", \"managedFields\": [{}]}}",
            400,
        ),
    ] {
        assert_eq!(refused(bytes(body)).code(), code, "{body}");
    }
    let mut known = wanted(json!({}));
    known["metadata"]["uid"] = "u".into();
    let status = refused(apply(&pods, &known, "one"));
    assert_eq!(status.code(), 409);
    assert_eq!(
        status.message(),
        "Operation cannot be fulfilled on pods \"web\": uid mismatch: the provided object specified uid u, and no \
         existing object was found"
    );
    assert_eq!(pods.count("").unwrap(), 0);

    // A version in what is applied is a lock.
    let made = apply(&pods, &wanted(json!({"a": 1})), "one").unwrap();
    let mut locked = wanted(json!({"a": 2}));
    locked["metadata"]["resourceVersion"] = version(&made).into();
    apply(&pods, &locked, "one").unwrap();
    locked["spec"]["a"] = 3.into();
    let status = refused(apply(&pods, &locked, "one"));
    assert!(
        status.code() == 409 && status.message().contains("the object has been modified"),
        "{status}"
    );
    let dry = PatchOptions { dry_run: true, ..by("one") };
    let (would, _) = apply_with(&pods, &wanted(json!({"a": 9})), &dry).unwrap();
    assert_eq!(would["spec"]["a"], 9);
    assert_eq!(get(&pods, "web").unwrap()["spec"]["a"], 2);
}

#[test]
fn new_times_of_managers_alone_are_no_change() {
    let clock = Arc::new(ManualClock::new(NOW * 1_000_000));
    let pods = Objects::new(store(), pod_kind()).clock(clock.clone());
    let made = apply(&pods, &wanted(json!({"a": 1})), "one").unwrap();
    clock.advance(60_000_000);
    assert_eq!(apply(&pods, &wanted(json!({"a": 1})), "one").unwrap(), made);
    let options = UpdateOptions { field_manager: "one".into(), ..UpdateOptions::default() };
    let mut timed = made.clone();
    timed["metadata"]["managedFields"][0]["time"] = "2030-01-01T00:00:00Z".into();
    assert_eq!(pods.update("default", "web", timed.clone(), &options).unwrap().0, made);
    timed["spec"]["a"] = 2.into();
    let (changed, _) = pods.update("default", "web", timed, &options).unwrap();
    assert_eq!(version(&changed), "3");
}

#[test]
fn appliers_of_different_fields_do_not_lose_each_other() {
    let pods = pods();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let pods = pods.clone();
            scope.spawn(move || {
                let field = format!("f{number}");
                for step in 0..10 {
                    apply(&pods, &wanted(json!({&field: step})), &format!("m{number}")).unwrap();
                }
            });
        }
    });
    let there = get(&pods, "web").unwrap();
    let spec = there["spec"].as_object().unwrap();
    assert!(spec.len() == 8 && spec.values().all(|value| *value == 9), "{spec:?}");
    assert_eq!(managers(&there).len(), 8);
}

#[test]
fn managed_fields_are_given_up_before_a_patch_is_refused() {
    let options = annals::Options::new()
        .vfs(Arc::new(annals::vfs::MemoryVfs::new()))
        .durability(annals::Durability::Buffered)
        .value_bytes_max(4096);
    let pods = Objects::new(
        Arc::new(super::under::Store::from(options.open("store").unwrap())),
        pod_kind(),
    );
    super::kit::create(&pods, pod("web"));
    apply(&pods, &wanted(json!({"a": 0})), "one").unwrap();
    // Each field is there twice: once with its value, once as somebody's.
    let mut managed = true;
    for number in 0..60 {
        let field = format!("a-field-with-a-name-{number}");
        let patch = json!({"spec": {&field: number}}).to_string();
        let manager = by(&format!("m{number}"));
        let (patched, _) = pods
            .patch("default", "web", PatchType::Merge, patch.as_bytes(), &manager)
            .expect("it is no reason to refuse a patch");
        assert_eq!(patched["spec"][field], number);
        managed &= !managers(&patched).is_empty();
    }
    assert!(!managed, "the limit has been met");
    // What is too large by itself is.
    let patch = json!({"spec": {"large": "x".repeat(4096)}}).to_string();
    let status =
        refused(pods.patch("default", "web", PatchType::Merge, patch.as_bytes(), &by("m")));
    assert_eq!((status.code(), status.reason()), (413, Reason::RequestEntityTooLarge));
}
