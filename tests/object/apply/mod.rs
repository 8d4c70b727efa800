//! Server-side apply, told as stories: who writes what, what becomes of the object, and who owns which field.
//!
//! The cases of `leaf`, `nested`, `lists`, `deduced`, `many`, `merging` and `schemas` are those of the tables of
//! structured-merge-diff (`merge/*_test.go`, `typed/*_test.go`), written anew; `managers` those of
//! `apimachinery/pkg/util/managedfields`; `documented` what the documentation of server-side apply promises.
//!
//! row 33: documented
//! row 36: documented, laws

mod deduced;
mod documented;
mod hostile;
mod kubectl;
mod laws;
mod leaf;
mod lists;
mod managers;
mod many;
mod merging;
mod nested;
mod schemas;

use std::collections::BTreeMap;

use annals::object::apply::{FieldManager, apply, track};
use annals::object::{Reason, Schema, Status};
use serde_json::{Value, json};

/// Ten seconds later with each step.
fn at(step: usize) -> String {
    format!("2026-11-22T14:{:02}:{:02}Z", step / 6 % 60, step % 6 * 10)
}

/// An object, as it goes through the hands of several managers.
struct Story {
    schema: Schema,
    live: Value,
    step: usize,
    version: &'static str,
}

impl Story {
    fn of(schema: &Schema) -> Self {
        Self { schema: schema.clone(), live: Value::Null, step: 0, version: "v1" }
    }

    /// From now on managers write this version.
    fn version(mut self, version: &'static str) -> Self {
        self.version = version;
        self
    }

    /// From now on the kind has another schema.
    fn schema(mut self, schema: &Schema) -> Self {
        self.schema = schema.clone();
        self
    }

    fn try_apply(&mut self, manager: &str, mut object: Value, force: bool) -> Result<(), Status> {
        self.step += 1;
        object["apiVersion"] = self.version.into();
        let now = at(self.step);
        let manager = FieldManager {
            name: manager,
            api_version: self.version,
            now: &now,
            ..FieldManager::default()
        };
        self.live = apply(Some(&self.live), &object, &self.schema, &manager, force)?;
        Ok(())
    }

    #[track_caller]
    fn apply(mut self, manager: &str, object: Value) -> Self {
        self.try_apply(manager, object, false).expect("nobody has anything against it");
        self
    }

    #[track_caller]
    fn force(mut self, manager: &str, object: Value) -> Self {
        self.try_apply(manager, object, true).expect("it is forced");
        self
    }

    /// An apply that fails: these own these fields.
    #[track_caller]
    fn conflict(mut self, manager: &str, object: Value, owners: &[(&str, &str)]) -> Self {
        let before = self.live.clone();
        let status = self.try_apply(manager, object, false).expect_err("others own it");
        assert_eq!((status.code(), status.reason()), (409, Reason::Conflict));
        let told = status.details().causes.iter().map(|cause| {
            assert_eq!(cause.reason, "FieldManagerConflict");
            let owner = cause.message.strip_prefix("conflict with \"").expect("it names an owner");
            (owner.split('"').next().expect("a name"), cause.field.as_str())
        });
        assert_eq!(told.collect::<Vec<_>>(), owners);
        assert_eq!(self.live, before);
        self
    }

    /// An apply that is refused as wrong.
    #[track_caller]
    fn refused(mut self, manager: &str, object: Value, why: &str) -> Self {
        let status = self.try_apply(manager, object, false).expect_err("it is wrong");
        assert_eq!(status.code(), 400);
        assert!(status.message().ends_with(why), "{}", status.message());
        self
    }

    /// A write that is no apply; it says nothing of managed fields.
    #[track_caller]
    fn update(mut self, manager: &str, mut object: Value) -> Self {
        self.step += 1;
        object["apiVersion"] = self.version.into();
        let now = at(self.step);
        let manager = FieldManager {
            name: manager,
            api_version: self.version,
            now: &now,
            ..FieldManager::default()
        };
        self.live =
            track(&self.live, object, &self.schema, &manager).expect("updates are not refused");
        self
    }

    /// What it is now, but for its version and metadata.
    #[track_caller]
    fn is(self, object: Value) -> Self {
        let mut live = self.live.clone();
        let fields = live.as_object_mut().expect("an object");
        fields.remove("apiVersion");
        fields.remove("metadata");
        assert_eq!(live, object);
        self
    }

    /// Who owns what, as paths.
    #[track_caller]
    fn owned(self, owners: &[(&str, &[&str])]) -> Self {
        let expected: BTreeMap<String, Vec<String>> = owners
            .iter()
            .map(|(owner, paths)| {
                let mut paths: Vec<_> = paths.iter().map(|&path| path.to_owned()).collect();
                paths.sort();
                ((*owner).to_owned(), paths)
            })
            .collect();
        assert_eq!(owners_of(&self.live), expected);
        self
    }
}

/// The names of the managers with the paths that they own, of all their entries.
fn owners_of(object: &Value) -> BTreeMap<String, Vec<String>> {
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let paths = owners.entry(entry["manager"].as_str().expect("a name").into()).or_default();
        add_paths("", &entry["fieldsV1"], paths);
        paths.sort();
    }
    owners
}

/// The paths of `FieldsV1`, as conflicts write them: read here on its own, so that it is known to be right.
fn add_paths(above: &str, fields: &Value, paths: &mut Vec<String>) {
    let fields = fields.as_object().expect("fields are an object");
    if !above.is_empty() && (fields.is_empty() || fields.contains_key(".")) {
        paths.push(above.into());
    }
    for (step, below) in fields.iter().filter(|(step, _)| *step != ".") {
        let (kind, rest) = step.split_once(':').expect("a kind of step");
        let step = match kind {
            "f" => format!(".{rest}"),
            "v" => format!("[={rest}]"),
            "i" => format!("[{rest}]"),
            "k" => {
                let keys: BTreeMap<String, Value> = serde_json::from_str(rest).expect("keys");
                let keys = keys.iter().map(|(name, key)| format!("{name}={key}"));
                format!("[{}]", keys.collect::<Vec<_>>().join(","))
            }
            other => panic!("no such kind of step: {other}"),
        };
        add_paths(&format!("{above}{step}"), below, paths);
    }
}

fn schema(properties: &Value) -> Schema {
    Schema::from_openapi(&json!({"type": "object", "properties": properties}))
        .expect("a good schema")
}

fn text() -> Value {
    json!({"type": "string"})
}

fn number() -> Value {
    json!({"type": "number"})
}

fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn map(of: Value) -> Value {
    json!({"type": "object", "additionalProperties": of})
}

fn set(of: Value) -> Value {
    json!({"type": "array", "items": of, "x-kubernetes-list-type": "set"})
}

fn keyed(keys: &[&str], properties: Value) -> Value {
    json!({
        "type": "array",
        "items": object(properties),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": keys,
    })
}

/// A list of `name` and `value`, by name.
fn named_values() -> Schema {
    schema(&json!({"list": keyed(&["name"], json!({"name": text(), "value": number()}))}))
}
