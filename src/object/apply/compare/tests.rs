//! What changes between two objects: the cases of `structured-merge-diff/typed/symdiff_test.go`, each both ways.

use serde_json::json;

use super::*;
use crate::object::schema::Schema;

fn of() -> Schema {
    let set =
        |of: &str| json!({"type": "array", "items": {"type": of}, "x-kubernetes-list-type": "set"});
    let item = json!({"type": "object", "properties": {
        "key": {"type": "string"}, "id": {"type": "number"}, "bv": {"type": "boolean"},
        "nv": {"type": "number"},
        "value": {"type": "object", "additionalProperties": {"type": "string"}},
    }});
    let deep = json!({"type": "object", "additionalProperties": {"type": "object"}});
    let properties = json!({
        "n": {"type": "number"}, "s": {"type": "string"}, "b": {"type": "boolean"},
        "any": {}, "map": deep,
        "struct": {"type": "object", "properties": {"value": {}}},
        "strings": set("string"), "bools": set("boolean"), "numbers": set("number"),
        "atomic": {"type": "array", "items": {"type": "string"}},
        "list": {
            "type": "array", "items": item,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key", "id"],
        },
    });
    Schema::from_openapi(&json!({"type": "object", "properties": properties})).expect("good")
}

/// What is removed, modified and added, and the same the other way round.
#[track_caller]
fn check(old: &Value, new: &Value, expected: [&[&str]; 3]) {
    let of = of();
    let sorted = |set: &Set| {
        let mut paths = set.paths();
        paths.sort();
        paths
    };
    let paths =
        |changes: &Changes| [&changes.removed, &changes.modified, &changes.added].map(sorted);
    let there = paths(&compare(Type::root(&of), old, new));
    assert_eq!(
        there,
        expected.map(|paths| paths.iter().map(|&path| path.to_owned()).collect::<Vec<_>>())
    );
    let mut back = paths(&compare(Type::root(&of), new, old));
    back.reverse();
    assert_eq!(there, back);
}

#[test]
fn single_values() {
    check(&json!({"n": 1, "s": "a"}), &json!({"n": 1, "s": "a"}), [&[], &[], &[]]);
    check(&json!({"n": 1}), &json!({"n": 1.0}), [&[], &[], &[]]);
    check(&json!({"n": 1}), &json!({"n": 3.5}), [&[], &[".n"], &[]]);
    check(&json!({"s": "a"}), &json!({"b": true}), [&[".s"], &[], &[".b"]]);
    check(&json!({"s": "a"}), &json!({"s": "b", "b": true}), [&[], &[".s"], &[".b"]]);
    check(&json!({"n": null}), &json!({"n": 1}), [&[], &[".n"], &[]]);
    check(&json!({}), &json!({"n": null}), [&[], &[], &[".n"]]);
}

#[test]
fn null_and_empty() {
    for (field, empty) in
        [("map", json!({})), ("struct", json!({})), ("atomic", json!([])), ("strings", json!([]))]
    {
        let path = format!(".{field}");
        check(&json!({}), &json!({field: empty}), [&[], &[], &[&path]]);
        check(&json!({}), &json!({field: null}), [&[], &[], &[&path]]);
        check(&json!({field: null}), &json!({field: empty}), [&[], &[&path], &[]]);
        check(&json!({field: empty}), &json!({field: empty}), [&[], &[], &[]]);
    }
}

#[test]
fn maps() {
    let map = |of: Value| json!({ "map": of });
    check(&map(json!({"a": {}, "b": {}})), &map(json!({"b": {}, "a": {}})), [&[], &[], &[]]);
    check(&map(json!({"a": {}})), &map(json!({"b": {}})), [&[".map.a"], &[], &[".map.b"]]);
    check(
        &map(json!({"a": {"b": {"c": {}}}})),
        &map(json!({"a": {"b": {}}})),
        [&[".map.a.b.c"], &[], &[]],
    );
    check(&map(json!({"a": {}})), &map(json!({"a": {"b": {}}})), [&[], &[], &[".map.a.b"]]);
    check(
        &json!({}),
        &json!({"struct": {"value": {"x": 1}}}),
        [&[], &[], &[".struct", ".struct.value", ".struct.value.x"]],
    );
}

