//! Server-side apply: who owns which field, and what becomes of an object when several write it.
//!
//! An applier says what it wants of an object, and only that. What it says is merged into the object; the
//! fields are its own from then on, and others who want them otherwise meet a conflict, unless they force it.
//! What it no longer says goes away, unless somebody else owns it, too. Whoever writes in another way owns
//! what the write has changed. All of this is in `metadata.managedFields`.
//!
//! The rules are those of `sigs.k8s.io/structured-merge-diff` and
//! `k8s.io/apimachinery/pkg/util/managedfields`. What is different here:
//!
//! - A kind has one schema, whatever version an entry names: there is nothing to convert.
//! - What is stored need not be of its type: a list with an item that has no key is owned as a whole, and
//!   fields that the schema does not know are as those of a schema that allows them. Only what is applied
//!   must be right.
//! - A map or list that loses its last part but stays is empty, or as it is applied; there it becomes null, so
//!   that the same apply a second time changes the object again.
//! - Whoever owns a field of a map is asked before a single value takes the place of the map.
//! - An entry gets a new time when the object or the fields of its manager change; there a new manager that
//!   changes nothing has none.

// - `path`, `set`, `fields`: paths, sets of them, and their JSON;
// - `types`: the schema as it is asked for here; `check`: whether what is applied is of its type;
// - `extract`, `compare`: the set of an object, and what has changed between two;
// - `merge`, `remove`: the object that becomes of it;
// - `managers`, `conflict`: the owners, and what is said to those who are not;
// - `last_applied`: how `kubectl` comes here from applying on its own side.

mod check;
mod compare;
mod conflict;
mod extract;
mod fields;
mod last_applied;
mod managers;
mod merge;
mod path;
mod remove;
mod set;
#[cfg(test)]
mod tests;
mod types;

use serde_json::{Map, Value};

use managers::{Entry, Id, Managers, Operation};
use set::Set;
pub(super) use types::Type;

use super::meta;
use super::schema::Schema;
use super::status::{Cause, Result, Status};
use super::value::{self, DEPTH_MAX, JSON_DEPTH_MAX};

/// How long names of managers may be, in bytes.
const NAME_MAX: usize = 128;

/// How many appliers an object may have: each has an entry that may be as large as the object.
const APPLIERS_MAX: usize = 100;

/// Who writes.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "whoever writes says all of it")]
pub struct FieldManager<'a> {
    /// What the client calls itself, as `kubectl`.
    pub name: &'a str,
    /// The version that it writes, as `apps/v1`: of the kind.
    pub api_version: &'a str,
    /// `status` for a write of the status alone; empty for the object.
    pub subresource: &'a str,
    /// Now, in RFC 3339.
    pub now: &'a str,
    /// Fields that the kind takes from what is stored whatever is written, as `[&["status"]]` for writes of the
    /// object: nobody owns them for having written them, and they are in conflict with nobody.
    pub reset_fields: &'a [&'a [&'a str]],
}

impl FieldManager<'_> {
    /// What is never owned: it names the object, or the server keeps it.
    fn stripped() -> Set {
        let mut stripped = Set::default();
        for field in ["apiVersion", "kind", "metadata"] {
            stripped.add_field(&[field]);
        }
        for field in [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        ] {
            stripped.add_field(&["metadata", field]);
        }
        stripped
    }

    fn reset(&self) -> Set {
        let mut reset = Set::default();
        for path in self.reset_fields {
            reset.add_field(path);
        }
        reset
    }

    /// Leaves out of a set what this manager cannot own.
    fn limit(&self, set: &mut Set) {
        set.subtract_whole(&self.reset());
        set.subtract(&Self::stripped());
    }

    fn id(&self, name: &str, operation: Operation) -> Id {
        let name = if name.is_empty() { "unknown" } else { name };
        Id::new(name, operation, self.api_version, self.subresource)
    }

    fn check_name(&self) -> Result<()> {
        let field = "fieldManager";
        let cause = if self.name.is_empty() {
            Some(Cause::required(field, "is required for apply patch"))
        } else {
            wrong_name(self.name, field)
        };
        let Some(cause) = cause else { return Ok(()) };
        Err(Status::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]))
    }
}

