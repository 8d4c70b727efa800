//! What every object has in `metadata`, read from and written to a [`Value`].
//!
//! Objects stay values of JSON throughout: fields that nobody here knows are kept as they are. These functions
//! read leniently (what is absent or of another type is nothing) and write what is needed on the way.

use serde_json::{Map, Value};

use crate::clock::Clock;

use super::status::{Result, Status};

/// The object's `metadata`; an empty one is made where there is none.
pub(super) fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let object = object.as_object_mut()?;
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut()
}

/// A text of `metadata`; empty where there is none.
fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Sets a text of `metadata`, or removes it where it is empty.
pub(super) fn set_text(object: &mut Value, field: &str, text: &str) {
    set_field(object, field, if text.is_empty() { Value::Null } else { text.into() });
}

/// `metadata.name`; empty where there is none.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// `metadata.generateName`.
pub fn generate_name(object: &Value) -> &str {
    text(object, "generateName")
}

/// `metadata.namespace`.
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// `metadata.uid`.
pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// `metadata.resourceVersion`: opaque, to be given back as it is.
pub fn resource_version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

/// `metadata.generation`: 1 for a new object, one more with each change of what its kind counts; 0 where there
/// is none.
pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

pub(super) fn set_generation(object: &mut Value, generation: i64) {
    set_field(object, "generation", generation.into());
}

/// `metadata.creationTimestamp`, in RFC 3339.
pub fn creation_timestamp(object: &Value) -> &str {
    text(object, "creationTimestamp")
}

/// `metadata.deletionTimestamp`, in RFC 3339; empty for an object that nobody has begun to delete.
pub fn deletion_timestamp(object: &Value) -> &str {
    text(object, "deletionTimestamp")
}

/// `metadata.deletionGracePeriodSeconds`.
pub fn deletion_grace_period(object: &Value) -> Option<i64> {
    object["metadata"]["deletionGracePeriodSeconds"].as_i64()
}

/// `metadata.finalizers`: who has to let go before the object is deleted.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// A label.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"].get(key)?.as_str()
}

/// An annotation.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"].get(key)?.as_str()
}

/// A field of `metadata`; null where there is none.
pub(super) fn field<'a>(object: &'a Value, field: &str) -> &'a Value {
    &object["metadata"][field]
}

/// Sets a field of `metadata`, or removes it with null.
pub(super) fn set_field(object: &mut Value, field: &str, value: Value) {
    let Some(metadata) = metadata_mut(object) else { return };
    if value.is_null() {
        metadata.remove(field);
    } else {
        metadata.insert(field.into(), value);
    }
}

/// Which type a field of `metadata` has; all others are kept as they are.
#[derive(Clone, Copy)]
enum Type {
    Text,
    Integer,
    Texts,
    TextMap,
    Objects,
}

const TYPES: [(&str, Type); 15] = [
    ("name", Type::Text),
    ("generateName", Type::Text),
    ("namespace", Type::Text),
    ("selfLink", Type::Text),
    ("uid", Type::Text),
    ("resourceVersion", Type::Text),
    ("generation", Type::Integer),
    ("creationTimestamp", Type::Text),
    ("deletionTimestamp", Type::Text),
    ("deletionGracePeriodSeconds", Type::Integer),
    ("labels", Type::TextMap),
    ("annotations", Type::TextMap),
    ("ownerReferences", Type::Objects),
    ("finalizers", Type::Texts),
    ("managedFields", Type::Objects),
];

/// Refuses `metadata` of other types than it has, and takes away what says nothing: nulls and empty texts.
pub(super) fn normalize(object: &mut Value) -> Result<()> {
    let bad = |found: &Value, field: &str, wanted: &str| {
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        Err(Status::bad_request(format!(
            "json: cannot unmarshal {found} into field metadata{field} of type {wanted}"
        )))
    };
    if let Some(found) = object.get("metadata")
        && !(found.is_object() || found.is_null())
    {
        return bad(found, "", "ObjectMeta");
    }
    let Some(metadata) = metadata_mut(object) else { return Ok(()) };
    for (field, wanted) in TYPES {
        let Some(found) = metadata.get_mut(field) else { continue };
        if found.is_null() || (found == "" && matches!(wanted, Type::Text)) {
            metadata.remove(field);
            continue;
        }
        let (is_right, name) = match wanted {
            Type::Text => (found.is_string(), "string"),
            Type::Integer => (found.is_i64(), "int64"),
            Type::Texts => {
                (found.as_array().is_some_and(|all| all.iter().all(Value::is_string)), "[]string")
            }
            Type::Objects => {
                (found.as_array().is_some_and(|all| all.iter().all(Value::is_object)), "[]object")
            }
            Type::TextMap => {
                // As Go reads them, nulls are empty texts.
                for text in found.as_object_mut().into_iter().flatten().map(|(_, text)| text) {
                    if text.is_null() {
                        *text = Value::String(String::new());
                    }
                }
                let is_right =
                    found.as_object().is_some_and(|all| all.values().all(Value::is_string));
                (is_right, "map[string]string")
            }
        };
        if !is_right {
            return bad(found, &format!(".{field}"), name);
        }
    }
    Ok(())
}

/// Now, as timestamps of objects say it: RFC 3339 in UTC, whole seconds.
pub(super) fn now(clock: &dyn Clock) -> String {
    rfc3339(clock.now_micros())
}

/// Microseconds since the Unix epoch as RFC 3339 in UTC, rounded down to whole seconds; the last second of the year 9999
/// for what is later.
pub(super) fn rfc3339(micros: i64) -> String {
    let (first, last) = (jiff::Timestamp::MIN.as_second(), jiff::Timestamp::MAX.as_second());
    jiff::Timestamp::from_second(micros.div_euclid(1_000_000).clamp(first, last))
        .map(|time| time.to_string())
        .unwrap_or_default()
}

/// Seconds since the Unix epoch of an RFC 3339 time.
pub(super) fn seconds(time: &str) -> Option<i64> {
    time.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}
