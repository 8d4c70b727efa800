//! Updates: whole objects and the status alone, and the write that each of them, a patch and a change by a function ends in.

use std::collections::HashSet;

use serde_json::Value;

use crate::object::kv::Kv;
use crate::object::meta;
use crate::object::status::{Cause, Reason, Result, Status};
use crate::object::storage::{GuaranteedUpdateOptions, Preconditions, ResponseMeta, StorageError};
use crate::object::versioner::{ApiVersioner, Versioner};

use super::delete::Removal;
use super::options::UpdateOptions;
use super::strategy::GenerationRule;
use super::{Objects, validate};

/// Which part of an object a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Everything, but the status where that is a subresource.
    Main,
    Status,
}

/// A write of an object that may be there.
pub(super) struct Write<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) part: Part,
    pub(super) dry_run: bool,
    pub(super) preconditions: Preconditions,
    /// Whether to create what is not there, whatever the kind does.
    pub(super) force_allow_create: bool,
    pub(super) ttl: Option<u64>,
    /// Whose write it is, as managed fields name it.
    pub(super) manager: &'a str,
    pub(super) managers: Managers,
}

/// What a write does with managed fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Managers {
    /// Brings them up to date.
    Tracked,
    /// Stores them as the change has made them: an apply brings them up to date itself.
    Kept,
    /// Takes them away.
    Forgotten,
}

impl<'a> Write<'a> {
    pub(super) fn new(
        part: Part,
        namespace: &'a str,
        name: &'a str,
        options: &'a UpdateOptions,
    ) -> Self {
        Self {
            namespace,
            name,
            part,
            dry_run: options.dry_run,
            preconditions: options.preconditions.clone(),
            force_allow_create: options.force_allow_create,
            ttl: options.ttl,
            manager: &options.field_manager,
            managers: Managers::Tracked,
        }
    }
}

/// What the last attempt of a write came to.
enum Attempt {
    Updated,
    Created,
    /// The last finalizer of an object that is being deleted is gone: so is the object. As it would be, and as it was.
    Emptied(Value, Value),
}

/// What is to become of an object; of null where there is none.
pub(super) type Change<'a> = dyn FnMut(&Value) -> Result<Value> + 'a;

impl<K: Kv> Objects<K> {
    /// Replaces an object; answers it as stored, and whether it has been created.
    ///
    /// - The resource version in `object` is the one that it was made from; if it is not the newest, the answer is 409;
    ///   also where the object is gone, and updates create.
    /// - Without one it replaces whatever is there, where the kind allows that.
    /// - A UID in it has to be that of the object that is there.
    /// - What clients cannot change (UID, times, generation, the status if it is a subresource) stays as it is.
    /// - An object that is being deleted is gone with its last finalizer.
    /// - What changes nothing writes nothing, and the resource version stays.
    ///
    /// # Errors
    ///
    /// 404; 409 for another version or UID than the one that is there; 422 for an object that is not valid, 400 for one that
    /// is none of this kind or has another name.
    pub fn update(
        &self,
        namespace: &str,
        name: &str,
        object: Value,
        options: &UpdateOptions,
    ) -> Result<(Value, bool)> {
        self.put(Part::Main, namespace, name, object, options)
    }

    /// Replaces the status of an object, and nothing else: the generation stays. Answers the object as stored; what is not there
    /// is not created.
    ///
    /// # Errors
    ///
    /// Those of [`update`](Self::update); 404 where the status is no subresource.
    pub fn update_status(
        &self,
        namespace: &str,
        name: &str,
        object: Value,
        options: &UpdateOptions,
    ) -> Result<Value> {
        Ok(self.put(self.part("status")?, namespace, name, object, options)?.0)
    }

    /// The part that a subresource is; the object where it is empty.
    pub(super) fn part(&self, subresource: &str) -> Result<Part> {
        match subresource {
            "" => Ok(Part::Main),
            "status" if self.strategy.has_status() => Ok(Part::Status),
            _ => {
                let message = "the server could not find the requested resource";
                Err(Status::new(Reason::NotFound, message))
            }
        }
    }

    fn put(
        &self,
        part: Part,
        namespace: &str,
        name: &str,
        mut object: Value,
        options: &UpdateOptions,
    ) -> Result<(Value, bool)> {
        options.check()?;
        self.kind.accept(&mut object)?;
        meta::normalize(&mut object)?;
        self.match_namespace(namespace, &mut object)?;
        check_name(&object, namespace, name)?;
        let mut write = Write::new(part, namespace, name, options);
        if write.preconditions.uid.is_none() && !meta::uid(&object).is_empty() {
            write.preconditions.uid = Some(meta::uid(&object).to_owned());
        }
        self.write(&write, &mut |_| Ok(object.clone()))
    }

