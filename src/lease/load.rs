//! From records to the table, when a store is opened, without keeping the opening waiting.

use crate::error::Result;
use crate::sync::plain::{Ordering, lock};

use super::Leases;
use super::entry::Entry;
use super::table::Table;

impl Leases {
    /// Sees to it that every lease is in the table. One that a record shows may be revoked, or granted, while
    /// this runs: so what was not there before is added only if nothing was taken out meanwhile, and is
    /// else looked at by itself. Ends early, and answers false, when `enough` says so.
    ///
    /// # Errors
    /// What reading answers.
    pub(super) fn load(&self, enough: impl Fn() -> bool) -> Result<bool> {
        let _loading = lock(&self.loading);
        if self.loaded.load(Ordering::Acquire) {
            return Ok(true);
        }
        let removals = self.table.removals();
        // After all others: to look at one waits for who claims it.
        let mut again = Vec::new();
        for record in self.records.all()? {
            let (id, value) = record?;
            if enough() {
                return Ok(false);
            }
            let removals = removals[Table::part(id)];
            if !self.table.adopt(id, Entry::new(value, self.opened), removals) {
                again.push(id);
            }
        }
        for id in again {
            self.find(id)?;
        }
        self.loaded.store(true, Ordering::Release);
        Ok(true)
    }

    /// Adds one lease to the table, if there is such a lease. Answers whether there is.
    ///
    /// # Errors
    /// What reading answers.
    pub(super) fn find(&self, id: i64) -> Result<bool> {
        if self.loaded.load(Ordering::Acquire) {
            return Ok(self.table.get(id).is_some());
        }
        // Nobody grants or revokes it meanwhile.
        let claim = self.table.claim(id);
        if !claim.entry.empty {
            return Ok(true);
        }
        let Some(value) = self.records.get(id)? else { return Ok(false) };
        claim.put(value, self.opened, false);
        Ok(true)
    }
}
