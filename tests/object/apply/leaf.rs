//! Fields that are single values, sets of them, and lists by key.

use super::*;

fn leaves() -> Schema {
    schema(&json!({"numeric": number(), "string": text(), "bool": {"type": "boolean"}}))
}

fn sets() -> Schema {
    schema(&json!({"list": set(text())}))
}

#[test]
fn what_is_applied_twice_is_as_the_second_time() {
    for second in ["v1", "v2"] {
        let story = Story::of(&leaves())
            .apply("me", json!({"numeric": 1, "string": "string"}))
            .version(second)
            .apply("me", json!({"numeric": 2, "string": "string", "bool": false}))
            .is(json!({"numeric": 2, "string": "string", "bool": false}))
            .owned(&[("me", &[".bool", ".numeric", ".string"])]);
        let entries = &story.live["metadata"]["managedFields"];
        assert_eq!(entries.as_array().map(Vec::len), Some(1), "an applier has one entry");
        assert_eq!(entries[0]["apiVersion"], second);
    }
}

#[test]
fn who_updates_another_field_is_in_nobodys_way() {
    for version in ["v1", "v2"] {
        Story::of(&leaves())
            .apply("me", json!({"numeric": 1, "string": "string"}))
            .version(version)
            .update("controller", json!({"numeric": 1, "string": "string", "bool": true}))
            .version("v1")
            .apply("me", json!({"numeric": 2, "string": "string"}))
            .is(json!({"numeric": 2, "string": "string", "bool": true}))
            .owned(&[("me", &[".numeric", ".string"]), ("controller", &[".bool"])]);
    }
}

#[test]
fn who_updates_a_field_owns_it_until_it_is_forced() {
    for version in ["v1", "v2"] {
        Story::of(&leaves())
            .apply("me", json!({"numeric": 1, "string": "string"}))
            .version(version)
            .update("controller", json!({"numeric": 1, "string": "controller's", "bool": true}))
            .owned(&[("me", &[".numeric"]), ("controller", &[".bool", ".string"])])
            .version("v1")
            .conflict("me", json!({"numeric": 2, "string": "mine"}), &[("controller", ".string")])
            .force("me", json!({"numeric": 2, "string": "mine"}))
            .is(json!({"numeric": 2, "string": "mine", "bool": true}))
            .owned(&[("me", &[".numeric", ".string"]), ("controller", &[".bool"])]);
    }
}

#[test]
fn what_is_applied_no_more_goes() {
    for version in ["v1", "v2"] {
        Story::of(&leaves())
            .apply("me", json!({"numeric": 1, "string": "string", "bool": false}))
            .version(version)
            .apply("me", json!({"string": "new"}))
            .is(json!({"string": "new"}))
            .owned(&[("me", &[".string"])]);
    }
}

#[test]
fn what_another_has_taken_stays_when_it_is_applied_no_more() {
    Story::of(&leaves())
        .apply("me", json!({"numeric": 2}))
        .update("controller", json!({"numeric": 1}))
        .apply("me", json!({}))
        .is(json!({"numeric": 1}))
        .owned(&[("controller", &[".numeric"])]);
}

#[test]
fn who_owns_nothing_has_no_entry() {
    Story::of(&leaves())
        .apply("me", json!({"string": "string"}))
        .update("controller", json!({"string": "new"}))
        .is(json!({"string": "new"}))
        .owned(&[("controller", &[".string"])]);
    let story = Story::of(&leaves())
        .apply("me", json!({"string": "string"}))
        .apply("me", json!({}))
        .is(json!({}))
        .owned(&[]);
    assert_eq!(story.live["metadata"], json!({}), "the field has gone, too");
}

#[test]
fn items_of_a_set_are_applied_one_by_one() {
    Story::of(&sets())
        .apply("me", json!({"list": ["a", "c"]}))
        .apply("me", json!({"list": ["a", "b", "c", "d"]}))
        .is(json!({"list": ["a", "b", "c", "d"]}))
        .owned(&[("me", &[".list[=\"a\"]", ".list[=\"b\"]", ".list[=\"c\"]", ".list[=\"d\"]"])]);
}

