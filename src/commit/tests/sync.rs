//! Durability: group sync, tickets, futures, poison.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::error::ErrorKind;

const ROOMY: GenerationSize = GenerationSize { arena_bytes: 1 << 20, keys: 1000 };

/// Wakes by unparking a thread, and counts.
struct Unpark {
    thread: thread::Thread,
    wakes: AtomicUsize,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let unpark = Arc::new(Unpark { thread: thread::current(), wakes: AtomicUsize::new(0) });
    let waker = Waker::from(unpark);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                let start = Instant::now();
                thread::park_timeout(Duration::from_secs(20));
                assert!(start.elapsed() < Duration::from_secs(20), "nobody has woken it");
            }
        }
    }
}

/// Runs a background thread that leads when asked, as the engine's log thread does at its end.
fn with_background<R>(store: &Fixture, work: impl FnOnce() -> R) -> R {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let _ = store.chain.lead_once();
                thread::park_timeout(Duration::from_millis(500));
            }
        });
        *lock(&store.world.background) = Some(worker.thread().clone());
        let result = work();
        stop.store(true, Ordering::SeqCst);
        worker.thread().unpark();
        result
    })
}

#[test]
fn waiting_writes_out_everything_before() {
    let store = Fixture::new(ROOMY);
    let tickets: Vec<_> = (0..64)
        .map(|key| {
            store.chain.ticket(store.order(&plan([put(format!("{key}"), "v")])).position, false)
        })
        .collect();
    assert_eq!(store.chain.durable(), START);
    tickets.last().unwrap().wait().unwrap();
    assert_eq!(store.chain.durable(), store.chain.applied());
    for ticket in &tickets {
        ticket.wait().unwrap();
    }
    assert_eq!(lock(&store.log.batches).len(), 1, "64 tickets, one sync");
    assert!(!store.chain.lead_once().unwrap(), "nothing left");
    store.verify();
}

#[test]
fn threads_share_syncs() {
    const THREADS: u64 = 16;
    const ROUNDS: u64 = 60;
    let store = Fixture::new(GenerationSize { arena_bytes: 1 << 16, keys: 100 });
    store.log.delay.store(200, Ordering::Relaxed);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let ordered = store.order(&plan([put(format!("{thread}"), vec![1; 300])]));
                    store.chain.wait_durable(ordered.position).unwrap();
                    assert!(store.chain.durable() >= ordered.position);
                }
            });
        }
    });
    let syncs = lock(&store.log.batches).len() as u64;
    assert!(syncs < THREADS * ROUNDS / 3, "{syncs} syncs for {} commits", THREADS * ROUNDS);
    assert!(lock(&store.world.generations).len() > 2);
    store.verify();
}

#[test]
fn tickets_can_be_awaited_without_a_background_thread() {
    let store = Fixture::new(ROOMY);
    thread::scope(|scope| {
        for thread in 0..6 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..100 {
                    let ordered = store.order(&plan([put(format!("{thread}"), "v")]));
                    if round % 3 == 0 {
                        store.chain.wait_durable(ordered.position).unwrap();
                    } else {
                        block_on(store.chain.ticket(ordered.position, false)).unwrap();
                    }
                }
            });
        }
    });
    store.verify();
}

#[test]
fn tickets_can_be_awaited_with_a_background_thread() {
    let store = Fixture::new(ROOMY);
    store.log.delay.store(50, Ordering::Relaxed);
    with_background(&store, || {
        thread::scope(|scope| {
            for thread in 0..6 {
                let store = &store;
                scope.spawn(move || {
                    for round in 0..60 {
                        let ordered = store.order(&plan([put(format!("{thread}"), "v")]));
                        if round % 3 == thread % 3 {
                            store.chain.wait_durable(ordered.position).unwrap();
                        } else {
                            block_on(store.chain.ticket(ordered.position, false)).unwrap();
                        }
                    }
                });
            }
        });
    });
    store.verify();
}

