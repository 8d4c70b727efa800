//! What clients can send to do harm: depth, width, and managed fields that make no sense.

use super::*;

fn deep(levels: usize) -> Value {
    (0..levels).fold(json!(1), |of, _| json!({ "a": of }))
}

fn me() -> FieldManager<'static> {
    FieldManager {
        name: "me",
        api_version: "v1",
        now: "2026-11-22T14:00:00Z",
        ..FieldManager::default()
    }
}

#[test]
fn depth_is_bounded_so_that_what_is_stored_can_be_read() {
    let of = Schema::any();
    for (levels, is_good) in [(119, true), (120, false), (1_000, false)] {
        let object = json!({"apiVersion": "v1", "a": deep(levels)});
        for result in [
            apply(None, &object, &of, &me(), false),
            track(&Value::Null, object.clone(), &of, &me()),
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
            assert_eq!(track(object, object.clone(), &of, &me()).as_ref(), Ok(object));
            let applied = json!({"apiVersion": "v1", "b": 1});
            assert!(apply(Some(object), &applied, &of, &me(), true).is_ok());
        }
    }
}

#[test]
fn lists_of_ten_thousand_items_come_out_right() {
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
fn ten_thousand_managers_come_out_right() {
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
    let one = FieldManager { name: "m0", ..me() };
    let status = apply(Some(&live), &wanted, &of, &one, false).expect_err("all own b");
    assert_eq!(status.details().causes.len(), 100);
    let message = status.message();
    assert!(message.starts_with("Apply failed with 9999 conflicts: "), "{message}");
    assert!(message.ends_with("\nand 9899 more"), "{message}");
    let applied = apply(Some(&live), &wanted, &of, &one, true).expect("it is forced");
    assert_eq!(owners_of(&applied).len(), 10_000);
    let mut new = applied.clone();
    new["b"] = json!(3);
    let updated = track(&applied, new, &of, &me()).expect("it is good");
    assert_eq!(owners_of(&updated).len(), 5_000 + 10, "five thousand updates have become ten");
}

#[test]
fn the_hundred_and_first_applier_is_refused() {
    let of = Schema::any();
    let wanted =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "a": 1});
    let mut live = Value::Null;
    let names: Vec<_> = (0..=100).map(|at| format!("m{at}")).collect();
    let by = |name| FieldManager { name, api_version: "apps/v1", ..me() };
    for name in &names[..100] {
        live = apply(Some(&live), &wanted, &of, &by(name), false).expect("all want the same");
    }
    let status =
        apply(Some(&live), &wanted, &of, &by(&names[100]), true).expect_err("one too many");
    assert_eq!(status.code(), 422);
    assert_eq!(
        status.message(),
        "Deployment.apps \"web\" is invalid: metadata.managedFields: \
         Too many: 101: must have at most 100 appliers"
    );
    // Who applies already may go on, and others may update.
    assert_eq!(apply(Some(&live), &wanted, &of, &by("m7"), false).as_ref(), Ok(&live));
    let mut new = live.clone();
    new["b"] = json!(2);
    let updated = track(&live, new, &of, &by("updater")).expect("it is an update");
    assert_eq!(owners_of(&updated).len(), 101);
    // Nor does a client bring more.
    let mut new = live.clone();
    let entries = new["metadata"]["managedFields"].as_array_mut().expect("entries");
    let mut entry = entries[0].clone();
    entry["manager"] = "m100".into();
    entries.push(entry);
    for live in [&live, &Value::Null] {
        let status = track(live, new.clone(), &of, &by("updater")).expect_err("one too many");
        assert_eq!(status.code(), 422);
    }
}

#[test]
fn updates_of_made_up_versions_become_ten_entries() {
    let entries = (0..1_000).map(|at| {
        json!({
            "manager": "m", "operation": "Update", "apiVersion": format!("v{at}"),
            "time": format!("2026-11-22T14:{:02}:{:02}Z", at / 60, at % 60),
            "fieldsType": "FieldsV1", "fieldsV1": {format!("f:a{at}"): {}},
        })
    });
    let fields = (0..1_000).map(|at| (format!("a{at}"), json!(1)));
    let mut live: Value = fields.collect();
    live["metadata"] = json!({"uid": "u"});
    let mut new = live.clone();
    new["metadata"]["managedFields"] = entries.collect();
    new["b"] = json!(1);
    let updated = track(&live, new, &Schema::any(), &me()).expect("it is good");
    let entries = updated["metadata"]["managedFields"].as_array().expect("entries");
    assert_eq!(entries.len(), 10);
    assert_eq!(entries[0]["manager"], "ancient-changes");
    assert_eq!(entries[0]["apiVersion"], "v990");
    // Nothing has got lost.
    let owned = entries.iter().filter_map(|entry| entry["fieldsV1"].as_object());
    assert_eq!(owned.map(serde_json::Map::len).sum::<usize>(), 1_001);
}

#[test]
fn conflicts_are_told_in_short_however_long_the_names_are() {
    let long = "x".repeat(100_000);
    let object = |value: u32| {
        let fields: Value = (0..12_000).map(|at| (format!("k{at}"), json!(value))).collect();
        json!({"apiVersion": "v1", "spec": {long.clone(): fields}})
    };
    let of = Schema::any();
    let live = apply(None, &object(1), &of, &me(), false).expect("nobody has anything against it");
    let other = FieldManager { name: "other", ..me() };
    let status = apply(Some(&live), &object(2), &of, &other, false).expect_err("the first owns it");
    assert_eq!((status.code(), status.details().causes.len()), (409, 100));
    assert!(
        status.message().starts_with("Apply failed with 12000 conflicts: conflicts with \"me\":")
    );
    assert!(status.message().ends_with("\nand 11900 more"));
    assert!(serde_json::to_vec(&status).expect("it is JSON").len() < 100_000);
    for cause in &status.details().causes {
        assert!(cause.field.starts_with(".spec.xxx") && cause.field.contains("....k"), "{cause:?}");
    }
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
