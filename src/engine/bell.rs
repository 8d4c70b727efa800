//! How a background thread is called: by a bell that anyone may ring without waiting for anyone.

use crate::sync::plain::OnceLock;
use crate::sync::{AtomicBool, AtomicU32, Ordering, Thread, current};

/// The bell of one background thread.
#[derive(Debug, Default)]
pub(super) struct Bell {
    /// Who answers it, where there is such a thread.
    thread: OnceLock<Thread>,
    /// Whether the thread runs, and so does what it is asked for.
    attended: AtomicBool,
    /// Whether, and how, it has been rung since the thread looked last: [`SILENT`], [`ASIDE`] or [`RUNG`].
    rung: AtomicU32,
    /// Whether somebody waits for what it was rung for.
    urgent: AtomicBool,
}

const SILENT: u32 = 0;
const ASIDE: u32 = 1;
const RUNG: u32 = 2;

impl Bell {
    /// A thread is about to begin.
    pub(super) fn attend(&self) {
        self.attended.store(true, Ordering::Release);
    }

    /// Names the thread, and wakes it: for what was left from before, and for whoever rang before it
    /// had a name.
    pub(super) fn set_thread(&self, thread: Thread) {
        self.rung.store(RUNG, Ordering::Release);
        self.thread.get_or_init(|| thread).unpark();
    }

    /// The thread will do nothing more than look once whether somebody waits.
    pub(super) fn leave(&self) {
        self.attended.store(false, Ordering::Release);
        // Ordered against `ring`: whoever rang before this has done what the last look finds; whoever
        // rings after it sees that nobody is there.
        self.rung.swap(RUNG, Ordering::AcqRel);
    }

    /// Whether a thread answers it.
    pub(super) fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Acquire)
    }

    /// Whether the caller is the thread.
    pub(super) fn is_own_thread(&self) -> bool {
        self.thread.get().is_some_and(|thread| thread.id() == current().id())
    }

    /// Wakes the thread, if there is one and it has not been woken already.
    pub(super) fn ring(&self) {
        if let Some(thread) = self.thread.get()
            && self.rung.swap(RUNG, Ordering::AcqRel) == SILENT
        {
            thread.unpark();
        }
    }

    /// Wakes the thread for what it does beside that for which it is rung.
    pub(super) fn ring_aside(&self) {
        let silent = || {
            self.rung.compare_exchange(SILENT, ASIDE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        if let Some(thread) = self.thread.get()
            && silent()
        {
            thread.unpark();
        }
    }

    /// The same, for somebody who waits: also ends the thread's nap.
    pub(super) fn ring_urgently(&self) {
        if !self.urgent.swap(true, Ordering::AcqRel) {
            self.rung.store(RUNG, Ordering::Release);
            if let Some(thread) = self.thread.get() {
                thread.unpark();
            }
        }
    }

    /// For the thread: has it look again, although nobody rang.
    pub(super) fn look_again(&self) {
        self.rung.store(RUNG, Ordering::Release);
    }

    /// For the thread: whether it was rung. The bell goes on ringing, so that nobody rings it again.
    pub(super) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire) != SILENT
    }

    /// For the thread: whether somebody waits.
    pub(super) fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::Acquire)
    }

    /// For the thread: makes the bell silent if it was only rung [aside](Self::ring_aside), and answers whether
    /// that is so.
    pub(super) fn answer_aside(&self) -> bool {
        self.rung.compare_exchange(ASIDE, SILENT, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// For the thread: makes the bell silent, before it looks at what there is to do. Answers whether
    /// somebody waits.
    pub(super) fn answer(&self) -> bool {
        // In this order: whoever comes in between and finds it urgent already is answered by the second;
        // whoever comes after that rings anew.
        self.rung.swap(SILENT, Ordering::AcqRel);
        self.urgent.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_thread_has_a_name_is_not_lost() {
        let bell = Bell::default();
        assert!(!bell.is_own_thread());
        bell.ring_urgently();
        bell.set_thread(current());
        assert!(bell.is_rung() && bell.is_urgent());
        assert!(bell.is_own_thread());
        // Also if nobody rang at all: there may be something left from before.
        let bell = Bell::default();
        bell.set_thread(current());
        assert!(bell.is_rung() && !bell.is_urgent());
    }

    #[test]
    fn whoever_comes_after_an_answer_rings_anew() {
        let bell = Bell::default();
        bell.set_thread(current());
        for _ in 0..2 {
            bell.ring();
            bell.ring_urgently();
            assert!(bell.is_rung() && bell.answer());
            assert!(!bell.is_rung() && !bell.is_urgent());
            bell.ring_urgently();
            assert!(bell.is_rung() && bell.answer());
            bell.ring();
            assert!(bell.is_rung() && !bell.answer());
            bell.look_again();
            assert!(bell.is_rung() && !bell.answer());
        }
    }

    #[test]
    fn a_ring_aside_is_answered_by_itself_and_hides_no_other() {
        let bell = Bell::default();
        bell.set_thread(current());
        assert!(!bell.answer());
        bell.ring_aside();
        assert!(bell.is_rung() && bell.answer_aside());
        assert!(!bell.is_rung() && !bell.answer_aside());
        for ring in [Bell::ring, Bell::ring_urgently, Bell::look_again] {
            for aside_first in [true, false] {
                if aside_first {
                    bell.ring_aside();
                }
                ring(&bell);
                bell.ring_aside();
                assert!(bell.is_rung() && !bell.answer_aside());
                assert!(bell.is_rung());
                bell.answer();
                assert!(!bell.is_rung());
            }
        }
    }

    /// Nobody's urgent ring is swallowed by an answer that was on its way.
    #[test]
    fn an_answer_and_urgent_rings_never_miss_each_other() {
        use std::sync::atomic::AtomicU64;

        const EACH: u64 = 20_000;
        let (bell, asked, done) = (Bell::default(), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                while done.load(Ordering::Acquire) < 2 * EACH {
                    if bell.is_rung() {
                        bell.answer();
                        done.store(asked.load(Ordering::Acquire), Ordering::Release);
                    } else {
                        std::thread::park();
                    }
                }
            });
            bell.set_thread(server.thread().clone());
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let mine = asked.fetch_add(1, Ordering::AcqRel) + 1;
                        bell.ring_urgently();
                        while done.load(Ordering::Acquire) < mine {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
    }
}