/// What is wrong with the name of a manager, of `field`: the first thing. That it is empty is not.
pub(super) fn wrong_name(name: &str, field: &str) -> Option<Cause> {
    if name.len() > NAME_MAX {
        return Some(Cause::too_long(field, NAME_MAX));
    }
    // Go calls printable what has a glyph, and of all spaces the ASCII one alone.
    let is_wrong = |c: &char| c.is_control() || (c.is_whitespace() && *c != ' ');
    let (at, wrong) = name.char_indices().find(|(_, c)| is_wrong(c))?;
    let why = format!("invalid character U+{:04X} (at position {at})", u32::from(wrong));
    Some(Cause::invalid(field, &name.into(), why))
}

/// Applies: `live` as it becomes when the manager wants `applied` of it; of nothing, what is applied.
///
/// The result has the version and all other metadata of `live` where `applied` does not say otherwise; its
/// `metadata.managedFields` say who owns what. Where nothing changes, it is `live`. Takes n log n in the size
/// of both and of the managed fields.
///
/// ```
/// use annals::object::Schema;
/// use annals::object::apply::{FieldManager, apply};
/// use serde_json::json;
///
/// let schema = Schema::any();
/// let now = "2026-11-22T14:00:00Z";
/// let kubectl = FieldManager { name: "kubectl", api_version: "apps/v1", now, ..FieldManager::default() };
/// let scaler = FieldManager { name: "scaler", ..kubectl };
///
/// let wanted = json!({"apiVersion": "apps/v1", "spec": {"image": "a:1", "replicas": 1}});
/// let live = apply(None, &wanted, &schema, &kubectl, false)?;
///
/// // Somebody else wants more replicas: a conflict, until it is forced.
/// let wanted = json!({"apiVersion": "apps/v1", "spec": {"replicas": 3}});
/// let conflict = apply(Some(&live), &wanted, &schema, &scaler, false).unwrap_err();
/// assert_eq!(conflict.message(), "Apply failed with 1 conflict: conflict with \"kubectl\": .spec.replicas");
/// let live = apply(Some(&live), &wanted, &schema, &scaler, true)?;
///
/// // From now on kubectl need not speak of replicas any more.
/// let wanted = json!({"apiVersion": "apps/v1", "spec": {"image": "a:2"}});
/// let live = apply(Some(&live), &wanted, &schema, &kubectl, false)?;
/// assert_eq!(live["spec"], json!({"image": "a:2", "replicas": 3}));
/// # Ok::<(), annals::object::Status>(())
/// ```
///
/// # Errors
///
/// 409 with a cause for each field that others own and that would change, for the first 100 if there are more,
/// unless `force`. 400 for what is applied: another version, managed fields of its own, not of the schema (an
/// API server says 500 here), deeper than 120. 422 for a manager without a name or with a wrong one, and for the
/// 101st that applies. 500 where the managed fields of `live` cannot be read.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    schema: &Schema,
    manager: &FieldManager<'_>,
    force: bool,
) -> Result<Value> {
    manager.check_name()?;
    let of = Type::root(schema);
    let applied = checked(of, live, applied, manager)?;
    let mut object = match live {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(live) => live.clone(),
    };
    let entries = take_entries(&mut object);
    check_shape(&object, DEPTH_MAX)?;
    let mut managers = Managers::read(&entries)
        .map_err(|why| Status::internal(format!("failed to decode managed fields: {why}")))?;
    if managers.0.is_empty() && live.is_some_and(|live| !live.is_null()) {
        // Whoever wrote it before anybody kept count.
        let all = compare::compare(of, &Value::Object(Map::new()), &object);
        let before = FieldManager { name: "before-first-apply", ..*manager };
        own_changes(&mut managers, all, &before);
    }
    reconcile(of, &mut managers);
    let appliers = managers.appliers();

    let id = manager.id(manager.name, Operation::Apply);
    let mut set = extract::set_of(of, &applied);
    manager.limit(&mut set);
    let last = managers.0.remove(&id).unwrap_or_default();
    let entry = Entry { set, api_version: manager.api_version.into(), time: last.time.clone() };
    let is_new_set = entry.set != last.set || entry.api_version != last.api_version;
    managers.0.insert(id.clone(), entry);
    check_appliers(&managers, appliers, &applied)?;

    let merged = merge::merge(of, object.clone(), &applied);
    let pruned = remove::prune(of, merged, &last.set, &managers.owned());
    // What has lost its last part is as it is applied.
    let result = merge::merge(of, pruned, &applied);

    let mut changes = compare::compare(of, &object, &result);
    changes.ignore(&manager.reset());
    let mut changed = changes.modified;
    changed.unite(changes.added);
    if !force {
        let mut conflicts = conflict::find(&managers, &id, &changed, &changes.replaced);
        if !conflicts.is_empty() {
            let allowed = last_applied::allowed(of, &object, manager);
            for conflict in conflicts.values_mut() {
                conflict.subtract(&allowed);
            }
        }
        if let Some(status) = conflict::status(&conflicts) {
            return Err(status);
        }
    }
    for (other, entry) in &mut managers.0 {
        if *other != id {
            entry.set.subtract(&changed);
            entry.set.subtract(&changes.removed);
        }
    }
    let is_same = value::equal(&object, &result);
    if let Some(entry) = managers.0.get_mut(&id).filter(|_| is_new_set || !is_same) {
        manager.now.clone_into(&mut entry.time);
    }
    managers.drop_empty();
    let mut result = if is_same { object } else { result };
    last_applied::refresh(&mut result, &applied, manager);
    managers.write(&mut result);
    Ok(result)
}

