//! Deletion: at once, gracefully, and when the finalizers are gone. The tables are those of
//! `pkg/registry/generic/registry/store_test.go` and `pkg/registry/rest/delete_test.go` of `k8s.io/apiserver`.
//!
//! row 37: a_deletion_answers_with_its_own_revision
//! row 44: preconditions_of_a_deletion_have_to_be_met

use std::sync::Arc;

use annals::clock::ManualClock;
use annals::object::{
    Cause, DeleteOptions, Deletion, GarbageCollection, KindStrategy, Preconditions,
    PropagationPolicy, Result, Strategy, UpdateOptions,
};
use serde_json::{Value, json};

use super::kit::{
    NOW, assert_refused, create, generation, get, pod, pod_kind, pods, pods_by, put, refused,
    store, version,
};
use super::under::Objects;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

fn delete(objects: &Objects, name: &str, options: &DeleteOptions) -> Result<Deletion> {
    objects.delete("default", name, options)
}

fn now() -> DeleteOptions {
    DeleteOptions::default()
}

fn within(seconds: i64) -> DeleteOptions {
    DeleteOptions { grace_period_seconds: Some(seconds), ..DeleteOptions::default() }
}

fn with_finalizers(name: &str, finalizers: &[&str]) -> Value {
    let mut object = pod(name);
    if !finalizers.is_empty() {
        object["metadata"]["finalizers"] = json!(finalizers);
    }
    object
}

#[test]
fn a_deletion_answers_with_its_own_revision() {
    let pods = pods();
    let made = create(&pods, pod("web"));
    let deletion = delete(&pods, "web", &now()).unwrap();
    assert!(deletion.is_deleted);
    let mut expected = made.clone();
    expected["metadata"]["resourceVersion"] = "3".into();
    assert_eq!(deletion.object, expected);
    let answer = deletion.into_answer();
    assert_eq!(answer["status"], "Success");
    let details = json!({"name": "web", "kind": "pods", "uid": made["metadata"]["uid"]});
    assert_eq!(answer["details"], details);
    assert_refused(delete(&pods, "web", &now()), 404, "pods \"web\" not found");
    assert_refused(get(&pods, "web"), 404, "pods \"web\" not found");

    let telling = pods_by(KindStrategy::new().return_deleted_object());
    create(&telling, pod("web"));
    let answer = delete(&telling, "web", &now()).unwrap().into_answer();
    assert_eq!((&answer["kind"], version(&answer)), (&json!("Pod"), "3"));
}

#[test]
fn preconditions_of_a_deletion_have_to_be_met() {
    let pods = pods();
    let made = create(&pods, pod("web"));
    let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
    let only = |preconditions| DeleteOptions { preconditions, ..DeleteOptions::default() };
    let message = format!(
        "Operation cannot be fulfilled on Pod \"web\": the UID in the precondition (other) does not match the UID in \
         record ({uid}). The object might have been deleted and then recreated"
    );
    assert_refused(delete(&pods, "web", &only(Preconditions::uid("other"))), 409, &message);
    let versioned =
        |version: &str| Preconditions { uid: None, resource_version: Some(version.into()) };
    let message = "Operation cannot be fulfilled on Pod \"web\": the ResourceVersion in the precondition (1) does \
                   not match the ResourceVersion in record (2). The object might have been modified";
    assert_refused(delete(&pods, "web", &only(versioned("1"))), 409, message);
    assert_eq!(get(&pods, "web").unwrap(), made);
    let both = Preconditions { uid: Some(uid), resource_version: Some("2".into()) };
    assert!(delete(&pods, "web", &only(both)).unwrap().is_deleted);

    // What the deletion itself has written does not stand in its way.
    let graceful = pods_by(KindStrategy::new().grace_seconds(0));
    create(&graceful, pod("web"));
    assert!(delete(&graceful, "web", &only(versioned("2"))).unwrap().is_deleted);
    assert_eq!(refused(get(&graceful, "web")).code(), 404);
}

