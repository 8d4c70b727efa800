//! What the models cannot show: generations are really freed here, while others walk in them.
//!
//! The usual small world keeps every generation for inspection. This one forgets a generation as
//! soon as the chain has switched to the next, so that only the chain's count and the epoch keep it.
//! A mistake is a walk through freed memory: the system takes a generation's chunks back at once, so
//! it is found without a sanitizer, and with one (`.ci/tsan`) also where nothing was overwritten.

use std::sync::Weak;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use super::*;
use crate::clock::Stopwatch;

/// Micros after which a test that waits for memory to be freed takes it that it never will be.
const NEVER_MICROS: u64 = 120_000_000;

#[derive(Debug)]
struct Forgetful {
    size: GenerationSize,
    current: Mutex<Arc<Generation>>,
    /// The newest version of each key in what is forgotten.
    files: Mutex<BTreeMap<Vec<u8>, Stub>>,
    /// All generations there ever were.
    made: Mutex<Vec<Weak<Generation>>>,
    clock: AtomicI64,
}

impl World for Forgetful {
    fn now_micros(&self) -> i64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn new_generation(&self, id: u64, least: GenerationSize) -> Arc<Generation> {
        let new = Generation::new(id, self.size.max(least));
        lock(&self.made).push(Arc::downgrade(&new));
        new
    }

    fn has_room(&self) -> bool {
        true
    }

    fn switched(&self, current: &Arc<Generation>) {
        let mut known = lock(&self.current);
        if known.id() >= current.id() {
            return;
        }
        let mut files = lock(&self.files);
        let mut cursor = known.cursor();
        cursor.seek_first();
        while let Some(node) = cursor.node() {
            if let Newest::Known(stub) = node.newest() {
                files.insert(node.key().to_vec(), stub);
            }
            cursor.next();
        }
        *known = Arc::clone(current);
    }

    fn request_lead(&self) -> bool {
        false
    }

    fn request_work(&self) {}
}

impl Below for Forgetful {
    fn newest(&self, key: &[u8], _: u64) -> Result<Option<Stub>> {
        Ok(lock(&self.files).get(key).copied())
    }
}

impl Forgetful {
    fn with_chain(size: GenerationSize) -> (Arc<Self>, Chain, VectorLog) {
        let first = Generation::new(1, size);
        let world = Arc::new(Self {
            size,
            current: Mutex::new(Arc::clone(&first)),
            files: Mutex::default(),
            made: Mutex::new(vec![Arc::downgrade(&first)]),
            clock: AtomicI64::new(0),
        });
        let host: Arc<dyn World> = world.clone();
        let chain = Chain::new(&STORE, START, 0, first, host);
        let log = VectorLog::default();
        chain.open_log(Box::new(log.clone()));
        (world, chain, log)
    }

    fn order(&self, chain: &Chain, plan: &Plan<'_>) -> Ordered {
        let guard = epoch::pin();
        let snapshot = chain.begin(&guard);
        chain.order(&snapshot, plan, self).expect("nothing to conflict with")
    }

    /// How many generations take memory.
    fn alive(&self) -> usize {
        lock(&self.made).iter().filter(|made| made.strong_count() > 0).count()
    }

    /// Waits until nothing but the current generation takes memory.
    fn wait_until_freed(&self) {
        let waiting = Stopwatch::start();
        while self.alive() > 1 {
            // Moves the epoch on. Threads of other tests may be pinned for a while.
            epoch::pin().flush();
            thread::sleep(Duration::from_micros(100));
            assert!(waiting.micros() < NEVER_MICROS, "{} generations are kept", self.alive());
        }
    }
}

