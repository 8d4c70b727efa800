//! Takes away what an applier no longer applies and nobody else owns.
//!
//! Facts from `structured-merge-diff/typed/remove.go` and `merge/update.go` (prune).

use serde_json::Value;

use super::extract::{set_of, with_named};
use super::path::PathElement;
use super::set::Set;
use super::types::{Form, Type};

/// Removes fields and items, each with all that is in it. What is left without parts stays, empty; paths into
/// what is owned as a whole name nothing.
pub(super) fn remove(of: Type<'_>, value: &mut Value, gone: &Set) {
    if gone.is_empty() {
        return;
    }
    match (of.form(value), value) {
        (Form::Map, Value::Object(fields)) => fields.retain(|name, field| {
            let element = PathElement::Field(name.clone());
            if let Some(below) = gone.below(&element) {
                remove(of.field(name), field, below);
            }
            !gone.has(&element)
        }),
        (Form::List(elements), Value::Array(items)) => {
            let mut elements = elements.iter();
            items.retain_mut(|item| {
                let Some(element) = elements.next() else { return true };
                if let Some(below) = gone.below(element) {
                    remove(of.items(), item, below);
                }
                !gone.has(element)
            });
        }
        _ => {}
    }
}

/// The merged object without what was in `last`, the set that its applier applied last time, and that nobody
/// owns now: `owned` is what anybody owns, the applier with what it applies this time.
///
/// An item of a list goes as a whole where nobody else owns the item, whoever owns fields of it; a field that
/// the schema has by name stays as long as somebody owns something below.
pub(super) fn prune(of: Type<'_>, merged: Value, last: &Set, owned: &Set) -> Value {
    if last.is_empty() {
        return merged;
    }
    let last = with_named(of, last);
    let before = with_named(of, &set_of(of, &merged));
    // First all that was applied last time goes ...
    let mut pruned = merged.clone();
    remove(of, &mut pruned, &last);
    // ... what somebody owns comes back ...
    let mut gone = before.clone();
    gone.subtract(&with_named(of, &set_of(of, &pruned)));
    gone.subtract(&with_named(of, owned));
    pruned.clone_from(&merged);
    remove(of, &mut pruned, &gone);
    // ... and so does what has only gone because it was inside.
    let mut gone = before;
    gone.subtract(&with_named(of, &set_of(of, &pruned)));
    let gone = gone.intersection(&last);
    let mut pruned = merged;
    remove(of, &mut pruned, &gone);
    pruned
}
