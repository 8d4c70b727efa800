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
//! they have read, and gets 409 if another came in between:
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
//! # Where to begin
//!
//! What a program uses:
//!
//! * [`Objects`] has every call, for the objects of one [`Kind`]: [`create`](Objects::create), [`get`](Objects::get),
//!   [`list`](Objects::list), [`update`](Objects::update), [`delete`](Objects::delete). Where the change is what matters,
//!   and not what it was made from, [`modify`](Objects::modify) makes it for certain, [`modify_status`](Objects::modify_status)
//!   that of a status, and [`create_or_modify`](Objects::create_or_modify) also where there is nothing.
//! * [`Objects::typed`] reads and writes them as a Rust type: [`Typed`].
//! * [`Objects::watch`] tells what happens: an [`ObjectWatch`] of [`WatchEvent`]s. List first, then watch from the version of
//!   the list; or begin with what there is, see [`WatchOptions`]. Which objects, says a [`Predicate`] of a
//!   [`LabelSelector`] and a [`FieldSelector`]. A long list comes in [`pages`](Objects::pages).
//! * [`Objects::get_at`] is an object as it was at a version, [`Objects::history`] all that has become of it, deletions
//!   included; and a [`list`](Objects::list) can be of an older version.
//! * [`Objects::patch`] takes what is to be different, in four ways: [`PatchType`]. With [`PatchType::Apply`] each applier says what
//!   it wants, and what several want differently is told.
//! * [`KindStrategy`] has the usual rules of a kind (status, generations, names, time to live, graceful deletion), [`Strategy`]
//!   all that there can be. A [`Schema`] says how patches and applies merge lists.
//! * [`AesGcm`] encrypts objects at rest (feature `encryption`), and says what that is good for; keys change by
//!   [`Objects::rewrite_stale`]. What is stored in an older version of its kind is read by
//!   [`Objects::also_stored_as`].
//! * [`Status`] is every error: the one of Kubernetes, with its code, [`Reason`] and text, ready to be sent. [`meta`] reads
//!   `metadata`.
//! * To serve objects: [`WatchEvent`] and [`Status`] serialize, [`PatchType::from_content_type`],
//!   [`PropagationPolicy::parse`] and [`Predicate::parse`] read what a request says, [`List::into_answer`] and
//!   [`Deletion::into_answer`] are answers. The example `kube_api` does it for `kubectl`, the example `controller` is a
//!   controller, and `objects` shows each call here.
//!
//! * The same objects in an etcd cluster: `Objects::new(Arc::new(EtcdKv::connect(..)?), kind)` instead of a store (feature `etcd`).
//!
//! What they stand on: [`Storage`] keeps objects under keys and knows no rule ([`StorageError`], [`Preconditions`],
//! [`Versioner`]); [`Transformer`] changes bytes on the way; and a [`Kv`] is what is asked of a store, with the words of
//! [`kv`]. The patches are functions of JSON, too, as [`merge_patch`] and [`strategic_merge_patch`].
//!
//! # Where they lie, and for how long
//!
//! An object lies under the key `/registry/GROUP/RESOURCE/NAMESPACE/NAME`; without the group for the core group, without the
//! namespace for kinds that have none ([`prefix`](Objects::prefix) and [`resource_prefix`](Objects::resource_prefix)
//! choose otherwise). The value is its JSON with sorted names and without the version, or what a [`Transformer`] has made
//! of it. So equal objects have equal bytes, and an update that changes nothing writes nothing.
//!
//! The store keeps every version, also of what was deleted, until it is told to forget: by
//! [`Store::compact`](crate::Store::compact), or by [`Store::set_retention`](crate::Store::set_retention) for a prefix. Lists
//! of an older version, and watches from one, are then 410 `Expired`: list anew, and go on from there. Set the same rule
//! for all that one watch looks at.
//!
//! # Threads
//!
//! A call returns when what it has written is as durable as the store makes it: it blocks, as a rule for one sync of the
//! disk, and many threads share a sync. In an async program call from a thread that may block, as by `spawn_blocking` of
//! tokio. A watch is an iterator that waits, and a `Stream` in any runtime; [`next_timeout`](ObjectWatch::next_timeout) waits for
//! so long only, and a [`WatchHandle`] ends it from elsewhere.
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
//! - Where a transformer cannot read a version that a watch is to tell, as for want of a key that has been left out, the
//!   watch ends with 410 and not with 500: listing anew helps. Among the objects that a watch begins with it is 500.
//! - Nobody ends a graceful deletion when its time is over, and nobody collects what a deleted object owned: there it is
//!   done by other programs than the API server, and here it is for yours (see [`DeleteOptions`]).
//! - A time to live ends an object whatever finalizers it has, as it ends a key of etcd there.
//! - What is unknown in `metadata` is kept as any other field; `lables` is stored. (There it is dropped, or refused.)
//! - [`Schema`] neither validates nor fills in defaults.
//! - There is no cache between clients and the store: what is read is what is stored, "too old" comes from
//!   compaction alone, and nothing waits for a cache to catch up.
//! - Fields that a schema does not know are told or refused as [`FieldValidation`] says, but never dropped: what is taken is
//!   kept whole. (An apply takes no such field.) Objects are JSON; who serves YAML, as `examples/kube_api` does, makes
//!   JSON of it.
//! - A kind has one version. Objects that are stored under another version of their group are answered as they are stored, and
//!   cannot be written (400, or 422 of a patch) unless [`Objects::also_stored_as`] says how they become those of this one.
//! - What a patch makes no object of its kind any more is refused with its kind and name, which are empty there.
//! - Hooks behind a write (`after_create` and its like) are not called for dry runs, nor by whoever finds that another has
//!   made the end of an object.
//! - How long calls of the storage take is told by metrics, and of those above 500 ms by an event, where the features of
//!   the crate ask for it; there are no steps of a call in it.
//!
//! Which test shows what is in `src/object/TESTS.md`.

pub mod apply;
mod decode;
#[cfg(feature = "encryption")]
mod encrypt;
#[cfg(feature = "etcd")]
mod etcd;
pub(crate) mod kind;
pub mod kv;
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
#[cfg(feature = "etcd")]
pub use etcd::{EtcdKv, EtcdOptions, EtcdScan, EtcdWatch};
pub use kind::{GroupResource, Kind};
#[doc(no_inline)]
pub use kv::Kv;
pub use names::NameRule;
pub use patch::{PATCH_BYTES_MAX, PatchType, json_patch, merge_patch, strategic_merge_patch};
pub use prefix::Prefixed;
pub use registry::{
    CreateOptions, DeleteOptions, Deletion, GarbageCollection, GenerationRule, KindStrategy,
    Objects, Pages, PatchOptions, PropagationPolicy, Strategy, Typed, TypedEvent, TypedWatch,
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
    ResourceVersionMatch, ResponseMeta, Rewritten, Storage, StorageError, StorageErrorKind,
    WatchEvent, WatchEventKind, WatchHandle, WatchOptions,
};
pub use transform::{Identity, Transformer};
pub use versioner::{ApiVersioner, Versioner};
