//! Deletion: at once, gracefully, or when the finalizers are gone.
//!
//! Whether an object may go is judged by what has been read of it, and what is deleted is what was judged: where others
//! come in between, it is judged again.

use serde_json::Value;

use crate::object::kv::Kv;
use crate::object::meta;
use crate::object::status::{Result, Status};
use crate::object::storage::{
    Deleted, GetOptions, GuaranteedUpdateOptions, Preconditions, StorageError, StorageErrorKind,
};

use super::Objects;
use super::finalize::{self, Grace};
use super::options::DeleteOptions;

/// What a deletion came to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Deletion {
    /// The object: as it was, with the revision of the deletion as its resource version; or, if it still is, as it is now.
    /// Null of one that [could not be read](DeleteOptions::ignore_store_read_error).
    pub object: Value,
    /// Whether it is gone. Otherwise it has finalizers, or is going gracefully.
    pub is_deleted: bool,
    /// The revision of its last change before; `None` where it is not gone, or somebody else has made the end.
    pub mod_revision: Option<u64>,
    status: Option<Value>,
}

impl Deletion {
    /// What a REST server answers: the object, or a `Status` of success that names it.
    pub fn into_answer(self) -> Value {
        self.status.unwrap_or(self.object)
    }
}

/// What marking an object came to.
enum Marked {
    /// It is there, and being deleted.
    Stays(Value),
    /// It was being deleted before, and nothing has changed.
    Pending(Value),
    /// Nothing keeps it, and nothing has been written.
    Goes(Value),
    /// It has been marked to go now.
    Ends(Value),
    /// Nobody wants it deleted any more.
    Unwanted,
}

/// What removing an object came to.
pub(super) enum Removal {
    Done(Deleted),
    /// It is not there any more, whether or not another has its name by now.
    Gone,
    /// It has been changed since it was judged.
    Changed,
}

/// What one attempt of a deletion came to.
enum Attempt {
    Done(Deletion),
    Again,
    Unwanted,
}

impl<K: Kv> Objects<K> {
    /// Deletes an object, or marks it as being deleted where it has finalizers or goes gracefully: then the generation grows,
    /// and who removes the last finalizer, or deletes it with a grace of 0, makes the end. What others change at the same
    /// time counts: a finalizer that they add keeps the object.
    ///
    /// # Errors
    ///
    /// 404; 409 where the preconditions are not met; 422 for options that contradict themselves, and for what the
    /// [`Strategy`](super::Strategy) does not let go.
    pub fn delete(&self, namespace: &str, name: &str, options: &DeleteOptions) -> Result<Deletion> {
        if options.ignore_store_read_error {
            return self.delete_unreadable(namespace, name, options);
        }
        match self.delete_wanted(namespace, name, options, &|_| true)? {
            Some(deletion) => Ok(deletion),
            None => Err(Status::not_found(self.storage.resource(), name)),
        }
    }

