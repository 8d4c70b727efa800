//! Selectors: of a list, of a controller, and what they have in common.

use annals::object::{
    FieldSelector, LabelOperator, LabelRequirement, LabelSelector, Reason, Result,
};
use serde_json::{Value, json};

fn pod(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "status": {"phase": "Running"}})
}

/// A text and the JSON form of the same selector mean the same objects.
#[test]
fn both_forms_of_a_label_selector_mean_the_same() -> Result<()> {
    let table = [
        ("", json!({})),
        ("app=web", json!({"matchLabels": {"app": "web"}})),
        (
            "app in (log,web),!old,tier",
            json!({"matchExpressions": [
                {"key": "tier", "operator": "Exists"},
                {"key": "app", "operator": "In", "values": ["web", "log"]},
                {"key": "old", "operator": "DoesNotExist"},
            ]}),
        ),
        (
            "app notin (web)",
            json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}),
        ),
    ];
    let pods = [
        pod("a", json!({"app": "web"})),
        pod("b", json!({"app": "web", "tier": "front"})),
        pod("c", json!({"app": "log", "tier": "back", "old": ""})),
        pod("d", json!({"tier": "back"})),
        pod("e", Value::Null),
    ];
    for (text, json) in table {
        let (text, json) = (LabelSelector::parse(text)?, LabelSelector::from_json(&json)?);
        assert_eq!(text, json);
        assert_eq!(LabelSelector::parse(&json.to_string())?, json);
        for pod in &pods {
            assert_eq!(text.matches(pod), json.matches(pod), "{text} {pod}");
        }
    }
    Ok(())
}

#[test]
fn requirements_can_be_looked_at() -> Result<()> {
    let selector = LabelSelector::parse("b in (y,x),a")?;
    let [a, b] = selector.requirements() else { panic!("two") };
    assert_eq!((a.key(), a.operator(), a.values().len()), ("a", LabelOperator::Exists, 0));
    assert_eq!((b.key(), b.values()), ("b", &["x".to_owned(), "y".to_owned()][..]));
    let made = LabelRequirement::new("b", LabelOperator::In, vec!["y".into(), "x".into()])?;
    assert_eq!(&made, b);
    Ok(())
}

#[test]
fn what_no_selector_says_is_a_bad_request() {
    for wrong in ["a=b=c", "a in x", "=", "a in (", "!", "a notin", "-a", "a=b c"] {
        let status = LabelSelector::parse(wrong).expect_err(wrong);
        assert_eq!((status.code(), status.reason()), (400, Reason::BadRequest), "{status}");
    }
    for wrong in ["a", "a=b=c", "a=b,c", r"a=\x"] {
        let status = FieldSelector::parse(wrong).expect_err(wrong);
        assert_eq!((status.code(), status.reason()), (400, Reason::BadRequest), "{status}");
    }
}
