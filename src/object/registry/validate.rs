//! What is wrong with the `metadata` of an object: `pkg/api/validation/objectmeta.go` of
//! `k8s.io/apimachinery`, in its words.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::object::meta;
use crate::object::names::{NameRule, label_key, label_value};
use crate::object::status::Cause;

use super::options::field_manager;

/// The most bytes of all annotations of an object.
const ANNOTATIONS_MAX: usize = 256 << 10;
/// The most bytes of the name of a subresource in managed fields.
const SUBRESOURCE_MAX: usize = 256;

pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// What is wrong with the metadata of an object, new or changed.
pub(super) fn metadata(object: &Value, is_namespaced: bool, names: NameRule) -> Vec<Cause> {
    let mut causes = Vec::new();
    let base = meta::generate_name(object);
    if !base.is_empty() {
        let wrong = names.wrong(base, true).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid("metadata.generateName", &base.into(), why)));
    }
    let name = meta::name(object);
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        let wrong = names.wrong(name, false).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid("metadata.name", &name.into(), why)));
    }
    let namespace = meta::namespace(object);
    match (is_namespaced, namespace.is_empty()) {
        (true, true) => causes.push(Cause::required("metadata.namespace", "")),
        (true, false) => {
            let wrong = NameRule::DnsLabel.wrong(namespace, false).into_iter();
            let field = "metadata.namespace";
            causes.extend(wrong.map(|why| Cause::invalid(field, &namespace.into(), why)));
        }
        (false, true) => {}
        (false, false) => {
            causes.push(Cause::forbidden("metadata.namespace", "not allowed on this type"));
        }
    }
    let generation = meta::generation(object);
    if generation < 0 {
        let why = "must be greater than or equal to 0";
        causes.push(Cause::invalid("metadata.generation", &generation.into(), why));
    }
    common(object, &mut causes);
    finalizers(object, &mut causes);
    causes
}

/// What is wrong with the change of an object's metadata.
pub(super) fn metadata_update(object: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !meta::deletion_timestamp(old).is_empty() {
        let had: BTreeSet<_> = meta::finalizers(old).collect();
        let extra: BTreeSet<_> =
            meta::finalizers(object).filter(|one| !had.contains(one)).collect();
        if !extra.is_empty() {
            let extra: Vec<_> = extra.iter().map(|one| format!("{one:?}")).collect();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                extra.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &why));
        }
    }
    let generation = meta::generation(object);
    if generation < meta::generation(old) {
        let why = "must not be decremented";
        causes.push(Cause::invalid("metadata.generation", &generation.into(), why));
    }
    for name in ["name", "namespace", "uid"] {
        let (new, old) = (meta::field(object, name), meta::field(old, name));
        if new != old {
            // A text that is absent is an empty one.
            let new = if new.is_null() { Value::from("") } else { new.clone() };
            causes.push(immutable(name, &new));
        }
    }
    for name in ["creationTimestamp", "deletionTimestamp"] {
        let (new, old) = (meta::field(object, name), meta::field(old, name));
        let is_same_time = || {
            let (new, old) = (new.as_str(), old.as_str());
            new.and_then(meta::seconds).is_some()
                && new.and_then(meta::seconds) == old.and_then(meta::seconds)
        };
        if new != old && !is_same_time() {
            causes.push(immutable(name, new));
        }
    }
    let name = "deletionGracePeriodSeconds";
    if meta::field(object, name) != meta::field(old, name) {
        causes.push(immutable(name, meta::field(object, name)));
    }
    causes
}

fn immutable(name: &str, value: &Value) -> Cause {
    Cause::invalid(format!("metadata.{name}"), value, "field is immutable")
}

