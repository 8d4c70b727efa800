//! The end of leases whose time is over, and writing down what is left of others.

use std::iter;

use annals_format::lease::Value;

use crate::error::{ErrorKind, Result};
use crate::kv::CommitOptions;
use crate::observe;
use crate::options::Durability;
use crate::sync::plain::{Ordering, lock};

use super::Leases;
use super::entry::{Entry, Note};
use super::table::{Claim, Found};

/// How many leases end with one sync of the log. Each is a transaction of its own; more of them would keep
/// the commits of others waiting that share the sync.
pub(super) const GROUP: usize = 16;

/// How many records are written by one transaction while others commit, and on close.
const NOTES: usize = 500;
const NOTES_AT_ONCE: usize = 4096;

/// On close no record says more than this of a time that is not left, in microseconds.
const LOST_ON_CLOSE: i64 = 1_000_000;

impl Found {
    /// The leases to end next.
    pub(super) fn take_due(&mut self) -> Vec<i64> {
        let count = self.due.len().min(GROUP);
        self.due.drain(..count).map(|(_, id)| id).collect()
    }

    pub(super) fn has_many_notes(&self) -> bool {
        self.notes.len() >= NOTES
    }

    /// The notes to write next, the oldest first.
    pub(super) fn take_notes(&mut self) -> Vec<Note> {
        let count = self.notes.len().min(NOTES);
        self.notes.drain(..count).collect()
    }
}

/// What goes with the transaction: who looks at the history of the keys sees why they are gone.
fn because(id: i64) -> CommitOptions {
    CommitOptions { metadata: format!("lease {id} expired").into(), ..CommitOptions::default() }
}

impl Leases {
    /// Ends leases that are due. They are ordered one after the other, and waited for together.
    ///
    /// # Errors
    /// The first; the lease it is about is tried again later, the others have ended.
    pub(super) fn expire(&self, due: &[i64]) -> Result<()> {
        let mut first = Ok(());
        let mut ending = Vec::with_capacity(due.len());
        for claim in due.iter().filter_map(|id| self.table.claim_due(*id, true)) {
            match self.records.revoke(claim.id(), &because(claim.id())) {
                Ok((_, done)) => ending.push((claim, done)),
                // There was nothing left to end.
                Err(error) if matches!(error.kind(), ErrorKind::LeaseNotFound { .. }) => {
                    claim.remove();
                }
                Err(error) => first = first.and(Err(error)),
            }
        }
        // The last one first: what it waits for makes the others durable.
        while let Some((claim, done)) = ending.pop() {
            done.wait()?;
            self.expired.fetch_add(1, Ordering::Relaxed);
            observe::count(observe::LEASES_EXPIRED, 1);
            claim.remove();
        }
        first
    }

    /// Ends a lease that a renewal has found to be due, unless somebody else does. Answers whether it
    /// did.
    ///
    /// # Errors
    /// What writing answers.
    pub(super) fn expire_one(&self, id: i64) -> Result<bool> {
        let Some(claim) = self.table.claim_due(id, false) else { return Ok(false) };
        self.end_claimed(&claim)?;
        claim.remove();
        Ok(true)
    }

    /// Ends a lease that is due and claimed. The claim goes on.
    ///
    /// # Errors
    /// What writing answers.
    pub(super) fn end_claimed(&self, claim: &Claim<'_>) -> Result<()> {
        match self.records.revoke(claim.id(), &because(claim.id())) {
            Ok((_, done)) => {
                done.wait()?;
                self.expired.fetch_add(1, Ordering::Relaxed);
                observe::count(observe::LEASES_EXPIRED, 1);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::LeaseNotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Renews a lease whose record says that less than all of its time is left: if the store ended now, it
    /// would end early. Answers its time to live; `None` if it is not like that any more.
    ///
    /// # Errors
    /// What writing answers. Then it was not renewed.
    pub(super) fn renew_noted(&self, id: i64) -> Result<Option<i64>> {
        let claim = self.table.claim(id);
        if claim.entry.empty || claim.is_due() || !claim.entry.is_noted() {
            return Ok(None);
        }
        claim.void_notes();
        match self.records.renew_always(id) {
            Ok(ttl) => {
                claim.renewed();
                Ok(Some(ttl))
            }
            Err(error) => {
                if matches!(error.kind(), ErrorKind::LeaseNotFound { .. }) {
                    claim.remove();
                }
                Err(error)
            }
        }
    }

    /// What is left of the time of a lease whose record says this, in milliseconds.
    pub(super) fn left(&self, id: i64, value: Value) -> u64 {
        let entry = self.table.get(id).unwrap_or_else(|| Entry::new(value, self.opened));
        entry.left(self.table.now())
    }

    /// Writes down what is left of leases, as far as they have not been renewed since.
    ///
    /// Who renews a lease of which a note was taken writes its record anew, and has the note void before. So
    /// if that record is ordered before this, the evaluation here does not write it, or is made again; and
    /// if it is ordered after, it counts.
    ///
    /// # Errors
    /// What writing answers. Then the notes are written later.
    pub(super) fn write_down(&self, notes: &[Note], durability: Option<Durability>) -> Result<()> {
        if notes.is_empty() {
            return Ok(());
        }
        let current = || {
            let current = notes.iter().filter(|note| self.table.is_current(note));
            current.map(|note| (note.id, note.value)).collect()
        };
        let written = self.records.note(&current, durability);
        if written.is_err() {
            lock(&self.found).notes.splice(..0, notes.iter().copied());
        }
        written
    }

    /// Writes down what is left of all leases, for the store is about to be closed. What cannot be written
    /// makes leases live longer.
    pub(super) fn write_down_all(&self) {
        let open = self.table.now().saturating_sub(self.opened);
        // Of those that are not loaded yet the same is lost as of the store's time.
        if self.table.interval == 0 || open >= LOST_ON_CLOSE && self.load(|| false).is_err() {
            return;
        }
        // Those that were taken before and wait come first: the table takes them as written.
        let waiting = std::mem::take(&mut lock(&self.found).notes);
        for notes in iter::once(waiting).chain(self.table.notes(LOST_ON_CLOSE)) {
            for some in notes.chunks(NOTES_AT_ONCE) {
                // Closing makes them durable, all at once.
                if self.write_down(some, Some(Durability::Buffered)).is_err() {
                    return;
                }
            }
        }
    }

    /// For how long the lease that is overdue for longest has been.
    pub(super) fn overdue(&self) -> u64 {
        let since = lock(&self.found).due.front().map(|(since, _)| *since);
        let late = since.map_or(0, |since| self.table.now().saturating_sub(since));
        u64::try_from(late).unwrap_or(0)
    }
}
