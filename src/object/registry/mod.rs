//! Objects of one kind, as a Kubernetes API server keeps them under its REST layer.
//!
//! ```text
//!   Objects     create, get, list, watch, update, patch, delete: the rules of all kinds
//!      |  Strategy      the rules of one kind
//!   Storage     keys, compare-and-swap, versions
//!      |  Transformer   bytes
//!   Kv          revisions
//! ```
//!
//! `Store` of `k8s.io/apiserver/pkg/registry/generic/registry`, with what its handlers do before.

mod convert;
mod create;
mod decoding;
mod delete;
mod finalize;
mod history;
mod modify;
mod options;
mod pages;
mod patching;
mod reads;
mod rewrite;
mod strategy;
mod typed;
mod update;
mod validate;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::clock::{Clock, SystemClock};
use crate::kv::Store;

use super::kind::Kind;
use super::kv::Kv;
use super::meta;
use super::names;
use super::schema::Schema;
use super::status::{Cause, Result, Status};
use super::storage::{GetOptions, Storage};
use super::transform::Transformer;

pub use delete::Deletion;
pub use options::{CreateOptions, DeleteOptions, PropagationPolicy, UpdateOptions};
pub use pages::Pages;
pub use patching::PatchOptions;
pub use strategy::{GarbageCollection, GenerationRule, KindStrategy, Strategy};
pub use typed::{Typed, TypedEvent, TypedWatch};

/// The objects of one kind in a store. A clone is another handle on the same.
///
/// Every object has a resource version, which changes with each write; a write says which one it has read, and fails with
/// 409 if another came in between. So nobody overwrites what they have not seen.
///
/// ```
/// use std::sync::Arc;
/// use annals::object::{CreateOptions, Kind, Objects, UpdateOptions};
/// use serde_json::json;
/// # let directory = tempfile::tempdir().expect("a temporary directory");
///
/// let store = Arc::new(annals::Store::open(directory.path())?);
/// let pods = Objects::new(store, Kind::new("v1", "Pod", "pods"));
///
/// let pod = json!({"metadata": {"name": "web"}, "spec": {"nodeName": "one"}});
/// let mut first = pods.create("default", pod, &CreateOptions::default())?;
/// let mut second = pods.get("default", "web", &Default::default())?;
///
/// first["spec"]["nodeName"] = "two".into();
/// let (written, _) = pods.update("default", "web", first, &UpdateOptions::default())?;
/// assert_eq!(written["metadata"]["generation"], 2);
///
/// // Somebody else has read the pod before that.
/// second["metadata"]["labels"] = json!({"tier": "front"});
/// let refused = pods.update("default", "web", second, &UpdateOptions::default()).unwrap_err();
/// assert_eq!(refused.code(), 409);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Objects<K: Kv = Store> {
    kind: Arc<Kind>,
    strategy: Arc<dyn Strategy>,
    schema: Arc<Schema>,
    storage: Storage<K>,
    clock: Arc<dyn Clock>,
}

impl<K: Kv> Objects<K> {
    /// The objects of a kind, by the default [`KindStrategy`], each under `/registry/GROUP/RESOURCE/NAMESPACE/NAME`: without
    /// the group for the core group, without the namespace for kinds that have none.
    ///
    /// Nothing keeps apart two kinds that lie at one place. A resource of the core group lies at `/resource`, any other at
    /// `/group/resource`: give a core resource that is called as a group of the same store, as `apps`, a
    /// [`resource_prefix`](Self::resource_prefix) of its own.
    pub fn new(kv: Arc<K>, kind: Kind) -> Self {
        let resource_prefix = match kind.group() {
            "" => kind.resource.clone(),
            group => format!("{group}/{}", kind.resource),
        };
        let storage = Storage::new(kv, "/registry", kind.group_resource(), &resource_prefix);
        Self {
            kind: Arc::new(kind),
            strategy: Arc::new(KindStrategy::new()),
            schema: Arc::new(Schema::any()),
            storage,
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// With keys that begin with another prefix than `/registry`.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.storage = self.storage.prefix(prefix);
        self
    }

    /// With other keys behind the prefix than `/` and the resource (`/pods`), or `/`, the group, `/` and the resource.
    #[must_use]
    pub fn resource_prefix(mut self, prefix: &str) -> Self {
        self.storage = self.storage.resource_prefix(prefix);
        self
    }

    /// By the rules of this kind.
    #[must_use]
    pub fn strategy(mut self, strategy: impl Strategy) -> Self {
        self.strategy = Arc::new(strategy);
        self
    }

    /// With objects of this schema: it says how patches and applies merge lists; it validates nothing, see [`Schema`]. Without
    /// one, lists are replaced, and strategic merge patches are refused.
    #[must_use]
    pub fn schema(mut self, schema: Schema) -> Self {
        self.schema = Arc::new(schema);
        self
    }

    /// With objects changed on their way to the store and back, as by encryption with
    /// [`AesGcm`](crate::object::AesGcm). What is stored already stays as it is until it is written again, and the past of
    /// an object for as long as the store keeps it: see [`rewrite_stale`](Self::rewrite_stale).
    #[must_use]
    pub fn transformer(mut self, transformer: Arc<dyn Transformer>) -> Self {
        self.storage = self.storage.transformer(transformer);
        self
    }

    /// By another clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.storage = self.storage.clock(Arc::clone(&clock));
        self.clock = clock;
        self
    }

