//! Taking keys back to what they were.

use std::collections::BTreeMap;

use crate::error::Result;

use super::update::{Update, Written};
use crate::kv::at::At;
use crate::kv::range::AsKeyRange;
use crate::kv::seam::Difference;
use crate::kv::space;

impl Update<'_> {
    /// Puts the keys of a range back to what they were at a point in history: those that have been deleted or changed since get
    /// the value and the lease of then, those that have come since are deleted. A lease that has ended since does not come
    /// back, its keys are put without one; a key with the value and the lease of then is left as it is. What this transaction has
    /// done in the range before is undone, too. What is there since stays in the history, so a revert can be reverted.
    ///
    /// Answers how many keys are changed. The range counts as read. Cost: that of [`Store::diff`](crate::Store::diff), with
    /// the values in memory.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// let good = store.put("/flags/dark", "off")?.revision;
    /// store.put("/flags/dark", "on")?;
    /// store.put("/flags/beta", "on")?;
    /// let done = store.update(|update| {
    ///     update.metadata("by ada: the rollout failed");
    ///     update.revert(good, "/flags/".."/flags0")
    /// })?;
    /// assert_eq!((done.value, done.revision), (2, 5));
    /// assert_eq!(store.get("/flags/dark")?.expect("it is there").value, "off");
    /// assert_eq!(store.get("/flags/beta")?, None);
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Store::at`](crate::Store::at): [`Compacted`](crate::ErrorKind::Compacted) if the range cannot be read as of then.
    /// [`FutureRevision`](crate::ErrorKind::FutureRevision).
    pub fn revert(&mut self, to: impl Into<At>, range: impl AsKeyRange) -> Result<u64> {
        // What is read is the newest state in the order, which may be younger than what is visible.
        let to = match to.into() {
            At::Latest => self.view.revision(),
            At::Time(micros) => {
                At::Time(micros).revision(&self.store.engine)?.min(self.view.revision())
            }
            to @ At::Revision(_) => to.revision(&self.store.engine)?,
        };
        let range = range.to_key_range();
        if range.is_empty() {
            return Ok(0);
        }
        let (start, end) = space::user_range(&range);
        let differences = self.view.diff(to, &start, &end)?;
        self.seen.ranges.push((start, end));
        // All of it, or nothing where something cannot be read.
        let mut back = BTreeMap::new();
        for difference in differences {
            let Difference { key, old, new } = difference?;
            let key = space::strip(key);
            let written = match old {
                None => None,
                Some(old) => {
                    let lease = if self.is_lease(old.lease)? { old.lease } else { 0 };
                    if new.is_some_and(|new| (&new.value, new.lease) == (&old.value, lease)) {
                        continue;
                    }
                    Some(Written { value: old.value, lease })
                }
            };
            back.insert(key, written);
        }
        let count = back.len() as u64;
        self.writes.retain(|key, _| !range.contains(key));
        self.writes.append(&mut back);
        Ok(count)
    }

    /// Whether a lease is there, which it must be where the transaction lands.
    fn is_lease(&mut self, id: i64) -> Result<bool> {
        if id == 0 || self.seen.leases.contains(&id) {
            return Ok(id != 0);
        }
        let is_there = self.view.get(&space::lease(id))?.is_some();
        if is_there {
            self.seen.leases.insert(id);
        }
        Ok(is_there)
    }
}
