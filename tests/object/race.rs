//! Several clients at once.
//!
//! row 23: what_was_deleted_and_made_anew_is_another
//! row 30: two_users_of_different_fields_still_conflict
//! row 43: one_of_two_clients_is_refused_and_tries_again

use std::sync::{Arc, Barrier};
use std::thread;

use annals::object::{CreateOptions, DeleteOptions, Kind, Preconditions, Reason, UpdateOptions};
use serde_json::json;

use super::kit::{create, get, pod, pods, put, refused, store, version};
use super::under::Objects;

fn foos() -> Objects {
    Objects::new(store(), Kind::new("example.com/v1", "Foo", "foos"))
}

#[test]
fn one_of_two_clients_is_refused_and_tries_again() {
    for _ in 0..200 {
        let foos = foos();
        create(&foos, json!({"metadata": {"name": "foo"}}));
        let both_have_read = Barrier::new(2);
        let client = |field: &str, value: &str| {
            let mut foo = get(&foos, "foo").unwrap();
            both_have_read.wait();
            foo[field] = value.into();
            let first = put(&foos, &foo);
            if let Err(status) = &first {
                assert_eq!((status.code(), status.reason()), (409, Reason::Conflict));
                // GET again, set again, PUT again.
                let mut foo = get(&foos, "foo").unwrap();
                foo[field] = value.into();
                put(&foos, &foo).expect("nobody is in between any more");
            }
            first.is_ok()
        };
        let (one, other) = thread::scope(|scope| {
            let one = scope.spawn(|| client("bar", "one"));
            let other = client("baz", "two");
            (one.join().unwrap(), other)
        });
        assert!(one != other, "exactly one of them has to be refused: {one} {other}");
        let foo = get(&foos, "foo").unwrap();
        assert_eq!((&foo["bar"], &foo["baz"]), (&json!("one"), &json!("two")));
        assert_eq!(version(&foo), "4");
    }
}

#[test]
fn two_users_of_different_fields_still_conflict() {
    let foos = foos();
    create(&foos, json!({"metadata": {"name": "foo"}}));
    let (mut one, mut other) = (get(&foos, "foo").unwrap(), get(&foos, "foo").unwrap());
    one["bar"] = "one".into();
    other["baz"] = "two".into();
    put(&foos, &one).unwrap();
    assert_eq!(refused(put(&foos, &other)).code(), 409);
}

#[test]
fn what_was_deleted_and_made_anew_is_another() {
    let pods = pods();
    let first = create(&pods, pod("web"));
    pods.delete("default", "web", &DeleteOptions::default()).unwrap();
    let second = create(&pods, pod("web"));
    assert_eq!(first["spec"], second["spec"], "the same to look at");

    // By version: A is B is A, and all the same it is another.
    let mut late = first.clone();
    late["metadata"].as_object_mut().unwrap().remove("uid");
    late["spec"]["nodeName"] = "another".into();
    let status = refused(put(&pods, &late));
    assert_eq!(status.code(), 409);
    assert!(status.message().contains("the object has been modified"), "{status}");

    // By UID, also where the version is not said.
    let mut late = first.clone();
    late["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    late["spec"]["nodeName"] = "another".into();
    let status = refused(put(&pods, &late));
    assert_eq!(status.code(), 409);
    assert!(status.message().contains("Precondition failed: UID in precondition"), "{status}");

    // And for deletions.
    let uid = first["metadata"]["uid"].as_str().unwrap();
    for preconditions in [
        Preconditions::uid(uid),
        Preconditions { uid: None, resource_version: Some(version(&first).to_owned()) },
    ] {
        let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
        assert_eq!(refused(pods.delete("default", "web", &options)).code(), 409);
    }
    assert_eq!(get(&pods, "web").unwrap(), second);
}

#[test]
fn no_increment_is_lost() {
    const THREADS: u64 = 64;
    const EACH: u64 = 1_000;
    let counters = Objects::new(store(), Kind::new("v1", "Counter", "counters"));
    for name in ["one", "two", "three", "four"] {
        create(&counters, json!({"metadata": {"name": name}, "count": 0}));
    }
    let names = ["one", "two", "three", "four"];
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let counters = counters.clone();
            scope.spawn(move || {
                for step in 0..EACH {
                    let name = names[usize::try_from((thread + step) % 4).unwrap()];
                    let options = UpdateOptions::default();
                    counters
                        .modify("default", name, &options, |counter| {
                            counter["count"] = (counter["count"].as_u64().unwrap_or(0) + 1).into();
                            Ok(())
                        })
                        .expect("it is tried until it is done");
                }
            });
        }
    });
    let mut sum = 0;
    for name in names {
        let counter = get(&counters, name).unwrap();
        let count = counter["count"].as_u64().unwrap();
        // Each write counts once in the generation, too.
        assert_eq!(counter["metadata"]["generation"], count + 1, "{name}");
        sum += count;
    }
    assert_eq!(sum, THREADS * EACH);
    assert_eq!(counters.storage().kv().revision(), 5 + sum, "one revision each");
}

#[test]
fn only_one_of_many_creates_and_only_one_deletes() {
    let pods = pods();
    for _ in 0..50 {
        let start = Arc::new(Barrier::new(8));
        let outcomes: Vec<_> = thread::scope(|scope| {
            let handles: Vec<_> = (0..8)
                .map(|number| {
                    let (pods, start) = (pods.clone(), Arc::clone(&start));
                    scope.spawn(move || {
                        start.wait();
                        if number % 2 == 0 {
                            (
                                pods.create("default", pod("web"), &CreateOptions::default())
                                    .is_ok(),
                                false,
                            )
                        } else {
                            (
                                false,
                                pods.delete("default", "web", &DeleteOptions::default()).is_ok(),
                            )
                        }
                    })
                })
                .collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).collect()
        });
        let made = outcomes.iter().filter(|(made, _)| *made).count();
        let deleted = outcomes.iter().filter(|(_, deleted)| *deleted).count();
        let left = usize::from(get(&pods, "web").is_ok());
        assert_eq!(made, deleted + left, "{outcomes:?}");
        if left == 1 {
            pods.delete("default", "web", &DeleteOptions::default()).unwrap();
        }
    }
}

#[test]
fn several_who_take_the_last_finalizer_away_are_all_right() {
    for _ in 0..50 {
        let pods = pods();
        create(&pods, json!({"metadata": {"name": "web", "finalizers": ["example.com/wait"]}}));
        pods.delete("default", "web", &DeleteOptions::default()).unwrap();
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    let gone = pods.modify("default", "web", &UpdateOptions::default(), |pod| {
                        pod["metadata"]["finalizers"] = json!([]);
                        Ok(())
                    });
                    if let Err(status) = gone {
                        assert_eq!(status.code(), 404, "{status}");
                    }
                });
            }
        });
        assert_eq!(refused(get(&pods, "web")).code(), 404);
    }
}
