//! Models of one step of the chain each, as narrow as the step allows: helping late, moving `applied`,
//! pushing versions, resolving heads, compacting, freezing.
//!
//! What each of them fails on, when the code is made weaker, `.ci/mutate-orderings` shows.

use ::loom::sync::atomic::{AtomicBool, AtomicUsize, fence};
use ::loom::thread;

use super::loom::{Steps, TINY, join, model, spawn, store, verify};
use super::*;
use crate::index::{Bound, Link, Node, Place, Transaction};
use annals_format::frame::FrameSize;

/// Links a put of `a` after `last` without applying it, as a thread that stops after its commit
/// point leaves it.
pub(super) fn link_unapplied<'g>(store: &Fixture, last: &'g Node, older: &Version) -> &'g Node {
    let generation = last.generation();
    let key = generation.find(&user("a")).expect("written before");
    let before = last.position();
    let position = Position { seq: before.seq + 1, revision: before.revision + 1, ..before };
    let write = put("a", "linked");
    let ops = std::iter::once(write.op());
    let size = FrameSize::of(&[], ops.clone());
    let transaction = Transaction { size, buffered: false, metadata: &[], compact: 0, ops };
    let node = generation.prepare(&store.chain.binding, &transaction, &[key]).expect("room");
    let bound = Bound {
        older,
        at: position.revision,
        create_revision: older.create_revision(),
        version: older.version() + 1,
    };
    // SAFETY: prepared here, and not linked.
    unsafe { node.versions()[0].bind(bound) };
    // SAFETY: as above.
    unsafe { node.bind(Place { order: last.order() + 1, position, ..last.place() }) };
    // SAFETY: as above; everything is bound.
    unsafe { node.patch_frame(&store.chain.binding) };
    // SAFETY: as above; a node of the same generation.
    assert!(unsafe { last.link(node, false) }, "nobody else links here");
    node
}

/// Two nodes that are linked and applied, with `applied` still before them.
fn two_behind_applied(store: &Fixture) -> [*const Node; 2] {
    let guard = epoch::pin();
    let last = store.chain.begin(&guard).node;
    let head = last.generation().find(&user("a")).and_then(KeyNode::head).expect("written before");
    let first = link_unapplied(store, last, head);
    let second = link_unapplied(store, first, &first.versions()[0]);
    store.chain.apply(last, Link { node: first, opens_generation: false }, &guard);
    store.chain.apply(first, Link { node: second, opens_generation: false }, &guard);
    [first, second]
}

/// Moves `applied` to a node of the fixture's chain.
fn advance(store: &Fixture, node: *const Node) {
    let guard = epoch::pin();
    // SAFETY: a node of a generation that the fixture keeps.
    let node = unsafe { &*node };
    store.chain.advance(node, &guard);
    assert!(store.chain.applied() >= node.position(), "read your writes");
}

/// Applies everything again from the first node on, as a helper does that slept since then.
fn apply_from_the_root(store: &Fixture) {
    let guard = epoch::pin();
    let generation = lock(&store.world.generations)[0].clone();
    let mut last = generation.root();
    while let Some(link) = last.next(&guard) {
        store.chain.apply(last, link, &guard);
        last = link.node;
    }
    store.chain.advance(last, &guard);
}

/// A commit whose CAS of `applied` is lost to a node *before* its own must try again: when it
/// returns, its own thread must see what it wrote.
#[test]
fn loom_advance_goes_on_until_it_is_there() {
    model(None, || {
        let store = store();
        let [first, second] = two_behind_applied(&store);
        let other = spawn(&store, move |store| advance(&store, first));
        advance(&store, second);
        other.join().expect("no panic");
        assert_eq!(store.chain.applied().revision, 4);
        verify(&store, &[("a", &[2, 3, 4])]);
    });
}

#[test]
fn loom_applied_never_goes_back() {
    model(Some(3), || {
        let (store, steps) = (store(), Steps::new());
        let [first, second] = two_behind_applied(&store);
        let others = [first, second]
            .map(|node| spawn(&store, steps.then(move |store| advance(&store, node))));
        steps.look();
        let one = store.chain.applied();
        let two = store.chain.applied();
        assert!(one <= two);
        join(others);
        assert_eq!(store.chain.applied().revision, 4);
        verify(&store, &[("a", &[2, 3, 4])]);
    });
}

