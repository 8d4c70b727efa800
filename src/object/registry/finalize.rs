//! How an object is marked as being deleted: grace, finalizers, and when it is time to go.

use serde_json::Value;

use crate::object::kind::Kind;
use crate::object::meta;
use crate::object::status::{Result, Status};

use super::options::{DeleteOptions, PropagationPolicy};
use super::strategy::{GarbageCollection, Strategy};
use super::validate::{FOREGROUND, ORPHAN};

/// 9999-12-30T22:00:00Z: the last time that can be told.
const LAST_SECOND: i64 = 253_402_207_200;

/// How an object goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grace {
    /// Without waiting.
    None,
    /// It has been marked to go in so many seconds.
    Seconds(i64),
    /// It is going, and not sooner for this wish.
    Pending,
}

/// Checks the wish to delete an object, and marks the object if it is to go gracefully. `now` in seconds since the Unix
/// epoch.
pub(super) fn before_delete(
    kind: &Kind,
    strategy: &dyn Strategy,
    object: &mut Value,
    options: &DeleteOptions,
    now: i64,
) -> Result<Grace> {
    options.check()?;
    check_preconditions(kind, object, options)?;
    let causes = strategy.validate_delete(object);
    if !causes.is_empty() {
        return Err(Status::invalid(kind.group(), &kind.kind, meta::name(object), causes));
    }
    // What is negative is one second.
    let asked = options.grace_period_seconds.map(|asked| if asked < 0 { 1 } else { asked });
    if meta::deletion_grace_period(object).is_some_and(|own| own < 0) {
        meta::set_field(object, "deletionGracePeriodSeconds", 1.into());
    }
    let running = meta::deletion_grace_period(object);
    if !meta::deletion_timestamp(object).is_empty() {
        let Some(running) = running.filter(|running| *running != 0) else {
            return Ok(Grace::None);
        };
        return Ok(match asked {
            Some(asked) if asked < running => Grace::Seconds(shorten(object, running, asked, now)),
            _ => Grace::Pending,
        });
    }
    let Some(grace) = strategy.grace_period(object, asked) else { return Ok(Grace::None) };
    let grace = match grace {
        ..0 => 1,
        _ => grace.min(LAST_SECOND.saturating_sub(now)),
    };
    let ends = meta::rfc3339(now.saturating_add(grace).saturating_mul(1_000_000));
    meta::set_text(object, "deletionTimestamp", &ends);
    meta::set_field(object, "deletionGracePeriodSeconds", grace.into());
    bump_generation(object);
    Ok(Grace::Seconds(grace))
}

/// Brings the end of an object forward that is going already; not into the past.
fn shorten(object: &mut Value, running: i64, asked: i64, now: i64) -> i64 {
    let was = meta::seconds(meta::deletion_timestamp(object)).unwrap_or(now);
    let mut ends = was.saturating_sub(running).saturating_add(asked);
    let mut grace = asked;
    if ends < now {
        ends = now;
        // Who asks for grace gets as little of it as there is, and has to come again to make an end.
        if grace != 0 {
            grace = 1;
        }
    }
    let ends = meta::rfc3339(ends.saturating_mul(1_000_000));
    meta::set_text(object, "deletionTimestamp", &ends);
    meta::set_field(object, "deletionGracePeriodSeconds", grace.into());
    grace
}

/// Marks an object that goes without grace, but has finalizers.
pub(super) fn mark_as_deleting(object: &mut Value, now: i64) {
    let ends = meta::deletion_timestamp(object);
    if ends.is_empty() {
        bump_generation(object);
    }
    let ends = meta::deletion_timestamp(object);
    if ends.is_empty() || meta::seconds(ends).is_none_or(|ends| ends > now) {
        meta::set_text(object, "deletionTimestamp", &meta::rfc3339(now.saturating_mul(1_000_000)));
    }
    meta::set_field(object, "deletionGracePeriodSeconds", 0.into());
}

/// That an object is to be deleted is news to whoever acts upon its generation.
fn bump_generation(object: &mut Value) {
    let generation = meta::generation(object);
    if generation > 0 {
        meta::set_generation(object, generation.saturating_add(1));
    }
}

fn check_preconditions(kind: &Kind, object: &Value, options: &DeleteOptions) -> Result<()> {
    let resource = crate::object::kind::GroupResource::new(kind.group(), &kind.kind);
    let refuse = |what: &str, wanted: &str, found: &str, happened: &str| {
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might have been {happened}"
        );
        Err(Status::conflict(&resource, meta::name(object), why))
    };
    match (&options.preconditions.uid, &options.preconditions.resource_version) {
        (Some(uid), _) if uid != meta::uid(object) => {
            refuse("UID", uid, meta::uid(object), "deleted and then recreated")
        }
        (_, Some(version)) if version != meta::resource_version(object) => {
            refuse("ResourceVersion", version, meta::resource_version(object), "modified")
        }
        _ => Ok(()),
    }
}

/// The finalizers that an object is to have while it is being deleted, if they are others than it has. In order of weight: what
/// the client says, what the object has, what its kind does.
pub(super) fn finalizers(
    strategy: &dyn Strategy,
    object: &Value,
    options: &DeleteOptions,
) -> Option<Vec<String>> {
    let policy = strategy.garbage_collection();
    if policy == GarbageCollection::Off {
        return None;
    }
    let had: Vec<&str> = meta::finalizers(object).collect();
    let own = || had.iter().find(|one| [ORPHAN, FOREGROUND].contains(one)).copied();
    let wanted = match (options.orphan_dependents, options.propagation_policy) {
        _ if policy == GarbageCollection::Unsupported => None,
        (Some(true), _) | (None, Some(PropagationPolicy::Orphan)) => Some(ORPHAN),
        (Some(false), _) | (None, Some(PropagationPolicy::Background)) => None,
        (None, Some(PropagationPolicy::Foreground)) => Some(FOREGROUND),
        (None, None) => own().or_else(|| (policy == GarbageCollection::Orphan).then_some(ORPHAN)),
    };
    let is_same =
        had.iter().filter(|one| [ORPHAN, FOREGROUND].contains(one)).all(|one| Some(*one) == wanted)
            && wanted.is_none_or(|wanted| had.contains(&wanted));
    if is_same {
        return None;
    }
    let others = had.iter().copied().filter(|one| ![ORPHAN, FOREGROUND].contains(one));
    Some(others.chain(wanted).map(str::to_owned).collect())
}
