//! From one version of a kind to the next: objects that are stored under another one.

use std::sync::Arc;

use annals::object::{
    DeleteOptions, FieldSelector, HistoryOptions, Kind, KindStrategy, ListOptions, PatchOptions,
    PatchType, Predicate, Status, UpdateOptions, WatchEventKind, WatchOptions,
};
use serde_json::{Value, json};

use super::kit::{create, generation, get, refused, store, version};
use super::under::{Objects, Store};

fn kind(version: &str) -> Kind {
    Kind::new(format!("acme.io/{version}"), "Thing", "things")
}

fn old(store: &Arc<Store>) -> Objects {
    Objects::new(Arc::clone(store), kind("v1"))
}

/// What was called `size` is called `replicas` since; a size of 13 means nothing any more.
fn new(store: &Arc<Store>) -> Objects {
    Objects::new(Arc::clone(store), kind("v2"))
        .strategy(KindStrategy::new().field("spec.replicas"))
        .also_stored_as("acme.io/v1", |thing| {
            if thing["spec"]["size"] == 13 {
                return Err(Status::bad_request("no such size"));
            }
            let size = thing["spec"]["size"].take();
            thing["spec"] = json!({"replicas": size});
            Ok(())
        })
}

fn thing(name: &str, size: u64) -> Value {
    json!({"metadata": {"name": name}, "spec": {"size": size}})
}

fn stored(store: &Store, name: &str) -> Value {
    let kv = store.get(format!("/registry/acme.io/things/default/{name}")).unwrap().unwrap();
    serde_json::from_slice(&kv.value).unwrap()
}

#[test]
fn objects_of_another_version_are_read_as_those_of_this_one() {
    let store = store();
    let (old, new) = (old(&store), new(&store));
    let made = create(&old, thing("a", 3));
    create(&old, thing("b", 4));
    let mut expected = made.clone();
    expected["apiVersion"] = "acme.io/v2".into();
    expected["spec"] = json!({"replicas": 3});
    assert_eq!(get(&new, "a").unwrap(), expected);
    let field = FieldSelector::parse("spec.replicas=3").unwrap();
    let predicate = Predicate { field, ..Predicate::everything() };
    let list = new.list("default", &ListOptions { predicate, ..ListOptions::default() }).unwrap();
    assert_eq!(list.items, [expected.clone()]);
    assert_eq!(new.get_at("default", "a", version(&made)).unwrap(), expected);
    let mut history = new.history("default", "a", &HistoryOptions::default()).unwrap();
    assert_eq!(history.next().unwrap().unwrap().object(), Some(&expected));
    // Also one that changes and goes: a watch tells what it was.
    let mut watch = new.watch("default", &WatchOptions::default()).unwrap();
    assert_eq!(watch.next().unwrap().object, expected);
    assert_eq!(watch.next().unwrap().object["spec"], json!({"replicas": 4}));
    old.delete("default", "a", &DeleteOptions::default()).unwrap();
    let gone = watch.next().unwrap();
    assert_eq!((gone.kind, &gone.object["spec"]), (WatchEventKind::Deleted, &expected["spec"]));
    // Nothing of all that has changed the store.
    assert_eq!(stored(&store, "b")["apiVersion"], "acme.io/v1");
}

#[test]
fn the_next_update_stores_an_object_as_one_of_this_version() {
    let store = store();
    let (old, new) = (old(&store), new(&store));
    for name in ["a", "b", "c"] {
        create(&old, thing(name, 3));
    }
    let nothing = |_: &mut Value| Ok(());
    let none = UpdateOptions::default();
    let before = get(&new, "a").unwrap();
    let first = new.modify("default", "a", &none, nothing).unwrap();
    assert_ne!(version(&first), version(&before), "it is written");
    assert_eq!((&first["spec"], generation(&first)), (&json!({"replicas": 3}), 1));
    assert_eq!(stored(&store, "a")["apiVersion"], "acme.io/v2");
    assert_eq!(stored(&store, "a")["spec"], json!({"replicas": 3}));
    assert_eq!(new.modify("default", "a", &none, nothing).unwrap(), first, "and only once");

    let patch = br#"{"spec": {"replicas": 5}}"#;
    let options = PatchOptions::default();
    let (patched, _) = new.patch("default", "b", PatchType::Merge, patch, &options).unwrap();
    assert_eq!((&patched["spec"], generation(&patched)), (&json!({"replicas": 5}), 2));
    let mut read = get(&new, "c").unwrap();
    read["spec"]["replicas"] = 6.into();
    let (updated, _) = new.update("default", "c", read.clone(), &none).unwrap();
    assert_eq!((&updated["spec"], generation(&updated)), (&json!({"replicas": 6}), 2));
    assert_eq!(refused(new.update("default", "c", read, &none)).code(), 409);
    create(&old, thing("d", 1));
    new.delete("default", "d", &DeleteOptions::default()).unwrap();
    assert_eq!(refused(get(&old, "d")).code(), 404);
}