#[test]
fn finalizers_keep_an_object_until_the_last_is_gone() {
    let pods = pods();
    let made = create(&pods, with_finalizers("web", &["example.com/a", "example.com/b"]));
    let deletion = delete(&pods, "web", &now()).unwrap();
    assert!(!deletion.is_deleted);
    let mut going = deletion.object;
    assert_eq!(going["metadata"]["deletionTimestamp"], "2023-11-14T22:13:20Z");
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!((generation(&made), generation(&going)), (1, 2));
    assert_eq!(get(&pods, "web").unwrap(), going);

    going["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b", "example.com/c"]);
    let message = "Pod \"web\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the \
                   object is being deleted, found new finalizers []string{\"example.com/c\"}";
    assert_refused(put(&pods, &going), 422, message);
    going["metadata"]["finalizers"] = json!(["example.com/b"]);
    let mut going = put(&pods, &going).unwrap();
    assert_eq!(get(&pods, "web").unwrap(), going);
    // That it is being deleted cannot be taken back.
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        going["metadata"].as_object_mut().unwrap().remove(field);
    }
    assert_eq!(put(&pods, &going).unwrap(), get(&pods, "web").unwrap());

    going["metadata"]["finalizers"] = json!([]);
    let dry = UpdateOptions { dry_run: true, ..UpdateOptions::default() };
    pods.update("default", "web", going.clone(), &dry).unwrap();
    assert!(get(&pods, "web").is_ok(), "a dry run deletes nothing");
    let last = put(&pods, &going).unwrap();
    assert_eq!(last["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(refused(get(&pods, "web")).code(), 404);
}

type Finalizers = &'static [&'static str];

/// By the finalizers that an object has, what a client asks for, and what its kind does: which finalizers it has
/// then; `None` where it is gone.
type Case = (Finalizers, Asked, GarbageCollection, Option<Finalizers>);

#[derive(Clone, Copy, Debug)]
enum Asked {
    Nothing,
    Orphans(bool),
    Policy(PropagationPolicy),
}

#[test]
fn finalizers_of_garbage_collection_are_set_and_taken_away() {
    use Asked::{Nothing, Orphans, Policy};
    use GarbageCollection::{Background as Plain, Off, Orphan as Orphaning, Unsupported};
    use PropagationPolicy::{Background, Foreground, Orphan};
    const WITH: &[&str] = &["foo.com/x", ORPHAN, "bar.com/y"];
    const OTHERS: &[&str] = &["foo.com/x", "bar.com/y"];
    const ADDED: &[&str] = &["foo.com/x", "bar.com/y", ORPHAN];
    const ONLY: &[&str] = &[ORPHAN];
    const FORE: &[&str] = &[FOREGROUND];
    let cases: &[Case] = &[
        // Deletion with orphanDependents of true, false and none.
        (WITH, Orphans(true), Plain, Some(WITH)),
        (OTHERS, Orphans(true), Plain, Some(ADDED)),
        (&[], Orphans(true), Plain, Some(ONLY)),
        (ONLY, Orphans(true), Plain, Some(ONLY)),
        (WITH, Orphans(false), Orphaning, Some(OTHERS)),
        (OTHERS, Orphans(false), Orphaning, Some(OTHERS)),
        (&[], Orphans(false), Orphaning, None),
        (ONLY, Orphans(false), Orphaning, None),
        (WITH, Nothing, Plain, Some(WITH)),
        (WITH, Nothing, Orphaning, Some(WITH)),
        (OTHERS, Nothing, Plain, Some(OTHERS)),
        (OTHERS, Nothing, Orphaning, Some(ADDED)),
        (&[], Nothing, Plain, None),
        (&[], Nothing, Orphaning, Some(ONLY)),
        (ONLY, Nothing, Plain, Some(ONLY)),
        (ONLY, Nothing, Orphaning, Some(ONLY)),
        // By propagation policy.
        (&[], Policy(Foreground), Plain, Some(FORE)),
        (&[], Policy(Foreground), Orphaning, Some(FORE)),
        (&[], Policy(Background), Plain, None),
        (&[], Policy(Background), Orphaning, None),
        (&[], Policy(Orphan), Plain, Some(ONLY)),
        (&[], Policy(Orphan), Orphaning, Some(ONLY)),
        (ONLY, Policy(Foreground), Plain, Some(FORE)),
        (ONLY, Policy(Foreground), Orphaning, Some(FORE)),
        (ONLY, Policy(Background), Plain, None),
        (ONLY, Policy(Background), Orphaning, None),
        (ONLY, Policy(Orphan), Plain, Some(ONLY)),
        (ONLY, Policy(Orphan), Orphaning, Some(ONLY)),
        (FORE, Policy(Foreground), Plain, Some(FORE)),
        (FORE, Policy(Foreground), Orphaning, Some(FORE)),
        (FORE, Policy(Background), Plain, None),
        (FORE, Policy(Background), Orphaning, None),
        (FORE, Policy(Orphan), Plain, Some(ONLY)),
        (FORE, Policy(Orphan), Orphaning, Some(ONLY)),
        (FORE, Nothing, Plain, Some(FORE)),
        (FORE, Nothing, Orphaning, Some(FORE)),
        // Kinds that own nothing, and stores where nobody collects.
        (&[], Policy(Foreground), Unsupported, None),
        (WITH, Policy(Orphan), Unsupported, Some(OTHERS)),
        (FORE, Nothing, Unsupported, None),
        (&[], Policy(Foreground), Off, None),
        (WITH, Policy(Background), Off, Some(WITH)),
    ];
    for (number, (had, asked, policy, expected)) in cases.iter().enumerate() {
        let what = format!("{number}: {had:?} {asked:?} {policy:?}");
        let pods = pods_by(KindStrategy::new().garbage_collection(*policy));
        create(&pods, with_finalizers("web", had));
        let options = match *asked {
            Nothing => now(),
            Orphans(orphans) => DeleteOptions { orphan_dependents: Some(orphans), ..now() },
            Policy(policy) => DeleteOptions { propagation_policy: Some(policy), ..now() },
        };
        let deletion = delete(&pods, "web", &options).unwrap();
        assert_eq!(deletion.is_deleted, expected.is_none(), "{what}");
        match expected {
            None => assert_eq!(refused(get(&pods, "web")).code(), 404, "{what}"),
            Some(expected) => {
                let there = get(&pods, "web").unwrap();
                assert_eq!(there["metadata"]["finalizers"], json!(expected), "{what}");
                assert_eq!(generation(&there), 2, "{what}");
                assert!(there["metadata"]["deletionTimestamp"].is_string(), "{what}");
                assert_eq!(there["metadata"]["deletionGracePeriodSeconds"], 0, "{what}");
            }
        }
    }
}

