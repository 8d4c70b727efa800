//! Guaranteed updates: the cases of `RunTestGuaranteedUpdate*` in `k8s.io/apiserver/pkg/storage/testing/store_tests.go`.
//!
//! row 6: what_changes_nothing_writes_nothing
//! row 12: suggestions_are_no_more_than_that
//! row 13: updates_are_guaranteed, what_has_a_time_to_live_keeps_it, nothing_is_lost_between_many_threads
//! row 29: what_has_a_time_to_live_ends
//! row 32: updates_are_guaranteed, stale_bytes_are_written_anew, suggestions_are_no_more_than_that, conflicts_are_tried_again
//! row 39: what_changes_nothing_writes_nothing

use std::thread;

use annals::Options;
use annals::object::WatchEventKind::Deleted;
use annals::object::{
    GuaranteedUpdateOptions, Preconditions, Status, StorageError, StorageErrorKind as Kind,
};
use serde_json::{Value, json};

use super::under::needs_the_store;
use super::world::{World, next, number, pod, version, with};

/// What is tried, how often it is, and what comes of it.
fn update(
    world: &World,
    key: &str,
    wanted: &Preconditions,
    cached: Option<&Value>,
    mut change: impl FnMut(&mut Value) -> Result<(), StorageError>,
) -> (Result<Value, StorageError>, Vec<u64>) {
    let mut seen = Vec::new();
    let mut each = |mut pod: Value, told: annals::object::ResponseMeta| {
        seen.push(told.resource_version);
        change(&mut pod)?;
        Ok((pod, None))
    };
    let options = GuaranteedUpdateOptions::default();
    let answer = world.pods.guaranteed_update(key, options, wanted, &mut each, cached);
    (answer, seen)
}

fn none() -> Preconditions {
    Preconditions::none()
}

#[allow(clippy::unnecessary_wraps, reason = "it is what an update is")]
fn mark(pod: &mut Value) -> Result<(), StorageError> {
    pod["spec"] = json!({"nodeName": "n"});
    Ok(())
}

/// The table of `RunTestGuaranteedUpdate`.
#[test]
fn updates_are_guaranteed() {
    #[allow(clippy::struct_excessive_bools, reason = "rows of a table")]
    struct Case {
        is_there: bool,
        ignore: bool,
        wanted: Preconditions,
        is_changed: bool,
        has_link: bool,
        is_stale: bool,
        expected: Result<bool, Kind>,
    }
    let case = Case {
        is_there: true,
        ignore: false,
        wanted: none(),
        is_changed: false,
        has_link: false,
        is_stale: false,
        expected: Ok(false),
    };
    let of = |pod| with(pod, &["metadata", "uid"], "A");
    let cases = [
        Case { is_there: false, expected: Err(Kind::KeyNotFound), wanted: none(), ..case },
        Case {
            is_there: false,
            ignore: true,
            is_changed: true,
            expected: Ok(true),
            wanted: none(),
            ..case
        },
        Case { is_changed: true, expected: Ok(true), wanted: none(), ..case },
        Case { expected: Ok(false), wanted: none(), ..case },
        Case { has_link: true, expected: Ok(false), wanted: none(), ..case },
        Case { is_stale: true, expected: Ok(true), wanted: none(), ..case },
        Case { wanted: Preconditions::uid("A"), expected: Ok(false), ..case },
        Case { wanted: Preconditions::uid("B"), expected: Err(Kind::InvalidObject), ..case },
        Case {
            wanted: Preconditions::uid("A"),
            is_there: false,
            ignore: true,
            expected: Err(Kind::InvalidObject),
            ..case
        },
    ];
    for (number, case) in cases.iter().enumerate() {
        let world = World::new();
        let (key, made) = world.make(&of(pod("ns", "foo")));
        world.transformer.set_stale(case.is_stale);
        let key = if case.is_there { key } else { "/pods/ns/none".to_owned() };
        let before = world.store.revision();
        let mut each = |object: Value, told: annals::object::ResponseMeta| {
            assert_eq!(told.resource_version == 0, !case.is_there);
            assert_eq!(object == json!({}), !case.is_there, "nothing is an empty object");
            let mut pod = made.clone();
            if case.has_link {
                pod["metadata"]["selfLink"] = "testlink".into();
            }
            if case.is_changed {
                pod["spec"] = json!({"n": number});
            }
            Ok((pod, None))
        };
        let options = GuaranteedUpdateOptions { ignore_not_found: case.ignore };
        let answer = world.pods.guaranteed_update(&key, options, &case.wanted, &mut each, None);
        let moved = world.store.revision() - before;
        match (&case.expected, answer) {
            (Ok(writes), Ok(object)) => {
                assert_eq!(moved, u64::from(*writes), "case {number}");
                assert_eq!(version(&object) != version(&made), *writes, "case {number}");
                assert!(object["metadata"].get("selfLink").is_none());
                world.check_stored(&key);
                assert_eq!(world.get(&key).unwrap(), object);
            }
            (Err(kind), Err(error)) => {
                assert_eq!((*kind, moved), (error.kind(), 0), "case {number}");
            }
            (_, answer) => panic!("case {number}: {answer:?}"),
        }
    }
}

