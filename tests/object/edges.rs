//! What hostile readers have asked: numbers, prefixes, times to live and suggestions at their edges.

use std::sync::Arc;

use annals::Options;
use annals::clock::ManualClock;
use annals::object::{
    CreateOptions, GuaranteedUpdateOptions, Identity, Kind, ListOptions, Preconditions, Prefixed,
    StorageErrorKind, UpdateOptions,
};
use serde_json::{Value, json};

use super::kit::{clock, create, get, pod, pods, put, store, version};
use super::under::{Objects, Store};
use super::world::World;

/// Doubles with 17 digits, every bit of which counts.
#[test]
fn numbers_come_back_as_they_are() {
    let pods = pods();
    let mut bits = 0x1234_5678_9abc_def1_u64;
    let mut numbers = vec![31.245_270_191_439_438, 0.1 + 0.2, f64::MIN_POSITIVE, f64::MAX, -0.0];
    while numbers.len() < 2_000 {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        numbers.extend(Some(f64::from_bits(bits)).filter(|number| number.is_finite()));
    }
    let mut object = pod("web");
    object["spec"]["numbers"] = numbers.iter().map(|number| json!(number)).collect();
    let made = create(&pods, object);
    let read = get(&pods, "web").unwrap();
    let found = read["spec"]["numbers"].as_array().unwrap();
    let bits = |number: &Value| number.as_f64().unwrap().to_bits();
    assert!(found.iter().zip(&numbers).all(|(found, number)| bits(found) == number.to_bits()));
    assert_eq!(version(&put(&pods, &read).unwrap()), version(&made));
    // As text, too, as clients send it.
    let parsed: Value = serde_json::from_str(&read.to_string()).unwrap();
    assert_eq!(version(&put(&pods, &parsed).unwrap()), version(&made));
}

#[test]
fn prefixes_are_the_same_with_and_without_slashes() {
    for prefix in ["pods", "/pods", "/pods/", "//pods//"] {
        for registry in ["registry", "/registry/"] {
            let directory = tempfile::tempdir().unwrap();
            let store = Arc::new(Store::or(|| annals::Store::open(directory.path()).unwrap()));
            let pods = Objects::new(Arc::clone(&store), Kind::new("v1", "Pod", "pods"))
                .prefix(registry)
                .resource_prefix(prefix);
            for name in ["a", "b", "c"] {
                pods.create("default", pod(name), &CreateOptions::default()).unwrap();
            }
            assert!(
                store.get("/registry/pods/default/a").unwrap().is_some(),
                "{registry} {prefix}"
            );
            let (mut names, mut token) = (Vec::new(), String::new());
            loop {
                let options =
                    ListOptions { limit: 1, continue_token: token, ..ListOptions::default() };
                let page = pods.list("default", &options).unwrap();
                names.extend(page.items.iter().map(|pod| pod["metadata"]["name"].clone()));
                token = page.continue_token;
                if token.is_empty() {
                    break;
                }
            }
            assert_eq!(names, ["a", "b", "c"], "{registry} {prefix}");
        }
    }
}

#[test]
fn builders_leave_what_others_have_set() {
    let store = store();
    let plain = Objects::new(Arc::clone(&store), Kind::new("v1", "Pod", "pods"));
    let marked = || Arc::new(Prefixed::new("marked:", Identity));
    let orders = [
        plain.clone().prefix("r").resource_prefix("p").transformer(marked()).clock(clock()),
        plain.clock(clock()).transformer(marked()).resource_prefix("p").prefix("r"),
    ];
    for (name, pods) in ["a", "b"].into_iter().zip(orders) {
        let made = create(&pods, pod(name));
        assert_eq!(made["metadata"]["creationTimestamp"], "2023-11-14T22:13:20Z");
        let stored = store.get(format!("/r/p/default/{name}")).unwrap().expect("under this key");
        assert!(stored.value.starts_with(b"marked:{"), "{name}");
        assert_eq!(pods.count("default").unwrap(), if name == "a" { 1 } else { 2 });
    }
}

/// A heartbeat changes nothing but how long the object lives.
#[test]
fn a_time_to_live_begins_anew_with_an_update_that_changes_nothing() {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000_000));
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().clock(clock.clone()).background(false);
    let store = Arc::new(Store::from(options.open(directory.path()).unwrap()));
    let pods =
        Objects::new(Arc::clone(&store), Kind::new("v1", "Pod", "pods")).clock(clock.clone());
    let lives = CreateOptions { ttl: Some(60), ..CreateOptions::default() };
    pods.create("default", pod("web"), &lives).unwrap();
    let lease = |store: &Store| store.get("/registry/pods/default/web").unwrap().unwrap().lease;
    let first = lease(&store);
    assert_ne!(first, 0);
    clock.advance(40_000_000);
    let again = UpdateOptions { ttl: Some(60), ..UpdateOptions::default() };
    let same = get(&pods, "web").unwrap();
    pods.update("default", "web", same, &again).unwrap();
    assert_ne!(lease(&store), first);
    // For ever, too.
    let for_ever = UpdateOptions { ttl: Some(0), ..UpdateOptions::default() };
    let same = get(&pods, "web").unwrap();
    let (last, _) = pods.update("default", "web", same, &for_ever).unwrap();
    assert_eq!(lease(&store), 0);
    let (kept, _) = pods.update("default", "web", last.clone(), &for_ever).unwrap();
    assert_eq!(version(&kept), version(&last));
}

#[test]
fn what_is_suggested_without_a_version_creates_nothing() {
    let world = World::new();
    let suggestion = json!({"metadata": {"name": "a"}});
    let none = &Preconditions::none();
    let change = &mut |mut pod: Value, _| {
        pod["spec"] = json!(1);
        Ok((pod, None))
    };
    let options = GuaranteedUpdateOptions { ignore_not_found: false };
    let refused =
        world.pods.guaranteed_update("/pods/x/a", options, none, change, Some(&suggestion));
    assert_eq!(refused.unwrap_err().kind(), StorageErrorKind::KeyNotFound);
    assert_eq!(world.pods.count("/pods").unwrap(), 0);
}

/// The same bytes of another version are not what a precondition names.
#[test]
fn a_version_that_is_asked_for_is_that_of_the_store() {
    let world = World::new();
    let (key, first) = world.make(&super::world::pod("x", "a"));
    world.update(&key, |pod| pod["spec"]["n"] = json!(1));
    let back = world.update(&key, |pod| drop(pod["spec"].as_object_mut().unwrap().remove("n")));
    let wanted = Preconditions {
        uid: None,
        resource_version: Some(first["metadata"]["resourceVersion"].as_str().unwrap().into()),
    };
    let keep = &mut |pod: Value, _| Ok((pod, None));
    let updated = world.pods.guaranteed_update(
        &key,
        GuaranteedUpdateOptions::default(),
        &wanted,
        keep,
        Some(&first),
    );
    assert_eq!(updated.unwrap_err().kind(), StorageErrorKind::InvalidObject);
    assert_eq!(world.get(&key).unwrap(), back);
}
