//! Kinds without a schema: maps are merged, lists are not.

use super::*;

fn any() -> Story {
    Story::of(&Schema::any())
}

#[test]
fn leaves_are_deduced() {
    any()
        .apply("me", json!({"numeric": 1, "string": "string"}))
        .apply("me", json!({"numeric": 2, "string": "string", "bool": false}))
        .is(json!({"numeric": 2, "string": "string", "bool": false}))
        .owned(&[("me", &[".bool", ".numeric", ".string"])])
        .apply("me", json!({"string": "new"}))
        .is(json!({"string": "new"}))
        .owned(&[("me", &[".string"])])
        .update("controller", json!({"string": "newer"}))
        .owned(&[("controller", &[".string"])])
        .conflict("me", json!({"string": "mine"}), &[("controller", ".string")])
        .force("me", json!({"string": "mine"}))
        .owned(&[("me", &[".string"])])
        .apply("me", json!({}))
        .is(json!({}))
        .owned(&[]);
}

#[test]
fn lists_are_atomic() {
    any()
        .apply("me", json!({"list": ["a", "c"]}))
        .apply("me", json!({"list": ["a", "d", "c", "b"]}))
        .is(json!({"list": ["a", "d", "c", "b"]}))
        .owned(&[("me", &[".list"])])
        .update("controller", json!({"list": ["a", "b", "c", "d"]}))
        .owned(&[("controller", &[".list"])])
        .force("me", json!({"list": ["a", "b", "c"]}))
        .is(json!({"list": ["a", "b", "c"]}))
        .owned(&[("me", &[".list"])]);
}

#[test]
fn conflicts_are_deep() {
    let applied = |d, e, value| {
        let f = json!([{"name": "n", "value": value}]);
        json!({"a": 1, "b": {"c": {"d": d, "e": e, "f": f}}})
    };
    for (second, third) in [("v1", "v1"), ("v2", "v3")] {
        let mut updated = applied(3, json!([1, 2, 3, 4]), 2);
        updated["g"] = json!(5);
        let mut again = applied(2, json!([3, 2, 1]), 1);
        again["a"] = json!(2);
        let mut result = again.clone();
        result["g"] = json!(5);
        any()
            .apply("me", applied(2, json!([1, 2, 3]), 1))
            .version(second)
            .update("controller", updated)
            .version(third)
            .conflict(
                "me",
                again.clone(),
                &[("controller", ".b.c.d"), ("controller", ".b.c.e"), ("controller", ".b.c.f")],
            )
            .force("me", again)
            .is(result)
            .owned(&[
                ("me", &[".a", ".b", ".b.c", ".b.c.d", ".b.c.e", ".b.c.f"]),
                ("controller", &[".g"]),
            ]);
    }
}

/// Six writes of four managers into the same maps: what the last applier gives up goes, but for what another
/// applier has, and what has been put into that.
#[test]
fn several_appliers_of_deep_maps() {
    any()
        .apply("one", json!({"a": {"b": null}, "c": {"d": null}}))
        .apply("two", json!({"a": null, "c": {"d": null}}))
        .update("controller", json!({"a": {"b": {"c": null}}, "c": {"d": {"e": null}}}))
        .update("second", json!({"a": {"b": {"c": {"d": null}}}, "c": {"d": {"e": {"f": null}}}}))
        .update(
            "controller",
            json!({
                "a": {"b": {"c": {"d": {"e": null}}}},
                "c": {"d": {"e": {"f": {"g": null}}}},
            }),
        )
        .apply("one", json!({}))
        // Upstream `a` becomes null.
        .is(json!({"a": {}, "c": {"d": {"e": {"f": {"g": null}}}}}))
        .owned(&[
            ("two", &[".a", ".c", ".c.d"]),
            ("controller", &[".c.d.e", ".c.d.e.f.g"]),
            ("second", &[".c.d.e.f"]),
        ]);
}

#[test]
fn a_value_may_become_a_map_and_back() {
    any()
        .apply("me", json!({"a": 1}))
        .conflict("you", json!({"a": {"b": 1}}), &[("me", ".a")])
        .force("you", json!({"a": {"b": 1}}))
        .is(json!({"a": {"b": 1}}))
        .owned(&[("you", &[".a", ".a.b"])])
        .conflict("me", json!({"a": [1]}), &[("you", ".a")])
        .force("me", json!({"a": [1]}))
        .is(json!({"a": [1]}))
        .owned(&[("me", &[".a"])]);
}

/// Upstream the fields of a map go without a conflict when somebody applies a single value in its place and the
/// schema has the map by name.
#[test]
fn a_map_is_not_replaced_behind_the_back_of_who_owns_its_fields() {
    Story::of(&schema(&json!({"any": {}})))
        .apply("me", json!({"any": {"x": 0}}))
        .conflict("you", json!({"any": 0}), &[("me", ".any.x")])
        .force("you", json!({"any": 0}))
        .owned(&[("you", &[".any"])]);
}
