//! Waking those who sleep until their watches have something to tell.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::slot::Sleeper;

/// Who is woken when this is dropped, where no lock is held.
pub(super) struct Sleepers(pub(super) Vec<Sleeper>);

impl Sleepers {
    /// Whether one of them is a task, whose waker is foreign code.
    pub(super) fn has_task(&self) -> bool {
        self.0.iter().any(|sleeper| matches!(sleeper, Sleeper::Task(_)))
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        wake(std::mem::take(&mut self.0));
    }
}

/// Threads first: a task's waker is foreign code, which may panic or wait for one of them.
pub(super) fn wake(mut sleepers: Vec<Sleeper>) {
    sleepers.sort_by_key(|sleeper| matches!(sleeper, Sleeper::Task(_)));
    for sleeper in sleepers {
        // It has said on its own what it panicked about, and is not to end this thread, nor to keep the
        // others from being woken.
        let _ = catch_unwind(AssertUnwindSafe(|| sleeper.wake()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{current, park};

    #[test]
    fn who_is_held_when_a_panic_comes_is_woken() {
        let result = catch_unwind(|| {
            let _sleepers = Sleepers(vec![Sleeper::Thread(current())]);
            panic!("as this test wants it");
        });
        assert!(result.is_err());
        // It has a token, or this sleeps for ever.
        park();
    }
}
