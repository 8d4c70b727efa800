//! Generations, by the rule of each kind.
//!
//! row 2: generations_start_at_1_and_count_what_their_kind_counts
//! row 3: a_write_of_the_status_changes_the_version_and_not_the_generation
//! row 4: the_deployment_of_the_document
//! row 22: a_deployment_begins_without_status_and_keeps_it

use annals::object::{
    CreateOptions, DeleteOptions, GenerationRule, Kind, KindStrategy, Strategy, UpdateOptions,
};
use serde_json::{Value, json};

use super::kit::{
    assert_refused, create, generation, get, pod, pods, pods_by, put, refused, store, version,
};
use super::under::Objects;

fn deployments() -> Objects {
    let strategy = KindStrategy::new().generation(GenerationRule::SpecAndAnnotations).with_status();
    Objects::new(store(), Kind::new("apps/v1", "Deployment", "deployments")).strategy(strategy)
}

fn set_status(objects: &Objects, object: &Value) -> annals::object::Result<Value> {
    let name = object["metadata"]["name"].as_str().expect("it has a name");
    objects.update_status("default", name, object.clone(), &UpdateOptions::default())
}

/// A change of one field, and which rules count it: spec, spec and annotations, all but metadata.
const CHANGES: [(&str, &str, [bool; 3]); 16] = [
    ("/spec/replicas", "3", [true, true, true]),
    ("/spec/replicas", "1", [false, false, false]),
    ("/spec/template", "{\"a\": [1, 2]}", [true, true, true]),
    ("/spec/list", "[1, 2]", [false, false, false]),
    ("/spec/list", "[2, 1]", [true, true, true]),
    ("/spec/none", "null", [false, false, true]),
    ("/spec/none", "{}", [false, false, true]),
    ("/spec/none", "[]", [false, false, true]),
    ("/spec/none", "\"\"", [true, true, true]),
    ("/metadata/annotations/a", "\"2\"", [false, true, false]),
    ("/metadata/annotations/b", "\"1\"", [false, true, false]),
    ("/metadata/labels/a", "\"2\"", [false, false, false]),
    ("/metadata/finalizers", "[\"example.com/wait\"]", [false, false, false]),
    ("/metadata/other", "1", [false, false, false]),
    ("/data", "{\"a\": \"1\"}", [false, false, true]),
    ("/status/ready", "1", [false, false, true]),
];

#[test]
fn generations_start_at_1_and_count_what_their_kind_counts() {
    let rules =
        [GenerationRule::Spec, GenerationRule::SpecAndAnnotations, GenerationRule::AllButMetadata];
    for (at, rule) in rules.into_iter().enumerate() {
        let objects = pods_by(KindStrategy::new().generation(rule));
        for (number, (path, value, counts)) in CHANGES.iter().enumerate() {
            let made = create(
                &objects,
                json!({
                    "metadata": {
                        "name": format!("web-{number}"),
                        "labels": {"a": "1"}, "annotations": {"a": "1"},
                    },
                    "spec": {"replicas": 1, "list": [1, 2]},
                    "status": {},
                }),
            );
            assert_eq!(generation(&made), 1);
            let mut changed = made.clone();
            let (parent, field) = path.rsplit_once('/').unwrap();
            let value: Value = serde_json::from_str(value).unwrap();
            changed.pointer_mut(parent).unwrap()[field] = value;
            let expected = if counts[at] { 2 } else { 1 };
            let written = put(&objects, &changed).unwrap();
            assert_eq!(generation(&written), expected, "{rule:?} {path}");
            // The same once more is no change.
            let again = put(&objects, &written).unwrap();
            assert_eq!(again, written, "{rule:?} {path}");
        }
    }
}

#[test]
fn a_kind_may_have_no_generation() {
    let objects = pods_by(KindStrategy::new().generation(GenerationRule::Never));
    let mut made = create(&objects, pod("web"));
    assert_eq!(made["metadata"].get("generation"), None);
    made["spec"]["nodeName"] = "another".into();
    made["metadata"]["generation"] = 4.into();
    assert_eq!(put(&objects, &made).unwrap()["metadata"].get("generation"), None);
}

#[test]
fn a_deployment_begins_without_status_and_keeps_it() {
    let deployments = deployments();
    let made = create(
        &deployments,
        json!({"metadata": {"name": "web"}, "spec": {"replicas": 1}, "status": {"replicas": 9}}),
    );
    assert_eq!(made.get("status"), None);
    let mut running = made.clone();
    running["status"] = json!({"replicas": 1});
    let mut running = set_status(&deployments, &running).unwrap();
    assert_eq!(running["status"], json!({"replicas": 1}));

    // A write of the rest keeps the status that is there.
    running["status"] = json!({"replicas": 7});
    running["spec"]["replicas"] = 2.into();
    let scaled = put(&deployments, &running).unwrap();
    assert_eq!((&scaled["status"], generation(&scaled)), (&json!({"replicas": 1}), 2));
    let mut bare = scaled;
    bare.as_object_mut().unwrap().remove("status");
    assert_eq!(put(&deployments, &bare).unwrap()["status"], json!({"replicas": 1}));
}

