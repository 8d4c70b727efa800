//! What changes from one object to another, as sets of paths.
//!
//! Facts from `structured-merge-diff/typed/compare.go`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::path::PathElement;
use super::set::Set;
use super::types::{Form, Type};
use super::values;

/// What has changed. With what is added or removed go the paths of all that is in it.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) added: Set,
    pub(super) modified: Set,
    pub(super) removed: Set,
    /// Those of the removed whose map or list has become something else.
    pub(super) replaced: Set,
}

/// The changes at one value: at itself, and below.
#[derive(Debug, Default)]
struct Change {
    is_added: bool,
    is_modified: bool,
    is_removed: bool,
    below: Changes,
}

impl Changes {
    fn add(&mut self, element: PathElement, change: Change) {
        let Change { is_added, is_modified, is_removed, below } = change;
        self.added.add(element.clone(), is_added, below.added);
        self.modified.add(element.clone(), is_modified, below.modified);
        self.removed.add(element.clone(), is_removed, below.removed);
        self.replaced.add(element, false, below.replaced);
    }

    /// Leaves out paths with all that is below them.
    pub(super) fn ignore(&mut self, ignored: &Set) {
        for set in [&mut self.added, &mut self.modified, &mut self.removed, &mut self.replaced] {
            set.subtract_whole(ignored);
        }
    }
}

/// Compares two objects. Each side is looked at once; what is a list costs n log n.
pub(super) fn compare(of: Type<'_>, old: &Value, new: &Value) -> Changes {
    change(of, Some(old), Some(new)).below
}

fn change(of: Type<'_>, old: Option<&Value>, new: Option<&Value>) -> Change {
    let old_form = old.map(|old| of.form(old));
    let new_form = new.map(|new| of.form(new));
    let mut change = match (&old_form, &new_form) {
        (Some(Form::Leaf), Some(Form::Map | Form::List(_)))
        | (Some(Form::Map | Form::List(_)), Some(Form::Leaf))
        | (Some(Form::Map), Some(Form::List(_)))
        | (Some(Form::List(_)), Some(Form::Map)) => {
            // Everything in it goes or comes, and it is something else now.
            let gone = change(of, old, None);
            let come = change(of, None, new);
            let below = Changes {
                replaced: gone.below.removed.clone(),
                removed: gone.below.removed,
                added: come.below.added,
                ..Changes::default()
            };
            return Change { is_modified: true, below, ..Change::default() };
        }
        (Some(Form::Map), _) | (_, Some(Form::Map)) if !are_empty(old, new) => {
            Change { below: fields(of, old, new), ..Change::default() }
        }
        (Some(Form::List(_)), _) | (_, Some(Form::List(_))) if !are_empty(old, new) => {
            let elements = |form| match form {
                Some(Form::List(elements)) => elements,
                _ => Vec::new(),
            };
            let old = indexed(elements(old_form), old);
            let new = indexed(elements(new_form), new);
            Change { below: items(of, &old, &new), ..Change::default() }
        }
        _ => match (old, new) {
            (Some(old), Some(new)) => {
                Change { is_modified: !values::equal(old, new), ..Change::default() }
            }
            _ => Change::default(),
        },
    };
    change.is_added = old.is_none() && new.is_some();
    change.is_removed = new.is_none() && old.is_some();
    change
}

fn are_empty(old: Option<&Value>, new: Option<&Value>) -> bool {
    let is_empty = |value: Option<&Value>| match value {
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        _ => true,
    };
    is_empty(old) && is_empty(new)
}

fn fields(of: Type<'_>, old: Option<&Value>, new: Option<&Value>) -> Changes {
    let none = Map::new();
    let old = old.and_then(Value::as_object).unwrap_or(&none);
    let new = new.and_then(Value::as_object).unwrap_or(&none);
    let mut changes = Changes::default();
    let mut add = |name: &String, old, new| {
        let change = change(of.field(name), old, new);
        changes.add(PathElement::Field(name.clone()), change);
    };
    for (name, value) in old {
        add(name, Some(value), new.get(name));
    }
    for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
        add(name, None, Some(value));
    }
    changes
}

/// The items by their steps; more than one where a list has duplicates.
type Indexed<'v> = BTreeMap<PathElement, Vec<&'v Value>>;

fn indexed(elements: Vec<PathElement>, list: Option<&Value>) -> Indexed<'_> {
    let mut indexed = Indexed::new();
    let items = list.and_then(Value::as_array).into_iter().flatten();
    for (element, item) in elements.into_iter().zip(items) {
        indexed.entry(element).or_default().push(item);
    }
    indexed
}

fn items(of: Type<'_>, old: &Indexed<'_>, new: &Indexed<'_>) -> Changes {
    let mut changes = Changes::default();
    let of = of.items();
    let mut add = |element: &PathElement, old: &[&Value], new: &[&Value]| {
        let change = match (old, new) {
            // Duplicates are owned as one, without their fields.
            ([_, _, ..], [_, _, ..]) => {
                let is_same = old.len() == new.len()
                    && old.iter().zip(new).all(|(old, new)| values::equal(old, new));
                Change { is_modified: !is_same, ..Change::default() }
            }
            ([_, _, ..], new) => {
                let come = new.first().map(|new| change(of, None, Some(new)));
                Change { is_removed: true, ..come.unwrap_or_default() }
            }
            (old, [_, _, ..]) => {
                let gone = old.first().map(|old| change(of, Some(old), None));
                Change { is_added: true, ..gone.unwrap_or_default() }
            }
            (old, new) => change(of, old.first().copied(), new.first().copied()),
        };
        changes.add(element.clone(), change);
    };
    for (element, values) in old {
        add(element, values, new.get(element).map_or(&[], Vec::as_slice));
    }
    for (element, values) in new.iter().filter(|(element, _)| !old.contains_key(*element)) {
        add(element, &[], values);
    }
    changes
}

#[cfg(test)]
mod tests;