/// Walks the chain from `applied` or `durable` on and checks all that can be reached.
fn walk(chain: &Chain, from_durable: bool) -> u64 {
    let guard = epoch::pin();
    let binding = Binding::new(&STORE);
    let begin = chain.begin(&guard).node;
    let mut node = if from_durable { chain.group.durable_node(&guard) } else { begin };
    let mut walked = 0;
    for _ in 0..300 {
        // So that it stands still in the middle, for the others to go on.
        if walked % 50 == 0 {
            thread::yield_now();
        }
        let Some(link) = node.next(&guard) else { break };
        let (before, after) = (node.place(), link.node.place());
        assert_eq!(after.order, before.order + 1);
        assert_eq!(link.opens_generation, link.node.is_root());
        if !link.node.is_root() {
            let (frame, _) = Frame::decode(link.node.frame(), &binding).expect("a whole frame");
            assert_eq!(frame.seq, before.position.seq + 1);
            for change in link.node.changes() {
                assert_eq!(change.version.at(), after.position.revision);
                let older = change.version.older().expect("every chain has an end");
                assert!(older.at() < change.version.at());
                assert!(!change.key.key().is_empty());
            }
        }
        node = link.node;
        walked += 1;
    }
    walked
}

#[test]
fn generations_are_freed_while_others_walk_in_them() {
    const WRITERS: u64 = 2;
    const EACH: u64 = 20_000;
    let size = GenerationSize { arena_bytes: 1 << 16, keys: 64 };
    let (world, chain, _) = Forgetful::with_chain(size);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (world, chain, stop) = (&world, &chain, &stop);
        let walkers = [true, false].map(|from_durable| {
            scope.spawn(move || {
                let mut walked = 0;
                while !stop.load(Ordering::Relaxed) {
                    walked += walk(chain, from_durable);
                }
                walked
            })
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let mut random = Random(writer + 1);
                    for _ in 0..EACH {
                        let (one, other) = (random.below(16), 16 + random.below(16));
                        let writes = [one, other].map(|key| put(format!("{key}"), [7; 100]));
                        let ordered = world.order(chain, &plan(writes));
                        if random.below(8) == 0 {
                            chain.wait_durable(ordered.position).expect("a log that does not fail");
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("no panic");
        }
        stop.store(true, Ordering::Relaxed);
        let walked: u64 = walkers.into_iter().map(|walker| walker.join().expect("no panic")).sum();
        println!("{walked} nodes walked");
    });
    assert_eq!(chain.applied().revision, 1 + WRITERS * EACH);
    let made = lock(&world.made).len();
    assert!(made > 10, "{made} generations");
    chain.wait_durable(chain.applied()).expect("a log that does not fail");
    world.wait_until_freed();
    drop(chain);
    assert_eq!(world.alive(), 1, "the world's own");
}

/// A reader that entered the chain before a switch keeps the generation it stands in, whatever the
/// holder of the sync role does; and no longer.
#[test]
fn a_guard_keeps_the_generation_it_was_taken_in() {
    let size = GenerationSize { arena_bytes: 1 << 16, keys: 64 };
    let (world, chain, log) = Forgetful::with_chain(size);
    world.order(&chain, &plan([put("a", "0")]));
    let old = lock(&world.made)[0].clone();
    {
        let guard = epoch::pin();
        let snapshot = chain.begin(&guard);
        assert_eq!(snapshot.generation(), 1);
        thread::scope(|scope| {
            scope.spawn(|| {
                chain.freeze();
                let ordered = world.order(&chain, &plan([put("a", "1")]));
                chain.wait_durable(ordered.position).expect("a log that does not fail");
                // The chain has given the generation up, and the world has forgotten it.
                for _ in 0..1_000 {
                    epoch::pin().flush();
                }
            });
        });
        assert_eq!(lock(&log.batches).len(), 1);
        assert_eq!(chain.durable(), chain.applied());
        assert_eq!(old.strong_count(), 1, "only the epoch keeps it");
        let root = snapshot.node.next(&guard).expect("the switch");
        assert!(root.opens_generation);
        let first = root.node.next(&guard).expect("the commit after it");
        assert_eq!(first.node.versions()[0].version(), 2);
        assert_eq!(snapshot.node.versions()[0].value(), b"0");
    }
    world.wait_until_freed();
    assert_eq!(old.strong_count(), 0);
}
