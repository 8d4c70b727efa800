//! Watches: the cases of `k8s.io/apiserver/pkg/storage/testing/watcher_tests.go`, and what they leave out.
//!
//! row 7: a_watch_begins_behind_its_version
//! row 10: a_watch_from_zero_begins_with_what_there_is

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use annals::Options;
use annals::object::WatchEventKind::{Added, Bookmark, Deleted, Error, Modified};
use annals::object::{ListOptions, ObjectWatch, Reason, WatchEvent, WatchEventKind, WatchOptions};
use serde_json::{Value, json};

use super::under::{Store, needs_the_store};
use super::world::{
    PATIENCE, World, expect, expect_error, key_of, next, number, pod, selecting, version, with,
};

/// What a pod becomes, and as what that is told.
type Steps = Vec<(Value, Option<WatchEventKind>)>;

pub fn all() -> WatchOptions {
    WatchOptions { recursive: true, ..WatchOptions::default() }
}

pub fn from(version: impl ToString) -> WatchOptions {
    WatchOptions { resource_version: version.to_string(), ..all() }
}

/// Nothing more has been told by now: all there is comes before a change that is made here.
fn expect_no_more(world: &World, watch: &mut ObjectWatch<Store>) {
    let key = "/pods/ns/sentinel";
    let made = world.update(key, |pod| {
        *pod = with(
            super::world::pod("ns", "sentinel"),
            &["metadata", "labels"],
            json!({"select": "true"}),
        );
    });
    let WatchEvent { kind, object, .. } = next(watch);
    assert_eq!((kind, object), (Added, made));
    world.delete(key);
    assert_eq!(next(watch).kind, Deleted);
}

/// `RunTestWatch`: each step is what a pod becomes (null: it is deleted), and as what that is told.
#[test]
fn changes_are_told_as_selectors_see_them() {
    let base = pod("ns", "foo");
    let assigned = with(base.clone(), &["spec"], json!({"nodeName": "bar"}));
    let selected =
        |pod: &Value| with(pod.clone(), &["metadata", "labels"], json!({"select": "true"}));
    let table: Vec<(&str, &str, Steps)> = vec![
        ("", "", vec![(base.clone(), Some(Added))]),
        ("", "spec.nodeName=bar", vec![(base.clone(), None), (assigned.clone(), Some(Added))]),
        (
            "",
            "",
            vec![
                (base.clone(), Some(Added)),
                (assigned.clone(), Some(Modified)),
                (Value::Null, Some(Deleted)),
            ],
        ),
        (
            "",
            "spec.nodeName!=bar",
            vec![
                (base.clone(), Some(Added)),
                (assigned.clone(), Some(Deleted)),
                (Value::Null, None),
            ],
        ),
        (
            "select=true",
            "",
            vec![
                (selected(&base), Some(Added)),
                (base.clone(), Some(Deleted)),
                (assigned.clone(), None),
                (selected(&base), Some(Added)),
                (selected(&assigned), Some(Modified)),
                (Value::Null, Some(Deleted)),
                (base.clone(), None),
                (Value::Null, None),
            ],
        ),
    ];
    for is_recursive in [false, true] {
        for (label, field, steps) in &table {
            let world = World::new();
            let key = if is_recursive { "/pods/ns" } else { "/pods/ns/foo" };
            let options = ListOptions { recursive: is_recursive, ..ListOptions::default() };
            let resource_version = world.pods.list(key, &options).unwrap().resource_version;
            let predicate = selecting(label, field);
            let mut watch = world.watch(
                key,
                &WatchOptions { resource_version, predicate, recursive: is_recursive, ..all() },
            );
            // Neighbours are not told.
            world.make(&pod("ns-bad", "foo"));
            if !is_recursive {
                world.make(&pod("ns", "foofoo"));
            }
            let mut before = Value::Null;
            for (object, told) in steps {
                let after = if object.is_null() {
                    world.delete("/pods/ns/foo")
                } else {
                    world.update("/pods/ns/foo", |pod| *pod = object.clone())
                };
                match told {
                    Some(Deleted) => {
                        // As it was, with the version of the change.
                        let gone =
                            with(before.clone(), &["metadata", "resourceVersion"], version(&after));
                        expect(&mut watch, Deleted, &gone);
                    }
                    Some(kind) => expect(&mut watch, kind.clone(), &after),
                    None => {}
                }
                before = after;
            }
            let handle = watch.handle();
            handle.cancel();
            assert_eq!(watch.next(), None);
            assert!(handle.is_ended());
        }
    }
}

