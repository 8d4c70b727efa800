//! Versioned objects over a store, as a Kubernetes API server keeps them under its REST layer.
//!
//! ```text
//!   Objects   create, get, list, watch, update, patch, delete: the rules of all kinds
//!      |  Strategy      the rules of one kind: generation, status, finalizers, validation
//!   Storage   keys, compare-and-swap, versions, pages, watches
//!      |  Transformer   bytes: encryption at rest
//!   Kv        revisions: an annals::Store, or anything that has them
//! ```
//!
//! An object is a [`serde_json::Value`], or a type of yours by [`Objects::typed`]. Its **resource version** is the revision
//! of its last change: opaque to clients, attached when it is read, never stored. Whoever writes says which version
//! he has read, and gets 409 if another came in between:
//!
//! ```
//! use std::sync::Arc;
//! use annals::object::{GenerationRule, Kind, KindStrategy, ListOptions, Objects, PatchType};
//! use serde_json::json;
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let store = annals::Store::open(directory.path())?;
//!
//! let kind = Kind::new("apps/v1", "Deployment", "deployments");
//! let strategy = KindStrategy::new().generation(GenerationRule::SpecAndAnnotations);
//! let deployments = Objects::new(Arc::new(store), kind).strategy(strategy);
//!
//! let web = json!({"metadata": {"name": "web"}, "spec": {"replicas": 1}});
//! let made = deployments.create("default", web, &Default::default())?;
//! let mut mine = made.clone(); // two clients have read this version
//! mine["spec"]["replicas"] = 2.into();
//! let (written, _) = deployments.update("default", "web", mine, &Default::default())?;
//! assert_eq!(written["metadata"]["generation"], 2);
//! let late = deployments.update("default", "web", made, &Default::default()).unwrap_err();
//! assert_eq!(late.code(), 409); // the other one reads again, and does it again
//!
//! let patch = br#"{"metadata": {"labels": {"tier": "front"}}}"#;
//! deployments.patch("default", "web", PatchType::Merge, patch, &Default::default())?;
//! let page = deployments.list("default", &ListOptions { limit: 500, ..Default::default() })?;
//! assert_eq!(page.items[0]["metadata"]["labels"]["tier"], "front");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The store keeps what was: [`Objects::get_at`] is an object as it was at a version, and [`Objects::history`] tells all of its
//! versions, deletions included, back to where the store has been [compacted](crate::Store::compact).
//!
//! # What is not as in Kubernetes
//!
//! - A version on create is refused with 400; there it is a plain error, 500 (one of the documents says that it is
//!   ignored). What is patched into something that is no object of its kind is 422, as there.
//! - A time to live that an update does not name stays, as the documents promise; the store on etcd drops it. One that
//!   it names begins anew, also where nothing else changes.
//! - A deletion takes what it has judged, and nothing else: a finalizer that comes in between keeps the object, and one
//!   that was made anew under the name is not deleted. A write that names the version of what is gone is refused
//!   with 409, also where a kind creates on update.
//! - A deletion answers with its own revision as the version, as today's Kubernetes does, and not with that of the
//!   last change.
//! - JSON patch is RFC 6902 and merge patch RFC 7396 to the letter; see there for what libraries of Go do otherwise.
//! - There is no cache between clients and the store: what is read is what is stored, "too old" comes from
//!   compaction alone, and nothing waits for a cache to catch up.
//! - Fields that a schema does not know are told or refused as [`FieldValidation`] says, but never dropped: what is taken is
//!   kept whole. (An apply takes no such field.) Objects are JSON; who serves YAML, as `examples/kube_api` does, makes
//!   JSON of it.
//! - Hooks behind a write (`after_create` and its like) are not called for dry runs, nor by whoever finds that another has
//!   made the end of an object.
//! - How long calls of the storage take is told by metrics, and of those above 500 ms by an event, where the features of
//!   the crate ask for it; there are no steps of a call in it.
//!
#![doc = include_str!("TESTS.md")]

pub mod apply;
mod decode;
#[cfg(feature = "encryption")]
mod encrypt;
pub(crate) mod kind;
mod kv;
pub mod meta;
mod names;
mod patch;
mod prefix;
mod registry;
mod schema;
mod selector;
mod status;
mod storage;
mod transform;
mod value;
mod versioner;

pub use decode::{FieldValidation, Warnings};
#[cfg(feature = "encryption")]
pub use encrypt::{AesGcm, EncryptionKey};
pub use kind::{GroupResource, Kind};
pub use kv::{Changes, Kv, KvEvent, KvWatch, ScanRequest, StoreWatch, WatchRequest};
pub use names::NameRule;
pub use patch::{PATCH_BYTES_MAX, PatchType, json_patch, merge_patch, strategic_merge_patch};
pub use prefix::Prefixed;
pub use registry::{
    CreateOptions, DeleteOptions, Deletion, GarbageCollection, GenerationRule, KindStrategy,
    Objects, PatchOptions, PropagationPolicy, Strategy, Typed, TypedEvent, TypedWatch,
    UpdateOptions,
};
pub use schema::{ListType, PatchStrategy, Scalar, Schema};
pub use selector::{
    FieldRequirement, FieldSelector, LabelOperator, LabelRequirement, LabelSelector,
};
pub use status::{Cause, Details, Reason, Result, Status};
pub use storage::{
    Deleted, FieldsOf, GetOptions, GuaranteedUpdateOptions, HistoryOptions, List, ListOptions,
    ObjectHistory, ObjectState, ObjectVersion, ObjectWatch, Preconditions, Predicate,
    ResourceVersionMatch, ResponseMeta, Storage, StorageError, StorageErrorKind, WatchEvent,
    WatchEventKind, WatchHandle, WatchOptions,
};
pub use transform::{Identity, Transformer};
pub use versioner::{ApiVersioner, Versioner};
