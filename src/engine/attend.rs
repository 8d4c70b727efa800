//! Background threads of the rooms above this one: who is called, and by whom.
//!
//! Such a thread must never hold an [`Engine`](super::Engine): the last of these closes the store, and
//! waits for the thread. It holds a [`Door`](super::Door).

use std::time::Duration;

use crate::sync::{Arc, AtomicBool, Ordering, Thread, park, park_timeout};

use super::bell::Bell;

/// What such a thread does when it begins, whenever it is rung, and once more when it has been dismissed.
/// Answers after what time it is to be done again although nobody rings, if at all.
pub(crate) type Duty = Box<dyn FnMut(&Attendant) -> Option<Duration> + Send>;

/// A background thread of a room above this one, to call it and for itself. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attendant(Arc<Called>);

#[derive(Debug, Default)]
struct Called {
    bell: Bell,
    dismissed: AtomicBool,
}

impl Attendant {
    /// Has the duty done, once more if it is being done just now. Waits for nothing.
    pub(crate) fn ring(&self) {
        self.0.bell.ring();
    }

    /// Ends the thread, as soon as its duty has been done a last time. Waits for nothing; closing the store
    /// does.
    pub(crate) fn dismiss(&self) {
        self.0.dismissed.store(true, Ordering::Release);
        self.0.bell.ring_urgently();
    }

    /// Whether it is to end: a long duty looks.
    pub(crate) fn is_dismissed(&self) -> bool {
        self.0.dismissed.load(Ordering::Acquire)
    }

    /// For the thread, within its duty: sleeps for so long, or until it is rung or dismissed.
    pub(crate) fn nap(&self, time: Duration) {
        if !self.0.bell.is_rung() {
            park_timeout(time);
        }
    }

    /// Whether both are the same one.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn set_thread(&self, thread: Thread) {
        self.0.bell.set_thread(thread);
    }

    /// What the thread does all its life.
    pub(super) fn serve(&self, mut duty: Duty) {
        let bell = &self.0.bell;
        let mut again = None;
        while !self.is_dismissed() {
            if bell.is_rung() {
                // First: who rings from here on wants it done once more.
                bell.answer();
                again = duty(self);
            } else if let Some(time) = again {
                park_timeout(time);
                bell.look_again();
            } else {
                park();
            }
        }
        duty(self);
    }
}
