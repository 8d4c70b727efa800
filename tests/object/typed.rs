//! Objects as values of a type: what is watched, patched and applied, and what is no value of it.

use std::time::Duration;

use annals::object::{
    CreateOptions, DeleteOptions, GetOptions, Kind, ListOptions, PatchOptions, PatchType,
    TypedEvent, UpdateOptions, WatchEventKind, WatchOptions,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kit::{refused, store, version};
use super::under::{Objects, Store, Typed, TypedWatch};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Light {
    metadata: Value,
    is_on: bool,
    #[serde(default)]
    color: String,
}

/// What somebody wants of a light.
#[derive(Default, Serialize)]
struct Wanted {
    #[serde(skip_serializing_if = "Option::is_none")]
    is_on: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    color: Option<String>,
}

fn lights() -> Typed<Light> {
    Objects::new(store(), Kind::new("home/v1", "Light", "lights")).typed()
}

fn light(name: &str) -> Light {
    Light { metadata: json!({"name": name}), is_on: false, color: String::new() }
}

/// An object of the kind that is no light.
fn odd(lights: &Typed<Light>, name: &str) -> Value {
    let object = json!({"metadata": {"name": name}, "is_on": "no"});
    lights.objects().create("home", object, &CreateOptions::default()).unwrap()
}

fn by(manager: &str) -> PatchOptions {
    PatchOptions { field_manager: manager.into(), ..PatchOptions::default() }
}

fn next(watch: &mut TypedWatch<Light>) -> TypedEvent<Light> {
    watch.next_timeout(Duration::from_secs(60)).expect("an event")
}

#[test]
fn a_watch_tells_values_and_goes_on_behind_what_is_none() {
    let lights = lights();
    let hall = lights.create("home", &light("hall"), &CreateOptions::default()).unwrap();
    let nowhere = odd(&lights, "odd");
    let options = WatchOptions {
        send_initial_events: Some(true),
        allow_bookmarks: true,
        ..WatchOptions::default()
    };
    let mut watch = lights.watch("home", &options).unwrap();
    assert_eq!(next(&mut watch), TypedEvent::Added(hall.clone()));
    let TypedEvent::Unreadable { kind, object, why } = next(&mut watch) else {
        panic!("it is no light")
    };
    assert_eq!((kind, object), (WatchEventKind::Added, nowhere));
    let said = "Internal error occurred: lights.home \"home/odd\" of resource version 3 is no ";
    assert!(why.code() == 500 && why.message().starts_with(said), "{why}");
    assert!(why.message().ends_with("Light: invalid type: string, expected a boolean"));
    let end = TypedEvent::Bookmark { resource_version: "3".into(), ends_initial_events: true };
    assert_eq!(next(&mut watch), end);

    let change = |light: &mut Light| {
        light.is_on = true;
        Ok(())
    };
    let on = lights.modify("home", "hall", &UpdateOptions::default(), change).unwrap();
    assert_eq!(next(&mut watch), TypedEvent::Modified(on.clone()));
    lights.delete("home", "odd", &DeleteOptions::default()).unwrap();
    let gone = next(&mut watch);
    let TypedEvent::Unreadable { kind: WatchEventKind::Deleted, object, .. } = gone else {
        panic!("{gone:?}")
    };
    assert_eq!(version(&object), "5");
    lights.delete("home", "hall", &DeleteOptions::default()).unwrap();
    let TypedEvent::Deleted(last) = next(&mut watch) else { panic!("it is gone") };
    assert!(last.is_on && last.metadata["resourceVersion"] == "6");

    assert_eq!(watch.next_timeout(Duration::ZERO), None);
    watch.handle().cancel();
    assert_eq!(watch.next(), None);
}

#[test]
fn a_watch_tells_how_far_it_has_come_and_why_it_ends() {
    let lights = lights();
    lights.create("home", &light("hall"), &CreateOptions::default()).unwrap();
    let store: &Store = lights.objects().storage().kv();
    let options = WatchOptions {
        resource_version: "2".into(),
        allow_bookmarks: true,
        bookmarks_every: Some(Duration::from_millis(100)),
        ..WatchOptions::default()
    };
    let mut watch = lights.watch("home", &options).unwrap();
    store.put("elsewhere", "x").unwrap();
    let told = loop {
        match next(&mut watch) {
            TypedEvent::Bookmark { resource_version, ends_initial_events: false } => {
                if resource_version == "3" {
                    break resource_version;
                }
            }
            other => panic!("{other:?}"),
        }
    };
    // What is not told any more is something that the watch would have told.
    for is_on in [true, false] {
        let change = |light: &mut Light| {
            light.is_on = is_on;
            Ok(())
        };
        lights.modify("home", "hall", &UpdateOptions::default(), change).unwrap();
    }
    store.compact(5).unwrap();
    let options = WatchOptions { resource_version: told, ..WatchOptions::default() };
    let mut watch = lights.watch("home", &options).unwrap();
    let TypedEvent::Error(ended) = next(&mut watch) else { panic!("it is too late") };
    assert_eq!(ended.code(), 410);
    assert_eq!(watch.next(), None);
}

#[test]
fn patches_answer_with_values() {
    let lights = lights();
    lights.create("home", &light("hall"), &CreateOptions::default()).unwrap();
    let patch = |patch_type, patch: &Value| {
        let patch = patch.to_string();
        lights.patch("home", "hall", patch_type, patch.as_bytes(), &PatchOptions::default())
    };
    let (hall, is_new) = patch(PatchType::Merge, &json!({"is_on": true})).unwrap();
    assert!(hall.is_on && !is_new);
    let set = json!([{"op": "add", "path": "/color", "value": "red"}]);
    assert_eq!(patch(PatchType::Json, &set).unwrap().0.color, "red");
    assert_eq!(refused(patch(PatchType::StrategicMerge, &json!({}))).code(), 415);

    // What is no light any more has been written: nobody has said that all objects are lights.
    let status = refused(patch(PatchType::Merge, &json!({"is_on": 7})));
    assert!(status.code() == 500 && status.message().contains("\"home/hall\""), "{status}");
    let there = lights.objects().get("home", "hall", &GetOptions::default()).unwrap();
    assert_eq!(there["is_on"], 7);
    let status = refused(lights.list("home", &ListOptions::default()));
    assert!(status.code() == 500 && status.message().contains("\"home/hall\""), "{status}");
}

#[test]
fn an_apply_says_what_is_wanted_and_no_more() {
    let lights = lights();
    let on = Wanted { is_on: Some(true), ..Wanted::default() };
    let (hall, is_new) = lights.apply("home", "hall", &on, &by("switch")).unwrap();
    assert!(hall.is_on && is_new);
    let red = Wanted { color: Some("red".into()), ..Wanted::default() };
    let (hall, is_new) = lights.apply("home", "hall", &red, &by("painter")).unwrap();
    assert!(!is_new && hall.is_on && hall.color == "red", "the switch is still on");

    let green = Wanted { is_on: Some(true), color: Some("green".into()) };
    let conflict = refused(lights.apply("home", "hall", &green, &by("switch")));
    assert_eq!((conflict.code(), conflict.details().causes[0].field.as_str()), (409, ".color"));
    let force = PatchOptions { force: Some(true), ..by("switch") };
    assert_eq!(lights.apply("home", "hall", &green, &force).unwrap().0.color, "green");
    // What is not wanted any more goes.
    let (hall, _) = lights.apply("home", "hall", &on, &by("switch")).unwrap();
    assert_eq!(hall.color, "");

    assert_eq!(refused(lights.apply("home", "hall", &on, &by(""))).code(), 422);
    assert_eq!(refused(lights.apply("home", "hall", "a text", &by("switch"))).code(), 400);
    let other = json!({"metadata": {"name": "attic"}, "is_on": true});
    assert_eq!(refused(lights.apply("home", "hall", &other, &by("switch"))).code(), 400);
}
