//! Create, get and update: the rules of all kinds.
//!
//! row 20: what_was_read_too_early_is_a_conflict
//! row 21: an_update_without_a_version_is_refused_where_it_has_to_have_one
//! row 25: an_object_is_stored_as_it_is
//! row 28: a_new_object_has_no_version_and_gets_that_of_its_revision
//! row 29: what_has_a_ttl_has_a_lease
//! row 31: an_update_without_a_version_overwrites_where_that_is_allowed
//! row 40: versions_are_opaque_and_come_back_unchanged
//! row 41: a_version_on_creation_is_an_error_and_is_not_ignored
//! row 46: an_update_without_a_version_overwrites_where_that_is_allowed

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use annals::object::{
    CreateOptions, DeleteOptions, GetOptions, Kind, KindStrategy, Preconditions, Reason, Strategy,
    UpdateOptions,
};
use serde_json::{Value, json};

use super::kit::{
    assert_refused, create, generation, get, pod, pod_kind, pods, pods_by, put, refused, store,
    version,
};
use super::under::Objects;

#[test]
fn a_new_object_has_no_version_and_gets_that_of_its_revision() {
    let pods = pods();
    let made = create(&pods, pod("web"));
    assert_eq!(version(&made), "2", "the first revision of a fresh store");
    let metadata = &made["metadata"];
    assert_eq!(metadata["generation"], 1);
    assert_eq!(metadata["creationTimestamp"], "2023-11-14T22:13:20Z");
    assert_eq!(metadata["namespace"], "default");
    let uid = metadata["uid"].as_str().expect("a UID");
    assert_eq!((uid.len(), uid.as_bytes()[14]), (36, b'4'), "a random UUID: {uid}");
    assert_eq!((&made["apiVersion"], &made["kind"]), (&json!("v1"), &json!("Pod")));
    assert_eq!(get(&pods, "web").unwrap(), made);
}

#[test]
fn clients_do_not_set_what_the_system_sets() {
    let pods = pods();
    let made = create(
        &pods,
        json!({"metadata": {
            "name": "web", "uid": "mine", "creationTimestamp": null, "selfLink": "/x", "generation": 7,
            "deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5,
        }}),
    );
    let metadata = &made["metadata"];
    assert_ne!(metadata["uid"], "mine");
    assert_eq!((generation(&made), metadata["creationTimestamp"].is_string()), (1, true));
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        assert_eq!(metadata.get(field), None, "{field}");
    }
}

#[test]
fn a_version_on_creation_is_an_error_and_is_not_ignored() {
    let pods = pods();
    let versioned = json!({"metadata": {"name": "web", "resourceVersion": "7"}});
    for dry_run in [false, true] {
        let options = CreateOptions { dry_run, ..CreateOptions::default() };
        let message = "resourceVersion should not be set on objects to be created";
        assert_refused(pods.create("default", versioned.clone(), &options), 400, message);
    }
    assert_eq!(refused(get(&pods, "web")).code(), 404);
}

#[test]
fn an_object_is_stored_as_it_is() {
    let pods = pods();
    let fixture = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web", "namespace": "default", "labels": {"app": "nginx"},
            "annotations": {"example.com/note": "any text: even this"},
            "unknown": {"kept": [1, 2.5, null, "three"]},
        },
        "spec": {"containers": [{"name": "nginx", "image": "nginx:1.25", "ports": []}], "x": null},
        "status": {"phase": "Running"},
    });
    let made = create(&pods, fixture.clone());
    for field in ["spec", "status", "apiVersion", "kind"] {
        assert_eq!(made[field], fixture[field], "{field}");
    }
    for field in ["labels", "annotations", "unknown"] {
        assert_eq!(made["metadata"][field], fixture["metadata"][field], "{field}");
    }
    let (kv, _) =
        annals::object::Kv::get(&**pods.storage().kv(), b"/registry/pods/default/web", None)
            .unwrap();
    let stored: Value = serde_json::from_slice(&kv.expect("it is there").value).unwrap();
    assert_eq!(stored["metadata"].get("resourceVersion"), None, "the version is not stored");
}

