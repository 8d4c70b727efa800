//! What the documentation of server-side apply promises to those who use it.

use super::*;

/// As much of a Deployment as the examples need.
fn deployment() -> Schema {
    let env = keyed(&["name"], json!({"name": text(), "value": text()}));
    let port = json!({
        "containerPort": {"type": "integer"},
        "protocol": {"type": "string", "default": "TCP"},
        "name": text(),
    });
    let container = json!({
        "name": text(), "image": text(), "env": env,
        "args": {"type": "array", "items": text(), "x-kubernetes-list-type": "atomic"},
        "ports": keyed(&["containerPort", "protocol"], port),
    });
    let selector = json!({
        "type": "object",
        "properties": {"matchLabels": map(text())},
        "x-kubernetes-map-type": "atomic",
    });
    schema(&json!({
        "apiVersion": text(), "kind": text(), "metadata": {"type": "object"},
        "spec": object(json!({
            "replicas": {"type": "integer"},
            "selector": selector,
            "template": object(json!({
                "metadata": object(json!({"labels": map(text())})),
                "spec": object(json!({
                    "containers": keyed(&["name"], container),
                    "nodeSelector": map(text()),
                })),
            })),
        })),
        "status": object(json!({"replicas": {"type": "integer"}})),
    }))
}

fn spec(spec: Value) -> Value {
    json!({"kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
}

fn containers(containers: Value) -> Value {
    spec(json!({"template": {"spec": {"containers": containers}}}))
}

fn story() -> Story {
    Story::of(&deployment()).version("apps/v1")
}

#[test]
fn who_applies_owns_what_he_applies_and_nothing_else() {
    let mut wanted = spec(json!({"replicas": 3}));
    wanted["metadata"]["labels"] = json!({"app": "web"});
    let story = story().apply("kubectl", wanted);
    let entry = json!([{
        "manager": "kubectl", "operation": "Apply", "apiVersion": "apps/v1", "time": at(1),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:replicas": {}}},
    }]);
    assert_eq!(story.live["metadata"]["managedFields"], entry);
}

#[test]
fn a_conflict_can_be_overwritten_and_makes_the_sole_owner() {
    story()
        .apply("one", spec(json!({"replicas": 3})))
        .conflict("two", spec(json!({"replicas": 5})), &[("one", ".spec.replicas")])
        .force("two", spec(json!({"replicas": 5})))
        .owned(&[("two", &[".spec.replicas"])]);
}

#[test]
fn a_conflict_can_be_left_by_giving_up_the_field() {
    let image = json!([{"name": "web", "image": "web:1"}]);
    let both = json!({"replicas": 5, "template": {"spec": {"containers": image}}});
    story()
        .apply("one", spec(json!({"replicas": 3})))
        .conflict("two", spec(both), &[("one", ".spec.replicas")])
        .apply("two", containers(image.clone()))
        .is(json!({
            "kind": "Deployment",
            "spec": {"replicas": 3, "template": {"spec": {"containers": image}}},
        }));
}

#[test]
fn a_conflict_can_be_left_by_sharing_the_value() {
    story()
        .apply("one", spec(json!({"replicas": 3})))
        .conflict("two", spec(json!({"replicas": 5})), &[("one", ".spec.replicas")])
        .apply("two", spec(json!({"replicas": 3})))
        .owned(&[("one", &[".spec.replicas"]), ("two", &[".spec.replicas"])])
        // And then neither can change it alone.
        .conflict("one", spec(json!({"replicas": 4})), &[("two", ".spec.replicas")]);
}

#[test]
fn a_field_given_up_goes_unless_another_owns_it() {
    story()
        .apply("one", spec(json!({"replicas": 3})))
        .apply("two", spec(json!({"replicas": 3})))
        .apply("one", spec(json!({})))
        .is(json!({"kind": "Deployment", "spec": {"replicas": 3}}))
        .apply("two", json!({"kind": "Deployment"}))
        .is(json!({"kind": "Deployment", "spec": {}}));
}

/// The example of the autoscaler: a user hands `spec.replicas` over and then leaves it out.
#[test]
fn a_field_is_handed_over_from_a_user_to_a_controller() {
    let image = json!([{"name": "web", "image": "web:1"}]);
    let without = containers(image.clone());
    let mut with = without.clone();
    with["spec"]["replicas"] = json!(3);
    let replicas = ".spec.replicas";
    let container: [&str; 3] = [
        ".spec.template.spec.containers[name=\"web\"]",
        ".spec.template.spec.containers[name=\"web\"].image",
        ".spec.template.spec.containers[name=\"web\"].name",
    ];
    story()
        .apply("kubectl", with.clone())
        // By an applier of one field, with the value that there is.
        .apply("handover", spec(json!({"replicas": 3})))
        .apply("kubectl", without.clone())
        .owned(&[("kubectl", &container), ("handover", &[replicas])])
        // The controller writes it, and nobody else owns it then.
        .update("autoscaler", {
            let mut scaled = with.clone();
            scaled["spec"]["replicas"] = json!(7);
            scaled
        })
        .owned(&[("kubectl", &container), ("autoscaler", &[replicas])])
        .apply("kubectl", without)
        .is(json!({
            "kind": "Deployment",
            "spec": {"replicas": 7, "template": {"spec": {"containers": image}}},
        }));
}

#[test]
fn a_field_left_out_too_early_is_gone() {
    story()
        .apply("kubectl", spec(json!({"replicas": 3, "template": {"spec": {}}})))
        .apply("kubectl", spec(json!({"template": {"spec": {}}})))
        .is(json!({"kind": "Deployment", "spec": {"template": {"spec": {}}}}));
}

#[test]
fn a_list_of_type_map_is_merged_by_its_keys() {
    let mine = json!([{
        "name": "web", "image": "web:1", "env": [{"name": "A", "value": "1"}],
        "ports": [{"containerPort": 80}],
    }]);
    let story = story()
        .apply("kubectl", containers(mine))
        .apply(
            "injector",
            containers(json!([
                {"name": "proxy", "image": "proxy:1"},
                {"name": "web", "env": [{"name": "PROXY", "value": "on"}],
                 "ports": [{"containerPort": 80, "protocol": "UDP"}]},
            ])),
        )
        .conflict(
            "injector",
            containers(json!([{"name": "web", "env": [{"name": "A", "value": "2"}]}])),
            &[("kubectl", ".spec.template.spec.containers[name=\"web\"].env[name=\"A\"].value")],
        )
        // The user gives up a variable of his own; what was injected stays.
        .apply("kubectl", containers(json!([{"name": "web", "image": "web:2"}])));
    assert_eq!(
        story.live["spec"]["template"]["spec"]["containers"],
        json!([
            {"name": "proxy", "image": "proxy:1"},
            {"name": "web", "image": "web:2", "env": [{"name": "PROXY", "value": "on"}],
             "ports": [{"containerPort": 80, "protocol": "UDP"}]},
        ])
    );
}

#[test]
fn an_atomic_list_or_map_has_one_owner() {
    let args = |args: Value| containers(json!([{"name": "web", "args": args}]));
    let path = ".spec.template.spec.containers[name=\"web\"].args";
    story()
        .apply("one", args(json!(["-a"])))
        .conflict("two", args(json!(["-a", "-b"])), &[("one", path)])
        .force("two", args(json!(["-a", "-b"])))
        .conflict("one", args(json!(["-a"])), &[("two", path)]);
    let selector = |labels: Value| spec(json!({"selector": {"matchLabels": labels}}));
    story()
        .apply("one", selector(json!({"app": "web"})))
        .conflict("two", selector(json!({"tier": "front"})), &[("one", ".spec.selector")])
        .force("two", selector(json!({"tier": "front"})))
        .is(
            json!({"kind": "Deployment", "spec": {"selector": {"matchLabels": {"tier": "front"}}}}),
        );
}

#[test]
fn a_granular_map_has_an_owner_for_each_entry() {
    let nodes = |labels: Value| spec(json!({"template": {"spec": {"nodeSelector": labels}}}));
    story()
        .apply("one", nodes(json!({"disk": "ssd"})))
        .apply("two", nodes(json!({"zone": "a"})))
        .conflict(
            "two",
            nodes(json!({"disk": "hdd"})),
            &[("one", ".spec.template.spec.nodeSelector.disk")],
        )
        .apply("one", nodes(json!({})))
        .is(nodes_only("zone", "a"));
}

fn nodes_only(key: &str, value: &str) -> Value {
    json!({"kind": "Deployment", "spec": {"template": {"spec": {"nodeSelector": {key: value}}}}})
}

#[test]
fn finalizers_are_a_set_and_owners_go_by_uid() {
    let metadata = |metadata: Value| json!({"kind": "Deployment", "metadata": metadata});
    let owner = |uid: &str, name: &str| json!({"uid": uid, "name": name, "kind": "App", "apiVersion": "v1"});
    let story = story()
        .apply(
            "one",
            metadata(json!({"finalizers": ["a/x"], "ownerReferences": [owner("1", "a")]})),
        )
        .apply(
            "two",
            metadata(json!({"finalizers": ["b/y"], "ownerReferences": [owner("2", "b")]})),
        )
        .conflict(
            "two",
            metadata(json!({"ownerReferences": [owner("1", "c")]})),
            &[("one", ".metadata.ownerReferences[uid=\"1\"]")],
        )
        .apply("one", metadata(json!({})));
    assert_eq!(story.live["metadata"]["finalizers"], json!(["b/y"]));
    assert_eq!(story.live["metadata"]["ownerReferences"], json!([owner("2", "b")]));
}

#[test]
fn what_is_written_before_the_first_apply_is_before_first_apply() {
    let mut story = story();
    story.live = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "uid": "1", "creationTimestamp": "2026-11-22T14:00:00Z"},
        "spec": {"replicas": 3},
    });
    story
        .update("controller", spec(json!({"replicas": 4})))
        .owned(&[])
        .conflict(
            "kubectl",
            spec(json!({"replicas": 5})),
            &[("before-first-apply", ".spec.replicas")],
        )
        .apply("kubectl", spec(json!({"replicas": 4})))
        .owned(&[
            ("before-first-apply", &[".spec", ".spec.replicas"]),
            ("kubectl", &[".spec.replicas"]),
        ]);
}

/// A client need not read before it applies, and applies on the newest state whatever it is.
#[test]
fn an_apply_needs_no_version_and_keeps_what_the_server_keeps() {
    let mut story = story().apply("kubectl", spec(json!({"replicas": 3})));
    for (field, value) in [
        ("resourceVersion", json!("7")),
        ("uid", json!("u")),
        ("generation", json!(1)),
        ("creationTimestamp", json!("2026-11-22T14:00:00Z")),
    ] {
        story.live["metadata"][field] = value;
    }
    let before = story.live.clone();
    let mut again = spec(json!({"replicas": 3}));
    again["metadata"]["creationTimestamp"] = Value::Null;
    let story = story.apply("kubectl", again);
    assert_eq!(story.live, before, "nothing has changed, not even a time");
    let story = story.apply("kubectl", spec(json!({"replicas": 4})));
    let mut metadata = story.live["metadata"].clone();
    assert_eq!(metadata["managedFields"][0]["time"], at(3));
    metadata["managedFields"] = before["metadata"]["managedFields"].clone();
    assert_eq!(metadata, before["metadata"]);
}
