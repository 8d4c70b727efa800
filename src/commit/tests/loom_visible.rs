//! Models of who sleeps until more is visible: it is told, or sees that it need not sleep.
//!
//! What each of them fails on, when the code is made weaker, `.ci/mutate-orderings` shows.

use super::loom::{join, model, spawn, store};
use super::*;
use crate::commit::Until;
use crate::sync::{current, park};

fn told(store: &Fixture) -> u64 {
    store.world.told.load(Ordering::Relaxed)
}

/// Sleeps until something has happened beyond frame `seen`, if nothing has.
fn sleep(store: &Fixture, until: Until, seen: u64) {
    *lock(&store.world.sleeper) = Some(current());
    let before = told(store);
    if store.chain.tell_when(until, seen) {
        while told(store) == before {
            park();
        }
    }
}

/// Of a commit that was on its way while a thread went to sleep.
fn meets(store: &Fixture, until: Until, other: ::loom::thread::JoinHandle<()>) {
    let seen = store.chain.applied_place().position.seq.min(1);
    let sleeps = store.chain.tell_when(until, seen);
    other.join().expect("no panic");
    assert!(!sleeps || told(store) == 1, "asleep, and nobody will say that there is more");
    assert!(told(store) <= 1, "who has asked once is told once");
    store.verify();
}

#[test]
fn loom_visible_a_commit_meets_who_falls_asleep() {
    model(None, || {
        let store = store();
        let other = spawn(&store, |store| {
            store.order(&plan([put("a", "1")]));
        });
        meets(&store, Until::Applied, other);
    });
}

#[test]
fn loom_visible_a_sync_meets_who_falls_asleep() {
    model(Some(3), || {
        let store = store();
        store.chain.wait_durable(store.chain.applied()).expect("a log that does not fail");
        let position = store.order(&plan([put("a", "1")])).position;
        let other = spawn(&store, move |store| {
            store.chain.wait_durable(position).expect("a log that does not fail");
        });
        meets(&store, Until::Durable, other);
    });
}

/// Who is told does not miss what comes while it wakes up.
#[test]
fn loom_visible_a_sleeper_sees_every_commit() {
    model(Some(2), || {
        let store = store();
        let before = store.chain.applied().seq;
        let sleeper = spawn(&store, move |store| {
            let mut seen = before;
            while seen < before + 2 {
                sleep(&store, Until::Applied, seen);
                seen = store.chain.applied().seq;
            }
        });
        let other = spawn(&store, move |store| {
            store.order(&plan([put("a", "1")]));
        });
        store.order(&plan([put("b", "1")]));
        join([sleeper, other]);
        store.verify();
    });
}

#[test]
fn loom_visible_a_sleeper_sees_every_sync() {
    model(Some(2), || {
        let store = store();
        let sleeper = spawn(&store, |store| {
            let mut seen = 0;
            while seen < 2 {
                sleep(&store, Until::Durable, seen);
                seen = store.chain.durable().seq;
            }
        });
        store.chain.wait_durable(store.chain.applied()).expect("a log that does not fail");
        let position = store.order(&plan([put("a", "1")])).position;
        store.chain.wait_durable(position).expect("a log that does not fail");
        join([sleeper]);
        store.verify();
    });
}

/// After a failure nothing moves any more: whatever somebody sleeps until, it is told.
#[test]
fn loom_visible_a_failure_meets_who_falls_asleep() {
    for until in [Until::Applied, Until::Durable] {
        model(Some(3), move || {
            let store = store();
            *lock(&store.log.fail_after) = Some(0);
            let seen = store.chain.applied().seq;
            let sleeper = spawn(&store, move |store| {
                sleep(&store, until, seen);
                assert!(store.chain.is_poisoned());
            });
            store.chain.wait_durable(store.chain.applied()).expect_err("the log fails");
            join([sleeper]);
        });
    }
}