#[test]
fn items_that_others_add_to_a_set_keep_their_places() {
    for version in ["v1", "v2"] {
        Story::of(&sets())
            .apply("me", json!({"list": ["a", "c"]}))
            .version(version)
            .update("controller", json!({"list": ["a", "b", "c", "d"]}))
            .version("v1")
            .apply("me", json!({"list": ["a", "aprime", "c", "cprime"]}))
            .is(json!({"list": ["a", "b", "aprime", "c", "d", "cprime"]}))
            .owned(&[
                (
                    "me",
                    &[".list[=\"a\"]", ".list[=\"aprime\"]", ".list[=\"c\"]", ".list[=\"cprime\"]"],
                ),
                ("controller", &[".list[=\"b\"]", ".list[=\"d\"]"]),
            ]);
    }
}

#[test]
fn an_item_of_a_set_may_have_several_owners() {
    for version in ["v1", "v2"] {
        Story::of(&sets())
            .apply("me", json!({"list": ["a", "c"]}))
            .version(version)
            .update("controller", json!({"list": ["a", "b", "c", "d"]}))
            .version("v1")
            .apply("me", json!({"list": ["a", "b", "c"]}))
            .is(json!({"list": ["a", "b", "c", "d"]}))
            .owned(&[
                ("me", &[".list[=\"a\"]", ".list[=\"b\"]", ".list[=\"c\"]"]),
                ("controller", &[".list[=\"b\"]", ".list[=\"d\"]"]),
            ]);
    }
}

#[test]
fn a_set_is_in_the_order_in_which_it_is_applied() {
    let all: &[&str] = &[".list[=\"a\"]", ".list[=\"b\"]", ".list[=\"c\"]", ".list[=\"d\"]"];
    Story::of(&sets())
        .apply("me", json!({"list": ["a", "b", "c", "d"]}))
        .apply("me", json!({"list": ["a", "d", "c", "b"]}))
        .is(json!({"list": ["a", "d", "c", "b"]}))
        .owned(&[("me", all)]);
    for version in ["v1", "v2"] {
        Story::of(&sets())
            .apply("me", json!({"list": ["a", "b", "c", "d"]}))
            .update("controller", json!({"list": ["a", "d", "c", "b"]}))
            .version(version)
            .apply("me", json!({"list": ["a", "b", "c", "d"]}))
            .is(json!({"list": ["a", "b", "c", "d"]}))
            .owned(&[("me", all)]);
    }
}

#[test]
fn items_of_a_set_that_are_applied_no_more_go() {
    Story::of(&sets())
        .apply("me", json!({"list": ["a", "b", "c", "d"]}))
        .apply("me", json!({"list": ["a", "c"]}))
        .is(json!({"list": ["a", "c"]}))
        .owned(&[("me", &[".list[=\"a\"]", ".list[=\"c\"]"])]);
    Story::of(&sets())
        .apply("me", json!({"list": ["a", "b", "c", "d"]}))
        .version("v2")
        .apply("me", json!({"list": ["a", "c", "e"]}))
        .is(json!({"list": ["a", "c", "e"]}))
        .owned(&[("me", &[".list[=\"a\"]", ".list[=\"c\"]", ".list[=\"e\"]"])]);
}

#[test]
fn items_by_key_that_are_applied_no_more_go() {
    Story::of(&named_values())
        .apply("me", json!({"list": [{"name": "a", "value": 1}]}))
        .apply("me", json!({"list": [{"name": "b", "value": 2}]}))
        .is(json!({"list": [{"name": "b", "value": 2}]}))
        .owned(&[(
            "me",
            &[".list[name=\"b\"]", ".list[name=\"b\"].name", ".list[name=\"b\"].value"],
        )]);
}
