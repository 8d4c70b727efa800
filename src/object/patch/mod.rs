//! Patches: how an object is changed by saying what is to be different.
//!
//! - `json`: JSON patch (RFC 6902), a list of operations of which all happen or none.
//! - `merge`: merge patch (RFC 7396), an object whose fields are set, and removed where they are null.
//! - `strategic`: strategic merge patch, a merge patch that merges lists by the schema of the kind, with
//!   directives.
//!
//! Server-side apply is a patch of its own: see `apply`.
//!
//! All of them take bytes that anybody may have sent: they take at most [`PATCH_BYTES_MAX`], nest no deeper
//! than JSON may that is to be read again, and change nothing of the object that they are given.

mod json;
mod merge;
mod strategic;
#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value;

use super::Schema;
use super::status::{Cause, Reason, Result, Status};

pub use json::json_patch;
pub use merge::merge_patch;
pub use strategic::strategic_merge_patch;

/// How many bytes a patch may have: 3 MiB.
pub const PATCH_BYTES_MAX: usize = 3 << 20;

/// How deep what becomes of a patch may nest, so that it can be read again: `serde_json` reads no deeper.
const DEPTH_MAX: usize = 127;

/// What a patch is written in, as the header `Content-Type` says it.
///
/// ```
/// use annals::object::PatchType;
///
/// let patch_type = PatchType::from_content_type("application/merge-patch+json; charset=utf-8")?;
/// assert_eq!(patch_type, PatchType::Merge);
/// let status = PatchType::from_content_type("application/json").unwrap_err();
/// assert_eq!(status.code(), 415);
/// # Ok::<(), annals::object::Status>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PatchType {
    /// A list of operations: RFC 6902.
    Json,
    /// An object whose fields are set: RFC 7396.
    Merge,
    /// A merge patch that merges lists by the schema of the kind.
    StrategicMerge,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    const ALL: [Self; 4] = [Self::Json, Self::Merge, Self::StrategicMerge, Self::Apply];

    /// What the header `Content-Type` says; parameters behind a semicolon do not matter.
    ///
    /// # Errors
    ///
    /// 415 where it is the type of no patch.
    pub fn from_content_type(content_type: &str) -> Result<Self> {
        let named = content_type.split(';').next().unwrap_or_default();
        let found = Self::ALL.into_iter().find(|one| one.content_type() == named);
        found.ok_or_else(|| unsupported(&Self::ALL))
    }

    /// What the header `Content-Type` says of it.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::StrategicMerge => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }

    /// The object as the patch makes it. What becomes of an object is an object again.
    ///
    /// # Errors
    ///
    /// Those of [`json_patch()`], [`merge_patch`] and [`strategic_merge_patch`]; 422 where no object would come
    /// out, and 415 for [`PatchType::Apply`], which needs to know who applies.
    pub fn patch(self, object: &Value, patch: &[u8], schema: &Schema) -> Result<Value> {
        let patched = match self {
            Self::Json => json_patch(object, patch)?,
            Self::Merge => match merge_patch(object, patch)? {
                merged @ (Value::Object(_) | Value::Array(_)) => merged,
                // What is one value comes from a patch that is one value.
                _ => return Err(Status::bad_request("Invalid JSON Patch")),
            },
            Self::StrategicMerge => strategic_merge_patch(object, patch, schema)?,
            Self::Apply => return Err(unsupported(&Self::ALL[..3])),
        };
        if patched.is_object() {
            return Ok(patched);
        }
        let patched = shown(&patched);
        let message = format!("Invalid value: {patched}: the patched object is not an object");
        Err(Status::invalid("", "", "", vec![Cause::new("FieldValueInvalid", message, "patch")]))
    }
}

/// 415, with the types that could be.
fn unsupported(types: &[PatchType]) -> Status {
    let types: Vec<_> = types.iter().map(|one| one.content_type()).collect();
    let types = types.join(", ");
    Status::new(
        Reason::UnsupportedMediaType,
        format!(
            "the body of the request was in an unknown format - accepted media types include: {types}"
        ),
    )
}

/// The bytes of a patch as JSON.
pub(super) fn read(patch: &[u8]) -> Result<Value> {
    if patch.len() > PATCH_BYTES_MAX {
        return Err(too_large(&format!("limit is {PATCH_BYTES_MAX}")));
    }
    serde_json::from_slice(patch)
        .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))
}

/// The beginning of what a client has sent, for a message.
fn shown(sent: &impl fmt::Display) -> String {
    const CHARS_MAX: usize = 500;
    let mut text = sent.to_string();
    if let Some((end, _)) = text.char_indices().nth(CHARS_MAX) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

fn too_large(why: &str) -> Status {
    Status::new(Reason::RequestEntityTooLarge, format!("Request entity too large: {why}"))
}

/// How deep arrays and objects nest: 0 for a single value.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}