/// `RunTestWatchFromZero`.
#[test]
fn a_watch_from_zero_begins_with_what_there_is() {
    for zero in ["", "0"] {
        let world = World::new();
        let (key, made) = world.make(&pod("ns", "foo"));
        let options = WatchOptions { resource_version: zero.into(), ..WatchOptions::default() };
        let mut watch = world.watch(&key, &options);
        expect(&mut watch, Added, &made);
        let second = world.update(&key, |pod| pod["spec"] = json!({"nodeName": "a"}));
        expect(&mut watch, Modified, &second);
        drop(watch);
        // As it is, and not as it became that.
        expect(&mut world.watch(&key, &options), Added, &second);
        let third = world.update(&key, |pod| pod["spec"] = json!({"nodeName": "b"}));
        world.store.compact(number(&third)).unwrap();
        expect(&mut world.watch(&key, &options), Added, &third);
        world.update(&key, |pod| pod["spec"] = json!({"nodeName": "c"}));
        let gone = expect_error(
            world.watch(&key, &WatchOptions { resource_version: version(&made).into(), ..options }),
        );
        assert_eq!((gone.code(), gone.reason()), (410, Reason::Expired));
        assert_eq!(gone.message(), "The resourceVersion for the provided watch is too old.");
    }
}

#[test]
fn a_watch_begins_behind_its_version() {
    needs_the_store!();
    let world = World::new();
    let (key, first) = world.make(&pod("ns", "foo"));
    let second = world.update(&key, |pod| pod["spec"] = json!({"nodeName": "a"}));
    let third = world.update(&key, |pod| pod["spec"] = json!({"nodeName": "b"}));
    let gone = world.delete(&key);
    let mut watch = world.watch("/pods", &from(version(&first)));
    expect(&mut watch, Modified, &second);
    expect(&mut watch, Modified, &third);
    // `RunTestWatchDeleteEventObjectHaveLatestRV`.
    expect(&mut watch, Deleted, &gone);
    assert!(number(&gone) > number(&third));
    expect(&mut world.watch("/pods", &from(1)), Added, &first);
    // A version that is still to come is waited for.
    let mut future = world.watch("/pods", &from(number(&gone) + 2));
    world.make(&pod("ns", "one"));
    world.make(&pod("ns", "two"));
    let three = world.make(&pod("ns", "three")).1;
    expect(&mut future, Added, &three);
    // Of the revision that has been compacted up to, all is there.
    world.store.compact(number(&gone)).unwrap();
    expect(&mut world.watch("/pods", &from(version(&third))), Deleted, &gone);
    assert!(world.pods.watch("/pods", &from("abc")).is_err());
    assert!(world.pods.watch("/pods/../a", &all()).is_err());
}

/// `RunWatchSemantics`.
#[test]
fn initial_events_are_told_if_they_are_wanted() {
    for allow_bookmarks in [true, false] {
        for send_initial_events in [Some(true), Some(false), None] {
            for asked in ["", "0", "1", "current"] {
                let world = World::new();
                let mut made: Vec<_> =
                    ["1", "2", "3"].iter().map(|name| world.make(&pod("ns", name)).1).collect();
                world.make(&pod("other", "1"));
                let current = world.store.revision().to_string();
                let resource_version =
                    if asked == "current" { current.clone() } else { asked.to_owned() };
                let bookmark = json!({"kind": "Pod", "apiVersion": "v1"});
                let options = WatchOptions {
                    resource_version,
                    send_initial_events,
                    allow_bookmarks,
                    bookmark,
                    ..all()
                };
                let mut watch = world.watch("/pods/ns", &options);
                let is_legacy = matches!(asked, "" | "0");
                // From version 1 on these are changes, and not what there was.
                if send_initial_events.unwrap_or(is_legacy) || asked == "1" {
                    for pod in made.drain(..) {
                        expect(&mut watch, Added, &pod);
                    }
                }
                if send_initial_events == Some(true) && allow_bookmarks {
                    let annotations = json!({"k8s.io/initial-events-end": "true"});
                    let metadata = json!({"resourceVersion": current, "annotations": annotations});
                    let object = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata});
                    expect(&mut watch, Bookmark, &object);
                }
                for name in ["4", "5"] {
                    let made = world.make(&pod("ns", name)).1;
                    expect(&mut watch, Added, &made);
                }
                expect_no_more(&world, &mut watch);
            }
        }
    }
}