/// Two nodes are linked and their threads stopped; whoever comes finishes both, once.
#[test]
fn loom_helpers_finish_what_others_linked() {
    model(Some(3), || {
        let store = store();
        let guard = epoch::pin();
        let last = store.chain.begin(&guard).node;
        let head = last.generation().find(&user("a")).and_then(KeyNode::head).expect("written");
        let first = link_unapplied(&store, last, head);
        link_unapplied(&store, first, &first.versions()[0]);
        let other = spawn(&store, |store| {
            let guard = epoch::pin();
            let last = store.chain.catch_up(store.chain.applied_node(&guard), &guard);
            assert!(last.position().revision >= 4);
            assert_eq!(store.read("a", 4).expect("there").at, 4);
        });
        let ordered = store.order(&plan([put("a", "1")]));
        assert_eq!(ordered.position.revision, 5);
        other.join().expect("no panic");
        verify(&store, &[("a", &[2, 3, 4, 5])]);
    });
}

#[test]
fn loom_a_helper_that_is_late() {
    model(Some(3), || {
        let store = store();
        let helper = spawn(&store, |store| apply_from_the_root(&store));
        store.order(&plan([put("a", "1")]));
        store.order(&plan([put("a", "2"), put("b", "2")]));
        helper.join().expect("no panic");
        verify(&store, &[("a", &[2, 3, 4]), ("b", &[2, 4])]);
    });
}

#[test]
fn loom_a_late_helper_among_two_writers() {
    model(Some(2), || {
        let store = store();
        let helper = spawn(&store, |store| apply_from_the_root(&store));
        let writer = spawn(&store, |store| {
            store.order(&plan([put("a", "1")]));
        });
        store.order(&plan([put("a", "2")]));
        join([helper, writer]);
        verify(&store, &[("a", &[2, 3, 4])]);
    });
}

/// A reader that walks a key's versions while others push meets all that were applied when it
/// began, each once, newest first.
#[test]
fn loom_version_chain_push() {
    model(Some(2), || {
        let (store, steps) = (store(), Steps::new());
        let writers = ["1", "2"].map(|value| {
            let write = move |store: Fixture| {
                store.order(&plan([put("a", value)]));
            };
            spawn(&store, steps.then(write))
        });
        steps.look();
        let at = store.chain.applied().revision;
        let generation = lock(&store.world.generations)[0].clone();
        let key = generation.find(&user("a")).expect("written before");
        let seen: Vec<u64> = key.versions().map(Version::at).collect();
        assert!(seen[0] >= at);
        assert!(seen.iter().copied().eq((2..=seen[0]).rev()), "{seen:?}");
        join(writers);
        verify(&store, &[("a", &[2, 3, 4])]);
    });
}

/// Two write a new key at once. Whoever is first to commit finds it, also if the other, who made the
/// key's node, has not put it into the table.
#[test]
fn loom_a_committed_key_is_found() {
    model(Some(2), || {
        let store = Fixture::new(TINY);
        let write_and_read = |store: Fixture| {
            let ordered = store.order(&plan([put("c", "1")]));
            let seen = store.read("c", ordered.position.revision).expect("just written");
            assert_eq!(seen.at, ordered.position.revision);
        };
        let other = spawn(&store, write_and_read);
        write_and_read(store.clone());
        other.join().expect("no panic");
        verify(&store, &[("c", &[2, 3])]);
    });
}

/// One thread writes a cold key while another only compares it: whoever resolves the head, the
/// write replaces what was resolved.
#[test]
fn loom_cold_key_written_and_compared() {
    model(Some(3), || {
        let store = Fixture::new(TINY);
        let stub = Stub { revision: 1, create_revision: 1, version: 1, lease: 0, tombstone: false };
        lock(&store.world.files).insert(user("c").to_vec(), stub);
        let other = spawn(&store, |store| {
            store.order(&plan([put("c", "1")]));
        });
        match store.try_order(&cas([put("d", "2")], &[("c", 1)])) {
            Ok(ordered) => assert_eq!(ordered.position.revision, 2, "before the write"),
            Err(error) => assert!(matches!(error, OrderError::Conflict)),
        }
        other.join().expect("no panic");
        verify(&store, &[]);
        assert_eq!(store.read("c", 9).expect("there").version, 2);
    });
}

/// The same of a key that never was.
#[test]
fn loom_absent_key_written_and_compared() {
    model(Some(3), || {
        let store = Fixture::new(TINY);
        let other = spawn(&store, |store| {
            store.order(&plan([put("c", "1")]));
        });
        match store.try_order(&cas([put("d", "2")], &[("c", 0)])) {
            Ok(ordered) => assert_eq!(ordered.position.revision, 2, "before the write"),
            Err(error) => assert!(matches!(error, OrderError::Conflict)),
        }
        other.join().expect("no panic");
        verify(&store, &[]);
        assert_eq!(store.read("c", 9).expect("there").version, 1);
    });
}

