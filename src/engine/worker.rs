//! The background thread, and closing.

use std::thread::{self, JoinHandle};

use annals_format::name::LOCK;

use crate::error::{Error, Result};
use crate::reclaim::plan::TRIM_EAGER;
use crate::sync::plain::lock;
use crate::sync::{Arc, AtomicBool, Ordering};

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
        core.shared.worker_comes();
        let thread = thread::Builder::new()
            .name("annals-worker".to_owned())
            .spawn(move || run(&its_core, &its_stop))
            .map_err(|error| {
                core.shared.worker_leaves();
                Error::io("start a thread for", &core.path, error)
            })?;
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

/// The end of the background thread, also by a panic: from now on nobody may count on it.
struct Leaving<'a>(&'a Core);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(&Error::invalid("the background thread has panicked"));
        }
        self.0.shared.worker_leaves();
        // Who asked before that is served. A failure is kept by the chain.
        let _ = self.0.chain.lead_once();
    }
}

fn run(core: &Arc<Core>, stop: &AtomicBool) {
    let _leaving = Leaving(core);
    while !stop.load(Ordering::Acquire) {
        if core.shared.answer_bell() {
            // First, and also after background work has failed: somebody may wait for it, and what
            // is ordered still becomes durable. A failure is kept by the chain.
            let _ = core.chain.lead_once();
            // A failure is kept by the core, which accepts no write from then on.
            while !stop.load(Ordering::Acquire) && matches!(core.run_unit(), Ok(true)) {}
        } else {
            thread::park();
        }
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
        let (files, keep) = (self.shared.tables().files, self.keep());
        let trimmed = self.trim_window(&files, keep, TRIM_EAGER);
        self.note_failure(&trimmed);
        trimmed?;
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
        let mut state = lock(&self.state);
        // After a failure there is nothing that could be called a clean end.
        if let Some(cause) = self.failed.get() {
            drop(self.chain.close_log());
            drop(lock(&state.log).take());
            return Err(Self::poisoned(cause));
        }
        if let Some(Err(error)) = lock(&self.lock).as_ref().map(|guard| guard.check()) {
            // The files may be another writer's by now.
            drop(self.chain.close_log());
            drop(lock(&state.log).take());
            return Err(Error::io("lock", self.path.join(LOCK), error));
        }
        drop(self.chain.close_log()?);
        let Some(writer) = lock(&state.log).take() else { return Ok(()) };
        state.manifest.closed = true;
        self.store_manifest(&mut state)?;
        writer.close(state.manifest.stamp())
    }
}
