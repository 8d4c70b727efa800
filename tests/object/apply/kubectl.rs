//! `kubectl` goes over from client-side to server-side apply, and may go back.

use super::*;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn deployment(app: &str, replicas: u32, image: &str) -> Value {
    let container = json!({"name": "c", "image": image});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": app}},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
    })
}

fn of() -> Schema {
    let container = json!({"name": text(), "image": text()});
    schema(&json!({"spec": object(json!({
        "replicas": number(),
        "template": object(json!({"spec": object(json!({
            "containers": keyed(&["name"], container),
        }))})),
    }))}))
}

/// `live`, updated by a client whose annotation says `last`.
fn story(live: &Value, last: Option<String>) -> Story {
    let mut live = live.clone();
    if let Some(last) = last {
        live["metadata"]["annotations"][ANNOTATION] = last.into();
    }
    Story::of(&of()).version("apps/v1").update("kubectl-client-side-apply", live)
}

const APP: &str = ".metadata.labels.app";
const REPLICAS: &str = ".spec.replicas";
const IMAGE: &str = ".spec.template.spec.containers[name=\"c\"].image";

#[test]
fn what_was_applied_on_the_client_side_is_no_conflict() {
    let live = deployment("a", 3, "i:1");
    let wanted = deployment("b", 5, "i:2");
    let story = story(&live, Some(live.to_string())).apply("kubectl", wanted.clone());
    assert_eq!(story.live["spec"], wanted["spec"]);
    let owners = owners_of(&story.live);
    for path in [APP, REPLICAS, IMAGE] {
        assert!(owners["kubectl"].contains(&path.into()));
        assert!(!owners["kubectl-client-side-apply"].contains(&path.into()));
    }
    // And for the way back the annotation is kept up to date.
    let last = story.live["metadata"]["annotations"][ANNOTATION].as_str().expect("a text");
    assert_eq!(serde_json::from_str::<Value>(last).ok(), Some(wanted));
}

#[test]
fn what_is_not_as_it_was_applied_is_a_conflict() {
    let owner = "kubectl-client-side-apply";
    let live = deployment("a", 100, "i:1");
    // Somebody has scaled it.
    let last = deployment("a", 3, "i:1").to_string();
    story(&live, Some(last)).conflict("kubectl", deployment("b", 5, "i:2"), &[(owner, REPLICAS)]);
    let all = [(owner, APP), (owner, REPLICAS), (owner, IMAGE)];
    for last in [
        None,
        Some(String::new()),
        Some("no JSON".into()),
        Some("[]".into()),
        Some("[".repeat(100_000)),
        Some("{\"apiVersion\":\"apps/v1\",\"spec\":1}".into()),
        Some(live.to_string().replace("apps/v1", "apps/v1beta1")),
    ] {
        story(&live, last).conflict("kubectl", deployment("b", 5, "i:2"), &all);
    }
    // Others have applied nothing on the client's side.
    story(&live, Some(live.to_string())).conflict("other", deployment("b", 5, "i:2"), &all);
}

#[test]
fn the_annotation_is_there_only_where_it_was_and_only_for_kubectl() {
    let live = deployment("a", 3, "i:1");
    let story_of =
        |last, manager| story(&live, last).force(manager, deployment("b", 5, "i:2")).live;
    let annotations = |live: Value| live["metadata"]["annotations"].clone();
    assert_eq!(annotations(story_of(None, "kubectl")), Value::Null);
    assert_eq!(annotations(story_of(Some("old".into()), "other")), json!({ANNOTATION: "old"}));
    assert_ne!(annotations(story_of(Some("old".into()), "kubectl")), json!({ANNOTATION: "old"}));
    // It goes where annotations would become too long.
    let long = deployment("b", 5, &"i".repeat(256 << 10));
    let long = story(&live, Some("old".into())).force("kubectl", long);
    assert_eq!(annotations(long.live), json!({}));
}
