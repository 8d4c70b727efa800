//! The entries of `metadata.managedFields`: who is the same manager, what a client may do to them, and what
//! is said in conflicts.

use super::*;

const NOW: &str = "2026-11-22T14:00:00Z";

fn manager(name: &'static str) -> FieldManager<'static> {
    FieldManager { name, api_version: "v1", now: NOW, ..FieldManager::default() }
}

/// Created by `one`, with a label of it.
fn created() -> Value {
    let object = json!({"kind": "Pod", "metadata": {"labels": {"a": "b"}}});
    let mut created =
        track(&Value::Null, object, &Schema::any(), &manager("one")).expect("it is new");
    created["metadata"]["uid"] = "u".into();
    created
}

/// The same object with these managed fields, as a client sends it.
fn with_entries(object: &Value, entries: Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["managedFields"] = entries;
    object
}

fn entry(name: &str, operation: &str, fields: Value) -> Value {
    json!({
        "manager": name, "operation": operation, "apiVersion": "v1", "time": NOW,
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    })
}

#[test]
fn what_the_server_keeps_is_never_owned() {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "b", "namespace": "b", "uid": "b", "generation": 0, "resourceVersion": "b",
            "creationTimestamp": NOW, "selfLink": "b",
        },
    });
    let updated = track(&Value::Null, object.clone(), &Schema::any(), &manager("one"));
    assert_eq!(updated.as_ref(), Ok(&object));
    let applied = apply(None, &object, &Schema::any(), &manager("one"), false);
    assert_eq!(applied.as_ref(), Ok(&object));
}

#[test]
fn who_writes_without_changing_owns_nothing() {
    let live = created();
    let again = with_entries(&live, Value::Null);
    let later = FieldManager { now: "2026-11-22T15:00:00Z", ..manager("two") };
    assert_eq!(track(&live, again, &Schema::any(), &later).expect("it is good"), live);
}

#[test]
fn a_client_can_make_all_forgotten() {
    let live = created();
    for entries in [json!([]), json!([{}]), json!([{"manager": "", "time": null}])] {
        let new = with_entries(&live, entries);
        let forgotten = track(&live, new, &Schema::any(), &manager("two")).expect("it is good");
        assert_eq!(owners_of(&forgotten), BTreeMap::new());
        // Nobody keeps count from then on.
        let mut new = forgotten.clone();
        new["metadata"]["labels"]["a"] = "c".into();
        let updated = track(&forgotten, new, &Schema::any(), &manager("two")).expect("it is good");
        assert_eq!(owners_of(&updated), BTreeMap::new());
        // Until somebody applies.
        let applied =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"x": "y"}}});
        let applied = apply(Some(&updated), &applied, &Schema::any(), &manager("three"), false)
            .expect("no conflict");
        let owners = owners_of(&applied).into_keys().collect::<Vec<_>>();
        assert_eq!(owners, ["before-first-apply", "three"]);
    }
}

#[test]
fn a_client_can_change_the_entries_but_not_through_a_subresource() {
    let live = created();
    let entries =
        json!([entry("other", "Apply", json!({"f:metadata": {"f:labels": {"f:a": {}}}}))]);
    let new = with_entries(&live, entries.clone());
    let updated = track(&live, new.clone(), &Schema::any(), &manager("two")).expect("it is good");
    assert_eq!(updated["metadata"]["managedFields"], entries);
    let status = FieldManager { subresource: "status", ..manager("two") };
    let updated = track(&live, new, &Schema::any(), &status).expect("it is good");
    assert_eq!(updated, live);
}

