//! What becomes of an object that one has written and another applies over it: above all the order of lists.

use super::*;

#[track_caller]
fn check(of: &Schema, live: Value, applied: Value, merged: Value) {
    Story::of(of).update("updater", live).force("me", applied).is(merged);
}

#[test]
fn values_of_any_kind() {
    let of = schema(&json!({"key": text(), "value": {}}));
    for (live, applied, merged) in [
        (json!({}), json!(1), json!(1)),
        (json!(1), json!({}), json!({})),
        (json!(null), json!({}), json!({})),
        (json!([1]), json!(null), json!(null)),
        (json!(1), json!(null), json!(null)),
        (json!([1, 2]), json!([2]), json!([2])),
        (json!({"a": 1}), json!({"b": 1}), json!({"a": 1, "b": 1})),
    ] {
        check(
            &of,
            json!({"key": "foo", "value": live}),
            json!({"key": "foo", "value": applied}),
            json!({"key": "foo", "value": merged}),
        );
    }
    check(&of, json!({"key": "foo"}), json!({"value": true}), json!({"key": "foo", "value": true}));
}

#[test]
fn null_and_empty_are_as_they_are_applied() {
    let atomic = json!({"type": "array", "items": {}});
    for (of, empty) in [
        (map(json!({})), json!({})),
        (object(json!({"value": {}})), json!({})),
        (atomic, json!([])),
        (set(text()), json!([])),
        (map(set(text())), json!({})),
    ] {
        let of = schema(&json!({"inner": of}));
        for (live, applied) in [
            (None, empty.clone()),
            (None, json!(null)),
            (Some(json!(null)), empty.clone()),
            (Some(empty.clone()), json!(null)),
            (Some(empty.clone()), empty.clone()),
        ] {
            let applied = json!({ "inner": applied });
            let live = live.map_or_else(|| json!({}), |live| json!({ "inner": live }));
            check(&of, live, applied.clone(), applied);
        }
    }
}

#[test]
fn single_values_and_whole_lists_are_as_they_are_applied() {
    let of = schema(&json!({
        "numeric": number(),
        "bool": {"type": "boolean"},
        "string": text(),
        "list": {"type": "array", "items": text()},
    }));
    for (live, applied, merged) in [
        (json!({"numeric": 1}), json!({"numeric": 2.5}), json!({"numeric": 2.5})),
        (json!({"numeric": 2.5}), json!({"numeric": 1}), json!({"numeric": 1})),
        (json!({"string": "a"}), json!({"bool": true}), json!({"string": "a", "bool": true})),
        (json!({"list": ["a", "a"]}), json!({"list": null}), json!({"list": null})),
        (json!({"list": ["a", "a"]}), json!({"list": ["b"]}), json!({"list": ["b"]})),
    ] {
        check(&of, live, applied, merged);
    }
}

/// The items of three sets, each a letter: what was there, what is applied, what becomes of it.
#[test]
fn sets_are_in_the_order_in_which_they_are_applied_with_the_rest_near_its_place() {
    let of = schema(&json!({"set": set(text())}));
    for (live, applied, merged) in [
        ("abc", "ab", "abc"),
        ("ab", "abc", "abc"),
        ("abc", "", "abc"),
        ("", "abc", "abc"),
        ("ab", "ba", "ba"),
        ("abc", "def", "abcdef"),
        ("abc", "cdef", "abcdef"),
        ("abcgf", "cdef", "abcgdef"),
        ("abc", "defxyz", "abcdefxyz"),
        ("cdef", "ace", "acdef"),
        ("abcxyz", "def", "abcxyzdef"),
        ("abcxyz", "defxyz", "abcdefxyz"),
        ("cagf", "cfag", "cfag"),
        ("abcd", "defa", "bcdefa"),
        ("cdefghij", "2h3e4kl", "cdfg2hij3e4kl"),
        ("abcdefghij", "1b2h3e4kl", "a1bcdfg2hij3e4kl"),
        // With duplicates in what was there.
        ("abb", "c", "abbc"),
        ("abb", "b", "ab"),
        ("abb", "a", "abb"),
        ("abcdec", "1b2ed", "a1bc2ecd"),
        ("abcdec", "1b2ced", "a1b2ced"),
        ("aabb", "bcd", "aabcd"),
        ("aabb", "", "aabb"),
        ("cagfca", "cfag", "cfag"),
    ] {
        let set = |letters: &str| {
            let letters: Vec<_> = letters.chars().map(String::from).collect();
            json!({ "set": letters })
        };
        check(&of, set(live), set(applied), set(merged));
    }
}

#[test]
fn sets_of_numbers_and_booleans() {
    let of = schema(&json!({"bools": set(json!({"type": "boolean"})), "numbers": set(number())}));
    for (field, live, applied, merged) in [
        ("bools", json!([true]), json!([false]), json!([true, false])),
        ("bools", json!([true, false, true]), json!([false]), json!([true, false, true])),
        ("bools", json!([true, false, true]), json!([true]), json!([true, false])),
        ("numbers", json!([1, 2, 3.25]), json!([1, 2, 3]), json!([1, 2, 3.25, 3])),
        ("numbers", json!([1, 2, 3.25, 1, 2]), json!([1, 2, 3]), json!([1, 2, 3.25, 3])),
        ("numbers", json!([1, 2.0]), json!([2, 1.0]), json!([2, 1.0])),
    ] {
        check(&of, json!({field: live}), json!({field: applied}), json!({field: merged}));
    }
}

#[test]
fn lists_by_key_are_merged_item_by_item() {
    let item = json!({
        "key": text(), "id": number(), "value": map(text()), "bv": {"type": "boolean"},
    });
    let of = schema(&json!({"list": keyed(&["key", "id"], item)}));
    // Items by key and id.
    let list = |items: &str| {
        let items = items.split_whitespace().map(|item| {
            let (key, id) = item.split_at(1);
            json!({"key": key, "id": id.parse::<u32>().expect("a number")})
        });
        json!({ "list": items.collect::<Vec<_>>() })
    };
    for (live, applied, merged) in [
        ("a1", "a1", "a1"),
        ("a1", "a2", "a1 a2"),
        ("a1 b1", "a1 a2", "a1 b1 a2"),
        ("b2", "a1 b2 c3", "a1 b2 c3"),
        ("a1 b2 c3", "c3 b2", "a1 c3 b2"),
        ("a1 b2 c3", "c3 a1", "b2 c3 a1"),
    ] {
        check(&of, list(live), list(applied), list(merged));
    }
    check(
        &of,
        json!({"list": [{"key": "a", "id": 1, "bv": true, "value": {"a": "a", "b": "b"}}]}),
        json!({"list": [{"key": "a", "id": 1, "value": {"b": "c"}}]}),
        json!({"list": [{"key": "a", "id": 1, "bv": true, "value": {"a": "a", "b": "c"}}]}),
    );
}
