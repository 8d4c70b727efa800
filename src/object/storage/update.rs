//! `GuaranteedUpdate`: read, change, write if nobody has meanwhile, else again with what is there now.

use serde_json::Value;

use crate::object::kv::Kv;

use super::error::StorageError;
use super::{Lease, Lent, Outcome, Preconditions, State, Storage, encode};

/// How to update.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "it is all that Kubernetes has")]
pub struct GuaranteedUpdateOptions {
    /// Whether an object that is not there is an empty one, to be made, instead of an error.
    pub ignore_not_found: bool,
}

/// What is known of the object that is to be changed.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ResponseMeta {
    /// The revision of its last change; 0 where there is none.
    pub resource_version: u64,
    /// The lease it is attached to; 0 for none, or where it is not known.
    pub lease: i64,
}

/// A state that may be a suggestion.
pub(super) struct Known {
    pub(super) state: State,
    /// Whether it has been read from the store, and is not what somebody believes to be there.
    pub(super) is_current: bool,
}

impl<K: Kv> Storage<K> {
    /// Changes an object by a function, for certain: `try_update` gets what is there, and is called again with what
    /// is there then if others have changed it meanwhile. It answers the object to be stored and its time to live in
    /// seconds: `None` keeps what it has, `Some(0)` is for ever.
    ///
    /// - If what it answers is what is stored, nothing is written, and the version stays, unless the
    ///   [`Transformer`](crate::object::Transformer) calls the stored bytes stale, or a time to live begins or ends.
    /// - `cached` is what the caller believes to be there. It saves a read, and is no more than a suggestion: when the
    ///   preconditions or `try_update` refuse it, or the write meets another revision, what is there is
    ///   read, and if it is another the change is tried again.
    /// - The version of what `try_update` answers is not looked at.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{GroupResource, Preconditions, Storage, GuaranteedUpdateOptions};
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// # let counters = Storage::new(store, "/registry", GroupResource::new("", "counters"), "/counters");
    /// let options = GuaranteedUpdateOptions { ignore_not_found: true };
    /// for _ in 0..3 {
    ///     counters.guaranteed_update("/counters/a", options, &Preconditions::none(), &mut |mut counter, _| {
    ///         counter["count"] = (counter["count"].as_u64().unwrap_or(0) + 1).into();
    ///         Ok((counter, None))
    ///     }, None)?;
    /// }
    /// assert_eq!(counters.get("/counters/a", &Default::default())?["count"], 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyNotFound`](super::StorageErrorKind::KeyNotFound),
    /// [`InvalidObject`](super::StorageErrorKind::InvalidObject) where the preconditions are not met, whatever
    /// `try_update` answers.
    pub fn guaranteed_update(
        &self,
        key: &str,
        options: GuaranteedUpdateOptions,
        preconditions: &Preconditions,
        try_update: &mut dyn FnMut(
            Value,
            ResponseMeta,
        ) -> Result<(Value, Option<u64>), StorageError>,
        cached: Option<&Value>,
    ) -> Result<Value, StorageError> {
        let _call = self.timed("update", key);
        let key = self.key(key)?;
        let ignore = options.ignore_not_found;
        let mut known = self.known(&key, cached, ignore)?;
        let mut own = Lent::default();
        loop {
            if let Err(unmet) = preconditions.check(&key, &known.state.object) {
                if known.is_current {
                    return Err(unmet);
                }
                known = Known { state: self.current(&key, ignore)?, is_current: true };
                continue;
            }
            let State { object, revision, lease, .. } = &mut known.state;
            let told = ResponseMeta { resource_version: *revision, lease: *lease };
            // Whoever tries again has read it again.
            let (mut object, ttl) = match try_update(std::mem::take(object), told) {
                Ok(updated) => updated,
                Err(error) => {
                    self.refresh_after(error, &key, &mut known, ignore)?;
                    continue;
                }
            };
            self.codec.versioner.prepare_for_storage(&mut object)?;
            let data = encode(&mut object)?;
            let keeps_lease = match ttl {
                None => true,
                Some(0) => known.state.lease == 0,
                Some(_) => false,
            };
            if keeps_lease && !known.state.is_stale && data == known.state.data {
                if !known.is_current {
                    let revision = known.state.revision;
                    known = Known { state: self.current(&key, ignore)?, is_current: true };
                    // What was suggested is not what is there, and may be something else to whoever asked.
                    let ends_lease = ttl == Some(0) && known.state.lease != 0;
                    let is_other = known.state.revision != revision || known.state.data != data;
                    if is_other || ends_lease {
                        continue;
                    }
                }
                if !known.state.is_stale {
                    self.codec.attach(&mut object, known.state.revision);
                    return Ok(object);
                }
            }
            let lease = match ttl {
                // What does not live yet has no lease to keep.
                None if known.state.revision == 0 => Lease::Ttl(0),
                None => Lease::Keep,
                Some(ttl) => Lease::Ttl(ttl),
            };
            match self.put(&key, &data, known.state.revision, lease, &mut own)? {
                Outcome::Done(revision) => {
                    self.codec.attach(&mut object, revision);
                    return Ok(object);
                }
                Outcome::Lost(there) => {
                    let state = self.state_or_none(&key, there, ignore)?;
                    known = Known { state, is_current: true };
                }
            }
        }
    }

    /// What the caller suggests, or what is there.
    pub(super) fn known(
        &self,
        key: &str,
        cached: Option<&Value>,
        ignore_not_found: bool,
    ) -> Result<Known, StorageError> {
        match cached {
            Some(object) if self.codec.versioner.object_resource_version(object)? > 0 => {
                Ok(Known { state: self.suggested(object)?, is_current: false })
            }
            // What nobody has stored is no suggestion of what is there.
            _ => Ok(Known { state: self.current(key, ignore_not_found)?, is_current: true }),
        }
    }

    /// After a refusal: reads what is there, unless that was refused already.
    pub(super) fn refresh_after(
        &self,
        error: StorageError,
        key: &str,
        known: &mut Known,
        ignore_not_found: bool,
    ) -> Result<(), StorageError> {
        if known.is_current {
            return Err(error);
        }
        let refused = known.state.revision;
        *known = Known { state: self.current(key, ignore_not_found)?, is_current: true };
        if known.state.revision == refused {
            return Err(error);
        }
        Ok(())
    }
}
