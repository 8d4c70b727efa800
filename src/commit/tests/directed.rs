//! Meetings of two threads that chance seldom makes, made on purpose; and steps whose only trace is
//! that nothing happens.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::commit::order::writes_each_once;
use crate::commit::waiter::{Stack, Waiter};
use crate::commit::{Ticket, Until};
use crate::error::ErrorKind;
use crate::index::Link;

const ROOMY: GenerationSize = GenerationSize { arena_bytes: 1 << 20, keys: 1000 };

/// A log that calls somebody while the first append goes on, and notes who appended.
struct Meeting {
    log: VectorLog,
    first: Option<Box<dyn FnOnce() + Send>>,
    writers: Arc<Mutex<Vec<thread::ThreadId>>>,
}

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meeting").field(&self.writers).finish()
    }
}

impl Log for Meeting {
    fn append(&mut self, frames: &mut dyn Iterator<Item = &[u8]>, batch: BatchInfo) -> Result<()> {
        lock(&self.writers).push(thread::current().id());
        self.log.append(frames, batch)?;
        if let Some(meet) = self.first.take() {
            meet();
        }
        Ok(())
    }
}

/// A store whose first write-out calls this, and who wrote each batch.
fn meeting(
    meet: impl FnOnce(&Fixture) + Send + 'static,
) -> (Fixture, Arc<Mutex<Vec<thread::ThreadId>>>) {
    let store = Fixture::without_log(ROOMY, START);
    let writers = Arc::new(Mutex::new(Vec::new()));
    let inner = store.clone();
    let first: Box<dyn FnOnce() + Send> = Box::new(move || meet(&inner));
    let log = Meeting { log: store.log.clone(), first: Some(first), writers: Arc::clone(&writers) };
    store.chain.open_log(Box::new(log));
    (store, writers)
}

#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A waker, and how often it was used.
fn counted() -> (Waker, Arc<Count>) {
    let count = Arc::new(Count::default());
    (Waker::from(Arc::clone(&count)), count)
}

fn poll(ticket: &mut Ticket, waker: &Waker) -> Poll<Result<()>> {
    pin!(ticket).poll(&mut Context::from_waker(waker))
}

fn commit(store: &Fixture, key: &str) -> Position {
    store.order(&plan([put(key, "v")])).position
}

fn batches(store: &Fixture) -> usize {
    lock(&store.log.batches).len()
}

fn told(store: &Fixture) -> u64 {
    store.world.told.load(Ordering::Relaxed)
}

/// Waits for what another thread is about to do.
fn until(what: &str, mut there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !there() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        thread::yield_now();
    }
}

#[test]
fn a_task_that_comes_while_another_leads_is_served_by_it_if_nobody_else_would() {
    let (waker, wakes) = counted();
    let (store, writers) = meeting(move |store| {
        let mut late = store.chain.ticket(commit(store, "late"), false);
        assert!(poll(&mut late, &waker).is_pending());
    });
    store.chain.wait_durable(commit(&store, "first")).unwrap();
    assert_eq!(store.chain.durable(), store.chain.applied());
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    assert_eq!(lock(&writers).len(), 2);
    store.verify();
}

#[test]
fn a_task_that_comes_while_another_leads_is_left_to_the_background_thread() {
    let (waker, wakes) = counted();
    let (store, writers) = meeting(move |store| {
        *lock(&store.world.background) = Some(thread::current());
        let mut late = store.chain.ticket(commit(store, "late"), false);
        assert!(poll(&mut late, &waker).is_pending());
        assert_eq!(store.world.requests.load(Ordering::Relaxed), 0, "the one that leads will ask");
    });
    let first = commit(&store, "first");
    store.chain.wait_durable(first).unwrap();
    assert_eq!(store.chain.durable(), first, "who waited for this is not kept by others");
    assert_eq!(store.world.requests.load(Ordering::Relaxed), 1);
    assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
    assert!(store.chain.lead_once().unwrap());
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    assert_eq!(lock(&writers).len(), 2);
    store.verify();
}