/// Whatever of it is set that is not stored, and however its fields are ordered.
#[test]
fn what_changes_nothing_writes_nothing() {
    let world = World::new();
    let (key, made) = world.make(&json!({"kind": "Pod", "metadata": {"name": "a", "namespace": "ns"}, "a": {"z": 1, "y": [2]}}));
    let bytes = world.raw(&key);
    assert!(!String::from_utf8_lossy(&bytes).contains("resourceVersion"));
    for version in [json!("1"), json!("999"), json!(""), Value::Null] {
        for cached in [None, Some(&made)] {
            let (answer, seen) = update(&world, &key, &none(), cached, |pod| {
                *pod = json!({"a": {"y": [2], "z": 1}, "metadata": {"selfLink": "x", "namespace": "ns", "resourceVersion": version, "name": "a"}, "kind": "Pod"});
                Ok(())
            });
            assert_eq!((answer.unwrap(), seen), (made.clone(), vec![number(&made)]));
        }
    }
    assert_eq!(world.store.revision(), number(&made));
    assert_eq!(world.raw(&key), bytes);
}

/// `RunTestGuaranteedUpdateChecksStoredData`.
#[test]
fn stale_bytes_are_written_anew() {
    let world = World::new();
    // What is stored says the same in other bytes.
    world.transformer.set("test! ");
    let (key, made) = world.make(&pod("ns", "foo"));
    world.transformer.set("test!");
    let keep = |_: &mut Value| Ok(());
    let (written, seen) = update(&world, &key, &none(), Some(&made), keep);
    let written = written.unwrap();
    assert_eq!((number(&written), seen.len()), (number(&made) + 1, 2));
    world.check_stored(&key);
    let (kept, seen) = update(&world, &key, &none(), Some(&written), keep);
    assert_eq!((kept.unwrap(), seen.len()), (written.clone(), 1));
    // The transformer wants it, also where only the store knows.
    world.transformer.set_stale(true);
    for cached in [Some(&written), None] {
        let before = world.store.revision();
        let (again, _) = update(&world, &key, &none(), cached, keep);
        assert_eq!(number(&again.unwrap()), before + 1);
    }
}

/// `RunTestGuaranteedUpdateWithSuggestionAndConflict`.
#[test]
fn suggestions_are_no_more_than_that() {
    let world = World::new();
    let (key, old) = world.make(&with(pod("ns", "foo"), &["metadata", "uid"], "A"));
    let new = world.update(&key, |pod| pod["spec"] = json!({"n": 2}));
    let refuse_old = |pod: &mut Value| {
        if pod["spec"]["n"] != 2 {
            return Err(Status::bad_request("too old").into());
        }
        mark(pod)
    };
    // It is refused for being old, and what is there is not.
    let (answer, seen) = update(&world, &key, &none(), Some(&old), refuse_old);
    assert_eq!(seen, [number(&old), number(&new)]);
    let newest = answer.unwrap();
    // It is refused, and is what is there: nothing is tried again.
    let fail = |_: &mut Value| Err(Status::bad_request("never").into());
    let (answer, seen) = update(&world, &key, &none(), Some(&newest), fail);
    assert_eq!((answer.unwrap_err().to_string(), seen), ("never".into(), vec![number(&newest)]));
    // Refused twice: the second refusal is told.
    let (answer, seen) = update(&world, &key, &none(), Some(&old), |pod| {
        Err(Status::bad_request(format!("no, {}", version(pod))).into())
    });
    assert_eq!(seen.len(), 2);
    assert_eq!(answer.unwrap_err().to_string(), format!("no, {}", number(&newest)));
    // It changes to what is there already.
    let (answer, seen) = update(&world, &key, &none(), Some(&old), |pod| {
        *pod = newest.clone();
        Ok(())
    });
    assert_eq!((answer.unwrap(), seen.len()), (newest.clone(), 2));
    assert_eq!(world.store.revision(), number(&newest));
    // It is kept as it is, which is not what is there.
    let (answer, seen) = update(&world, &key, &none(), Some(&old), |_| Ok(()));
    assert_eq!((answer.unwrap(), seen), (newest.clone(), vec![number(&old), number(&newest)]));
    // Preconditions that only what is there meets, and such as only what is suggested meets.
    let other = with(old.clone(), &["metadata", "uid"], "B");
    let (answer, seen) = update(&world, &key, &Preconditions::uid("A"), Some(&other), mark);
    assert_eq!((answer.unwrap(), seen), (newest.clone(), vec![number(&newest)]));
    let (answer, seen) = update(&world, &key, &Preconditions::uid("B"), Some(&other), |pod| {
        pod["spec"] = json!({"n": 7});
        Ok(())
    });
    assert_eq!((answer.unwrap_err().kind(), seen), (Kind::InvalidObject, vec![number(&old)]));
    // It is gone.
    world.delete(&key);
    let (answer, _) = update(&world, &key, &none(), Some(&newest), |pod| {
        pod["spec"] = json!({"n": 9});
        Ok(())
    });
    assert_eq!(answer.unwrap_err().kind(), Kind::KeyNotFound);
    let (answer, _) = update(&world, &key, &none(), Some(&newest), |_| Ok(()));
    assert_eq!(answer.unwrap_err().kind(), Kind::KeyNotFound);
    // What is suggested is not changed, and its version must be one.
    let bad = with(newest, &["metadata", "resourceVersion"], "abc");
    let (answer, seen) = update(&world, &key, &none(), Some(&bad), mark);
    assert!(answer.is_err() && seen.is_empty());
}

