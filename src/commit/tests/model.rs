//! One thread: each rule by itself, then random plans against a model.

use std::ops::Bound as End;

use proptest::prelude::*;

use super::*;

const ROOMY: GenerationSize = GenerationSize { arena_bytes: 1 << 20, keys: 1000 };

#[test]
fn revisions_are_dense_and_versions_count() {
    let store = Fixture::small();
    assert_eq!(store.chain.applied(), START);
    let first = store.order(&plan([put("a", "1")]));
    assert_eq!((first.position.seq, first.position.revision, first.changed), (1, 2, true));
    store.order(&plan([put("a", "2"), put("b", "1")]));
    store.order(&plan([delete("a")]));
    store.order(&plan([put("a", "3")]));
    let of = |key: &str, revision| {
        store.read(key, revision).map(|seen| (seen.at, seen.create_revision, seen.version))
    };
    assert_eq!(of("a", 1), None);
    assert_eq!(of("a", 2), Some((2, 2, 1)));
    assert_eq!(of("a", 3), Some((3, 2, 2)));
    assert_eq!(of("a", 4), None);
    assert_eq!(of("a", 9), Some((5, 5, 1)));
    assert_eq!(of("b", 9), Some((3, 3, 1)));
    store.chain.wait_durable(store.chain.applied()).unwrap();
    assert_eq!(store.verify()[&user("a")[..]], [2, 3, 4, 5]);
}

#[test]
fn a_system_write_takes_a_seq_but_no_revision() {
    let store = Fixture::small();
    let key: Bytes = b"\0Llease-01".as_slice().into();
    let write = |value: &'static [u8]| Write {
        key: InternalKey::from_slice(&key),
        kind: WriteKind::Put { value: value.into(), lease: 0 },
    };
    store.order(&plan([put("a", "1")]));
    let ordered = store.order(&plan([write(b"ttl is x")]));
    assert_eq!((ordered.position.seq, ordered.position.revision), (2, 2));
    assert!(!ordered.changed);
    let both = store.order(&plan([write(b"ttl is y"), put("a", "2")]));
    assert_eq!((both.position.seq, both.position.revision), (3, 3));
    let newest = store.read_internal(&key, u64::MAX).unwrap();
    assert_eq!((newest.at, newest.value.as_slice()), (3, b"ttl is y".as_slice()));
    // It is compared by its seq.
    let mut stale = plan([write(b"ttl is z")]);
    stale.reads.points.push(Point::at(&key, 2));
    assert!(is_conflict(store.try_order(&stale)));
    stale.reads.points[0].seen = 3;
    store.order(&stale);
    store.chain.wait_durable(store.chain.applied()).unwrap();
    store.verify();
}

#[test]
fn a_changed_point_conflicts_and_leaves_no_trace() {
    let store = Fixture::small();
    store.order(&cas([put("a", "1")], &[("a", 0)]));
    let before = (store.chain.applied(), store.frames().len());
    assert!(is_conflict(store.try_order(&cas([put("a", "2")], &[("a", 0)]))));
    assert!(is_conflict(store.try_order(&cas([put("b", "2")], &[("a", 1)]))));
    assert!(is_conflict(store.try_order(&plan([delete("c")]))));
    assert_eq!((store.chain.applied(), store.frames().len()), before);
    store.order(&cas([put("b", "2")], &[("a", 2), ("c", 0)]));
    store.order(&plan([delete("b")]));
    assert!(is_conflict(store.try_order(&plan([delete("b")]))));
    // A tombstone is something seen.
    assert!(is_conflict(store.try_order(&cas([put("b", "3")], &[("b", 0)]))));
    store.order(&cas([put("b", "3")], &[("b", 4)]));
    store.verify_all();
}

