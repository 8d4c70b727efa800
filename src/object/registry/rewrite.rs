//! Writing anew what is stale, as after a change of the key of encryption, or of the version of a kind.

use crate::object::kv::Kv;
use crate::object::status::Result;
use crate::object::storage::Rewritten;

use super::Objects;

impl<K: Kv> Objects<K> {
    /// Writes anew the objects of a namespace, or of all if it is empty, that the [`transformer`](Self::transformer) calls
    /// stale: those that were encrypted with another key than its first, or not at all; and those that are stored as
    /// [another version](Self::also_stored_as) of their kind. It may be called again at any time, also after it was
    /// interrupted; what is not stale is read and left.
    ///
    /// Each is a write of its own, tried again where others write at the same time: a new resource version, of which
    /// watches tell, but the same object, with what is left of its time to live. No rule of the kind is asked, and no hook
    /// is called.
    ///
    /// They are written one after the other, and each waits for a sync of the disk: where there are many, threads with a
    /// namespace each share the syncs.
    ///
    /// What is older than the revision that it answers is as it was. Before an old key is left out, compact at that
    /// revision; see [`AesGcm`](crate::object::AesGcm#changing-the-key).
    ///
    #[cfg_attr(feature = "encryption", doc = "```")]
    #[cfg_attr(not(feature = "encryption"), doc = "```ignore")]
    /// # use std::sync::Arc;
    /// use annals::object::{AesGcm, EncryptionKey, Kind, Objects};
    /// use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// # let secrets = || Objects::new(Arc::clone(&store), Kind::new("v1", "Secret", "secrets"));
    /// # let (old, new) = (|| EncryptionKey::new("old", &[1; 32]), || EncryptionKey::new("new", &[2; 32]));
    ///
    /// let with_old = secrets().transformer(Arc::new(AesGcm::new(old()?)));
    /// with_old.create("default", json!({"metadata": {"name": "db"}}), &Default::default())?;
    ///
    /// let with_both = secrets().transformer(Arc::new(AesGcm::new(new()?).or(old()?)?));
    /// let done = with_both.rewrite_stale("")?;
    /// assert_eq!((done.looked_at, done.written), (1, 1));
    /// store.compact(done.revision)?;
    ///
    /// let with_new = secrets().transformer(Arc::new(AesGcm::new(new()?)));
    /// assert_eq!(with_new.list("", &Default::default())?.items.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// 500 where objects cannot be read, or are too large for the store once they are encrypted with the new key, which
    /// names up to a hundred of them: all others have been written anew. Else what the store says.
    pub fn rewrite_stale(&self, namespace: &str) -> Result<Rewritten> {
        let key = self.root(namespace)?;
        let done = self.storage.rewrite_stale(&key);
        done.map_err(|error| error.into_status(self.storage.resource(), ""))
    }
}