#[test]
fn entries_that_cannot_be_read_are_as_if_they_were_not_there() {
    let live = created();
    let good = || entry("x", "Apply", json!({"f:a": {}}));
    let with = |field: &str, value: Value| {
        let mut bad = good();
        bad[field] = value;
        bad
    };
    let mut deep = json!({});
    for _ in 0..200 {
        deep = json!({ "f:a": deep });
    }
    for bad in [
        json!("entries"),
        json!({"a": 1}),
        json!([1]),
        json!([good(), null]),
        json!([with("operation", json!("Invalid"))]),
        json!([with("operation", Value::Null)]),
        json!([with("operation", json!(1))]),
        json!([with("apiVersion", json!(""))]),
        json!([with("fieldsType", json!("FieldsV2"))]),
        json!([with("fieldsType", Value::Null)]),
        json!([with("time", json!("yesterday"))]),
        json!([with("manager", json!(5))]),
        json!([with("subresource", json!([]))]),
        json!([with("fieldsV1", json!("fields"))]),
        json!([with("fieldsV1", json!({"f:a": null}))]),
        json!([with("fieldsV1", json!({"f:a": {"x": {}}}))]),
        json!([with("fieldsV1", json!({"fa": {}}))]),
        json!([with("fieldsV1", json!({"k:{": {}}))]),
        json!([with("fieldsV1", json!({"k:[]": {}}))]),
        json!([with("fieldsV1", json!({"v:": {}}))]),
        json!([with("fieldsV1", json!({"i:1.5": {}}))]),
        json!([with("fieldsV1", json!({"i:99999999999999999999": {}}))]),
        json!([with("fieldsV1", json!({"": {}}))]),
        json!([with("fieldsV1", deep)]),
    ] {
        let updated =
            track(&live, with_entries(&live, bad.clone()), &Schema::any(), &manager("two"));
        assert_eq!(updated.as_ref(), Ok(&live), "{bad}");
        // Where they have been stored all the same, an apply cannot go on.
        let applied = json!({"apiVersion": "v1", "kind": "Pod"});
        let stored = with_entries(&live, bad.clone());
        let status = apply(Some(&stored), &applied, &Schema::any(), &manager("two"), true)
            .expect_err("they cannot be read");
        assert_eq!(status.code(), 500, "{bad}");
        assert!(status.message().contains("failed to decode managed fields: "), "{status}");
    }
}

#[test]
fn entries_come_back_as_they_were_given() {
    let live = created();
    for fields in [
        json!({"v:3": {"f:alsoPi": {}}, "v:3.1415": {"f:pi": {}}, "v:false": {"f:notTrue": {}}}),
        json!({"i:5": {"f:i": {}}}),
        json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}}}),
        json!({"k:{\"port\":80,\"protocol\":\"TCP\"}": {}}),
        json!({"f:": {}, "f:a.b": {}, "f:f:x": {}, "f: with spaces ": {}, "f:\u{1f680}": {}}),
        json!({"v:null": {}, "v:\"a\\\"b\"": {}, "k:{\"a\":null}": {}}),
    ] {
        let entries = json!([entry("x", "Apply", fields)]);
        let new = with_entries(&live, entries.clone());
        let updated = track(&live, new, &Schema::any(), &manager("two")).expect("it is good");
        assert_eq!(updated["metadata"]["managedFields"], entries);
    }
    // What means the same is written in one way, and what nobody knows is left out.
    for (fields, written) in [
        (json!({"f:a": {".": {}}}), json!({"f:a": {}})),
        (json!({"f:a": {".": {}, "r:Hello": {"x": 1}}}), json!({"f:a": {}})),
        (json!({"v:2.0": {}}), json!({"v:2": {}})),
        (json!({"v: \"a\" ": {}}), json!({"v:\"a\"": {}})),
        (json!({"k:{\"b\":1, \"a\":2}": {}}), json!({"k:{\"a\":2,\"b\":1}": {}})),
        (json!({"v:\"\\u002d\"": {}}), json!({"v:\"-\"": {}})),
        (json!({".": {}, "f:a": {}}), json!({"f:a": {}})),
    ] {
        let new = with_entries(&live, json!([entry("x", "Apply", fields)]));
        let updated = track(&live, new, &Schema::any(), &manager("two")).expect("it is good");
        assert_eq!(updated["metadata"]["managedFields"], json!([entry("x", "Apply", written)]));
    }
}

#[test]
fn entries_are_in_order() {
    let live = created();
    let dated = |name: &str, operation: &str, time: &str, subresource: &str| {
        let mut entry = entry(name, operation, json!({"f:a": {}}));
        for (field, text) in [("time", time), ("subresource", subresource)] {
            if text.is_empty() {
                entry.as_object_mut().expect("an object").remove(field);
            } else {
                entry[field] = text.into();
            }
        }
        entry
    };
    let sorted = json!([
        dated("a", "Apply", "", ""),
        dated("a", "Apply", "", "scale"),
        dated("b", "Apply", "", ""),
        dated("c", "Apply", "2001-01-01T01:00:00Z", ""),
        dated("d", "Update", "2001-01-01T01:00:00Z", ""),
        dated("e", "Update", "2001-01-01T01:00:00Z", ""),
        dated("a", "Update", "2002-01-01T01:00:00+01:00", "status"),
        dated("a", "Update", "2002-01-01T01:00:00Z", ""),
    ]);
    let mut reversed = sorted.clone();
    reversed.as_array_mut().expect("a list").reverse();
    let new = with_entries(&live, reversed);
    let updated = track(&live, new, &Schema::any(), &manager("two")).expect("it is good");
    assert_eq!(updated["metadata"]["managedFields"], sorted);
}

