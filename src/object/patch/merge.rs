//! Merge patch: RFC 7396, to the letter.
//!
//! A Kubernetes API server also drops the nulls in objects of lists that the patch brings; the RFC, and this,
//! takes lists as they are.

use serde_json::Value;

use super::read;
use crate::object::status::Result;

/// The document as a merge patch makes it: fields of the patch replace those of the document, objects are merged,
/// null removes, and lists are replaced as a whole. Null can therefore not be set.
///
/// ```
/// use annals::object::merge_patch;
/// use serde_json::json;
///
/// let pod = json!({"metadata": {"labels": {"app": "web", "old": "yes"}}, "args": ["a", "b"]});
/// let patch = br#"{"metadata": {"labels": {"old": null, "new": "yes"}}, "args": ["c"]}"#;
/// assert_eq!(
///     merge_patch(&pod, patch)?,
///     json!({"metadata": {"labels": {"app": "web", "new": "yes"}}, "args": ["c"]}),
/// );
/// # Ok::<(), annals::object::Status>(())
/// ```
///
/// A patch that is not an object replaces the document, as the RFC has it; of objects of the store
/// [`PatchType::patch`](super::PatchType::patch) takes care.
///
/// Costs a copy of the document, and of the patch.
///
/// # Errors
///
/// 400 for what is not JSON, 413 for more than 3 MiB.
pub fn merge_patch(document: &Value, patch: &[u8]) -> Result<Value> {
    let patch = read(patch)?;
    let mut merged = document.clone();
    json_patch::merge(&mut merged, &patch);
    Ok(merged)
}
