//! Objects as they were: at a version, and all versions of one.

use std::sync::Arc;

use annals::object::{
    CreateOptions, DeleteOptions, HistoryOptions, Kind, ListOptions, ObjectHistory, ObjectState,
    ObjectVersion, Reason, ResourceVersionMatch, Result, Strategy, UpdateOptions,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::between::world;
use super::kit::{create, get, pod, pods, refused, store, version};
use super::under::{Objects, needs_the_store};

fn set(objects: &Objects, name: &str, replicas: u64) -> Value {
    let set = objects.modify("default", name, &UpdateOptions::default(), |object| {
        object["replicas"] = replicas.into();
        Ok(())
    });
    set.expect("it is changed")
}

fn delete(objects: &Objects, name: &str) {
    objects.delete("default", name, &DeleteOptions::default()).expect("it is deleted");
}

fn told<T>(history: Result<ObjectHistory<T>>) -> Vec<Result<ObjectVersion<T>>> {
    history.expect("it can be told").collect()
}

fn history(objects: &Objects, name: &str) -> Vec<Result<ObjectVersion>> {
    told(objects.history("default", name, &HistoryOptions::default()))
}

/// The versions as one text each.
fn short(versions: &[Result<ObjectVersion>]) -> Vec<String> {
    let short = versions.iter().map(|version| match version {
        Ok(ObjectVersion { resource_version, state, .. }) => {
            let state = match state {
                ObjectState::Created(object) => {
                    assert_eq!(self::version(object), resource_version);
                    format!("created {}", object["replicas"])
                }
                ObjectState::Changed(object) => {
                    assert_eq!(self::version(object), resource_version);
                    format!("changed {}", object["replicas"])
                }
                ObjectState::Deleted => "deleted".into(),
                ObjectState::Unreadable(why) => format!("unreadable {}", why.code()),
                other => format!("{other:?}"),
            };
            format!("{resource_version} {state}")
        }
        Err(status) => status.code().to_string(),
    });
    short.collect()
}

#[test]
fn an_object_is_told_as_it_was_at_every_version() {
    let pods = pods();
    let versions = [create(&pods, pod("web")), set(&pods, "web", 1), set(&pods, "web", 2)];
    create(&pods, pod("other"));
    delete(&pods, "web");
    let anew = create(&pods, pod("web"));
    let at = |version: &str| pods.get_at("default", "web", version);
    for (revision, expected) in
        [(2, &versions[0]), (3, &versions[1]), (4, &versions[2]), (5, &versions[2]), (7, &anew)]
    {
        assert_eq!(&at(&revision.to_string()).unwrap(), expected);
        // The list of that version has it the same.
        let list = ListOptions {
            resource_version: revision.to_string(),
            resource_version_match: Some(ResourceVersionMatch::Exact),
            ..ListOptions::default()
        };
        let items = pods.list("default", &list).unwrap().items;
        assert!(items.contains(expected), "{items:?}");
    }
    for revision in ["1", "6"] {
        assert_eq!(refused(at(revision)).reason(), Reason::NotFound, "{revision}");
    }
    let future = refused(at("8"));
    assert_eq!((future.code(), future.details().causes.len()), (504, 1), "{future}");
    for bad in ["", "0", "x", "-1", "1.0", "99999999999999999999"] {
        assert_eq!(refused(at(bad)).code(), 400, "{bad}");
        if !bad.is_empty() {
            let options = HistoryOptions { before: bad.into(), limit: 0 };
            assert_eq!(refused(pods.history("default", "web", &options)).code(), 400, "{bad}");
        }
    }
    assert_eq!(refused(pods.get_at("", "web", "2")).code(), 400);
    assert_eq!(refused(pods.get_at("default", "a/b", "2")).code(), 400);
    // Nobody else is told.
    assert_eq!(refused(pods.get_at("kube-system", "web", "4")).code(), 404);
}

#[test]
fn a_history_goes_back_beyond_deletions() {
    needs_the_store!();
    let pods = pods();
    assert_eq!(history(&pods, "web"), []);
    create(&pods, pod("web"));
    set(&pods, "web", 1);
    create(&pods, pod("web-2"));
    delete(&pods, "web");
    assert_eq!(short(&history(&pods, "web")), ["5 deleted", "3 changed 1", "2 created null"]);
    create(&pods, pod("web"));
    let all = history(&pods, "web");
    let expected = ["6 created null", "5 deleted", "3 changed 1", "2 created null"];
    assert_eq!(short(&all), expected);
    assert_eq!(all[0].as_ref().unwrap().object(), get(&pods, "web").ok().as_ref());
    assert_eq!(all[1].as_ref().unwrap().object(), None);
    // In pages of every size it is the same, also from a version that is not its own.
    for limit in 1..=5 {
        let mut options = HistoryOptions { before: String::new(), limit };
        let mut pages = Vec::new();
        loop {
            let page = told(pods.history("default", "web", &options));
            assert!(page.len() as u64 <= limit);
            let Some(Ok(last)) = page.last() else { break };
            options.before = last.resource_version.clone();
            pages.extend(page);
        }
        assert_eq!(pages, all, "{limit}");
    }
    for (before, rest) in
        [("7", None), ("6", Some(1)), ("5", Some(2)), ("4", Some(2)), ("1", Some(4))]
    {
        let options = HistoryOptions { before: before.into(), limit: 0 };
        let Some(rest) = rest else {
            assert_eq!(refused(pods.history("default", "web", &options)).code(), 504);
            continue;
        };
        let told = told(pods.history("default", "web", &options));
        assert_eq!(Some(told.as_slice()), all.get(rest..), "{before}");
    }
}

#[test]
fn what_has_been_compacted_is_told_to_be_missing() {
    let store = store();
    let pods = Objects::new(Arc::clone(&store), Kind::new("v1", "Pod", "pods"));
    create(&pods, pod("web"));
    set(&pods, "web", 1);
    create(&pods, pod("gone"));
    delete(&pods, "gone");
    set(&pods, "web", 2);
    store.compact(6).unwrap();
    set(&pods, "web", 3);
    create(&pods, pod("young"));
    set(&pods, "young", 1);

    // What was there at the compaction is kept.
    assert_eq!(short(&history(&pods, "web")), ["7 changed 3", "6 changed 2", "410"]);
    assert_eq!(pods.get_at("default", "web", "6").unwrap()["replicas"], 2);
    assert_eq!(refused(pods.get_at("default", "web", "5")).reason(), Reason::Expired);
    let before = |before: &str| {
        let options = HistoryOptions { before: before.into(), limit: 0 };
        pods.history("default", "web", &options).map(|history| short(&told(Ok(history))))
    };
    assert_eq!(before("7").unwrap(), ["6 changed 2", "410"]);
    assert_eq!(before("6").unwrap(), ["410"]);
    assert_eq!(refused(before("5")).code(), 410);
    // Of what is younger nothing is missing, and of what is gone nothing is known.
    assert_eq!(short(&history(&pods, "young")), ["9 changed 1", "8 created null"]);
    let options = HistoryOptions { before: "8".into(), limit: 0 };
    assert_eq!(told(pods.history("default", "young", &options)), []);
    assert_eq!(history(&pods, "gone"), []);
    delete(&pods, "web");
    store.compact(10).unwrap();
    let left = history(&pods, "web");
    assert!(
        left.iter().all(|version| version.as_ref().is_ok_and(|it| it.object().is_none())
            || version.as_ref().is_err_and(|status| status.code() == 410)),
        "{left:?}"
    );
}

#[test]
fn objects_of_the_cluster_have_a_history_and_a_key() {
    needs_the_store!();
    let store = store();
    let kind = Kind::new("acme.io/v1", "Zone", "zones").cluster_scoped();
    let zones = Objects::new(Arc::clone(&store), kind).prefix("/other");
    let made =
        zones.create("", json!({"metadata": {"name": "a"}}), &CreateOptions::default()).unwrap();
    zones.delete("", "a", &DeleteOptions::default()).unwrap();
    assert_eq!(zones.get_at("", "a", version(&made)).unwrap(), made);
    let told = told(zones.history("", "a", &HistoryOptions::default()));
    assert_eq!(short(&told), ["3 deleted", "2 created null"]);
    // The key is that of the store.
    let key = zones.key("", "a").unwrap();
    assert_eq!(key, "/other/acme.io/zones/a");
    assert_eq!(store.history(&key).count(), 2);
    assert_eq!(refused(zones.key("", "a/b")).code(), 400);
    assert_eq!(refused(pods().key("", "a")).code(), 400);
    assert_eq!(pods().key("default", "a").unwrap(), "/registry/pods/default/a");
}

#[cfg(feature = "encryption")]
#[test]
fn what_cannot_be_read_in_between_is_told_and_passed_over() {
    use annals::object::{AesGcm, EncryptionKey};
    let key = |name: &str, byte| EncryptionKey::new(name, &[byte; 32]).unwrap();
    let store = store();
    let secrets = || Objects::new(Arc::clone(&store), Kind::new("v1", "Secret", "secrets"));
    let by = |keys: AesGcm| secrets().transformer(Arc::new(keys.or_unencrypted()));
    let plain = secrets();
    create(&plain, pod("db"));
    let old = by(AesGcm::new(key("old", 1)));
    set(&old, "db", 1);
    let both = AesGcm::new(key("new", 2)).or(key("old", 1)).unwrap();
    let both = by(both);
    set(&both, "db", 2);
    let all = ["4 changed 2", "3 changed 1", "2 created null"];
    assert_eq!(short(&history(&both, "db")), all);
    assert_eq!(both.get_at("default", "db", "3").unwrap()["replicas"], 1);
    // Without the key of the version in between.
    let new = AesGcm::new(key("new", 2));
    let new = by(new);
    let told = history(&new, "db");
    assert_eq!(short(&told), ["4 changed 2", "3 unreadable 500", "2 created null"]);
    assert_eq!(refused(new.get_at("default", "db", "3")).code(), 500);
    // What is wrong is said, and no part of the object.
    let Ok(ObjectVersion { state: ObjectState::Unreadable(why), .. }) = &told[1] else {
        panic!("{told:?}")
    };
    assert!(!why.message().contains("replicas"), "{why}");
}

/// A store of which nobody can ask for the last change of a key.
#[test]
fn a_store_that_can_only_be_read_at_revisions_tells_the_present_life_of_an_object() {
    let (pods, simple) = world();
    create(&pods, pod("web"));
    delete(&pods, "web");
    create(&pods, pod("web"));
    set(&pods, "web", 1);
    let all = || short(&told(simple.history("default", "web", &HistoryOptions::default())));
    assert_eq!(all(), ["5 changed 1", "4 created null"]);
    assert_eq!(version(&simple.get_at("default", "web", "2").unwrap()), "2");
    let before = |before: &str| {
        let options = HistoryOptions { before: before.into(), limit: 0 };
        short(&told(simple.history("default", "web", &options)))
    };
    assert_eq!(before("3"), ["2 created null"], "the deletion is known from elsewhere");
    delete(&pods, "web");
    assert_eq!(all(), [""; 0]);
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Counter {
    metadata: Value,
    count: u64,
    shown: bool,
}

/// Shows what is not stored.
struct Shown;

impl Strategy for Shown {
    fn decorate(&self, object: &mut Value) {
        object["shown"] = true.into();
    }

    fn prepare_for_update(&self, object: &mut Value, _: &Value) {
        object.as_object_mut().unwrap().remove("shown");
    }
}

#[test]
fn what_is_told_is_decorated_and_of_its_type() {
    let kind = Kind::new("v1", "Counter", "counters");
    let counters = Objects::new(store(), kind).strategy(Shown);
    let typed = counters.typed::<Counter>();
    let odd = json!({"metadata": {"name": "a"}, "count": "none"});
    create(&counters, odd);
    for count in 1..=2 {
        let set = counters.modify("default", "a", &UpdateOptions::default(), |counter| {
            counter["count"] = count.into();
            Ok(())
        });
        set.unwrap();
    }
    let told = told(typed.history("default", "a", &HistoryOptions::default()));
    let counts: Vec<_> = told
        .iter()
        .map(|version| match &version.as_ref().unwrap().state {
            ObjectState::Changed(counter) => Some(counter.count),
            ObjectState::Unreadable(why) => {
                assert!(why.message().contains("counters \"default/a\""), "{why}");
                None
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(counts, [Some(2), Some(1), None]);
    assert_eq!(typed.get_at("default", "a", "3").unwrap().count, 1);
    assert_eq!(refused(typed.get_at("default", "a", "2")).code(), 500);
}