#[test]
fn a_change_in_a_range_conflicts() {
    let store = Fixture::small();
    store.order(&plan([put("b", "1")]));
    let ranged = |start: &str, end: &str, key: &str| {
        let end = if end.is_empty() { Bytes::new() } else { user(end) };
        let mut plan = plan([put(key, "x")]);
        plan.reads.ranges.push((user(start), end));
        plan
    };
    let guard = epoch::pin();
    let before = store.chain.begin(&guard);
    store.order(&plan([put("c", "1")]));
    let order = |plan: &Plan<'_>| store.chain.order(&before, plan, &*store.world);
    assert!(is_conflict(order(&ranged("c", "d", "z"))));
    assert!(is_conflict(order(&ranged("a", "", "z"))));
    assert!(is_conflict(order(&ranged("", "", "z"))));
    order(&ranged("a", "c", "z1")).unwrap();
    order(&ranged("c\0", "z", "z2")).unwrap();
    assert!(is_conflict(order(&ranged("z1", "z3", "q"))), "what it wrote itself is a change");
    store.verify_all();
}

#[test]
fn a_plan_that_read_the_past_conflicts_with_a_compaction_above_it_only() {
    let store = Fixture::small();
    for n in 0..8 {
        store.order(&plan([put("a", n.to_string())]));
    }
    let past = |key| {
        let mut plan = plan([put(key, "1")]);
        plan.reads.oldest_read = Some(4);
        plan
    };
    let compact = |revision| Plan { compact: Some(revision), ..Plan::default() };
    let guard = epoch::pin();
    let before = store.chain.begin(&guard);
    let order = |plan: &Plan<'_>| store.chain.order(&before, plan, &*store.world);
    store.order(&plan([put("a", "again"), put("other", "")]));
    order(&past("b")).expect("commits do not change the past");
    store.order(&compact(4));
    order(&past("c")).expect("what is compacted to stays");
    store.order(&compact(5));
    assert!(is_conflict(order(&past("d"))));
    store.verify_all();
}

#[test]
fn an_exact_plan_follows_its_snapshot_directly() {
    let store = Fixture::small();
    let exact = |key| {
        let mut plan = plan([put(key, "1")]);
        plan.reads.exact = true;
        plan
    };
    let guard = epoch::pin();
    let before = store.chain.begin(&guard);
    store.chain.order(&before, &exact("a"), &*store.world).unwrap();
    assert!(is_conflict(store.chain.order(&before, &exact("b"), &*store.world)));
    store.order(&exact("b"));
    store.verify_all();
}

#[test]
fn the_watermark_only_rises() {
    let store = Fixture::small();
    for _ in 0..5 {
        store.order(&plan([put("a", "1")]));
    }
    let compact = |revision| Plan { compact: Some(revision), ..Plan::default() };
    assert_eq!(store.chain.applied_place().compacted, 0);
    let ordered = store.order(&compact(3));
    assert_eq!((ordered.position.seq, ordered.position.revision), (6, 6));
    assert_eq!(store.chain.applied_place().compacted, 3);
    assert!(is_conflict(store.try_order(&compact(3))));
    assert!(is_conflict(store.try_order(&compact(2))));
    store.order(&compact(4));
    assert_eq!(store.chain.applied_place().compacted, 4);
    store.verify_all();
}

#[test]
fn time_is_monotone() {
    let store = Fixture::small();
    let at = |time| Plan { time: Some(time), ..plan([put("a", "1")]) };
    assert_eq!(store.order(&at(1_000)).position.time, 1_000);
    assert_eq!(store.order(&at(900)).position.time, 1_000);
    store.world.clock.store(500, Ordering::Relaxed);
    assert_eq!(store.order(&plan([put("a", "1")])).position.time, 1_000);
    store.world.clock.store(5_000, Ordering::Relaxed);
    assert_eq!(store.order(&plan([put("a", "1")])).position.time, 5_000);
    store.verify_all();
}

#[test]
fn a_cold_key_continues_from_the_files() {
    let store = Fixture::small();
    let stub = Stub { revision: 1, create_revision: 1, version: 1, lease: 9, tombstone: false };
    lock(&store.world.files).insert(user("old").to_vec(), stub);
    let dead = Stub { create_revision: 0, version: 0, lease: 0, tombstone: true, ..stub };
    lock(&store.world.files).insert(user("dead").to_vec(), dead);
    assert!(is_conflict(store.try_order(&cas([put("old", "x")], &[("old", 0)]))));
    assert!(is_conflict(store.try_order(&plan([delete("dead")]))));
    store.order(&cas([put("old", "x"), put("dead", "y")], &[("old", 1), ("dead", 1)]));
    let old = store.read("old", 2).unwrap();
    assert_eq!((old.create_revision, old.version), (1, 2));
    let dead = store.read("dead", 2).unwrap();
    assert_eq!((dead.create_revision, dead.version), (2, 1));
    let generation = lock(&store.world.generations)[0].clone();
    let node = generation.find(&user("old")).unwrap();
    assert!(matches!(node.at(1), Lookup::Below));
    assert_eq!(node.newest_at(1), Newest::Known(stub));
    store.verify_all();
}

