//! Objects as they were: at a version, and all versions of one, the newest first.
//!
//! A version is found by [`Kv::last_change`] at the revision before that of the next one, so each is a look-up of its
//! own, and nothing is held in between.

use std::fmt;
use std::iter::FusedIterator;

use serde_json::Value;

use crate::ErrorKind;
use crate::object::kv::{Kv, KvEvent};
use crate::object::status::{Result as StatusResult, Status};

use super::Storage;
use super::error::StorageError;

const EXPIRED: &str = "The versions of the object before these are too old.";

/// Which versions of an object to tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "to be made with what is wanted of it")]
pub struct HistoryOptions {
    /// Only what is older than this version: that of the last one told, to go on behind it. Empty for the newest and all
    /// before.
    pub before: String,
    /// At most so many; 0 for all.
    pub limit: u64,
}

/// What a change has made of an object.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ObjectVersion<T = Value> {
    /// The version that the object has got by it; of a deletion the version of that.
    pub resource_version: String,
    /// What has become of the object.
    pub state: ObjectState<T>,
}

/// What has become of an object.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ObjectState<T = Value> {
    /// It was made, perhaps anew.
    Created(T),
    /// It became another.
    Changed(T),
    /// It is gone. What it was last is the next version, unless that is too old.
    Deleted,
    /// It cannot be read, as where a key of an encryption is not there any more. The history goes on behind it.
    Unreadable(Status),
}

impl<T> ObjectVersion<T> {
    /// The object, if it is there and can be read.
    pub fn object(&self) -> Option<&T> {
        match &self.state {
            ObjectState::Created(object) | ObjectState::Changed(object) => Some(object),
            ObjectState::Deleted | ObjectState::Unreadable(_) => None,
        }
    }
}

/// The versions of an object, the newest first; made by [`Objects::history`](crate::object::Objects::history).
///
/// It ends behind the first version that is known of, and, where it is known that there have been others, with 410
/// as the last item. So it does after any other error.
#[must_use = "iterators are lazy"]
pub struct ObjectHistory<T = Value> {
    versions: Box<dyn Iterator<Item = StatusResult<ObjectVersion<T>>> + Send>,
}

impl<T: 'static> ObjectHistory<T> {
    /// With each object made something else; what it cannot be made is not readable.
    pub(in crate::object) fn map_objects<U>(
        self,
        mut change: impl FnMut(T) -> StatusResult<U> + Send + 'static,
    ) -> ObjectHistory<U> {
        let mut changed = move |version: ObjectVersion<T>| {
            use ObjectState::{Changed, Created, Deleted, Unreadable};
            let state = match version.state {
                Created(object) => change(object).map_or_else(Unreadable, Created),
                Changed(object) => change(object).map_or_else(Unreadable, Changed),
                Deleted => Deleted,
                Unreadable(why) => Unreadable(why),
            };
            ObjectVersion { resource_version: version.resource_version, state }
        };
        ObjectHistory { versions: Box::new(self.versions.map(move |each| each.map(&mut changed))) }
    }
}

impl<T> Iterator for ObjectHistory<T> {
    type Item = StatusResult<ObjectVersion<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.versions.next()
    }
}

/// What it is made of ends once.
impl<T> FusedIterator for ObjectHistory<T> {}

impl<T> fmt::Debug for ObjectHistory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectHistory").finish_non_exhaustive()
    }
}

impl<K: Kv> Storage<K> {
    /// The object under a key as it was at a version, which may be that of any object, or of a list.
    ///
    /// # Errors
    ///
    /// [`KeyNotFound`](super::StorageErrorKind::KeyNotFound) where there was none then, 410 where that is not known any more,
    /// 504 for a version that is still to come, 400 for what is none; those of [`get`](Self::get) for what cannot be
    /// read.
    pub fn get_at(&self, key: &str, resource_version: &str) -> Result<Value, StorageError> {
        let _call = self.timed("get", key);
        let key = self.key(key)?;
        let at = self.exactly(resource_version)?;
        match self.kv.get(key.as_bytes(), Some(at))?.0 {
            Some(kv) => Ok(self.state(&key, &kv)?.object),
            None => Err(StorageError::not_found(&key, at)),
        }
    }

    /// What has become of the object under a key, the newest version first; nothing where it is not known that there ever was one.
    /// Each version is looked up when it is asked for.
    ///
    /// # Errors
    ///
    /// 400 for a version that is none, 504 for one that is still to come, 410 for one that is not known any more.
    pub fn history(
        &self,
        key: &str,
        options: &HistoryOptions,
    ) -> Result<ObjectHistory, StorageError> {
        let key = self.key(key)?;
        let (mut next, mut is_whole) = (self.kv.revision()?, false);
        if !options.before.is_empty() {
            let before = self.exactly(&options.before)?;
            if before > next {
                return Err(Status::too_large_resource_version(before, next, 0).into());
            }
            let newer = self.kv.last_change(key.as_bytes(), before)?;
            // Of a revision that has not changed the object, what it was is older.
            let is_this = newer.as_ref().is_none_or(|newer| newer.kv.mod_revision == before);
            next = if is_this { before - 1 } else { before };
            is_whole = newer.is_none_or(|newer| is_this && is_creation(&newer));
        }
        let left = (options.limit > 0).then_some(options.limit);
        let walk = Walk { storage: self.clone(), key, next, is_whole, left };
        Ok(ObjectHistory { versions: Box::new(walk) })
    }

    /// A version that has to be one.
    fn exactly(&self, resource_version: &str) -> Result<u64, StorageError> {
        match self.minimum(resource_version)? {
            0 => {
                let message = format!("invalid resource version: {resource_version:?} is none");
                Err(Status::bad_request(message).into())
            }
            version => Ok(version),
        }
    }
}

/// One key on its way back.
struct Walk<K: Kv> {
    storage: Storage<K>,
    key: String,
    /// The version of this revision or before comes next; 0 where there is none.
    next: u64,
    /// Whether nothing is known to have been before.
    is_whole: bool,
    left: Option<u64>,
}

impl<K: Kv> Walk<K> {
    fn step(&mut self) -> StatusResult<Option<ObjectVersion>> {
        if self.next == 0 || self.left == Some(0) {
            return Ok(None);
        }
        let change = match self.storage.kv.last_change(self.key.as_bytes(), self.next) {
            Ok(Some(change)) => change,
            Ok(None) => return Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::Compacted { .. }) => {
                return if self.is_whole { Ok(None) } else { Err(Status::expired(EXPIRED)) };
            }
            Err(error) => return Err(error.into()),
        };
        self.next = change.kv.mod_revision.saturating_sub(1);
        self.is_whole = is_creation(&change);
        self.left = self.left.map(|left| left - 1);
        let state = if change.is_delete {
            ObjectState::Deleted
        } else {
            let made = if self.is_whole { ObjectState::Created } else { ObjectState::Changed };
            self.storage.state(&self.key, &change.kv).map_or_else(
                |why| ObjectState::Unreadable(why.into_status(&self.storage.resource, "")),
                |state| made(state.object),
            )
        };
        let resource_version = change.kv.mod_revision.to_string();
        Ok(Some(ObjectVersion { resource_version, state }))
    }
}

impl<K: Kv> Iterator for Walk<K> {
    type Item = StatusResult<ObjectVersion>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if !matches!(step, Ok(Some(_))) {
            self.next = 0;
        }
        step.transpose()
    }
}

/// Whether it is not known that there was anything before.
fn is_creation(change: &KvEvent) -> bool {
    !change.is_delete && change.kv.create_revision == change.kv.mod_revision
}
