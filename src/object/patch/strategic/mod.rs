//! Strategic merge patch: a merge patch that merges lists where the schema of the kind says by which field their
//! items are known, with directives for what a merge patch cannot say.
//!
//! The result is that of `k8s.io/apimachinery/pkg/util/strategicpatch`, whose cases are tables here, but for
//! what depends on chance there or is left to the decoding into Go's types that follows there:
//!
//! - Directives and nulls in what is added are left out everywhere, and not only where nothing was.
//! - A `$deleteFromPrimitiveList` happens before the list of the same field is merged, but after it where
//!   `$setElementOrder` orders that.
//! - `$patch: merge` is what would happen anyway.
//! - Numbers are one type.
//! - Each step takes time in proportion to the lists, and the steps are counted: a patch may name the same item
//!   many times.
//!
//! `directive` knows the directives, `list` merges lists and orders them.

mod directive;
mod list;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use super::{PatchType, Steps, read};
use crate::object::status::{Result, Status};
use crate::object::{PatchStrategy, Schema};
use directive::{Directives, bad_format, without_directives, without_nulls};

/// How many items a patch may merge and order, each as often as it does, and long texts as several.
const STEPS_MAX: usize = 10_000_000;

/// The object as a strategic merge patch makes it: as [`merge_patch`](super::merge_patch), but lists of the
/// patch strategy `merge` are merged, items of objects by the merge key of the schema. Metadata is merged as that of
/// all kinds, whatever the schema says of it: finalizers as a set, owner references by their UIDs.
///
/// Directives of the patch:
///
/// - `$patch: delete` empties an object, and removes an item of a merged list.
/// - `$patch: replace` makes an object what the patch says; as an item of its own, a merged list.
/// - `$patch: merge` merges, as without it.
/// - `$retainKeys` lists the fields that an object keeps.
/// - `$setElementOrder/FIELD` gives the order of the items of a list, by their merge keys.
/// - `$deleteFromPrimitiveList/FIELD` removes single values from a list.
///
/// ```
/// use annals::object::{Schema, strategic_merge_patch};
/// use serde_json::json;
///
/// let schema = Schema::from_openapi(&json!({
///     "type": "object",
///     "properties": {"containers": {
///         "type": "array",
///         "items": {"type": "object"},
///         "x-kubernetes-patch-strategy": "merge",
///         "x-kubernetes-patch-merge-key": "name",
///     }},
/// }))?;
/// let pod = json!({"containers": [{"name": "web", "image": "web:1"}, {"name": "log"}]});
/// let patch = br#"{"containers": [
///     {"name": "web", "image": "web:2"},
///     {"name": "log", "$patch": "delete"}
/// ]}"#;
/// let patched = strategic_merge_patch(&pod, patch, &schema)?;
/// assert_eq!(patched, json!({"containers": [{"name": "web", "image": "web:2"}]}));
/// # Ok::<(), annals::object::Status>(())
/// ```
///
/// Costs a copy of the object, and time in proportion to the patch and the lists that it merges.
///
/// # Errors
///
/// 400 for what is not an object of JSON, directives of a wrong form, items without their merge key and lists
/// of different types; 413 for more than 3 MiB; 415 for kinds without a schema, of which nobody knows how to
/// merge their lists; 422 for lists of lists, and for patches that merge more than 10,000,000 items because they
/// name the same ones again and again.
pub fn strategic_merge_patch(object: &Value, patch: &[u8], schema: &Schema) -> Result<Value> {
    PatchType::StrategicMerge.check(schema)?;
    let Value::Object(patch) = read(patch)? else {
        return Err(Status::bad_request("invalid JSON document"));
    };
    let original = match object {
        Value::Object(original) => original.clone(),
        _ => Map::new(),
    };
    let mut merging =
        Merging { root: schema, unknown: &Schema::any(), steps: Steps::new(STEPS_MAX) };
    merging.objects(original, patch, schema).map(Value::Object)
}

/// One patch on its way.
struct Merging<'s> {
    /// The schema of whole objects.
    root: &'s Schema,
    /// The schema of fields of which nothing is known.
    unknown: &'s Schema,
    steps: Steps,
}

