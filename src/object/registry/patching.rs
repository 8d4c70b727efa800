//! Patches of every type, each in the loop of a guaranteed update.

use serde_json::Value;

use crate::object::kv::Kv;
use crate::object::meta;
use crate::object::patch::PatchType;
use crate::object::status::{Cause, Reason, Result, Status};
use crate::object::storage::Preconditions;

use super::Objects;
use super::options::{field_manager, refuse};
use super::update::{Write, check_name};

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
        self.check_type(patch_type)?;
        let write = Write {
            namespace,
            name,
            part,
            dry_run: options.dry_run,
            preconditions: Preconditions::none(),
            force_allow_create: patch_type == PatchType::Apply,
            ttl: None,
        };
        let mut keeps_managers = true;
        loop {
            let written = self.write(&write, &mut |there| {
                let mut object = self.patched(&write, there, patch_type, patch)?;
                if !keeps_managers {
                    meta::set_field(&mut object, "managedFields", Value::Null);
                }
                Ok(object)
            });
            match written {
                // Who owns what may be most of an object. It is no reason to refuse a patch.
                Err(status)
                    if status.reason() == Reason::RequestEntityTooLarge
                        && keeps_managers
                        && patch_type != PatchType::Apply =>
                {
                    keeps_managers = false;
                }
                other => return other,
            }
        }
    }

    /// What the patch makes of what is there.
    fn patched(
        &self,
        write: &Write<'_>,
        there: &Value,
        patch_type: PatchType,
        patch: &[u8],
    ) -> Result<Value> {
        let resource = self.storage.resource();
        if there.is_null() {
            return Err(Status::not_found(resource, write.name));
        }
        let mut object = patch_type.patch(there, patch, &self.schema)?;
        self.kind.accept(&mut object)?;
        meta::normalize(&mut object)?;
        self.match_namespace(write.namespace, &mut object)?;
        check_name(&object, write.namespace, write.name)?;
        unite_owners(&mut object);
        Ok(object)
    }

    /// Refuses strategic merge patches of a kind whose lists nobody has told how to merge.
    fn check_type(&self, patch_type: PatchType) -> Result<()> {
        if patch_type != PatchType::StrategicMerge || !self.schema.is_any() {
            return Ok(());
        }
        let types = [PatchType::Json, PatchType::Merge, PatchType::Apply];
        let types = types.map(PatchType::content_type).join(", ");
        Err(Status::new(
            Reason::UnsupportedMediaType,
            format!(
                "the body of the request was in an unknown format - accepted media types include: {types}"
            ),
        ))
    }
}

/// Leaves one of several owner references that are the same: patches merge lists into such.
fn unite_owners(object: &mut Value) {
    let Some(owners) = meta::field(object, "ownerReferences").as_array() else { return };
    let mut united: Vec<Value> = Vec::with_capacity(owners.len());
    for owner in owners {
        if !united.contains(owner) {
            united.push(owner.clone());
        }
    }
    if united.len() != owners.len() {
        meta::set_field(object, "ownerReferences", Value::Array(united));
    }
}
