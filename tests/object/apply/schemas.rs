//! Schemas: what they say of ownership, what becomes of it when they change, and what is not of its type.

use annals::object::ListType;

use super::*;

fn structure(is_atomic: bool) -> Schema {
    let mut of = object(json!({"numeric": number(), "string": text()}));
    if is_atomic {
        of["x-kubernetes-map-type"] = "atomic".into();
    }
    schema(&json!({ "struct": of }))
}

/// Each object with the paths of who applies it.
#[test]
fn the_set_of_what_is_applied() {
    let of = schema(&json!({
        "numeric": number(), "string": text(), "bool": {"type": "boolean"},
        "any": {}, "free": {"type": "object"},
        "set": set(text()), "numbers": set(number()),
        "color": {
            "type": "object",
            "properties": {"R": number(), "G": number()},
            "x-kubernetes-map-type": "atomic",
        },
        "waves": {
            "type": "object", "additionalProperties": number(), "x-kubernetes-map-type": "atomic",
        },
        "args": {"type": "array", "items": object(json!({"key": text()}))},
        "list": keyed(&["key"], json!({"key": text(), "value": map(text())})),
        "struct": object(json!({"a": text(), "b": map(set(text()))})),
    }));
    let cases: &[(Value, &[&str])] = &[
        (json!({"numeric": 1, "string": "a", "bool": false}), &[".bool", ".numeric", ".string"]),
        (json!({"numeric": null}), &[".numeric"]),
        (json!({"set": ["a", "b"]}), &[".set[=\"a\"]", ".set[=\"b\"]"]),
        (json!({"numbers": [1, 3.5]}), &[".numbers[=1]", ".numbers[=3.5]"]),
        (json!({"set": []}), &[]),
        (json!({"set": null}), &[".set"]),
        (json!({"color": {"R": 255, "G": 0}}), &[".color"]),
        (json!({"color": {}}), &[".color"]),
        (json!({"color": null}), &[".color"]),
        (json!({"waves": {"IR": 1}}), &[".waves"]),
        (json!({"args": [{"key": "a"}, {"key": "a"}]}), &[".args"]),
        (json!({"args": [null]}), &[".args"]),
        (json!({"args": []}), &[".args"]),
        (
            json!({"list": [{"key": "a", "value": {"x": "y"}}]}),
            &[".list[key=\"a\"]", ".list[key=\"a\"].key", ".list[key=\"a\"].value.x"],
        ),
        (json!({"any": 1}), &[".any"]),
        (json!({"free": {"known": null}}), &[".free.known"]),
        (json!({"any": {"a": {"b": [1]}}}), &[".any.a", ".any.a.b"]),
        (json!({"free": {"a": {"b": [1]}}}), &[".free.a", ".free.a.b"]),
        (json!({"struct": {"a": "x"}}), &[".struct.a"]),
        (json!({"struct": {}}), &[".struct"]),
        (json!({"struct": {"b": {"c": ["d"]}}}), &[".struct.b.c", ".struct.b.c[=\"d\"]"]),
    ];
    for (object, paths) in cases {
        let owners: &[(&str, &[&str])] = if paths.is_empty() { &[] } else { &[("me", paths)] };
        Story::of(&of).apply("me", object.clone()).is(object.clone()).owned(owners);
    }
}

/// As the schemas of built-in kinds say it that are older than list types.
#[test]
fn a_list_without_a_type_is_merged_as_patches_merge_it() {
    let item = object(json!({"name": text()}));
    for (strategy, key, items, said, expected) in [
        (json!("merge"), json!("name"), &item, json!(null), ListType::Map(vec!["name".into()])),
        (
            json!("merge,retainKeys"),
            json!("name"),
            &item,
            json!(null),
            ListType::Map(vec!["name".into()]),
        ),
        (json!("merge"), json!(null), &text(), json!(null), ListType::Set),
        (json!("merge"), json!(null), &item, json!(null), ListType::Atomic),
        (json!("replace"), json!("name"), &item, json!(null), ListType::Atomic),
        (json!(null), json!("name"), &item, json!(null), ListType::Atomic),
        (json!("merge"), json!("name"), &item, json!("atomic"), ListType::Atomic),
        (json!("merge"), json!("name"), &text(), json!("set"), ListType::Set),
    ] {
        let of = schema(&json!({"list": {
            "type": "array", "items": items,
            "x-kubernetes-patch-strategy": strategy, "x-kubernetes-patch-merge-key": key,
            "x-kubernetes-list-type": said,
        }}));
        assert_eq!(of.field("list").map(Schema::list_type), Some(&expected));
    }
    let containers = json!({
        "type": "array", "items": item,
        "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name",
    });
    Story::of(&schema(&json!({ "containers": containers })))
        .apply("one", json!({"containers": [{"name": "a"}]}))
        .apply("two", json!({"containers": [{"name": "b"}]}))
        .is(json!({"containers": [{"name": "a"}, {"name": "b"}]}));
}

