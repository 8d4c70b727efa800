//! Bringing keys of a store that is being put together back to what they were, or deleting them: those of which the newest
//! version has no value, as that is lost.

use crate::engine::inspect::{BroughtBack, PutTogether};
use crate::error::Result;

use super::build::delete;
use super::request::{Op, PutRequest};
use super::seam::Engine;
use super::store::Store;

/// What values that keys are brought back to may take. Keys of which the value is more are deleted.
const BYTES_MAX: usize = 32 << 20;

impl PutTogether {
    /// Brings each of these keys back to what it was before a revision, as far as that can be read, in one transaction;
    /// else deletes it. It keeps its lease.
    ///
    /// # Errors
    /// What opening, reading, writing and closing a store answer; `InvalidArgument` if somebody has put another store
    /// there meanwhile.
    pub fn bring_back(self, keys: &[(Vec<u8>, u64)]) -> Result<(Self, BroughtBack)> {
        if keys.is_empty() {
            return Ok((self, BroughtBack::default()));
        }
        let (path, options) = self.let_go();
        let (engine, report) = Engine::open_loading(&path, &options.clone().background(false))?;
        let store = Store::over(engine, report)?;
        let (mut ops, mut kept, mut bytes) = (Vec::<Op>::new(), Vec::new(), 0);
        for (key, revision) in keys {
            // What is forgotten, or damaged, cannot be told.
            let before = store.get_at(key, revision.saturating_sub(1)).ok().flatten();
            bytes += before.as_ref().map_or(0, |before| before.value.len());
            let before = before.filter(|_| bytes <= BYTES_MAX);
            kept.push(before.as_ref().map(|before| before.mod_revision));
            ops.push(match before {
                Some(before) => PutRequest::new(key, before.value).ignore_lease().into(),
                None => delete(key),
            });
        }
        let done = store.txn().then(ops).commit()?;
        store.close()?;
        let revision = Some(done.revision);
        Ok((Self::held(path, &options)?, BroughtBack { revision, kept }))
    }
}
