//! A watch as a stream of a task.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::error::Result;

use super::batch::Batch;
use super::consumer::{Step, Watch};
use super::slot::Sleeper;

/// Batches that are told in a row before other tasks have their turn. A watch that catches up has the next one at once, and
/// a task that takes what is ready never gives way: runtimes see to that for their own streams only.
const IN_A_ROW: u32 = 32;

/// In any runtime, none is needed. One that catches up lets other tasks have their turn again and again. A poll may read files, so in a runtime where that matters a watch of old
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
        if watch.in_a_row < IN_A_ROW {
            match watch.step(|| Sleeper::Task(context.waker().clone())) {
                Step::Item(item) => {
                    watch.in_a_row += 1;
                    return Poll::Ready(Some(item));
                }
                Step::Over => return Poll::Ready(None),
                Step::Asleep => {
                    watch.in_a_row = 0;
                    return Poll::Pending;
                }
                // One step may have read much, and found nothing.
                Step::Again => {}
            }
        }
        watch.in_a_row = 0;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
