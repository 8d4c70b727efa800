//! The background threads, and closing.

use std::any::Any;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use annals_format::name::LOCK;

use crate::clock::Stopwatch;
use crate::error::{Error, Result};
use crate::reclaim::plan::TRIM_EAGER;
use crate::sync::plain::lock;
use crate::sync::{Arc, AtomicBool, Ordering, fence};

use super::attend::{Attendant, Duty};
use super::bell::Bell;
use super::core::Core;
use super::shared::Shared;

/// The threads that work for a store in the background: two, and those of the rooms above. Dropping this
/// stops and joins them.
///
/// One of the two writes the log of what nobody waits for, and makes memory ready for commits; it spends its time in
/// syncs. The other does everything else, and so is not kept from it by those.
#[derive(Debug, Default)]
pub(super) struct Worker {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Further ones, of the rooms above.
    attendants: Vec<(Attendant, JoinHandle<()>)>,
    /// What the rooms above have dropped before the store is closed.
    kept: Vec<Box<dyn Any + Send>>,
}

impl Worker {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(super) fn start(core: &Arc<Core>) -> Result<Self> {
        let mut worker = Self::default();
        // What is there already runs until `worker` is dropped, with the error.
        worker.spawn(core, "annals-log", |shared| &shared.logger, write_log)?;
        worker.spawn(core, "annals-worker", |shared| &shared.worker, work)?;
        Ok(worker)
    }

    fn spawn(
        &mut self,
        core: &Arc<Core>,
        name: &str,
        bell: fn(&Shared) -> &Bell,
        job: Job,
    ) -> Result<()> {
        let (its_core, its_stop) = (Arc::clone(core), Arc::clone(&self.stop));
        bell(&core.shared).attend();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&its_core, bell(&its_core.shared), &its_stop, job))
            .map_err(|error| {
                bell(&core.shared).leave();
                Error::io("start a thread for", &core.path, error)
            })?;
        bell(&core.shared).set_thread(thread.thread().clone());
        self.threads.push(thread);
        Ok(())
    }

    /// Starts a further thread, for a room above.
    ///
    /// # Errors
    /// The system refuses it.
    pub(super) fn attend(&mut self, core: &Arc<Core>, name: &str, duty: Duty) -> Result<Attendant> {
        // Those that were dismissed, and are through.
        self.attendants.retain(|(_, thread)| !thread.is_finished());
        let attendant = Attendant::default();
        let (its_core, its_own) = (Arc::clone(core), attendant.clone());
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let _failing = FailingOnPanic(&its_core);
                its_own.serve(duty);
            })
            .map_err(|error| Error::io("start a thread for", &core.path, error))?;
        attendant.set_thread(thread.thread().clone());
        self.attendants.push((attendant.clone(), thread));
        Ok(attendant)
    }

    /// Drops something when the further threads end.
    pub(super) fn keep(&mut self, what: Box<dyn Any + Send>) {
        self.kept.push(what);
    }

    /// Whether the caller is one of the threads.
    fn is_own_thread(&self) -> bool {
        let attendants = self.attendants.iter().map(|(_, thread)| thread);
        self.threads.iter().chain(attendants).any(is_this)
    }

    /// Ends the further threads, and waits for them.
    fn dismiss(&mut self) {
        for (attendant, _) in &self.attendants {
            attendant.dismiss();
        }
        join(self.attendants.drain(..).map(|(_, thread)| thread));
        self.kept.clear();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.dismiss();
        self.stop.store(true, Ordering::Release);
        for thread in &self.threads {
            thread.thread().unpark();
        }
        join(self.threads.drain(..));
    }
}

/// Waits for threads, but not for the one that calls.
fn join(threads: impl Iterator<Item = JoinHandle<()>>) {
    for thread in threads.filter(|thread| !is_this(thread)) {
        // It does not panic; if it did, there is nothing to add to what it printed.
        let _ = thread.join();
    }
}

fn is_this(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() == thread::current().id()
}

/// Ends the threads of a store and shuts it.
///
/// # Errors
/// What kept the log from being sealed.
pub(super) fn shut(mut worker: Worker, core: &Core) -> Result<()> {
    // First, with the store still open: they may have something to write down.
    worker.dismiss();
    core.closed.store(true, Ordering::Release);
    // Ordered against `Core::check_kept`: what was answered before is in what is sealed.
    fence(Ordering::SeqCst);
    core.wake_flushed();
    drop(worker);
    core.shut()
}

/// The same for a store whose last owner is gone, without telling anybody how that went.
///
/// The last owner may have been a waker, which a background thread has just dropped. That thread cannot
/// wait for itself, and may hold what shutting takes; so another one does it. If the system refuses one,
/// the store ends as in a crash.
pub(super) fn shut_unseen(worker: Worker, core: Arc<Core>) {
    let is_own_thread = worker.is_own_thread();
    // What was acknowledged is safe in any case.
    let shut = move || drop(shut(worker, &core));
    if is_own_thread {
        let _ = thread::Builder::new().name("annals-close".to_owned()).spawn(shut);
    } else {
        shut();
    }
}

/// A panic during background work, in a thread of the store or of its user, ends writing: what was
/// half done in memory must not become durable.
pub(super) struct FailingOnPanic<'a>(pub(super) &'a Core);