fn compaction(revision: u64) -> Plan<'static> {
    Plan { compact: Some(revision), ..Plan::default() }
}

#[test]
fn loom_one_of_two_compactions_wins() {
    model(Some(3), || {
        let store = store();
        let won = Arc::new(AtomicU64::new(0));
        let attempt = |won: Arc<AtomicU64>| {
            move |store: Fixture| {
                let outcome = store.try_order(&compaction(2));
                won.fetch_add(u64::from(outcome.is_ok()), Ordering::SeqCst);
                assert!(outcome.is_ok() || is_conflict(outcome));
                assert_eq!(store.chain.applied_place().compacted, 2, "either way it is in force");
            }
        };
        let other = spawn(&store, attempt(Arc::clone(&won)));
        attempt(Arc::clone(&won))(store.clone());
        other.join().expect("no panic");
        assert_eq!(won.load(Ordering::SeqCst), 1);
        verify(&store, &[]);
    });
}

/// A commit that comes after a compaction takes the watermark over, also if its snapshot and its
/// first attempt had the one before.
#[test]
fn loom_a_commit_takes_the_watermark_over() {
    model(Some(3), || {
        let store = store();
        let other = spawn(&store, |store| {
            store.order(&compaction(2));
        });
        store.order(&plan([put("a", "1")]));
        other.join().expect("no panic");
        assert_eq!(store.chain.applied_place().compacted, 2);
        verify(&store, &[("a", &[2, 3])]);
    });
}

/// A transaction that read the past takes its place before the compaction of it, or not at all.
#[test]
fn loom_a_reader_of_the_past_against_a_compaction() {
    model(Some(3), || {
        let store = store();
        let other = spawn(&store, |store| {
            store.order(&compaction(2));
        });
        let mut plan = plan([put("a", "1")]);
        plan.reads.oldest_read = Some(1);
        match store.try_order(&plan) {
            Ok(ordered) => assert_eq!(ordered.position.seq, 2, "before the compaction"),
            Err(error) => assert!(matches!(error, OrderError::Conflict)),
        }
        other.join().expect("no panic");
        verify(&store, &[]);
    });
}

/// The generation is rotated by one thread while another writes a key that is new.
#[test]
fn loom_a_rotation_against_a_writer() {
    model(Some(2), || {
        let store = store();
        let other = spawn(&store, |store| {
            let revision = store.order(&plan([put("c", "1")])).position.revision;
            // A later generation may be known to the world, but not to this thread.
            let generation = store.chain.begin(&epoch::pin()).generation();
            assert_eq!(store.newest("c", revision, generation).expect("own").revision, revision);
        });
        store.chain.freeze();
        other.join().expect("no panic");
        let generations = lock(&store.world.generations).clone();
        assert_eq!(generations.len(), 2);
        assert_eq!(generations[0].last(), Some(generations[1].first()), "nothing lies between");
        verify(&store, &[]);
    });
}

/// What a snapshot showed of a key says nothing any more once the generation has been rotated: the
/// key may have been written in between.
#[test]
fn loom_what_was_known_before_a_rotation() {
    model(Some(2), || {
        let store = Fixture::new(TINY);
        let other = spawn(&store, |store| {
            store.order(&plan([put("c", "1")]));
            store.chain.freeze();
        });
        store.transact(|store, snapshot| Some(store.replacing(snapshot, "c")));
        other.join().expect("no panic");
        verify(&store, &[("c", &[2, 3])]);
        assert_eq!(store.read("c", 3).expect("there").version, 2);
    });
}

