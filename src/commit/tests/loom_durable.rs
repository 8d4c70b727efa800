//! Models of the way from applied to durable: what `publish` shows in which order, who is woken and
//! who leads, tickets that are dropped, and commits that race with a failing append.
//!
//! What each of them fails on, when the code is made weaker, `.ci/mutate-orderings` shows.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use ::loom::sync::atomic::AtomicBool;
use ::loom::sync::mpsc;
use ::loom::thread;

use super::loom::{Steps, block_on, join, model, spawn, store};
use super::loom_directed::link_unapplied;
use super::*;
use crate::commit::waiter::{Stack, Waiter, Woken, serve};
use crate::error::ErrorKind;
use crate::sync::UnsafeCell;

/// Polls a ticket once, with a waker that wakes nobody.
fn poll_once(ticket: impl Future<Output = Result<()>>) -> Poll<Result<()>> {
    pin!(ticket).poll(&mut Context::from_waker(Waker::noop()))
}

fn wait(store: &Fixture, position: Position) {
    store.chain.wait_durable(position).expect("a log that does not fail");
    assert!(store.chain.durable() >= position);
}

/// What a reader that enters at `durable` finds there is applied, and is what it says.
#[test]
fn loom_what_is_durable_is_visible() {
    model(Some(3), || {
        let (store, steps) = (store(), Steps::new());
        let done = steps.clone();
        let other = spawn(&store, move |store| {
            let ordered = store.order(&plan([put("a", "1")]));
            done.done();
            wait(&store, ordered.position);
            done.done();
        });
        steps.look();
        let durable = store.chain.durable();
        assert!(durable <= store.chain.applied());
        if durable.revision > 1 {
            let seen = store.read("a", durable.revision).expect("there");
            assert_eq!(seen.at, durable.revision, "each commit writes it");
        }
        other.join().expect("no panic");
        store.verify();
    });
}

/// The leader finds a commit whose thread has stopped after its link, and makes it durable: it is
/// applied, and `applied` says so, before `durable` does.
#[test]
fn loom_the_leader_finishes_what_it_makes_durable() {
    model(Some(3), || {
        let store = store();
        let guard = epoch::pin();
        let last = store.chain.begin(&guard).node;
        let head = last.generation().find(&user("a")).and_then(KeyNode::head).expect("written");
        let position = link_unapplied(&store, last, head).position();
        let steps = Steps::new();
        let other = spawn(&store, steps.then(move |store| wait(&store, position)));
        steps.look();
        let durable = store.chain.durable();
        assert!(durable <= store.chain.applied());
        if durable == position {
            assert_eq!(store.read("a", durable.revision).expect("there").value, b"linked");
        }
        other.join().expect("no panic");
        assert_eq!(store.chain.durable(), position);
        store.verify();
    });
}

/// The watermark of a compaction shows as durable between `durable` and the quick look at it: never
/// above what is durable, and in force for whoever waited.
#[test]
fn loom_a_durable_compaction_is_in_force() {
    model(Some(2), || {
        let (store, steps) = (store(), Steps::new());
        let compaction = Plan { compact: Some(2), ..Plan::default() };
        let position = store.order(&compaction).position;
        let others = [(); 2].map(|()| {
            let finds_it = move |store: Fixture| {
                wait(&store, position);
                assert_eq!(store.chain.durable_place().compacted, 2);
            };
            spawn(&store, steps.then(finds_it))
        });
        steps.look();
        let compacted = store.chain.durable_place().compacted;
        let durable = store.chain.durable();
        assert!(compacted == 0 || durable >= position);
        join(others);
        store.verify();
    });
}

/// The quick look at the outcome is as good as the whole: whoever is told "durable" by it finds
/// everything that publishing did.
#[test]
fn loom_a_quick_look_sees_what_was_published() {
    model(Some(2), || {
        let (store, steps) = (store(), Steps::new());
        let position = store.chain.applied();
        let other = spawn(&store, steps.then(move |store| wait(&store, position)));
        steps.look();
        if let Some(outcome) = store.chain.group.outcome(position) {
            outcome.expect("a log that does not fail");
            assert!(store.chain.durable() >= position);
            assert_eq!(lock(&store.log.batches).len(), 1);
        }
        other.join().expect("no panic");
        store.verify();
    });
}

/// Two commit and wait, and a third only waits: the role goes from one to the next.
#[test]
fn loom_the_role_is_handed_on() {
    model(Some(2), || {
        let store = store();
        let first = store.chain.applied();
        let others = [
            spawn(&store, move |store| wait(&store, first)),
            spawn(&store, |store| {
                let ordered = store.order(&plan([put("a", "1")]));
                wait(&store, ordered.position);
            }),
        ];
        wait(&store, first);
        join(others);
        store.verify();
    });
}

