//! Every interleaving of two or three threads, and every value the memory model lets a load return.
//!
//! `cargo test -p annals --features loom --release --lib loom_`. Keys are made and resolved before
//! the threads start wherever the model is not about that, so that the hash table and the ordered
//! index are only read, which costs the model nothing.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use ::loom::model::Builder;
use ::loom::sync::Notify;
use ::loom::thread;

use super::*;

/// Room for everything a model does; four hash slots.
pub(super) const TINY: GenerationSize = GenerationSize { arena_bytes: 1 << 14, keys: 3 };

/// Runs a model, with at most `preemptions` forced thread switches per execution.
pub(super) fn model(preemptions: Option<usize>, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 100_000;
    // Not loom's: it counts the executions, and is no part of any.
    let executions = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counter = std::sync::Arc::clone(&executions);
    builder.check(move || {
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        run();
    });
    let executions = executions.load(std::sync::atomic::Ordering::Relaxed);
    println!("{:?}: {executions} executions", std::thread::current().name());
}

/// A store whose keys `a` and `b` were written at revision 2.
pub(super) fn store() -> Fixture {
    let store = Fixture::new(TINY);
    store.order(&plan([put("a", "0"), put("b", "0")]));
    store
}

pub(super) fn spawn(
    store: &Fixture,
    run: impl FnOnce(Fixture) + 'static,
) -> thread::JoinHandle<()> {
    let store = store.clone();
    thread::spawn(move || run(store))
}

pub(super) fn join(others: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    for other in others {
        other.join().expect("no panic");
    }
}

/// How far the other threads are, for loom: a thread that only reads looks at it first, so that it is
/// also tried after each of their steps. Relaxed: nothing is ordered by it.
///
/// It is needed because of the accesses to a word loom minds only the last, when it looks for what
/// else could have come before a change: a thread that loads a word and then changes it hides the
/// reader that loaded it before.
#[derive(Clone)]
pub(super) struct Steps(Arc<::loom::sync::atomic::AtomicUsize>);

impl Steps {
    pub(super) fn new() -> Self {
        Self(Arc::new(::loom::sync::atomic::AtomicUsize::new(0)))
    }

