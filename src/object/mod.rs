//! Versioned objects over a store, as a Kubernetes API server keeps them under its REST layer.

mod apply;
#[cfg(feature = "encryption")]
mod encrypt;
pub(crate) mod kind;
mod kv;
pub mod meta;
mod patch;
mod prefix;
mod registry;
mod schema;
mod selector;
mod status;
mod storage;
mod transform;
mod versioner;

pub use apply::{Manager, apply, update};
#[cfg(feature = "encryption")]
pub use encrypt::{AesGcm, EncryptionKey};
pub use kind::{GroupResource, Kind};
pub use kv::{Changes, Kv, KvEvent, KvWatch, ScanRequest, StoreWatch, WatchRequest};
pub use patch::{PATCH_BYTES_MAX, PatchType, json_patch, merge_patch, strategic_merge_patch};
pub use prefix::{Prefixed, Unencrypted};
pub use registry::{
    CreateOptions, DeleteOptions, Deletion, GarbageCollection, GenerationRule, KindStrategy,
    NameRule, Objects, PatchOptions, PropagationPolicy, PutOptions, Strategy, Typed,
};
pub use schema::{ListType, PatchStrategy, Scalar, Schema};
pub use selector::{
    FieldRequirement, FieldSelector, LabelOperator, LabelRequirement, LabelSelector,
};
pub use status::{Cause, Details, OPTIMISTIC_LOCK_MESSAGE, Reason, Result, Status};
pub use storage::{
    Deleted, FieldsOf, GetOptions, List, ListOptions, Match, ObjectWatch, Preconditions, Predicate,
    ResponseMeta, Storage, StorageError, StorageErrorKind, UpdateOptions, WatchEvent,
    WatchEventKind, WatchHandle, WatchOptions,
};
pub use transform::{Identity, Transformer};
pub use versioner::{ApiVersioner, Versioner};