    /// Deletes what cannot be read. The answer has no object.
    fn delete_unreadable(
        &self,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deletion> {
        options.check()?;
        let key = self.path(namespace, name)?;
        let resource = self.storage.resource();
        let revision = self.storage_for(options.dry_run).delete_unreadable(&key);
        let revision = revision.map_err(|error| error.into_status(resource, name))?;
        let status = Some(Status::success(resource, name, ""));
        Ok(Deletion { mod_revision: Some(revision), status, ..Deletion::of(Value::Null, true) })
    }

    /// Deletes an object as long as it is the one that is wanted; `None` where it is not.
    pub(super) fn delete_wanted(
        &self,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        is_wanted: &dyn Fn(&Value) -> bool,
    ) -> Result<Option<Deletion>> {
        let key = self.path(namespace, name)?;
        loop {
            match self.delete_once(&key, name, options, is_wanted)? {
                Attempt::Done(mut deletion) => {
                    self.strategy.decorate(&mut deletion.object);
                    return Ok(Some(deletion));
                }
                Attempt::Unwanted => return Ok(None),
                Attempt::Again => {}
            }
        }
    }

    fn delete_once(
        &self,
        key: &str,
        name: &str,
        options: &DeleteOptions,
        is_wanted: &dyn Fn(&Value) -> bool,
    ) -> Result<Attempt> {
        let told = |error: StorageError| error.into_status(self.storage.resource(), name);
        let mut object = self.storage.get(key, &GetOptions::default()).map_err(told)?;
        if !is_wanted(&object) {
            return Ok(Attempt::Unwanted);
        }
        let now = self.clock.now_micros().div_euclid(1_000_000);
        let strategy = &*self.strategy;
        let grace = finalize::before_delete(&self.kind, strategy, &mut object, options, now)?;
        let needs_update = grace != Grace::None
            || meta::finalizers(&object).next().is_some()
            || finalize::finalizers(strategy, &object, options).is_some();
        let marked = if grace == Grace::Pending {
            Marked::Pending(object)
        } else if needs_update {
            self.mark(key, name, options, now, is_wanted)?
        } else {
            Marked::Goes(object)
        };
        let (judged, is_marked) = match marked {
            Marked::Unwanted => return Ok(Attempt::Unwanted),
            Marked::Stays(object) => return Ok(Attempt::Done(Deletion::of(object, false))),
            Marked::Pending(object) => {
                return Ok(Attempt::Done(self.told_by_status(Deletion::of(object, false))));
            }
            Marked::Goes(object) => (object, false),
            Marked::Ends(object) => (object, true),
        };
        let deletion = match self.remove(key, &judged, options.dry_run).map_err(told)? {
            Removal::Done(Deleted { object, mod_revision }) => {
                // What a dry run would have marked is not what is there.
                let object = if is_marked && options.dry_run { judged } else { object };
                Deletion { mod_revision: Some(mod_revision), ..Deletion::of(object, true) }
            }
            // Somebody else has made the end of what was marked to end now.
            Removal::Gone if is_marked => Deletion::of(judged, true),
            Removal::Gone | Removal::Changed => return Ok(Attempt::Again),
        };
        Ok(Attempt::Done(self.told_by_status(deletion)))
    }

    /// Marks an object as being deleted.
    fn mark(
        &self,
        key: &str,
        name: &str,
        options: &DeleteOptions,
        now: i64,
        is_wanted: &dyn Fn(&Value) -> bool,
    ) -> Result<Marked> {
        let strategy = &*self.strategy;
        let (mut unwritten, mut stays) = (None, false);
        let mut try_update = |mut object: Value, _| {
            let nothing_to_write = || Err(Status::internal("nothing to be written").into());
            if !is_wanted(&object) {
                unwritten = Some(Marked::Unwanted);
                return nothing_to_write();
            }
            let grace = finalize::before_delete(&self.kind, strategy, &mut object, options, now)?;
            if grace == Grace::Pending {
                unwritten = Some(Marked::Pending(object));
                return nothing_to_write();
            }
            if let Some(finalizers) = finalize::finalizers(strategy, &object, options) {
                let finalizers =
                    if finalizers.is_empty() { Value::Null } else { finalizers.into() };
                meta::set_field(&mut object, "finalizers", finalizers);
            }
            let has_finalizers = meta::finalizers(&object).next().is_some();
            match grace {
                Grace::Seconds(seconds) => stays = has_finalizers || seconds > 0,
                _ if has_finalizers => {
                    finalize::mark_as_deleting(&mut object, now);
                    stays = true;
                }
                _ => {
                    unwritten = Some(Marked::Goes(object));
                    return nothing_to_write();
                }
            }
            Ok((object, None))
        };
        let preconditions = &options.preconditions;
        let (storage, update) =
            (self.storage_for(options.dry_run), GuaranteedUpdateOptions::default());
        let answer = storage.guaranteed_update(key, update, preconditions, &mut try_update, None);
        match (answer, unwritten) {
            (_, Some(marked)) => Ok(marked),
            (Ok(object), None) if stays => Ok(Marked::Stays(object)),
            (Ok(object), None) => Ok(Marked::Ends(object)),
            (Err(error), None) => Err(error.into_status(self.storage.resource(), name)),
        }
    }

    /// Deletes a key, or would, as long as what is there is what was judged.
    pub(super) fn remove(
        &self,
        key: &str,
        judged: &Value,
        dry_run: bool,
    ) -> Result<Removal, StorageError> {
        let mut kept = None;
        let mut validate = |there: &Value| {
            kept = if meta::resource_version(there) == meta::resource_version(judged) {
                return Ok(());
            } else if meta::uid(there) == meta::uid(judged) {
                Some(Removal::Changed)
            } else {
                Some(Removal::Gone)
            };
            Err(Status::internal("it is not what was judged").into())
        };
        let storage = self.storage_for(dry_run);
        let answer = storage.delete(key, &Preconditions::none(), &mut validate, None);
        match (answer, kept) {
            (_, Some(kept)) => Ok(kept),
            (Ok(deleted), None) => {
                if !dry_run {
                    self.strategy.after_delete(&deleted.object);
                }
                Ok(Removal::Done(deleted))
            }
            (Err(error), None) if error.kind() == StorageErrorKind::KeyNotFound => {
                Ok(Removal::Gone)
            }
            (Err(error), None) => Err(error),
        }
    }

    fn told_by_status(&self, mut deletion: Deletion) -> Deletion {
        if !self.strategy.returns_deleted_object() {
            let object = &deletion.object;
            let (name, uid) = (meta::name(object), meta::uid(object));
            deletion.status = Some(Status::success(self.storage.resource(), name, uid));
        }
        deletion
    }
}

impl Deletion {
    fn of(object: Value, is_deleted: bool) -> Self {
        Self { object, is_deleted, mod_revision: None, status: None }
    }
}
