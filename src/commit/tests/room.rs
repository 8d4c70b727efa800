//! A world that has no room for a further generation.

use super::*;

const KEYS: GenerationSize = GenerationSize { arena_bytes: 1 << 16, keys: 2 };

/// A store whose only generation has no key left, in a world that refuses another.
fn full() -> Fixture {
    let store = Fixture::new(KEYS);
    store.order(&plan([put("a", "1"), put("b", "1")]));
    *lock(&store.world.generations_max) = Some(1);
    store
}

fn is_refused(result: Result<Ordered, OrderError>) -> bool {
    result.is_err_and(|error| matches!(error, OrderError::NoRoom { .. }))
}

#[test]
fn a_full_chain_refuses_the_switch_and_changes_nothing() {
    let store = full();
    let applied = store.chain.applied();
    let frames = store.frames();
    for _ in 0..3 {
        assert!(is_refused(store.try_order(&plan([put("c", "2")]))));
        assert!(is_refused(store.try_order(&plan([put("a", vec![7; 1 << 17])]))), "too large");
        assert!(is_refused(store.try_order(&cas([put("a", "2")], &[("c", 0)]))), "only read");
    }
    assert_eq!(store.chain.applied(), applied);
    assert_eq!(store.frames(), frames);
    let generations = lock(&store.world.generations).clone();
    assert_eq!(generations.len(), 1);
    assert!(!generations[0].is_frozen());
    assert_eq!(store.verify_all().len(), 2);
}

#[test]
fn what_fits_is_still_taken_and_a_conflict_is_one() {
    let store = full();
    let ordered = store.order(&cas([put("a", "2")], &[("a", 2), ("b", 2)]));
    assert_eq!(ordered.position.revision, 3);
    assert!(is_conflict(store.try_order(&cas([put("a", "3")], &[("a", 2)]))));
    store.verify_all();
}

#[test]
fn it_goes_on_once_there_is_room() {
    let store = full();
    assert!(is_refused(store.try_order(&plan([put("c", "2")]))));
    *lock(&store.world.generations_max) = Some(2);
    assert_eq!(store.order(&plan([put("c", "2")])).position.revision, 3);
    assert_eq!(lock(&store.world.generations).len(), 2);
    assert_eq!(store.verify_all()[&user("c")[..]], [3]);
}

/// Of many that find a generation full, only those make another that come before one is linked: each takes
/// time and memory.
#[test]
fn who_comes_late_to_a_switch_makes_no_generation() {
    let store = Fixture::new(KEYS);
    store.order(&plan([put("a", "1"), put("b", "1")]));
    let guard = epoch::pin();
    let full = store.chain.begin(&guard).node;
    store.order(&plan([put("c", "1")]));
    let made = || store.world.made.load(Ordering::Relaxed);
    assert_eq!(made(), 1);
    store.chain.switch(full, KEYS, &guard);
    assert_eq!(made(), 1);
    assert_eq!(lock(&store.world.generations).len(), 2);
    store.verify_all();
}

/// What makes room must not need any.
#[test]
fn a_generation_can_be_ended_without_room() {
    let store = full();
    store.chain.freeze();
    let generations = lock(&store.world.generations).clone();
    assert_eq!((generations.len(), generations[0].is_frozen()), (2, true));
    store.order(&plan([put("c", "2")]));
    assert!(is_refused(store.try_order(&plan([put("d", "2"), put("e", "2")]))));
    store.verify_all();
}

/// All of them come while there is room for two more. How many get a place is a matter of who comes when: two that each
/// put one of their two keys into a new generation have filled it for nobody. But nobody begins a third one.
#[test]
fn no_more_than_there_is_room_for_are_begun_at_once() {
    const THREADS: usize = 8;
    let store = full();
    *lock(&store.world.generations_max) = Some(3);
    let start = std::sync::Barrier::new(THREADS);
    let refused = std::thread::scope(|scope| {
        let (store, start) = (&store, &start);
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let writes = [1, 2].map(|n| put(format!("{thread}/{n}"), "1"));
                    start.wait();
                    is_refused(store.try_order(&plan(writes)))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|refused| *refused).count()
    });
    assert_eq!(lock(&store.world.generations).len(), 3);
    // The first new one has room for one of them; the other for two at most, as whoever began it asked for twice as much.
    assert!(refused >= THREADS - 3, "{refused}");
    let keys = store.verify_all();
    assert_eq!(keys.len(), 2 + 2 * (THREADS - refused));
}

/// Whoever is refused has lost the room to others before: what it asked for must not be forgotten, or it
/// might lose the same race for ever.
#[test]
fn a_refusal_tells_how_much_was_asked_for_and_the_next_plan_asks_for_it() {
    let store = full();
    let twice = |doubled| Plan { doubled, ..plan([put("c", "1"), put("d", "1")]) };
    for doubled in [0, 3] {
        let refused = store.try_order(&twice(doubled));
        assert!(matches!(refused, Err(OrderError::NoRoom { doubled: told }) if told == doubled));
    }
    *lock(&store.world.generations_max) = Some(2);
    store.order(&twice(3));
    // Room for eight times as many keys.
    for key in 2..16 {
        store.order(&plan([put(format!("e{key}"), "1")]));
    }
    assert!(is_refused(store.try_order(&plan([put("f", "1")]))));
    store.verify_all();
}