#[test]
fn names_that_are_taken_are_told() {
    let pods = pods();
    create(&pods, pod("web"));
    let twice = pods.create("default", pod("web"), &CreateOptions::default());
    assert_refused(twice, 409, "pods \"web\" already exists");
    let elsewhere = pods.create("other", pod("web"), &CreateOptions::default()).unwrap();
    assert_eq!(elsewhere["metadata"]["namespace"], "other");

    let stuck = json!({"metadata": {"name": "stuck", "finalizers": ["example.com/wait"]}});
    create(&pods, stuck.clone());
    assert!(!pods.delete("default", "stuck", &DeleteOptions::default()).unwrap().is_deleted);
    let message = "object is being deleted: pods \"stuck\" already exists";
    assert_refused(pods.create("default", stuck, &CreateOptions::default()), 409, message);
}

/// Makes up the same name until it has been asked so often.
struct Stubborn {
    asked: Arc<AtomicU32>,
    gives_in_at: u32,
}

impl Strategy for Stubborn {
    fn generate_name(&self, base: &str) -> String {
        match self.asked.fetch_add(1, Ordering::SeqCst) + 1 {
            asked if asked < self.gives_in_at => format!("{base}taken"),
            asked => format!("{base}{asked}"),
        }
    }
}

#[test]
fn a_name_is_made_up_eight_times_at_most() {
    for (gives_in_at, asked_in_all) in [(1, 1), (8, 8), (9, 8)] {
        let asked = Arc::new(AtomicU32::new(0));
        let strategy = Stubborn { asked: Arc::clone(&asked), gives_in_at };
        let pods = Objects::new(store(), pod_kind()).strategy(strategy);
        create(&pods, pod("job-taken"));
        let unnamed = json!({"metadata": {"generateName": "job-"}});
        let made = pods.create("default", unnamed, &CreateOptions::default());
        assert_eq!(asked.load(Ordering::SeqCst), asked_in_all);
        if gives_in_at <= 8 {
            assert_eq!(made.unwrap()["metadata"]["name"], format!("job-{gives_in_at}"));
        } else {
            let message = "pods \"job-taken\" already exists, the server was not able to generate a unique name \
                           for the object";
            let status = refused(made);
            assert_eq!((status.code(), status.message()), (409, message));
            assert_eq!(status.reason(), Reason::AlreadyExists);
            assert_eq!(status.details().retry_after_seconds, 1);
        }
    }
}

#[test]
fn names_are_made_up_of_58_characters_and_5() {
    let pods = pods();
    for base in ["job-".to_owned(), "x".repeat(58), "x".repeat(80)] {
        let made = create(&pods, json!({"metadata": {"generateName": base}}));
        let name = made["metadata"]["name"].as_str().unwrap();
        let kept = &base[..base.len().min(58)];
        assert!(name.starts_with(kept) && name.len() == kept.len() + 5, "{name}");
        let random = &name[kept.len()..];
        assert!(random.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "{name}");
    }
    // A name of its own is kept.
    let both = create(&pods, json!({"metadata": {"name": "own", "generateName": "job-"}}));
    assert_eq!(both["metadata"]["name"], "own");
}

#[test]
fn namespaces_have_to_match() {
    let pods = pods();
    let other = json!({"metadata": {"name": "web", "namespace": "other"}});
    let message =
        "the namespace of the provided object does not match the namespace sent on the request";
    assert_refused(pods.create("default", other.clone(), &CreateOptions::default()), 400, message);
    assert_refused(
        pods.update("default", "web", other.clone(), &UpdateOptions::default()),
        400,
        message,
    );
    let own = pods.create("", other, &CreateOptions::default()).unwrap();
    assert_eq!(own["metadata"]["namespace"], "other");
    let message = "Pod \"web\" is invalid: metadata.namespace: Required value";
    assert_refused(pods.create("", pod("web"), &CreateOptions::default()), 422, message);
    let none = pods.get("", "web", &GetOptions::default());
    assert_refused(none, 400, "Namespace parameter required.");
    assert_refused(get(&pods, ""), 400, "Name parameter required.");
    let message = "Name parameter invalid: \"a/b\": may not contain '/'";
    assert_refused(get(&pods, "a/b"), 400, message);
    assert_eq!(refused(pods.get("a/../b", "web", &GetOptions::default())).code(), 400);

    let nodes = Objects::new(store(), Kind::new("v1", "Node", "nodes").cluster_scoped());
    let node = json!({"metadata": {"name": "one", "namespace": "default"}});
    let made = nodes.create("", node, &CreateOptions::default()).unwrap();
    assert_eq!(made["metadata"].get("namespace"), None);
    assert_eq!(nodes.get("", "one", &GetOptions::default()).unwrap(), made);
}

