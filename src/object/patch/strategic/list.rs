//! Lists that are merged: items found by their merge key, or by what they are, and put into order.
//!
//! The order of a merged list: the items that the patch names are in the order of the patch, the others in that
//! of the object; of one and one, the one of the object comes first if it stood before the other there.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::Merging;
use super::directive::{self, PATCH, bad_format};
use crate::object::Schema;
use crate::object::patch::shown;
use crate::object::status::{Result, Status};

/// Merges two lists.
pub(super) fn merge(
    merging: &Merging,
    old: Vec<Value>,
    new: Vec<Value>,
    schema: &Schema,
) -> Result<Vec<Value>> {
    if !holds_objects(old.iter().chain(&new))? {
        let mut all = old.clone();
        all.extend(new.iter().cloned());
        return order(distinct(all), &new, &old, None);
    }
    let key = schema.patch_merge_key().ok_or_else(no_merge_key)?;
    let (mut merged, mut patches, mut is_replaced) = (old, Vec::new(), false);
    let mut deleted = HashSet::new();
    for item in new {
        let Value::Object(mut item) = item else { continue };
        match item.get(PATCH).cloned().map(directive::known).transpose()?.as_deref() {
            Some("delete") => {
                let value = item.remove(key).ok_or_else(|| without_key(&item, key))?;
                deleted.insert(value);
            }
            Some("replace") => is_replaced = true,
            _ => {
                item.remove(PATCH);
                patches.push(item);
            }
        }
    }
    if is_replaced {
        let items = patches.into_iter().map(|item| Value::Object(directive::plain_object(item)));
        let items: Vec<_> = items.collect();
        for item in &items {
            key_of(item, key)?;
        }
        return Ok(items);
    }
    merged.retain(|item| item.get(key).is_none_or(|value| !deleted.contains(value)));
    let before = merged.clone();
    let items = schema.items().unwrap_or(&merging.unknown);
    let mut places: HashMap<Value, usize> = HashMap::with_capacity(merged.len());
    for (place, item) in merged.iter().enumerate() {
        places.entry(key_of(item, key)?.clone()).or_insert(place);
    }
    let mut named = Vec::with_capacity(patches.len());
    for patch in patches {
        let value = patch.get(key).ok_or_else(|| without_key(&patch, key))?.clone();
        named.push(Value::Object(Map::from_iter([(key.to_owned(), value.clone())])));
        match places.get(&value).and_then(|place| merged.get_mut(*place)) {
            Some(Value::Object(item)) => {
                *item = merging.objects(std::mem::take(item), patch, items)?;
            }
            _ => {
                places.insert(value, merged.len());
                merged.push(Value::Object(directive::plain_object(patch)));
            }
        }
    }
    order(merged, &named, &before, Some(key))
}

/// Takes single values out of a list.
pub(super) fn delete(items: &mut Vec<Value>, deleted: &[Value]) -> Result<()> {
    let is_single = |value: &Value| !value.is_object() && !value.is_array();
    if !deleted.iter().all(is_single) || !items.iter().all(is_single) {
        return Err(bad_format("primitive list"));
    }
    let deleted: HashSet<_> = deleted.iter().collect();
    items.retain(|item| !deleted.contains(item));
    Ok(())
}

/// Refuses a list of a patch whose items are not in the order that `$setElementOrder` gives.
pub(super) fn check_order(new: &[Value], order: &[Value], key: Option<&str>) -> Result<()> {
    if order.is_empty() {
        return Ok(());
    }
    let mut places = order.iter();
    for item in new.iter().filter(|item| item.get(PATCH).is_none()) {
        let value = identity(item, key)?;
        loop {
            let Some(place) = places.next() else {
                return Err(Status::bad_request(format!(
                    "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                    shown(&Value::from(new)),
                    shown(&Value::from(order))
                )));
            };
            if identity(place, key)? == value {
                break;
            }
        }
    }
    Ok(())
}

