//! Writing: puts, deletes, transactions, and the tickets for them.

use crate::error::Result;
use crate::options::Durability;

use super::Store;
use crate::kv::build::TxnBuilder;
use crate::kv::eval::{Evaluation, Patch, check};
use crate::kv::request::{CommitOptions, DeleteRangeRequest, PutRequest, TxnRequest};
use crate::kv::response::{DeleteRangeResponse, PutResponse, TxnResponse};
use crate::kv::seam::{self, Engine, Newest, Step};
use crate::kv::ticket::{Outcome, Ticket};
use crate::kv::types::{Commit, Deleted};

/// A write in its place in the order.
pub(super) struct Done<'s> {
    engine: &'s Engine,
    /// The revision the last evaluation started from.
    pub(super) base: u64,
    pub(super) outcome: seam::Outcome,
}

impl Done<'_> {
    pub(super) fn revision(&self) -> u64 {
        self.outcome.position.revision
    }

    fn patch(&self) -> Patch {
        Patch { base: self.base, revision: self.revision() }
    }

    /// What it came to, if its comparisons held or not.
    fn decided(&self, succeeded: bool) -> Outcome {
        let revision = self.revision();
        if self.outcome.changed {
            Outcome::Committed { revision }
        } else if succeeded {
            Outcome::Unchanged { as_of: revision }
        } else {
            Outcome::Failed { as_of: revision }
        }
    }

    /// The claim on its durability.
    fn ticket(self, response: TxnResponse) -> Ticket {
        let outcome = self.decided(response.succeeded);
        let waits = self.outcome.durability == Durability::Sync;
        let pending = waits.then(|| self.engine.ticket(&self.outcome));
        Ticket { pending, response, outcome }
    }

    /// Waits until the write may be acknowledged.
    pub(super) fn acknowledge(self) -> Result<Commit> {
        let seam::Outcome { position, durability, .. } = self.outcome;
        self.wait()?;
        Ok(Commit { revision: position.revision, time: position.time, durability })
    }

    /// Waits until the answer may leave.
    pub(super) fn wait(self) -> Result<()> {
        self.engine.wait(&self.outcome)
    }
}

