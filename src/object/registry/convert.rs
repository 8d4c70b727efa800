//! From one version of a kind to the next.

use std::sync::Arc;

use serde_json::Value;

use crate::object::kv::Kv;
use crate::object::status::Result;

use super::Objects;

impl<K: Kv> Objects<K> {
    /// Also with the objects that are stored under another `apiVersion`, as those of a version of the kind before: whenever one is
    /// read, `convert` makes it one of this version. `apiVersion` itself is changed without its doing.
    ///
    /// What is listed, selected, watched, patched and told of the past is then of this version. The store is not changed by that;
    /// the next update of an object stores it as it is by then, also one that changes nothing, and
    /// [`rewrite_stale`](Self::rewrite_stale) makes one of all.
    ///
    /// The function gets the object without its resource version, leaves its name, namespace and UID as they are, and makes the same of
    /// the same. Where a field has another name by now, `metadata.managedFields` still says who owned the old one; who
    /// does not want that takes it away.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{Kind, Objects};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// let v1 = Objects::new(Arc::clone(&store), Kind::new("acme.io/v1", "Thing", "things"));
    /// v1.create("default", json!({"metadata": {"name": "a"}, "spec": {"size": 3}}), &Default::default())?;
    ///
    /// let v2 = Objects::new(store, Kind::new("acme.io/v2", "Thing", "things"))
    ///     .also_stored_as("acme.io/v1", |thing| {
    ///         if let Some(spec) = thing["spec"].as_object_mut() && let Some(size) = spec.remove("size") {
    ///             spec.insert("replicas".into(), size);
    ///         }
    ///         Ok(())
    ///     });
    /// let thing = v2.get("default", "a", &Default::default())?;
    /// assert_eq!((&thing["apiVersion"], &thing["spec"]), (&json!("acme.io/v2"), &json!({"replicas": 3})));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// It is called for each object whenever one is read that is stored as another version: a list of a thousand of them calls
    /// it a thousand times, as long as they have not been written anew.
    ///
    /// An object of which the function says an error, or at which it panics, cannot be read: 500; nor one that nests deeper
    /// than 120 by then.
    ///
    /// Convert in one direction alone: of two handles that convert into each other's version, each takes for stale what
    /// the other has written, and two programs that change nothing write for ever. Who serves two versions of a kind
    /// stores one, and converts what clients send and get.
    #[must_use]
    pub fn also_stored_as(
        mut self,
        api_version: &str,
        convert: impl Fn(&mut Value) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        let to = &self.kind.api_version;
        self.storage = self.storage.converting(api_version, to, Arc::new(convert));
        self
    }
}
