//! How `kubectl` goes over from applying on its own side to applying here.
//!
//! On its own side it keeps what it applied last in an annotation, and updates; the first apply here would be
//! in conflict with those updates. What the annotation says and the object still has, `kubectl` may take from
//! anybody; and as long as there is the annotation, it is kept up to date, for the way back.
//! Facts from `apimachinery/pkg/util/managedfields/internal/lastapplied{,manager,updater}.go`.

use serde_json::Value;

use super::compare::compare;
use super::extract::set_of;
use super::set::Set;
use super::types::Type;
use super::{FieldManager, check};
use crate::object::meta;
use crate::object::value::{DEPTH_MAX, is_within_depth};

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// How long all annotations of an object may be together.
const ANNOTATIONS_MAX: usize = 256 << 10;

/// The only manager that has such an annotation.
const KUBECTL: &str = "kubectl";

/// What the manager may take from others without force: nothing, but for `kubectl`.
pub(super) fn allowed(of: Type<'_>, live: &Value, manager: &FieldManager<'_>) -> Set {
    let last = meta::annotation(live, ANNOTATION).filter(|_| manager.name == KUBECTL);
    let last = last.and_then(|last| serde_json::from_str::<Value>(last).ok()).filter(|last| {
        last["apiVersion"] == manager.api_version
            && is_within_depth(last, DEPTH_MAX)
            && check::check(of, last).is_none()
    });
    let Some(last) = last else { return Set::default() };
    let mut allowed = set_of(of, &last);
    let changes = compare(of, &last, live);
    for changed in [&changes.modified, &changes.added, &changes.removed] {
        allowed.subtract(changed);
    }
    allowed
}

/// After an apply: the annotation says what has been applied, where there is one.
pub(super) fn refresh(object: &mut Value, applied: &Value, manager: &FieldManager<'_>) {
    if manager.name != KUBECTL || meta::annotation(object, ANNOTATION).is_none_or(str::is_empty) {
        return;
    }
    let mut applied = applied.clone();
    if let Some(said) = annotations_mut(&mut applied) {
        said.remove(ANNOTATION);
    }
    applied.sort_all_objects();
    let Some(annotations) = annotations_mut(object) else { return };
    // With the end of line that encoders of Go write.
    annotations.insert(ANNOTATION.into(), format!("{applied}\n").into());
    let length = |(name, text): (&String, &Value)| name.len() + text.as_str().map_or(0, str::len);
    if annotations.iter().map(length).sum::<usize>() > ANNOTATIONS_MAX {
        annotations.remove(ANNOTATION);
    }
}

fn annotations_mut(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}
