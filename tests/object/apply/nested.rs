//! Lists in lists, maps in maps, and structures: what stays of them when parts go.

use super::*;

pub(super) fn nested() -> Schema {
    let list = set(text());
    let deep = |levels: usize| (0..levels).fold(json!({"type": "object"}), |of, _| map(of));
    schema(&json!({
        "listOfLists": keyed(&["name"], json!({"name": text(), "value": list})),
        "listOfMaps": keyed(&["name"], json!({"name": text(), "value": map(text())})),
        "mapOfLists": map(list),
        "mapOfMaps": map(map(text())),
        "mapOfMapsRecursive": deep(8),
        "struct": object(json!({"name": text(), "value": number()})),
    }))
}

#[test]
fn a_list_in_a_list_is_applied_item_by_item() {
    Story::of(&nested())
        .apply("me", json!({"listOfLists": [{"name": "a", "value": ["b", "c"]}]}))
        .apply("me", json!({"listOfLists": [{"name": "a", "value": ["a", "c"]}]}))
        .is(json!({"listOfLists": [{"name": "a", "value": ["a", "c"]}]}))
        .owned(&[(
            "me",
            &[
                ".listOfLists[name=\"a\"]",
                ".listOfLists[name=\"a\"].name",
                ".listOfLists[name=\"a\"].value[=\"a\"]",
                ".listOfLists[name=\"a\"].value[=\"c\"]",
            ],
        )])
        .apply("me", json!({"listOfLists": [{"name": "b", "value": ["a", "c"]}]}))
        .is(json!({"listOfLists": [{"name": "b", "value": ["a", "c"]}]}))
        .owned(&[(
            "me",
            &[
                ".listOfLists[name=\"b\"]",
                ".listOfLists[name=\"b\"].name",
                ".listOfLists[name=\"b\"].value[=\"a\"]",
                ".listOfLists[name=\"b\"].value[=\"c\"]",
            ],
        )]);
}

#[test]
fn a_map_in_a_list_is_applied_entry_by_entry() {
    Story::of(&nested())
        .apply("me", json!({"listOfMaps": [{"name": "a", "value": {"b": "x", "c": "y"}}]}))
        .apply("me", json!({"listOfMaps": [{"name": "a", "value": {"a": "x", "c": "z"}}]}))
        .is(json!({"listOfMaps": [{"name": "a", "value": {"a": "x", "c": "z"}}]}))
        .owned(&[(
            "me",
            &[
                ".listOfMaps[name=\"a\"]",
                ".listOfMaps[name=\"a\"].name",
                ".listOfMaps[name=\"a\"].value.a",
                ".listOfMaps[name=\"a\"].value.c",
            ],
        )])
        .apply("me", json!({"listOfMaps": [{"name": "b", "value": {"a": "x", "c": "z"}}]}))
        .is(json!({"listOfMaps": [{"name": "b", "value": {"a": "x", "c": "z"}}]}));
}

#[test]
fn a_list_in_a_map_is_applied_item_by_item() {
    Story::of(&nested())
        .apply("me", json!({"mapOfLists": {"a": ["b", "c"]}}))
        .apply("me", json!({"mapOfLists": {"a": ["a", "c"]}}))
        .is(json!({"mapOfLists": {"a": ["a", "c"]}}))
        .owned(&[("me", &[".mapOfLists.a", ".mapOfLists.a[=\"a\"]", ".mapOfLists.a[=\"c\"]"])])
        .apply("me", json!({"mapOfLists": {"b": ["a", "c"]}}))
        .is(json!({"mapOfLists": {"b": ["a", "c"]}}))
        .owned(&[("me", &[".mapOfLists.b", ".mapOfLists.b[=\"a\"]", ".mapOfLists.b[=\"c\"]"])]);
}

#[test]
fn a_map_in_a_map_is_applied_entry_by_entry() {
    Story::of(&nested())
        .apply("me", json!({"mapOfMaps": {"a": {"b": "x", "c": "y"}}}))
        .apply("me", json!({"mapOfMaps": {"a": {"a": "x", "c": "z"}}}))
        .is(json!({"mapOfMaps": {"a": {"a": "x", "c": "z"}}}))
        .owned(&[("me", &[".mapOfMaps.a", ".mapOfMaps.a.a", ".mapOfMaps.a.c"])])
        .apply("me", json!({"mapOfMaps": {"b": {"a": "x", "c": "z"}}}))
        .is(json!({"mapOfMaps": {"b": {"a": "x", "c": "z"}}}))
        .owned(&[("me", &[".mapOfMaps.b", ".mapOfMaps.b.a", ".mapOfMaps.b.c"])]);
}

#[test]
fn a_key_in_the_middle_changes() {
    Story::of(&nested())
        .apply("me", json!({"mapOfMapsRecursive": {"a": {"b": {"c": null}}}}))
        .apply("me", json!({"mapOfMapsRecursive": {"a": {"d": {"c": null}}}}))
        .is(json!({"mapOfMapsRecursive": {"a": {"d": {"c": null}}}}))
        .owned(&[(
            "me",
            &[".mapOfMapsRecursive.a", ".mapOfMapsRecursive.a.d", ".mapOfMapsRecursive.a.d.c"],
        )]);
}

#[test]
fn a_structure_goes_with_its_last_field() {
    Story::of(&nested())
        .apply("me", json!({"struct": {"name": "a", "value": 1}}))
        .apply("me", json!({}))
        .is(json!({}))
        .owned(&[]);
}

#[test]
fn a_structure_that_is_applied_empty_is_as_it_is_applied() {
    for empty in [json!(null), json!({})] {
        let empty = json!({ "struct": empty });
        Story::of(&nested())
            .apply("me", json!({"struct": {"name": "a"}}))
            .apply("me", empty.clone())
            .is(empty.clone())
            .owned(&[("me", &[".struct"])])
            .apply("me", empty.clone())
            .is(empty);
    }
}

#[test]
fn fields_that_others_have_in_a_structure_stay() {
    for applied in [json!({}), json!({"struct": null}), json!({"struct": {}})] {
        Story::of(&nested())
            .apply("me", json!({"struct": {"name": "a"}}))
            .update("controller", json!({"struct": {"name": "a", "value": 1}}))
            .apply("me", applied.clone())
            .is(json!({"struct": {"value": 1}}));
        Story::of(&nested())
            .apply("me", json!({"struct": {"name": "a"}}))
            .update("controller", json!({"struct": {"name": "b", "value": 1}}))
            .apply("me", applied)
            .is(json!({"struct": {"name": "b", "value": 1}}));
    }
}
