//! Fields that are said twice, or that nobody knows: what becomes of objects and patches that have them.

use annals::object::{
    FieldValidation, Kind, KindStrategy, PatchOptions, PatchType, Result, Schema,
};
use serde_json::{Value, json};

use super::kit::{create, get, pods_by, refused, store, version};
use super::under::Objects;

const DUPLICATE: &str =
    r#"{"metadata": {"name": "web"}, "spec": {"image": "a", "image": "b", "imgae": "c"}}"#;

fn schema() -> Schema {
    let spec = json!({"type": "object", "properties": {"image": {"type": "string"}}});
    Schema::from_openapi(&json!({"type": "object", "properties": {"spec": spec}}))
        .expect("a schema")
}

fn pods() -> Objects {
    pods_by(KindStrategy::new()).schema(schema())
}

fn patch(
    objects: &Objects,
    patch_type: PatchType,
    patch: &str,
    field_validation: &FieldValidation,
) -> Result<Value> {
    let field_manager = "tester".to_owned();
    let field_validation = field_validation.clone();
    let options = PatchOptions { field_manager, field_validation, ..PatchOptions::default() };
    Ok(objects.patch("default", "web", patch_type, patch.as_bytes(), &options)?.0)
}

#[test]
fn an_object_is_decoded_as_the_request_says() {
    let kind = Kind::new("apps/v1", "Deployment", "deployments");
    let deployments = Objects::new(store(), kind).schema(schema());
    let decode =
        |validation: &FieldValidation| deployments.decode(DUPLICATE.as_bytes(), validation);
    // The last one counts, and what is unknown stays.
    let taken = json!({"metadata": {"name": "web"}, "spec": {"image": "b", "imgae": "c"}});
    assert_eq!(decode(&FieldValidation::Ignore).unwrap(), taken);
    let warn = FieldValidation::parse("").unwrap();
    assert_eq!(decode(&warn).unwrap(), taken);
    let told = [r#"duplicate field "spec.image""#, r#"unknown field "spec.imgae""#];
    assert_eq!(warn.take_warnings(), told);
    let status = refused(decode(&FieldValidation::Strict));
    assert_eq!(
        (status.code(), status.message()),
        (
            400,
            "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: \
             duplicate field \"spec.image\", unknown field \"spec.imgae\""
        )
    );
    // What was found out before is not told of what comes next.
    deployments.decode(b"{}", &warn).unwrap();
    assert_eq!(warn.take_warnings(), [""; 0]);
    for no_json in ["", "k8s", "{\"a\": 1} 2", "{\"a\": \"\u{1}\"}"] {
        let status = refused(deployments.decode(no_json.as_bytes(), &warn));
        assert_eq!(status.code(), 400);
        let begin = "the object provided is unrecognized (must be of type Deployment): ";
        assert!(status.message().starts_with(begin), "{status}");
    }
}

#[test]
fn a_patch_is_judged_by_what_it_makes() {
    for (patch_type, change) in [
        (PatchType::Merge, r#"{"spec": {"imgae": 1}}"#),
        (PatchType::StrategicMerge, r#"{"spec": {"imgae": 1}}"#),
        (PatchType::Json, r#"[{"op": "add", "path": "/spec/imgae", "value": 1}]"#),
    ] {
        let pods = pods();
        let made =
            create(&pods, json!({"metadata": {"name": "web"}, "spec": {"image": "hunter2"}}));
        let status = refused(patch(&pods, patch_type, change, &FieldValidation::Strict));
        assert_eq!(status.code(), 422, "{patch_type:?}");
        let end = "strict decoding error: unknown field \"spec.imgae\"";
        assert!(status.message().ends_with(end), "{status}");
        assert!(!status.message().contains("hunter2"), "what is there may be a secret: {status}");
        let labels = r#"{"metadata": {"labels": 5}}"#;
        let status = refused(patch(&pods, PatchType::Merge, labels, &FieldValidation::Ignore));
        assert!(status.code() == 422 && !status.message().contains("hunter2"), "{status}");
        assert_eq!(version(&get(&pods, "web").unwrap()), version(&made), "nothing is written");

        let warn = FieldValidation::parse("Warn").unwrap();
        patch(&pods, patch_type, change, &warn).unwrap();
        assert_eq!(warn.take_warnings(), [r#"unknown field "spec.imgae""#], "{patch_type:?}");
        // What is there already is no fault of the next one.
        let label = r#"{"metadata": {"labels": {"a": "b"}}}"#;
        patch(&pods, PatchType::Merge, label, &FieldValidation::Strict).unwrap();
    }
}

/// However many there are, and more than are told.
#[test]
fn what_is_unknown_already_is_no_fault_of_a_patch() {
    let pods = pods();
    let odd: serde_json::Map<_, _> = (100..250).map(|n| (format!("odd{n}"), n.into())).collect();
    create(&pods, json!({"metadata": {"name": "web"}, "spec": odd}));
    let removed: serde_json::Map<_, _> =
        (100..110).map(|n| (format!("odd{n}"), Value::Null)).collect();
    let fewer = json!({"spec": removed}).to_string();
    patch(&pods, PatchType::Merge, &fewer, &FieldValidation::Strict).unwrap();
    let more = r#"{"spec": {"odd999": 1}}"#;
    let status = refused(patch(&pods, PatchType::Merge, more, &FieldValidation::Strict));
    let end = "strict decoding error: unknown field \"spec.odd999\"";
    assert!(status.message().ends_with(end), "{status}");
}

#[test]
fn a_patch_says_nothing_twice() {
    let twice = r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"image": "a", "image": "b"}}"#;
    let operations =
        r#"[{"op": "test", "op": "add", "path": "/spec/image", "value": "b", "form": "x"}]"#;
    for (patch_type, change, code, told) in [
        (PatchType::Merge, twice, 422, r#"duplicate field "spec.image""#),
        (PatchType::StrategicMerge, twice, 422, r#"duplicate field "spec.image""#),
        (
            PatchType::Json,
            operations,
            422,
            r#"json patch duplicate field "[0].op", json patch unknown field "[0].form""#,
        ),
        (
            PatchType::Apply,
            twice,
            400,
            r#"error strict decoding patch: duplicate field "spec.image""#,
        ),
    ] {
        let pods = pods();
        create(&pods, json!({"metadata": {"name": "web"}, "spec": {"image": "b"}}));
        let status = refused(patch(&pods, patch_type, change, &FieldValidation::Strict));
        assert_eq!(status.code(), code, "{patch_type:?}: {status}");
        assert!(status.message().ends_with(told), "{patch_type:?}: {status}");
        let patched = patch(&pods, patch_type, change, &FieldValidation::Ignore).unwrap();
        assert_eq!(patched["spec"]["image"], "b", "{patch_type:?}");
    }
}