impl Drop for FailingOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(&Error::invalid("background work has panicked"));
        }
    }
}

/// The end of a background thread, also by a panic: from now on nobody may count on it.
struct Leaving<'a>(&'a Core, &'a Bell);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.1.leave();
        // Who asked before that is served. A failure is kept by the chain.
        let _ = self.0.chain.lead_once();
    }
}

/// What a background thread does when its bell has rung. Answers after what time it is to look again
/// although nobody rings, if at all.
type Job = fn(&Core, &AtomicBool) -> Option<Duration>;

fn run(core: &Core, bell: &Bell, stop: &AtomicBool, job: Job) {
    let _leaving = Leaving(core, bell);
    let _failing = FailingOnPanic(core);
    let mut again = None;
    while !stop.load(Ordering::Acquire) {
        if bell.is_rung() {
            again = job(core, stop);
        } else if let Some(time) = again {
            thread::park_timeout(time);
            bell.look_again();
        } else {
            thread::park();
        }
    }
}

/// How long what nobody waits for may stay unwritten before the log thread writes it. One thread that
/// submits many commits and then waits for them makes them durable with one sync by itself; a sync in
/// between would be one too many.
const PATIENCE_MICROS: u64 = 2_000;

/// Also after background work has failed: somebody may wait for it, and what is ordered still becomes
/// durable.
fn write_log(core: &Core, stop: &AtomicBool) -> Option<Duration> {
    let (bell, chain) = (&core.shared.logger, &core.chain);
    let asked = chain.applied();
    let begun = Stopwatch::start();
    core.shared.make_ready();
    if bell.answer_aside() {
        // Only for that. Whoever has committed waits, and sees to its sync.
        return None;
    }
    // A loop, as a thread may be unparked for what it has seen already.
    while !bell.is_urgent() && !stop.load(Ordering::Acquire) {
        let Some(left) = PATIENCE_MICROS.checked_sub(begun.micros()) else { break };
        thread::park_timeout(Duration::from_micros(left));
    }
    let urgent = bell.answer();
    if urgent || chain.durable().seq < asked.seq {
        // As a thread that waits, not only a look whether somebody leads: who leads now may have
        // gathered before this was ordered. A failure is kept by the chain.
        let _ = chain.wait_durable(chain.applied());
    } else if chain.durable().seq < chain.applied().seq {
        // Younger than that: later.
        bell.look_again();
    }
    None
}

/// How long background work that owes sleeps before it looks whether the log has been synced since.
/// So nobody who syncs has to wake it.
const NAP: Duration = Duration::from_millis(1);

/// Sleeps for a moment, or until the bell of this thread rings or it is to stop.
pub(super) fn nap() {
    thread::park_timeout(NAP);
}

fn work(core: &Core, stop: &AtomicBool) -> Option<Duration> {
    core.shared.worker.answer();
    // A failure is kept by the core, which accepts no write from then on, or tries again what found no space. Other
    // work does not wait for what damage keeps from being done.
    while !stop.load(Ordering::Acquire) {
        // Each time: there may be other work without end.
        let _ = core.apply_retention_when_due();
        if !matches!(core.run_unit_or_leave(), Ok(true)) {
            break;
        }
    }
    let left = core.until_quiet_work().into_iter().chain(core.until_retention());
    let left = left.map(Duration::from_micros).chain(core.until_space()).min()?;
    // Not at once, even if it is due just now.
    Some(left.max(NAP))
}

impl Core {
    /// Moves everything to files and does all the work there is.
    ///
    /// # Errors
    /// Damage is told at the end, once all that it does not concern has been done.
    pub(super) fn reorganise(&self) -> Result<()> {
        self.check_writing()?;
        self.chain.freeze();
        while self.run_unit_or_leave()? {}
        let busy = self.take_busy();
        // After it, so that a panic is noted before `busy` is let go.
        let _failing = FailingOnPanic(self);
        self.check_writable()?;
        let files = self.shared.tables().files;
        if !files.l0.is_empty() && self.left_alone.unfoldable(&files).is_none() {
            self.settle(self.fold_all().map(|()| true))?;
        }
        // Several windows may overlap where the watermark is. None is trimmed for it twice. What comes meanwhile
        // is not taken up, else a writer could keep this going for ever.
        let keep = self.keep_floors();
        let ends = self.shared.tables().files.windows.iter().map(|window| window.upto).max();
        let upto = ends.unwrap_or(0);
        // Blob files made from here on are left alone.
        let before = self.next_file.load(Ordering::Acquire);
        // What was to go when this began may be needed since.
        while !self.context.has_unreadable() {
            let files = self.shared.tables().files;
            let eager = || {
                Ok(self.trim_window(&files, &keep, TRIM_EAGER)?
                    || self.trim_events(&files, &keep, TRIM_EAGER)?
                    || self.move_some_blobs(&files, &keep, TRIM_EAGER, before)?
                    || self.merge_eagerly(&files, &keep, upto)?)
            };
            if !self.settle(eager())? {
                break;
            }
        }
        drop(busy);
        while self.run_unit_or_leave()? {}
        self.left_damage().map_or(Ok(()), Err)
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
        self.leave_note();
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