/// `RunTestGuaranteedUpdateWithConflict`: what others do between the read and the write is seen.
#[test]
fn conflicts_are_tried_again() {
    let world = World::new();
    let (key, made) = world.make(&pod("ns", "foo"));
    let mut left = 3;
    let (answer, seen) = update(&world, &key, &none(), None, |pod| {
        if left > 0 {
            left -= 1;
            world.update(&key, |pod| pod["others"] = left.into());
        }
        pod["mine"] = json!(true);
        Ok(())
    });
    let first = number(&made);
    assert_eq!(seen, [first, first + 1, first + 2, first + 3]);
    let answer = answer.unwrap();
    assert_eq!(
        (&answer["others"], &answer["mine"], number(&answer)),
        (&json!(0), &json!(true), first + 4)
    );
    // It is deleted meanwhile: then there is none, or an empty one.
    for ignore_not_found in [false, true] {
        let (key, _) = world.make(&pod("ns", "foo"));
        let mut seen = Vec::new();
        let mut each = |mut pod: Value, told: annals::object::ResponseMeta| {
            seen.push(told.resource_version);
            if seen.len() == 1 {
                world.delete(&key);
            }
            pod["mine"] = json!(true);
            Ok((pod, None))
        };
        let options = GuaranteedUpdateOptions { ignore_not_found };
        let answer = world.pods.guaranteed_update(&key, options, &none(), &mut each, None);
        if ignore_not_found {
            let answer = answer.unwrap();
            assert_eq!((seen.len(), seen[1], &answer["metadata"]["name"]), (2, 0, &Value::Null));
        } else {
            assert_eq!((answer.unwrap_err().kind(), seen.len()), (Kind::KeyNotFound, 1));
        }
    }
}

/// Also where what is written begins with a suggestion; many more threads count in `race`.
#[test]
fn nothing_is_lost_between_many_threads() {
    const THREADS: u64 = 8;
    const TIMES: u64 = 200;
    let world = &World::new();
    let (key, made) = &world.make(&pod("ns", "counter"));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut mine = made.clone();
                for _ in 0..TIMES {
                    // Half of them begin with what they have written themselves.
                    let cached = (thread % 2 == 0).then_some(&mine);
                    let (answer, _) = update(world, key, &none(), cached, |pod| {
                        pod["count"] = (pod["count"].as_u64().unwrap_or(0) + 1).into();
                        Ok(())
                    });
                    mine = answer.unwrap();
                }
            });
        }
    });
    let counted = world.get(key).unwrap();
    assert_eq!(counted["count"], THREADS * TIMES);
    assert_eq!(number(&counted), number(made) + THREADS * TIMES, "each wrote once");
}

/// A world whose leases end when the test says so.
fn still() -> World {
    World::with(Options::new().background(false))
}

fn pass(world: &World, seconds: i64) {
    world.clock.advance(seconds * 1_000_000);
    while world.store.run_background().unwrap() {}
}

fn lease(world: &World, key: &str) -> i64 {
    world.store.get(format!("/registry{key}")).unwrap().unwrap().lease
}

