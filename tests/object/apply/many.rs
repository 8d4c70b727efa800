//! Several appliers of one object: who keeps what when one of them says less.

use super::nested::nested;
use super::*;

fn list(names: &[&str]) -> Value {
    let items: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
    json!({ "list": items })
}

#[test]
fn each_takes_away_only_what_is_its_own() {
    Story::of(&named_values())
        .apply("one", list(&["a", "b"]))
        .version("v2")
        .apply("two", list(&["c"]))
        .version("v3")
        .apply("one", list(&["a"]))
        .is(list(&["a", "c"]))
        .owned(&[
            ("one", &[".list[name=\"a\"]", ".list[name=\"a\"].name"]),
            ("two", &[".list[name=\"c\"]", ".list[name=\"c\"].name"]),
        ]);
}

#[test]
fn the_same_value_is_no_conflict_and_has_two_owners() {
    let same = json!({"list": [{"name": "a", "value": 0}]});
    let all: &[&str] = &[".list[name=\"a\"]", ".list[name=\"a\"].name", ".list[name=\"a\"].value"];
    Story::of(&named_values())
        .apply("one", same.clone())
        .apply("two", same.clone())
        .is(same)
        .owned(&[("one", all), ("two", all)]);
}

#[test]
fn another_value_is_a_conflict() {
    Story::of(&named_values())
        .apply("one", json!({"list": [{"name": "a", "value": 0}]}))
        .conflict(
            "two",
            json!({"list": [{"name": "a", "value": 1}]}),
            &[("one", ".list[name=\"a\"].value")],
        )
        .is(json!({"list": [{"name": "a", "value": 0}]}));
}

#[test]
fn an_item_with_another_owner_stays() {
    Story::of(&named_values())
        .apply("one", list(&["a", "b", "c"]))
        .apply("two", list(&["c", "d"]))
        .apply("one", list(&["a"]))
        .is(list(&["a", "c", "d"]))
        .owned(&[
            ("one", &[".list[name=\"a\"]", ".list[name=\"a\"].name"]),
            (
                "two",
                &[
                    ".list[name=\"c\"]",
                    ".list[name=\"c\"].name",
                    ".list[name=\"d\"]",
                    ".list[name=\"d\"].name",
                ],
            ),
        ]);
}

#[test]
fn a_field_goes_when_its_last_owner_gives_it_up() {
    let story = || Story::of(&nested()).apply("one", json!({"struct": {"name": "a", "value": 1}}));
    story().apply("one", json!({"struct": {"name": "a"}})).is(json!({"struct": {"name": "a"}}));
    // Another applier has it, too.
    story()
        .apply("two", json!({"struct": {"value": 1}}))
        .apply("one", json!({"struct": {"name": "a"}}))
        .is(json!({"struct": {"name": "a", "value": 1}}))
        .owned(&[("one", &[".struct.name"]), ("two", &[".struct.value"])])
        .apply("two", json!({}))
        .is(json!({"struct": {"name": "a"}}));
    // An updater made it.
    Story::of(&nested())
        .update("updater", json!({"struct": {"name": "a", "value": 1}}))
        .apply("one", json!({"struct": {"name": "a", "value": 1}}))
        .apply("one", json!({"struct": {"name": "a"}}))
        .is(json!({"struct": {"name": "a", "value": 1}}))
        .owned(&[
            ("updater", &[".struct", ".struct.name", ".struct.value"]),
            ("one", &[".struct.name"]),
        ]);
    // An updater took it.
    story()
        .update("updater", json!({"struct": {"name": "a", "value": 2}}))
        .is(json!({"struct": {"name": "a", "value": 2}}))
        .owned(&[("one", &[".struct.name"]), ("updater", &[".struct.value"])]);
}

#[test]
fn a_structure_goes_when_its_last_owner_gives_it_up() {
    let of = schema(&json!({"struct": object(json!({
        "name": text(),
        "complex": object(json!({"name": text()})),
    }))}));
    let both = json!({"struct": {"name": "a", "complex": {"name": "b"}}});
    Story::of(&of)
        .apply("one", both.clone())
        .apply("one", json!({"struct": {"name": "a"}}))
        .is(json!({"struct": {"name": "a"}}))
        .owned(&[("one", &[".struct.name"])]);
    Story::of(&of)
        .apply("one", both.clone())
        .apply("two", json!({"struct": {"complex": {"name": "b"}}}))
        .apply("one", json!({"struct": {"name": "a"}}))
        .is(both)
        .owned(&[("one", &[".struct.name"]), ("two", &[".struct.complex.name"])]);
}

fn lists(items: &[(&str, &[&str])]) -> Value {
    let items = items.iter().map(|(name, value)| match value {
        [] => json!({ "name": name }),
        value => json!({"name": name, "value": value}),
    });
    json!({ "listOfLists": items.collect::<Vec<_>>() })
}