impl Store {
    /// Writes `value` to `key`, detaching the key from any lease.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// assert_eq!(store.put("/a", b"one")?.revision, 2); // a fresh store is at revision 1
    /// assert_eq!(store.put("/a", b"one")?.revision, 3); // the same bytes are a new version, too
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`EmptyKey`](crate::ErrorKind::EmptyKey), or a limit of the options.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Commit> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.limits().sizes(key, value)?;
        let options = CommitOptions::default();
        let ((), done) = self.write(&options, |evaluation| evaluation.blind_put(key, value))?;
        done.acknowledge()
    }

    /// Writes `value` to `key` if the key's mod revision is `seen` (0: if the key is not alive),
    /// detaching the key from any lease: the usual compare-and-swap, as a transaction with one
    /// comparison and one put would do it, without making a request. It allocates nothing.
    ///
    /// The answer waits for durability as every commit does; one that the comparison failed is of
    /// the revision `as_of`.
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
    /// As [`Store::put`].
    pub fn compare_and_put(
        &self,
        key: impl AsRef<[u8]>,
        seen: u64,
        value: impl AsRef<[u8]>,
    ) -> Result<Outcome> {
        let options = CommitOptions::default();
        let (succeeded, done) = self.swap(key.as_ref(), seen, value.as_ref(), &options)?;
        let outcome = done.decided(succeeded);
        done.wait()?;
        Ok(outcome)
    }

    /// As [`Store::compare_and_put`], with a ticket for the answer, which lists no responses.
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
        let options = CommitOptions::default();
        let (succeeded, done) = self.swap(key.as_ref(), seen, value.as_ref(), &options)?;
        let response = TxnResponse { revision: done.revision(), succeeded, responses: Vec::new() };
        Ok(done.ticket(response))
    }

    fn swap<'r>(
        &self,
        key: &'r [u8],
        seen: u64,
        value: &'r [u8],
        options: &'r CommitOptions,
    ) -> Result<(bool, Done<'_>)> {
        self.limits().sizes(key, value)?;
        self.write(options, |evaluation| evaluation.compare_and_put(key, seen, value))
    }

    /// Writes a key with a lease, keeping its value, returning what it was before, and so on.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::PutRequest;
    ///
    /// let lease = store.lease_grant(0, 60)?;
    /// store.put_with(PutRequest::new("/a", "one").lease(lease.id))?;
    /// let before = store.put_with(PutRequest::new("/a", "two").prev_kv())?.prev_kv;
    /// assert_eq!(before.map(|kv| kv.lease), Some(lease.id));
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Store::put`]; [`LeaseNotFound`](crate::ErrorKind::LeaseNotFound);
    /// [`KeyNotFound`](crate::ErrorKind::KeyNotFound) with `ignore_value` or `ignore_lease`.
    pub fn put_with(&self, request: PutRequest) -> Result<PutResponse> {
        self.limits().put(&request)?;
        let (mut response, done) =
            self.write(&CommitOptions::default(), |evaluation| evaluation.single_put(&request))?;
        response.revision = done.revision();
        done.wait()?;
        Ok(response)
    }

    /// Deletes `key`; deleting an absent key changes nothing and takes no revision.
    ///
    /// # Errors
    ///
    /// [`EmptyKey`](crate::ErrorKind::EmptyKey).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Deleted> {
        let response = self.delete_range(DeleteRangeRequest::new(key))?;
        Ok(Deleted { revision: response.revision, deleted: response.deleted })
    }

    /// Deletes a range of keys at one revision.
    ///
    /// # Errors
    ///
    /// [`EmptyKey`](crate::ErrorKind::EmptyKey), or a limit of the options.
    pub fn delete_range(&self, request: DeleteRangeRequest) -> Result<DeleteRangeResponse> {
        check::delete_range(&request)?;
        let (mut response, done) =
            self.write(&CommitOptions::default(), |evaluation| evaluation.delete_range(&request))?;
        response.revision = done.revision();
        done.wait()?;
        Ok(response)
    }

    /// Begins a transaction.
    pub fn txn(&self) -> TxnBuilder<'_> {
        TxnBuilder::new(self)
    }

    /// Runs a transaction and waits until its answer may leave.
    ///
    /// # Errors
    ///
    /// Those of its operations, and [`DuplicateKey`](crate::ErrorKind::DuplicateKey). A refused
    /// transaction has changed nothing.
    pub fn transact(&self, request: TxnRequest) -> Result<TxnResponse> {
        self.transact_with(request, CommitOptions::default())
    }

    /// As [`Store::transact`], with a time, metadata or a durability.
    ///
    /// # Errors
    ///
    /// As [`Store::transact`]; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a time
    /// outside the years 1 to 9999.
    pub fn transact_with(
        &self,
        request: TxnRequest,
        options: CommitOptions,
    ) -> Result<TxnResponse> {
        self.limits().transaction(&request)?;
        self.limits().commit(&options)?;
        // What only reads waits for nothing, unless what is visible here may not be durable.
        if request.is_read_only() && options.durability != Some(Durability::Sync) {
            let newest = Newest::of(&self.engine)?;
            let mut plan = seam::Plan::default();
            return Evaluation::new(&newest, &mut plan, self.limits(), false).transaction(&request);
        }
        self.ordered(&request, &options)?.wait()
    }

    /// Orders a transaction and returns a ticket, so that one thread can keep many in flight.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::{put, txn};
    ///
    /// let mut tickets = Vec::new();
    /// for n in 0..64 {
    ///     tickets.push(store.submit(txn().then([put(format!("/{n}"), "")]))?);
    /// }
    /// for ticket in tickets {
    ///     ticket.wait()?; // durable
    /// }
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Store::transact`].
    pub fn submit(&self, request: TxnRequest) -> Result<Ticket> {
        self.submit_with(request, CommitOptions::default())
    }

    /// As [`Store::submit`], with a time, metadata or a durability.
    ///
    /// # Errors
    ///
    /// As [`Store::transact`].
    pub fn submit_with(&self, request: TxnRequest, options: CommitOptions) -> Result<Ticket> {
        self.limits().transaction(&request)?;
        self.limits().commit(&options)?;
        self.ordered(&request, &options)
    }

    /// Gives a transaction whose shape has been checked its place in the order.
    fn ordered(&self, request: &TxnRequest, options: &CommitOptions) -> Result<Ticket> {
        let (mut response, done) =
            self.write(options, |evaluation| evaluation.transaction(request))?;
        if done.outcome.changed {
            done.patch().transaction(&mut response);
        }
        Ok(done.ticket(response))
    }

    /// Evaluates until the plan finds its place in the order.
    ///
    /// A refusal is an answer too: it waits until what it was decided on is durable.
    pub(super) fn write<'r, T>(
        &self,
        options: &'r CommitOptions,
        mut evaluate: impl FnMut(&mut Evaluation<'_, 'r>) -> Result<T>,
    ) -> Result<(T, Done<'_>)> {
        let (limits, leases) = (self.limits(), self.has_leases());
        let mut decided = None;
        let outcome = self.engine.transact(options.durability, &mut |snapshot, plan| {
            (plan.time, plan.metadata) = (options.time, &options.metadata);
            let mut evaluation = Evaluation::new(snapshot, plan, limits, leases);
            evaluation.carries(&options.metadata);
            let answer = evaluate(&mut evaluation).and_then(|answer| {
                evaluation.fits()?;
                Ok(answer)
            });
            let step = if answer.is_ok() && evaluation.finish() { Step::Write } else { Step::Read };
            decided = Some((answer, snapshot.position().revision));
            Ok(step)
        })?;
        match decided {
            Some((Ok(answer), base)) => Ok((answer, Done { engine: &self.engine, base, outcome })),
            Some((Err(error), _)) => {
                self.engine.wait(&outcome)?;
                Err(error)
            }
            None => Err(crate::error::ErrorKind::Closed.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::Store;
    use crate::error::{ErrorKind, Result};
    use crate::kv::request::CommitOptions;
    use crate::kv::{Op, RangeRequest, TxnResponse, put, txn};
    use crate::options::Options;
    use crate::vfs::MemoryVfs;

    /// Three revisions of `a`: 2, 3 and 4.
    fn store() -> Store {
        let options = Options::new().vfs(Arc::new(MemoryVfs::new())).background(false);
        let store = options.open("store").unwrap();
        for value in ["one", "two", "three"] {
            store.put("a", value).unwrap();
        }
        store
    }

    /// Reads `a` at revision 3 and writes `b`, with `between` happening after each evaluation.
    /// Answers how many evaluations it took.
    fn read_the_past(
        store: &Store,
        mut between: impl FnMut(usize),
    ) -> (usize, Result<TxnResponse>) {
        let request = txn().then([Op::from(RangeRequest::new("a").at(3)), put("b", "")]);
        let mut evaluations = 0;
        let done = store.write(&CommitOptions::default(), |evaluation| {
            evaluations += 1;
            let answer = evaluation.transaction(&request);
            between(evaluations);
            answer
        });
        let answer = done.and_then(|(answer, done)| {
            done.wait()?;
            Ok(answer)
        });
        (evaluations, answer)
    }

    #[test]
    fn a_read_of_the_past_is_not_evaluated_again_because_others_commit() {
        let store = store();
        let (evaluations, answer) = read_the_past(&store, |evaluation| {
            // Somebody else is faster every time, also with the key that was read.
            for n in 0..4 {
                store.put(format!("{evaluation} {n}"), "").unwrap();
            }
            store.put("a", "later").unwrap();
        });
        assert_eq!(evaluations, 1);
        assert_eq!(answer.unwrap().responses[0].kvs()[0].value, "two");
        assert_eq!(store.get("b").unwrap().unwrap().mod_revision, 10);
    }

    #[test]
    fn a_read_of_the_past_sees_a_compaction_in_between() {
        let compact = |to: u64| {
            let store = store();
            let (evaluations, answer) = read_the_past(&store, |evaluation| {
                if evaluation == 1 {
                    store.compact(to).unwrap();
                }
            });
            (evaluations, answer, store.get("b").unwrap().is_some())
        };
        let (evaluations, answer, written) = compact(3);
        assert!(evaluations == 1 && answer.is_ok() && written);
        let (evaluations, answer, written) = compact(4);
        let refused = answer.unwrap_err().into_kind();
        assert!(matches!(refused, ErrorKind::Compacted { requested: 3, compacted: 4 }));
        assert!(evaluations == 2 && !written);
    }
}
