//! The sets of paths that objects have, and sets brought in line with the schema.
//!
//! Facts from `structured-merge-diff/typed/{tofieldset,reconcile_schema}.go` and `fieldpath/set.go`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::path::PathElement;
use super::set::Set;
use super::types::{Form, Type};

/// The set of an object: what somebody who applies it owns.
///
/// Every leaf is in it, every item of a list, every entry of a map whose name the schema does not know, and
/// what is null or empty. An item that is in a list twice is there once, without its fields.
pub(super) fn set_of(of: Type<'_>, value: &Value) -> Set {
    match (of.form(value), value) {
        (Form::Map, Value::Object(fields)) => {
            let mut set = Set::default();
            for (name, field) in fields {
                let (is_member, below) = field_set(of, name, field);
                set.add(PathElement::Field(name.clone()), is_member, below);
            }
            set
        }
        (Form::List(elements), Value::Array(items)) => {
            let mut once = BTreeMap::new();
            for (element, item) in elements.into_iter().zip(items) {
                once.entry(element).and_modify(|item| *item = None).or_insert(Some(item));
            }
            let mut set = Set::default();
            for (element, item) in once {
                set.add(
                    element,
                    true,
                    item.map_or_else(Set::default, |item| set_of(of.items(), item)),
                );
            }
            set
        }
        _ => Set::default(),
    }
}

/// Whether a field itself is in the set, and what is below it.
fn field_set(of: Type<'_>, name: &str, field: &Value) -> (bool, Set) {
    let is_named = of.named(name).is_some();
    let of = of.field(name);
    match of.form(field) {
        Form::Leaf | Form::Null => (true, Set::default()),
        Form::Map => {
            let is_empty = field.as_object().is_some_and(serde_json::Map::is_empty);
            (!is_named || is_empty, set_of(of, field))
        }
        Form::List(_) => (!is_named, set_of(of, field)),
    }
}

/// The set with every field that the schema has by name and that has members below: such fields are owned by
/// nobody, but go away with the last of what is below.
pub(super) fn with_named(of: Type<'_>, set: &Set) -> Set {
    let mut all = Set::default();
    for (element, node) in set.iter() {
        let is_named = match element {
            PathElement::Field(name) => !node.below.is_empty() && of.named(name).is_some(),
            _ => false,
        };
        let below = with_named(of.step(element), &node.below);
        all.add(element.clone(), node.is_member || is_named, below);
    }
    all
}

/// The set as it is under the schema of today: whoever owned parts of what is atomic now owns the whole.
pub(super) fn reconciled(of: Type<'_>, set: &Set) -> Set {
    let mut all = Set::default();
    for (element, node) in set.iter() {
        let of = of.step(element);
        if of.is_atomic() {
            all.add(element.clone(), true, Set::default());
        } else {
            all.add(element.clone(), node.is_member, reconciled(of, &node.below));
        }
    }
    all
}