/// `RunWatchListMatchSingle`, and `TestTooLargeResourceVersionErrorForWatchList`.
#[test]
fn initial_events_are_selected_and_not_older() {
    let world = World::new();
    let first = world.make(&pod("ns", "1")).1;
    for name in ["2", "3", "4"] {
        world.make(&pod("ns", name));
    }
    let options = WatchOptions {
        send_initial_events: Some(true),
        allow_bookmarks: true,
        predicate: selecting("", "metadata.name=1"),
        ..all()
    };
    let mut watch = world.watch("/pods", &options);
    expect(&mut watch, Added, &first);
    let end = next(&mut watch);
    assert_eq!((end.kind, number(&end.object)), (Bookmark, world.store.revision()));
    let newest = world.store.revision();
    let future = (newest + 1).to_string();
    let refused = expect_error(
        world.watch("/pods", &WatchOptions { resource_version: future.clone(), ..options }),
    );
    assert_eq!((refused.code(), refused.details().retry_after_seconds), (504, 1));
    assert_eq!(
        refused.message(),
        format!("Timeout: Too large resource version: {future}, current: {newest}")
    );
}

/// `RunOptionalTestProgressNotify`, and a client to which nothing of what happens matters.
#[test]
fn bookmarks_tell_how_far_it_is() {
    let world = World::with(Options::new());
    world.make(&pod("ns", "a"));
    let every = Some(Duration::from_millis(100));
    let options = WatchOptions { allow_bookmarks: true, bookmarks_every: every, ..from(1) };
    let quiet = WatchOptions { allow_bookmarks: false, ..options.clone() };
    let selecting = WatchOptions { predicate: selecting("never", ""), ..options.clone() };
    let mut watch = world.watch("/pods", &options);
    assert_eq!(next(&mut watch).kind, Added);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // A progress of the store is by its clock, which stands still unless it is moved.
            while !is_over.load(Ordering::Relaxed) {
                world.clock.advance(50_000);
                world.update("/pods/ns/b", |pod| {
                    pod["metadata"]["name"] = "b".into();
                    pod["spec"] = json!({"n": pod["spec"]["n"].as_u64().unwrap_or(0) + 1});
                });
                thread::sleep(Duration::from_millis(5));
            }
        });
        let mut bare = world.watch("/pods", &selecting);
        let mut told = 0;
        for _ in 0..3 {
            let event = next(&mut bare);
            assert_eq!(event.kind, Bookmark, "nothing else is wanted");
            assert!(number(&event.object) > told, "{event:?}");
            told = number(&event.object);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let last = world.store.revision();
    let mut silent =
        world.watch("/pods", &WatchOptions { resource_version: last.to_string(), ..quiet });
    let mut watch =
        world.watch("/pods", &WatchOptions { resource_version: last.to_string(), ..options });
    // Somebody else's change moves the version, and is not told.
    world.store.put("elsewhere", "").unwrap();
    let event = loop {
        world.clock.advance(200_000);
        match watch.next_timeout(Duration::from_millis(20)) {
            Some(event) if number(&event.object) > last => break event,
            _ => {}
        }
    };
    assert_eq!(event.object, json!({"metadata": {"resourceVersion": (last + 1).to_string()}}));
    assert_eq!(serde_json::to_value(&event).unwrap()["type"], "BOOKMARK");
    let made = world.make(&pod("ns", "c")).1;
    expect(&mut silent, Added, &made);
}

/// `RunTestWatchError`, `RunWatchErrorIsBlockingFurtherEvents`, `RunTestWatchWithUnsafeDelete`.
#[test]
fn nothing_is_told_behind_an_error() {
    let world = World::new();
    let (key, made) = world.make(&pod("ns", "a"));
    world.store.put("/registry/pods/ns/b", "test!{").unwrap();
    world.make(&pod("ns", "c"));
    let broken = expect_error(world.watch("/pods", &from(version(&made))));
    assert_eq!((broken.code(), broken.reason()), (500, Reason::InternalError));
    assert!(broken.message().starts_with("Internal error occurred: EOF while parsing"), "{broken}");
    // Also among what there is.
    let mut watch = world.watch("/pods", &all());
    expect(&mut watch, Added, &made);
    assert_eq!(expect_error(watch).reason(), Reason::InternalError);

    let last = world.store.revision();
    world.store.delete("/registry/pods/ns/b").unwrap();
    let deleted = expect_error(world.watch("/pods", &from(last)));
    assert_eq!((deleted.code(), deleted.reason()), (500, Reason::StoreReadError));
    let message =
        "saw a DELETED event, but object data is corrupt - object not decodable revision=";
    assert!(deleted.message().starts_with(message), "{deleted}");

    let last = world.store.revision();
    world.update(&key, |pod| pod["spec"] = json!({"nodeName": "n"}));
    world.delete(&key);
    world.transformer.set_failing(true);
    // Upstream it is 500 also here: who then lists anew helps himself, who does so for 410 alone is stuck.
    assert_eq!(expect_error(world.watch("/pods", &from(last))).reason(), Reason::Expired);
    let gone = expect_error(world.watch("/pods", &from(last + 1)));
    assert_eq!((gone.code(), gone.reason()), (410, Reason::Expired));
    assert!(gone.message().contains("data from the storage is not transformable"), "{gone}");
}

