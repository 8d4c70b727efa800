//! How a key's head is resolved: what the plan says of it is taken where it still holds, and looked
//! up in older structures where it may not.

use super::*;

const STUB: Stub = Stub { revision: 1, create_revision: 1, version: 1, lease: 9, tombstone: false };
const DEAD: Stub = Stub { create_revision: 0, version: 0, lease: 0, tombstone: true, ..STUB };

/// The older structures of a fixture, which count how often they are asked, or cannot be read.
struct Counted<'a> {
    store: &'a Fixture,
    asked: AtomicU64,
    fails: bool,
}

impl Below for Counted<'_> {
    fn newest(&self, key: &[u8], generation: u64) -> Result<Option<Stub>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.fails {
            return Err(Error::invalid("a file cannot be read"));
        }
        self.store.world.newest(key, generation)
    }
}

impl Fixture {
    /// A store whose files hold `old`, and `dead`, which is deleted.
    fn with_files() -> Self {
        let store = Self::small();
        let files = [("old", STUB), ("dead", DEAD)];
        lock(&store.world.files).extend(files.map(|(key, stub)| (user(key).to_vec(), stub)));
        store
    }

    fn below(&self, fails: bool) -> Counted<'_> {
        Counted { store: self, asked: AtomicU64::new(0), fails }
    }

    /// Orders a plan, and answers how often that looked into older structures.
    fn asked(&self, snapshot: &Snapshot<'_>, plan: &Plan<'_>) -> u64 {
        let below = self.below(false);
        self.chain.order(snapshot, plan, &below).expect("nothing to conflict with");
        below.asked.into_inner()
    }

    /// `create_revision` and `version` of a key, now.
    fn numbers(&self, key: &str) -> (u64, u64) {
        let seen = self.read(key, u64::MAX).expect("it lives");
        (seen.create_revision, seen.version)
    }
}

/// A plan that depends on what is said of some keys, and writes others.
fn depending(points: &[(&str, Option<Stub>)], writes: &[&str]) -> Plan<'static> {
    let writes: Vec<_> = writes.iter().map(|key| put(key, "new")).collect();
    let mut plan = plan(writes);
    plan.reads.points.extend(points.iter().map(|(key, newest)| Point::new(internal(key), *newest)));
    plan
}

#[test]
fn what_the_plan_knows_is_not_looked_up() {
    let store = Fixture::with_files();
    let guard = epoch::pin();
    let snapshot = store.chain.begin(&guard);
    assert_eq!(store.asked(&snapshot, &store.replacing(&snapshot, "old")), 0);
    assert_eq!(store.asked(&snapshot, &store.replacing(&snapshot, "dead")), 0);
    assert_eq!(store.asked(&snapshot, &store.replacing(&snapshot, "never")), 0);
    assert_eq!(store.numbers("old"), (1, 2));
    assert_eq!(store.numbers("dead"), (3, 1));
    assert_eq!(store.numbers("never"), (4, 1));
    // And the generation answers for the past as if it had looked.
    let generation = lock(&store.world.generations)[0].clone();
    let newest = |key: &str| generation.find(&user(key)).expect("written").newest_at(1);
    assert_eq!((newest("old"), newest("dead")), (Newest::Known(STUB), Newest::Known(DEAD)));
    assert_eq!(newest("never"), Newest::Absent);
    store.verify_all();
}

#[test]
fn what_the_plan_does_not_know_is_looked_up_once() {
    let store = Fixture::with_files();
    let guard = epoch::pin();
    let snapshot = store.chain.begin(&guard);
    assert_eq!(store.asked(&snapshot, &plan([put("old", "1"), put("never", "1")])), 2);
    assert_eq!(store.asked(&snapshot, &plan([put("old", "2"), put("never", "2")])), 0);
    assert_eq!(store.asked(&snapshot, &cas([put("x", "1")], &[("dead", 1)])), 2);
    assert_eq!((store.numbers("old"), store.numbers("never")), ((1, 3), (2, 2)));
    store.verify_all();
}

#[test]
fn what_is_only_compared_is_resolved_for_who_writes_it() {
    let store = Fixture::with_files();
    let guard = epoch::pin();
    let snapshot = store.chain.begin(&guard);
    let compared = depending(&[("old", Some(STUB)), ("never", None)], &["x"]);
    assert_eq!(store.asked(&snapshot, &compared), 1, "only what is written blindly");
    assert_eq!(store.asked(&snapshot, &plan([put("old", "1"), put("never", "1")])), 0);
    assert_eq!((store.numbers("old"), store.numbers("never")), ((1, 2), (3, 1)));
    store.verify_all();
}