#[test]
fn objects_of_another_kind_are_refused() {
    let pods = pods();
    let cases = [
        json!({"kind": "Node", "metadata": {"name": "web"}}),
        json!({"kind": 5, "metadata": {"name": "web"}}),
        json!({"apiVersion": "v2", "metadata": {"name": "web"}}),
        json!(["web"]),
        json!("web"),
        Value::Null,
        json!({"metadata": "web"}),
        json!({"metadata": {"name": 5}}),
        json!({"metadata": {"name": "web", "labels": {"a": 1}}}),
        json!({"metadata": {"name": "web", "labels": []}}),
        json!({"metadata": {"name": "web", "finalizers": [1]}}),
        json!({"metadata": {"name": "web", "generation": "1"}}),
        json!({"metadata": {"name": "web", "ownerReferences": {"a": "b"}}}),
    ];
    for case in cases {
        let status = refused(pods.create("default", case.clone(), &CreateOptions::default()));
        assert_eq!(status.code(), 400, "{case}: {status}");
        create(&pods, pod("web"));
        let put = pods.update("default", "web", case.clone(), &UpdateOptions::default());
        assert_eq!(refused(put).code(), 400, "{case}");
        pods.delete("default", "web", &DeleteOptions::default()).unwrap();
    }
    let unnamed = pods.update("default", "web", json!({}), &UpdateOptions::default());
    let message =
        "the name of the object (web based on URL) was undeterminable: name must be provided";
    assert_refused(unnamed, 400, message);
    let message = "the name of the object (api) does not match the name on the URL (web)";
    let renamed = pods.update("default", "web", pod("api"), &UpdateOptions::default());
    assert_refused(renamed, 400, message);
}

#[test]
fn what_was_read_too_early_is_a_conflict() {
    let deployments = Objects::new(store(), Kind::new("apps/v1", "Deployment", "deployments"));
    let mut exported =
        create(&deployments, json!({"metadata": {"name": "nginx-test"}, "spec": {"replicas": 1}}));
    let mut newer = exported.clone();
    newer["spec"]["replicas"] = 2.into();
    put(&deployments, &newer).unwrap();

    exported["spec"]["replicas"] = 3.into();
    let status = refused(put(&deployments, &exported));
    assert_eq!((status.code(), status.reason()), (409, Reason::Conflict));
    let message = "Operation cannot be fulfilled on deployments.apps \"nginx-test\": the object has been modified; \
                   please apply your changes to the latest version and try again";
    assert_eq!(status.message(), message);
    assert_eq!(get(&deployments, "nginx-test").unwrap()["spec"]["replicas"], 2);

    for bad in ["one", "-1", "+1", "1.0", " 1"] {
        exported["metadata"]["resourceVersion"] = bad.into();
        assert_eq!(refused(put(&deployments, &exported)).code(), 422, "{bad}");
    }
}

#[test]
fn an_update_without_a_version_is_refused_where_it_has_to_have_one() {
    let pods = pods_by(KindStrategy::new().no_unconditional_update());
    create(&pods, pod("web"));
    let message = "pods \"web\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an \
                   update";
    assert_refused(put(&pods, &pod("web")), 422, message);
    let mut zero = pod("web");
    zero["metadata"]["resourceVersion"] = "0".into();
    assert_refused(put(&pods, &zero), 422, message);
}

