//! The usual compare-and-swap, without a request.

use crate::error::Result;

use super::Store;
use super::write::Done;
use crate::kv::response::TxnResponse;
use crate::kv::ticket::{Outcome, Ticket};

impl Store {
    /// Writes `value` to `key` if `seen` is the mod revision of the key, as a read of it has shown (0: if
    /// the key is not alive), detaching the key from any lease. This is the usual compare-and-swap: what
    /// a transaction with one comparison and one put does, without making a request. It answers
    /// [`Committed`](Outcome::Committed) or [`Failed`](Outcome::Failed), never `Unchanged`, and waits for
    /// durability as every commit does.
    ///
    /// Who loses knows no more than that, and has to read again. A loop that reads, changes and swaps until
    /// nobody came between is [`Store::modify`], which does not have to wait for the disk before it tries again.
    ///
    /// For the present value in the same step when it fails, for a durability, a time or metadata of the
    /// commit, use [`Store::txn`]. To evaluate it allocates nothing, if the key has no lease and at
    /// most 47 bytes.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::Outcome;
    ///
    /// // 0: only if there is no such key.
    /// assert_eq!(store.compare_and_put("/leader", 0, b"a")?, Outcome::Committed { revision: 2 });
    /// assert_eq!(store.compare_and_put("/leader", 0, b"b")?, Outcome::Failed { as_of: 2 });
    /// assert_eq!(store.compare_and_put("/leader", 2, b"b")?, Outcome::Committed { revision: 3 });
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Store::put`]. After [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) the store has to be
    /// opened again; a [`get`](Store::get) then shows whether the write is there.
    pub fn compare_and_put(
        &self,
        key: impl AsRef<[u8]>,
        seen: u64,
        value: impl AsRef<[u8]>,
    ) -> Result<Outcome> {
        let (succeeded, done) = self.swap(key.as_ref(), seen, value.as_ref())?;
        let outcome = done.decided(succeeded);
        done.wait()?;
        Ok(outcome)
    }

    /// As [`Store::compare_and_put`], with a ticket for the answer, which lists no responses: whether it has lost says
    /// [`succeeded`](TxnResponse::succeeded), or the ticket's [`outcome`](Ticket::outcome).
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// let tickets: Vec<_> = (0..64)
    ///     .map(|n| store.submit_compare_and_put(format!("/{n}"), 0, "new"))
    ///     .collect::<annals::Result<_>>()?;
    /// for ticket in tickets {
    ///     assert!(ticket.wait()?.succeeded); // durable; one sync for all of them
    /// }
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Store::put`].
    pub fn submit_compare_and_put(
        &self,
        key: impl AsRef<[u8]>,
        seen: u64,
        value: impl AsRef<[u8]>,
    ) -> Result<Ticket> {
        let (succeeded, done) = self.swap(key.as_ref(), seen, value.as_ref())?;
        let response = TxnResponse { revision: done.revision(), succeeded, responses: Vec::new() };
        Ok(done.ticket(response))
    }

    fn swap(&self, key: &[u8], seen: u64, value: &[u8]) -> Result<(bool, Done<'_>)> {
        self.limits().sizes(key, value)?;
        self.write(self.defaults(), |evaluation| evaluation.compare_and_put(key, seen, value))
    }
}