#[test]
fn contradicting_options_are_refused() {
    let pods = pods();
    create(&pods, pod("web"));
    let options = DeleteOptions {
        orphan_dependents: Some(true),
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..now()
    };
    let message = "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Orphan\": \
                   orphanDependents and deletionPropagation cannot be both set";
    assert_refused(delete(&pods, "web", &options), 422, message);
    let both = with_finalizers("both", &[ORPHAN, FOREGROUND]);
    let status = refused(pods.create("default", both, &annals::object::CreateOptions::default()));
    assert!(
        status.message().ends_with("finalizer orphan and foregroundDeletion cannot be both set")
    );
    assert_eq!(PropagationPolicy::parse("Foreground").unwrap(), PropagationPolicy::Foreground);
    assert_eq!(PropagationPolicy::parse("Sideways").unwrap_err().code(), 422);
}

fn graceful() -> (Objects, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(NOW * 1_000_000));
    let strategy = KindStrategy::new().grace_seconds(30);
    let pods = Objects::new(store(), pod_kind()).strategy(strategy).clock(clock.clone());
    (pods, clock)
}

#[test]
fn a_graceful_deletion_ends_with_a_grace_of_0() {
    let (pods, _) = graceful();
    create(&pods, pod("web"));
    let deletion = delete(&pods, "web", &now()).unwrap();
    assert!(!deletion.is_deleted);
    let going = get(&pods, "web").unwrap();
    assert_eq!(deletion.object, going);
    assert_eq!(going["metadata"]["deletionTimestamp"], "2023-11-14T22:13:50Z", "30 seconds on");
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(generation(&going), 2);
    // The same, and what is longer, changes nothing.
    for options in [now(), within(30), within(40)] {
        assert!(!delete(&pods, "web", &options).unwrap().is_deleted);
        assert_eq!(get(&pods, "web").unwrap(), going);
    }
    assert!(delete(&pods, "web", &within(0)).unwrap().is_deleted);
    assert_eq!(refused(get(&pods, "web")).code(), 404);
}

/// How much grace an object has that is going, how much is asked for after so many seconds, and what it has
/// then: grace and seconds from the beginning to its end. `None` where it is gone.
type Shortened = (i64, i64, i64, Option<(i64, i64)>);

const SHORTENED: [Shortened; 10] = [
    (30, 10, 0, Some((10, 10))),
    (30, 10, 5, Some((10, 10))),
    (30, 10, 10, Some((10, 10))),
    // The new end is over: as little grace as there is, from now on.
    (30, 10, 20, Some((1, 20))),
    (30, 10, 60, Some((1, 60))),
    (30, 30, 5, Some((30, 30))),
    (30, 31, 5, Some((30, 30))),
    // A negative one is one second.
    (30, -1, 0, Some((1, 1))),
    (30, 0, 5, None),
    (1, 0, 0, None),
];

#[test]
fn grace_is_shortened_and_not_into_the_past() {
    for (had, asked, after, expected) in SHORTENED {
        let what = format!("{had} {asked} {after}");
        let (pods, clock) = graceful();
        create(&pods, pod("web"));
        delete(&pods, "web", &within(had)).unwrap();
        clock.advance(after * 1_000_000);
        let deletion = delete(&pods, "web", &within(asked)).unwrap();
        assert_eq!(deletion.is_deleted, expected.is_none(), "{what}");
        let Some((grace, ends)) = expected else {
            assert_eq!(refused(get(&pods, "web")).code(), 404, "{what}");
            continue;
        };
        let there = get(&pods, "web").unwrap();
        assert_eq!(there["metadata"]["deletionGracePeriodSeconds"], grace, "{what}");
        let expected = ManualClock::new((NOW + ends) * 1_000_000);
        assert_eq!(there["metadata"]["deletionTimestamp"], time(&expected), "{what}");
        assert_eq!(generation(&there), 2, "counted once: {what}");
    }
}