/// After a write that is no apply: `new` with `metadata.managedFields` brought up to date. `live` is the object
/// before it, null for one that is created.
///
/// The manager owns what has changed, and nobody else does any more. Managed fields that `new` brings with it
/// replace those of `live`, but not for a subresource; an empty list, or one with one empty entry, makes all
/// forgotten, and then nobody keeps count until somebody applies. Those that cannot be read are as if they
/// were not there: such a write is not refused. Of updates the ten youngest entries stay, and the older ones
/// become one. An object that is not there yet or has no UID counts as created. Takes n log n.
///
/// ```
/// use annals::object::Schema;
/// use annals::object::apply::{FieldManager, track};
/// use serde_json::{Value, json};
///
/// let now = "2026-11-22T14:00:00Z";
/// let manager = FieldManager { name: "controller", api_version: "v1", now, ..FieldManager::default() };
/// let object = track(&Value::Null, json!({"spec": {"a": 1}}), &Schema::any(), &manager)?;
/// let entry = &object["metadata"]["managedFields"][0];
/// assert_eq!(entry["manager"], "controller");
/// assert_eq!(entry["operation"], "Update");
/// assert_eq!(entry["fieldsV1"], json!({"f:spec": {".": {}, "f:a": {}}}));
/// # Ok::<(), annals::object::Status>(())
/// ```
///
/// # Errors
///
/// 400 for what is no object with metadata or nests deeper than 120, and 422 for managed fields that bring more
/// than 100 appliers.
pub fn track(
    live: &Value,
    new: Value,
    schema: &Schema,
    manager: &FieldManager<'_>,
) -> Result<Value> {
    let of = Type::root(schema);
    let is_create = live.is_null() || meta::uid(live).is_empty();
    let mut live = if live.is_null() { Value::Object(Map::new()) } else { live.clone() };
    let mut new = new;
    let of_live = take_entries(&mut live);
    let of_new = take_entries(&mut new);
    // What is there already may be made better, however deep it is.
    check_shape(&live, JSON_DEPTH_MAX)?;
    check_shape(&new, DEPTH_MAX)?;
    let of_live = Managers::read(&of_live).unwrap_or_default();
    let appliers = of_live.appliers();
    let mut managers = if !manager.subresource.is_empty() {
        of_live
    } else if Managers::is_reset(&of_new) {
        Managers::default()
    } else {
        Managers::read(&of_new).ok().filter(|new| !new.0.is_empty()).unwrap_or(of_live)
    };
    if managers.0.is_empty() && !is_create {
        return Ok(new);
    }
    check_appliers(&managers, appliers, &new)?;
    reconcile(of, &mut managers);
    let changes = compare::compare(of, &live, &new);
    own_changes(&mut managers, changes, manager);
    managers.cap();
    managers.write(&mut new);
    Ok(new)
}