#[test]
fn what_is_deduced() {
    let any = |of: Value| json!({ "any": of });
    let (map, list) = (json!({"b": {}}), json!(["b"]));
    for empty in [json!({}), json!(null)] {
        check(&any(empty), &any(map.clone()), [&[], &[], &[".any.b"]]);
    }
    for other in [json!([]), json!(null), json!("b")] {
        check(&any(other), &any(list.clone()), [&[], &[".any"], &[]]);
    }
    check(&any(json!(null)), &any(json!("b")), [&[], &[".any"], &[]]);
    for other in [list, json!("b")] {
        check(&any(map.clone()), &any(other), [&[".any.b"], &[".any"], &[]]);
    }
}

#[test]
fn sets() {
    let strings = |of: &[&str]| json!({ "strings": of });
    let (a, b, c) = (".strings[=\"a\"]", ".strings[=\"b\"]", ".strings[=\"c\"]");
    check(&strings(&["a", "b"]), &strings(&["c", "b", "a"]), [&[], &[], &[c]]);
    check(&strings(&["a"]), &strings(&["a", "b", "b"]), [&[], &[], &[b]]);
    check(&strings(&["a", "b"]), &strings(&["a", "b", "b"]), [&[b], &[], &[b]]);
    check(&strings(&["b", "b"]), &strings(&["a", "b", "b"]), [&[], &[], &[a]]);
    check(&strings(&["a", "b", "c"]), &strings(&[]), [&[a, b, c], &[], &[]]);
    check(&strings(&["a", "b", "b", "c", "a"]), &strings(&[]), [&[a, b, c], &[], &[]]);
    check(
        &json!({"bools": [true, true]}),
        &json!({"bools": [false]}),
        [&[".bools[=true]"], &[], &[".bools[=false]"]],
    );
    check(
        &json!({"numbers": [1, 2, 2, 3.5, 1]}),
        &json!({"numbers": [1, 2, 3]}),
        [
            &[".numbers[=1]", ".numbers[=2]", ".numbers[=3.5]"],
            &[],
            &[".numbers[=1]", ".numbers[=2]", ".numbers[=3]"],
        ],
    );
}

#[test]
fn lists_by_key() {
    let list = |of: Value| json!({ "list": of });
    let value = |id: u32, value: &str| json!([{"key": "a", "id": id, "value": {"a": value}}]);
    let first = ".list[id=1,key=\"a\"]";
    let fields =
        |of: &str| ["", ".id", ".key", ".value", ".value.a"].map(|field| format!("{of}{field}"));
    let (firsts, seconds) = (fields(first), fields(".list[id=2,key=\"a\"]"));
    let [firsts, seconds] = [&firsts, &seconds].map(|all| all.each_ref().map(String::as_str));
    check(&json!({}), &list(value(1, "a")), [&[], &[], &[&[".list"], &firsts[..]].concat()]);
    check(&list(value(1, "a")), &list(value(1, "a")), [&[], &[], &[]]);
    check(&list(value(1, "a")), &list(value(1, "b")), [&[], &[firsts[4]], &[]]);
    check(&list(value(1, "a")), &list(value(2, "a")), [&firsts, &[], &seconds]);
    check(&json!({"atomic": ["a", "a"]}), &json!({"atomic": ["a"]}), [&[], &[".atomic"], &[]]);
    check(&json!({"atomic": ["a", "a"]}), &json!({"atomic": null}), [&[], &[".atomic"], &[]]);

    // With duplicates.
    let b = json!({"key": "b", "id": 1});
    let twice = list(json!([{"key": "a", "id": 1, "nv": 2}, b, {"key": "a", "id": 1, "bv": true}]));
    let once = list(json!([{"key": "a", "id": 1}, b]));
    check(&twice, &once, [&[first], &[], &firsts[..3]]);
    check(&twice, &twice, [&[], &[], &[]]);
    let mut other = twice.clone();
    other["list"][2]["nv"] = json!(1);
    check(&twice, &other, [&[], &[first], &[]]);
    let mut other = twice.clone();
    other["list"][1]["bv"] = json!(true);
    check(&twice, &other, [&[], &[], &[".list[id=1,key=\"b\"].bv"]]);
}
