//! What `Store::stats` tells of watches.

use super::{fresh, next};

/// Watches, those behind, the oldest revision due, batches told.
fn figures(store: &annals::Store) -> (u64, u64, u64, u64) {
    let stats = store.stats();
    (stats.watches, stats.watches_behind, stats.watch_oldest_revision, stats.watch_batches)
}

#[test]
fn watches_are_counted_while_they_live_and_behind_while_they_have_something_to_tell() {
    let store = fresh(false);
    assert_eq!(figures(&store), (0, 0, 0, 0));
    let mut one = store.watch("a").start().unwrap();
    let mut two = store.watch("/").prefix().start().unwrap();
    let three = store.watch("z").start().unwrap();
    assert_eq!(figures(&store), (3, 0, 0, 0));
    for key in ["a", "/b", "/c", "a"] {
        store.put(key, "").unwrap();
    }
    store.run_background().unwrap();
    assert_eq!(figures(&store), (3, 2, 2, 0));
    assert_eq!(next(&mut one).revision(), 2);
    assert_eq!(figures(&store), (3, 2, 3, 1));
    assert_eq!((next(&mut one).revision(), next(&mut two).revision()), (5, 3));
    assert_eq!(figures(&store), (3, 1, 4, 3));
    three.handle().cancel();
    assert_eq!(figures(&store), (2, 1, 4, 3));
    drop(two);
    assert_eq!(figures(&store), (1, 0, 0, 3));
    drop((one, three));
    assert_eq!(figures(&store), (0, 0, 0, 3));
}

#[test]
fn a_watch_of_the_past_is_behind_until_it_has_come_to_the_present() {
    let store = fresh(false);
    for n in 0..10 {
        store.put(if n % 2 == 0 { "a" } else { "b" }, "").unwrap();
    }
    let mut watch = store.watch("a").from(3).start().unwrap();
    assert_eq!(figures(&store), (1, 1, 3, 0));
    assert_eq!(next(&mut watch).revision(), 4);
    assert_eq!(figures(&store), (1, 1, 5, 1));
    let rest: Vec<u64> =
        std::iter::from_fn(|| watch.try_next()).map(|batch| batch.unwrap().revision()).collect();
    assert_eq!(rest, [6, 8, 10]);
    assert_eq!(figures(&store), (1, 0, 0, 4));
}

#[test]
fn a_watch_that_was_not_asked_for_long_is_behind_from_the_first_it_has_not_told() {
    let store = fresh(false);
    let mut watch = store.watch("a").start().unwrap();
    for _ in 0..100 {
        store.put("a", "").unwrap();
    }
    store.run_background().unwrap();
    assert_eq!(figures(&store), (1, 1, 2, 0));
    for revision in 2..=60 {
        assert_eq!(next(&mut watch).revision(), revision);
    }
    assert_eq!(figures(&store), (1, 1, 61, 59));
}
