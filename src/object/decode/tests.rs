//! What is wrong with fields: texts, places, and what is not told.

use super::*;

fn schema() -> Schema {
    let port = json!({"type": "object", "properties": {"port": {"type": "integer"}}});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer"},
            "ports": {"type": "array", "items": port},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
    }});
    Schema::from_openapi(&schema).expect("a schema")
}

#[track_caller]
fn assert_problems(json: &str, expected: &[&str]) {
    assert_eq!(problems_of_text(json.as_bytes(), &schema()), expected, "{json}");
}

#[test]
fn what_the_schema_does_not_know_is_told_with_its_path() {
    assert_problems(r#"{"kind": "A", "apiVersion": "v1", "metadata": {"name": "a"}}"#, &[]);
    assert_problems(
        r#"{"spec": {"sice": 1, "ports": [{"port": 1}, {"prot": 2}], "size": 1}, "stats": null}"#,
        &[
            r#"unknown field "spec.sice""#,
            r#"unknown field "spec.ports[1].prot""#,
            r#"unknown field "stats""#,
        ],
    );
    // Nothing is known below what is unknown, and all is where all is kept.
    assert_problems(r#"{"other": {"a": {"b": 1}}}"#, &[r#"unknown field "other""#]);
    assert_problems(r#"{"spec": {"labels": {"a": "b"}, "free": {"a": {"b": [1]}}}}"#, &[]);
    // What has another type is unknown to nobody: that is for validation.
    assert_problems(r#"{"spec": {"size": {"a": 1}, "ports": {"a": 1}}}"#, &[]);
}

#[test]
fn metadata_is_known_without_a_schema() {
    let json =
        br#"{"metadata": {"name": "a", "nmae": "b", "labels": {"x": "y"}}, "any": {"thing": 1}}"#;
    assert_eq!(problems_of_text(json, &Schema::any()), [r#"unknown field "metadata.nmae""#]);
}

#[test]
fn what_is_said_twice_is_told_once() {
    assert_problems(
        r#"{"spec": {"size": 1, "size": 2, "size": 3, "labels": {"a": "b", "a": "c"}}, "spec": {}}"#,
        &[
            r#"duplicate field "spec.size""#,
            r#"duplicate field "spec.labels.a""#,
            r#"duplicate field "spec""#,
        ],
    );
    // Also where nothing is known, and in each item for itself.
    assert_problems(
        r#"{"spec": {"free": [{"a": 1}, {"a": 1, "a": 2}]}}"#,
        &[r#"duplicate field "spec.free[1].a""#],
    );
}

#[test]
fn patches_say_nothing_twice() {
    assert_eq!(problems_of_patch(br#"{"spec": {"x": 1}}"#), [""; 0]);
    assert_eq!(
        problems_of_patch(br#"{"spec": {"x": 1, "x": 2}}"#),
        [r#"duplicate field "spec.x""#]
    );
    assert_eq!(
        problems_of_patch(br#" [{"op": "test", "path": "/a", "path": "/b", "vaule": {"x": 1}}]"#),
        [r#"json patch duplicate field "[0].path""#, r#"json patch unknown field "[0].vaule""#]
    );
}

#[test]
fn of_very_many_problems_a_hundred_are_told() {
    let fields: Vec<_> = (0..1_000).map(|field| format!("\"{field}\": 1")).collect();
    let json = format!("{{{}}}", fields.join(", "));
    assert_eq!(problems_of_text(json.as_bytes(), &schema()).len(), PROBLEMS_MAX);
    let long = format!("{{\"{}\": 1}}", "x".repeat(100_000));
    assert!(problems_of_text(long.as_bytes(), &schema())[0].len() < 2 * PATH_CHARS_MAX);
    let deep = format!("{}1{}", "{\"a\":".repeat(1_000), "}".repeat(1_000));
    assert_problems(&deep, &[r#"unknown field "a""#]);
}

#[test]
fn a_directive_says_what_becomes_of_problems() {
    let refuse = |problems: String| Status::bad_request(problems);
    let found = || vec!["one".to_owned(), "two".to_owned()];
    let strict = FieldValidation::Strict.judge(found(), refuse).unwrap_err();
    assert_eq!((strict.code(), strict.message()), (400, "one, two"));
    assert!(FieldValidation::Strict.judge(Vec::new(), refuse).is_ok());
    assert!(FieldValidation::Ignore.judge(found(), refuse).is_ok());
    let warn = FieldValidation::parse("Warn").expect("a directive");
    // A loop may come to it more than once.
    warn.judge(vec!["before".into()], refuse).expect("a warning");
    warn.clone().judge(found(), refuse).expect("a warning");
    assert_eq!((warn.take_warnings(), warn.take_warnings()), (found(), Vec::new()));
}
