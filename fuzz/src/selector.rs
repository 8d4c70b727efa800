//! Selectors of lists and watches, by anybody who can send a request.

use annals::object::{FieldRequirement, FieldSelector, LabelSelector};
use serde_json::{Value, json};

use crate::input::Input;

/// A byte that says which selector, and its text. What is accepted has a text of its own, which says the same.
pub(crate) fn selector(data: &[u8]) -> bool {
    let mut input = Input(data);
    let kind = input.below(3);
    let Ok(text) = std::str::from_utf8(input.0) else { return false };
    let object = json!({"metadata": {
        "name": "web", "namespace": "shop",
        "labels": {"app": "web", "tier": "", "n": "7", "example.com/a": "b", "x": 1},
    }});
    match kind {
        0 => LabelSelector::parse(text).is_ok_and(|selector| label(&selector, &object)),
        1 => {
            let Ok(form) = serde_json::from_str::<Value>(text) else { return false };
            LabelSelector::from_json(&form).is_ok_and(|selector| label(&selector, &object))
        }
        _ => FieldSelector::parse(text).is_ok_and(|selector| field(&selector)),
    }
}

fn label(selector: &LabelSelector, object: &Value) -> bool {
    let again = LabelSelector::parse(&selector.to_string()).expect("its own text");
    assert_eq!(again.to_string(), selector.to_string());
    assert_eq!(again.matches(object), selector.matches(object));
    assert_eq!(again.is_empty(), selector.is_empty());
    assert!(!selector.is_empty() || selector.matches(object));
    true
}

fn field(selector: &FieldSelector) -> bool {
    let again = FieldSelector::parse(&selector.to_string()).expect("its own text");
    // The order is that of the terms as they were written, `==` and `=` included.
    let sorted = |selector: &FieldSelector| {
        let mut all: Vec<FieldRequirement> = selector.requirements().to_vec();
        all.sort_by(|a, b| (&a.field, &a.value, a.is_equal).cmp(&(&b.field, &b.value, b.is_equal)));
        all
    };
    assert_eq!(sorted(&again), sorted(selector));
    for value in ["", "web", "a,b=c\\"] {
        let fields = |_: &str| Some(value.to_owned());
        assert_eq!(again.matches(&fields), selector.matches(&fields));
    }
    for one in selector.requirements().iter().filter(|one| one.is_equal) {
        assert!(selector.requires_exact(&one.field).is_some());
    }
    true
}

/// Selectors that are accepted, by name and kind.
pub(crate) fn seeds() -> Vec<(&'static str, u8, &'static str)> {
    let form = r#"{"matchLabels":{"app":"web"},"matchExpressions":[
        {"key":"tier","operator":"In","values":["a",""]},{"key":"n","operator":"NotIn","values":["1"]},
        {"key":"old","operator":"DoesNotExist"},{"key":"example.com/a","operator":"Exists"}]}"#;
    vec![
        ("label", 0, "app=web,tier in (front,,back),n notin (1),!legacy,example.com/a"),
        ("numbers", 0, "n>6,n < 8, app == web , tier!=x,in in (in,notin)"),
        ("form", 1, form),
        ("nothing", 1, "null"),
        ("field", 2, r"metadata.name=web,status.phase!=Running,spec.x==a\,b\=\\c,"),
    ]
}
