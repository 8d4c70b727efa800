//! Sets of paths as managed fields say them: the JSON of `FieldsV1`.
//!
//! `{"f:spec": {".": {}, "f:replicas": {}}}` is `spec` and `spec.replicas`: a step without others below is a
//! member, one with others below is where `.` says so. Facts from
//! `structured-merge-diff/fieldpath/serialize.go`.

use serde_json::{Map, Value};

use super::path::PathElement;
use super::set::Set;

/// How deep sets may nest: those of objects that nest 120 deep have a level more.
const DEPTH_MAX: usize = 121;

/// Reads a set; what nobody here knows the meaning of is skipped.
///
/// # Errors
///
/// What is wrong, in words: no object where there must be one, a step that cannot be read, deeper than
/// 121.
pub(super) fn read(fields: &Value) -> Result<Set, String> {
    read_below(fields, DEPTH_MAX).map(|(set, _)| set)
}

/// What is below a step, and whether the step is a member itself.
fn read_below(fields: &Value, depth: usize) -> Result<(Set, bool), String> {
    let fields = fields.as_object().ok_or("fields that are no object")?;
    let depth = depth.checked_sub(1).ok_or("fields that nest deeper than 121")?;
    let mut set = Set::default();
    let mut is_member = false;
    for (text, below) in fields {
        if text == "." {
            is_member = true;
        } else if let Some(element) = PathElement::parse(text)? {
            let (below, is_member) = read_below(below, depth)?;
            set.add(element, is_member, below);
        }
    }
    is_member |= set.is_empty();
    Ok((set, is_member))
}

/// Writes a set.
pub(super) fn write(set: &Set) -> Value {
    write_below(set, false)
}

fn write_below(set: &Set, is_member: bool) -> Value {
    let mut fields = Map::new();
    if is_member && !set.is_empty() {
        fields.insert(".".into(), Value::Object(Map::new()));
    }
    for (element, node) in set.iter() {
        fields.insert(element.text(), write_below(&node.below, node.is_member));
    }
    Value::Object(fields)
}
