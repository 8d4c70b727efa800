//! Versioned objects over a store, as a Kubernetes API server keeps them under its REST layer.

mod apply;
pub(crate) mod kind;
mod kv;
pub mod meta;
mod patch;
mod schema;
mod selector;
mod status;
mod storage;
mod transform;
mod versioner;

pub use apply::{Manager, apply, keep_timestamps, update};
pub use kind::{GroupResource, Kind};
pub use kv::{Changes, Kv, KvEvent, KvWatch, Page, PageRequest, StoreWatch};
pub use patch::{PATCH_BYTES_MAX, PatchType, json_patch, merge_patch, strategic_merge_patch};
pub use schema::{ListType, PatchStrategy, Scalar, Schema};
pub use selector::{
    FieldRequirement, FieldSelector, LabelOperator, LabelRequirement, LabelSelector,
};
pub use status::{Cause, Details, OPTIMISTIC_LOCK_MESSAGE, Reason, Result, Status};
pub use storage::{
    Deleted, GetOptions, Preconditions, ResponseMeta, Storage, StorageError, StorageErrorKind,
    UpdateOptions,
};
pub use transform::{Identity, Transformer};
pub use versioner::{ApiVersioner, Versioner};