fn common(object: &Value, causes: &mut Vec<Cause>) {
    let entries = |field: &str| {
        let all = meta::field(object, field).as_object().into_iter().flatten();
        all.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
    };
    for (key, value) in entries("labels") {
        let field = "metadata.labels";
        causes.extend(label_key(key).iter().map(|why| Cause::invalid(field, &key.into(), why)));
        causes
            .extend(label_value(value).iter().map(|why| Cause::invalid(field, &value.into(), why)));
    }
    let mut bytes = 0;
    for (key, value) in entries("annotations") {
        let wrong = label_key(&key.to_lowercase());
        let field = "metadata.annotations";
        causes.extend(wrong.iter().map(|why| Cause::invalid(field, &key.into(), why)));
        bytes += key.len() + value.len();
    }
    if bytes > ANNOTATIONS_MAX {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATIONS_MAX));
    }
    owner_references(object, causes);
    managed_fields(object, causes);
}

fn owner_references(object: &Value, causes: &mut Vec<Cause>) {
    let all = meta::field(object, "ownerReferences");
    let (mut controller, mut is_told) = (None, false);
    for (at, reference) in all.as_array().into_iter().flatten().enumerate() {
        let path = format!("metadata.ownerReferences[{at}]");
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let version = text("apiVersion");
        let is_version = match version.split('/').collect::<Vec<_>>().as_slice() {
            [only] => !only.is_empty(),
            [_, version] => !version.is_empty(),
            _ => false,
        };
        if version.is_empty() {
            causes.push(Cause::required(format!("{path}.apiVersion"), "must not be empty"));
        } else if !is_version {
            let why = "must be <group>/<version> or <version>";
            causes.push(Cause::invalid(format!("{path}.apiVersion"), &version.into(), why));
        }
        for field in ["kind", "name", "uid"] {
            if text(field).is_empty() {
                causes.push(Cause::required(format!("{path}.{field}"), "must not be empty"));
            }
        }
        if version == "v1" && text("kind") == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            causes.push(Cause::invalid(path, reference, why));
        }
        if reference["controller"] == true {
            let this = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                None => controller = Some(this),
                // Told once: of every further one nothing else could be said.
                Some(_) if is_told => {}
                Some(first) => {
                    is_told = true;
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    causes.push(Cause::invalid("metadata.ownerReferences", all, why));
                }
            }
        }
    }
}

fn finalizers(object: &Value, causes: &mut Vec<Cause>) {
    let field = "metadata.finalizers";
    let (mut orphans, mut is_foreground) = (false, false);
    for finalizer in meta::finalizers(object) {
        let wrong = label_key(finalizer);
        causes.extend(wrong.iter().map(|why| Cause::invalid(field, &finalizer.into(), why)));
        orphans |= finalizer == ORPHAN;
        is_foreground |= finalizer == FOREGROUND;
    }
    if orphans && is_foreground {
        let why = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        causes.push(Cause::invalid(field, meta::field(object, "finalizers"), why));
    }
}

fn managed_fields(object: &Value, causes: &mut Vec<Cause>) {
    let all = meta::field(object, "managedFields").as_array();
    for (at, entry) in all.into_iter().flatten().enumerate() {
        // One empty entry asks to forget all managers.
        if entry.as_object().is_none_or(serde_json::Map::is_empty) {
            continue;
        }
        let path = format!("metadata.managedFields[{at}]");
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        match text("operation") {
            "" => causes.push(Cause::required(format!("{path}.operation"), "must not be empty")),
            "Apply" | "Update" => {}
            other => {
                let field = format!("{path}.operation");
                causes.push(Cause::not_supported(field, &other.into(), &["Apply", "Update"]));
            }
        }
        let kind = text("fieldsType");
        if !kind.is_empty() && kind != "FieldsV1" {
            let field = format!("{path}.fieldsType");
            causes.push(Cause::invalid(field, &kind.into(), "must be `FieldsV1`"));
        }
        causes.extend(field_manager(text("manager"), &format!("{path}.manager")));
        if text("subresource").len() > SUBRESOURCE_MAX {
            causes.push(Cause::too_long(format!("{path}.subresource"), SUBRESOURCE_MAX));
        }
    }
}
