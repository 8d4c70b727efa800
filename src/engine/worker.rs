//! The background thread, and closing.

use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};
use crate::sync::plain::lock;
use crate::sync::{Arc, AtomicBool, Ordering, epoch};

use super::core::Core;

/// The thread that does the background work of a store. Dropping it stops and joins it.
#[derive(Debug)]
pub(super) struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(super) fn start(core: &Arc<Core>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (its_core, its_stop) = (Arc::clone(core), Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name("annals-worker".to_owned())
            .spawn(move || run(&its_core, &its_stop))
            .map_err(|error| Error::io("start a thread for", &core.path, error))?;
        core.shared.set_worker(thread.thread().clone());
        // What was left from before, and what came before the worker had a name.
        core.shared.ring();
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic; if it did, there is nothing to add to what it printed.
            let _ = thread.join();
        }
    }
}

fn run(core: &Arc<Core>, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        if core.shared.answer_bell() {
            // A failure is kept by the core, which accepts no write from then on.
            while !stop.load(Ordering::Acquire) && matches!(core.run_unit(), Ok(true)) {}
        } else {
            thread::park();
        }
    }
}

/// Waits until every guard that is held now is gone: so every transaction that came before the store
/// was closed has been ordered. Guards are held for the length of an evaluation, not of a wait.
fn wait_for_guards() {
    let passed = Arc::new(AtomicBool::new(false));
    let signal = Arc::clone(&passed);
    epoch::pin().defer(move || signal.store(true, Ordering::Release));
    while !passed.load(Ordering::Acquire) {
        epoch::pin().flush();
        thread::yield_now();
    }
}

impl Core {
    /// Moves everything to files and does all the work there is.
    pub(super) fn reorganise(&self) -> Result<()> {
        self.check_writable()?;
        self.chain.freeze();
        while self.run_unit()? {}
        let busy = lock(&self.busy);
        self.check_writable()?;
        if !self.shared.tables().files.l0.is_empty() {
            let folded = self.fold_all();
            self.note_failure(&folded);
            folded?;
        }
        drop(busy);
        while self.run_unit()? {}
        Ok(())
    }

    /// The end of a session, after `closed` was set and the worker is gone.
    pub(super) fn shut(&self) -> Result<()> {
        let outcome = if self.read_only { Ok(()) } else { self.seal() };
        // Last: from here on another process may write.
        drop(lock(&self.lock).take());
        outcome
    }

    fn seal(&self) -> Result<()> {
        // Whoever runs background work in a thread of their own stops at the next opportunity.
        let _busy = lock(&self.busy);
        wait_for_guards();
        let mut state = lock(&self.state);
        // After a failure there is nothing that could be called a clean end.
        if let Some(cause) = self.failed.get() {
            drop(self.chain.close_log());
            drop(lock(&state.log).take());
            return Err(Self::poisoned(cause));
        }
        drop(self.chain.close_log()?);
        let Some(writer) = lock(&state.log).take() else { return Ok(()) };
        state.manifest.closed = true;
        self.store_manifest(&mut state)?;
        writer.close(state.manifest.stamp())
    }
}