#[test]
fn a_thread_that_comes_while_another_leads_writes_out_for_itself() {
    let late = Arc::new(Mutex::new(None));
    let thread = Arc::clone(&late);
    let (store, writers) = meeting(move |store| {
        let inner = store.clone();
        let spawned = thread::spawn(move || {
            let position = commit(&inner, "late");
            inner.chain.wait_durable(position).unwrap();
        });
        until("the thread waits", || !store.chain.group.waiters.is_empty());
        *lock(&thread) = Some(spawned);
    });
    let first = commit(&store, "first");
    store.chain.wait_durable(first).unwrap();
    let late = lock(&late).take().expect("it was spawned");
    let (leader, heir) = (thread::current().id(), late.thread().id());
    late.join().unwrap();
    assert_eq!(*lock(&writers), [leader, heir]);
    store.verify();
}

#[test]
fn a_task_that_is_polled_with_another_waker_is_woken_by_that() {
    let store = Fixture::new(ROOMY);
    *lock(&store.world.background) = Some(thread::current());
    let mut ticket = store.chain.ticket(commit(&store, "a"), false);
    let ((before, old), (after, new)) = (counted(), counted());
    assert!(poll(&mut ticket, &before).is_pending());
    assert!(poll(&mut ticket, &after).is_pending());
    assert!(store.chain.lead_once().unwrap());
    assert_eq!(new.0.load(Ordering::SeqCst), 1);
    // It may have gone to another task: one wake too many is allowed, and no more.
    assert!(old.0.load(Ordering::SeqCst) <= 1);
    assert!(matches!(poll(&mut ticket, &after), Poll::Ready(Ok(()))));
}

#[test]
fn a_task_learns_at_once_that_the_store_is_closed() {
    let store = Fixture::new(ROOMY);
    assert!(store.chain.close_log().unwrap().is_some());
    let mut ticket = store.chain.ticket(commit(&store, "a"), false);
    let Poll::Ready(Err(error)) = poll(&mut ticket, Waker::noop()) else { panic!("it waits") };
    assert!(matches!(error.kind(), ErrorKind::Closed), "not {error:?}");
}

#[test]
fn who_gives_the_role_up_without_writing_leads_for_who_waits_and_for_nobody_else() {
    // Nobody waits.
    let store = Fixture::new(ROOMY);
    commit(&store, "a");
    assert!(store.chain.group.try_take());
    store.chain.release();
    assert_eq!(batches(&store), 0, "nobody has asked for it");
    assert!(store.chain.group.is_idle());

    // Somebody came meanwhile.
    let mut ticket = store.chain.ticket(commit(&store, "b"), false);
    assert!(store.chain.group.try_take());
    assert!(poll(&mut ticket, Waker::noop()).is_pending());
    store.chain.release();
    assert_eq!(batches(&store), 1);
    assert!(matches!(poll(&mut ticket, Waker::noop()), Poll::Ready(Ok(()))));

    // Somebody has been waiting since before.
    let position = commit(&store, "c");
    assert!(store.chain.group.try_take());
    let waiter = Waiter::task(position.seq, Waker::noop().clone());
    // SAFETY: the role was just taken.
    unsafe { store.chain.group.with_leader(|leader| leader.kept.push(Arc::clone(&waiter))) };
    store.chain.release();
    assert!(waiter.is_served());
    assert_eq!(store.chain.durable(), position);
    store.verify();
}

#[test]
fn who_leads_where_nothing_is_new_writes_nothing() {
    let store = Fixture::new(ROOMY);
    for committed in 0..2 {
        assert!(store.chain.group.try_take());
        store.chain.lead();
        assert_eq!(batches(&store), committed);
        store.chain.wait_durable(commit(&store, "a")).unwrap();
    }
    store.verify();
}

#[test]
fn only_a_compaction_that_is_durable_asks_for_background_work() {
    let store = Fixture::new(ROOMY);
    let asked = || store.world.works.load(Ordering::Relaxed);
    for key in ["a", "b"] {
        store.chain.wait_durable(commit(&store, key)).unwrap();
    }
    assert_eq!(asked(), 0);
    let compaction = store.order(&Plan { compact: Some(2), ..plan([]) });
    assert_eq!(asked(), 0, "it may still be lost");
    store.chain.wait_durable(compaction.position).unwrap();
    assert_eq!(asked(), 1);
    store.chain.wait_durable(commit(&store, "c")).unwrap();
    assert_eq!(asked(), 1);
}

