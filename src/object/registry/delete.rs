//! Deletion: at once, gracefully, or when the finalizers are gone.

use serde_json::Value;

use crate::object::kv::Kv;
use crate::object::meta;
use crate::object::status::{Result, Status};
use crate::object::storage::{GetOptions, Preconditions, StorageError, StorageErrorKind};

use super::Objects;
use super::finalize::{self, Grace};
use super::options::DeleteOptions;

/// What a deletion came to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Deletion {
    /// The object: as it was, with the revision of the deletion as its resource version; or, if it still is, as it is now.
    pub object: Value,
    /// Whether it is gone. Otherwise it has finalizers, or is going gracefully.
    pub is_deleted: bool,
    status: Option<Value>,
}

impl Deletion {
    /// What a REST server answers: the object, or a `Status` of success that names it.
    pub fn into_answer(self) -> Value {
        self.status.unwrap_or(self.object)
    }
}

/// Why a guaranteed update of a deletion has ended without a write.
enum Abort {
    /// There is nothing to wait for.
    Now,
    /// The object is going already.
    Pending(Value),
}

impl<K: Kv> Objects<K> {
    /// Deletes an object, or marks it as being deleted where it has finalizers or goes gracefully: then the generation grows,
    /// and who removes the last finalizer, or deletes it with a grace of 0, makes the end.
    ///
    /// # Errors
    ///
    /// 404; 409 where the preconditions are not met; 422 for options that contradict themselves.
    pub fn delete(&self, namespace: &str, name: &str, options: &DeleteOptions) -> Result<Deletion> {
        let key = self.key(namespace, name)?;
        let resource = self.storage.resource();
        let told = |error: StorageError| error.into_status(resource, name);
        let mut object = self.storage.get(&key, &GetOptions::default()).map_err(told)?;
        let now = self.clock.now_micros().div_euclid(1_000_000);
        let strategy = &*self.strategy;
        let grace = finalize::before_delete(&self.kind, strategy, &mut object, options, now)?;
        if grace == Grace::Pending {
            return Ok(self.deletion(object, false));
        }
        let mut preconditions = options.preconditions.clone();
        let mut last = None;
        let needs_update = grace != Grace::None
            || meta::finalizers(&object).next().is_some()
            || finalize::finalizers(strategy, &object, options).is_some();
        if needs_update {
            match self.mark(&key, name, options, now)? {
                Marked::Stays(object) => {
                    return Ok(Deletion { object, is_deleted: false, status: None });
                }
                Marked::Pending(object) => return Ok(self.deletion(object, false)),
                Marked::Goes(None) => {}
                Marked::Goes(Some(object)) => {
                    if options.dry_run {
                        return Ok(Deletion { object, is_deleted: true, status: None });
                    }
                    // It was this call that has changed the version.
                    if preconditions.resource_version.is_some() {
                        let version = meta::resource_version(&object).to_owned();
                        preconditions.resource_version = Some(version);
                    }
                    last = Some(object);
                }
            }
        }
        match (self.remove(&key, &preconditions, options.dry_run), last) {
            (Ok(object), _) => Ok(self.deletion(object, true)),
            // Somebody else has made the end of what was marked to end now.
            (Err(error), Some(last)) if error.kind() == StorageErrorKind::KeyNotFound => {
                Ok(self.deletion(last, true))
            }
            (Err(error), _) => Err(told(error)),
        }
    }

    /// Marks an object as being deleted.
    fn mark(&self, key: &str, name: &str, options: &DeleteOptions, now: i64) -> Result<Marked> {
        let strategy = &*self.strategy;
        let (mut abort, mut stays) = (None, false);
        let mut try_update = |mut object: Value, _| {
            abort = None;
            let grace = finalize::before_delete(&self.kind, strategy, &mut object, options, now)?;
            if grace == Grace::Pending {
                abort = Some(Abort::Pending(object));
                return Err(Status::internal("abort delete").into());
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
                    abort = Some(Abort::Now);
                    return Err(Status::internal("delete now").into());
                }
            }
            Ok((object, None))
        };
        let preconditions = &options.preconditions;
        let answer = self.guarantee(key, false, preconditions, options.dry_run, &mut try_update);
        match (answer, abort) {
            (_, Some(Abort::Pending(object))) => Ok(Marked::Pending(object)),
            (_, Some(Abort::Now)) => Ok(Marked::Goes(None)),
            (Ok(object), None) if stays => Ok(Marked::Stays(object)),
            (Ok(object), None) => Ok(Marked::Goes(Some(object))),
            (Err(error), None) => Err(error.into_status(self.storage.resource(), name)),
        }
    }

    /// Deletes a key, or would.
    pub(super) fn remove(
        &self,
        key: &str,
        preconditions: &Preconditions,
        dry_run: bool,
    ) -> Result<Value, StorageError> {
        if dry_run {
            let object = self.storage.get(key, &GetOptions::default())?;
            preconditions.check(key, &object)?;
            return Ok(object);
        }
        Ok(self.storage.delete(key, preconditions, &mut |_| Ok(()), None)?.object)
    }

    fn deletion(&self, object: Value, is_deleted: bool) -> Deletion {
        let status = (!self.strategy.returns_deleted_object()).then(|| {
            Status::success(self.storage.resource(), meta::name(&object), meta::uid(&object))
        });
        Deletion { object, is_deleted, status }
    }
}

/// What marking an object came to.
enum Marked {
    /// It is there, and being deleted.
    Stays(Value),
    /// It was being deleted before, and nothing has changed.
    Pending(Value),
    /// It is to be deleted now; with what has been written, if anything was.
    Goes(Option<Value>),
}
