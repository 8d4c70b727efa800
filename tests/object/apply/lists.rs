//! Lists by key: keys with defaults, keys that are missing, and items that are there twice.

use super::*;

fn ports() -> Schema {
    schema(&json!({"ports": keyed(
        &["port", "protocol"],
        json!({
            "port": number(),
            "protocol": {"type": "string", "default": "TCP"},
            "name": text(),
        }),
    )}))
}

#[test]
fn a_key_that_is_left_out_is_its_default() {
    Story::of(&ports())
        .apply("me", json!({"ports": [{"port": 80}]}))
        .is(json!({"ports": [{"port": 80}]}))
        .owned(&[(
            "me",
            &[".ports[port=80,protocol=\"TCP\"]", ".ports[port=80,protocol=\"TCP\"].port"],
        )]);
    Story::of(&ports())
        .apply("me", json!({"ports": [{"port": 80}, {"port": 80, "protocol": "UDP"}]}))
        .is(json!({"ports": [{"port": 80}, {"port": 80, "protocol": "UDP"}]}))
        .owned(&[(
            "me",
            &[
                ".ports[port=80,protocol=\"TCP\"]",
                ".ports[port=80,protocol=\"TCP\"].port",
                ".ports[port=80,protocol=\"UDP\"]",
                ".ports[port=80,protocol=\"UDP\"].port",
                ".ports[port=80,protocol=\"UDP\"].protocol",
            ],
        )]);
}

#[test]
fn a_key_that_is_left_out_meets_the_default_said_aloud() {
    Story::of(&ports())
        .apply("one", json!({"ports": [{"port": 80, "protocol": "TCP", "name": "foo"}]}))
        .conflict(
            "two",
            json!({"ports": [{"port": 80, "name": "bar"}]}),
            &[("one", ".ports[port=80,protocol=\"TCP\"].name")],
        );
}

#[test]
fn a_key_without_default_may_be_missing_as_long_as_one_is_there() {
    Story::of(&ports()).apply("me", json!({"ports": [{"protocol": "TCP", "name": "A"}]})).owned(&[
        (
            "me",
            &[
                ".ports[protocol=\"TCP\"]",
                ".ports[protocol=\"TCP\"].name",
                ".ports[protocol=\"TCP\"].protocol",
            ],
        ),
    ]);
    Story::of(&named_values()).refused(
        "me",
        json!({"list": [{"value": 1}]}),
        ": .list: element 0: associative list with keys has an element that omits all key fields \
         [\"name\"] (and doesn't have default values for any key fields)",
    );
}

#[test]
fn an_applier_must_not_say_an_item_twice() {
    let why = ": .ports: duplicate entries for key [port=80,protocol=\"TCP\"]";
    let twice = json!([{"port": 80}, {"port": 80}]);
    Story::of(&ports()).refused("me", json!({ "ports": twice }), why);
    let twice = json!([{"port": 80}, {"port": 80, "protocol": "TCP"}]);
    Story::of(&ports()).refused("me", json!({ "ports": twice }), why);
    let of = schema(&json!({"set": set(text())}));
    let why = ": .set: duplicate entries for key [=\"a\"]";
    Story::of(&of).refused("me", json!({"set": ["a", "a"]}), why);
}

#[test]
fn defaults_are_numbers_by_worth() {
    let sentences = keyed(
        &["page", "line"],
        json!({
            "page": {"type": "number", "default": 2.0},
            "line": {"type": "number", "default": 3},
            "text": text(),
        }),
    );
    let of = schema(&json!({"book": keyed(
        &["chapter", "section"],
        json!({
            "chapter": {"type": "number", "default": 1},
            "section": {"type": "string", "default": "A"},
            "sentences": sentences,
        }),
    )}));
    let book = ".book[chapter=1,section=\"A\"]";
    let line = ".book[chapter=1,section=\"A\"].sentences[line=3,page=2]";
    let text = ".book[chapter=1,section=\"A\"].sentences[line=3,page=2].text";
    let page = ".book[chapter=1,section=\"A\"].sentences[line=3,page=2].page";
    Story::of(&of)
        .apply("me", json!({"book": [{"sentences": [{"text": "blah"}]}]}))
        .owned(&[("me", &[book, line, text])])
        .apply("me", json!({"book": [{"sentences": [{"text": "blah", "page": 2}]}]}))
        .is(json!({"book": [{"sentences": [{"text": "blah", "page": 2}]}]}))
        .owned(&[("me", &[book, line, text, page])]);
}

fn twice() -> Schema {
    schema(&json!({
        "list": keyed(&["name"], json!({"name": text(), "value1": number(), "value2": number()})),
        "unrelated": number(),
        "set": set(number()),
    }))
}