/// A frozen generation says where it ends, to whoever learns that it is frozen; and whoever learns
/// of a switch by a commit in the new generation has been told of that generation.
#[test]
fn loom_a_rotation_is_announced_before_it_is_used() {
    model(Some(3), || {
        let (store, steps) = (store(), Steps::new());
        let done = steps.clone();
        let other = spawn(&store, move |store| {
            store.order(&plan([put("a", "1")]));
            store.chain.freeze();
            done.done();
            store.order(&plan([put("a", "2")]));
            done.done();
        });
        steps.look();
        let old = lock(&store.world.generations)[0].clone();
        let last = old.last();
        assert!(last.is_none_or(|last| last.seq == 2));
        let guard = epoch::pin();
        let snapshot = store.chain.begin(&guard);
        let current = snapshot.generation();
        let told = lock(&store.world.generations).len() as u64;
        assert!(told >= current, "in generation {current}, told of {told}");
        assert!(current == 1 || old.is_frozen());
        let at = snapshot.position().revision;
        let seen = snapshot.node.generation().find(&user("a")).map(|key| key.at(at));
        let is_root = snapshot.node.is_root();
        assert!(is_root || matches!(seen, Some(Lookup::Found(version)) if version.at() == at));
        other.join().expect("no panic");
        verify(&store, &[("a", &[2, 3, 4])]);
    });
}

/// The log is read while it grows: whole frames up to what is applied, and no further.
#[test]
fn loom_frames_are_read_while_others_link() {
    model(Some(3), || {
        let (store, steps) = (store(), Steps::new());
        let done = steps.clone();
        let other = spawn(&store, move |store| {
            store.order(&plan([put("a", "1")]));
            done.done();
            store.order(&plan([put("b", "2")]));
            done.done();
        });
        steps.look();
        let upto = store.chain.applied().seq;
        let generation = lock(&store.world.generations)[0].clone();
        let mut cursor = generation.frames();
        let mut seen = 0;
        while let Some(frame) = cursor.next(upto) {
            seen += 1;
            let (decoded, _) = Frame::decode(frame.bytes(), &Binding::new(&STORE)).expect("whole");
            assert_eq!((decoded.seq, frame.position().seq), (seen, seen));
        }
        assert_eq!(seen, upto);
        other.join().expect("no panic");
        verify(&store, &[("a", &[2, 3]), ("b", &[2, 4])]);
    });
}

/// Whoever knows that a generation was given up can no longer come to it from the chain's cursors.
///
/// That who came before keeps it is the epoch's work, which is not modelled: see `tests/reclaim.rs`.
#[test]
fn loom_what_was_given_up_is_out_of_reach() {
    model(Some(3), || {
        let store = store();
        let given_up = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&given_up);
        let other = spawn(&store, move |store| {
            store.chain.freeze();
            store.chain.wait_durable(store.chain.applied()).expect("a log that does not fail");
            // The switch has no seq of its own: the next commit takes the cursor beyond it.
            let ordered = store.order(&plan([put("a", "1")]));
            store.chain.wait_durable(ordered.position).expect("a log that does not fail");
            flag.store(true, Ordering::Release);
        });
        let gone = given_up.load(Ordering::Acquire);
        let guard = epoch::pin();
        let durable = store.chain.group.durable_node(&guard).generation().id();
        let current = store.chain.begin(&guard).generation();
        assert!(durable <= current);
        assert!(!gone || durable == 2, "in generation {durable}");
        other.join().expect("no panic");
        store.verify();
    });
}

/// The rule by which a view's pin and reclaim meet, access by access as `engine/pins.rs` has it. That
/// file is not built for the models: this shows that the rule is right, not that the file follows
/// it. Without either of the two fences it fails.
#[test]
fn loom_a_pin_meets_reclaim() {
    model(None, || {
        let [slot, compacted] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let (of_reader, seen) = (Arc::clone(&slot), Arc::clone(&compacted));
        let reader = thread::spawn(move || {
            let _ = of_reader.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            seen.load(Ordering::Acquire) <= 1
        });
        compacted.store(2, Ordering::Release);
        fence(Ordering::SeqCst);
        let kept = slot.load(Ordering::Acquire) != 0;
        let pinned = reader.join().expect("no panic");
        assert!(kept || !pinned, "revision 1 is pinned, and reclaimed");
    });
}

/// The same of a pin that goes: reclaim sees that, or is told of it.
#[test]
fn loom_a_pin_that_goes_meets_reclaim() {
    model(None, || {
        let (slot, held_up) = (Arc::new(AtomicUsize::new(1)), Arc::new(AtomicUsize::new(0)));
        let (of_reader, seen) = (Arc::clone(&slot), Arc::clone(&held_up));
        let reader = thread::spawn(move || {
            of_reader.store(0, Ordering::Release);
            fence(Ordering::SeqCst);
            seen.load(Ordering::Relaxed) > 1
        });
        held_up.store(2, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let kept = slot.load(Ordering::Acquire) != 0;
        let rang = reader.join().expect("no panic");
        assert!(rang || !kept, "nobody is told that revision 1 may go");
    });
}
