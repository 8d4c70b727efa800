//! Tickets: a commit's claim on durability.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::chain::Chain;
use super::waiter::Waiter;
use crate::error::Result;
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
    /// The waiter on the group's stack, while this is awaited.
    waiter: Option<Arc<Waiter>>,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ticket").field(&self.position).finish()
    }
}

impl Chain {
    /// A ticket for `position`, which must have been ordered: that of a commit, or the `as_of` of an
    /// answer that must not leave before what it saw is durable.
    pub(crate) fn ticket(self: &Arc<Self>, position: Position) -> Ticket {
        Ticket { chain: Arc::clone(self), position, waiter: None }
    }
}

impl Ticket {
    /// What the ticket waits for.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Blocks until the position is durable, leading the write-out if nobody else does.
    ///
    /// # Errors
    /// `OutcomeUnknown` when a write or sync failed first.
    pub(crate) fn wait(&self) -> Result<()> {
        self.chain.wait_durable(self.position)
    }
}

impl Future for Ticket {
    type Output = Result<()>;

    /// Leads the write-out in the polling thread only if the store has no background thread.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let group = &this.chain.group;
        if let Some(outcome) = group.outcome(this.position) {
            return Poll::Ready(outcome);
        }
        if let Some(waiter) = &this.waiter {
            if waiter.is_served() {
                return Poll::Ready(this.chain.outcome_after(this.position));
            }
            if waiter.wakes(context.waker()) {
                // On the stack, or in the hands of the holder of the role: it will be woken.
                return Poll::Pending;
            }
        }
        let waiter = Waiter::task(this.position.seq, context.waker().clone());
        group.waiters.push(&waiter);
        // If somebody has the role now, they see the push when they give it up, and serve us or ask
        // the background thread. If nobody has, somebody must be made to.
        if group.is_idle() && !this.chain.world.request_sync() && group.try_take() {
            this.chain.lead();
        }
        let served = waiter.is_served();
        this.waiter = Some(waiter);
        match group.outcome(this.position) {
            Some(outcome) => Poll::Ready(outcome),
            None if served => Poll::Ready(this.chain.outcome_after(this.position)),
            None => Poll::Pending,
        }
    }
}