#[test]
fn the_oldest_of_more_than_ten_updates_become_one_of_each_version() {
    let mut live = created();
    for (at, version) in ["v1", "v2", "v1", "v1", "v3"].into_iter().cycle().take(20).enumerate() {
        let mut new = live.clone();
        new["metadata"]["labels"][format!("l{at:02}")] = "x".into();
        let (name, now) = (format!("m{at:02}"), format!("2026-11-22T15:00:{at:02}Z"));
        let manager = FieldManager {
            name: &name,
            api_version: version,
            now: &now,
            ..FieldManager::default()
        };
        live = track(&live, new, &Schema::any(), &manager).expect("it is good");
    }
    let entries = live["metadata"]["managedFields"].as_array().expect("entries");
    assert_eq!(entries.len(), 10);
    let ancient = entries.iter().filter(|entry| entry["manager"] == "ancient-changes");
    let versions: Vec<_> = ancient.map(|entry| &entry["apiVersion"]).collect();
    assert_eq!(versions, ["v3", "v2", "v1"], "each with the time of its youngest");
    // Nothing has got lost.
    let mut labels: Vec<_> = owners_of(&live).into_values().flatten().collect();
    labels.retain(|path| path.contains("labels.l"));
    labels.sort();
    let expected: Vec<_> = (0..20).map(|at| format!(".metadata.labels.l{at:02}")).collect();
    assert_eq!(labels, expected);
    // Appliers do not count.
    for at in 0..20 {
        let name = format!("a{at}");
        let applied =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"x": "y"}}});
        let manager = FieldManager { name: &name, ..manager("") };
        live =
            apply(Some(&live), &applied, &Schema::any(), &manager, false).expect("the same value");
    }
    assert_eq!(live["metadata"]["managedFields"].as_array().map(Vec::len), Some(30));
}

#[test]
fn a_conflict_says_who_owns_what() {
    let scale =
        FieldManager { subresource: "scale", api_version: "autoscaling/v1", ..manager("hpa") };
    let mut new = created();
    new["spec"] = json!({"replicas": 1});
    let live = track(&created(), new, &Schema::any(), &scale).expect("it is good");
    let wanted = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"replicas": 2}});
    let status = apply(Some(&live), &wanted, &Schema::any(), &manager("me"), false)
        .expect_err("others own it");
    let owner = "conflict with \"hpa\" with subresource \"scale\" using autoscaling/v1";
    assert_eq!(status.message(), format!("Apply failed with 1 conflict: {owner}: .spec.replicas"));
    let json = serde_json::to_value(&status).expect("it is JSON");
    assert_eq!((&json["code"], &json["reason"]), (&json!(409), &json!("Conflict")));
    let cause =
        json!({"reason": "FieldManagerConflict", "message": owner, "field": ".spec.replicas"});
    assert_eq!(json["details"]["causes"], json!([cause]));

    let applied = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"a": 1, "b": {"c": 1}}});
    let live = apply(Some(&live), &applied, &Schema::any(), &manager("an \"applier\""), false)
        .expect("nobody owns it");
    let wanted = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "c"}},
        "spec": {"a": 2, "b": {"c": 2}, "replicas": 2},
    });
    let status = apply(Some(&live), &wanted, &Schema::any(), &manager("me"), false)
        .expect_err("others own it");
    assert_eq!(
        status.message(),
        "Apply failed with 4 conflicts: conflicts with \"an \\\"applier\\\"\":\n- .spec.a\n- .spec.b.c\n\
         conflicts with \"hpa\" with subresource \"scale\" using autoscaling/v1:\n- .spec.replicas\n\
         conflicts with \"one\" using v1:\n- .metadata.labels.a"
    );
}

#[test]
fn a_subresource_makes_another_manager() {
    let live = apply(
        None,
        &json!({"apiVersion": "v1", "spec": {"a": 1}}),
        &Schema::any(),
        &manager("me"),
        false,
    );
    let status = FieldManager { subresource: "status", ..manager("me") };
    let applied = json!({"apiVersion": "v1", "status": {"b": 1}});
    let live =
        apply(live.as_ref().ok(), &applied, &Schema::any(), &status, false).expect("nobody's");
    assert_eq!(live["spec"], json!({"a": 1}), "it is not taken away");
    let entries = live["metadata"]["managedFields"].as_array().expect("entries");
    let subresources: Vec<_> = entries.iter().map(|entry| &entry["subresource"]).collect();
    assert_eq!(subresources, [&Value::Null, &json!("status")]);
}

