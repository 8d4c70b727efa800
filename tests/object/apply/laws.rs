//! What holds whatever is applied, by whomever, in whatever order.

use std::collections::BTreeSet;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::Map;

use super::*;

fn of() -> Schema {
    let item = json!({"name": text(), "value": number(), "tags": set(text())});
    schema(&json!({
        "n": number(),
        "set": set(text()),
        "list": keyed(&["name"], item),
        "atomic": {"type": "array", "items": text()},
        "whole": {
            "type": "object", "additionalProperties": number(), "x-kubernetes-map-type": "atomic",
        },
        "map": map(map(number())),
        "struct": object(json!({"a": number(), "b": object(json!({"c": number()})), "m": map(text())})),
        "any": {},
    }))
}

fn small() -> impl Strategy<Value = Value> {
    (0..3).prop_map(Value::from)
}

/// At least one item each: an empty list belongs to nobody.
fn names() -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(vec!["a", "b", "c", "d"], 1..=4).prop_shuffle()
}

fn fields(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> impl Strategy<Value = Value> {
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(name, value)| option::of(value).prop_map(move |value| (name, value)))
        .collect();
    fields.prop_map(|fields| {
        let said = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(said.collect())
    })
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        small(),
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        vec(small(), 0..3).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        btree_map("[xyz]", inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect()))
    })
}

/// Something that can be applied.
fn applied() -> impl Strategy<Value = Value> {
    let list = names().prop_flat_map(|names| {
        let items = vec((option::of(small()), option::of(self::names())), names.len());
        items.prop_map(move |items| {
            let items = names.iter().zip(items).map(|(name, (value, tags))| {
                let mut item = Map::new();
                item.insert("name".into(), (*name).into());
                value.map(|value| item.insert("value".into(), value));
                tags.map(|tags| item.insert("tags".into(), tags.into()));
                Value::Object(item)
            });
            Value::Array(items.collect())
        })
    });
    let entries = |of: BoxedStrategy<Value>| {
        btree_map("[xyz]", of, 0..3).prop_map(|map| Value::Object(map.into_iter().collect()))
    };
    fields(vec![
        ("n", prop_oneof![4 => small(), 1 => Just(Value::Null)].boxed()),
        ("set", names().prop_map(Value::from).boxed()),
        ("list", list.boxed()),
        ("atomic", vec("[ab]", 0..3).prop_map(Value::from).boxed()),
        ("whole", entries(small().boxed()).boxed()),
        ("map", entries(entries(small().boxed()).boxed()).boxed()),
        (
            "struct",
            fields(vec![
                ("a", small().boxed()),
                ("b", fields(vec![("c", small().boxed())]).boxed()),
                ("m", entries("[pq]".prop_map(Value::from).boxed()).boxed()),
            ])
            .boxed(),
        ),
        ("any", any_value().boxed()),
    ])
}

fn without_null(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, field)| !field.is_null());
            Value::Object(fields.map(|(name, field)| (name, without_null(field))).collect())
        }
        other => other,
    }
}

/// The text of a step in managed fields, or of none.
fn step_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[fkvix.:]{0,3}",
        "f:(set|list|map|any|n|struct|whole|name|value|tags|[a-dx-z])",
        "k:\\{\"name\":\"[a-d]\"\\}",
        "v:(\"[a-d]\"|[0-3])",
        "i:[0-3]",
        "\\.",
    ]
}

/// Who does what: appliers one to three, forcing it or not, or an updater.
fn steps(updates: bool) -> impl Strategy<Value = Vec<(usize, bool, Value)>> {
    let who = if updates { 0..4usize } else { 1..4usize };
    vec((who, any::<bool>(), applied()), 0..6)
}

fn names_of(who: usize) -> &'static str {
    ["updater", "one", "two", "three"][who]
}

fn told(steps: Vec<(usize, bool, Value)>) -> Story {
    let mut story = Story::of(&of());
    for (who, force, object) in steps {
        if who == 0 {
            story = story.update(names_of(who), object);
        } else {
            // A conflict changes nothing.
            let _ = story.try_apply(names_of(who), object, force);
        }
    }
    story
}

fn content(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("metadata");
    }
    object
}

/// The set of an object, as the paths that somebody owns who applies all of it.
fn set_of(object: &Value) -> BTreeSet<String> {
    let story = Story::of(&of()).apply("me", content(object));
    owners_of(&story.live).remove("me").unwrap_or_default().into_iter().collect()
}

