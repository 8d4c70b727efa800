//! One watch of a cluster: what the hub has brought, and nobody has taken yet.
//!
//! Invariant: what waits here is bounded. A watch that is not asked fast enough is taken from the stream, and put there again,
//! behind what it has got, when most of that has been taken.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use super::EtcdKv;
use super::hub::Command;
use crate::error::{Error, ErrorKind, Result};
use crate::object::kv::{Changes, KvEvent, KvWatch, PollKvWatch};
use crate::sync::plain::{Condvar, Mutex, PoisonError, lock};

/// So many bytes wait at most, but for one revision more.
const BYTES_MAX: usize = 16 << 20;
/// What a change takes beside its bytes.
const CHANGE_BYTES: usize = 256;

/// What the hub and the watch share.
pub(super) struct Shared {
    /// Which watch it is.
    pub(super) number: u64,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Changes>,
    bytes: usize,
    /// Whether the hub has taken it from the stream.
    is_parked: bool,
    is_ended: bool,
    /// Why, until that has been told.
    why: Option<Error>,
    waker: Option<Waker>,
}

impl Shared {
    pub(super) fn new(number: u64) -> Arc<Self> {
        Arc::new(Self { number, state: Mutex::default(), arrived: Condvar::new() })
    }

    /// Brings changes; answers whether there may be more before these are taken.
    pub(super) fn push(&self, changes: Changes) -> bool {
        let (waker, is_room) = {
            let mut state = lock(&self.state);
            if state.is_ended {
                return true;
            }
            state.bytes += size(&changes);
            state.waiting.push_back(changes);
            state.is_parked = state.bytes > BYTES_MAX;
            (state.waker.take(), !state.is_parked)
        };
        self.wake(waker);
        is_room
    }

    /// Ends it; what waits is still told before why.
    pub(super) fn end(&self, why: Option<Error>) {
        let waker = {
            let mut state = lock(&self.state);
            if !state.is_ended {
                (state.is_ended, state.why) = (true, why);
            }
            state.waker.take()
        };
        self.wake(waker);
    }

    /// Ends it at once.
    fn cancel(&self) {
        lock(&self.state).waiting.clear();
        self.end(None);
    }

    fn wake(&self, waker: Option<Waker>) {
        self.arrived.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    /// What is to be told next, if it is there; and whether the hub may bring more again.
    fn take(&mut self) -> (Option<Result<Changes>>, bool) {
        if let Some(changes) = self.waiting.pop_front() {
            self.bytes = self.bytes.saturating_sub(size(&changes));
            let is_resumed = self.is_parked && self.bytes < BYTES_MAX / 2;
            self.is_parked &= !is_resumed;
            return (Some(Ok(changes)), is_resumed);
        }
        if !self.is_ended {
            return (None, false);
        }
        let why = self.why.take().unwrap_or_else(|| ErrorKind::Closed.into());
        (Some(Err(why)), false)
    }
}

fn size(changes: &Changes) -> usize {
    let event = |event: &KvEvent| {
        let kv = |kv: &crate::kv::KeyValue| kv.key.len() + kv.value.len() + CHANGE_BYTES;
        kv(&event.kv) + event.prev_kv.as_ref().map_or(0, kv)
    };
    changes.events.iter().map(event).sum::<usize>() + CHANGE_BYTES
}

/// Changes of some keys of a cluster: what [`Kv::watch`](crate::object::Kv::watch) of an [`EtcdKv`] answers.
///
/// It goes on where a connection breaks, at another member too, for as long as that takes: it is silent then, and neither leaves
/// out nor repeats anything. It ends with [`Compacted`](ErrorKind::Compacted) where what it would have to tell has been compacted, and with
/// [`Io`](ErrorKind::Io) where the user may not watch.
pub struct EtcdWatch {
    pub(super) shared: Arc<Shared>,
    pub(super) commands: UnboundedSender<Command>,
    /// Keeps the runtime.
    pub(super) _kv: EtcdKv,
}

impl EtcdWatch {
    fn told(&self, is_resumed: bool) {
        if is_resumed {
            let _ = self.commands.send(Command::Resume(self.shared.number));
        }
    }
}

impl KvWatch for EtcdWatch {
    fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Changes>> {
        let begin = Instant::now();
        let mut state = lock(&self.shared.state);
        loop {
            if let (Some(told), is_resumed) = state.take() {
                drop(state);
                self.told(is_resumed);
                return told.map(Some);
            }
            let left = timeout.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.shared.arrived.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn canceller(&self) -> Box<dyn Fn() + Send + Sync> {
        let (shared, commands) = (Arc::clone(&self.shared), self.commands.clone());
        Box::new(move || {
            shared.cancel();
            let _ = commands.send(Command::Cancel(shared.number));
        })
    }
}

impl PollKvWatch for EtcdWatch {
    fn poll_changes(&mut self, context: &mut Context<'_>) -> Poll<Result<Changes>> {
        let mut state = lock(&self.shared.state);
        if let (Some(told), is_resumed) = state.take() {
            drop(state);
            self.told(is_resumed);
            return Poll::Ready(told);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for EtcdWatch {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Cancel(self.shared.number));
    }
}

impl fmt::Debug for EtcdWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.shared.state);
        let mut watch = f.debug_struct("EtcdWatch");
        watch.field("waiting", &state.waiting.len()).field("is_ended", &state.is_ended);
        watch.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(revision: u64, bytes: usize) -> Changes {
        let kv = crate::kv::KeyValue { value: vec![0; bytes].into(), ..Default::default() };
        Changes { revision, events: vec![KvEvent { kv, ..KvEvent::default() }] }
    }

    #[test]
    fn what_waits_is_bounded_and_told_before_the_end() {
        let shared = Shared::new(1);
        assert!(shared.push(of(1, BYTES_MAX / 2)));
        assert!(!shared.push(of(2, BYTES_MAX / 2)), "that is enough");
        shared.end(Some(ErrorKind::ReadOnly.into()));
        let mut state = lock(&shared.state);
        let (told, is_resumed) = state.take();
        assert_eq!((told.unwrap().unwrap().revision, is_resumed), (1, false));
        let (told, is_resumed) = state.take();
        assert_eq!((told.unwrap().unwrap().revision, is_resumed), (2, true));
        let told = |state: &mut State| state.take().0.unwrap().unwrap_err().into_kind();
        assert!(matches!(told(&mut state), ErrorKind::ReadOnly));
        assert!(matches!(told(&mut state), ErrorKind::Closed));
        assert!(matches!(told(&mut state), ErrorKind::Closed));
    }

    #[test]
    fn what_is_cancelled_tells_nothing_more() {
        let shared = Shared::new(1);
        shared.push(of(1, 1));
        shared.cancel();
        let told = lock(&shared.state).take().0.unwrap().unwrap_err();
        assert!(matches!(told.kind(), ErrorKind::Closed));
    }
}
