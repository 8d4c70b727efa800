//! What an applier is told whose fields others own.
//!
//! Words from `apimachinery/pkg/util/managedfields/internal/conflict.go`.

use std::collections::BTreeMap;

use super::managers::{Id, Managers};
use super::set::Set;
use crate::object::status::{Cause, Status};
use crate::object::value;

/// How many fields are told of. Paths may be long and owners many, and each field is named with both.
const CAUSES_MAX: usize = 100;

/// How many characters of an owner are shown: enough for every name that is allowed.
const ID_CHARS_MAX: usize = 1_000;

/// What others own of what the applier changes, and of what is in maps that it makes something else.
pub(super) fn find<'m>(
    managers: &'m Managers,
    applier: &Id,
    changed: &Set,
    replaced: &Set,
) -> BTreeMap<&'m Id, Set> {
    let others = managers.0.iter().filter(|(other, _)| *other != applier);
    let conflicts = others.map(|(other, entry)| {
        let mut conflict = entry.set.intersection(changed);
        let mut replaced = entry.set.intersection(replaced);
        // It is enough to name the map where that is owned, too.
        replaced.subtract_whole(&conflict);
        conflict.unite(replaced);
        (other, conflict)
    });
    conflicts.filter(|(_, conflict)| !conflict.is_empty()).collect()
}

/// 409 with a cause for each field, up to [`CAUSES_MAX`]; `None` where there is no conflict.
pub(super) fn status(conflicts: &BTreeMap<&Id, Set>) -> Option<Status> {
    let mut causes = Vec::new();
    let mut lines = Vec::new();
    let count: usize = conflicts.values().map(Set::count).sum();
    for (id, set) in conflicts.iter().filter(|(_, set)| !set.is_empty()) {
        if causes.len() >= CAUSES_MAX {
            break;
        }
        let id = value::shown(id, ID_CHARS_MAX);
        lines.push(format!("conflicts with {id}:"));
        for path in set.paths(CAUSES_MAX - causes.len()) {
            lines.push(format!("- {path}"));
            causes.push(Cause::new("FieldManagerConflict", format!("conflict with {id}"), path));
        }
    }
    if count > causes.len() {
        lines.push(format!("and {} more", count - causes.len()));
    }
    let message = match causes.as_slice() {
        [] => return None,
        [only] => format!("Apply failed with 1 conflict: {}: {}", only.message, only.field),
        _ => format!("Apply failed with {count} conflicts: {}", lines.join("\n")),
    };
    Some(Status::apply_conflict(message, causes))
}
