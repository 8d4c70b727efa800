//! What is applied, laid over what there is.
//!
//! Nothing goes away here. Facts, and above all the order of merged lists, from
//! `structured-merge-diff/typed/merge.go`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::path::PathElement;
use super::types::{Form, Type};

/// Merges: fields of both, the leaves as they are applied.
///
/// Lists are in the order in which they are applied, with what is only there before kept as near as can be
/// to where it was. Null over something that has parts changes nothing. n log n, and what is there is moved: a
/// copy for each level would be as many copies as it nests deep.
pub(super) fn merge(of: Type<'_>, live: Value, applied: &Value) -> Value {
    match (of.form(&live), of.form(applied), live, applied) {
        (Form::Map, Form::Null, Value::Object(fields), _) if !fields.is_empty() => {
            Value::Object(fields)
        }
        (Form::List(_), Form::Null, Value::Array(items), _) if !items.is_empty() => {
            Value::Array(items)
        }
        (Form::Map, Form::Map, Value::Object(mut merged), Value::Object(applied)) => {
            for (name, applied) in applied {
                if let Some(live) = merged.get_mut(name) {
                    *live = merge(of.field(name), live.take(), applied);
                } else {
                    merged.insert(name.clone(), applied.clone());
                }
            }
            Value::Object(merged)
        }
        (Form::List(left), Form::List(right), Value::Array(live), Value::Array(applied)) => {
            let lists = Lists { left: &left, right: &right, live, applied };
            Value::Array(lists.merge(of.items()))
        }
        _ => applied.clone(),
    }
}

/// Two lists with the steps to their items. Those of the right are all different.
struct Lists<'v> {
    left: &'v [PathElement],
    right: &'v [PathElement],
    live: Vec<Value>,
    applied: &'v [Value],
}

impl Lists<'_> {
    fn merge(self, of: Type<'_>) -> Vec<Value> {
        let Self { left, right, mut live, applied: items } = self;
        let mut known: BTreeMap<_, Option<usize>> = BTreeMap::new();
        for (at, element) in left.iter().enumerate() {
            // Which of two items of the same step is meant, nobody knows: it is replaced.
            known.entry(element).and_modify(|at| *at = None).or_insert(Some(at));
        }
        let applied: BTreeSet<_> = right.iter().collect();
        // Each item of the left is taken once: as it is, or for the one item of the right that it is.
        let taken = |live: &mut [Value], at: usize| live.get_mut(at).map(Value::take);
        let merged = |live: &mut [Value], element: &PathElement, item: &Value| match known
            .get(element)
            .copied()
            .flatten()
            .and_then(|at| taken(live, at))
        {
            Some(live) => merge(of, live, item),
            None => item.clone(),
        };
        // What both have comes in the order of the right: the next of those.
        let mut shared = right.iter().filter(|element| known.contains_key(element));
        let mut next_shared = shared.next();
        let mut done = BTreeSet::new();
        let mut out = Vec::with_capacity(left.len().max(right.len()));
        let mut lefts = left.iter().enumerate().peekable();
        let mut rights = right.iter().zip(items).peekable();
        loop {
            if let (Some(&(_, left)), Some(&(right, item))) = (lefts.peek(), rights.peek()) {
                if left == right {
                    out.push(merged(&mut live, right, item));
                    done.insert(right);
                    next_shared = shared.next();
                    lefts.next();
                    rights.next();
                    continue;
                }
                if applied.contains(left) && next_shared.is_some_and(|next| next != left) {
                    // The right has it in another place.
                    lefts.next();
                    continue;
                }
            }
            if let Some(&(at, left)) = lefts.peek() {
                if !applied.contains(left) {
                    out.extend(taken(&mut live, at));
                    lefts.next();
                    continue;
                }
                if done.contains(left) {
                    lefts.next();
                }
            }
            if let Some((right, item)) = rights.next() {
                out.push(merged(&mut live, right, item));
                done.insert(right);
                if next_shared == Some(right) {
                    next_shared = shared.next();
                }
            } else if lefts.peek().is_none() {
                return out;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::schema::Schema;

    /// Copies are as many as it nests deep where each level makes its own.
    #[test]
    fn what_is_not_applied_is_moved_and_not_copied() {
        let of = Schema::from_openapi(&json!({
            "type": "object",
            "properties": {"list": {
                "type": "array",
                "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            }},
            "x-kubernetes-preserve-unknown-fields": true,
        }))
        .expect("a schema");
        let live = json!({
            "a": {"a": {"text": "as it is"}},
            "list": [{"name": "x", "text": "left"}, {"name": "y", "text": "merged"}],
        });
        let applied = json!({"a": {"a": {"x": 1}}, "list": [{"name": "y", "x": 1}]});
        let paths = ["/a/a/text", "/list/0/text", "/list/1/text"];
        let places = |object: &Value| {
            paths.map(|path| object.pointer(path).and_then(Value::as_str).map(str::as_ptr))
        };
        let before = places(&live);
        assert!(before.iter().all(Option::is_some));
        let merged = merge(Type::root(&of), live, &applied);
        assert_eq!(places(&merged), before, "{merged}");
        assert_eq!(merged.pointer("/list/1/x"), Some(&json!(1)));
    }
}