#[test]
fn an_update_without_a_version_overwrites_where_that_is_allowed() {
    let pods = pods();
    let made = create(&pods, pod("web"));
    let mut other = made.clone();
    other["spec"]["nodeName"] = "another".into();
    put(&pods, &other).unwrap();
    let mut blind = pod("web");
    blind["spec"]["nodeName"] = "third".into();
    let written = put(&pods, &blind).unwrap();
    assert_eq!(written["spec"]["nodeName"], "third");
    assert_eq!(written["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!((version(&written), generation(&written)), ("4", 3));
}

#[test]
fn versions_are_opaque_and_come_back_unchanged() {
    let pods = pods();
    let made = create(&pods, pod("web"));
    assert!(made["metadata"]["resourceVersion"].is_string());
    // Written back as it was read, nothing is changed, so nothing is written.
    let same = put(&pods, &made).unwrap();
    assert_eq!(same, made);
    assert_eq!(pods.storage().kv().revision(), 2);
}

#[test]
fn what_is_not_there_is_created_where_that_is_allowed() {
    let plain = pods();
    assert_refused(put(&plain, &pod("web")), 404, "pods \"web\" not found");
    let forced = UpdateOptions { force_allow_create: true, ..UpdateOptions::default() };
    let (made, is_new) = plain.update("default", "web", pod("web"), &forced).unwrap();
    assert!(is_new && generation(&made) == 1 && version(&made) == "2");

    let pods = pods_by(KindStrategy::new().create_on_update());
    let mut object = pod("web");
    object["metadata"]["generation"] = 5.into();
    let (made, is_new) = pods.update("default", "web", object, &UpdateOptions::default()).unwrap();
    assert!(is_new && generation(&made) == 1);
    let (_, is_new) = pods.update("default", "web", pod("web"), &UpdateOptions::default()).unwrap();
    assert!(!is_new);
    // An object with a UID is one that was there.
    let mut gone = made;
    gone["metadata"]["name"] = "gone".into();
    let status = refused(pods.update("default", "gone", gone, &UpdateOptions::default()));
    assert_eq!(status.code(), 409);
    assert!(status.message().contains("Precondition failed: UID in precondition"), "{status}");
}

#[test]
fn preconditions_of_an_update_have_to_be_met() {
    let pods = pods();
    let made = create(&pods, pod("web"));
    let version = version(&made).to_owned();
    let met = Preconditions {
        uid: Some(made["metadata"]["uid"].as_str().unwrap().to_owned()),
        resource_version: Some(version),
    };
    let options = UpdateOptions { preconditions: met, ..UpdateOptions::default() };
    let mut changed = pod("web");
    changed["spec"]["nodeName"] = "another".into();
    pods.update("default", "web", changed.clone(), &options).unwrap();
    let status = refused(pods.update("default", "web", changed, &options));
    assert_eq!(status.code(), 409);
    let what = "Precondition failed: ResourceVersion in precondition: 2, ResourceVersion in object meta: 3";
    assert!(status.message().contains(what), "{status}");
}

#[test]
fn what_cannot_be_changed_is_not() {
    let pods = pods();
    let made = create(&pods, pod("web"));
    let mut changed = made.clone();
    changed["metadata"]["creationTimestamp"] = "2000-01-01T00:00:00Z".into();
    changed["metadata"]["generation"] = 99.into();
    changed["metadata"]["selfLink"] = "/x".into();
    assert_eq!(put(&pods, &changed).unwrap(), made, "what has changed is taken back");

    for (field, value, shown) in [
        ("deletionTimestamp", json!("2024-01-01T00:00:00Z"), "\"2024-01-01T00:00:00Z\""),
        ("deletionGracePeriodSeconds", json!(7), "7"),
    ] {
        let mut changed = made.clone();
        changed["metadata"][field] = value;
        let message = format!(
            "Pod \"web\" is invalid: metadata.{field}: Invalid value: {shown}: field is immutable"
        );
        assert_refused(put(&pods, &changed), 422, &message);
    }
    let mut other = made;
    other["metadata"]["uid"] = "other".into();
    assert_eq!(refused(put(&pods, &other)).code(), 409, "another UID is another object");
}

#[test]
fn what_has_a_ttl_has_a_lease() {
    let pods = pods_by(KindStrategy::new().ttl(300));
    let lease = |pods: &Objects, name: &str| {
        let key = format!("/registry/pods/default/{name}");
        let (kv, _) =
            annals::object::Kv::get(&**pods.storage().kv(), key.as_bytes(), None).unwrap();
        kv.expect("it is there").lease
    };
    create(&pods, pod("by-kind"));
    assert_ne!(lease(&pods, "by-kind"), 0);
    let for_ever = CreateOptions { ttl: Some(0), ..CreateOptions::default() };
    pods.create("default", pod("for-ever"), &for_ever).unwrap();
    assert_eq!(lease(&pods, "for-ever"), 0);

    // A kind without: it keeps what it has, unless the update says otherwise.
    let plain = self::pods();
    let options = CreateOptions { ttl: Some(300), ..CreateOptions::default() };
    plain.create("default", pod("web"), &options).unwrap();
    let had = lease(&plain, "web");
    assert_ne!(had, 0);
    let mut changed = pod("web");
    changed["spec"]["nodeName"] = "another".into();
    put(&plain, &changed).unwrap();
    assert_eq!(lease(&plain, "web"), had);
    changed["spec"]["nodeName"] = "third".into();
    let for_ever = UpdateOptions { ttl: Some(0), ..UpdateOptions::default() };
    plain.update("default", "web", changed, &for_ever).unwrap();
    assert_eq!(lease(&plain, "web"), 0);
}

#[test]
fn dry_runs_do_everything_but_write() {
    let pods = pods();
    let create_dry = CreateOptions { dry_run: true, ..CreateOptions::default() };
    let made = pods.create("default", pod("web"), &create_dry).unwrap();
    assert_eq!((version(&made), generation(&made)), ("", 1));
    assert_eq!(refused(get(&pods, "web")).code(), 404);

    let there = create(&pods, pod("web"));
    let taken = pods.create("default", pod("web"), &create_dry);
    assert_refused(taken, 409, "pods \"web\" already exists");
    // A version that is none is no obstacle, here as there.
    for none in ["", "0", "none"] {
        let mut unversioned = pod("versioned");
        unversioned["metadata"]["resourceVersion"] = none.into();
        assert!(pods.create("default", unversioned, &create_dry).is_ok(), "{none}");
    }
    let mut versioned = pod("versioned");
    versioned["metadata"]["resourceVersion"] = "1".into();
    assert_eq!(refused(pods.create("default", versioned, &create_dry)).code(), 400);

    let put_dry = UpdateOptions { dry_run: true, ..UpdateOptions::default() };
    let mut changed = there.clone();
    changed["spec"]["nodeName"] = "another".into();
    let (would, _) = pods.update("default", "web", changed.clone(), &put_dry).unwrap();
    assert_eq!((version(&would), generation(&would)), (version(&there), 2));
    changed["metadata"]["resourceVersion"] = "1".into();
    assert_eq!(refused(pods.update("default", "web", changed, &put_dry)).code(), 409);
    let absent = pods.update("default", "absent", pod("absent"), &put_dry);
    assert_eq!(refused(absent).code(), 404);
    let forced = UpdateOptions { force_allow_create: true, ..put_dry };
    let (made, is_new) = pods.update("default", "absent", pod("absent"), &forced).unwrap();
    assert!(is_new && version(&made).is_empty());

    assert_eq!(get(&pods, "web").unwrap(), there);
    assert_eq!(pods.storage().kv().revision(), 2, "nothing else has been written");
}

#[test]
fn what_is_gone_is_not_made_again_from_a_version() {
    let pods = pods_by(KindStrategy::new().create_on_update());
    let mut read = create(&pods, pod("web"));
    pods.delete("default", "web", &DeleteOptions::default()).unwrap();
    read["metadata"].as_object_mut().unwrap().remove("uid");
    let status = refused(put(&pods, &read));
    assert_eq!((status.code(), status.reason()), (409, Reason::Conflict));
    read["metadata"]["resourceVersion"] = "0".into();
    assert!(put(&pods, &read).is_ok());
}

#[test]
fn gets_wait_for_no_version_that_is_to_come() {
    let pods = pods();
    create(&pods, pod("web"));
    let at = |resource_version: &str| {
        let options =
            GetOptions { resource_version: resource_version.into(), ignore_not_found: false };
        pods.get("default", "web", &options)
    };
    for fine in ["", "0", "1", "2"] {
        assert!(at(fine).is_ok(), "{fine}");
    }
    let status = refused(at("3"));
    assert_eq!(
        (status.code(), status.message()),
        (504, "Timeout: Too large resource version: 3, current: 2")
    );
    assert_eq!(status.details().causes[0].reason, "ResourceVersionTooLarge");
    assert_eq!(refused(at("three")).code(), 400);
}

#[test]
fn count_counts_a_namespace_or_all() {
    let pods = pods();
    for (namespace, name) in [("a", "one"), ("a", "two"), ("ab", "three")] {
        pods.create(namespace, pod(name), &CreateOptions::default()).unwrap();
    }
    assert_eq!(pods.count("a").unwrap(), 2);
    assert_eq!(pods.count("").unwrap(), 3);
    assert_eq!(pods.count("none").unwrap(), 0);
}
