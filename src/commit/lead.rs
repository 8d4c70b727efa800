//! Waiting for durability, and leading: what the module `group` describes, step by step.

use std::ptr;

use super::chain::Chain;
use super::group::Leader;
use super::waiter::{Waiter, Woken, serve};
use super::world::Log;
use crate::error::{Error, ErrorKind};
use crate::index::{Node, Position};
use crate::sync::epoch::{self, Guard};
use crate::sync::plain::OnceLock;
use crate::sync::{Arc, yield_now};
use crate::wal::BatchInfo;

impl Chain {
    /// Gives the chain its log: from now on waiting makes durable. Called once, before any wait.
    pub(crate) fn open_log(&self, log: Box<dyn Log>) {
        if self.group.try_take() {
            // SAFETY: the role was just taken.
            unsafe { self.group.with_leader(|leader| leader.log = Some(log)) };
            self.release();
        }
    }

    /// Makes everything applied durable and takes the log out. The caller sees to it that nobody
    /// commits any more; who waits still is told that the store is closed.
    pub(crate) fn close_log(&self) -> Result<Option<Box<dyn Log>>, Error> {
        loop {
            self.wait_durable(self.applied())?;
            if self.group.try_take() {
                // SAFETY: the role was just taken.
                let log = unsafe { self.group.with_leader(|leader| leader.log.take()) };
                self.release();
                return Ok(log);
            }
            yield_now();
        }
    }

    /// Returns when everything up to `position` (which must have been ordered) is durable, leading
    /// the write-out if nobody else does.
    ///
    /// # Errors
    /// `OutcomeUnknown` when a write or sync failed first.
    pub(crate) fn wait_durable(&self, position: Position) -> Result<(), Error> {
        self.wait_durable_as(position, false)
    }

    /// The same; whoever has only read (`read_only`) is woken after those that have written.
    pub(super) fn wait_durable_as(&self, position: Position, read_only: bool) -> Result<(), Error> {
        if let Some(outcome) = self.group.outcome(position) {
            return outcome;
        }
        if self.group.try_take() {
            self.lead();
            return self.outcome_after(position);
        }
        let waiter = Waiter::thread(position.seq, read_only);
        self.group.waiters.push(&waiter);
        // The holder may have looked at the stack before the push and released the role since.
        if self.group.try_take() {
            waiter.leads();
            self.lead();
            return self.outcome_after(position);
        }
        if waiter.sleep() == Woken::Lead {
            self.lead();
        }
        self.outcome_after(position)
    }

    /// Writes out what is applied and not yet durable, unless somebody is doing it. For whoever does the
    /// background work where no thread writes the log by itself, and for the end of that thread: so
    /// tasks that wait are served. Answers whether it led.
    ///
    /// # Errors
    /// `Poisoned` once a write or sync has failed.
    pub(crate) fn lead_once(&self) -> Result<bool, Error> {
        self.check_poison()?;
        let pending = {
            let guard = epoch::pin();
            let applied = self.applied_node(&guard).position().seq;
            applied > self.group.durable_node(&guard).position().seq
        };
        let led = pending && self.group.try_take();
        if led {
            self.lead();
        }
        self.check_poison()?;
        Ok(led)
    }

    /// Makes a replayed node, which is applied, the last durable one. Only the one thread that
    /// replays calls this; nobody waits for durability meanwhile.
    pub(super) fn publish_replayed(&self, node: &Node, guard: &Guard) {
        if self.group.try_take() {
            // SAFETY: the role was just taken.
            unsafe {
                self.group.with_leader(|leader| self.group.publish(leader, node, guard));
            }
            self.release();
        }
    }

    pub(super) fn outcome_after(&self, position: Position) -> Result<(), Error> {
        // Without an outcome there is no log any more (or there never was one).
        self.group.outcome(position).unwrap_or_else(|| Err(ErrorKind::Closed.into()))
    }

    /// Leads: writes out, serves the waiters, and passes the role on or gives it up. The caller
    /// holds the role.
    pub(super) fn lead(&self) {
        loop {
            self.write_out();
            if !self.pass_on() {
                return;
            }
        }
    }

    /// Serves the waiters, and passes the role, which the caller holds, on or gives it up. Answers
    /// whether the caller holds it still, or again, and has to write out once more.
    fn pass_on(&self) -> bool {
        loop {
            let mut waiters = Vec::new();
            // Looked at anew each time: somebody else may have had the role in between.
            let open = !self.group.is_poisoned();
            // SAFETY: this thread holds the role.
            let open = unsafe {
                self.group.with_leader(|leader| {
                    waiters.append(&mut leader.kept);
                    open && leader.log.is_some()
                })
            };
            self.group.waiters.take(&mut waiters);
            let durable = self.group.durable_seq();
            let (mut rest, served): (Vec<_>, Vec<_>) =
                waiters.into_iter().partition(|waiter| open && waiter.seq > durable);
            let heir = rest.iter().position(|waiter| waiter.is_thread());
            let heir = heir.map(|heir| rest.swap_remove(heir));
            let tasks = !rest.is_empty();
            // SAFETY: this thread holds the role, until it gives it away below.
            unsafe { self.group.with_leader(|leader| leader.kept = rest) };
            if let Some(heir) = heir {
                // The heir first: its write-out can begin while the others wake up.
                heir.wake(Woken::Lead);
                self.tell_durable();
                wake_served(served);
                return false;
            }
            // Only tasks are left, if any: whoever leads next finds them.
            self.group.give_up();
            self.tell_durable();
            wake_served(served);
            if tasks && !self.world.request_lead() {
                // Nobody else would. If the role is taken, its holder has them now.
                return self.group.try_take();
            }
            // A thread that pushed itself meanwhile found the role taken, and sleeps: it must not
            // have to wait for the background thread, which may be busy.
            if self.group.waiters.is_empty() || !self.group.try_take() {
                return false;
            }
        }
    }

