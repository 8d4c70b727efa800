//! Who owns what: the entries of `metadata.managedFields`.
//!
//! Facts from `apimachinery/pkg/util/managedfields/internal/{managedfields,capmanagers}.go`.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use super::fields;
use super::set::Set;
use crate::object::meta;

/// How many entries of updates an object keeps; older ones become one.
const UPDATES_MAX: usize = 10;

/// What a manager did. Ordered as the texts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// What tells one manager from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) name: String,
    pub(super) operation: Operation,
    /// Of updates. An applier is the same whichever version it applies.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

/// What a manager owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) set: Set,
    pub(super) api_version: String,
    /// In RFC 3339; empty for none.
    pub(super) time: String,
}

/// All managers of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Managers(pub(super) BTreeMap<Id, Entry>);

impl Id {
    pub(super) fn new(
        name: &str,
        operation: Operation,
        api_version: &str,
        subresource: &str,
    ) -> Self {
        let api_version = if operation == Operation::Apply { "" } else { api_version };
        let (api_version, subresource) = (api_version.to_owned(), subresource.to_owned());
        Self { name: name.into(), operation, api_version, subresource }
    }
}

/// As conflicts name managers: `"kubectl" with subresource "scale" using apps/v1`.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        match self.operation {
            Operation::Apply => Ok(()),
            Operation::Update => write!(f, " using {}", self.api_version),
        }
    }
}

impl Managers {
    /// Reads the entries; absent and null are none.
    ///
    /// # Errors
    ///
    /// What is wrong with the first that is.
    pub(super) fn read(entries: &Value) -> Result<Self, String> {
        let entries = match entries {
            Value::Null => return Ok(Self::default()),
            Value::Array(entries) => entries,
            _ => return Err("managedFields is no list".into()),
        };
        let read = entries.iter().enumerate().map(|(at, entry)| read_entry(at, entry));
        read.collect::<Result<_, _>>().map(Self)
    }

    /// Whether a client wants the owners of its object forgotten: by an empty list, or one empty entry.
    pub(super) fn is_reset(entries: &Value) -> bool {
        match entries.as_array().map(Vec::as_slice) {
            Some([]) => true,
            Some([only]) => {
                let is_empty = |value: &Value| value.is_null() || value == "";
                only.as_object().is_some_and(|entry| entry.values().all(is_empty))
            }
            _ => false,
        }
    }

    /// Puts the entries into the metadata: appliers first, each kind by time; without any the field goes.
    pub(super) fn write(&self, object: &mut Value) {
        if self.0.is_empty() && object.get("metadata").is_none() {
            return;
        }
        let Some(metadata) = meta::metadata_mut(object) else { return };
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by_cached_key(|(id, entry)| {
            let seconds = meta::seconds(&entry.time).unwrap_or_default();
            let Id { name, operation, subresource, .. } = (*id).clone();
            (operation, seconds, name, entry.api_version.clone(), subresource)
        });
        if entries.is_empty() {
            metadata.remove("managedFields");
        } else {
            let entries = entries.into_iter().map(|(id, entry)| write_entry(id, entry)).collect();
            metadata.insert("managedFields".into(), Value::Array(entries));
        }
    }

    /// What anybody owns.
    pub(super) fn owned(&self) -> Set {
        let mut owned = Set::default();
        for entry in self.0.values() {
            owned.unite(entry.set.clone());
        }
        owned
    }

    /// Forgets who owns nothing.
    pub(super) fn drop_empty(&mut self) {
        self.0.retain(|_, entry| !entry.set.is_empty());
    }

    /// Makes one entry of the oldest updates of each version, until there are at most ten entries of updates
    /// or only one of each version left.
    pub(super) fn cap(&mut self) {
        let updates = self.0.iter().filter(|(id, _)| id.operation == Operation::Update);
        let mut updates: Vec<_> = updates
            .map(|(id, entry)| (meta::seconds(&entry.time).unwrap_or_default(), id.clone()))
            .collect();
        let mut left = updates.len();
        if left <= UPDATES_MAX {
            return;
        }
        updates.sort();
        // By version: the oldest, until there is a second.
        let mut first: BTreeMap<String, Option<Id>> = BTreeMap::new();
        for (_, id) in updates {
            if left <= UPDATES_MAX {
                return;
            }
            let Some(oldest) = first.get_mut(&id.api_version) else {
                first.insert(id.api_version.clone(), Some(id));
                continue;
            };
            let bucket = Id::new("ancient-changes", Operation::Update, &id.api_version, "");
            let mut merged = Entry { api_version: id.api_version.clone(), ..Entry::default() };
            for id in oldest.take().into_iter().chain([id]) {
                if let Some(entry) = self.0.remove(&id) {
                    left -= 1;
                    merged.set.unite(entry.set);
                    merged.time = entry.time;
                }
            }
            // There may have been one, younger than these.
            if let Some(ancient) = self.0.get_mut(&bucket) {
                ancient.set.unite(merged.set);
            } else {
                self.0.insert(bucket, merged);
                left += 1;
            }
        }
    }
}

fn read_entry(at: usize, entry: &Value) -> Result<(Id, Entry), String> {
    let bad = |what: &str| format!("{what} in managed fields entry {at}");
    let entry = entry.as_object().ok_or_else(|| bad("no object"))?;
    let text = |field: &str| match entry.get(field) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(_) => Err(bad(&format!("invalid {field}"))),
    };
    let operation = match text("operation")? {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".into()),
    };
    let api_version = text("apiVersion")?;
    if api_version.is_empty() {
        return Err("apiVersion must not be empty".into());
    }
    match text("fieldsType")? {
        "FieldsV1" => {}
        "" => return Err(bad("missing fieldsType")),
        other => return Err(bad(&format!("invalid fieldsType {other:?}"))),
    }
    let set = match entry.get("fieldsV1") {
        None | Some(Value::Null) => Set::default(),
        Some(fields) => {
            fields::read(fields).map_err(|why| bad(&format!("error decoding set: {why}")))?
        }
    };
    let time = text("time")?;
    if !time.is_empty() && meta::seconds(time).is_none() {
        return Err(bad("invalid time"));
    }
    let id = Id::new(text("manager")?, operation, api_version, text("subresource")?);
    Ok((id, Entry { set, api_version: api_version.into(), time: time.into() }))
}

fn write_entry(id: &Id, entry: &Entry) -> Value {
    let mut written = Map::new();
    let operation = match id.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let texts = [
        ("manager", id.name.as_str()),
        ("operation", operation),
        ("apiVersion", entry.api_version.as_str()),
        ("time", entry.time.as_str()),
        ("fieldsType", "FieldsV1"),
        ("subresource", id.subresource.as_str()),
    ];
    for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        written.insert(field.into(), text.into());
    }
    written.insert("fieldsV1".into(), fields::write(&entry.set));
    Value::Object(written)
}