#[test]
fn what_becomes_atomic_belongs_to_who_owned_a_part() {
    Story::of(&structure(false))
        .apply("one", json!({"struct": {"numeric": 1}}))
        .schema(&structure(true))
        .conflict("two", json!({"struct": {"string": "string"}}), &[("one", ".struct")])
        .force("two", json!({"struct": {"string": "string"}}))
        .is(json!({"struct": {"string": "string"}}))
        .owned(&[("two", &[".struct"])]);
    Story::of(&structure(false))
        .apply("one", json!({"struct": {"numeric": 1}}))
        .force("two", json!({"struct": {"numeric": 2}}))
        .schema(&structure(true))
        .conflict("three", json!({"struct": {"string": "string"}}), &[("two", ".struct")]);
}

#[test]
fn what_is_atomic_no_more_belongs_to_nobody_in_its_parts() {
    Story::of(&structure(true))
        .apply("one", json!({"struct": {"numeric": 1, "string": "a"}}))
        .conflict("two", json!({"struct": {"string": "b"}}), &[("one", ".struct")])
        .schema(&structure(false))
        .apply("two", json!({"struct": {"string": "b"}}))
        .is(json!({"struct": {"numeric": 1, "string": "b"}}))
        .owned(&[("one", &[".struct"]), ("two", &[".struct.string"])]);
}

#[test]
fn a_list_that_becomes_atomic_belongs_to_who_owned_an_item() {
    let atomic = schema(&json!({"list": {"type": "array", "items": {"type": "object"}}}));
    Story::of(&named_values())
        .apply("one", json!({"list": [{"name": "a", "value": 1}]}))
        .schema(&atomic)
        .conflict("two", json!({"list": []}), &[("one", ".list")])
        .apply("one", json!({"list": [{"name": "b"}]}))
        .is(json!({"list": [{"name": "b"}]}))
        .owned(&[("one", &[".list"])]);
}

fn by_name_and_id(default: Option<u32>) -> Schema {
    let mut id = number();
    if let Some(default) = default {
        id["default"] = default.into();
    }
    schema(&json!({"list": keyed(
        &["name", "id"],
        json!({"name": text(), "id": id, "value": number()}),
    )}))
}

fn by_name() -> Schema {
    schema(&json!({"list": keyed(
        &["name"],
        json!({"name": text(), "id": number(), "value": number()}),
    )}))
}

#[test]
fn a_list_gets_another_key_with_a_default() {
    let after = json!({"list": [
        {"name": "a", "value": 2}, {"name": "b", "id": 1, "value": 2},
        {"name": "c", "value": 1}, {"name": "c", "id": 2, "value": 2},
    ]});
    Story::of(&by_name())
        .apply(
            "me",
            json!({"list": [
                {"name": "a", "value": 1}, {"name": "b", "value": 1}, {"name": "c", "value": 1},
            ]}),
        )
        .schema(&by_name_and_id(Some(1)))
        .apply("me", after.clone())
        .is(after)
        .owned(&[(
            "me",
            &[
                ".list[id=1,name=\"a\"]",
                ".list[id=1,name=\"a\"].name",
                ".list[id=1,name=\"a\"].value",
                ".list[id=1,name=\"b\"]",
                ".list[id=1,name=\"b\"].id",
                ".list[id=1,name=\"b\"].name",
                ".list[id=1,name=\"b\"].value",
                ".list[id=1,name=\"c\"]",
                ".list[id=1,name=\"c\"].name",
                ".list[id=1,name=\"c\"].value",
                ".list[id=2,name=\"c\"]",
                ".list[id=2,name=\"c\"].id",
                ".list[id=2,name=\"c\"].name",
                ".list[id=2,name=\"c\"].value",
            ],
        )]);
}