fn owned_by(object: &Value, who: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let owners = owners_of(object).into_iter().filter(|(owner, _)| who(owner));
    owners.flat_map(|(_, paths)| paths).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn applying_twice_is_applying_once(before in steps(true), object in applied(), force: bool) {
        let mut story = told(before);
        if story.try_apply("one", object.clone(), force).is_ok() {
            let once = story.live.clone();
            prop_assert!(story.try_apply("one", object, false).is_ok());
            prop_assert_eq!(story.live, once);
        }
    }

    /// But for null: it changes nothing in a map that has entries, and is something else than an empty one.
    #[test]
    fn what_one_owns_is_no_conflict(
        before in steps(true),
        object in applied().prop_map(without_null),
        others in vec((2..4usize, applied().prop_map(without_null)), 0..4),
    ) {
        let mut story = told(before).force("one", object.clone());
        for (who, other) in others {
            let _ = story.try_apply(names_of(who), other, false);
        }
        prop_assert!(story.try_apply("one", object, false).is_ok());
    }

    #[test]
    fn force_never_fails(before in steps(true), object in applied()) {
        prop_assert!(told(before).try_apply("one", object, true).is_ok());
    }

    #[test]
    fn an_applier_owns_what_it_applies(before in steps(true), object in applied()) {
        let expected = set_of(&object);
        let story = told(before).force("one", object);
        prop_assert_eq!(owned_by(&story.live, |owner| owner == "one"), expected);
    }

    #[test]
    fn what_is_there_after_an_apply_has_all_that_was_applied(before in steps(true), object in applied()) {
        let story = told(before).force("one", object.clone());
        // Applied by somebody else, it is no conflict and changes nothing.
        let once = content(&story.live);
        let story = story.apply("else", object);
        prop_assert_eq!(content(&story.live), once);
    }

    /// But an item of a list goes with what others own of it, where nobody else owns the item.
    #[test]
    fn an_unforced_apply_takes_nothing_from_others(before in steps(true), object in applied()) {
        let mut story = told(before);
        let others = |live: &Value| {
            let mut owners = owners_of(live);
            owners.remove("one");
            owners
        };
        let before = others(&story.live);
        let was_there = set_of(&story.live);
        if story.try_apply("one", object, false).is_ok() && !before.is_empty() {
            let after = others(&story.live);
            let is_there = set_of(&story.live);
            for (owner, paths) in before {
                let lost = |path: &&String| {
                    !after.get(&owner).is_some_and(|paths| paths.contains(path))
                        && is_there.contains(*path)
                        && was_there.contains(*path)
                };
                let lost: Vec<_> = paths.iter().filter(lost).collect();
                prop_assert!(lost.is_empty(), "{owner} has lost {lost:?}");
            }
        }
    }

    /// With appliers alone, everything that is there is somebody's.
    #[test]
    fn what_nobody_owns_is_gone(before in steps(false), who in 1..4usize) {
        let story = told(before).force(names_of(who), json!({}));
        let left = set_of(&story.live);
        let owned = owned_by(&story.live, |_| true);
        prop_assert!(left.is_subset(&owned), "{:?}", left.difference(&owned).collect::<Vec<_>>());
        // And all that others own is still there.
        let others = owned_by(&story.live, |owner| owner != names_of(who));
        prop_assert_eq!(owned, others);
    }

    #[test]
    fn all_is_gone_when_all_give_up(before in steps(false)) {
        let mut story = told(before);
        for who in 1..4 {
            story = story.force(names_of(who), json!({}));
        }
        prop_assert_eq!(owners_of(&story.live), BTreeMap::new());
        prop_assert_eq!(set_of(&story.live), BTreeSet::new());
    }

    #[test]
    fn an_object_applied_over_itself_is_itself(before in steps(true)) {
        let story = told(before);
        let object = content(&story.live);
        if object.is_object() {
            let story = story.apply("else", object.clone());
            prop_assert_eq!(content(&story.live), object);
        }
    }

    #[test]
    fn an_update_is_what_it_says_and_said_again_changes_nothing(before in steps(true), object in applied()) {
        let mut story = told(before);
        if story.live.is_object() {
            // Only what is not created is not tracked from then on, if nobody owned anything.
            story.live["metadata"]["uid"] = "".into();
        }
        let story = story.update("updater", object.clone());
        prop_assert_eq!(content(&story.live), object.clone());
        // Said again, by whomever, it changes nothing.
        let once = owners_of(&story.live);
        let story = story.update("else", object);
        prop_assert_eq!(owners_of(&story.live), once);
    }

    /// Whatever a client says of who owns what, nothing panics and force does not fail.
    #[test]
    fn any_managed_fields_do_no_harm(
        live in applied(),
        object in applied(),
        texts in vec((step_text(), any::<bool>()), 0..12),
    ) {
        let mut fields = json!({});
        for (text, is_wide) in texts {
            fields = if is_wide {
                let mut wide = fields;
                wide[text] = json!({});
                wide
            } else {
                json!({ text: fields })
            };
        }
        let story = Story::of(&of()).update("updater", live);
        let mut new = story.live.clone();
        new["metadata"]["uid"] = "u".into();
        new["metadata"]["managedFields"] = json!([{
            "manager": "one", "operation": "Apply", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        }]);
        let mut story = story.update("two", new);
        prop_assert!(story.try_apply("one", object, true).is_ok());
    }
}