#[test]
fn who_sleeps_is_told_once_of_what_it_waits_for() {
    let store = Fixture::new(ROOMY);
    let chain = &store.chain;
    commit(&store, "a");
    assert_eq!(told(&store), 0, "nobody sleeps");
    assert!(!chain.tell_when(Until::Applied, 0), "there is one already");
    // It did not sleep, but has said that it would: told in vain.
    let second = commit(&store, "b");
    assert_eq!(told(&store), 1);
    commit(&store, "c");
    assert_eq!(told(&store), 1, "nobody sleeps");

    assert!(chain.tell_when(Until::Applied, 3));
    chain.wait_durable(second).unwrap();
    assert_eq!(told(&store), 1, "nothing more is applied");
    commit(&store, "d");
    assert_eq!(told(&store), 2);

    assert!(!chain.tell_when(Until::Durable, 2), "three are durable");
    assert!(chain.tell_when(Until::Durable, 3));
    let last = commit(&store, "e");
    assert_eq!(told(&store), 2, "nothing more is durable");
    chain.wait_durable(last).unwrap();
    assert_eq!(told(&store), 3);
    chain.wait_durable(commit(&store, "f")).unwrap();
    assert_eq!(told(&store), 3, "nobody sleeps");
}

#[test]
fn who_sleeps_is_told_of_a_failure_whatever_it_waits_for() {
    for wanted in [Until::Applied, Until::Durable] {
        let store = Fixture::new(ROOMY);
        *lock(&store.log.fail_after) = Some(0);
        let lost = commit(&store, "a");
        assert!(store.chain.tell_when(wanted, 1));
        store.chain.wait_durable(lost).unwrap_err();
        assert_eq!(told(&store), 1, "{wanted:?}");
        assert!(!store.chain.tell_when(wanted, 1), "nothing will come any more");
    }
}

#[test]
fn who_helps_late_changes_nothing() {
    let store = Fixture::new(ROOMY);
    let guard = epoch::pin();
    let before = store.chain.begin(&guard);
    let keys = 3 * crate::commit::chain::LARGE + 1;
    store.order(&plan((0..keys).map(|key| put(format!("{key:03}"), "v")).collect::<Vec<_>>()));
    store.order(&plan([put("000", "later")]));
    let node = before.node.next(&guard).expect("the large one").node;
    assert_eq!(node.keys().len(), keys);
    // Each begins at another place, all of them within the keys.
    for _ in 0..keys {
        store.chain.apply(before.node, Link { node, opens_generation: false }, &guard);
    }
    store.verify();
}

#[test]
fn the_failure_that_ended_a_store_goes_with_it() {
    let store = Fixture::new(ROOMY);
    *lock(&store.log.fail_after) = Some(0);
    store.chain.wait_durable(commit(&store, "a")).unwrap_err();
    let cause = store.chain.poison().expect("it has failed");
    let before = Arc::strong_count(&cause);
    drop(store);
    assert_eq!(Arc::strong_count(&cause), before - 1);
}

#[test]
fn who_waits_on_a_stack_goes_with_it() {
    let stack = Stack::new();
    let waiters = [1, 2].map(|seq| Waiter::task(seq, Waker::noop().clone()));
    for waiter in &waiters {
        stack.push(waiter);
    }
    drop(stack);
    assert!(waiters.iter().all(|waiter| Arc::strong_count(waiter) == 1));
}

#[test]
fn a_key_that_is_written_twice_is_noticed_wherever_it_stands() {
    let once = |keys: &[&str]| {
        writes_each_once(&plan(keys.iter().map(|key| put(key, "v")).collect::<Vec<_>>()))
    };
    assert!([&[][..], &["a"], &["a", "b"], &["b", "a"], &["b", "c", "a"]].into_iter().all(once));
    assert!(![&["a", "a"][..], &["a", "b", "a"], &["b", "a", "b"]].into_iter().any(once));
}

#[test]
fn a_frame_that_does_not_follow_is_not_replayed() {
    let written = Fixture::small();
    commit(&written, "a");
    let frames = written.frames();
    let replay = |start: Position| {
        let store = Fixture::without_log(ROOMY, start);
        let (frame, _) = Frame::decode(&frames[0], &Binding::new(&STORE)).unwrap();
        let done = store.chain.replay(&frame);
        assert_eq!(store.chain.applied().seq, start.seq + u64::from(done.is_ok()));
        done.is_ok()
    };
    assert!(replay(START));
    // Each of the three by itself.
    for seq in [1, 5] {
        assert!(!replay(Position { seq, ..START }), "seq {seq}");
    }
    for revision in [0, 2] {
        assert!(!replay(Position { revision, ..START }), "revision {revision}");
    }
    assert!(!replay(Position { time: i64::MAX, ..START }));
}