/// `a` twice, and `b`.
fn aab() -> Value {
    json!({"list": [
        {"name": "a", "value1": 1}, {"name": "a", "value1": 2}, {"name": "b", "value1": 3},
    ]})
}

const A: &str = ".list[name=\"a\"]";
const B: [&str; 3] = [".list[name=\"b\"]", ".list[name=\"b\"].name", ".list[name=\"b\"].value1"];

#[test]
fn who_makes_or_unmakes_a_duplicate_in_a_set_owns_it() {
    Story::of(&twice())
        .update("one", json!({"set": [1, 1, 3, 4]}))
        .owned(&[("one", &[".set", ".set[=1]", ".set[=3]", ".set[=4]"])])
        .update("two", json!({"set": [1, 3, 4]}))
        .owned(&[("one", &[".set", ".set[=3]", ".set[=4]"]), ("two", &[".set[=1]"])])
        .update("one", json!({"set": [1, 1, 3, 4]}))
        .owned(&[("one", &[".set", ".set[=1]", ".set[=3]", ".set[=4]"])]);
}

#[test]
fn a_duplicate_in_a_set_that_is_applied_becomes_one() {
    Story::of(&twice())
        .update("updater", json!({"set": [1, 1, 3, 4]}))
        .conflict("me", json!({"set": [1]}), &[("updater", ".set[=1]")])
        .force("me", json!({"set": [1]}))
        .is(json!({"set": [1, 3, 4]}))
        .owned(&[("updater", &[".set", ".set[=3]", ".set[=4]"]), ("me", &[".set[=1]"])]);
    Story::of(&twice())
        .update("updater", json!({"set": [1, 1, 3, 4]}))
        .apply("me", json!({"set": [5]}))
        .is(json!({"set": [1, 1, 3, 4, 5]}))
        .owned(&[
            ("updater", &[".set", ".set[=1]", ".set[=3]", ".set[=4]"]),
            ("me", &[".set[=5]"]),
        ]);
}

#[test]
fn items_of_the_same_key_are_owned_as_one() {
    let updated = || Story::of(&twice()).update("one", aab());
    updated().owned(&[("one", &[".list", A, B[0], B[1], B[2]])]);
    for (at, field) in [(1, "value1"), (1, "value2"), (0, "value1")] {
        let mut changed = aab();
        changed["list"][at][field] = json!(7);
        updated()
            .update("two", changed)
            .owned(&[("one", &[".list", B[0], B[1], B[2]]), ("two", &[A])]);
    }
}

#[test]
fn who_makes_an_item_a_duplicate_owns_it() {
    Story::of(&twice())
        .update("one", json!({"list": [{"name": "a", "value1": 1}, {"name": "b", "value1": 3}]}))
        .update("two", aab())
        .owned(&[("one", &[".list", B[0], B[1], B[2]]), ("two", &[A])]);
    Story::of(&twice())
        .update("one", json!({"list": [{"name": "a", "value1": 1}, {"name": "a", "value1": 2}]}))
        .update("two", aab())
        .owned(&[("one", &[".list", A]), ("two", &B)]);
}

#[test]
fn duplicates_stay_as_long_as_nobody_applies_them() {
    Story::of(&twice())
        .update("updater", aab())
        .apply("me", json!({"unrelated": 5}))
        .is(json!({"list": aab()["list"], "unrelated": 5}))
        .owned(&[("updater", &[".list", A, B[0], B[1], B[2]]), ("me", &[".unrelated"])]);
    let mut changed = aab();
    changed["list"][2]["value1"] = json!(4);
    Story::of(&twice())
        .update("updater", aab())
        .force("me", json!({"list": [{"name": "b", "value1": 4}]}))
        .is(changed)
        .owned(&[("updater", &[".list", A, B[0], B[1]]), ("me", &B)]);
}

#[test]
fn a_duplicate_that_is_applied_becomes_what_is_applied() {
    for value in [2, 3] {
        let applied = json!({"list": [{"name": "a", "value1": value}]});
        Story::of(&twice())
            .update("updater", aab())
            .conflict("me", applied.clone(), &[("updater", A)])
            .force("me", applied)
            .is(json!({"list": [{"name": "a", "value1": value}, {"name": "b", "value1": 3}]}))
            .owned(&[
                ("updater", &[".list", B[0], B[1], B[2]]),
                ("me", &[A, ".list[name=\"a\"].name", ".list[name=\"a\"].value1"]),
            ]);
    }
}

#[test]
fn who_has_lost_an_item_to_a_duplicate_does_not_take_it_away() {
    Story::of(&twice())
        .apply("me", json!({"list": [{"name": "a", "value1": 1}, {"name": "b", "value1": 3}]}))
        .update("updater", aab())
        .apply("me", json!({"list": [{"name": "b", "value1": 3}]}))
        .is(aab())
        .owned(&[("me", &B), ("updater", &[A])]);
}