#[test]
fn a_full_generation_is_followed_by_another() {
    let store = Fixture::new(GenerationSize { arena_bytes: 1 << 16, keys: 50 });
    for round in 0..400 {
        let key = format!("{:02}", round % 40);
        store.transact(|store, snapshot| {
            let revision = snapshot.position().revision;
            Some(cas([put(&key, vec![7; 500])], &[(&key, store.seen(&key, revision))]))
        });
    }
    let generations = lock(&store.world.generations).clone();
    assert!(generations.len() > 3, "{} generations", generations.len());
    for pair in generations.windows(2) {
        assert!(pair[0].is_frozen());
        assert_eq!(pair[0].last(), Some(pair[1].first()));
        assert_eq!(pair[0].id() + 1, pair[1].id());
    }
    assert!(!generations.last().unwrap().is_frozen());
    store.verify_all();
}

#[test]
fn keys_fill_a_generation_too() {
    let store = Fixture::new(GenerationSize { arena_bytes: 1 << 20, keys: 10 });
    for key in 0..95 {
        store.order(&plan([put(format!("{key}"), "v")]));
    }
    assert_eq!(lock(&store.world.generations).len(), 10);
    store.verify_all();
}

#[test]
fn a_transaction_larger_than_a_generation_gets_a_larger_one() {
    let store = Fixture::new(GenerationSize { arena_bytes: 1 << 16, keys: 10 });
    store.order(&plan([put("a", "1")]));
    let many: Vec<_> = (0..5000).map(|key| put(format!("{key:05}"), vec![1; 1000])).collect();
    let ordered = store.order(&plan(many));
    assert_eq!(ordered.position.revision, 3);
    store.order(&plan([put("a", "2")]));
    assert_eq!(store.verify_all().len(), 5001);
    assert_eq!(store.read("04999", 3).unwrap().value.len(), 1000);
}

#[test]
fn generations_are_freed_when_nobody_needs_them() {
    let store = Fixture::new(GenerationSize { arena_bytes: 1 << 16, keys: 100 });
    for round in 0..400 {
        store.order(&plan([put(format!("{}", round % 10), vec![7; 2000])]));
    }
    let weak: Vec<_> = lock(&store.world.generations).iter().map(Arc::downgrade).collect();
    lock(&store.world.generations).drain(..weak.len() - 1);
    assert!(weak.iter().all(|weak| weak.upgrade().is_some()), "not yet durable");
    store.chain.wait_durable(store.chain.applied()).unwrap();
    for _ in 0..10_000 {
        epoch::pin().flush();
        if weak[..weak.len() - 1].iter().all(|weak| weak.upgrade().is_none()) {
            store.order(&plan([put("still", "works")]));
            let last = weak.last().unwrap().clone();
            drop(store);
            assert!(last.upgrade().is_none(), "the chain gives back the last one, too");
            return;
        }
        std::thread::yield_now();
    }
    panic!("frozen and durable generations are kept");
}

#[test]
fn long_values_are_shared_and_short_ones_copied() {
    let store = Fixture::small();
    store.order(&plan([put("long", vec![5; 5000]), put("short", vec![6; 50])]));
    let generation = lock(&store.world.generations)[0].clone();
    let value = |key: &str| {
        let node = generation.find(&user(key)).unwrap();
        let version = node.head().unwrap();
        (generation.value(version), version.value().as_ptr())
    };
    let (long, long_at) = value("long");
    let (short, short_at) = value("short");
    assert!(long.as_ptr() == long_at && short.as_ptr() != short_at);
    drop(generation);
    drop(store);
    assert_eq!((long, short), (vec![5; 5000].into(), vec![6; 50].into()));
}