#[test]
fn all_objects_can_be_stored_as_those_of_this_version() {
    let store = store();
    let (old, new) = (old(&store), new(&store));
    for name in ["a", "b"] {
        create(&old, thing(name, 3));
    }
    let first = new.rewrite_stale("default").unwrap();
    assert_eq!((first.looked_at, first.written), (2, 2));
    assert_eq!(stored(&store, "b")["apiVersion"], "acme.io/v2");
    assert_eq!(stored(&store, "b")["spec"], json!({"replicas": 3}));
    let second = new.rewrite_stale("default").unwrap();
    assert_eq!((second.looked_at, second.written), (2, 0));
}

#[test]
fn what_cannot_be_converted_cannot_be_read() {
    let store = store();
    let (old, new) = (old(&store), new(&store));
    create(&old, thing("bad", 13));
    let why = refused(get(&new, "bad"));
    let expected = "it cannot be converted from acme.io/v1 to acme.io/v2: no such size";
    assert!(why.code() == 500 && why.message().contains(expected), "{why}");
    let listed = new.list("default", &ListOptions::default());
    assert!(refused(listed).message().contains(expected));
    // Without being told how, one version cannot write what is of another.
    let other = Objects::new(Arc::clone(&store), kind("v3"));
    assert_eq!(get(&other, "bad").unwrap()["apiVersion"], "acme.io/v1");
    let none = UpdateOptions::default();
    assert_eq!(refused(other.modify("default", "bad", &none, |_| Ok(()))).code(), 400);
    let patch = br#"{"spec": {"size": 5}}"#;
    let patched = other.patch("default", "bad", PatchType::Merge, patch, &PatchOptions::default());
    let status = refused(patched);
    assert!(status.message().starts_with("Thing.acme.io \"bad\" is invalid: patch: "), "{status}");
}

/// What nests too deep could not be read again, once it was stored.
#[test]
fn what_is_converted_is_not_stored_so_deep_that_nobody_can_read_it() {
    let store = store();
    create(&old(&store), thing("deep", 1));
    let deep = Objects::new(Arc::clone(&store), kind("v2")).also_stored_as("acme.io/v1", |thing| {
        thing["spec"] = (0..200).fold(json!(1), |inner, _| json!([inner]));
        Ok(())
    });
    let expected = "what was converted from acme.io/v1 to acme.io/v2 nests deeper than 120";
    for why in [refused(deep.rewrite_stale("")), refused(get(&deep, "deep"))] {
        assert!(why.code() == 500 && why.message().contains(expected), "{why}");
    }
    assert_eq!(get(&old(&store), "deep").unwrap()["spec"], json!({"size": 1}), "it is as it was");
}

/// A conversion that was not written for all there is takes no others with it.
#[test]
fn what_a_conversion_panics_at_is_one_object_that_cannot_be_read() {
    let store = store();
    let old = old(&store);
    create(&old, json!({"metadata": {"name": "bad"}, "spec": "x"}));
    create(&old, thing("good", 3));
    let new = Objects::new(Arc::clone(&store), kind("v2")).also_stored_as("acme.io/v1", |thing| {
        thing["spec"]["replicas"] = thing["spec"]["size"].take();
        Ok(())
    });
    assert_eq!(get(&new, "good").unwrap()["spec"]["replicas"], 3);
    let why = refused(new.list("default", &ListOptions::default()));
    assert!(why.code() == 500 && why.message().contains("the conversion panicked"), "{why}");
    assert_eq!(why.details().causes[0].field, "/registry/acme.io/things/default/bad");
    let unsafely = DeleteOptions { ignore_store_read_error: true, ..DeleteOptions::default() };
    new.delete("default", "bad", &unsafely).unwrap();
    assert_eq!(new.list("default", &ListOptions::default()).unwrap().items.len(), 1);
}
