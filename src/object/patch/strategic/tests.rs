//! What holds for all strategic merge patches: done again they change nothing more, and what they do not name
//! stays as and where it was.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::strategic_merge_patch;
use crate::object::patch::tests::{hostile, schema};

fn patch(document: &Value, patch: &Value) -> Result<Value, u16> {
    let patched = strategic_merge_patch(document, patch.to_string().as_bytes(), &schema());
    patched.map_err(|status| status.code())
}

/// The value without fields whose names begin with `$`.
fn without_directives(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let plain = fields.into_iter().filter(|(name, _)| !name.starts_with('$'));
            plain.map(|(name, value)| (name, without_directives(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_directives).collect(),
        other => other,
    }
}

/// Fields of the schema with anything in them.
fn object() -> impl Strategy<Value = Value> {
    let named = prop::collection::vec((hostile(), 0..3_u8), 0..4).prop_map(|items| {
        let named = |(inner, name): (Value, u8)| json!({"name": name, "list": inner, "a": inner});
        items.into_iter().map(named).collect::<Value>()
    });
    let names = prop::sample::select(vec!["list", "named", "map", "a", "b", "other"]);
    prop::collection::btree_map(names, prop_oneof![named, hostile()], 0..6).prop_map(|fields| {
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    })
}

/// A list of named items, each name once, with something in each.
fn named() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::btree_map(0..12_u8, 0..3_u8, 0..10)
        .prop_map(|items| items.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
        .prop_map(|items| {
            items.into_iter().map(|(name, x)| json!({"name": name.to_string(), "x": x})).collect()
        })
}

fn names(items: &[Value]) -> Vec<&str> {
    items.iter().filter_map(|item| item["name"].as_str()).collect()
}

proptest! {
    /// The first time may leave a value twice in a list that was not there before, as it is; the second time
    /// merges.
    #[test]
    fn a_patch_done_again_changes_nothing_more(document in object(), changes in object()) {
        let (document, changes) = (without_directives(document), without_directives(changes));
        if let Ok(once) = patch(&document, &changes)
            && let Ok(twice) = patch(&once, &changes)
        {
            prop_assert_eq!(patch(&twice, &changes), Ok(twice), "{} {}", document, changes);
        }
    }

    #[test]
    fn an_empty_patch_changes_nothing(document in object()) {
        prop_assert_eq!(patch(&document, &json!({})), Ok(document));
    }

    /// Items of a merged list: each name once, those of the patch in its order, the others in theirs.
    #[test]
    fn merged_lists_keep_both_orders(old in named(), new in named(), gone in 0..12_u8) {
        let gone = gone.to_string();
        let mut changes = new.clone();
        changes.retain(|item| item["name"] != gone);
        let kept = names(&changes).into_iter().map(str::to_owned).collect::<Vec<_>>();
        changes.push(json!({"name": gone, "$patch": "delete"}));
        let merged = patch(&json!({"named": old}), &json!({"named": changes}))
            .expect("all have their names");
        let Some(Value::Array(merged)) = merged.get("named") else { panic!("a list") };
        let merged = names(merged);
        let of_patch: Vec<_> = merged.iter().filter(|name| kept.iter().any(|k| k == *name)).collect();
        prop_assert!(of_patch.into_iter().eq(&kept));
        let others = |names: &[&str]| -> Vec<String> {
            let others = names.iter().filter(|name| **name != gone && !kept.iter().any(|k| k == *name));
            others.map(|name| (*name).to_owned()).collect()
        };
        prop_assert_eq!(others(&merged), others(&names(&old)));
        prop_assert!(!merged.contains(&gone.as_str()));
    }

    /// `$setElementOrder` of all items is the order that comes out.
    #[test]
    fn a_full_order_is_the_order(old in named(), order in named()) {
        let mut all = order;
        for item in &old {
            if !names(&all).contains(&item["name"].as_str().unwrap_or_default()) {
                all.push(item.clone());
            }
        }
        let order: Vec<_> = all.iter().map(|item| json!({"name": item["name"]})).collect();
        let changes = json!({"$setElementOrder/named": order, "named": all});
        let merged = patch(&json!({"named": old}), &changes).expect("all have their names");
        let Some(Value::Array(merged)) = merged.get("named") else { panic!("a list") };
        prop_assert_eq!(names(merged), names(&all));
    }
}
