//! Tickets: a commit's claim on durability.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::chain::Chain;
use super::waiter::Waiter;
use crate::error::{ErrorKind, Result};
use crate::index::Position;
use crate::sync::Arc;

/// Resolves when a position is durable: by [`wait`](Self::wait), which blocks the thread, or by
/// awaiting it, in any runtime.
///
/// A thread that keeps many tickets open and waits for the last pays one sync for all of them.
/// Dropping a ticket does not take the commit back.
pub(crate) struct Ticket {
    chain: Arc<Chain>,
    position: Position,
    /// Whether it is of an answer that only read: then whatever happens, nothing was changed.
    read_only: bool,
    /// The waiter on the group's stack, while this is awaited.
    waiter: Option<Arc<Waiter>>,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ticket").field(&self.position).finish()
    }
}

impl Chain {
    /// A ticket for a commit, which has been ordered at `position`; or for an answer that only read, as
    /// of `position`, and must not leave before what it saw is durable.
    pub(crate) fn ticket(self: &Arc<Self>, position: Position, read_only: bool) -> Ticket {
        Ticket { chain: Arc::clone(self), position, read_only, waiter: None }
    }

    /// Returns when the position is durable, as [`wait_durable`](Self::wait_durable).
    ///
    /// # Errors
    /// When a write or sync failed first: `OutcomeUnknown`, or `Poisoned` of what only read.
    pub(crate) fn wait(&self, position: Position, read_only: bool) -> Result<()> {
        let outcome = self.wait_durable_as(position, read_only);
        if read_only { of_read(outcome) } else { outcome }
    }
}

impl Ticket {
    /// Blocks until the position is durable, leading the write-out if nobody else does.
    ///
    /// # Errors
    /// When a write or sync failed first: `OutcomeUnknown`, or `Poisoned` of what only read.
    pub(crate) fn wait(&self) -> Result<()> {
        self.chain.wait(self.position, self.read_only)
    }

    fn poll_outcome(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let group = &self.chain.group;
        if let Some(outcome) = group.outcome(self.position) {
            return Poll::Ready(outcome);
        }
        if let Some(waiter) = &self.waiter {
            if waiter.is_served() {
                return Poll::Ready(self.chain.outcome_after(self.position));
            }
            if waiter.wakes(context.waker()) {
                // On the stack, or in the hands of the holder of the role: it will be woken.
                return Poll::Pending;
            }
        }
        let waiter = Waiter::task(self.position.seq, context.waker().clone());
        group.waiters.push(&waiter);
        // If somebody has the role now, they see the push when they give it up, and serve us or ask
        // the background thread. If nobody has, somebody must be made to.
        if group.is_idle() && !self.chain.world.request_lead() && group.try_take() {
            self.chain.lead();
        }
        let served = waiter.is_served();
        self.waiter = Some(waiter);
        match group.outcome(self.position) {
            Some(outcome) => Poll::Ready(outcome),
            None if served => Poll::Ready(self.chain.outcome_after(self.position)),
            None => Poll::Pending,
        }
    }
}

impl Future for Ticket {
    type Output = Result<()>;

    /// Leads the write-out in the polling thread only if the store has no background thread.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let outcome = self.poll_outcome(context);
        if self.read_only { outcome.map(of_read) } else { outcome }
    }
}

/// What is lost of an answer that only read are the commits of others: it changed nothing.
fn of_read(outcome: Result<()>) -> Result<()> {
    outcome.map_err(|error| match error.kind() {
        ErrorKind::OutcomeUnknown { cause, .. } => {
            ErrorKind::Poisoned { cause: Arc::clone(cause) }.into()
        }
        _ => error,
    })
}
