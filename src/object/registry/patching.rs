//! Patches of every type, each in the loop of a guaranteed update.

use serde_json::Value;

use crate::object::apply::{self, FieldManager};
use crate::object::decode::FieldValidation;
use crate::object::kv::Kv;
use crate::object::meta;
use crate::object::patch::{self, PatchType};
use crate::object::status::{Cause, Reason, Result, Status};
use crate::object::storage::Preconditions;
use crate::object::value;

use super::Objects;
use super::options::{field_manager, refuse};
use super::update::{Managers, Part, Write, check_name};

/// So many characters of a patch are shown that makes something that cannot be decoded.
const SHOWN_MAX: usize = 500;

/// The beginning of a patch, for a message: what it was made on may be a secret.
pub(super) fn shown(patch: &[u8]) -> Value {
    value::shown(&String::from_utf8_lossy(patch), SHOWN_MAX).into()
}

/// How to patch: `PatchOptions` of `meta/v1`.
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "options are built by their fields")]
pub struct PatchOptions {
    /// Does everything but write.
    pub dry_run: bool,
    /// Who writes, as in [`CreateOptions::field_manager`](super::CreateOptions::field_manager); an apply has to say.
    pub field_manager: String,
    /// Whether an apply takes fields from others who own them. Not for other patches.
    pub force: Option<bool>,
    /// `status` for the status alone; empty for the object.
    pub subresource: String,
    /// What becomes of a patch that says a field twice, or makes one that the schema does not know.
    pub field_validation: FieldValidation,
}

impl PatchOptions {
    fn check(&self, patch_type: PatchType) -> Result<()> {
        let mut causes = Vec::new();
        if patch_type == PatchType::Apply {
            if self.field_manager.is_empty() {
                causes.push(Cause::required("fieldManager", "is required for apply patch"));
            }
        } else if self.force.is_some() {
            let why = "may not be specified for non-apply patch";
            causes.push(Cause::forbidden("force", why));
        }
        causes.extend(field_manager(&self.field_manager, "fieldManager"));
        refuse("PatchOptions", causes)
    }
}

impl<K: Kv> Objects<K> {
    /// Changes an object by a patch; answers it as stored, and whether it has been created, which only an apply does.
    ///
    /// A resource version in the patch is a lock: another one is a conflict. Without it the patch is made on what is there,
    /// and made again where others write at the same time. It is made whole or not at all.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{CreateOptions, Kind, Objects, PatchOptions, PatchType};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// # let pods = Objects::new(store, Kind::new("v1", "Pod", "pods"));
    /// # pods.create("default", json!({"metadata": {"name": "web"}}), &CreateOptions::default())?;
    /// let patch = br#"{"metadata": {"labels": {"tier": "front"}}}"#;
    /// let (pod, _) = pods.patch("default", "web", PatchType::Merge, patch, &PatchOptions::default())?;
    /// assert_eq!(pod["metadata"]["labels"], json!({"tier": "front"}));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`update`](Self::update); 400 for a patch that cannot be read, 422 for one that cannot be made, 413 for one
    /// that is too large, 415 for a type that this kind does not take.
    pub fn patch(
        &self,
        namespace: &str,
        name: &str,
        patch_type: PatchType,
        patch: &[u8],
        options: &PatchOptions,
    ) -> Result<(Value, bool)> {
        options.check(patch_type)?;
        let part = self.part(&options.subresource)?;
        patch_type.check(&self.schema)?;
        let is_apply = patch_type == PatchType::Apply;
        let mut write = Write {
            namespace,
            name,
            part,
            dry_run: options.dry_run,
            preconditions: Preconditions::none(),
            force_allow_create: is_apply,
            ttl: None,
            manager: &options.field_manager,
            managers: if is_apply { Managers::Kept } else { Managers::Tracked },
        };
        let not_found = || Status::not_found(self.storage.resource(), name);
        loop {
            let mut is_patched = false;
            let written = self.write(&write, &mut |there| {
                is_patched = false;
                let mut object = match patch_type {
                    PatchType::Apply => self.applied(&write, there, patch, options)?,
                    _ if there.is_null() => return Err(not_found()),
                    _ => patch_type.patch(there, patch, &self.schema)?,
                };
                is_patched = true;
                let validation = &options.field_validation;
                self.judge_patch(patch_type, patch, there, &object, validation)?;
                self.check_patched(&write, there, patch, &mut object)?;
                Ok(object)
            });
            match written {
                // Who owns what may be most of an object. It is no reason to refuse a patch; one that is too large itself
                // is refused before.
                Err(status)
                    if status.reason() == Reason::RequestEntityTooLarge
                        && is_patched
                        && write.managers == Managers::Tracked =>
                {
                    write.managers = Managers::Forgotten;
                }
                other => return other,
            }
        }
    }

