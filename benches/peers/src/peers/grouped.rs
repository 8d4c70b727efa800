//! A store under the group commit its users write by hand: threads queue their compare-and-swaps, one
//! of them commits all that wait in one native transaction and answers each.
//!
//! Whoever finds nobody committing leads, and commits without having queued: one client pays for no
//! hand-over. A leader takes all that queued while the last transaction was synced. When its own is
//! done it first wakes the next leader, which goes on at once, and only then those it answers. Everybody
//! is woken alone, so nobody is woken for nothing and the queue's mutex is held for a push or a take.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

use crate::peer::{Cas, Groups, Level, Open, Peer, Result, Visit, VisitKey};

/// Opens a store with `open` and puts the group commit above it.
pub fn over(open: Open, dir: &Path, level: Level) -> Result<Box<dyn Peer>> {
    let (queue, groups) = (Mutex::default(), GroupCounts::default());
    Ok(Box::new(Grouped { store: open(dir, level)?, queue, groups }))
}

struct Grouped {
    store: Box<dyn Peer>,
    queue: Mutex<Queue>,
    groups: GroupCounts,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Arc<Waiter>>,
    /// Somebody leads, or was told to.
    led: bool,
}

#[derive(Debug, Default)]
struct GroupCounts {
    commits: AtomicU64,
    transactions: AtomicU64,
}

/// A thread that waits, and what it wants committed.
#[derive(Debug)]
struct Waiter {
    key: Box<[u8]>,
    seen: Option<u64>,
    value: Box<[u8]>,
    thread: Thread,
    told: Mutex<Option<Told>>,
}

/// What a waiter is woken for.
#[derive(Debug)]
enum Told {
    /// Its answer, or what went wrong with everybody's transaction.
    Answer(std::result::Result<Option<u64>, String>),
    /// It is the leader now and has to commit its own.
    Lead,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waiter {
    fn new(cas: Cas<'_>) -> Self {
        let (key, value) = (cas.key.into(), cas.value.into());
        Self { key, seen: cas.seen, value, thread: thread::current(), told: Mutex::new(None) }
    }

    fn cas(&self) -> Cas<'_> {
        Cas { key: &self.key, seen: self.seen, value: &self.value }
    }

    fn sleep(&self) -> Told {
        loop {
            if let Some(told) = lock(&self.told).take() {
                return told;
            }
            thread::park();
        }
    }

    fn wake(&self, told: Told) {
        *lock(&self.told) = Some(told);
        self.thread.unpark();
    }
}

impl Grouped {
    /// Becomes the leader if there is none.
    fn try_lead(&self) -> bool {
        let mut queue = lock(&self.queue);
        !std::mem::replace(&mut queue.led, true)
    }

    /// Queues, or becomes the leader if there is none any more: then the answer is false.
    fn queue(&self, waiter: &Arc<Waiter>) -> bool {
        let mut queue = lock(&self.queue);
        if queue.led {
            queue.waiting.push(Arc::clone(waiter));
        }
        std::mem::replace(&mut queue.led, true)
    }

    /// Commits `own` and all that wait, hands the lead on, wakes those it answers.
    fn lead(&self, own: Cas<'_>) -> Result<Option<u64>> {
        let others = std::mem::take(&mut lock(&self.queue).waiting);
        let committed = catch_unwind(AssertUnwindSafe(|| self.commit(own, &others)));
        let committed = committed.unwrap_or_else(|_| Err("the store panicked".into()));
        let next = {
            let mut queue = lock(&self.queue);
            queue.led = !queue.waiting.is_empty();
            if queue.led { Some(queue.waiting.remove(0)) } else { None }
        };
        if let Some(next) = next {
            next.wake(Told::Lead);
        }
        match committed {
            Ok((answer, answers)) => {
                for (other, answer) in others.iter().zip(answers) {
                    other.wake(Told::Answer(Ok(answer)));
                }
                Ok(answer)
            }
            Err(error) => {
                for other in &others {
                    other.wake(Told::Answer(Err(error.to_string())));
                }
                Err(error)
            }
        }
    }

    fn commit(
        &self,
        own: Cas<'_>,
        others: &[Arc<Waiter>],
    ) -> Result<(Option<u64>, Vec<Option<u64>>)> {
        let (answer, answers) = if others.is_empty() {
            (self.store.cas(own)?, Vec::new())
        } else {
            let mut window = Vec::with_capacity(others.len() + 1);
            window.extend(others.iter().map(|other| other.cas()));
            window.push(own);
            let mut answers = self.store.cas_window(&window)?;
            if answers.len() != window.len() {
                return Err("answers are missing".into());
            }
            (answers.pop().flatten(), answers)
        };
        self.groups.count(answer.iter().count() + answers.iter().flatten().count());
        Ok((answer, answers))
    }
}

impl GroupCounts {
    fn count(&self, commits: usize) {
        self.commits.fetch_add(commits as u64, Ordering::Relaxed);
        self.transactions.fetch_add(u64::from(commits > 0), Ordering::Relaxed);
    }
}

