//! Writing anew what is stale, as after a change of the key of encryption, or of the version of a kind.

use crate::kv::KeyValue;
use crate::object::kv::{Kv, ScanRequest};
use crate::object::status::{Cause, Reason};

use super::commit::{Lease, Outcome};
use super::error::{StorageError, StorageErrorKind};
use super::list::{UNREADABLE_MAX, cause};
use super::ttl::Lent;
use super::{Decoded, Storage, Unreadable};

/// So many objects are read from one view of the store: nothing is kept from being forgotten for long.
const PAGE: usize = 500;

/// What [`Objects::rewrite_stale`](crate::object::Objects::rewrite_stale) has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rewritten {
    /// How many objects there were.
    pub looked_at: u64,
    /// How many of them were stale, and have been written anew.
    pub written: u64,
    /// From this revision on nothing is stale, unless somebody writes by another transformer or as another version: what is older
    /// can be [compacted](crate::Store::compact).
    pub revision: u64,
}

/// What becomes of one object.
enum One {
    Written,
    /// It was not stale, or is gone.
    Left,
    /// It cannot be read, or is refused as it would be written.
    Failed(Cause),
}

impl<K: Kv> Storage<K> {
    /// Writes anew the objects below a key that the transformer calls stale. What cannot be read or
    /// written is told at the end.
    pub(in crate::object) fn rewrite_stale(&self, key: &str) -> Result<Rewritten, StorageError> {
        let prefix = self.prefix_of(key)?;
        let mut start = prefix.clone().into_bytes();
        let mut done = Rewritten::default();
        let mut failed = Vec::new();
        loop {
            let request = ScanRequest { prefix: prefix.as_bytes(), start: &start, at: None };
            let (page, _) = self.kv.scan(request)?;
            let mut last = None;
            for kv in page.take(PAGE) {
                let kv = kv?;
                last = Some(kv.key.clone());
                done.looked_at += 1;
                match self.rewrite(kv)? {
                    One::Written => done.written += 1,
                    One::Failed(why) if failed.len() < UNREADABLE_MAX => failed.push(why),
                    One::Left | One::Failed(_) => {}
                }
            }
            let Some(last) = last else { break };
            start = last.to_vec();
            start.push(0);
        }
        if !failed.is_empty() {
            return Err(self.failed("rewrite", failed));
        }
        done.revision = self.kv.revision()?;
        Ok(done)
    }

    /// Writes one object as long as it is stale, whoever comes in between.
    fn rewrite(&self, mut kv: KeyValue) -> Result<One, StorageError> {
        loop {
            let data = match self.codec.decode(&kv.key, &kv.value, kv.mod_revision) {
                Ok(Decoded { is_stale: false, .. }) => return Ok(One::Left),
                Ok(Decoded { data, .. }) => data,
                Err(why) => return Ok(One::Failed(cause(&kv, &why))),
            };
            let Ok(key) = std::str::from_utf8(&kv.key) else {
                let why = Unreadable::Decode("its key is not UTF-8".into());
                return Ok(One::Failed(cause(&kv, &why)));
            };
            match self.put(key, &data, kv.mod_revision, Lease::Keep, &mut Lent::default()) {
                Ok(Outcome::Done(_)) => return Ok(One::Written),
                Ok(Outcome::Lost(None)) => return Ok(One::Left),
                Ok(Outcome::Lost(Some(there))) => kv = there,
                Err(why) if is_of_the_object(&why) => {
                    let why = Cause::new("UnexpectedServerResponse", why.to_string(), key);
                    return Ok(One::Failed(why));
                }
                Err(why) => return Err(why),
            }
        }
    }
}

/// Whether the next object may be written all the same: the transformer refuses this one, or makes it too large.
fn is_of_the_object(why: &StorageError) -> bool {
    let is_too_large =
        why.status().is_some_and(|status| status.reason() == Reason::RequestEntityTooLarge);
    is_too_large || why.kind() == StorageErrorKind::Internal
}
