//! What the bench asks of a store: multi-version keys with one dense global revision.
//!
//! annals has this natively. The others get it by the recipe in [`crate::recipe`], by `SQLite`'s table or
//! by `SurrealKV`'s timestamps. Reads hand borrowed bytes to a visitor, so that nobody pays for a copy
//! that its interface does not need.

use std::path::Path;

/// The bench stops at the first error, whatever it is.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What an acknowledged commit has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// On the disk: synced before the answer.
    Sync,
    /// Ordered and visible; synced some time later or never.
    Buffered,
}

/// One compare-and-swap: put `value` if the newest revision of `key` is `seen` (0: never written). Without
/// `seen` an update: read the key, and put `value` whatever it was, with nobody in between.
#[derive(Clone, Copy, Debug)]
pub struct Cas<'a> {
    pub key: &'a [u8],
    pub seen: Option<u64>,
    pub value: &'a [u8],
}

impl Cas<'_> {
    /// Whether it may go on from the newest revision of its key.
    pub fn holds(&self, newest: u64) -> bool {
        self.seen.is_none_or(|seen| seen == newest)
    }
}

/// Commits so far, and the syncs (of a peer: the native transactions) that they took.
#[derive(Clone, Copy, Debug)]
pub struct Groups {
    pub commits: u64,
    pub syncs: u64,
}

/// Called with a revision and the value it wrote.
pub type Visit<'a> = &'a mut dyn FnMut(u64, &[u8]);

/// Called with a key, the revision of its version and the value.
pub type VisitKey<'a> = &'a mut dyn FnMut(&[u8], u64, &[u8]);

/// A store under test. Every method may be called from many threads at once.
pub trait Peer: Send + Sync {
    /// Writes each pair under a revision of its own, together as fast as the store can; returns the
    /// last revision. Keys do not repeat within one call.
    fn load(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<u64>;

    /// One compare-and-swap as one commit: the new revision, or `None` where the compare failed.
    fn cas(&self, cas: Cas<'_>) -> Result<Option<u64>>;

    /// Many commits together, all acknowledged on return, each with a revision of its own. A later
    /// one of a key sees what an earlier one wrote. annals does them by tickets, the others in one
    /// native transaction.
    fn cas_window(&self, window: &[Cas<'_>]) -> Result<Vec<Option<u64>>>;

    /// How commits were grouped since the store was opened, where that is counted.
    fn groups(&self) -> Option<Groups> {
        None
    }

    /// The newest version of `key`, or the one as of revision `at`; false where there is none.
    fn get(&self, key: &[u8], at: Option<u64>, visit: Visit<'_>) -> Result<bool>;

    /// Up to `limit` keys from `from` up to but excluding `below`, each with its newest version or the one as of `at`;
    /// returns how many there were.
    fn scan(
        &self,
        from: &[u8],
        below: &[u8],
        limit: usize,
        at: Option<u64>,
        visit: VisitKey<'_>,
    ) -> Result<usize>;

    /// Up to `limit` changes from revision `from` on, in the order of their revisions, each with its value;
    /// returns how many there were. `None` where the store cannot tell them.
    fn replay(&self, from: u64, limit: usize, visit: VisitKey<'_>) -> Result<Option<usize>> {
        let _ = (from, limit, visit);
        Ok(None)
    }

    /// Forgets what no read as of revision `upto` or a later one needs, some `batch` revisions of it; returns
    /// whether there may be more. `None` where the store cannot forget.
    fn forget(&self, upto: u64, batch: usize) -> Result<Option<bool>> {
        let _ = (upto, batch);
        Ok(None)
    }

    /// Brings what was written into the shape it rests in: flushed and compacted.
    fn settle(&mut self) -> Result<()>;

    /// Closes in good order.
    fn close(self: Box<Self>) -> Result<()>;
}

/// How to open a store in a directory (made if absent).
pub type Open = fn(&Path, Level) -> Result<Box<dyn Peer>>;

/// What a contestant takes part as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Annals,
    /// What the machine gives without a store.
    Bare,
    /// Another store as it is.
    Peer,
    /// Another store under a group commit written by hand.
    Grouped,
}

/// A store by name.
#[derive(Clone, Copy, Debug)]
pub struct Contestant {
    pub name: &'static str,
    pub role: Role,
    pub open: Open,
}
