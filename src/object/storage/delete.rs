//! Deletion under preconditions, and that of what cannot be read: what `ExpectTransformOrDecodeError` is for in
//! `k8s.io/apiserver/pkg/storage/etcd3/store.go`.

use serde_json::Value;

use crate::kv::{DeleteRangeRequest, Op};
use crate::object::kv::Kv;

use super::error::StorageError;
use super::update::Known;
use super::{Outcome, Preconditions, Storage};

/// An object that has been deleted.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Deleted {
    /// As it was, with the *revision of the deletion* as its version; of a dry run, as it is.
    pub object: Value,
    /// The revision of its last change before.
    pub mod_revision: u64,
}

impl<K: Kv> Storage<K> {
    /// Deletes an object of which the preconditions hold and that `validate` lets go. `cached` is a suggestion, as in
    /// [`guaranteed_update`](Self::guaranteed_update).
    ///
    /// # Errors
    ///
    /// [`KeyNotFound`](super::StorageErrorKind::KeyNotFound),
    /// [`InvalidObject`](super::StorageErrorKind::InvalidObject) where the preconditions are not met, whatever
    /// `validate` answers.
    pub fn delete(
        &self,
        key: &str,
        preconditions: &Preconditions,
        validate: &mut dyn FnMut(&Value) -> Result<(), StorageError>,
        cached: Option<&Value>,
    ) -> Result<Deleted, StorageError> {
        let _call = self.timed("delete", key);
        let key = self.key(key)?;
        let mut known = self.known(&key, cached, false)?;
        loop {
            let allowed = preconditions
                .check(&key, &known.state.object)
                .and_then(|()| validate(&known.state.object));
            if let Err(error) = allowed {
                self.refresh_after(error, &key, &mut known, false)?;
                continue;
            }
            let delete = Op::DeleteRange(DeleteRangeRequest::new(&key));
            let revision = known.state.revision;
            match self.commit(&key, revision, delete)? {
                Outcome::Done(deleted_at) => {
                    let mut object = known.state.object;
                    self.codec.attach(&mut object, deleted_at);
                    return Ok(Deleted { object, mod_revision: revision });
                }
                Outcome::Lost(there) => {
                    let state = self.state_or_none(&key, there, false)?;
                    known = Known { state, is_current: true };
                }
            }
        }
    }

    /// Deletes an object that cannot be read, and no other; answers the revision of its last change.
    pub(in crate::object) fn delete_unreadable(&self, key: &str) -> Result<u64, StorageError> {
        let _call = self.timed("delete", key);
        let key = self.key(key)?;
        let mut found = self.kv.get(key.as_bytes(), None)?.0;
        loop {
            let Some(kv) = found else { return Err(StorageError::not_found(&key, 0)) };
            let revision = kv.mod_revision;
            if self.codec.decode(&kv.key, &kv.value, revision).is_ok() {
                let why =
                    "unsafe deletion is not allowed because the object is decodable from storage";
                return Err(StorageError::invalid_object(&key, why));
            }
            let delete = Op::DeleteRange(DeleteRangeRequest::new(&key));
            match self.commit(&key, revision, delete)? {
                Outcome::Done(_) => return Ok(revision),
                Outcome::Lost(there) => found = there,
            }
        }
    }
}
