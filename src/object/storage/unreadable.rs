//! The deletion of what cannot be read: what `ExpectTransformOrDecodeError` is for in
//! `k8s.io/apiserver/pkg/storage/etcd3/store.go`.

use crate::kv::{DeleteRangeRequest, Op};
use crate::object::kv::Kv;

use super::Storage;
use super::commit::Outcome;
use super::error::StorageError;

impl<K: Kv> Storage<K> {
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
