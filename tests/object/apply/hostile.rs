//! What clients can send to do harm: depth, width, and managed fields that make no sense.

use super::*;

fn deep(levels: usize) -> Value {
    (0..levels).fold(json!(1), |of, _| json!({ "a": of }))
}

fn me() -> Manager<'static> {
    Manager { name: "me", api_version: "v1", now: "2026-11-22T14:00:00Z", ..Manager::default() }
}

#[test]
fn depth_is_bounded_so_that_what_is_stored_can_be_read() {
    let of = Schema::any();
    for (levels, is_good) in [(119, true), (120, false), (1_000, false)] {
        let object = json!({"apiVersion": "v1", "a": deep(levels)});
        for result in [
            apply(None, &object, &of, &me(), false),
            update(&Value::Null, object.clone(), &of, &me()),
        ] {
            let Ok(object) = result.as_ref() else {
                assert_eq!(result.map_err(|status| status.code()), Err(400));
                assert!(!is_good);
                continue;
            };
            assert!(is_good);
            let read: Result<Value, _> = serde_json::from_str(&object.to_string());
            assert_eq!(read.as_ref().ok(), Some(object));
            // Read and written again, it is still good.
            assert_eq!(update(object, object.clone(), &of, &me()).as_ref(), Ok(object));
            let applied = json!({"apiVersion": "v1", "b": 1});
            assert!(apply(Some(object), &applied, &of, &me(), true).is_ok());
        }
    }
}

#[test]
fn lists_of_ten_thousand_items_take_no_quadratic_time() {
    let of = schema(&json!({
        "list": keyed(&["name"], json!({"name": text(), "value": number()})),
        "set": set(text()),
    }));
    let object = |step: usize| {
        let names: Vec<_> = (0..10_000).step_by(step).map(|at| format!("n{at}")).collect();
        let items: Vec<_> =
            names.iter().rev().map(|name| json!({"name": name, "value": 1})).collect();
        json!({"list": items, "set": names})
    };
    let story = Story::of(&of)
        .update("updater", object(2))
        .apply("one", object(1))
        .apply("two", object(3))
        .apply("one", object(6));
    assert_eq!(story.live["list"].as_array().map(Vec::len), Some(6667));
    let story = story.force("two", object(7)).apply("one", json!({})).update("updater", json!({}));
    assert_eq!(story.live, json!({"apiVersion": "v1"}));
}

#[test]
fn ten_thousand_managers_take_no_quadratic_time() {
    let entries = (0..10_000).map(|at| {
        let operation = if at % 2 == 0 { "Apply" } else { "Update" };
        json!({
            "manager": format!("m{at}"), "operation": operation, "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:list": {format!("v:{at}"): {}}, "f:b": {}},
        })
    });
    let items: Vec<_> = (0..10_000).collect();
    let live = json!({
        "apiVersion": "v1", "list": items, "b": 1,
        "metadata": {"uid": "u", "managedFields": entries.collect::<Vec<_>>()},
    });
    let of = schema(&json!({"list": set(number()), "b": number()}));
    let wanted = json!({"apiVersion": "v1", "list": [10_001], "b": 2});
    let status = apply(Some(&live), &wanted, &of, &me(), false).expect_err("all own b");
    assert_eq!(status.details().causes.len(), 10_000);
    let applied = apply(Some(&live), &wanted, &of, &me(), true).expect("it is forced");
    assert_eq!(owners_of(&applied).len(), 10_001);
    let mut new = applied.clone();
    new["b"] = json!(3);
    let updated = update(&applied, new, &of, &me()).expect("it is good");
    assert_eq!(owners_of(&updated).len(), 5_000 + 10, "five thousand updates have become ten");
}

#[test]
fn paths_that_lead_nowhere_do_no_harm() {
    let of = schema(&json!({
        "list": keyed(&["name"], json!({"name": text(), "value": number()})),
        "args": {"type": "array", "items": text()}, "n": number(), "map": map(text()),
    }));
    let live = |fields: &Value| {
        json!({
            "apiVersion": "v1", "n": 1, "args": ["a"], "map": {"a": "b"},
            "list": [{"name": "a", "value": 1}],
            "metadata": {"uid": "u", "managedFields": [{
                "manager": "me", "operation": "Apply", "apiVersion": "v1",
                "fieldsType": "FieldsV1", "fieldsV1": fields,
            }]},
        })
    };
    // A claim of a part is one of the whole field, where the schema has it by name and nobody owns the rest.
    for (fields, gone) in [
        (json!({"f:n": {"f:x": {"v:1": {}}}}), vec!["n"]),
        (json!({"f:args": {"i:0": {}}}), vec!["args"]),
        (
            json!({"f:list": {"i:0": {}, "v:\"a\"": {}, "f:name": {}, "k:{}": {}, "k:{\"name\":[]}": {}}}),
            vec!["list"],
        ),
        (json!({"f:list": {"k:{\"name\":\"a\"}": {"f:value": {"f:x": {}}}}}), vec!["list"]),
        (json!({"f:map": {"f:a": {"k:{\"a\":1}": {}}, "i:0": {}}}), vec!["map"]),
        (json!({"f:none": {"f:x": {}}, "i:-5": {}, "v:{\"a\":[1]}": {}}), vec![]),
        (json!({"k:{\"n\":1}": {"f:n": {}}, "f:N": {}, "f:n.x": {}}), vec![]),
    ] {
        let live = live(&fields);
        let applied = apply(Some(&live), &json!({"apiVersion": "v1"}), &of, &me(), false);
        let mut expected = live;
        let left = expected.as_object_mut().expect("an object");
        left.retain(|name, _| !gone.contains(&name.as_str()));
        left.insert("metadata".into(), json!({"uid": "u"}));
        assert_eq!(applied, Ok(expected), "{fields}");
    }
}
