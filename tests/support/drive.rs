//! Drives a store and the model side by side.
//!
//! The model goes first: it is deterministic, so that what a request will do is known before the
//! store begins. A crash image taken in the middle of the request may hold it or not, and both
//! states are in the model's journal.

use std::sync::{Arc, Mutex, MutexGuard};

use annals::clock::{Clock, ManualClock};
use annals::{
    CommitOptions, Durability, Effect, Error, ErrorKind, LeaseGrantRequest, Store, Ticket,
};

use super::check::{Found, same, short};
use super::model::{Answer, Model, Refused, Request};

/// The model and how much of it has been acknowledged, shared with an observer of the disk.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<Mutex<Truth>>);

#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub model: Model,
    /// Changes that must survive anything.
    pub acknowledged: usize,
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, Truth> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Drives one store.
#[derive(Debug)]
pub struct Driver {
    pub shared: Shared,
    pub clock: Arc<ManualClock>,
    /// Whether the store acknowledges only what is durable.
    pub sync: bool,
}

/// How a request ended.
#[derive(Debug)]
pub enum Ended {
    /// As the model says.
    AsExpected,
    /// With an error of the machine, after which the store is in the state that the error tells.
    Failed(Error),
}

/// A transaction in flight, and how many changes its answer acknowledges.
#[derive(Debug)]
pub struct Flight {
    ticket: Ticket,
    expected: Answer,
    changes: usize,
    /// Whether the answer means that it is durable.
    sync: bool,
}

impl Driver {
    pub fn new(clock: Arc<ManualClock>) -> Self {
        Self { shared: Shared::default(), clock, sync: true }
    }

    pub fn model(&self) -> MutexGuard<'_, Truth> {
        self.shared.lock()
    }

    /// Does a request on the model and on the store, and compares the answers.
    pub fn request(&self, store: &Store, request: &Request) -> Result<Ended, String> {
        self.request_by(store, request, |store| run(store, request))
    }

    /// Does a request on the model, and on the store by a call of one's own that must do the same.
    pub fn request_by(
        &self,
        store: &Store,
        request: &Request,
        call: impl FnOnce(&Store) -> annals::Result<Answer>,
    ) -> Result<Ended, String> {
        self.clock.advance(1_000);
        let (before, expected) = self.expect(request);
        let found = call(store);
        self.settle(request, before, expected, found)
    }

    /// Submits a transaction without waiting.
    pub fn submit(&self, store: &Store, request: &Request) -> Result<Option<Flight>, String> {
        self.submit_with(store, request, None)
    }

    /// Submits a transaction with a durability of its own.
    pub fn submit_with(
        &self,
        store: &Store,
        request: &Request,
        level: Option<Durability>,
    ) -> Result<Option<Flight>, String> {
        self.clock.advance(1_000);
        let Request::Txn { request: txn, time, metadata } = request else {
            return Err("only transactions are submitted".into());
        };
        let (before, expected) = self.expect(request);
        let options = CommitOptions { durability: level, ..options(*time, metadata) };
        let sync = level.map_or(self.sync, |level| level == Durability::Sync);
        match (store.submit_with(txn.clone(), options), expected) {
            (Ok(ticket), Ok(expected)) => {
                let changes = self.model().model.len();
                Ok(Some(Flight { ticket, expected, changes, sync }))
            }
            (Ok(ticket), expected @ Err(_)) => {
                let found = ticket.wait().map(Answer::Txn);
                self.settle(request, before, expected, found).map(|_| None)
            }
            (Err(error), expected) => {
                self.settle(request, before, expected, Err(error)).map(|_| None)
            }
        }
    }

    /// Waits for a submitted transaction.
    pub fn wait(&self, flight: Flight) -> Result<Ended, String> {
        match flight.ticket.wait() {
            Ok(response) => {
                same(
                    || "a submitted transaction".into(),
                    &Answer::Txn(response),
                    &flight.expected,
                )?;
                let mut truth = self.model();
                if flight.sync {
                    truth.acknowledged = truth.acknowledged.max(flight.changes);
                }
                Ok(Ended::AsExpected)
            }
            Err(error) => Ok(Ended::Failed(error)),
        }
    }

    /// Everything so far is durable.
    pub fn acknowledge_all(&self) {
        let mut truth = self.model();
        truth.acknowledged = truth.model.len();
    }

    /// Does a request on the model; returns how many changes there were before.
    fn expect(&self, request: &Request) -> (usize, Result<Answer, Refused>) {
        let mut truth = self.model();
        let before = truth.model.len();
        (before, truth.model.apply(request, self.clock.now_micros()))
    }

    fn settle(
        &self,
        request: &Request,
        before: usize,
        expected: Result<Answer, Refused>,
        found: annals::Result<Answer>,
    ) -> Result<Ended, String> {
        match (found, expected) {
            (Ok(found), Ok(expected)) => {
                same(|| short(request), &found, &expected)?;
                let mut truth = self.model();
                if self.sync {
                    truth.acknowledged = truth.model.len();
                }
                Ok(Ended::AsExpected)
            }
            (Err(error), expected) if is_machine(&error) || is_damage(&error) => {
                if error.effect() == Effect::None && expected.is_ok() {
                    self.model().model.cut(before);
                }
                Ok(Ended::Failed(error))
            }
            (Err(error), Err(expected)) => {
                same_refusal(request, error.kind(), &expected)?;
                Ok(Ended::AsExpected)
            }
            (found, expected) => {
                let (request, found, expected) = (short(request), short(&found), short(&expected));
                Err(format!("{request}\n  store: {found}\n  model: {expected}"))
            }
        }
    }
}