/// The stack is taken whole while others push: nobody is lost, nobody is taken twice.
#[test]
fn loom_waiters_are_taken_while_others_push() {
    model(None, || {
        let stack = Arc::new(Stack::new());
        let pushers = [1, 2].map(|seq| {
            let stack = Arc::clone(&stack);
            thread::spawn(move || stack.push(&Waiter::thread(seq, false)))
        });
        let mut taken = Vec::new();
        stack.take(&mut taken);
        join(pushers);
        assert_eq!(stack.is_empty(), taken.len() == 2);
        stack.take(&mut taken);
        let mut seqs: Vec<u64> = taken.iter().map(|waiter| waiter.seq).collect();
        seqs.sort_unstable();
        assert_eq!(seqs, [1, 2]);
    });
}

/// A waker in which loom can switch threads, between the change of the state and the wake-up. The wake-up orders
/// everything for loom; the flag, which the test looks at, makes loom try what happens before it.
struct Pause(Arc<AtomicBool>, thread::Thread);

impl Wake for Pause {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}

/// Whoever is woken to lead has what the one before left, also when it finds the word before it has
/// slept: the wake-up may come later.
#[test]
fn loom_an_heir_sees_what_the_leader_did() {
    model(None, || {
        let left = Arc::new(UnsafeCell::new(0));
        let flag = Arc::new(AtomicBool::new(false));
        let pause = Pause(Arc::clone(&flag), thread::current());
        let waiter = Waiter::task(1, Arc::new(pause).into());
        let (seen, woken) = (Arc::clone(&left), Arc::clone(&waiter));
        let other = thread::spawn(move || {
            // SAFETY: nobody else touches the cell before it is woken, as the model shows.
            left.with_mut(|left| unsafe { *left = 7 });
            woken.wake(Woken::Lead);
        });
        assert_eq!(waiter.sleep(), Woken::Lead);
        flag.load(Ordering::Relaxed);
        // SAFETY: as above; whoever wakes does not touch it any more.
        assert_eq!(seen.with(|seen| unsafe { *seen }), 7);
        // A late wake-up must not meet this thread in `join`, which loom takes for a mistake.
        drop(other);
    });
}

/// Whoever leads unasked, and was served just before, sees whom it has to wake; the wake-up may come later here,
/// too. Tasks stand for threads, for the sake of [`Pause`].
#[test]
fn loom_who_leads_sees_whom_it_has_to_wake() {
    model(None, || {
        let flag = Arc::new(AtomicBool::new(false));
        let pause = Pause(Arc::clone(&flag), thread::current());
        let waiter = Waiter::task(1, Arc::new(pause).into());
        let after = Waiter::task(2, Waker::noop().clone());
        let served = vec![Arc::clone(&after), Arc::clone(&waiter)];
        let other = thread::spawn(move || serve(served, 1));
        let is_first = !waiter.is_served();
        waiter.leads();
        flag.load(Ordering::Relaxed);
        assert!(is_first || after.is_served());
        drop(other);
    });
}

/// Threads that are served in chains all wake, also when one of them leads in place of sleeping, before it
/// is served or after; whoever wakes the next sees whom.
#[test]
fn loom_a_chain_of_waiters_loses_nobody() {
    for (away, chains) in (0..3).flat_map(|away| [(away, 1), (away, 2)]) {
        model(None, move || {
            let (told, waiters) = mpsc::channel();
            let others: Vec<_> = (0..3)
                .map(|number| {
                    let told = told.clone();
                    thread::spawn(move || {
                        let waiter = Waiter::thread(number, false);
                        told.send(Arc::clone(&waiter)).expect("it is received");
                        if number == away {
                            waiter.leads();
                        } else {
                            assert_eq!(waiter.sleep(), Woken::Served);
                        }
                    })
                })
                .collect();
            let waiters: Vec<_> = (0..3).map(|_| waiters.recv().expect("three are sent")).collect();
            serve(waiters, chains);
            join(others);
        });
    }
}

/// A ticket is polled and dropped, at whatever moment of another's write-out: the commit becomes
/// durable all the same, and nobody is held up.
#[test]
fn loom_a_ticket_is_dropped_while_it_waits() {
    model(Some(3), || {
        let store = store();
        let first = store.chain.applied();
        let other = spawn(&store, move |store| wait(&store, first));
        let second = store.order(&plan([put("a", "1")])).position;
        let mut ticket = store.chain.ticket(second, false);
        let polled = poll_once(&mut ticket);
        assert!(!matches!(polled, Poll::Ready(Err(_))));
        drop(ticket);
        other.join().expect("no panic");
        // Nobody is asked to: the one who had the role, or the poll, has seen to it.
        assert!(store.chain.durable() >= second);
        store.verify();
    });
}

/// A ticket that changes its task is woken there.
#[test]
fn loom_a_ticket_is_awaited_by_another_task() {
    model(Some(2), || {
        let store = store();
        let position = store.chain.applied();
        let other = spawn(&store, move |store| wait(&store, position));
        let mut ticket = store.chain.ticket(position, false);
        if poll_once(&mut ticket).is_pending() {
            block_on(ticket).expect("a log that does not fail");
        }
        other.join().expect("no panic");
        store.verify();
    });
}