/// A write of the object does not own the status that it says, and is in conflict with nobody over it.
#[test]
fn what_the_kind_resets_is_not_owned() {
    let object = FieldManager { reset_fields: &[&["status"]], ..manager("me") };
    let status = FieldManager {
        subresource: "status",
        reset_fields: &[&["spec"], &["metadata", "labels"]],
        ..manager("controller")
    };
    let both = |value| json!({"apiVersion": "v1", "spec": {"a": value}, "status": {"a": value}});
    let live = track(&Value::Null, both(1), &Schema::any(), &object).expect("it is good");
    let live = track(&live, both(2), &Schema::any(), &status).expect("it is good");
    assert_eq!(
        owners_of(&live),
        [("me", [".spec", ".spec.a"]), ("controller", [".status.a", ""])]
            .map(|(name, paths)| {
                let paths = paths.into_iter().filter(|path| !path.is_empty());
                (name.to_owned(), paths.map(str::to_owned).collect::<Vec<_>>())
            })
            .into()
    );
    let live = apply(Some(&live), &both(2), &Schema::any(), &object, false).expect("no conflict");
    assert!(apply(Some(&live), &both(3), &Schema::any(), &status, true).is_ok());
    let conflict = apply(Some(&live), &both(3), &Schema::any(), &object, false);
    assert_eq!(conflict.map_err(|status| status.details().causes.len()), Err(1));
}

#[test]
fn what_is_applied_must_be_of_the_kind_and_have_no_entries() {
    let live = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    let apps = FieldManager { api_version: "apps/v1", ..manager("me") };
    for (applied, why) in [
        (
            json!({"apiVersion": "apps/v1beta1", "kind": "Deployment"}),
            "invalid object type: apps/v1beta1, Kind=Deployment",
        ),
        (json!({"apiVersion": "v1", "kind": "Pod"}), "invalid object type: /v1, Kind=Pod"),
        (json!({}), "invalid object type: /, Kind="),
        (json!({"apiVersion": 1, "kind": []}), "invalid object type: /, Kind="),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"managedFields": []}}),
            "metadata.managedFields must be nil",
        ),
        (json!([]), "the object is no JSON object"),
        (json!({"metadata": "a"}), "the metadata of the object is no JSON object"),
    ] {
        let status =
            apply(Some(&live), &applied, &Schema::any(), &apps, true).expect_err("it is wrong");
        assert_eq!((status.code(), status.message()), (400, why));
    }
}

#[test]
fn an_applier_has_a_name() {
    let applied = json!({"apiVersion": "v1", "a": 1});
    let long = "x".repeat(129);
    for (name, why) in [
        ("", "Required value: is required for apply patch"),
        (long.as_str(), "Too long: may not be more than 128 bytes"),
        ("a\nb", "Invalid value: \"a\\nb\": invalid character U+000A (at position 1)"),
    ] {
        let manager = FieldManager { name, ..manager("") };
        let status =
            apply(None, &applied, &Schema::any(), &manager, true).expect_err("it is wrong");
        assert_eq!(status.code(), 422);
        let told = format!("PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: {why}");
        assert_eq!(status.message(), told);
    }
    // Others may say none.
    let updated = track(&Value::Null, applied, &Schema::any(), &manager("")).expect("it is good");
    assert_eq!(owners_of(&updated).into_keys().collect::<Vec<_>>(), ["unknown"]);
}

#[test]
fn an_entry_has_the_time_of_the_last_change() {
    let time = |live: &Value, at: usize| live["metadata"]["managedFields"][at]["time"].clone();
    let dated = |name, now| FieldManager { now, ..manager(name) };
    let wanted = |a, b| json!({"apiVersion": "v1", "spec": {"a": a, "b": b}});
    let of = Schema::any();
    let first = apply(None, &wanted(1, 1), &of, &dated("me", at(1).leak()), false).expect("new");
    let again =
        apply(Some(&first), &wanted(1, 1), &of, &dated("me", at(2).leak()), false).expect("mine");
    assert_eq!(again, first);
    // A new manager that changes nothing has a time, too.
    let shared =
        apply(Some(&first), &wanted(1, 1), &of, &dated("you", at(3).leak()), false).expect("same");
    assert_eq!((time(&shared, 0), time(&shared, 1)), (at(1).into(), at(3).into()));
    // Giving up a field that another keeps is a change of the entry.
    let less = json!({"apiVersion": "v1", "spec": {"a": 1}});
    let less = apply(Some(&shared), &less, &of, &dated("me", at(4).leak()), false).expect("mine");
    assert_eq!((time(&less, 0), time(&less, 1)), (at(3).into(), at(4).into()));
    // Losing one to another is none.
    let lost = apply(Some(&less), &wanted(2, 1), &of, &dated("you", at(5).leak()), true);
    let lost = lost.expect("it is forced");
    assert_eq!(owners_of(&lost)["me"], [".spec"]);
    assert_eq!((time(&lost, 0), time(&lost, 1)), (at(4).into(), at(5).into()));
}