#[test]
fn a_poll_does_not_sync_if_somebody_else_can() {
    let store = Fixture::new(ROOMY);
    *lock(&store.world.background) = Some(thread::current());
    let ordered = store.order(&plan([put("a", "v")]));
    let unpark = Arc::new(Unpark { thread: thread::current(), wakes: AtomicUsize::new(0) });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut context = Context::from_waker(&waker);
    let mut ticket = pin!(store.chain.ticket(ordered.position, false));
    assert!(ticket.as_mut().poll(&mut context).is_pending());
    assert!(ticket.as_mut().poll(&mut context).is_pending());
    assert_eq!(store.world.requests.load(Ordering::Relaxed), 1, "asked once");
    assert_eq!(lock(&store.log.batches).len(), 0);
    assert!(store.chain.lead_once().unwrap());
    assert_eq!(unpark.wakes.load(Ordering::SeqCst), 1);
    assert!(matches!(ticket.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
}

#[test]
fn a_dropped_task_holds_nobody_up() {
    let store = Fixture::new(ROOMY);
    *lock(&store.world.background) = Some(thread::current());
    let ordered = store.order(&plan([put("a", "v")]));
    let mut ticket = store.chain.ticket(ordered.position, false);
    let mut context = Context::from_waker(Waker::noop());
    assert!(pin!(&mut ticket).poll(&mut context).is_pending());
    drop(ticket);
    store.chain.wait_durable(ordered.position).unwrap();
    let next = store.order(&plan([put("a", "w")]));
    store.chain.wait_durable(next.position).unwrap();
    store.verify();
}

#[test]
fn a_failed_append_poisons_the_store() {
    let store = Fixture::new(ROOMY);
    let good = store.order(&plan([put("a", "1")]));
    store.chain.wait_durable(good.position).unwrap();
    *lock(&store.log.fail_after) = Some(0);
    let lost = store.order(&plan([put("a", "2")]));
    let ticket = store.chain.ticket(lost.position, false);
    let error = store.chain.wait_durable(lost.position).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::OutcomeUnknown { revision: 3, .. }), "not {error:?}");
    assert!(error.to_string().contains("the disk is gone"), "{error}");
    // Whoever waits later learns the same; what was durable stays so.
    assert!(matches!(block_on(ticket).unwrap_err().kind(), ErrorKind::OutcomeUnknown { .. }));
    store.chain.wait_durable(good.position).unwrap();
    assert_eq!(store.chain.durable(), good.position);
    assert!(store.chain.poison().is_some());
    // Nothing more is ordered, and the log is left alone although it would work again.
    *lock(&store.log.fail_after) = None;
    let Err(OrderError::Failed(error)) = store.try_order(&plan([put("a", "3")])) else {
        panic!("ordered after a failure");
    };
    assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "not {error:?}");
    assert!(store.chain.lead_once().is_err());
    assert_eq!(lock(&store.log.batches).len(), 1);
    store.verify();
}

#[test]
fn everyone_who_waits_learns_of_the_failure() {
    for failing in 0..6 {
        let store = Fixture::new(ROOMY);
        store.log.delay.store(300, Ordering::Relaxed);
        *lock(&store.log.fail_after) = Some(failing);
        let acked = Mutex::new(0);
        thread::scope(|scope| {
            let (store, acked) = (&store, &acked);
            let commit = |thread| {
                scope.spawn(move || {
                    for round in 0.. {
                        let change = plan([put(format!("{thread}"), "v")]);
                        let ordered = match store.try_order(&change) {
                            Ok(ordered) => ordered,
                            Err(OrderError::Failed(error)) => {
                                let kind = error.kind();
                                assert!(matches!(kind, ErrorKind::Poisoned { .. }), "{error:?}");
                                return;
                            }
                            Err(error) => panic!("of a blind put: {error:?}"),
                        };
                        let outcome = if (round + thread) % 2 == 0 {
                            store.chain.wait_durable(ordered.position)
                        } else {
                            block_on(store.chain.ticket(ordered.position, false))
                        };
                        if outcome.is_err() {
                            return;
                        }
                        let mut acked = lock(acked);
                        *acked = ordered.position.seq.max(*acked);
                    }
                })
            };
            for thread in (0..12).map(commit).collect::<Vec<_>>() {
                thread.join().expect("no panic");
            }
        });
        let durable = store.chain.durable().seq;
        assert!(*lock(&acked) <= durable, "nothing was acked that is not in the log");
        assert_eq!(lock(&store.log.batches).len(), failing);
        store.verify();
    }
}

#[test]
fn a_closed_log_is_written_out_and_then_refuses() {
    let store = Fixture::new(ROOMY);
    store.order(&plan([put("a", "1")]));
    assert!(store.chain.close_log().unwrap().is_some());
    assert_eq!(store.chain.durable(), store.chain.applied());
    let late = store.order(&plan([put("a", "2")]));
    let error = store.chain.wait_durable(late.position).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "not {error:?}");
    let error = block_on(store.chain.ticket(late.position, false)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "not {error:?}");
}