/// The points are those of the compares, whatever is written, in whatever order.
#[test]
fn a_point_serves_the_write_of_its_key_wherever_it_stands() {
    let store = Fixture::with_files();
    let guard = epoch::pin();
    let snapshot = store.chain.begin(&guard);
    let points = [("never", None), ("dead", Some(DEAD)), ("old", Some(STUB))];
    assert_eq!(store.asked(&snapshot, &depending(&points, &["old", "never", "x"])), 1);
    assert_eq!((store.numbers("old"), store.numbers("never")), ((1, 2), (2, 1)));
    store.verify_all();
}

#[test]
fn a_tombstone_that_is_known_is_not_deleted_again() {
    let store = Fixture::with_files();
    let deletion = |key, newest| {
        let mut plan = plan([delete(key)]);
        plan.reads.points.push(Point::new(internal(key), newest));
        plan
    };
    assert!(is_conflict(store.try_order(&deletion("dead", Some(DEAD)))));
    assert!(is_conflict(store.try_order(&deletion("never", None))));
    assert_eq!(store.order(&deletion("old", Some(STUB))).position.revision, 2);
    assert_eq!(store.read("old", 2), None);
    store.verify_all();
}

#[test]
fn who_comes_second_in_the_same_generation_conflicts() {
    let store = Fixture::with_files();
    let guard = epoch::pin();
    let snapshot = store.chain.begin(&guard);
    let below = store.below(true);
    for key in ["old", "dead", "never"] {
        let late = store.replacing(&snapshot, key);
        store.order(&plan([put(key, "first")]));
        assert!(is_conflict(store.chain.order(&snapshot, &late, &below)), "{key}");
    }
    assert_eq!(below.asked.into_inner(), 0);
    store.verify_all();
}

#[test]
fn what_was_known_in_an_earlier_generation_is_looked_up_again() {
    let store = Fixture::with_files();
    let guard = epoch::pin();
    let snapshot = store.chain.begin(&guard);
    let keys = ["old", "dead", "never"];
    let plans = keys.map(|key| store.replacing(&snapshot, key));
    // Written and gone to an older structure, for the last generation knows nothing of it.
    store.order(&plan(keys.map(|key| put(key, "between"))));
    store.chain.freeze();
    let below = store.below(false);
    for (key, late) in keys.iter().zip(&plans) {
        assert!(is_conflict(store.chain.order(&snapshot, late, &below)), "{key}");
    }
    assert_eq!(below.asked.into_inner(), 3);
    assert_eq!(store.numbers("old"), (1, 2), "nothing was written over");
    // What is known in the new generation is taken there.
    let snapshot = store.chain.begin(&guard);
    assert_eq!(store.asked(&snapshot, &store.replacing(&snapshot, "old")), 0);
    assert_eq!(store.numbers("old"), (1, 3));
    store.verify_all();
}

#[test]
fn what_has_not_changed_since_an_earlier_generation_still_holds() {
    let store = Fixture::with_files();
    store.order(&plan([put("a", "1")]));
    let guard = epoch::pin();
    let snapshot = store.chain.begin(&guard);
    store.chain.freeze();
    for (key, numbers) in [("old", (1, 2)), ("never", (4, 1)), ("a", (2, 2))] {
        assert_eq!(store.asked(&snapshot, &store.replacing(&snapshot, key)), 1);
        assert_eq!(store.numbers(key), numbers);
    }
    store.verify_all();
}

/// The plan's own switch is one, too.
#[test]
fn a_plan_that_begins_a_generation_looks_up_what_it_knew() {
    let store = Fixture::new(GenerationSize { arena_bytes: 1 << 16, keys: 2 });
    lock(&store.world.files).insert(user("old").to_vec(), STUB);
    store.order(&plan([put("a", "1"), put("b", "1")]));
    let guard = epoch::pin();
    let snapshot = store.chain.begin(&guard);
    assert_eq!(store.asked(&snapshot, &store.replacing(&snapshot, "old")), 1);
    assert_eq!(lock(&store.world.generations).len(), 2);
    assert_eq!(store.numbers("old"), (1, 2));
    store.verify_all();
}

#[test]
fn a_failed_look_up_leaves_no_trace() {
    let store = Fixture::with_files();
    let guard = epoch::pin();
    let snapshot = store.chain.begin(&guard);
    let below = store.below(true);
    let applied = store.chain.applied();
    for _ in 0..2 {
        let refused = store.chain.order(&snapshot, &plan([put("old", "1")]), &below);
        assert!(matches!(refused, Err(OrderError::Failed(_))));
    }
    assert_eq!((store.chain.applied(), below.asked.into_inner()), (applied, 2));
    assert_eq!(store.asked(&snapshot, &plan([put("old", "1")])), 1, "it is still to be resolved");
    assert_eq!(store.numbers("old"), (1, 2));
    store.verify_all();
}
