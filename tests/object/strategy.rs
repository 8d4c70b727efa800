//! The hooks of a kind, and in which order a write asks them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals::object::{
    Cause, CreateOptions, DeleteOptions, GarbageCollection, GenerationRule, GetOptions,
    ListOptions, PatchOptions, PatchType, Strategy, UpdateOptions, WatchEventKind, WatchOptions,
};
use serde_json::{Value, json};

use super::kit::{assert_refused, create, generation, get, pod_kind, put, refused, store, version};
use super::under::Objects;

/// Notes who is asked, and has an opinion on everything.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<&'static str>>>);

impl Notes {
    fn note(&self, hook: &'static str) {
        self.0.lock().unwrap().push(hook);
    }

    fn taken(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Strategy for Notes {
    fn generation(&self) -> GenerationRule {
        GenerationRule::Spec
    }

    fn has_status(&self) -> bool {
        true
    }

    fn apply_defaults(&self, object: &mut Value) {
        self.note("defaults");
        if object["spec"].is_object() && object["spec"]["replicas"].is_null() {
            object["spec"]["replicas"] = 1.into();
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        self.note("create");
        assert_eq!(object.get("status"), None, "it is taken away before");
        object["status"] = json!({"phase": "Pending"});
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value) {
        self.note("update");
        assert_eq!(object["status"], old["status"], "it is kept before");
        object["spec"]["class"] = old["spec"]["class"].clone();
    }

    fn prepare_for_status_update(&self, object: &mut Value, old: &Value) {
        self.note("status");
        assert_eq!(object["spec"], old["spec"]);
    }

    fn validate(&self, object: &Value) -> Vec<Cause> {
        self.note("validate");
        match object["spec"]["replicas"].as_i64() {
            Some(replicas) if replicas < 0 => {
                let why = "must be greater than or equal to 0";
                vec![Cause::invalid("spec.replicas", &replicas.into(), why)]
            }
            Some(_) => Vec::new(),
            None => vec![Cause::required("spec.replicas", "")],
        }
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<Cause> {
        self.note("validate update");
        if object["spec"]["replicas"].as_i64() < old["spec"]["replicas"].as_i64() {
            return vec![Cause::forbidden("spec.replicas", "may only grow")];
        }
        Vec::new()
    }

    fn validate_status_update(&self, object: &Value, _: &Value) -> Vec<Cause> {
        self.note("validate status");
        let phases = ["Pending", "Running"];
        match object["status"]["phase"].as_str() {
            Some(phase) if phases.contains(&phase) => Vec::new(),
            _ => vec![Cause::not_supported("status.phase", &object["status"]["phase"], &phases)],
        }
    }

    fn after_create(&self, object: &Value) {
        self.note("after create");
        assert!(object["metadata"]["resourceVersion"].is_string() && object["seen"].is_null());
    }

    fn after_update(&self, object: &Value) {
        self.note("after update");
        assert!(object["metadata"]["resourceVersion"].is_string() && object["seen"].is_null());
    }

    fn after_delete(&self, object: &Value) {
        self.note("after delete");
        assert!(object["metadata"]["resourceVersion"].is_string() && object["seen"].is_null());
    }

    fn canonicalize(&self, object: &mut Value) {
        self.note("canonicalize");
        if let Some(tags) = object["spec"]["tags"].as_array() {
            let mut tags = tags.clone();
            tags.sort_by_key(ToString::to_string);
            object["spec"]["tags"] = tags.into();
        }
    }

    fn ttl(&self, object: &Value, old: Option<&Value>) -> Option<u64> {
        assert_eq!(old.is_some(), object["metadata"]["resourceVersion"].is_string());
        object["spec"]["ttl"].as_u64()
    }

    fn grace_period(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        // What runs nowhere needs no time to end.
        if object["spec"]["nodeName"].is_null() { Some(0) } else { Some(asked.unwrap_or(30)) }
    }

    fn garbage_collection(&self) -> GarbageCollection {
        GarbageCollection::Off
    }
}

fn objects() -> (Objects, Notes) {
    let notes = Notes::default();
    (Objects::new(store(), pod_kind()).strategy(notes.clone()), notes)
}

#[test]
fn hooks_are_asked_in_order() {
    let (objects, notes) = objects();
    let made = create(
        &objects,
        json!({"metadata": {"name": "web"}, "spec": {"class": "a", "tags": ["b", "a"]}, "status": {"phase": "Running"}}),
    );
    assert_eq!(notes.taken(), ["defaults", "create", "validate", "canonicalize", "after create"]);
    assert_eq!(made["spec"], json!({"class": "a", "replicas": 1, "tags": ["a", "b"]}));
    assert_eq!(made["status"], json!({"phase": "Pending"}));

    // What is filled in, kept and put in order is no change.
    let same = json!({"metadata": {"name": "web"}, "spec": {"class": "z", "tags": ["b", "a"]}});
    assert_eq!(put(&objects, &same).unwrap(), made);
    let expected =
        ["defaults", "update", "validate", "validate update", "canonicalize", "after update"];
    assert_eq!(notes.taken(), expected);

    let mut told = made;
    told["status"]["phase"] = "Running".into();
    let told = objects.update_status("default", "web", told, &UpdateOptions::default()).unwrap();
    assert_eq!(notes.taken(), ["status", "validate status", "canonicalize", "after update"]);
    assert_eq!((version(&told), generation(&told)), ("3", 1));
}

#[test]
fn what_a_kind_finds_wrong_is_told() {
    let (objects, _) = objects();
    let of = |replicas: i64| json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas}});
    let message = "Pod \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    assert_refused(objects.create("default", of(-1), &CreateOptions::default()), 422, message);
    let bare = json!({"metadata": {"name": "Web"}});
    let status = refused(objects.create("default", bare, &CreateOptions::default()));
    let fields: Vec<_> = status.details().causes.iter().map(|cause| cause.field.as_str()).collect();
    assert_eq!(fields, ["metadata.name", "spec.replicas"], "all of it at once");
    assert!(status.message().starts_with("Pod \"Web\" is invalid: [metadata.name: "), "{status}");

    let made = create(&objects, of(2));
    let message = "Pod \"web\" is invalid: spec.replicas: Forbidden: may only grow";
    assert_refused(put(&objects, &of(1)), 422, message);
    let mut odd = made;
    odd["status"]["phase"] = "Odd".into();
    let status = refused(objects.update_status("default", "web", odd, &UpdateOptions::default()));
    let message = "Pod \"web\" is invalid: status.phase: Unsupported value: \"Odd\": supported values: \"Pending\", \
                   \"Running\"";
    assert_eq!((status.code(), status.message()), (422, message));
    assert_eq!(put(&objects, &of(3)).unwrap()["spec"]["replicas"], 3);
}

#[test]
fn a_kind_says_how_long_objects_live_and_go() {
    let (objects, _) = objects();
    let lease = || {
        let key = b"/registry/pods/default/web";
        objects.storage().kv().get(key).unwrap().expect("it is there").lease
    };
    create(&objects, json!({"metadata": {"name": "web"}, "spec": {"ttl": 600, "nodeName": "one"}}));
    let first = lease();
    assert_ne!(first, 0);
    // Less time is another lease; not to say any keeps the one that it has.
    put(&objects, &json!({"metadata": {"name": "web"}, "spec": {"ttl": 100, "nodeName": "one"}}))
        .unwrap();
    let second = lease();
    assert!(second != 0 && second != first);
    put(&objects, &json!({"metadata": {"name": "web"}, "spec": {"nodeName": "one"}})).unwrap();
    assert_eq!(lease(), second);

    let delete = |name: &str| objects.delete("default", name, &DeleteOptions::default()).unwrap();
    assert!(!delete("web").is_deleted);
    create(&objects, json!({"metadata": {"name": "idle"}, "spec": {}}));
    assert!(delete("idle").is_deleted);
    assert_eq!(refused(get(&objects, "idle")).code(), 404);
}

#[test]
fn no_grace_is_so_long_that_it_is_none() {
    let (objects, _) = objects();
    for (name, seconds) in [("long", i64::MAX), ("longer", i64::MAX / 1_000_000)] {
        create(&objects, json!({"metadata": {"name": name}, "spec": {"nodeName": "one"}}));
        let options =
            DeleteOptions { grace_period_seconds: Some(seconds), ..DeleteOptions::default() };
        for _ in 0..2 {
            let going = objects.delete("default", name, &options).unwrap();
            assert!(!going.is_deleted);
            let there = get(&objects, name).unwrap();
            let ends = there["metadata"]["deletionTimestamp"].as_str().expect("it has an end");
            assert!(ends.starts_with("9999-12-"), "{ends}");
            assert_eq!(generation(&there), 2);
        }
        let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        assert!(objects.delete("default", name, &options).unwrap().is_deleted);
    }
}

#[test]
fn what_comes_after_a_write_is_called_once() {
    let (objects, notes) = objects();
    let after = || -> Vec<_> {
        notes.taken().into_iter().filter(|hook| hook.starts_with("after")).collect()
    };
    let of = |name: &str, finalizers: Value| json!({"metadata": {"name": name, "finalizers": finalizers}, "spec": {}});
    create(&objects, of("web", json!(["a/b"])));
    assert_eq!(after(), ["after create"]);
    let dry = CreateOptions { dry_run: true, ..CreateOptions::default() };
    objects.create("default", of("dry", json!([])), &dry).unwrap();
    refused(objects.create("default", of("web", json!([])), &CreateOptions::default()));
    let dry = UpdateOptions { dry_run: true, ..UpdateOptions::default() };
    objects.update("default", "web", of("web", json!(["a/b", "c/d"])), &dry).unwrap();
    let dry = DeleteOptions { dry_run: true, ..DeleteOptions::default() };
    assert!(!objects.delete("default", "web", &dry).unwrap().is_deleted);
    assert_eq!(after(), [""; 0], "nothing has been written");

    // An update that creates is a creation; one that takes the last finalizer away a deletion.
    let force = UpdateOptions { force_allow_create: true, ..UpdateOptions::default() };
    objects.update("default", "new", of("new", json!([])), &force).unwrap();
    assert_eq!(after(), ["after create"]);
    assert!(!objects.delete("default", "web", &DeleteOptions::default()).unwrap().is_deleted);
    assert_eq!(after(), [""; 0], "it has been marked");
    put(&objects, &of("web", json!([]))).unwrap();
    assert_eq!(after(), ["after delete"]);
    assert!(objects.delete("default", "new", &DeleteOptions::default()).unwrap().is_deleted);
    assert_eq!(after(), ["after delete"]);
}

/// Tells clients what it does not store.
struct Decorated;

impl Strategy for Decorated {
    fn prepare_for_update(&self, object: &mut Value, _: &Value) {
        object.as_object_mut().unwrap().remove("seen");
    }