    /// Writes what `change` makes of what is there; again as long as others come in between.
    pub(super) fn write(
        &self,
        write: &Write<'_>,
        change: &mut Change<'_>,
    ) -> Result<(Value, bool)> {
        let key = self.path(write.namespace, write.name)?;
        loop {
            if let Some((mut object, is_new)) = self.write_once(write, &key, change)? {
                self.strategy.decorate(&mut object);
                return Ok((object, is_new));
            }
        }
    }

    /// `None` where what was to be deleted by the write is another by now.
    fn write_once(
        &self,
        write: &Write<'_>,
        key: &str,
        change: &mut Change<'_>,
    ) -> Result<Option<(Value, bool)>> {
        let resource = self.storage.resource();
        // A status of what is not there is none.
        let may_create = write.part == Part::Main
            && (self.strategy.allow_create_on_update() || write.force_allow_create);
        let mut attempt = Attempt::Updated;
        let mut try_update = |there: Value, told: ResponseMeta| {
            attempt = Attempt::Updated;
            let is_new = told.resource_version == 0;
            if is_new && !may_create {
                return Err(Status::not_found(resource, write.name).into());
            }
            let old = if is_new { Value::Null } else { there };
            let mut object = change(&old)?;
            self.kind.accept(&mut object)?;
            meta::normalize(&mut object)?;
            if is_new {
                if ApiVersioner.object_resource_version(&object)? != 0 {
                    return Err(Status::modified(resource, write.name).into());
                }
                attempt = Attempt::Created;
                self.match_namespace(write.namespace, &mut object)?;
                self.fill(&mut object);
                self.prepare_new(&mut object)?;
                let object = self.with_managers(write, &Value::Null, object)?;
                let ttl = write.ttl.or_else(|| self.strategy.ttl(&object, None));
                return Ok((object, Some(ttl.unwrap_or(0))));
            }
            self.check_version(write.name, &mut object, &old)?;
            let object = self.prepare_update(write, object, &old)?;
            if is_emptied(&object, &old) {
                let message = "emptied finalizers";
                attempt = Attempt::Emptied(object, old);
                return Err(Status::internal(message).into());
            }
            let ttl = write.ttl.or_else(|| self.strategy.ttl(&object, Some(&old)));
            Ok((object, ttl))
        };
        let storage = self.storage_for(write.dry_run);
        let options = GuaranteedUpdateOptions { ignore_not_found: may_create };
        let preconditions = &write.preconditions;
        let answer = storage.guaranteed_update(key, options, preconditions, &mut try_update, None);
        let told = |error: StorageError| error.into_status(resource, write.name);
        match (answer, attempt) {
            (Ok(object), Attempt::Created) => {
                if !write.dry_run {
                    self.strategy.after_create(&object);
                }
                Ok(Some((object, true)))
            }
            (Ok(object), _) => {
                if !write.dry_run {
                    self.strategy.after_update(&object);
                }
                Ok(Some((object, false)))
            }
            (Err(_), Attempt::Emptied(object, old)) => {
                match self.remove(key, &old, write.dry_run).map_err(told)? {
                    // That somebody else has made the end is as good.
                    Removal::Done(_) | Removal::Gone => Ok(Some((object, false))),
                    Removal::Changed => Ok(None),
                }
            }
            (Err(error), _) => Err(told(error)),
        }
    }

    /// The optimistic lock: an object says which version it was made from, or takes what is there.
    fn check_version(&self, name: &str, object: &mut Value, old: &Value) -> Result<()> {
        let resource = self.storage.resource();
        let version = ApiVersioner.object_resource_version(object)?;
        let there = ApiVersioner.object_resource_version(old)?;
        if version == 0 && self.strategy.allow_unconditional_update() {
            return ApiVersioner.update_object(object, there);
        }
        if version == 0 {
            let why = "must be specified for an update";
            let cause = Cause::invalid("metadata.resourceVersion", &0.into(), why);
            return Err(Status::invalid(&resource.group, &resource.resource, name, vec![cause]));
        }
        if version == there { Ok(()) } else { Err(Status::modified(resource, name)) }
    }

    fn with_managers(&self, write: &Write<'_>, old: &Value, mut object: Value) -> Result<Value> {
        match write.managers {
            Managers::Tracked => self.track(write.part, write.manager, old, object),
            Managers::Kept => Ok(object),
            Managers::Forgotten => {
                meta::set_field(&mut object, "managedFields", Value::Null);
                Ok(object)
            }
        }
    }