    /// What is there, or nothing, as it is when the manager wants this of it.
    fn applied(
        &self,
        write: &Write<'_>,
        there: &Value,
        patch: &[u8],
        options: &PatchOptions,
    ) -> Result<Value> {
        let wanted = patch::read(patch)?;
        let live = (!there.is_null()).then_some(there);
        // What the kind takes from what is stored, whatever is applied.
        let fields = wanted.as_object().into_iter().flatten().map(|(field, _)| field.as_str());
        let reset: Vec<[&str; 1]> = match write.part {
            Part::Main if self.strategy.has_status() => vec![["status"]],
            Part::Main => Vec::new(),
            Part::Status => {
                fields.filter(|field| *field != "status").map(|field| [field]).collect()
            }
        };
        let reset: Vec<&[&str]> = reset.iter().map(<[&str; 1]>::as_slice).collect();
        let now = meta::now(&*self.clock);
        let manager = self.manager(write.part, write.manager, &now, &reset);
        apply::apply(live, &wanted, &self.schema, &manager, options.force.unwrap_or(false))
    }

    /// Brings managed fields up to date after a write that is no apply. Nobody keeps count of an object as long as no writer
    /// gives a name.
    pub(super) fn track(
        &self,
        part: Part,
        manager: &str,
        old: &Value,
        object: Value,
    ) -> Result<Value> {
        let is_managed = |object: &Value| !meta::field(object, "managedFields").is_null();
        if manager.is_empty() && !is_managed(old) && !is_managed(&object) {
            return Ok(object);
        }
        let now = meta::now(&*self.clock);
        apply::track(old, object, &self.schema, &self.manager(part, manager, &now, &[]))
    }

    fn manager<'a>(
        &'a self,
        part: Part,
        name: &'a str,
        now: &'a str,
        reset_fields: &'a [&'a [&'a str]],
    ) -> FieldManager<'a> {
        let subresource = match part {
            Part::Main => "",
            Part::Status => "status",
        };
        FieldManager { name, api_version: &self.kind.api_version, subresource, now, reset_fields }
    }

    /// Refuses what is no object of this kind and name any more.
    fn check_patched(
        &self,
        write: &Write<'_>,
        there: &Value,
        patch: &[u8],
        object: &mut Value,
    ) -> Result<()> {
        let decoded = self.kind.accept(object).and_then(|()| meta::normalize(object));
        if let Err(why) = decoded {
            if write.managers == Managers::Kept {
                return Err(why);
            }
            // Each patch may be right, and what it is made on, but not what comes of both.
            let cause = Cause::invalid("patch", &shown(patch), why.message());
            let (group, kind) = (self.kind.group(), &self.kind.kind);
            return Err(Status::invalid(group, kind, write.name, vec![cause]));
        }
        let uid = meta::uid(object);
        if there.is_null() && !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Status::conflict(self.storage.resource(), write.name, why));
        }
        self.match_namespace(write.namespace, object)?;
        check_name(object, write.namespace, write.name)
    }
}
