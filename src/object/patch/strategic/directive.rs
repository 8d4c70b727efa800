//! The directives of a strategic merge patch: fields whose names begin with `$`, taken out of the patch before
//! anything is merged.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::object::patch::shown;
use crate::object::status::{Result, Status};

pub(super) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";

/// What the directives of one object say.
#[derive(Debug, Default)]
pub(super) struct Directives {
    /// `$patch`: `delete`, `replace` or `merge`.
    pub(super) patch: Option<String>,
    /// `$retainKeys`.
    pub(super) retained: Option<BTreeSet<String>>,
    /// `$setElementOrder/FIELD`.
    pub(super) orders: BTreeMap<String, Vec<Value>>,
    /// `$deleteFromPrimitiveList/FIELD`.
    pub(super) deletions: BTreeMap<String, Vec<Value>>,
}

impl Directives {
    /// Takes them out of the object.
    pub(super) fn take(object: &mut Map<String, Value>) -> Result<Self> {
        let mut directives = Self::default();
        if let Some(patch) = object.remove(PATCH) {
            directives.patch = Some(known(patch)?);
            // What is emptied or replaced has no other directives to heed.
            if directives.patch.as_deref() != Some("merge") {
                return Ok(directives);
            }
        }
        let names: Vec<_> = object.keys().filter(|name| is_directive(name)).cloned().collect();
        for name in names {
            let value = object.remove(&name);
            if name == RETAIN_KEYS {
                directives.retained = Some(retained(value)?);
            } else if name.starts_with(SET_ELEMENT_ORDER) {
                let (field, order) = list_for(&name, value, SET_ELEMENT_ORDER)
                    .ok_or_else(|| bad_format("setElementOrder list"))?;
                directives.orders.insert(field, order);
            } else {
                let (field, deletions) = list_for(&name, value, DELETE_FROM_PRIMITIVE_LIST)
                    .ok_or_else(|| bad_format("primitive list"))?;
                directives.deletions.insert(field, deletions);
            }
        }
        Ok(directives)
    }
}

fn is_directive(name: &str) -> bool {
    name == PATCH
        || name == RETAIN_KEYS
        || name.starts_with(SET_ELEMENT_ORDER)
        || name.starts_with(DELETE_FROM_PRIMITIVE_LIST)
}

/// What `$patch` says, where that is known.
pub(super) fn known(patch: Value) -> Result<String> {
    match patch {
        Value::String(patch) if ["delete", "replace", "merge"].contains(&patch.as_str()) => {
            Ok(patch)
        }
        other => Err(Status::bad_request(format!("unknown patch type: {}", shown(&other)))),
    }
}

fn retained(names: Option<Value>) -> Result<BTreeSet<String>> {
    let Some(Value::Array(names)) = names else { return Err(bad_format("retainKeys")) };
    let texts = names.into_iter().map(|name| match name {
        Value::String(name) => Ok(name),
        _ => Err(bad_format("retainKeys")),
    });
    texts.collect()
}

/// Refuses a patch that sets what is not to be retained.
pub(super) fn check_retained(
    patch: &Map<String, Value>,
    retained: &BTreeSet<String>,
) -> Result<()> {
    if patch.iter().all(|(name, value)| value.is_null() || retained.contains(name)) {
        return Ok(());
    }
    Err(bad_format("retainKeys"))
}

/// The field that a directive of the form `PREFIX/FIELD` is about, and its list.
fn list_for(name: &str, value: Option<Value>, prefix: &str) -> Option<(String, Vec<Value>)> {
    let field = name.strip_prefix(prefix)?.strip_prefix('/')?;
    match value {
        Some(Value::Array(list)) => Some((field.to_owned(), list)),
        _ => None,
    }
}

pub(super) fn bad_format(what: &str) -> Status {
    Status::bad_request(format!("invalid patch format of {what}"))
}

/// Takes directives out of what is set anew. Returns whether there is anything to set: an object with `$patch`
/// is none.
pub(super) fn without_directives(value: &mut Value) -> bool {
    match value {
        Value::Object(fields) => {
            if fields.contains_key(PATCH) {
                return false;
            }
            fields.retain(|name, value| !is_directive(name) && without_directives(value));
        }
        Value::Array(items) => items.retain_mut(without_directives),
        _ => {}
    }
    true
}

/// Takes the fields that are null out of what is set anew. Nulls that are items stay.
pub(super) fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// The object without directives and nulls.
pub(super) fn plain_object(object: Map<String, Value>) -> Map<String, Value> {
    let mut object = Value::Object(object);
    without_nulls(&mut object);
    without_directives(&mut object);
    match object {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// The list without directives and nulls.
pub(super) fn plain_list(mut list: Vec<Value>) -> Vec<Value> {
    list.iter_mut().for_each(without_nulls);
    list.retain_mut(without_directives);
    list
}