    /// Brings a changed object into the form in which it is stored, if it is valid.
    fn prepare_update(&self, write: &Write<'_>, mut object: Value, old: &Value) -> Result<Value> {
        self.match_namespace(write.namespace, &mut object)?;
        unite_owners(&mut object);
        match write.part {
            Part::Main => {
                self.strategy.apply_defaults(&mut object);
                if self.strategy.has_status() {
                    keep(&mut object, old, "status");
                }
            }
            Part::Status => object = with_status(&object, old),
        }
        meta::set_field(&mut object, "generation", meta::field(old, "generation").clone());
        match write.part {
            Part::Main => self.strategy.prepare_for_update(&mut object, old),
            Part::Status => self.strategy.prepare_for_status_update(&mut object, old),
        }
        if meta::uid(&object).is_empty() {
            meta::set_text(&mut object, "uid", meta::uid(old));
        }
        for field in ["creationTimestamp", "deletionTimestamp"] {
            let was = meta::field(old, field);
            if !was.is_null() {
                meta::set_field(&mut object, field, was.clone());
            }
        }
        let field = "deletionGracePeriodSeconds";
        if meta::field(&object, field).is_null() {
            meta::set_field(&mut object, field, meta::field(old, field).clone());
        }
        let mut causes =
            validate::metadata(&object, self.kind.namespaced, self.strategy.name_rule());
        causes.extend(validate::metadata_update(&object, old));
        match write.part {
            Part::Main => {
                causes.extend(self.strategy.validate(&object));
                causes.extend(self.strategy.validate_update(&object, old));
            }
            Part::Status => causes.extend(self.strategy.validate_status_update(&object, old)),
        }
        if !causes.is_empty() {
            return Err(self.invalid(&object, causes));
        }
        self.strategy.canonicalize(&mut object);
        let rule = self.strategy.generation();
        let is_own = write.part == Part::Main && rule != GenerationRule::Never;
        if is_own && rule.is_changed(&object, old) {
            let generation = meta::generation(&object).saturating_add(1);
            meta::set_generation(&mut object, generation);
        }
        let mut object = self.with_managers(write, old, object)?;
        ignore_times_of_managers(&mut object, old);
        Ok(object)
    }
}

/// The object has to bear the name of the request.
pub(super) fn check_name(object: &Value, namespace: &str, name: &str) -> Result<()> {
    let own = meta::name(object);
    if own.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if own != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({own}) does not match the name on the URL ({name})"
        )));
    }
    let own = meta::namespace(object);
    if !namespace.is_empty() && !own.is_empty() && own != namespace {
        return Err(Status::bad_request(format!(
            "the namespace of the object ({own}) does not match the namespace on the request ({namespace})"
        )));
    }
    Ok(())
}

/// Leaves one of several owner references that are the same: merges of lists bring about such.
pub(super) fn unite_owners(object: &mut Value) {
    let Some(owners) = meta::field(object, "ownerReferences").as_array() else { return };
    let mut seen = HashSet::with_capacity(owners.len());
    let united: Vec<&Value> = owners.iter().filter(|owner| seen.insert(*owner)).collect();
    if united.len() != owners.len() {
        let united = united.into_iter().cloned().collect();
        meta::set_field(object, "ownerReferences", Value::Array(united));
    }
}

/// Gives a field the value that it has in `old`.
fn keep(object: &mut Value, old: &Value, field: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    match old.get(field) {
        Some(was) => fields.insert(field.into(), was.clone()),
        None => fields.remove(field),
    };
}

/// What is there, with the status and the managers of `object`.
fn with_status(object: &Value, old: &Value) -> Value {
    let mut kept = old.clone();
    keep(&mut kept, object, "status");
    let managers = meta::field(object, "managedFields");
    if !managers.is_null() {
        meta::set_field(&mut kept, "managedFields", managers.clone());
    }
    kept
}

/// Whether the last finalizer of an object is gone that nobody waits for any longer.
fn is_emptied(object: &Value, old: &Value) -> bool {
    meta::finalizers(object).next().is_none()
        && !meta::deletion_timestamp(old).is_empty()
        && meta::deletion_grace_period(old).unwrap_or(0) == 0
}

/// Takes back what a write has changed where that is the times of managed fields alone: it is to change nothing.
fn ignore_times_of_managers(object: &mut Value, old: &Value) {
    let entries = |object: &Value| meta::field(object, "managedFields").as_array().cloned();
    let (Some(new), Some(was)) = (entries(object), entries(old)) else { return };
    let differ = |(new, was): (&Value, &Value)| new["time"] != was["time"];
    if new.len() != was.len() || !new.iter().zip(&was).any(differ) {
        return;
    }
    let bare = |object: &Value, mut entries: Vec<Value>| {
        for entry in &mut entries {
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("time");
            }
        }
        let mut object = object.clone();
        meta::set_field(&mut object, "managedFields", Value::Array(entries));
        meta::set_field(&mut object, "resourceVersion", Value::Null);
        object
    };
    if bare(object, new) == bare(old, was.clone()) {
        meta::set_field(object, "managedFields", Value::Array(was));
    }
}
