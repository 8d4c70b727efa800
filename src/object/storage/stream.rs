//! A watch of objects as what a thread waits for, and as a stream of a task.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;

use crate::object::kv::{Kv, PollKvWatch};

use super::watch::{ObjectWatch, WatchEvent};

/// As good as for ever.
const LONG: Duration = Duration::from_secs(3600);

/// Steps that one poll takes before it lets other tasks have their turn.
const STEPS: usize = 64;

impl<K: Kv> Iterator for ObjectWatch<K> {
    type Item = WatchEvent;

    /// Waits for the next event; `None` once the watch has ended.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let event = self.next_timeout(LONG);
            if event.is_some() || self.handle().is_ended() {
                return event;
            }
        }
    }
}

impl<K: Kv> std::iter::FusedIterator for ObjectWatch<K> {}

/// Nothing of it is borrowed from itself.
impl<K: Kv> Unpin for ObjectWatch<K> {}

/// In any runtime, none is needed: as a [watch of the store](crate::Watch), so a task can wait for any number of watches. A
/// poll reads what there was at the beginning, and may read files for it.
impl<K: Kv> Stream for ObjectWatch<K>
where
    K::Watch: PollKvWatch,
{
    type Item = WatchEvent;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let watch = self.get_mut();
        for _ in 0..STEPS {
            let mut is_asleep = false;
            let turn = watch.turn(|live| match live.poll_changes(context) {
                Poll::Ready(changes) => changes.map(Some),
                Poll::Pending => {
                    is_asleep = true;
                    Ok(None)
                }
            });
            match turn {
                ControlFlow::Break(told) => return Poll::Ready(told),
                ControlFlow::Continue(()) if is_asleep => return Poll::Pending,
                ControlFlow::Continue(()) => {}
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
