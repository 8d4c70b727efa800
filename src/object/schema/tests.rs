//! What is read of schemas, and what is refused.

use super::*;

fn read(schema: Value) -> Schema {
    Schema::from_openapi(&schema).expect("a good schema")
}

#[test]
fn types_are_read() {
    for (schema, scalar) in [
        (json!({"type": "string"}), Some(Scalar::String)),
        (json!({"type": "integer"}), Some(Scalar::Integer)),
        (json!({"type": "number"}), Some(Scalar::Number)),
        (json!({"type": "boolean"}), Some(Scalar::Boolean)),
        (json!({"type": "string", "format": "int-or-string"}), Some(Scalar::IntOrString)),
        (json!({"x-kubernetes-int-or-string": true}), Some(Scalar::IntOrString)),
        (json!({"x-kubernetes-int-or-string": false}), None),
        (json!({"type": "object"}), None),
    ] {
        assert_eq!(read(schema.clone()).scalar(), scalar, "{schema}");
    }
    for any in
        [json!({}), json!({"description": "anything"}), json!({"oneOf": [{"type": "string"}]})]
    {
        assert!(read(any).is_any());
    }
    assert!(read(json!({"properties": {"a": {}}})).is_object());
    assert!(read(json!({"type": "array", "items": {"type": "string"}})).items().is_some());
}

#[test]
fn fields_are_known_by_name_or_as_all_others() {
    let of = read(json!({
        "type": "object",
        "properties": {"a": {"type": "string", "default": "x"}},
        "additionalProperties": {"type": "integer"},
    }));
    assert_eq!(of.named_field("a").and_then(Schema::default_value), Some(&json!("x")));
    assert_eq!(of.named_field("b"), None);
    assert_eq!(of.field("b").and_then(Schema::scalar), Some(Scalar::Integer));
    assert!(read(json!({"type": "object", "additionalProperties": true})).field("a").is_some());
    assert_eq!(read(json!({"type": "object", "additionalProperties": false})).field("a"), None);
}

#[test]
fn what_may_have_other_fields() {
    let known = json!({"a": {"type": "string"}});
    for (schema, keeps) in [
        (json!({"type": "object"}), true),
        (json!({"type": "object", "properties": known}), false),
        (
            json!({"type": "object", "properties": known, "x-kubernetes-preserve-unknown-fields": true}),
            true,
        ),
        (
            json!({"type": "object", "properties": known, "x-kubernetes-embedded-resource": true}),
            true,
        ),
        (json!({"type": "object", "additionalProperties": known["a"]}), false),
        (json!({"type": "string"}), false),
        (json!({}), true),
    ] {
        assert_eq!(read(schema.clone()).keeps_unknown(), keeps, "{schema}");
    }
}

#[test]
fn a_reference_in_a_list_of_one_is_looked_through() {
    let of = read(json!({
        "allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}],
        "default": {},
        "x-kubernetes-map-type": "atomic",
    }));
    assert!(of.is_object() && of.is_atomic_map());
    assert_eq!(of.default_value(), Some(&json!({})));
    assert!(of.named_field("a").is_some());
}

#[test]
fn schemas_that_contradict_themselves_are_refused() {
    let deep =
        |levels: usize| (0..levels).fold(json!({}), |of, _| json!({"type": "array", "items": of}));
    assert!(Schema::from_openapi(&deep(64)).is_ok());
    for (schema, why) in [
        (json!({"$ref": "#/definitions/a"}), "a reference has not been resolved"),
        (json!({"properties": {"a": {"$ref": "b"}}}), "a reference has not been resolved"),
        (json!({"type": "array"}), "an array without items"),
        (json!({"type": "text"}), "no such type: \"text\""),
        (
            json!({"type": "array", "items": {}, "x-kubernetes-list-type": "map"}),
            "a list of type map without its keys",
        ),
        (
            json!({"type": "array", "items": {}, "x-kubernetes-list-type": "bag"}),
            "no such list type: \"bag\"",
        ),
        (
            json!({"type": "object", "x-kubernetes-list-type": "set"}),
            "a list type where there is no list",
        ),
        (json!({"type": "object", "x-kubernetes-map-type": "set"}), "no such map type: \"set\""),
        (
            json!({"type": "string", "x-kubernetes-patch-strategy": "merge,mend"}),
            "no such patch strategy: \"mend\"",
        ),
        (deep(65), "it nests deeper than 64"),
    ] {
        let status = Schema::from_openapi(&schema).expect_err(why);
        assert_eq!((status.code(), status.message()), (400, format!("schema: {why}").as_str()));
    }
}

#[test]
fn the_metadata_of_objects_has_a_schema() {
    let of = Schema::object_meta();
    let list_type = |field| of.named_field(field).map(Schema::list_type);
    assert_eq!(list_type("finalizers"), Some(&ListType::Set));
    assert_eq!(list_type("ownerReferences"), Some(&ListType::Map(vec!["uid".into()])));
    assert_eq!(list_type("managedFields"), Some(&ListType::Atomic));
    assert!(!of.keeps_unknown());
}