/// Whether the machine, not the request, is to blame.
pub fn is_machine(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Io { .. }
            | ErrorKind::NoSpace { .. }
            | ErrorKind::Poisoned { .. }
            | ErrorKind::OutcomeUnknown { .. }
    )
}

/// Whether what the disk holds is to blame.
pub fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt { .. })
}

fn same_refusal(request: &Request, found: &ErrorKind, expected: &ErrorKind) -> Found {
    let equal = match (found, expected) {
        (ErrorKind::InvalidArgument { .. }, ErrorKind::InvalidArgument { .. })
        // Which of several keys is named depends on the order of the search.
        | (ErrorKind::DuplicateKey { .. }, ErrorKind::DuplicateKey { .. }) => true,
        _ => format!("{found:?}") == format!("{expected:?}"),
    };
    if equal {
        return Ok(());
    }
    Err(format!("{}\n  store refuses: {found:?}\n  model refuses: {expected:?}", short(request)))
}

fn options(time: Option<i64>, metadata: &bytes::Bytes) -> CommitOptions {
    CommitOptions { time, metadata: metadata.clone(), ..CommitOptions::default() }
}

fn run(store: &Store, request: &Request) -> annals::Result<Answer> {
    Ok(match request.clone() {
        Request::Put(put) => Answer::Put(store.put_with(put)?),
        Request::DeleteRange(delete) => Answer::DeleteRange(store.delete_range(delete)?),
        Request::Txn { request, time, metadata } => {
            Answer::Txn(store.transact_with(request, options(time, &metadata))?)
        }
        Request::Compact(revision) => {
            store.compact(revision)?;
            Answer::Compact
        }
        Request::Grant { id, ttl } => {
            Answer::Grant { ttl: store.lease_grant_with(LeaseGrantRequest::new(id, ttl))?.ttl }
        }
        Request::Revoke(id) => {
            let revoked = store.lease_revoke(id)?;
            Answer::Revoke { revision: revoked.revision, deleted: revoked.deleted }
        }
    })
}

/// The level a driver's `sync` stands for.
pub fn durability(sync: bool) -> Durability {
    if sync { Durability::Sync } else { Durability::Buffered }
}