    pub(super) fn done(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The same step, counted.
    pub(super) fn then<F: FnOnce(Fixture)>(&self, step: F) -> impl FnOnce(Fixture) + use<F> {
        let steps = self.clone();
        move |store| {
            step(store);
            steps.done();
        }
    }

    pub(super) fn look(&self) {
        self.0.load(Ordering::Relaxed);
    }
}

/// Checks the store, and that the keys were written at these revisions.
pub(super) fn verify(store: &Fixture, expected: &[(&str, &[u64])]) {
    store.chain.wait_durable(store.chain.applied()).expect("a log that does not fail");
    let keys = store.verify();
    for (key, revisions) in expected {
        assert_eq!(keys[&user(key)[..]], *revisions, "of {key}");
    }
}

#[test]
fn loom_link_race() {
    model(None, || {
        let store = store();
        let other = spawn(&store, |store| {
            let ordered = store.order(&plan([put("a", "1")]));
            assert!(store.chain.applied() >= ordered.position, "read your writes");
        });
        let ordered = store.order(&plan([put("b", "2")]));
        assert!(store.chain.applied() >= ordered.position, "read your writes");
        other.join().expect("no panic");
        assert_eq!(store.chain.applied().revision, 4);
        verify(&store, &[]);
    });
}

#[test]
fn loom_three_linkers() {
    model(Some(1), || {
        let store = store();
        let others = ["a", "b"].map(|key| {
            spawn(&store, move |store| {
                let ordered = store.order(&plan([put(key, "1")]));
                assert!(store.chain.applied() >= ordered.position, "read your writes");
            })
        });
        let ordered = store.order(&plan([put("a", "2")]));
        assert!(store.chain.applied() >= ordered.position, "read your writes");
        join(others);
        assert_eq!(store.chain.applied().revision, 5);
        verify(&store, &[]);
    });
}

#[test]
fn loom_same_key_cas() {
    model(Some(3), || {
        let store = store();
        let won = Arc::new(AtomicU64::new(0));
        let attempt = |won: Arc<AtomicU64>| {
            move |store: Fixture| match store.try_order(&cas([put("a", "1")], &[("a", 2)])) {
                Ok(ordered) => {
                    assert_eq!(ordered.position.revision, 3);
                    won.fetch_add(1, Ordering::SeqCst);
                }
                Err(OrderError::Conflict) => assert!(store.chain.applied().revision >= 2),
                Err(error) => panic!("{error:?}"),
            }
        };
        let other = spawn(&store, attempt(Arc::clone(&won)));
        attempt(Arc::clone(&won))(store.clone());
        other.join().expect("no panic");
        assert_eq!(won.load(Ordering::SeqCst), 1, "one wins");
        verify(&store, &[("a", &[2, 3])]);
    });
}

#[test]
fn loom_crossing_keys() {
    model(Some(3), || {
        let store = store();
        let other = spawn(&store, |store| {
            store.order(&plan([put("a", "1"), put("b", "1")]));
        });
        store.order(&plan([put("b", "2"), put("a", "2")]));
        other.join().expect("no panic");
        verify(&store, &[("a", &[2, 3, 4]), ("b", &[2, 3, 4])]);
    });
}

#[test]
fn loom_write_skew() {
    model(Some(3), || {
        let store = store();
        let other = spawn(&store, |store| {
            let _ = store.try_order(&cas([put("a", "1")], &[("b", 2)]));
        });
        let _ = store.try_order(&cas([put("b", "1")], &[("a", 2)]));
        other.join().expect("no panic");
        assert_eq!(store.chain.applied().revision, 3, "exactly one of the two holds");
        verify(&store, &[]);
    });
}

#[test]
fn loom_phantom() {
    model(Some(3), || {
        let store = store();
        let ranged = |key| {
            let mut plan = plan([put(key, "1")]);
            plan.reads.ranges.push((user("a"), Bytes::new()));
            plan
        };
        let attempt = move |store: Fixture, key| {
            let guard = epoch::pin();
            let snapshot = store.chain.begin(&guard);
            let seen = snapshot.position().revision;
            match store.chain.order(&snapshot, &ranged(key), &*store.world) {
                Ok(ordered) => assert_eq!(ordered.position.revision, seen + 1),
                Err(error) => assert!(matches!(error, OrderError::Conflict)),
            }
        };
        let other = spawn(&store, move |store| attempt(store, "a"));
        attempt(store.clone(), "b");
        other.join().expect("no panic");
        verify(&store, &[]);
    });
}

#[test]
fn loom_reader_sees_whole_transactions() {
    model(Some(2), || {
        let (store, steps) = (store(), Steps::new());
        let writer = spawn(
            &store,
            steps.then(|store| {
                store.order(&plan([put("a", "1"), put("b", "1")]));
            }),
        );
        let helper = spawn(
            &store,
            steps.then(|store| {
                store.order(&plan([put("b", "2")]));
            }),
        );
        steps.look();
        let at = store.chain.applied().revision;
        let (a, b) = (store.read("a", at).expect("there"), store.read("b", at).expect("there"));
        if a.value == b"1" {
            assert!(b.at >= a.at, "both or neither");
        }
        if b.value == b"1" {
            assert_eq!(a.at, b.at, "both or neither");
        }
        assert!(a.at <= at && b.at <= at);
        writer.join().expect("no panic");
        helper.join().expect("no panic");
        verify(&store, &[]);
    });
}

#[test]
fn loom_cold_key() {
    model(Some(2), || {
        let store = Fixture::new(TINY);
        let stub = Stub { revision: 1, create_revision: 1, version: 1, lease: 0, tombstone: false };
        lock(&store.world.files).insert(user("c").to_vec(), stub);
        let other = spawn(&store, |store| {
            store.order(&plan([put("c", "1")]));
        });
        store.order(&cas([put("d", "2")], &[("d", 0)]));
        other.join().expect("no panic");
        verify(&store, &[]);
    });
}

#[test]
fn loom_same_cold_key() {
    model(Some(2), || {
        let store = Fixture::new(TINY);
        let stub = Stub { revision: 1, create_revision: 1, version: 1, lease: 0, tombstone: false };
        lock(&store.world.files).insert(user("c").to_vec(), stub);
        let other = spawn(&store, |store| {
            store.order(&plan([put("c", "1")]));
        });
        store.order(&plan([put("c", "2")]));
        other.join().expect("no panic");
        verify(&store, &[("c", &[2, 3])]);
        assert_eq!(store.read("c", 3).expect("there").version, 3);
    });
}

/// Two replace a key that no generation knows yet, each with the version of it that its snapshot
/// showed: no one looks anything up, both make an end of the key's versions, and one end counts.
#[test]
fn loom_two_replace_a_key_that_both_know() {
    replaced_by_two(Some(Stub {
        revision: 1,
        create_revision: 1,
        version: 1,
        lease: 0,
        tombstone: false,
    }));
}

#[test]
fn loom_two_make_a_key_that_both_know_to_be_absent() {
    replaced_by_two(None);
}

fn replaced_by_two(before: Option<Stub>) {
    model(Some(2), move || {
        let store = Fixture::new(TINY);
        lock(&store.world.files).extend(before.map(|stub| (user("c").to_vec(), stub)));
        let replace = |store: Fixture| {
            store.transact(|store, snapshot| Some(store.replacing(snapshot, "c")));
        };
        let other = spawn(&store, replace);
        replace(store.clone());
        other.join().expect("no panic");
        verify(&store, &[("c", &[2, 3])]);
        let versions = before.map_or(0, |stub| stub.version) + 2;
        assert_eq!(store.read("c", 3).expect("there").version, versions);
    });
}

#[test]
fn loom_a_committed_key_is_in_the_ordered_index() {
    model(Some(2), || {
        let (store, steps) = (Fixture::new(TINY), Steps::new());
        let others = spawn(
            &store,
            steps.then(|store| {
                store.order(&plan([put("c", "1")]));
            }),
        );
        let again = spawn(
            &store,
            steps.then(|store| {
                store.order(&plan([put("c", "2")]));
            }),
        );
        steps.look();
        let seen = store.chain.applied().revision > 1;
        let generation = lock(&store.world.generations)[0].clone();
        let mut cursor = generation.cursor();
        cursor.seek(&user("a"));
        assert!(!seen || cursor.node().is_some_and(|node| *node.key() == user("c")));
        others.join().expect("no panic");
        again.join().expect("no panic");
        verify(&store, &[("c", &[2, 3])]);
    });
}

#[test]
fn loom_generation_switch() {
    model(Some(2), || {
        // Two keys fill a generation.
        let store = Fixture::new(GenerationSize { keys: 2, ..TINY });
        store.order(&plan([put("a", "0"), put("b", "0")]));
        let other = spawn(&store, |store| {
            store.order(&plan([put("c", "1")]));
        });
        store.order(&cas([put("a", "2")], &[("a", 2)]));
        other.join().expect("no panic");
        assert_eq!(lock(&store.world.generations).len(), 2);
        verify(&store, &[]);
    });
}

#[test]
fn loom_two_switch_at_once() {
    model(Some(2), || {
        let store = Fixture::new(GenerationSize { keys: 2, ..TINY });
        store.order(&plan([put("a", "0"), put("b", "0")]));
        let other = spawn(&store, |store| {
            store.order(&plan([put("c", "1")]));
        });
        store.order(&plan([put("c", "2")]));
        other.join().expect("no panic");
        assert_eq!(lock(&store.world.generations).len(), 2);
        verify(&store, &[("c", &[3, 4])]);
    });
}

#[test]
fn loom_two_wait() {
    model(Some(3), || {
        let store = store();
        let commit = |store: Fixture, key| {
            let ordered = store.order(&plan([put(key, "1")]));
            store.chain.wait_durable(ordered.position).expect("a log that does not fail");
            assert!(store.chain.durable() >= ordered.position);
        };
        let other = spawn(&store, move |store| commit(store, "a"));
        commit(store.clone(), "b");
        other.join().expect("no panic");
        store.verify();
    });
}

/// Waiting alone, without the commits before it: small enough for three threads.
#[test]
fn loom_three_wait() {
    model(Some(2), || {
        let store = store();
        let first = store.chain.applied();
        let second = store.order(&plan([put("a", "1")])).position;
        let others = [first, second].map(|position| {
            spawn(&store, move |store| {
                store.chain.wait_durable(position).expect("a log that does not fail");
                assert!(store.chain.durable() >= position);
            })
        });
        store.chain.wait_durable(second).expect("a log that does not fail");
        join(others);
        store.verify();
    });
}

#[test]
fn loom_poison_reaches_everyone() {
    model(Some(2), || {
        let store = store();
        *lock(&store.log.fail_after) = Some(0);
        let position = store.chain.applied();
        let other = spawn(&store, move |store| {
            store.chain.wait_durable(position).expect_err("the log fails");
        });
        store.chain.wait_durable(position).expect_err("the log fails");
        other.join().expect("no panic");
        assert_eq!(store.chain.durable(), START);
        assert_eq!(lock(&store.log.batches).len(), 0);
    });
}

/// Wakes a task that is driven by a thread of the model. Not by unparking it: loom takes that for a
/// mistake when the thread has gone on, and joins another.
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

pub(super) fn block_on(future: impl Future<Output = Result<()>>) -> Result<()> {
    let bell = Arc::new(Bell(Notify::new()));
    let waker = Waker::from(Arc::clone(&bell));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => bell.0.wait(),
        }
    }
}

#[test]
fn loom_a_task_and_a_thread_wait() {
    model(Some(2), || {
        let store = store();
        let first = store.chain.applied();
        let second = store.order(&plan([put("a", "1")])).position;
        let other = spawn(&store, move |store| {
            block_on(store.chain.ticket(second, false)).expect("a log that does not fail");
        });
        store.chain.wait_durable(first).expect("a log that does not fail");
        other.join().expect("no panic");
        store.verify();
    });
}

#[test]
fn loom_two_tasks_wait() {
    model(Some(2), || {
        let store = store();
        let position = store.chain.applied();
        let other = spawn(&store, move |store| {
            block_on(store.chain.ticket(position, false)).expect("a log that does not fail");
        });
        block_on(store.chain.ticket(position, false)).expect("a log that does not fail");
        other.join().expect("no panic");
        store.verify();
    });
}