/// Runs `work` beside a background thread that leads when asked, as the engine's log thread does at its end.
fn with_background(store: &Fixture, work: impl FnOnce()) {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let worker = spawn(store, move |store| {
        while !stopped.load(Ordering::Acquire) {
            store.chain.lead_once().expect("a log that does not fail");
            thread::park();
        }
    });
    *lock(&store.world.background) = Some(worker.thread().clone());
    work();
    stop.store(true, Ordering::Release);
    worker.thread().unpark();
    worker.join().expect("no panic");
}

#[test]
fn loom_a_task_is_served_by_the_background_thread() {
    model(Some(3), || {
        let store = store();
        with_background(&store, || {
            let position = store.order(&plan([put("a", "1")])).position;
            block_on(store.chain.ticket(position, false)).expect("a log that does not fail");
        });
        store.verify();
    });
}

/// The background thread finds the role taken, and is not asked in vain: whoever gives it up while
/// a task waits asks again.
#[test]
fn loom_a_task_a_thread_and_the_background_thread() {
    model(Some(2), || {
        let store = store();
        let first = store.chain.applied();
        with_background(&store, || {
            let other = spawn(&store, move |store| wait(&store, first));
            let second = store.order(&plan([put("a", "1")])).position;
            block_on(store.chain.ticket(second, false)).expect("a log that does not fail");
            other.join().expect("no panic");
        });
        store.verify();
    });
}

fn is_poisoned(result: Result<Ordered, OrderError>) -> bool {
    match result {
        Err(OrderError::Failed(error)) => matches!(error.kind(), ErrorKind::Poisoned { .. }),
        _ => false,
    }
}

/// A commit races with the append that fails: it is refused, or it is ordered and its outcome is
/// unknown; never is it durable. Whoever has learnt of the failure gets nothing ordered any more.
#[test]
fn loom_a_commit_races_with_a_failing_append() {
    model(Some(3), || {
        let store = store();
        *lock(&store.log.fail_after) = Some(0);
        let position = store.chain.applied();
        let other = spawn(&store, move |store| {
            store.chain.wait_durable(position).expect_err("the log fails");
            assert!(is_poisoned(store.try_order(&plan([put("b", "1")]))));
        });
        match store.try_order(&plan([put("a", "1")])) {
            Ok(ordered) => {
                let error = store.chain.wait_durable(ordered.position).expect_err("it fails");
                assert!(matches!(error.kind(), ErrorKind::OutcomeUnknown { .. }), "{error}");
            }
            refused => assert!(is_poisoned(refused)),
        }
        assert!(is_poisoned(store.try_order(&plan([put("a", "2")]))));
        other.join().expect("no panic");
        assert_eq!(store.chain.durable(), START);
        assert_eq!(lock(&store.log.batches).len(), 0);
        store.verify();
    });
}

/// One batch succeeds and the next fails: each is told what became of its own.
#[test]
fn loom_a_failure_after_a_success() {
    model(Some(3), || {
        let store = store();
        *lock(&store.log.fail_after) = Some(1);
        let first = store.chain.applied();
        let told = move |store: &Fixture, position| {
            let outcome = store.chain.wait_durable(position);
            let durable = store.chain.durable();
            assert_eq!(outcome.is_ok(), durable >= position, "told {outcome:?}, {durable:?}");
        };
        let other = spawn(&store, move |store| {
            told(&store, first);
            // The first batch holds at least what was applied before the threads began.
            assert!(store.chain.durable() >= first);
        });
        if let Ok(ordered) = store.try_order(&plan([put("a", "1")])) {
            told(&store, ordered.position);
        }
        other.join().expect("no panic");
        assert_eq!(lock(&store.log.batches).len(), 1);
        store.verify();
    });
}

/// A batch fails after another succeeded: whoever waits for the first, and looks just then, is not
/// told of the failure of the second.
#[test]
fn loom_a_failure_does_not_reach_back() {
    model(Some(3), || {
        let (store, steps) = (store(), Steps::new());
        *lock(&store.log.fail_after) = Some(1);
        let first = store.chain.applied();
        let fails = move |store: Fixture| {
            wait(&store, first);
            let second = store.order(&plan([put("a", "1")])).position;
            store.chain.wait_durable(second).expect_err("the log fails");
        };
        let other = spawn(&store, steps.then(fails));
        steps.look();
        if let Some(outcome) = store.chain.group.outcome(first) {
            outcome.expect("the first batch was written");
            assert!(store.chain.durable() >= first);
        }
        other.join().expect("no panic");
        assert_eq!(store.chain.durable(), first);
        store.verify();
    });
}

/// Whoever awaits a ticket learns of the failure like who waits in a thread.
#[test]
fn loom_a_ticket_learns_of_the_failure() {
    model(Some(3), || {
        let store = store();
        *lock(&store.log.fail_after) = Some(0);
        let position = store.chain.applied();
        let other = spawn(&store, move |store| {
            block_on(store.chain.ticket(position, false)).expect_err("the log fails");
        });
        block_on(store.chain.ticket(position, false)).expect_err("the log fails");
        other.join().expect("no panic");
        assert_eq!(store.chain.durable(), START);
    });
}