impl Peer for Grouped {
    fn load(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<u64> {
        self.store.load(pairs)
    }

    fn cas(&self, cas: Cas<'_>) -> Result<Option<u64>> {
        if self.try_lead() {
            return self.lead(cas);
        }
        let waiter = Arc::new(Waiter::new(cas));
        if !self.queue(&waiter) {
            return self.lead(cas);
        }
        match waiter.sleep() {
            Told::Answer(answer) => answer.map_err(Into::into),
            Told::Lead => self.lead(cas),
        }
    }

    /// A window is one native transaction already.
    fn cas_window(&self, window: &[Cas<'_>]) -> Result<Vec<Option<u64>>> {
        let answers = self.store.cas_window(window)?;
        self.groups.count(answers.iter().flatten().count());
        Ok(answers)
    }

    fn groups(&self) -> Option<Groups> {
        let commits = self.groups.commits.load(Ordering::Relaxed);
        Some(Groups { commits, syncs: self.groups.transactions.load(Ordering::Relaxed) })
    }

    fn get(&self, key: &[u8], at: Option<u64>, visit: Visit<'_>) -> Result<bool> {
        self.store.get(key, at, visit)
    }

    fn scan(
        &self,
        from: &[u8],
        below: &[u8],
        limit: usize,
        at: Option<u64>,
        visit: VisitKey<'_>,
    ) -> Result<usize> {
        self.store.scan(from, below, limit, at, visit)
    }

    fn settle(&mut self) -> Result<()> {
        self.store.settle()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.store.close()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Remembers who got which revision, refuses whoever has seen one, and holds up its first
    /// transaction until the gate opens.
    #[derive(Debug)]
    struct Gated {
        keys: Arc<Mutex<Vec<Vec<u8>>>>,
        gate: Arc<Barrier>,
        panics: bool,
    }

    impl Peer for Gated {
        fn load(&self, _: &[(Vec<u8>, Vec<u8>)]) -> Result<u64> {
            Ok(0)
        }

        fn cas(&self, cas: Cas<'_>) -> Result<Option<u64>> {
            self.gate.wait();
            Ok(self.cas_window(&[cas])?.pop().flatten())
        }

        fn cas_window(&self, window: &[Cas<'_>]) -> Result<Vec<Option<u64>>> {
            assert!(!self.panics, "a store that panics");
            let mut keys = lock(&self.keys);
            let answer = |cas: &Cas<'_>| {
                cas.holds(0).then(|| {
                    keys.push(cas.key.to_vec());
                    keys.len() as u64
                })
            };
            Ok(window.iter().map(answer).collect())
        }

        fn get(&self, _: &[u8], _: Option<u64>, _: Visit<'_>) -> Result<bool> {
            Ok(false)
        }

        fn scan(
            &self,
            _: &[u8],
            _: &[u8],
            _: usize,
            _: Option<u64>,
            _: VisitKey<'_>,
        ) -> Result<usize> {
            Ok(0)
        }

        fn settle(&mut self) -> Result<()> {
            Ok(())
        }

        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    struct Outcome {
        answers: Vec<Result<Option<u64>>>,
        keys: Vec<Vec<u8>>,
        peer: Grouped,
    }

    /// What 16 clients are answered, of whom one commits while the others queue; of those, every
    /// second has seen what the store refuses.
    fn run(panics: bool) -> Outcome {
        let (keys, gate) = (Arc::default(), Arc::new(Barrier::new(2)));
        let store = Gated { keys: Arc::clone(&keys), gate: Arc::clone(&gate), panics };
        let (queue, groups) = (Mutex::default(), GroupCounts::default());
        let peer = Grouped { store: Box::new(store), queue, groups };
        let client = |number: u8| {
            let (key, seen) = ([number], Some(u64::from(number % 2)));
            peer.cas(Cas { key: &key, seen, value: b"value" })
        };
        let client = &client;
        let answers = thread::scope(|scope| {
            let clients: Vec<_> =
                (0..16).map(|number| scope.spawn(move || client(number))).collect();
            while lock(&peer.queue).waiting.len() < 15 {
                thread::yield_now();
            }
            gate.wait();
            clients.into_iter().map(|client| client.join().expect("no panic")).collect()
        });
        let keys = lock(&keys).clone();
        Outcome { answers, keys, peer }
    }

    #[test]
    fn all_that_wait_share_one_transaction_and_each_gets_its_own_answer() {
        let Outcome { answers, keys, peer } = run(false);
        for (number, answer) in (0_u8..).zip(answers) {
            let revision = answer.expect("an answer");
            assert_eq!(revision.is_some(), number % 2 == 0);
            if let Some(revision) = revision {
                let index = usize::try_from(revision - 1).expect("small");
                assert_eq!(keys.get(index), Some(&vec![number]));
            }
        }
        let groups = peer.groups().expect("counted");
        assert_eq!(groups.commits, 8);
        // The first is alone, and may be one that is refused.
        assert!((1..=2).contains(&groups.syncs), "{}", groups.syncs);
        assert!(!lock(&peer.queue).led);
    }

    #[test]
    fn a_store_that_panics_leaves_nobody_waiting() {
        let Outcome { answers, peer, .. } = run(true);
        assert!(answers.iter().all(Result::is_err));
        assert!(!lock(&peer.queue).led);
    }
}