/// Puts a merged list into order: `named` is the order of the items in it, `before` that of all others.
pub(super) fn order(
    merged: Vec<Value>,
    named: &[Value],
    before: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>> {
    let key = if holds_objects(merged.iter().chain(named))? {
        Some(key.ok_or_else(no_merge_key)?)
    } else {
        None
    };
    let named = places(named, key)?;
    let before = places_found(before, key);
    // Sorted by their places; those without one are behind all others, as they came.
    let mut first = Vec::new();
    let mut others = Vec::new();
    for item in merged {
        let value = identity(&item, key)?;
        let in_before = before.get(value).copied();
        match named.get(value) {
            Some(place) => first.push((*place, in_before, item)),
            None => others.push((in_before.unwrap_or(usize::MAX), in_before, item)),
        }
    }
    first.sort_by_key(|(place, ..)| *place);
    others.sort_by_key(|(place, ..)| *place);
    let mut ordered = Vec::with_capacity(first.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, place, item) in first {
        while let (Some((_, Some(other), _)), Some(place)) = (others.peek(), place) {
            if *other >= place {
                break;
            }
            ordered.extend(others.next().map(|(.., item)| item));
        }
        ordered.push(item);
    }
    ordered.extend(others.map(|(.., item)| item));
    Ok(ordered)
}

/// The old order of a list, in which items that have come stand in the places of those that have gone, as far as
/// there are such: so they keep away from what stood before them.
pub(super) fn places_filled(old: Vec<Value>, merged: &[Value], key: Option<&str>) -> Vec<Value> {
    let identities = |items: &[Value]| -> HashSet<Value> {
        items.iter().filter_map(|item| identity(item, key).ok().cloned()).collect()
    };
    let (were, are) = (identities(&old), identities(merged));
    let is_in = |item: &Value, all: &HashSet<Value>| {
        identity(item, key).is_ok_and(|value| all.contains(value))
    };
    let size = old.len();
    let mut filled: Vec<_> = old.into_iter().filter(|item| is_in(item, &are)).collect();
    let gone = size - filled.len();
    filled.extend(merged.iter().filter(|item| !is_in(item, &were)).take(gone).cloned());
    filled
}

/// Where each item stands first.
fn places<'a>(items: &'a [Value], key: Option<&str>) -> Result<HashMap<&'a Value, usize>> {
    let mut places = HashMap::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        places.entry(identity(item, key)?).or_insert(place);
    }
    Ok(places)
}

/// As [`places`], without the items that cannot be known.
fn places_found<'a>(items: &'a [Value], key: Option<&str>) -> HashMap<&'a Value, usize> {
    let mut places = HashMap::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        if let Ok(value) = identity(item, key) {
            places.entry(value).or_insert(place);
        }
    }
    places
}

/// By what an item is known: its merge key, or itself where there is none.
fn identity<'a>(item: &'a Value, key: Option<&str>) -> Result<&'a Value> {
    key.map_or(Ok(item), |key| key_of(item, key))
}

fn key_of<'a>(item: &'a Value, key: &str) -> Result<&'a Value> {
    let Value::Object(fields) = item else {
        let message = format!("expected a map, but received: {}", shown(item));
        return Err(Status::bad_request(message));
    };
    fields.get(key).ok_or_else(|| without_key(fields, key))
}

/// Whether the items are objects. All have to be of one type, and none a list.
fn holds_objects<'a>(items: impl Iterator<Item = &'a Value>) -> Result<bool> {
    let mut first = None;
    for item in items {
        if item.is_array() {
            return Err(Status::unprocessable("lists of lists are not supported"));
        }
        let kind = std::mem::discriminant(item);
        if *first.get_or_insert(kind) != kind {
            return Err(Status::bad_request("list element types are not identical"));
        }
    }
    let object = std::mem::discriminant(&Value::Object(Map::new()));
    Ok(first == Some(object))
}

/// Each value once, at its first place.
fn distinct(mut values: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::with_capacity(values.len());
    values.retain(|value| seen.insert(value.clone()));
    values
}

fn no_merge_key() -> Status {
    Status::bad_request("cannot merge lists without merge key")
}

fn without_key(item: &Map<String, Value>, key: &str) -> Status {
    let item = shown(&Value::Object(item.clone()));
    Status::bad_request(format!("map: {item} does not contain declared merge key: {key}"))
}
