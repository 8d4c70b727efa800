//! Lists, watches and deletions of the objects of a kind.
//!
//! row 27: a_list_and_a_watch_from_its_version_miss_nothing
//! row 45: a_list_and_a_watch_from_its_version_miss_nothing

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use annals::object::{
    CreateOptions, DeleteOptions, FieldSelector, GetOptions, Kind, KindStrategy, LabelSelector,
    List, ListOptions, Predicate, UpdateOptions, WatchEventKind, WatchOptions,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kit::{assert_refused, create, get, pod, pods, pods_by, refused, store, version};
use super::under::Objects;

fn names(list: &List) -> Vec<String> {
    let name = |object: &Value| {
        let metadata = &object["metadata"];
        let part = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", part("namespace"), part("name"))
    };
    list.items.iter().map(name).collect()
}

fn by_fields(selector: &str) -> ListOptions {
    let field = FieldSelector::parse(selector).expect("a selector");
    ListOptions {
        predicate: Predicate { field, ..Predicate::everything() },
        ..ListOptions::default()
    }
}

fn by_labels(selector: &str) -> ListOptions {
    let label = LabelSelector::parse(selector).expect("a selector");
    ListOptions {
        predicate: Predicate { label, ..Predicate::everything() },
        ..ListOptions::default()
    }
}

/// Pods `a/one`, `a/two`, `ab/one`, on the nodes `m1`, `m2`, `m1`.
fn three() -> Objects {
    let pods = pods_by(KindStrategy::new().field("spec.nodeName").field("spec.ready"));
    for (namespace, name, node) in [("a", "one", "m1"), ("a", "two", "m2"), ("ab", "one", "m1")] {
        let pod = json!({
            "metadata": {"name": name, "labels": {"node": node}},
            "spec": {"nodeName": node, "ready": node == "m1"},
        });
        pods.create(namespace, pod, &CreateOptions::default()).unwrap();
    }
    pods
}

#[test]
fn a_list_is_of_a_namespace_or_of_all() {
    let pods = three();
    let all = ListOptions::default;
    let whole = pods.list("", &all()).unwrap();
    assert_eq!(names(&whole), ["a/one", "a/two", "ab/one"]);
    assert_eq!(whole.resource_version, "4");
    assert_eq!(names(&pods.list("a", &all()).unwrap()), ["a/one", "a/two"]);
    assert_eq!(names(&pods.list("b", &all()).unwrap()), Vec::<String>::new());
    assert_eq!(refused(pods.list("a/..", &all())).code(), 400);

    let paged = ListOptions { limit: 2, ..all() };
    let first = pods.list("", &paged).unwrap();
    assert_eq!((names(&first).len(), first.remaining_item_count), (2, Some(1)));
    let second = ListOptions { continue_token: first.continue_token, ..paged };
    assert_eq!(names(&pods.list("", &second).unwrap()), ["ab/one"]);
}

#[test]
fn selectors_choose_by_labels_and_by_the_fields_of_the_kind() {
    let pods = three();
    let table = [
        (by_labels("node=m1"), vec!["a/one", "ab/one"]),
        (by_labels("node!=m1"), vec!["a/two"]),
        (by_fields("spec.nodeName=m1"), vec!["a/one", "ab/one"]),
        (by_fields("spec.ready=true"), vec!["a/one", "ab/one"]),
        (by_fields("spec.ready!=true"), vec!["a/two"]),
        (by_fields("spec.nodeName=m1,metadata.namespace=ab"), vec!["ab/one"]),
        (by_fields("metadata.name=one"), vec!["a/one", "ab/one"]),
        (by_fields("metadata.name=one,metadata.namespace=a"), vec!["a/one"]),
        (by_fields("metadata.name=one,spec.nodeName=m2,metadata.namespace=a"), vec![]),
        (by_fields("metadata.name=three,metadata.namespace=a"), vec![]),
        (by_fields("metadata.namespace=a/b"), vec![]),
        (by_fields("metadata.name!=one"), vec!["a/two"]),
    ];
    for (options, expected) in table {
        assert_eq!(names(&pods.list("", &options).unwrap()), expected, "{options:?}");
    }
    let message = "\"spec.other\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\", \
                   \"spec.nodeName\", \"spec.ready\"";
    assert_refused(pods.list("", &by_fields("spec.other=1")), 400, message);
    let options =
        WatchOptions { predicate: by_fields("spec.other=1").predicate, ..WatchOptions::default() };
    assert_eq!(pods.watch("", &options).err().map(|status| status.code()), Some(400));
}

#[test]
fn a_watch_tells_of_what_is_selected() {
    let pods = three();
    let options = WatchOptions {
        predicate: by_fields("metadata.name=two").predicate,
        ..WatchOptions::default()
    };
    let mut watch = pods.watch("a", &options).unwrap();
    let mut next = || watch.next_timeout(Duration::from_secs(60)).expect("it is told");
    assert_eq!((next().kind, pods.count("a").unwrap()), (WatchEventKind::Added, 2));
    pods.delete("a", "one", &DeleteOptions::default()).unwrap();
    pods.delete("a", "two", &DeleteOptions::default()).unwrap();
    let event = next();
    assert_eq!((event.kind, version(&event.object)), (WatchEventKind::Deleted, "6"));

    let bookmarks = WatchOptions {
        allow_bookmarks: true,
        send_initial_events: Some(true),
        ..WatchOptions::default()
    };
    let mut watch = pods.watch("a", &bookmarks).unwrap();
    let event = watch.next_timeout(Duration::from_secs(60)).expect("the end of the beginning");
    assert_eq!(event.kind, WatchEventKind::Bookmark);
    assert_eq!((&event.object["kind"], &event.object["apiVersion"]), (&json!("Pod"), &json!("v1")));
}

/// What there is, as a list and a watch from its version tell it, until there is a pod `end`.
fn follow(pods: &Objects) -> BTreeMap<String, Value> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let list = pods.list("", &ListOptions::default()).unwrap();
    let mut seen: BTreeMap<_, _> =
        list.items.into_iter().map(|object| (name(&object), object)).collect();
    let options =
        WatchOptions { resource_version: list.resource_version, ..WatchOptions::default() };
    let mut watch = pods.watch("", &options).unwrap();
    while !seen.contains_key("end") {
        let event = watch.next_timeout(Duration::from_secs(60)).expect("the end is told");
        let name = name(&event.object);
        match event.kind {
            WatchEventKind::Added => assert_eq!(seen.insert(name, event.object), None),
            WatchEventKind::Modified => assert!(seen.insert(name, event.object).is_some()),
            WatchEventKind::Deleted => assert!(seen.remove(&name).is_some()),
            other => panic!("{other:?}"),
        }
    }
    seen
}