/// As objects say it, for the minute that these tests take.
fn time(clock: &ManualClock) -> String {
    use annals::clock::Clock;
    let seconds = clock.now_micros() / 1_000_000 - NOW + 20;
    format!("2023-11-14T22:{:02}:{:02}Z", 13 + seconds / 60, seconds % 60)
}

#[test]
fn grace_ends_at_a_time_that_can_be_told() {
    for (strategy, asked, expected) in [
        (30, Some(i64::MAX), (253_402_207_200 - NOW, "9999-12-30T22:00:00Z")),
        (-5, None, (1, "2023-11-14T22:13:21Z")),
    ] {
        let pods = pods_by(KindStrategy::new().grace_seconds(strategy));
        create(&pods, pod("web"));
        let options = DeleteOptions { grace_period_seconds: asked, ..DeleteOptions::default() };
        assert!(!delete(&pods, "web", &options).unwrap().is_deleted);
        let there = get(&pods, "web").unwrap();
        let metadata = &there["metadata"];
        assert_eq!(metadata["deletionGracePeriodSeconds"], expected.0);
        assert_eq!(metadata["deletionTimestamp"], expected.1);
        assert!(!delete(&pods, "web", &options).unwrap().is_deleted);
        assert_eq!(get(&pods, "web").unwrap(), there, "once is enough");
    }
}

/// Locked objects stay.
struct Locks;

impl Strategy for Locks {
    fn validate_delete(&self, object: &Value) -> Vec<Cause> {
        match object["spec"]["locked"] {
            Value::Bool(true) => vec![Cause::forbidden("spec.locked", "it is locked")],
            _ => vec![],
        }
    }
}

#[test]
fn a_kind_may_refuse_deletions() {
    let locks = pods().strategy(Locks);
    let mut lock = create(&locks, json!({"metadata": {"name": "web"}, "spec": {"locked": true}}));
    let message = "Pod \"web\" is invalid: spec.locked: Forbidden: it is locked";
    assert_refused(delete(&locks, "web", &now()), 422, message);
    lock["spec"]["locked"] = false.into();
    put(&locks, &lock).unwrap();
    assert!(delete(&locks, "web", &now()).unwrap().is_deleted);
}

#[test]
fn grace_and_finalizers_both_have_to_be_over() {
    let (pods, _) = graceful();
    create(&pods, with_finalizers("web", &["example.com/wait"]));
    assert!(!delete(&pods, "web", &now()).unwrap().is_deleted);
    // Without finalizers, but with grace, it stays.
    let mut going = get(&pods, "web").unwrap();
    going["metadata"]["finalizers"] = json!([]);
    put(&pods, &going).unwrap();
    assert!(get(&pods, "web").is_ok());
    assert!(delete(&pods, "web", &within(0)).unwrap().is_deleted);

    // Without grace, but with finalizers, too.
    create(&pods, with_finalizers("api", &["example.com/wait"]));
    assert!(!delete(&pods, "api", &within(0)).unwrap().is_deleted);
    let mut going = get(&pods, "api").unwrap();
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 0);
    going["metadata"].as_object_mut().unwrap().remove("finalizers");
    put(&pods, &going).unwrap();
    assert_eq!(refused(get(&pods, "api")).code(), 404);
}

#[test]
fn dry_runs_delete_nothing() {
    let dry = || DeleteOptions { dry_run: true, ..DeleteOptions::default() };
    let pods = pods();
    let made = create(&pods, pod("web"));
    let stuck = create(&pods, with_finalizers("stuck", &["example.com/wait"]));
    assert_eq!(delete(&pods, "web", &dry()).unwrap().object, made);
    let deletion = delete(&pods, "stuck", &dry()).unwrap();
    assert!(!deletion.is_deleted && deletion.object["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(refused(delete(&pods, "absent", &dry())).code(), 404);
    let other = DeleteOptions { preconditions: Preconditions::uid("other"), ..dry() };
    assert_eq!(refused(delete(&pods, "web", &other)).code(), 409);
    assert_eq!((get(&pods, "web").unwrap(), get(&pods, "stuck").unwrap()), (made, stuck));

    let (graceful, _) = graceful();
    let made = create(&graceful, pod("web"));
    let options = DeleteOptions { grace_period_seconds: Some(0), ..dry() };
    assert!(delete(&graceful, "web", &options).unwrap().is_deleted);
    assert_eq!(get(&graceful, "web").unwrap(), made);
}