    fn validate(&self, object: &Value) -> Vec<Cause> {
        assert_eq!(object.get("seen"), None);
        Vec::new()
    }

    fn decorate(&self, object: &mut Value) {
        assert_eq!(object.get("seen"), None, "once is enough");
        object["seen"] = object["metadata"]["resourceVersion"].clone();
    }
}

#[test]
fn all_that_is_answered_is_decorated_and_nothing_that_is_stored() {
    let objects = Objects::new(store(), pod_kind()).strategy(Decorated);
    let options = WatchOptions { allow_bookmarks: true, ..WatchOptions::default() };
    let options = WatchOptions { send_initial_events: Some(true), ..options };
    let mut watch = objects.watch("default", &options).unwrap();
    let key = "/registry/pods/default/web";
    let check = |object: &Value, version: &str| {
        assert_eq!((&object["seen"], super::kit::version(object)), (&json!(version), version));
        if let Some(stored) = objects.storage().kv().get(key).unwrap() {
            let stored: Value = serde_json::from_slice(&stored.value).unwrap();
            assert_eq!(stored.get("seen"), None);
        }
    };
    let mut made = create(&objects, json!({"metadata": {"name": "web"}, "spec": 1}));
    check(&made, "2");
    check(&get(&objects, "web").unwrap(), "2");
    made["spec"] = 2.into();
    check(&put(&objects, &made).unwrap(), "3");
    let patch = |of: &str| {
        let options = PatchOptions::default();
        objects.patch("default", "web", PatchType::Merge, of.as_bytes(), &options).unwrap().0
    };
    check(&patch(r#"{"spec": 3}"#), "4");
    check(&patch("{}"), "4");
    let add = |object: &mut Value| {
        assert_eq!(object.get("seen"), None);
        object["spec"] = 5.into();
        Ok(())
    };
    check(&objects.modify("default", "web", &UpdateOptions::default(), add).unwrap(), "5");
    let list = objects.list("default", &ListOptions::default()).unwrap();
    assert_eq!(list.items.len(), 1);
    check(&list.items[0], "5");
    check(&objects.delete("default", "web", &DeleteOptions::default()).unwrap().object, "6");
    let none = GetOptions { ignore_not_found: true, ..GetOptions::default() };
    assert_eq!(objects.get("default", "web", &none).unwrap(), Value::Null);

    let mut next = || watch.next_timeout(Duration::from_secs(60)).expect("an event");
    let bookmark = next();
    assert_eq!((bookmark.kind, bookmark.object.get("seen")), (WatchEventKind::Bookmark, None));
    for version in ["2", "3", "4", "5", "6"] {
        check(&next().object, version);
    }
}
