//! How a background thread is called: by a bell that anyone may ring without waiting for anyone.

use crate::sync::plain::OnceLock;
use crate::sync::{AtomicBool, Ordering, Thread};

/// The bell of one background thread.
#[derive(Debug, Default)]
pub(super) struct Bell {
    /// Who answers it, where there is such a thread.
    thread: OnceLock<Thread>,
    /// Whether the thread runs, and so does what it is asked for.
    attended: AtomicBool,
    /// Whether it has been rung since the thread looked last.
    rung: AtomicBool,
}

impl Bell {
    /// A thread is about to begin.
    pub(super) fn attend(&self) {
        self.attended.store(true, Ordering::Release);
    }

    /// Names the thread.
    pub(super) fn set_thread(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    /// The thread will do nothing more than look once whether somebody waits.
    pub(super) fn leave(&self) {
        self.attended.store(false, Ordering::Release);
        // Ordered against `ring`: whoever rang before this has done what the last look finds; whoever
        // rings after it sees that nobody is there.
        self.rung.swap(true, Ordering::AcqRel);
    }

    /// Whether a thread answers it.
    pub(super) fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Acquire)
    }

    /// Wakes the thread, if there is one and it has not been woken already.
    pub(super) fn ring(&self) {
        if let Some(thread) = self.thread.get()
            && !self.rung.swap(true, Ordering::AcqRel)
        {
            thread.unpark();
        }
    }

    /// For the thread: whether it was rung; makes the bell silent.
    pub(super) fn answer(&self) -> bool {
        self.rung.swap(false, Ordering::AcqRel)
    }
}
