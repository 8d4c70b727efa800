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
use super::value::{self, DEPTH_MAX};

pub use json::json_patch;
pub use merge::merge_patch;
pub use strategic::strategic_merge_patch;

/// How many bytes a patch may have: 3 MiB.
pub const PATCH_BYTES_MAX: usize = 3 << 20;

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
    /// A list of operations, of which all are done or none: RFC 6902, [`json_patch()`].
    Json,
    /// An object whose fields are set, and removed where they are null; lists are replaced: RFC 7396, [`merge_patch`].
    Merge,
    /// A merge patch that merges lists by the [`Schema`] of the kind, with directives: [`strategic_merge_patch`].
    StrategicMerge,
    /// Server-side apply: an object with no more than what the applier wants.
    ///
    /// What is sent is merged into the object, which is made where there is none. The fields belong to the sender from then on, and
    /// others who want them otherwise meet a conflict (409), unless they [force](super::PatchOptions::force) it. What
    /// is no longer in the sender's next apply goes away, unless somebody else owns it, too. Whoever writes in another way
    /// owns what the write has changed. All of this is in `metadata.managedFields`. It is JSON, also by its content type.
    ///
    /// What is not as in Kubernetes: see [`apply`](super::apply).
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

    /// Refuses what cannot be done without knowing how lists are merged, where the schema does not tell.
    pub(super) fn check(self, schema: &Schema) -> Result<()> {
        if self == Self::StrategicMerge && schema.is_any() {
            return Err(unsupported(&[Self::Json, Self::Merge, Self::Apply]));
        }
        Ok(())
    }

    /// The object as the patch makes it. What becomes of an object is an object again.
    ///
    /// # Errors
    ///
    /// Those of [`json_patch()`], [`merge_patch`] and [`strategic_merge_patch`]; 400 for a merge patch that is no
    /// object, 422 where no object would come out or one that nests deeper than 120 apart from its managed
    /// fields, and 415 for [`PatchType::Apply`], which needs to know who applies.
    pub fn patch(self, object: &Value, patch: &[u8], schema: &Schema) -> Result<Value> {
        let patched = match self {
            Self::Json => json_patch(object, patch)?,
            Self::Merge => match merge_patch(object, patch)? {
                merged @ Value::Object(_) => merged,
                // What is no object comes from a patch that is none.
                _ => return Err(Status::bad_request("error decoding patch: it is not an object")),
            },
            Self::StrategicMerge => strategic_merge_patch(object, patch, schema)?,
            Self::Apply => return Err(unsupported(&Self::ALL[..3])),
        };
        let message = if !patched.is_object() {
            // Not what it is: a part of what is stored may have been moved to where the object was.
            let found = value::type_of(&patched);
            format!("Invalid value: {found:?}: the patched object is not an object")
        } else if !value::is_object_within_depth(&patched) {
            format!("Invalid value: \"map\": the patched object nests deeper than {DEPTH_MAX}")
        } else {
            return Ok(patched);
        };
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
    value::shown(sent, 500)
}

/// The steps that a patch may take that are more than reading it and the object once.
#[derive(Debug)]
struct Steps {
    left: usize,
    max: usize,
}

impl Steps {
    fn new(max: usize) -> Self {
        Self { left: max, max }
    }

    /// Takes some.
    ///
    /// # Errors
    ///
    /// 422 where no more are left.
    fn take(&mut self, steps: usize) -> Result<()> {
        let left = self.left.checked_sub(steps);
        let too_many =
            || Status::unprocessable(format!("the patch takes more than {} steps", self.max));
        self.left = left.ok_or_else(too_many)?;
        Ok(())
    }
}

fn too_large(why: &str) -> Status {
    Status::new(Reason::RequestEntityTooLarge, format!("Request entity too large: {why}"))
}
