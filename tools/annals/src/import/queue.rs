//! A bounded queue between the thread that reads records and the one that commits them.
//!
//! Bounded by bytes, not by count: one record may be 17 MB and the next 200 bytes, and the
//! import as a whole promises a bound on its memory. One record is always let through, however
//! large, so that the bound can never stop the work. Either end may go away first: the other
//! notices.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

struct State<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    sender_gone: bool,
    receiver_gone: bool,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    bytes_max: usize,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The state is whole after every statement, so a panicking peer leaves nothing broken.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writing end.
pub(crate) struct Sender<T>(Arc<Shared<T>>);

/// The reading end.
pub(crate) struct Receiver<T>(Arc<Shared<T>>);

/// A queue that holds at most `bytes_max` bytes, or one item.
pub(crate) fn bounded<T>(bytes_max: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            items: VecDeque::new(),
            bytes: 0,
            sender_gone: false,
            receiver_gone: false,
        }),
        changed: Condvar::new(),
        bytes_max,
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Sender<T> {
    /// Waits for room and appends. `false` when nobody will ever read it.
    pub(crate) fn send(&self, item: T, bytes: usize) -> bool {
        let mut state = self.0.lock();
        while !state.receiver_gone
            && !state.items.is_empty()
            && state.bytes.saturating_add(bytes) > self.0.bytes_max
        {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.receiver_gone {
            return false;
        }
        state.bytes = state.bytes.saturating_add(bytes);
        state.items.push_back((item, bytes));
        drop(state);
        self.0.changed.notify_all();
        true
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.lock().sender_gone = true;
        self.0.changed.notify_all();
    }
}

impl<T> Receiver<T> {
    /// Waits for the next item; `None` when the sender is gone and nothing is left.
    pub(crate) fn recv(&self) -> Option<T> {
        let mut state = self.0.lock();
        loop {
            if let Some((item, bytes)) = state.items.pop_front() {
                state.bytes = state.bytes.saturating_sub(bytes);
                drop(state);
                self.0.changed.notify_all();
                return Some(item);
            }
            if state.sender_gone {
                return None;
            }
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.receiver_gone = true;
        state.items.clear();
        drop(state);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_ends() {
        let (send, recv) = bounded(10);
        let writer = std::thread::spawn(move || (0..1000).all(|i| send.send(i, i % 7)));
        assert!((0..1000).all(|i| recv.recv() == Some(i)));
        assert_eq!(recv.recv(), None);
        assert!(writer.join().unwrap());
    }

    #[test]
    fn an_item_larger_than_the_bound_passes_alone() {
        let (send, recv) = bounded(10);
        let writer = std::thread::spawn(move || send.send('a', 1000) && send.send('b', 1000));
        assert_eq!((recv.recv(), recv.recv(), recv.recv()), (Some('a'), Some('b'), None));
        assert!(writer.join().unwrap());
    }

    #[test]
    fn a_gone_receiver_stops_the_sender() {
        let (send, recv) = bounded(1);
        assert!(send.send((), 1));
        let writer = std::thread::spawn(move || send.send((), 1));
        drop(recv);
        assert!(!writer.join().unwrap());
    }
}
