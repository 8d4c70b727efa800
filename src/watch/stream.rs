//! A watch as a stream of a task.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::error::Result;

use super::batch::Batch;
use super::consumer::{Step, Watch};
use super::slot::Sleeper;

/// Steps that one poll takes before it lets other tasks have their turn.
const STEPS: usize = 8;

/// In any runtime, none is needed. A poll may read files, so in a runtime where that matters a watch of old
/// revisions is better read by a thread of its own. Wakers are called by the thread `annals-watch` or
/// by whoever ends the watch; one that panics harms nobody else. A waker must not wait: as long as it does, no
/// other watch is told anything, and one that waits for another watch, or for the store to be closed, may wait
/// for itself. No commit waits for it.
///
/// In a store without [background threads](crate::Options::background) a task is woken when another thread
/// polls a watch, or calls [`run_background`](crate::Store::run_background); when the store is closed, by who
/// closes it.
impl Stream for Watch {
    type Item = Result<Batch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let watch = self.get_mut();
        for _ in 0..STEPS {
            match watch.step(|| Sleeper::Task(context.waker().clone())) {
                Step::Item(item) => return Poll::Ready(Some(item)),
                Step::Over => return Poll::Ready(None),
                Step::Asleep => return Poll::Pending,
                Step::Again => {}
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