#[test]
fn a_list_and_a_watch_from_its_version_miss_nothing() {
    let pods = pods();
    let write = |writer: usize| {
        for step in 0..200 {
            let name = format!("pod-{}", (writer + step) % 5);
            let object = json!({"metadata": {"name": name}, "step": [writer, step]});
            let options = UpdateOptions { force_allow_create: true, ..UpdateOptions::default() };
            // Who loses a race has written nothing.
            let _ = pods.update("default", &name, object, &options);
            if step % 7 == 0 {
                let _ = pods.delete("default", &name, &DeleteOptions::default());
            }
        }
    };
    let seen = thread::scope(|scope| {
        let follower = scope.spawn(|| follow(&pods));
        let writers: Vec<_> = (0..4).map(|writer| scope.spawn(move || write(writer))).collect();
        for writer in writers {
            writer.join().unwrap();
        }
        create(&pods, pod("end"));
        follower.join().unwrap()
    });
    assert_eq!(seen.into_values().collect::<Vec<_>>(), {
        let mut all = pods.list("", &ListOptions::default()).unwrap().items;
        all.sort_by_key(|object| object["metadata"]["name"].to_string());
        all
    });
}

#[test]
fn a_collection_is_deleted_one_by_one() {
    let pods = three();
    let dry = DeleteOptions { dry_run: true, ..DeleteOptions::default() };
    let would = pods.delete_collection("", &dry, &ListOptions::default()).unwrap();
    assert_eq!((names(&would).len(), pods.count("").unwrap()), (3, 3));

    let deleted =
        pods.delete_collection("", &DeleteOptions::default(), &by_labels("node=m1")).unwrap();
    assert_eq!(names(&deleted), ["a/one", "ab/one"]);
    assert_eq!(names(&pods.list("", &ListOptions::default()).unwrap()), ["a/two"]);

    // With finalizers they stay, marked.
    let mut stuck = pod("stuck");
    stuck["metadata"]["finalizers"] = json!(["example.com/wait"]);
    create(&pods, stuck);
    for name in ["x", "y", "z"] {
        create(&pods, pod(name));
    }
    let paged = ListOptions { limit: 2, ..ListOptions::default() };
    let first = pods.delete_collection("default", &DeleteOptions::default(), &paged).unwrap();
    assert_eq!(names(&first), ["default/stuck", "default/x"], "a limit holds for deletions");
    assert!(!first.continue_token.is_empty());
    let rest =
        pods.delete_collection("default", &DeleteOptions::default(), &ListOptions::default());
    assert_eq!(names(&rest.unwrap()), ["default/stuck", "default/y", "default/z"]);
    assert!(get(&pods, "stuck").unwrap()["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(pods.count("").unwrap(), 2);
}

#[test]
fn a_collection_is_deleted_as_it_is_and_not_as_it_was() {
    let pods = three();
    let old = ListOptions { resource_version: "2".into(), ..ListOptions::default() };
    let deleted = pods.delete_collection("", &DeleteOptions::default(), &old).unwrap();
    assert_eq!((names(&deleted).len(), pods.count("").unwrap()), (3, 0));
}

#[test]
fn a_list_of_one_name_goes_on_as_it_is_told() {
    let pods = three();
    let page = ListOptions { limit: 1, ..ListOptions::default() };
    let first = pods.list("a", &page).unwrap();
    assert_eq!(names(&first), ["a/one"]);
    let mut rest = by_fields("metadata.name=one");
    rest.continue_token = first.continue_token;
    assert_eq!(names(&pods.list("a", &rest).unwrap()), [""; 0], "it lies before the token");

    // The rest of a namespace that a selector has named.
    let mut page = by_fields("metadata.namespace=a");
    page.limit = 1;
    let first = pods.list("", &page).unwrap();
    page.continue_token = first.continue_token;
    assert_eq!(names(&pods.list("", &page).unwrap()), ["a/two"]);
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Light {
    metadata: Value,
    is_on: bool,
}

#[test]
fn objects_can_be_values_of_a_type() {
    let objects = Objects::new(store(), Kind::new("home/v1", "Light", "lights"));
    let lights = objects.typed::<Light>();
    let kitchen = Light { metadata: json!({"name": "kitchen"}), is_on: false };
    let mut made = lights.create("home", &kitchen, &CreateOptions::default()).unwrap();
    assert_eq!(lights.get("home", "kitchen", &GetOptions::default()).unwrap(), made);
    made.is_on = true;
    let (written, is_new) =
        lights.update("home", "kitchen", &made, &UpdateOptions::default()).unwrap();
    assert!(written.is_on && !is_new);
    assert_eq!(
        refused(lights.update("home", "kitchen", &made, &UpdateOptions::default())).code(),
        409
    );
    let list = lights.list("home", &ListOptions::default()).unwrap();
    assert_eq!((list.items, list.resource_version.as_str()), (vec![written], "3"));

    objects
        .create("home", json!({"metadata": {"name": "odd"}}), &CreateOptions::default())
        .unwrap();
    assert_eq!(refused(lights.get("home", "odd", &GetOptions::default())).code(), 500);
    assert!(lights.delete("home", "odd", &DeleteOptions::default()).unwrap().is_deleted);
}