impl<'s> Merging<'s> {
    fn objects(
        &mut self,
        mut original: Map<String, Value>,
        mut patch: Map<String, Value>,
        schema: &Schema,
    ) -> Result<Map<String, Value>> {
        let directives = Directives::take(&mut patch)?;
        match directives.patch.as_deref() {
            Some("replace") => return Ok(directive::plain_object(patch)),
            Some("delete") => return Ok(Map::new()),
            _ => {}
        }
        if let Some(retained) = &directives.retained {
            directive::check_retained(&patch, retained)?;
            original.retain(|field, _| retained.contains(field));
        }
        for (field, order) in directives.orders {
            let merged = self.ordered(&mut original, &mut patch, schema, &field, &order)?;
            if let Some(merged) = merged {
                original.insert(field, Value::Array(merged));
            }
        }
        for (field, deleted) in directives.deletions {
            if let Some(Value::Array(items)) = original.get_mut(&field) {
                list::delete(self, items, &deleted)?;
            }
        }
        for (field, value) in patch {
            self.field(&mut original, schema, field, value)?;
        }
        Ok(original)
    }

    /// That of a field of what has this schema. Metadata is of one type in all kinds, so a schema that says little of it
    /// does not make a patch take the finalizers of others away.
    fn schema_of<'a>(&self, field: &str, schema: &'a Schema) -> &'a Schema
    where
        's: 'a,
    {
        if field == "metadata" && std::ptr::eq(schema, self.root) {
            return Schema::object_meta();
        }
        schema.field(field).unwrap_or(self.unknown)
    }

    /// Sets or merges one field.
    fn field(
        &mut self,
        original: &mut Map<String, Value>,
        schema: &Schema,
        field: String,
        value: Value,
    ) -> Result<()> {
        if value.is_null() {
            original.remove(&field);
            return Ok(());
        }
        let schema = self.schema_of(&field, schema);
        let merged = match (original.remove(&field), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let old = if replaces(schema) { Map::new() } else { old };
                Some(Value::Object(self.objects(old, new, schema)?))
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                Some(Value::Array(self.lists(old, new, schema)?))
            }
            (_, mut new) => {
                without_nulls(&mut new);
                without_directives(&mut new).then_some(new)
            }
        };
        if let Some(merged) = merged {
            original.insert(field, merged);
        }
        Ok(())
    }

    /// A list as the patch has it, or merged into the one that is there.
    fn lists(&mut self, old: Vec<Value>, new: Vec<Value>, schema: &Schema) -> Result<Vec<Value>> {
        if merges(schema) {
            list::merge(self, old, new, schema)
        } else {
            Ok(directive::plain_list(new))
        }
    }

    /// A field that `$setElementOrder` orders, merged and in that order; `None` where there is no such list.
    fn ordered(
        &mut self,
        original: &mut Map<String, Value>,
        patch: &mut Map<String, Value>,
        schema: &Schema,
        field: &str,
        order: &[Value],
    ) -> Result<Option<Vec<Value>>> {
        let old = list_of(original, field)?;
        let is_removed = patch.get(field).is_some_and(Value::is_null);
        let new = list_of(patch, field)?;
        if is_removed {
            return Err(bad_format("setElementOrder list: the list is null"));
        }
        let schema = self.schema_of(field, schema);
        let key = schema.patch_merge_key();
        if let Some(new) = &new {
            list::check_order(new, order, key)?;
        }
        let (merged, before) = match (old, new) {
            (None, None) => return Ok(None),
            (Some(old), None) => {
                let before = list::identities(&old, key);
                (old, before)
            }
            (None, Some(new)) => (directive::plain_list(new), Vec::new()),
            (Some(old), Some(new)) => {
                let before = list::identities(&old, key);
                let merged = self.lists(old, new, schema)?;
                let before = list::places_filled(before, &merged, key);
                (merged, before)
            }
        };
        list::order(self, merged, order, &before, key).map(Some)
    }
}

/// Takes a list out of an object; `None` where there is none, or null.
fn list_of(object: &mut Map<String, Value>, field: &str) -> Result<Option<Vec<Value>>> {
    match object.remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(_) => Err(Status::bad_request(format!(
            "invalid patch format of setElementOrder list: {field:?} is not a list"
        ))),
    }
}

fn merges(schema: &Schema) -> bool {
    schema.patch_strategy().contains(&PatchStrategy::Merge)
}

fn replaces(schema: &Schema) -> bool {
    schema.patch_strategy().contains(&PatchStrategy::Replace)
}