    /// What kind it is.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The storage below, which knows nothing of the rules here.
    pub fn storage(&self) -> &Storage<K> {
        &self.storage
    }

    /// An object.
    ///
    /// # Errors
    ///
    /// 404; 504 where the store has not come as far as the resource version asked for.
    pub fn get(&self, namespace: &str, name: &str, options: &GetOptions) -> Result<Value> {
        let key = self.path(namespace, name)?;
        let found = self.storage.get(&key, options);
        let mut object = found.map_err(|error| error.into_status(self.storage.resource(), name))?;
        if !object.is_null() {
            self.strategy.decorate(&mut object);
        }
        Ok(object)
    }

    /// How many objects there are in a namespace, or in all if it is empty; it takes
    /// [what a count takes](crate::View::count).
    ///
    /// # Errors
    ///
    /// What the store says.
    pub fn count(&self, namespace: &str) -> Result<u64> {
        let key = self.root(namespace)?;
        self.storage.count(&key).map_err(|error| error.into_status(self.storage.resource(), ""))
    }

    /// The storage that a call writes to, or would.
    fn storage_for(&self, dry_run: bool) -> Cow<'_, Storage<K>> {
        if dry_run {
            Cow::Owned(self.storage.clone().dry_run())
        } else {
            Cow::Borrowed(&self.storage)
        }
    }

    /// The key below which the objects of a namespace lie, or all of them.
    fn root(&self, namespace: &str) -> Result<String> {
        if namespace.is_empty() || !self.kind.namespaced {
            return Ok(self.storage.root().to_owned());
        }
        let wrong = names::path_segment(namespace, false);
        if !wrong.is_empty() {
            let message =
                format!("Namespace parameter invalid: {namespace:?}: {}", wrong.join(";"));
            return Err(Status::bad_request(message));
        }
        Ok(format!("{}/{namespace}", self.storage.root()))
    }

    /// The key of an object as the storage knows it.
    fn path(&self, namespace: &str, name: &str) -> Result<String> {
        if self.kind.namespaced && namespace.is_empty() {
            return Err(Status::bad_request("Namespace parameter required."));
        }
        if name.is_empty() {
            return Err(Status::bad_request("Name parameter required."));
        }
        let wrong = names::path_segment(name, false);
        if !wrong.is_empty() {
            let message = format!("Name parameter invalid: {name:?}: {}", wrong.join(";"));
            return Err(Status::bad_request(message));
        }
        Ok(format!("{}/{name}", self.root(namespace)?))
    }

    /// Puts an object into the namespace of the request, or, where that says none, takes its own for it.
    fn match_namespace(&self, namespace: &str, object: &mut Value) -> Result<()> {
        if !self.kind.namespaced {
            meta::set_text(object, "namespace", "");
            return Ok(());
        }
        let own = meta::namespace(object);
        if own.is_empty() {
            meta::set_text(object, "namespace", namespace);
        } else if !namespace.is_empty() && own != namespace {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Ok(())
    }

    fn invalid(&self, object: &Value, causes: Vec<Cause>) -> Status {
        Status::invalid(self.kind.group(), &self.kind.kind, meta::name(object), causes)
    }
}

impl<K: Kv> Clone for Objects<K> {
    fn clone(&self) -> Self {
        Self {
            kind: Arc::clone(&self.kind),
            strategy: Arc::clone(&self.strategy),
            schema: Arc::clone(&self.schema),
            storage: self.storage.clone(),
            clock: Arc::clone(&self.clock),
        }
    }
}

impl<K: Kv> fmt::Debug for Objects<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, storage, .. } = self;
        write!(f, "Objects({} in {storage:?})", kind.kind)
    }
}