const A: [&str; 2] = [".listOfLists[name=\"a\"]", ".listOfLists[name=\"a\"].name"];
const B: [&str; 3] = [
    ".listOfLists[name=\"b\"]",
    ".listOfLists[name=\"b\"].name",
    ".listOfLists[name=\"b\"].value[=\"d\"]",
];

#[test]
fn an_item_stays_with_what_another_owns_in_it() {
    Story::of(&nested())
        .apply("one", lists(&[("a", &[]), ("b", &["c"])]))
        .apply("two", lists(&[("b", &["d"])]))
        .apply("one", lists(&[("a", &[])]))
        .is(lists(&[("a", &[]), ("b", &["d"])]))
        .owned(&[("one", &A), ("two", &B)]);
}

#[test]
fn what_an_updater_has_put_into_an_item_stays_as_long_as_the_item() {
    Story::of(&nested())
        .apply("one", lists(&[("a", &[]), ("b", &["c"])]))
        .apply("two", lists(&[("b", &["d"])]))
        .update("controller", lists(&[("a", &[]), ("b", &["c", "d", "e"])]))
        .apply("one", lists(&[("a", &[])]))
        .is(lists(&[("a", &[]), ("b", &["d", "e"])]))
        .owned(&[
            ("one", &A),
            ("two", &B),
            ("controller", &[".listOfLists[name=\"b\"].value[=\"e\"]"]),
        ]);
}

#[test]
fn an_item_goes_with_all_that_an_updater_has_put_into_it() {
    Story::of(&nested())
        .apply("one", lists(&[("a", &[]), ("b", &["c"])]))
        .apply("two", lists(&[("a", &["b"])]))
        .update("controller", lists(&[("a", &["b"]), ("b", &["c", "d"])]))
        .apply("one", lists(&[("a", &[])]))
        .is(lists(&[("a", &["b"])]))
        .owned(&[("one", &A), ("two", &[A[0], A[1], ".listOfLists[name=\"a\"].value[=\"b\"]"])]);
}

#[test]
fn several_appliers_of_maps_in_maps() {
    let maps = |of: Value| json!({ "mapOfMapsRecursive": of });
    Story::of(&nested())
        .apply("one", maps(json!({"a": {"b": null}, "c": {"d": null}})))
        .apply("two", maps(json!({"a": null, "c": {"d": null}})))
        .update("controller", maps(json!({"a": {"b": {"c": null}}, "c": {"d": {"e": null}}})))
        .update(
            "second",
            maps(json!({"a": {"b": {"c": {"d": null}}}, "c": {"d": {"e": {"f": null}}}})),
        )
        .update(
            "controller",
            maps(json!({
                "a": {"b": {"c": {"d": {"e": null}}}},
                "c": {"d": {"e": {"f": {"g": null}}}},
            })),
        )
        .apply("one", maps(json!(null)))
        // Upstream `a` becomes null.
        .is(maps(json!({"a": {}, "c": {"d": {"e": {"f": {"g": null}}}}})))
        .owned(&[
            ("one", &[".mapOfMapsRecursive"]),
            ("two", &[".mapOfMapsRecursive.a", ".mapOfMapsRecursive.c", ".mapOfMapsRecursive.c.d"]),
            ("controller", &[".mapOfMapsRecursive.c.d.e", ".mapOfMapsRecursive.c.d.e.f.g"]),
            ("second", &[".mapOfMapsRecursive.c.d.e.f"]),
        ]);
}

/// An applier can delete the items that it made, also after a controller has changed what is in them.
#[test]
fn an_applier_takes_away_what_a_controller_has_filled() {
    let maps = |of: Value| json!({ "mapOfMapsRecursive": of });
    Story::of(&nested())
        .apply("me", maps(json!({"a": {"b": null}})))
        .update("controller", maps(json!({"a": {"b": {"c": null}}})))
        .apply("me", maps(json!({"a": {"b": null}, "c": {"d": null}})))
        .apply("me", maps(json!({"a": null, "c": null})))
        .is(maps(json!({"a": null, "c": null})))
        .owned(&[("me", &[".mapOfMapsRecursive.a", ".mapOfMapsRecursive.c"])]);
}

/// What an updater has made is not deleted when an applier shares it for a while.
#[test]
fn what_an_updater_made_outlasts_an_applier_that_shared_it() {
    let maps = |of: Value| json!({ "mapOfMapsRecursive": of });
    Story::of(&nested())
        .update("updater", maps(json!({"a": {"b": {"c": null}}})))
        .apply("me", maps(json!({"a": {"b": null}, "c": {"d": null}})))
        .apply("me", maps(json!({"a": null, "c": null})))
        .is(maps(json!({"a": {"b": {"c": null}}, "c": null})))
        .owned(&[
            (
                "updater",
                &[
                    ".mapOfMapsRecursive",
                    ".mapOfMapsRecursive.a",
                    ".mapOfMapsRecursive.a.b",
                    ".mapOfMapsRecursive.a.b.c",
                ],
            ),
            ("me", &[".mapOfMapsRecursive.a", ".mapOfMapsRecursive.c"]),
        ]);
}
