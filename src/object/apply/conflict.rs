//! What an applier is told whose fields others own.
//!
//! Words from `apimachinery/pkg/util/managedfields/internal/conflict.go`.

use std::collections::BTreeMap;

use super::managers::{Id, Managers};
use super::set::Set;
use crate::object::status::{Cause, Status};

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
        // It is enough to name the map where he owns that, too.
        replaced.subtract_whole(&conflict);
        conflict.unite(replaced);
        (other, conflict)
    });
    conflicts.filter(|(_, conflict)| !conflict.is_empty()).collect()
}

/// 409 with a cause for each field; `None` where there is no conflict.
pub(super) fn status(conflicts: &BTreeMap<&Id, Set>) -> Option<Status> {
    let mut causes = Vec::new();
    let mut lines = Vec::new();
    for (id, set) in conflicts.iter().filter(|(_, set)| !set.is_empty()) {
        lines.push(format!("conflicts with {id}:"));
        for path in set.paths() {
            lines.push(format!("- {path}"));
            causes.push(Cause::new("FieldManagerConflict", format!("conflict with {id}"), path));
        }
    }
    let message = match causes.as_slice() {
        [] => return None,
        [only] => format!("Apply failed with 1 conflict: {}: {}", only.message, only.field),
        many => format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n")),
    };
    Some(Status::apply_conflict(message, causes))
}