/// Changes that somebody has made, put to the account of an update of theirs.
fn own_changes(managers: &mut Managers, mut changes: compare::Changes, manager: &FieldManager<'_>) {
    changes.ignore(&manager.reset());
    let mut changed = changes.modified;
    changed.unite(changes.added);
    for entry in managers.0.values_mut() {
        entry.set.subtract(&changed);
        entry.set.subtract(&changes.removed);
    }
    manager.limit(&mut changed);
    if !changed.is_empty() {
        let entry = managers.0.entry(manager.id(manager.name, Operation::Update)).or_default();
        entry.set.unite(changed);
        manager.api_version.clone_into(&mut entry.api_version);
        manager.now.clone_into(&mut entry.time);
    }
    managers.drop_empty();
}

/// The sets as they are under the schema of today.
fn reconcile(of: Type<'_>, managers: &mut Managers) {
    for entry in managers.0.values_mut() {
        entry.set = extract::reconciled(of, &entry.set);
    }
}

/// Takes the managed fields out: they are never among the fields.
fn take_entries(object: &mut Value) -> Value {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    metadata.and_then(|metadata| metadata.remove("managedFields")).unwrap_or_default()
}

/// Refuses more appliers than an object may have, but not those that it has already.
fn check_appliers(managers: &Managers, before: usize, object: &Value) -> Result<()> {
    let count = managers.appliers();
    if count <= APPLIERS_MAX.max(before) {
        return Ok(());
    }
    let message = format!("Too many: {count}: must have at most {APPLIERS_MAX} appliers");
    let cause = Cause::new("FieldValueTooMany", message, "metadata.managedFields");
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    Err(Status::invalid(group, text("kind"), meta::name(object), vec![cause]))
}

fn check_shape(object: &Value, depth_max: usize) -> Result<()> {
    if !object.is_object() {
        return Err(Status::bad_request("the object is no JSON object"));
    }
    if object.get("metadata").is_some_and(|metadata| !metadata.is_object() && !metadata.is_null()) {
        return Err(Status::bad_request("the metadata of the object is no JSON object"));
    }
    if !value::is_within_depth(object, depth_max) {
        let message = format!("the object nests deeper than {depth_max}");
        return Err(Status::bad_request(message));
    }
    Ok(())
}

/// What is applied, where it can be.
fn checked(
    of: Type<'_>,
    live: Option<&Value>,
    applied: &Value,
    manager: &FieldManager<'_>,
) -> Result<Value> {
    check_shape(applied, DEPTH_MAX)?;
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(applied, "apiVersion"), text(applied, "kind"));
    let live_kind = live.map(|live| text(live, "kind")).filter(|kind| !kind.is_empty());
    let (group, number) = version.split_once('/').unwrap_or(("", &version));
    let called = format!("{group}/{number}, Kind={kind}");
    if version != manager.api_version || live_kind.is_some_and(|live| live != kind) {
        return Err(Status::bad_request(format!("invalid object type: {called}")));
    }
    let mut applied = applied.clone();
    if !take_entries(&mut applied).is_null() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    // Clients that encode Go objects say null for the time of creation, and do not mean it.
    if let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut)
        && metadata.get("creationTimestamp").is_some_and(Value::is_null)
    {
        metadata.remove("creationTimestamp");
    }
    if let Some(errors) = check::check(of, &applied) {
        let (namespace, name) = (meta::namespace(&applied), meta::name(&applied));
        return Err(Status::bad_request(format!(
            "failed to create typed patch object ({namespace}/{name}; {called}): {errors}"
        )));
    }
    Ok(applied)
}
