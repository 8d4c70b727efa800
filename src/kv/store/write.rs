//! Writing: puts, deletes, transactions, and the tickets for them.

use crate::error::Result;
use crate::observe::{Span, Task};
use crate::options::Durability;

use super::Store;
use super::watermark::RulesBefore;
use crate::kv::build::TxnBuilder;
use crate::kv::eval::check::Limits;
use crate::kv::eval::{Evaluation, Patch, check};
use crate::kv::request::{CommitOptions, DeleteRangeRequest, PutRequest, TxnRequest};
use crate::kv::response::{DeleteRangeResponse, PutResponse, TxnResponse};
use crate::kv::seam::{self, Door, Patience, Snapshot};
use crate::kv::ticket::{Outcome, Ticket};
use crate::kv::types::{Commit, Deleted};

/// A write in its place in the order.
pub(crate) struct Done<'s> {
    engine: &'s Door,
    /// The revision the last evaluation started from.
    base: u64,
    outcome: seam::Outcome,
    /// Of a commit that waits for a sync.
    span: Option<Span>,
}

impl Done<'_> {
    pub(super) fn revision(&self) -> u64 {
        self.outcome.position.revision
    }

    /// The same, which waits for a sync if this durability does, whatever it was ordered with.
    pub(super) fn at_least(mut self, asked: Option<Durability>) -> Self {
        if asked.unwrap_or(self.engine.options().durability) == Durability::Sync {
            self.outcome.durability = Durability::Sync;
        }
        self
    }

    fn patch(&self) -> Patch {
        Patch { base: self.base, revision: self.revision() }
    }

    /// Whether it wrote a key.
    pub(super) fn changed(&self) -> bool {
        self.outcome.changed
    }

    /// What it came to, if its comparisons held or not.
    pub(super) fn decided(&self, succeeded: bool) -> Outcome {
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
    pub(super) fn ticket(self, response: TxnResponse) -> Ticket {
        let outcome = self.decided(response.succeeded);
        let waits = self.outcome.durability == Durability::Sync;
        let pending = waits.then(|| self.engine.ticket(&self.outcome));
        Ticket { pending, response: Some(response), outcome }
    }

    /// Waits until the write may be acknowledged.
    pub(super) fn acknowledge(self) -> Result<Commit> {
        let seam::Outcome { position, durability, .. } = self.outcome;
        self.wait()?;
        Ok(Commit { revision: position.revision, time: position.time, durability })
    }

    /// Waits until the answer may leave.
    pub(crate) fn wait(self) -> Result<()> {
        let _within = self.span.as_ref().map(Span::enter);
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
    /// [`EmptyKey`](crate::ErrorKind::EmptyKey), or a limit of the options. As every write:
    /// [`Closed`](crate::ErrorKind::Closed), [`ReadOnly`](crate::ErrorKind::ReadOnly);
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) when its sync fails, and
    /// [`Poisoned`](crate::ErrorKind::Poisoned) after that.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Commit> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.limits().sizes(key, value)?;
        let ((), done) =
            self.write(self.defaults(), |evaluation| evaluation.blind_put(key, value))?;
        done.acknowledge()
    }

    /// Writes a key with a lease, keeping its value, returning what it was before, and so on.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::PutRequest;
    /// use std::time::Duration;
    ///
    /// let lease = store.lease_grant(0, Duration::from_secs(60))?;
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
            self.write(self.defaults(), |evaluation| evaluation.single_put(&request))?;
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
            self.write(self.defaults(), |evaluation| evaluation.delete_range(&request))?;
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
        let options = self.completed(options);
        self.limits().transaction(&request)?;
        self.limits().commit(&options)?;
        // What only reads waits for nothing, unless what is visible here may not be durable.
        if request.is_read_only() && options.durability != Some(Durability::Sync) {
            return self.on_newest(|newest| {
                let mut plan = seam::Plan::default();
                Evaluation::new(newest, &mut plan, self.limits(), false).transaction(&request)
            });
        }
        let (response, done) = self.ordered(&request, (&options, Patience::Waits))?;
        done.wait()?;
        Ok(response)
    }

    /// Orders a transaction and returns a ticket, so that one thread can keep many in flight.
    ///
    /// It waits for no sync, unless it is refused: then until what it was refused for is durable. When flush is behind, it
    /// pauses as any commit does, for 50 ms at most, or waits for a flush where memory has run out:
    /// [`Stats::delays`](crate::Stats::delays). [`try_submit`](Self::try_submit) waits in no case.
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
        let options = self.completed(options);
        self.limits().transaction(&request)?;
        self.limits().commit(&options)?;
        let (response, done) = self.ordered(&request, (&options, Patience::Waits))?;
        Ok(done.ticket(response))
    }

    /// As [`Store::submit`], where nothing has to be waited for: for who must not be held up by a disk, such as a task
    /// among others. What a transaction reads it may still read from files.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::{ErrorKind, put, txn};
    ///
    /// let request = txn().then([put("/a", "1")]);
    /// let ticket = match store.try_submit(&request) {
    ///     // In a runtime: by a thread that may wait.
    ///     Err(error) if matches!(error.kind(), ErrorKind::WouldWait) => store.submit(request)?,
    ///     submitted => submitted?,
    /// };
    /// assert_eq!(ticket.wait()?.revision, 2);
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Store::transact`]; [`WouldWait`](crate::ErrorKind::WouldWait) where flush is behind, where the log has to be
    /// gone on with in another file first, and where a refusal is not certain yet, as what it was decided on is not
    /// durable.
    pub fn try_submit(&self, request: &TxnRequest) -> Result<Ticket> {
        self.try_submit_with(request, &CommitOptions::default())
    }

    /// As [`Store::try_submit`], with a time, metadata or a durability.
    ///
    /// # Errors
    ///
    /// As [`Store::try_submit`].
    pub fn try_submit_with(&self, request: &TxnRequest, options: &CommitOptions) -> Result<Ticket> {
        let options = self.completed(options.clone());
        self.limits().transaction(request)?;
        self.limits().commit(&options)?;
        let (response, done) = self.ordered(request, (&options, Patience::Refuses))?;
        Ok(done.ticket(response))
    }

    /// Gives a transaction whose shape has been checked its place in the order.
    fn ordered<'r>(
        &self,
        request: &'r TxnRequest,
        asked: (&'r CommitOptions, Patience),
    ) -> Result<(TxnResponse, Done<'_>)> {
        let (mut response, done) =
            write_by(&self.engine, (self.limits(), self.has_leases()), asked, |evaluation, _| {
                evaluation.transaction(request)
            })?;
        if done.outcome.changed {
            done.patch().transaction(&mut response);
        }
        Ok((response, done))
    }

    /// Evaluates until the plan finds its place in the order.
    pub(super) fn write<'r, T>(
        &self,
        options: &'r CommitOptions,
        evaluate: impl FnMut(&mut Evaluation<'_, 'r>) -> Result<T>,
    ) -> Result<(T, Done<'_>)> {
        write_through(&self.engine, (self.limits(), self.has_leases()), options, evaluate)
    }

    /// The same, for who looks at the snapshot, too.
    pub(super) fn write_seeing<'r, T>(
        &self,
        options: &'r CommitOptions,
        evaluate: impl FnMut(&mut Evaluation<'_, 'r>, &Snapshot<'_>) -> Result<T>,
    ) -> Result<(T, Done<'_>)> {
        let asked = (options, Patience::Waits);
        write_by(&self.engine, (self.limits(), self.has_leases()), asked, evaluate)
    }
}

/// Evaluates until the plan finds its place in the order. `leases` says whether there may be any.
///
/// A refusal is an answer too: it waits until what it was decided on is durable.
pub(crate) fn write_through<'e, 'r, T>(
    engine: &'e Door,
    limits: (Limits, bool),
    options: &'r CommitOptions,
    mut evaluate: impl FnMut(&mut Evaluation<'_, 'r>) -> Result<T>,
) -> Result<(T, Done<'e>)> {
    write_by(engine, limits, (options, Patience::Waits), |evaluation, _| evaluate(evaluation))
}

/// The same, with or without patience.
fn write_by<'e, 'r, T>(
    engine: &'e Door,
    (limits, leases): (Limits, bool),
    (options, patience): (&'r CommitOptions, Patience),
    mut evaluate: impl FnMut(&mut Evaluation<'_, 'r>, &Snapshot<'_>) -> Result<T>,
) -> Result<(T, Done<'e>)> {
    let durability = options.durability.unwrap_or(engine.options().durability);
    let span = (durability == Durability::Sync).then(|| Span::of(Task::Commit));
    loop {
        let rules = RulesBefore::of(engine);
        let mut decided = None;
        let mut round = |snapshot: &Snapshot<'_>, plan: &mut seam::Plan<'r>| {
            (plan.time, plan.metadata) = (options.time, &options.metadata);
            let mut evaluation = Evaluation::new(snapshot, plan, limits, leases);
            let answer = evaluate(&mut evaluation, snapshot);
            let answer = answer.and_then(|answer| Ok((answer, evaluation.finish()?)));
            let writes = matches!(answer, Ok((_, true)));
            decided = Some((answer, snapshot.position().revision, snapshot.compacted()));
            Ok(writes)
        };
        let outcome = {
            let _within = span.as_ref().map(Span::enter);
            engine.transact_by((options.durability, patience), &mut round)?
        };
        match decided {
            Some((Ok((answer, _)), base, _)) => {
                if let Some(span) = &span {
                    span.revision(outcome.position.revision);
                }
                return Ok((answer, Done { engine, base, outcome, span }));
            }
            Some((Err(error), _, compacted)) if rules.overtook(engine, &error, compacted) => {}
            Some((Err(_), ..)) if patience == Patience::Refuses && !engine.is_certain(&outcome) => {
                return Err(crate::error::ErrorKind::WouldWait.into());
            }
            Some((Err(error), ..)) => {
                engine.wait(&outcome)?;
                return Err(error);
            }
            None => return Err(crate::error::ErrorKind::Closed.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::Store;
    use crate::error::{ErrorKind, Result};
    use crate::kv::eval::Evaluation;
    use crate::kv::request::CommitOptions;
    use crate::kv::{Op, RangeRequest, TxnRequest, TxnResponse, put, txn, version};
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
        assert!(matches!(refused, ErrorKind::Compacted { requested: 3, compacted: 4, .. }));
        // The first of the refusals was by a compaction that its snapshot did not have.
        assert!(evaluations == 2 && !written);
    }

    /// A read of the past, should `a` still be as it was written last.
    fn read_the_past_if_unchanged() -> TxnRequest {
        let past = Op::from(RangeRequest::new("a").at(3));
        txn().when([version("a").eq(3)]).then([past])
    }

    /// At no time is `a` as the comparison wants it and revision 3 compacted.
    fn delete_and_compact(store: &Store) {
        store.delete("a").unwrap();
        store.compact(5).unwrap();
    }

    #[test]
    fn a_transaction_is_not_refused_for_what_it_would_not_read_any_more() {
        let (store, request) = (store(), read_the_past_if_unchanged());
        let mut evaluations = 0;
        let decided = store.write(&CommitOptions::default(), |evaluation| {
            evaluations += 1;
            if evaluations == 1 {
                delete_and_compact(&store);
            }
            evaluation.transaction(&request)
        });
        let (answer, done) = decided.unwrap();
        assert!(!answer.succeeded && done.revision() == 5, "{answer:?}");
        assert_eq!(evaluations, 2);
    }

    #[test]
    fn nor_is_one_that_only_reads() {
        let (store, request) = (store(), read_the_past_if_unchanged());
        let mut evaluations = 0;
        let answer = store.on_newest(|newest| {
            evaluations += 1;
            if evaluations == 1 {
                delete_and_compact(&store);
            }
            Evaluation::new(newest, &mut crate::kv::seam::Plan::default(), store.limits(), false)
                .transaction(&request)
        });
        let answer = answer.unwrap();
        assert!(!answer.succeeded && answer.revision == 5, "{answer:?}");
        assert_eq!(evaluations, 2);
    }
}
