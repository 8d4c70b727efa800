//! Watches as streams of tasks: who is woken, and what wakers cannot spoil.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use annals::{Batch, ErrorKind, Store, Watch};
use futures_core::Stream;

use crate::support::watchdog::Watchdog;
use crate::support::{DIRECTORY, wakers};
use crate::{fresh, next, options};

/// Counts, and wakes a thread.
struct Counts {
    woken: AtomicU64,
    thread: Thread,
}

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

fn counts() -> (Arc<Counts>, Waker) {
    let counts = Arc::new(Counts { woken: AtomicU64::new(0), thread: thread::current() });
    (Arc::clone(&counts), Waker::from(counts))
}

fn poll(watch: &mut Watch, waker: &Waker) -> Poll<Option<annals::Result<Batch>>> {
    Pin::new(watch).poll_next(&mut Context::from_waker(waker))
}

/// Polls whenever woken, until there is something.
pub(crate) fn wait(watch: &mut Watch) -> Option<annals::Result<Batch>> {
    let (counts, waker) = counts();
    loop {
        let woken = counts.woken.load(Ordering::SeqCst);
        if let Poll::Ready(item) = poll(watch, &waker) {
            return item;
        }
        while counts.woken.load(Ordering::SeqCst) == woken {
            thread::park();
        }
    }
}

#[test]
fn a_task_is_woken_by_every_end() {
    let watchdog = Watchdog::new(Duration::from_secs(60));
    watchdog.begin("a task that is woken");
    let store = fresh(true);
    let begin = || store.watch("a").from(2).start().unwrap();
    let mut watch = begin();
    for revision in 2..200 {
        let other = store.clone();
        let writer = thread::spawn(move || other.put("a", "").unwrap());
        assert_eq!(wait(&mut watch).unwrap().unwrap().revision(), revision);
        writer.join().unwrap();
    }
    let mut cancelled = begin();
    for _ in 2..200 {
        wait(&mut cancelled).unwrap().unwrap();
    }
    let handle = cancelled.handle();
    let canceller = thread::spawn(move || handle.cancel());
    assert!(wait(&mut cancelled).is_none());
    canceller.join().unwrap();
    let closer = thread::spawn(move || store.close().unwrap());
    let error = wait(&mut watch).unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed));
    assert!(wait(&mut watch).is_none());
    closer.join().unwrap();
}

#[test]
fn looking_takes_no_other_waiter_its_place() {
    let store = fresh(false);
    let mut watch = store.watch("a").start().unwrap();
    let (counts, waker) = counts();
    assert!(poll(&mut watch, &waker).is_pending());
    assert!(watch.try_next().is_none());
    store.put("a", "").unwrap();
    assert_eq!(counts.woken.load(Ordering::SeqCst), 0, "nobody has looked");
    assert!(store.run_background().unwrap());
    assert_eq!(counts.woken.load(Ordering::SeqCst), 1);
    assert!(poll(&mut watch, &waker).is_ready());
}

#[test]
fn a_task_without_a_thread_to_tell_it_is_woken_by_who_looks() {
    let store = fresh(false);
    let (mut polled, mut other) =
        (store.watch("a").start().unwrap(), store.watch("b").start().unwrap());
    let (counts, waker) = counts();
    assert!(poll(&mut polled, &waker).is_pending());
    store.put("a", "").unwrap();
    assert!(other.try_next().is_none());
    assert_eq!(counts.woken.load(Ordering::SeqCst), 1);
}

#[test]
fn a_task_without_a_thread_to_tell_it_is_woken_by_the_end() {
    for close in [true, false] {
        let store = fresh(false);
        let mut watch = store.watch("a").start().unwrap();
        let (counts, waker) = counts();
        assert!(poll(&mut watch, &waker).is_pending());
        if close {
            store.close().unwrap();
        } else {
            drop(store);
        }
        assert_eq!(counts.woken.load(Ordering::SeqCst), 1, "close: {close}");
        let Poll::Ready(Some(Err(error))) = poll(&mut watch, &waker) else { panic!("{watch:?}") };
        assert!(matches!(error.kind(), ErrorKind::Closed));
    }
}

/// Writes the next key when it is woken.
struct Writes {
    store: Store,
    key: u64,
}

impl Wake for Writes {
    fn wake(self: Arc<Self>) {
        self.store.put(format!("{}", self.key + 1), "").unwrap();
    }
}