    /// Gives up the role, which this thread holds, without having written anything.
    pub(super) fn release(&self) {
        // SAFETY: this thread holds the role.
        let kept = unsafe { self.group.with_leader(|leader| !leader.kept.is_empty()) };
        self.group.give_up();
        // Who came meanwhile and found the role taken must not be left alone, nor who waits since
        // before.
        if (kept || !self.group.waiters.is_empty()) && self.group.try_take() {
            self.lead();
        }
    }

    /// Makes everything applied durable, unless nothing can be: after a failure, and without a log.
    /// The caller holds the role.
    fn write_out(&self) {
        // SAFETY: this thread holds the role.
        unsafe { self.group.with_leader(|leader| self.write_out_as(leader)) }
    }

    fn write_out_as(&self, leader: &mut Leader) {
        if self.group.is_poisoned() {
            return;
        }
        let Some(log) = leader.log.as_mut() else { return };
        // Nobody but this thread gives up generations, and it keeps those from `synced` on: no guard
        // is needed during the sync, which may take long and would hold up reclamation.
        // SAFETY: the chain owns a count of the generation of `synced` and of all later ones.
        let synced = unsafe { &*leader.synced };
        let to = {
            let guard = epoch::pin();
            ptr::from_ref(self.catch_up(self.applied_node(&guard), &guard))
        };
        // SAFETY: as above.
        let to = unsafe { &*to };
        let (before, after) = (synced.position(), to.position());
        let compacts = to.place().compacted > synced.place().compacted;
        if after.seq > before.seq {
            let batch = BatchInfo {
                first_seq: before.seq + 1,
                last_seq: after.seq,
                last_revision: after.revision,
                durable_upto: before.seq,
            };
            let written = caught(|| log.append(&mut Frames { node: synced, to }, batch));
            if let Err(error) = written {
                self.group.set_poison(&error);
                return;
            }
        }
        self.group.publish(leader, to, &epoch::pin());
        if compacts {
            // Only now may what it forgets go.
            self.world.request_work();
        }
    }
}

/// Threads before tasks: a task's waker is foreign code, which may panic, or wait for one of the threads. Of
/// the threads those that have written before those that only read: these were refused a compare as a rule,
/// and try again; if all do so at once most fail. So they are woken in half as many chains.
fn wake_served(served: Vec<Arc<Waiter>>) {
    let (threads, tasks): (Vec<_>, Vec<_>) =
        served.into_iter().partition(|waiter| waiter.is_thread());
    let (readers, writers): (Vec<_>, Vec<_>) =
        threads.into_iter().partition(|waiter| waiter.read_only);
    serve(writers, processors());
    serve(readers, processors().div_ceil(2));
    for waiter in tasks {
        // It has said on its own what it panicked about, and is not to end this thread, nor to keep
        // the others from being woken. Dropping the waker, the last thing done here, may run more of it.
        guarded(|| waiter.wake(Woken::Served));
    }
}

/// How many threads can run at a time; asked once, as the system reads files to answer.
fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    if cfg!(any(feature = "loom", feature = "shuttle")) {
        // All threads in one chain, the hardest case for a model checker.
        return 1;
    }
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(2, usize::from))
}

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
fn guarded(wake: impl FnOnce()) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(wake));
}

/// A model checker ends a run by a panic.
#[cfg(any(feature = "loom", feature = "shuttle"))]
fn guarded(wake: impl FnOnce()) {
    wake();
}

/// A write of the log that panics, in a file system that is foreign code, has failed: its outcome is
/// unknown. Who leads must not end by it, since all who wait wait for the leader.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
fn caught(write: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).unwrap_or_else(|_panic| {
        let source = std::io::Error::other("the write has panicked");
        Err(Error::io("write", "the log", source))
    })
}

/// As with [`guarded`].
#[cfg(any(feature = "loom", feature = "shuttle"))]
fn caught(write: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    write()
}

/// The frames after one node up to another, for the holder of the role.
struct Frames<'a> {
    node: &'a Node,
    to: &'a Node,
}

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !ptr::eq(self.node, self.to) {
            // SAFETY: the nodes from `synced` to `to` lie in generations the chain owns counts of,
            // and only the holder of the role, which drives this iterator, gives those up.
            self.node = unsafe { self.node.next_owned() }?.node;
            if !self.node.is_root() {
                return Some(self.node.frame());
            }
        }
        None
    }
}