/// `RunTestCreateWithTTL`, `RunTestGuaranteedUpdateWithTTL`.
#[test]
fn what_has_a_time_to_live_ends() {
    needs_the_store!();
    let world = still();
    let made = world.pods.create("/pods/ns/a", pod("ns", "a"), 10).unwrap();
    let options = GuaranteedUpdateOptions { ignore_not_found: true };
    let mut make = |_, _| Ok((pod("ns", "b"), Some(1000)));
    world.pods.guaranteed_update("/pods/ns/b", options, &none(), &mut make, None).unwrap();
    let from = annals::object::WatchOptions {
        resource_version: version(&made).into(),
        ..Default::default()
    };
    let mut watch = world.watch("/pods/ns/a", &from);
    pass(&world, 9);
    assert_eq!(world.get("/pods/ns/a").unwrap(), made);
    // It lives a second longer, or a twentieth, at most, for the sake of those that share its lease.
    pass(&world, 2);
    assert_eq!(world.get("/pods/ns/a").unwrap_err().kind(), Kind::KeyNotFound);
    let gone = next(&mut watch);
    assert_eq!(gone.kind, Deleted);
    assert_eq!(gone.object["metadata"]["name"], "a");
    assert!(number(&gone.object) > number(&made));
    assert!(world.get("/pods/ns/b").is_ok());
    pass(&world, 1000 + 50);
    assert_eq!(world.get("/pods/ns/b").unwrap_err().kind(), Kind::KeyNotFound);
}

#[test]
fn what_has_a_time_to_live_keeps_it() {
    let world = still();
    let key = "/pods/ns/a";
    world.pods.create(key, pod("ns", "a"), 100).unwrap();
    let first = lease(&world, key);
    assert_ne!(first, 0);
    let set = |n: u64, ttl: Option<u64>| {
        let mut each = |mut pod: Value, told: annals::object::ResponseMeta| {
            assert_eq!(told.lease, lease(&world, key));
            pod["n"] = n.into();
            Ok((pod, ttl))
        };
        world
            .pods
            .guaranteed_update(key, GuaranteedUpdateOptions::default(), &none(), &mut each, None)
            .unwrap();
        lease(&world, key)
    };
    assert_eq!(set(1, None), first);
    let second = set(2, Some(500));
    assert!(second != 0 && second != first);
    assert_eq!(set(2, Some(0)), 0, "a time to live ends also where nothing else changes");
    assert_eq!(set(3, Some(0)), 0);
    assert_eq!(set(4, None), 0);
    assert_eq!(set(5, Some(500)), second, "it is shared");
    // Somebody revokes the lease that is shared.
    world.store.lease_revoke(second).unwrap();
    assert_eq!(world.get(key).unwrap_err().kind(), Kind::KeyNotFound);
    world.pods.create(key, pod("ns", "a"), 500).unwrap();
    let third = lease(&world, key);
    assert!(third != 0 && third != second);
}

/// `TestLeaseMaxObjectCount`, and the time for which a lease is shared.
#[test]
fn objects_share_leases() {
    let world = still();
    let make = |n: u64| {
        let key = format!("/pods/ns/{n}");
        world.pods.create(&key, pod("ns", &n.to_string()), 3600).unwrap();
        lease(&world, &key)
    };
    let first = make(0);
    for n in 1..1000 {
        assert_eq!(make(n), first);
    }
    let second = make(1000);
    assert_ne!(second, first);
    world.clock.advance(59_000_000);
    assert_eq!(make(1001), second);
    world.clock.advance(2_000_000);
    assert_ne!(make(1002), second, "it would end too early");
    world.pods.create("/pods/ns/short", pod("ns", "short"), 30).unwrap();
    assert_ne!(lease(&world, "/pods/ns/short"), second);
}

/// Those that share a lease end in one revision, and each is told.
#[test]
fn objects_of_one_lease_end_together() {
    needs_the_store!();
    let world = still();
    let names = ["a", "b", "c"];
    for name in names {
        world.pods.create(&format!("/pods/ns/{name}"), pod("ns", name), 100).unwrap();
    }
    let before = world.store.revision();
    let mut watch = world.watch("/pods", &super::watch::from(before));
    pass(&world, 200);
    assert_eq!(world.store.revision(), before + 1);
    for name in names {
        let gone = next(&mut watch);
        assert_eq!((gone.kind, number(&gone.object)), (Deleted, before + 1));
        assert_eq!(gone.object["metadata"]["name"], name);
    }
    assert_eq!(world.pods.count("/pods").unwrap(), 0);
}
