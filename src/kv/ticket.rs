//! The answer to a submitted transaction: ordered already, durable later.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::{Error, Result};

use super::response::TxnResponse;
use super::seam;

/// What a transaction came to when it was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
#[must_use = "a compare-and-swap that has lost is no error: the outcome says so"]
pub enum Outcome {
    /// It changed something, at this revision.
    Committed {
        /// The transaction's revision.
        revision: u64,
    },
    /// Its comparisons held, and there was nothing to change.
    Unchanged {
        /// The revision it was decided at.
        as_of: u64,
    },
    /// A comparison failed, and the other branch changed nothing.
    Failed {
        /// The revision it was decided at.
        as_of: u64,
    },
}

/// A submitted transaction.
///
/// Its place in the order is fixed; [`wait`](Self::wait) (or `.await`) returns the answer as soon
/// as everything it depends on has reached the durability asked for. Dropping a ticket does not
/// take the transaction back: what nobody waits for becomes durable, and visible, a few milliseconds
/// later, written by a background thread. (In a store without
/// [background threads](crate::Options::background) somebody has to wait, `flush`, or run the background
/// work.)
///
/// ```
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// # let store = annals::Options::new().background(false).open(directory.path())?;
/// let ticket = store.txn().then([annals::put("/a", "1")]).submit()?;
/// let told = format!("{ticket:?}");
/// assert_eq!(told, "Ticket { outcome: Committed { revision: 2 }, state: Pending }");
/// # ticket.wait()?;
/// # Ok::<(), annals::Error>(())
/// ```
#[must_use = "the answer is only certain once the ticket was waited for"]
pub struct Ticket {
    /// `None` where the durability asked for is reached already.
    pub(super) pending: Option<seam::Ticket>,
    /// `None` once it was awaited.
    pub(super) response: Option<TxnResponse>,
    pub(super) outcome: Outcome,
}

impl Ticket {
    /// What the transaction came to in the order; not yet durable. Its revision is what the next
    /// compare-and-swap of the same thread may expect: so one thread can swap one key many times with
    /// one sync.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Blocks until the answer may leave, and returns it.
    ///
    /// # Errors
    ///
    /// When the sync failed, [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown); or
    /// [`Poisoned`](crate::ErrorKind::Poisoned) of a transaction that wrote nothing, and so has
    /// certainly had no effect.
    pub fn wait(self) -> Result<TxnResponse> {
        if let Some(ticket) = &self.pending {
            ticket.wait()?;
        }
        self.response.ok_or_else(taken)
    }
}

/// What it came to, and its state: `Pending` until it was waited for, `Ready` where there is nothing to
/// wait for (a commit that is [`Buffered`](crate::Durability::Buffered)), `Taken` once it was awaited.
impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (&self.response, &self.pending) {
            (None, _) => "Taken",
            (Some(_), None) => "Ready",
            (Some(_), Some(_)) => "Pending",
        };
        let state = format_args!("{state}");
        f.debug_struct("Ticket").field("outcome", &self.outcome).field("state", &state).finish()
    }
}

fn taken() -> Error {
    Error::invalid("the answer of this ticket has been taken already")
}

/// Needs no runtime. Gives its answer once; awaited again it is an
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument).
impl Future for Ticket {
    type Output = Result<TxnResponse>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let durable = match &mut this.pending {
            Some(ticket) => Pin::new(ticket).poll(context),
            None => Poll::Ready(Ok(())),
        };
        durable.map(|durable| durable.and_then(|()| this.response.take().ok_or_else(taken)))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::options::{Durability, Options};
    use crate::sync::Arc;
    use crate::vfs::MemoryVfs;

    #[test]
    fn a_printed_ticket_tells_what_it_came_to_and_whether_it_is_to_be_waited_for() {
        let options = Options::new().vfs(Arc::new(MemoryVfs::new())).background(false);
        let store = options.open("store").expect("a fresh store opens");
        let put = || store.txn().then([crate::put("a", "1")]);
        let mut ticket = put().submit().expect("ordered");
        let printed =
            |state| format!("Ticket {{ outcome: Committed {{ revision: 2 }}, state: {state} }}");
        assert_eq!(format!("{ticket:?}"), printed("Pending"));
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut ticket).poll(&mut context).is_ready());
        assert_eq!(format!("{ticket:?}"), printed("Taken"));
        let buffered = put().durability(Durability::Buffered).submit().expect("ordered");
        assert!(format!("{buffered:?}").ends_with("revision: 3 }, state: Ready }"));
    }
}