#[test]
fn replay_restores_what_was_logged() {
    let store = Fixture::new(GenerationSize { arena_bytes: 1 << 16, keys: 50 });
    let stub = Stub { revision: 1, create_revision: 1, version: 4, lease: 0, tombstone: false };
    lock(&store.world.files).insert(user("3").to_vec(), stub);
    for round in 0..300 {
        let mut change = plan([put(format!("{}", round % 7), vec![7; 500])]);
        change.metadata = b"by me";
        store.order(&change);
    }
    store.order(&Plan { compact: Some(17), ..plan([delete("5"), put("9", "x")]) });
    let frames = store.frames();
    let again = Fixture::without_log(GenerationSize { arena_bytes: 1 << 15, keys: 50 }, START);
    *lock(&again.world.files) = lock(&store.world.files).clone();
    for bytes in &frames {
        let (frame, _) = Frame::decode(bytes, &Binding::new(&STORE)).unwrap();
        again.chain.replay(&frame).unwrap();
        again.chain.replay(&frame).expect_err("not twice");
    }
    assert_eq!(again.frames(), frames);
    assert_eq!(again.chain.applied(), store.chain.applied());
    assert_eq!(again.chain.durable(), store.chain.applied());
    assert_eq!(again.chain.applied_place().compacted, 17);
    assert!(lock(&again.world.generations).len() > lock(&store.world.generations).len());
    for key in ["0", "1", "2", "3", "4", "5", "6", "9"] {
        for revision in (1..=302).step_by(3) {
            assert_eq!(again.read(key, revision), store.read(key, revision));
        }
    }
    // And it goes on from there.
    again.chain.open_log(Box::new(again.log.clone()));
    assert_eq!(again.order(&plan([put("0", "on")])).position.revision, 303);
    again.chain.wait_durable(again.chain.applied()).unwrap();
    let batches = lock(&again.log.batches).clone();
    assert_eq!((batches.len(), batches[0].0.first_seq), (1, 302));
}

impl Fixture {
    /// Makes everything durable, then verifies.
    pub(super) fn verify_all(&self) -> BTreeMap<Vec<u8>, Vec<u64>> {
        self.chain.wait_durable(self.chain.applied()).unwrap();
        self.verify()
    }
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    /// Puts and deletes by key number (value 0 deletes), with compares that hold, or that do not.
    Write {
        writes: BTreeMap<u8, u8>,
        compares: Vec<u8>,
        spoil: bool,
    },
    /// A write that depends on a range, after another write maybe in it.
    Ranged {
        from: u8,
        to: u8,
        meanwhile: u8,
    },
    Sync,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let writes = prop::collection::btree_map(0..12u8, 0..4u8, 1..5);
    let compares = prop::collection::vec(0..12u8, 0..4);
    let write = (writes, compares, prop::bool::weighted(0.2))
        .prop_map(|(writes, compares, spoil)| Step::Write { writes, compares, spoil });
    let ranged = (0..12u8, 0..13u8, 0..12u8).prop_map(|(from, to, meanwhile)| Step::Ranged {
        from,
        to,
        meanwhile,
    });
    prop::collection::vec(prop_oneof![6 => write, 2 => ranged, 1 => Just(Step::Sync)], 1..80)
}

