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
    /// Whether somebody waits for what it was rung for.
    urgent: AtomicBool,
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

    /// The same, for somebody who waits: also ends the thread's nap.
    pub(super) fn ring_urgently(&self) {
        if !self.urgent.swap(true, Ordering::AcqRel) {
            self.rung.store(true, Ordering::Release);
            if let Some(thread) = self.thread.get() {
                thread.unpark();
            }
        }
    }

    /// For the thread: whether it was rung. The bell goes on ringing, so that nobody rings it again.
    pub(super) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire)
    }

    /// For the thread: whether somebody waits.
    pub(super) fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::Acquire)
    }

    /// For the thread: whether it was rung; makes the bell silent.
    pub(super) fn answer(&self) -> bool {
        self.urgent.swap(false, Ordering::AcqRel);
        self.rung.swap(false, Ordering::AcqRel)
    }
}
