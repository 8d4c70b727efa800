//! New objects.

use serde_json::Value;
use uuid::Uuid;

use crate::object::kv::Kv;
use crate::object::meta;
use crate::object::status::{Reason, Result, Status};
use crate::object::storage::GetOptions;

use super::options::CreateOptions;
use super::strategy::GenerationRule;
use super::update::{Part, unite_owners};
use super::{Objects, validate};

/// How often a name is made up for one object. Eight are enough for a million objects of one base, with one failure in a
/// thousand.
const GENERATE_NAME_ATTEMPTS: u32 = 8;

impl<K: Kv> Objects<K> {
    /// Stores a new object and answers it as stored: with its UID, its creation time, generation 1 and its resource version.
    /// A name is made up for one that has `generateName` only.
    ///
    /// With an empty `namespace` it is the object that says in which namespace it belongs.
    ///
    /// # Errors
    ///
    /// 409 (`AlreadyExists`) for a name that is taken; 422 for an object that is not valid, 400 for one that is none of this
    /// kind, or has a resource version.
    pub fn create(&self, namespace: &str, object: Value, options: &CreateOptions) -> Result<Value> {
        options.check()?;
        let is_unnamed = meta::name(&object).is_empty() && !meta::generate_name(&object).is_empty();
        let mut attempts = if is_unnamed { GENERATE_NAME_ATTEMPTS } else { 1 };
        loop {
            attempts -= 1;
            let made = if attempts == 0 {
                return self.create_once(namespace, object, options);
            } else {
                self.create_once(namespace, object.clone(), options)
            };
            match made {
                Err(status) if status.reason() == Reason::AlreadyExists => {}
                other => return other,
            }
        }
    }

    fn create_once(
        &self,
        namespace: &str,
        mut object: Value,
        options: &CreateOptions,
    ) -> Result<Value> {
        self.kind.accept(&mut object)?;
        meta::normalize(&mut object)?;
        self.match_namespace(namespace, &mut object)?;
        self.fill(&mut object);
        self.prepare_new(&mut object)?;
        let mut object = self.track(Part::Main, &options.field_manager, &Value::Null, object)?;
        object.sort_all_objects();
        let name = meta::name(&object).to_owned();
        let key = self.path(meta::namespace(&object), &name)?;
        let ttl = options.ttl.or_else(|| self.strategy.ttl(&object, None)).unwrap_or(0);
        let has_base = !meta::generate_name(&object).is_empty();
        let made = self.storage_for(options.dry_run).create(&key, object, ttl);
        let mut made = made.map_err(|error| {
            let status = error.into_status(self.storage.resource(), &name);
            self.explain_taken(status, &key, &name, has_base)
        })?;
        if !options.dry_run {
            self.strategy.after_create(&made);
        }
        self.strategy.decorate(&mut made);
        Ok(made)
    }

    /// Says of a name that is taken whether the server has chosen it, and whether its object is about to go.
    fn explain_taken(&self, status: Status, key: &str, name: &str, is_generated: bool) -> Status {
        if status.reason() != Reason::AlreadyExists {
            return status;
        }
        let status = if is_generated {
            Status::generate_name_conflict(self.storage.resource(), name)
        } else {
            status
        };
        match self.storage.get(key, &GetOptions::default()) {
            Ok(there) if !meta::deletion_timestamp(&there).is_empty() => {
                status.with_prefix("object is being deleted: ")
            }
            _ => status,
        }
    }

    /// The fields of a new object that clients cannot set.
    pub(super) fn fill(&self, object: &mut Value) {
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            meta::set_field(object, field, Value::Null);
        }
        meta::set_text(object, "uid", &Uuid::new_v4().to_string());
        meta::set_text(object, "creationTimestamp", &meta::now(&*self.clock));
        let base = meta::generate_name(object);
        if !base.is_empty() && meta::name(object).is_empty() {
            let name = self.strategy.generate_name(base);
            meta::set_text(object, "name", &name);
        }
    }

    /// Brings a new object into the form in which it is stored, if it is valid.
    pub(super) fn prepare_new(&self, object: &mut Value) -> Result<()> {
        unite_owners(object);
        self.strategy.apply_defaults(object);
        if self.strategy.has_status()
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        match self.strategy.generation() {
            GenerationRule::Never => meta::set_field(object, "generation", Value::Null),
            _ => meta::set_field(object, "generation", 1.into()),
        }
        self.strategy.prepare_for_create(object);
        let mut causes =
            validate::metadata(object, self.kind.namespaced, self.strategy.name_rule());
        causes.extend(self.strategy.validate(object));
        if !causes.is_empty() {
            return Err(self.invalid(object, causes));
        }
        self.strategy.canonicalize(object);
        Ok(())
    }
}