#[test]
fn a_list_gets_another_key_without_default() {
    for (before, after) in [
        // The items of before have no such key: they are others.
        (
            json!([{"name": "a", "value": 1}]),
            json!([{"name": "a", "value": 2}, {"name": "a", "id": 1, "value": 1}]),
        ),
        (
            json!([{"name": "a", "value": 1}]),
            json!([{"name": "a", "value": 1}, {"name": "a", "id": 2, "value": 2}]),
        ),
        // Or have it already, as a field.
        (json!([{"name": "a", "id": 1, "value": 1}]), json!([{"name": "a", "id": 1, "value": 2}])),
        (
            json!([{"name": "a", "id": 1, "value": 1}]),
            json!([{"name": "a", "id": 1, "value": 1}, {"name": "a", "id": 2, "value": 2}]),
        ),
    ] {
        Story::of(&by_name())
            .apply("me", json!({ "list": before }))
            .schema(&by_name_and_id(None))
            .apply("me", json!({ "list": after }))
            .is(json!({ "list": after }));
    }
}

#[test]
fn what_is_applied_must_be_of_its_type() {
    let of = schema(&json!({
        "number": {"type": "integer"}, "text": text(), "flag": {"type": "boolean"},
        "struct": object(json!({"a": text()})), "list": {"type": "array", "items": text()},
        "set": set(json!({})), "port": {"x-kubernetes-int-or-string": true},
        "named": keyed(&["name"], json!({"name": text()})), "map": map(text()),
    }));
    for (object, why) in [
        (json!({"number": "1"}), ".number: expected numeric (int or float), got \"1\""),
        (json!({"text": 1}), ".text: expected string, got 1"),
        (json!({"flag": "yes"}), ".flag: expected boolean, got \"yes\""),
        (json!({"struct": 1}), ".struct: expected map, got 1"),
        (json!({"struct": {"b": 1}}), ".struct.b: field not declared in schema"),
        (json!({"other": 1}), ".other: field not declared in schema"),
        (json!({"list": "a"}), ".list: expected list, got \"a\""),
        (json!({"list": ["a", 1]}), ".list[1]: expected string, got 1"),
        (json!({"port": [1]}), ".port: expected any scalar, got [1]"),
        (json!({"map": {"a": 1}}), ".map.a: expected string, got 1"),
        (
            json!({"set": [{}]}),
            ".set: element 0: associative list without keys has an element that's a map type",
        ),
        (
            json!({"set": [[]]}),
            ".set: element 0: not supported: associative list with lists as elements",
        ),
        (
            json!({"set": [null]}),
            ".set: element 0: associative list without keys has an element that's an explicit null",
        ),
        (
            json!({"named": [null]}),
            ".named: element 0: associative list with keys may not have a null element",
        ),
        (
            json!({"named": [1]}),
            ".named: element 0: associative list with keys may not have non-map elements",
        ),
        (json!({"metadata": {"labels": {"a": 1}}}), ".metadata.labels.a: expected string, got 1"),
        (json!({"metadata": {"color": "red"}}), ".metadata.color: field not declared in schema"),
    ] {
        let called = format!("failed to create typed patch object (/; /v1, Kind=): {why}");
        Story::of(&of).refused("me", object, &called);
    }
    let both = "errors:\n  .number: expected numeric (int or float), got \"1\"\n  .text: expected string, got 1";
    Story::of(&of).refused("me", json!({"number": "1", "text": 1}), both);
    Story::of(&of).apply("me", json!({"port": 1})).apply("me", json!({"port": "http"}));
}

/// What is stored already is not refused: a list with an item that has no key belongs to one owner as a whole.
#[test]
fn what_is_stored_need_not_be_of_its_type() {
    Story::of(&named_values())
        .update("updater", json!({"list": [{"value": 1}], "other": {"a": 1}}))
        .owned(&[("updater", &[".list", ".other", ".other.a"])])
        .conflict("me", json!({"list": [{"name": "a"}]}), &[("updater", ".list")])
        .force("me", json!({"list": [{"name": "a"}]}))
        .is(json!({"list": [{"name": "a"}], "other": {"a": 1}}))
        .owned(&[
            ("updater", &[".other", ".other.a"]),
            ("me", &[".list[name=\"a\"]", ".list[name=\"a\"].name"]),
        ]);
}