#[test]
fn a_write_of_the_status_changes_the_version_and_not_the_generation() {
    let deployments = deployments();
    let made = create(
        &deployments,
        json!({"metadata": {"name": "web", "labels": {"a": "1"}}, "spec": {"replicas": 1}}),
    );
    let mut told = made.clone();
    told["status"] = json!({"replicas": 1});
    // Nothing else of it counts.
    told["spec"]["replicas"] = 5.into();
    told["metadata"]["labels"] = json!({"b": "2"});
    told["metadata"]["annotations"] = json!({"b": "2"});
    told["metadata"]["finalizers"] = json!(["example.com/wait"]);
    let written = set_status(&deployments, &told).unwrap();
    assert_eq!((generation(&made), generation(&written)), (1, 1));
    assert_eq!((version(&made), version(&written)), ("2", "3"));
    assert_eq!(written["spec"], made["spec"]);
    assert_eq!(written["metadata"]["labels"], json!({"a": "1"}));
    assert_eq!(written["metadata"].get("annotations"), None);
    assert_eq!(written["metadata"].get("finalizers"), None);

    // Who has read before that has missed something: the version tells, the generation does not.
    told["status"] = json!({"replicas": 2});
    assert_eq!(refused(set_status(&deployments, &told)).code(), 409);
    let mut late = made;
    late["spec"]["replicas"] = 3.into();
    assert_eq!(refused(put(&deployments, &late)).code(), 409);
    // What says nothing of the status takes it away.
    let mut none = written;
    none.as_object_mut().unwrap().remove("status");
    assert_eq!(set_status(&deployments, &none).unwrap().get("status"), None);
}

#[test]
fn a_status_that_is_no_subresource_is_a_field() {
    let pods = pods();
    let mut made = create(&pods, pod("web"));
    let message = "the server could not find the requested resource";
    assert_refused(set_status(&pods, &made), 404, message);
    made["status"] = json!({"phase": "Running"});
    let written = put(&pods, &made).unwrap();
    assert_eq!((&written["status"], generation(&written)), (&made["status"], 2));
}

#[test]
fn the_status_of_what_is_not_there_is_none() {
    let strategy = KindStrategy::new().with_status().create_on_update();
    let pods = pods_by(strategy);
    let options = UpdateOptions { force_allow_create: true, ..UpdateOptions::default() };
    let absent = pods.update_status("default", "web", pod("web"), &options);
    assert_refused(absent, 404, "pods \"web\" not found");
}

#[test]
fn the_deployment_of_the_document() {
    let deployments = deployments();
    let mut made = create(
        &deployments,
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "nginx-test", "labels": {"app": "nginx"}},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "nginx", "image": "nginx"}]}}},
        }),
    );
    // The controller notes each of its revisions as an annotation, and tells of it in the status.
    for revision in 1..=6 {
        let noted = revision.to_string();
        made["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": noted});
        made = put(&deployments, &made).unwrap();
        let before = version(&made).to_owned();
        made["status"] = json!({"observedGeneration": generation(&made), "replicas": 1});
        made = set_status(&deployments, &made).unwrap();
        assert_ne!(version(&made), before);
    }
    assert_eq!(generation(&made), 7);
    assert_eq!(made["status"]["observedGeneration"], 7);
    assert_eq!(made["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "6");
    assert_eq!(version(&made), "14", "one write each");
}

#[test]
fn the_wish_to_delete_counts_once() {
    let pods = pods();
    create(&pods, json!({"metadata": {"name": "web", "finalizers": ["example.com/wait"]}}));
    for _ in 0..3 {
        let deletion = pods.delete("default", "web", &DeleteOptions::default()).unwrap();
        assert_eq!((deletion.is_deleted, generation(&deletion.object)), (false, 2));
    }
    assert_eq!(generation(&get(&pods, "web").unwrap()), 2);
    let uncounted = pods_by(KindStrategy::new().generation(GenerationRule::Never));
    let stuck = json!({"metadata": {"name": "web", "finalizers": ["example.com/wait"]}});
    uncounted.create("default", stuck, &CreateOptions::default()).unwrap();
    let deletion = uncounted.delete("default", "web", &DeleteOptions::default()).unwrap();
    assert_eq!(deletion.object["metadata"].get("generation"), None);
}

/// The order of a list says nothing.
struct Sorted;

impl Strategy for Sorted {
    fn canonicalize(&self, object: &mut Value) {
        if let Some(list) = object["spec"]["list"].as_array_mut() {
            list.sort_by_key(Value::as_i64);
        }
    }
}

#[test]
fn what_canonicalization_takes_back_does_not_count() {
    let pods = pods().strategy(Sorted);
    let made = create(&pods, json!({"metadata": {"name": "web"}, "spec": {"list": [3, 1, 2]}}));
    assert_eq!(made["spec"]["list"], json!([1, 2, 3]));
    let mut same = made.clone();
    same["spec"]["list"] = json!([2, 3, 1]);
    assert_eq!(put(&pods, &same).unwrap(), made);
    same["spec"]["list"] = json!([4, 3, 1]);
    assert_eq!(generation(&put(&pods, &same).unwrap()), 2);
}
