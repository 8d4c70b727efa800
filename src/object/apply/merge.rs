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
/// to where it was. Null over something that has parts changes nothing. n log n.
pub(super) fn merge(of: Type<'_>, live: &Value, applied: &Value) -> Value {
    match (of.form(live), of.form(applied), live, applied) {
        (Form::Map, Form::Null, Value::Object(fields), _) if !fields.is_empty() => live.clone(),
        (Form::List(_), Form::Null, Value::Array(items), _) if !items.is_empty() => live.clone(),
        (Form::Map, Form::Map, Value::Object(live), Value::Object(applied)) => {
            let mut merged = live.clone();
            for (name, applied) in applied {
                let value = match live.get(name) {
                    Some(live) => merge(of.field(name), live, applied),
                    None => applied.clone(),
                };
                merged.insert(name.clone(), value);
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
    live: &'v [Value],
    applied: &'v [Value],
}

impl Lists<'_> {
    fn merge(&self, of: Type<'_>) -> Vec<Value> {
        let mut known: BTreeMap<_, Option<&Value>> = BTreeMap::new();
        for (element, item) in self.left.iter().zip(self.live) {
            // Which of two items of the same step is meant, nobody knows: it is replaced.
            known.entry(element).and_modify(|item| *item = None).or_insert(Some(item));
        }
        let applied: BTreeSet<_> = self.right.iter().collect();
        let merged = |element: &PathElement, item: &Value| match known.get(element) {
            Some(Some(live)) => merge(of, live, item),
            _ => item.clone(),
        };
        // What both have comes in the order of the right: the next of those.
        let mut shared = self.right.iter().filter(|element| known.contains_key(element));
        let mut next_shared = shared.next();
        let mut done = BTreeSet::new();
        let mut out = Vec::with_capacity(self.left.len().max(self.right.len()));
        let mut lefts = self.left.iter().zip(self.live).peekable();
        let mut rights = self.right.iter().zip(self.applied).peekable();
        loop {
            if let (Some(&(left, _)), Some(&(right, item))) = (lefts.peek(), rights.peek()) {
                if left == right {
                    out.push(merged(right, item));
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
            if let Some(&(left, item)) = lefts.peek() {
                if !applied.contains(left) {
                    out.push(item.clone());
                    lefts.next();
                    continue;
                }
                if done.contains(left) {
                    lefts.next();
                }
            }
            if let Some((right, item)) = rights.next() {
                out.push(merged(right, item));
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