#[test]
fn who_does_not_wait_is_not_kept_by_others_who_write() {
    let store = fresh(false);
    let mut chained: Vec<_> =
        (0..50).map(|key| store.watch(format!("{key}")).start().unwrap()).collect();
    let mut looks = store.watch("").prefix().no_puts().start().unwrap();
    for (key, watch) in (0..).zip(&mut chained) {
        let waker = Waker::from(Arc::new(Writes { store: store.clone(), key }));
        assert!(poll(watch, &waker).is_pending());
    }
    store.put("0", "").unwrap();
    assert!(looks.try_next().is_none());
    assert!(store.revision() < 15, "what was written meanwhile is for the next time");
    assert!(looks.next_timeout(Duration::ZERO).is_none());
    assert!(store.revision() < 30);
}

#[test]
fn catching_up_gives_other_tasks_their_turn() {
    let store = fresh(false);
    store.put("a", "").unwrap();
    let mut watch = store.watch("a").from(1 << 40).start().unwrap();
    let (counts, waker) = counts();
    assert!(poll(&mut watch, &waker).is_pending());
    assert_eq!(counts.woken.load(Ordering::SeqCst), 0);
    // Each of very many revisions is looked at, and none is told.
    let mut watch = store.watch("a").from(2).no_puts().start().unwrap();
    for _ in 0..30 {
        store.put("a", "").unwrap();
    }
    assert!(poll(&mut watch, &waker).is_pending());
    assert_eq!(counts.woken.load(Ordering::SeqCst), 1, "it is to be polled again");
}

#[test]
fn a_waker_that_panics_harms_nobody_else() {
    let store = fresh(true);
    let mut good = store.watch("a").start().unwrap();
    let mut bad = store.watch("a").start().unwrap();
    let mut last = store.watch("a").start().unwrap();
    for revision in 2..5 {
        // The watch has the last clone of it.
        assert!(poll(&mut bad, &wakers::panics()).is_pending());
        store.put("a", "").unwrap();
        assert_eq!(next(&mut good).revision(), revision);
        assert_eq!(next(&mut last).revision(), revision);
        assert_eq!(next(&mut bad).revision(), revision);
    }
    store.close().unwrap();
}

#[test]
fn a_waker_that_panics_when_it_is_replaced_costs_no_event() {
    let store = fresh(true);
    let mut watch = store.watch("a").start().unwrap();
    for revision in 2..5 {
        assert!(poll(&mut watch, &wakers::panics()).is_pending());
        let (counts, waker) = counts();
        let replaced = catch_unwind(AssertUnwindSafe(|| poll(&mut watch, &waker)));
        assert!(replaced.is_err(), "the one before was dropped");
        store.put("a", "").unwrap();
        assert_eq!(next(&mut watch).revision(), revision);
        drop(counts);
    }
    store.close().unwrap();
}

#[test]
fn the_last_store_may_go_with_a_waker() {
    let watchdog = Watchdog::new(Duration::from_secs(60));
    watchdog.begin("the last store in a waker");
    let options = options(true);
    for round in 0..30 {
        let store = options.open(Path::new(DIRECTORY)).unwrap();
        assert_eq!(store.incarnation(), 1, "closed cleanly every time");
        let mut watch = store.watch("a").start().unwrap();
        let ticket = store.submit(annals::txn().then([annals::put("a", "")])).unwrap();
        let waker = wakers::keeps(store);
        let _ = poll(&mut watch, &waker);
        drop(waker);
        // The log thread writes it, and the waker is called, and dropped, by the watches' thread; or the
        // watch was as fast.
        let _ = ticket.wait();
        if round % 2 == 0 {
            drop(watch);
        } else {
            while watch.next().is_some_and(|item| item.is_ok()) {}
        }
        while let Err(error) = options.open(Path::new(DIRECTORY)).and_then(Store::close) {
            assert!(error.to_string().contains("open for writing"), "round {round}: {error}");
            thread::yield_now();
        }
    }
}

/// A task that takes what is ready as long as there is something gives way to others nevertheless.
#[test]
fn a_watch_that_catches_up_gives_way() {
    for key in ["a", "rare"] {
        let store = fresh(true);
        for n in 0..2_000 {
            store.put(if n % 500 == 0 { "rare" } else { "a" }, "").unwrap();
        }
        let expected = if key == "a" { 1_996 } else { 4 };
        let mut watch = store.watch(key).from(2).start().unwrap();
        let (counts, waker) = counts();
        let (mut told, mut pauses) = (0, 0);
        while told < expected {
            let woken = counts.woken.load(Ordering::SeqCst);
            match poll(&mut watch, &waker) {
                Poll::Ready(item) => told += item.unwrap().unwrap().events().len(),
                Poll::Pending => {
                    // It has something to do, and asks to be asked again.
                    assert_eq!(counts.woken.load(Ordering::SeqCst), woken + 1);
                    pauses += 1;
                }
            }
        }
        assert!(pauses >= if key == "a" { 50 } else { 1 }, "{key}: {pauses}");
        assert!(poll(&mut watch, &waker).is_pending());
    }
}