#[test]
fn a_watch_that_waits_can_be_ended() {
    let world = World::new();
    let watch = world.watch("/pods", &all());
    let handle = watch.handle();
    let told = thread::spawn(move || watch.count());
    handle.cancel();
    assert_eq!(told.join().unwrap(), 0);
    // Also while it tells what there is.
    world.make(&pod("ns", "a"));
    world.make(&pod("ns", "b"));
    let mut watch = world.watch("/pods", &all());
    assert_eq!(next(&mut watch).kind, Added);
    watch.handle().cancel();
    assert_eq!(watch.next_timeout(PATIENCE), None);
    // And by a store that is closed. An etcd that is gone may come again.
    let Some(store) = world.store.embedded() else { return };
    let mut watch = world.watch("/pods", &from(world.store.revision()));
    assert_eq!(watch.next_timeout(Duration::ZERO), None);
    assert!(!watch.handle().is_ended());
    store.clone().close().unwrap();
    assert_eq!(
        watch
            .next_timeout(PATIENCE)
            .map(|event| event.kind)
            .filter(|kind| !matches!(kind, Error(_))),
        None
    );
    assert!(watch.handle().is_ended());
}

/// What a watch had been told of before it is compacted away is told; then it says so.
#[test]
fn a_watch_that_is_behind_is_told_so() {
    let world = World::new();
    let (key, made) = world.make(&pod("ns", "a"));
    let mut watch = world.watch("/pods", &from(version(&made)));
    for n in 0..50 {
        world.update(&key, |pod| pod["spec"] = json!({"n": n}));
    }
    world.store.compact(world.store.revision()).unwrap();
    let mut last = number(&made);
    loop {
        let event = next(&mut watch);
        if let Error(status) = event.kind {
            assert_eq!(
                (status.code(), status.message()),
                (410, "The resourceVersion for the provided watch is too old.")
            );
            break;
        }
        assert_eq!(number(&event.object), last + 1, "in order, and nothing left out");
        last += 1;
        if last == world.store.revision() {
            return;
        }
    }
    assert_eq!(watch.next(), None);
}

/// What there was is told as it was, also if that has been changed and compacted since; then what came.
#[test]
fn the_beginning_stays_as_it_was() {
    let world = World::new();
    let made: Vec<_> = ["a", "b", "c"].iter().map(|name| world.make(&pod("ns", name)).1).collect();
    let mut watch = world.watch("/pods", &all());
    expect(&mut watch, Added, &made[0]);
    let before = world.store.revision();
    world.update("/pods/ns/b", |pod| pod["spec"] = json!({"nodeName": "b"}));
    world.delete("/pods/ns/c");
    world.store.compact(world.store.revision()).unwrap();
    expect(&mut watch, Added, &made[1]);
    expect(&mut watch, Added, &made[2]);
    let mut last = before;
    while last < world.store.revision() {
        let event = next(&mut watch);
        if let Error(status) = event.kind {
            assert_eq!(status.code(), 410);
            return;
        }
        assert_eq!(number(&event.object), last + 1);
        last += 1;
    }
}

/// All changes of a transaction are told, in its order.
#[test]
fn a_transaction_of_many_is_told_whole() {
    let world = World::new();
    let names: Vec<_> = (0..40).map(|n| format!("{:02}", (n * 7) % 40)).collect();
    let put = |name: &String| {
        let pod = format!("test!{}", pod("ns", name));
        (format!("/registry{}", key_of(&super::world::pod("ns", name))), pod)
    };
    let mut watch = world.watch("/pods", &from(1));
    world.store.put_all(names.iter().map(put));
    let told: Vec<_> = names.iter().map(|_| next(&mut watch)).collect();
    assert!(told.iter().all(|event| event.kind == Added && version(&event.object) == "2"));
    let told: Vec<_> =
        told.iter().map(|event| event.object["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(told, names);
}

#[test]
fn who_does_not_want_to_wait_is_not_kept_by_what_is_not_wanted() {
    const PODS: usize = 2_500;
    let world = World::new();
    for n in 0..PODS {
        world.pods.create(&format!("/pods/ns/{n}"), pod("ns", &n.to_string()), 0).unwrap();
    }
    let options = WatchOptions {
        send_initial_events: Some(true),
        allow_bookmarks: true,
        recursive: true,
        predicate: selecting("wanted", ""),
        ..WatchOptions::default()
    };
    let mut watch = world.watch("/pods", &options);
    let mut calls = 1;
    let end = loop {
        match watch.next_timeout(Duration::ZERO) {
            Some(event) => break event,
            None => calls += 1,
        }
        assert!(!watch.handle().is_ended() && calls <= PODS, "it goes on");
    };
    assert_eq!((end.kind, calls), (Bookmark, 3));
}
