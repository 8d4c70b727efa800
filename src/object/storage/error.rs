//! Why a call of the storage failed, before it is known what the object is called.
//!
//! The codes and texts of `k8s.io/apiserver/pkg/storage/errors.go`; [`StorageError::into_status`] is what
//! `storage/errors/storage.go` makes of them.

use std::fmt;

use crate::object::kind::GroupResource;
use crate::object::status::{Cause, Details, Reason, Status};

/// Why a call of [`Storage`](super::Storage) failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageError {
    kind: StorageErrorKind,
    key: String,
    resource_version: u64,
    message: String,
    status: Option<Status>,
}

/// What kind of failure it is. The numbers up to 7 are those of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StorageErrorKind {
    /// There is no such key.
    KeyNotFound = 1,
    /// There is one already.
    KeyExists = 2,
    /// The object does not meet the preconditions.
    InvalidObject = 4,
    /// What is stored cannot be read.
    CorruptObject = 7,
    /// Something is broken here.
    Internal = 8,
    /// Somebody above has refused, or the store below: see [`StorageError::status`].
    Refused = 9,
}

impl StorageErrorKind {
    fn text(self) -> &'static str {
        match self {
            Self::KeyNotFound => "key not found",
            Self::KeyExists => "key exists",
            Self::InvalidObject => "invalid object",
            Self::CorruptObject => "corrupt object",
            Self::Internal => "internal error",
            Self::Refused => "refused",
        }
    }
}

impl StorageError {
    pub(crate) fn new(
        kind: StorageErrorKind,
        key: &str,
        resource_version: u64,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, key: key.into(), resource_version, message: message.into(), status: None }
    }

    pub(crate) fn not_found(key: &str, resource_version: u64) -> Self {
        Self::new(StorageErrorKind::KeyNotFound, key, resource_version, "")
    }

    pub(crate) fn exists(key: &str) -> Self {
        Self::new(StorageErrorKind::KeyExists, key, 0, "")
    }

    pub(crate) fn invalid_object(key: &str, message: impl Into<String>) -> Self {
        Self::new(StorageErrorKind::InvalidObject, key, 0, message)
    }

    pub(crate) fn internal(key: &str, message: impl fmt::Display) -> Self {
        Self::new(StorageErrorKind::Internal, key, 0, message.to_string())
    }

    pub(crate) fn corrupt(key: &str, resource_version: u64, message: impl fmt::Display) -> Self {
        Self::new(StorageErrorKind::CorruptObject, key, resource_version, message.to_string())
    }

    /// Several objects of a list cannot be read.
    pub(crate) fn corrupt_list(
        resource: &GroupResource,
        message: String,
        causes: Vec<Cause>,
    ) -> Self {
        let mut details = Details::default();
        (details.group, details.kind) = (resource.group.clone(), resource.resource.clone());
        details.name = "list".into();
        details.causes = causes;
        let status = Status::new(Reason::StoreReadError, &message).with_details(details);
        let kind = StorageErrorKind::CorruptObject;
        Self { kind, key: String::new(), resource_version: 0, message, status: Some(status) }
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> StorageErrorKind {
        self.kind
    }

    /// The full key it is about; empty where it is about none.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What is told as it is: what somebody above or the store has said, where the kind is [`Refused`](StorageErrorKind::Refused), and
    /// which objects of a list cannot be read.
    pub fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// What a client is told of it, who knows the object by its resource and name.
    pub fn into_status(self, resource: &GroupResource, name: &str) -> Status {
        if let Some(status) = self.status {
            return status;
        }
        match self.kind {
            StorageErrorKind::KeyNotFound => Status::not_found(resource, name),
            StorageErrorKind::KeyExists => Status::already_exists(resource, name),
            StorageErrorKind::InvalidObject => Status::conflict(resource, name, self),
            StorageErrorKind::CorruptObject => Status::internal(self),
            StorageErrorKind::Internal | StorageErrorKind::Refused => {
                Status::internal(self.message)
            }
        }
    }
}

impl From<Status> for StorageError {
    fn from(status: Status) -> Self {
        let kind = StorageErrorKind::Refused;
        let message = status.message().to_owned();
        Self { kind, key: String::new(), resource_version: 0, message, status: Some(status) }
    }
}

impl From<crate::Error> for StorageError {
    fn from(error: crate::Error) -> Self {
        Status::from(error).into()
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, key, resource_version, message, status } = self;
        if let Some(status) = status {
            return write!(f, "{status}");
        }
        write!(
            f,
            "StorageError: {}, Code: {}, Key: {key}, ResourceVersion: {resource_version}, AdditionalErrorMsg: {message}",
            kind.text(),
            *kind as u8
        )
    }
}

impl std::error::Error for StorageError {}