fn name(key: u8) -> String {
    format!("{key:02}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    /// Random plans against a map of histories; tiny generations, so that switches are frequent.
    #[test]
    fn the_chain_is_a_map_of_histories(steps in steps()) {
        let store = Fixture::new(GenerationSize { arena_bytes: 1 << 13, keys: 9 });
        // Per key: (revision, value or tombstone), oldest first.
        let mut model: BTreeMap<u8, Vec<(u64, Option<u8>)>> = BTreeMap::new();
        let mut revision = 1;
        let newest = |model: &BTreeMap<u8, Vec<(u64, Option<u8>)>>, key: u8| {
            model.get(&key).and_then(|history| history.last().copied()).unwrap_or((0, None))
        };
        for step in steps {
            match step {
                Step::Write { writes, compares, spoil } => {
                    let mut plan = Plan::default();
                    let mut after = model.clone();
                    let mut must_fail = spoil && !compares.is_empty();
                    for (&key, &value) in &writes {
                        let written = (value > 0).then_some(value);
                        must_fail |= written.is_none() && newest(&model, key).1.is_none();
                        plan.writes.push(match written {
                            Some(value) => put(name(key), [value]),
                            None => delete(name(key)),
                        });
                        after.entry(key).or_default().push((revision + 1, written));
                    }
                    for (index, &key) in compares.iter().enumerate() {
                        let off = u64::from(spoil && index == 0);
                        // As an evaluation names them, or by the revision only.
                        let mut point = match key % 2 {
                            0 => Point::at(user(name(key)), newest(&model, key).0),
                            _ => Point::new(internal(name(key)), store.newest(name(key), revision, u64::MAX)),
                        };
                        point.seen += off;
                        plan.reads.points.push(point);
                    }
                    match store.try_order(&plan) {
                        Ok(ordered) => {
                            prop_assert!(!must_fail);
                            revision += 1;
                            prop_assert_eq!(ordered.position.revision, revision);
                            model = after;
                        }
                        Err(OrderError::Conflict) => prop_assert!(must_fail),
                        Err(error) => prop_assert!(false, "{:?}", error),
                    }
                }
                Step::Ranged { from, to, meanwhile } => {
                    let guard = epoch::pin();
                    let snapshot = store.chain.begin(&guard);
                    store.order(&plan([put(name(meanwhile), [9])]));
                    revision += 1;
                    model.entry(meanwhile).or_default().push((revision, Some(9)));
                    let mut dependent = plan([put("other", "x")]);
                    dependent.reads.ranges.push((user(name(from)), user(name(to))));
                    let result = store.chain.order(&snapshot, &dependent, &*store.world);
                    prop_assert_eq!(is_conflict(result), (from..to).contains(&meanwhile));
                    if !(from..to).contains(&meanwhile) {
                        revision += 1;
                    }
                }
                Step::Sync => store.chain.wait_durable(store.chain.applied()).unwrap(),
            }
        }
        store.verify_all();
        for at in 0..=revision + 1 {
            for key in 0..12 {
                let expected = model.get(&key).and_then(|history| {
                    history.iter().rev().find(|(revision, _)| *revision <= at).copied()
                });
                let expected = expected.and_then(|(_, value)| value).map(|value| vec![value]);
                prop_assert_eq!(store.read(name(key), at).map(|seen| seen.value), expected);
            }
        }
    }

    /// Cursors against an ordered set.
    #[test]
    fn cursors_walk_both_ways(
        keys in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..4), 0..60),
        probes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4), 1..20),
    ) {
        let generation = Generation::new(1, ROOMY);
        // Inserted in an order that is not theirs.
        let mut shuffled: Vec<_> = keys.iter().collect();
        shuffled.sort_by_key(|key| xxhash_rust::xxh3::xxh3_64(key));
        for key in shuffled {
            let node = generation.get_or_insert(key).unwrap();
            prop_assert!(std::ptr::eq(node, generation.get_or_insert(key).unwrap()));
        }
        prop_assert_eq!(generation.key_count(), keys.len());
        let mut cursor = generation.cursor();
        let here = |cursor: &crate::index::KeyCursor| cursor.node().map(|node| node.key().to_vec());
        for probe in probes {
            prop_assert_eq!(generation.find(&probe).is_some(), keys.contains(&probe));
            cursor.seek(&probe);
            let mut expected = keys.range::<Vec<u8>, _>((End::Included(&probe), End::Unbounded));
            for _ in 0..4 {
                let next = expected.next().cloned();
                prop_assert_eq!(here(&cursor), next.clone());
                if next.is_none() { break }
                cursor.next();
            }
            cursor.seek_before(&probe);
            let mut expected = keys.range(..probe.clone()).rev();
            for _ in 0..4 {
                let next = expected.next().cloned();
                prop_assert_eq!(here(&cursor), next.clone());
                if next.is_none() { break }
                cursor.prev();
            }
        }
        cursor.seek_first();
        prop_assert_eq!(here(&cursor), keys.first().cloned());
        cursor.seek_last();
        prop_assert_eq!(here(&cursor), keys.last().cloned());
    }
}
