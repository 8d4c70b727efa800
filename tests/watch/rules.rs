//! Watches beside rules of retention: how far back a watch can go depends on the keys it wants, and so does
//! whether it is refused when it was not asked for long.
//!
//! `ANNALS_SEED=n` runs one seed alone; `ANNALS_SEQUENCES=n` more or fewer than the default.

use std::sync::Arc;

use annals::clock::ManualClock;
use annals::vfs::MemoryVfs;
use annals::{ErrorKind, KeyRange, KeyValue, Retention, Store, Watch};

use crate::support::random::Random;
use crate::support::{DIRECTORY, START_TIME, number_from_env, tiny};

const PREFIXES: [&str; 5] = ["", "/audit/", "/events/", "/e", "/pods/"];
const KEYS: [&str; 7] = ["/audit/1", "/audit/2", "/events/1", "/events/2", "/e", "/pods/1", "/z"];

/// What each revision did: its key, and the value if it was a put. The first is revision 2.
type Done = Vec<(&'static str, Option<String>)>;

struct Watched {
    range: KeyRange,
    watch: Watch,
    next: u64,
}

impl Watched {
    fn begin(store: &Store, range: KeyRange, from: u64) -> Self {
        let watch = store.watch_range(&range).from(from).prev_kv().catch_up_bytes(200).start();
        Self { range, watch: watch.unwrap(), next: from.max(2) }
    }

    fn due(&self, done: &Done, from: u64) -> Option<u64> {
        let mut revisions = (2..).zip(done).filter(|(at, _)| *at >= from);
        let wanted = |key: &str| self.range.contains(key.as_bytes());
        revisions.find(|(_, (key, _))| wanted(key)).map(|(at, _)| at)
    }

    /// Asks once. Answers whether there was anything, and whether it was refused.
    fn ask(&mut self, store: &Store, done: &Done) -> (bool, bool) {
        let (due, revision) = (self.due(done, self.next), done.len() as u64 + 1);
        let Some(item) = self.watch.try_next() else {
            assert_eq!(due, None, "left out");
            self.next = self.next.max(revision + 1);
            assert_eq!(self.watch.resume_revision(), self.next);
            return (false, false);
        };
        let batch = match item {
            Ok(batch) => batch,
            Err(error) => {
                let &ErrorKind::Compacted { requested, compacted, .. } = error.kind() else {
                    panic!("{error}");
                };
                let resume = self.watch.resume_revision();
                assert_eq!(requested, resume);
                assert!(resume.max(2) >= self.next && due.is_none_or(|due| due >= resume));
                let floor = store.oldest_readable(&self.range);
                assert!(floor > requested, "{requested} of {:?}, floor {floor}", self.range);
                assert!(compacted > requested, "{error}");
                *self = Self::begin(store, self.range.clone(), floor);
                return (true, true);
            }
        };
        assert_eq!(Some(batch.revision()), due);
        let at = usize::try_from(batch.revision() - 2).unwrap();
        let (key, value) = &done[at];
        let [event] = batch.events() else { panic!("{batch:?}") };
        assert_eq!(
            (&event.kv.key[..], &event.kv.value[..]),
            (key.as_bytes(), value.as_deref().unwrap_or_default().as_bytes())
        );
        let before = done[..at].iter().rev().find(|(other, _)| other == key);
        let before = before.and_then(|(_, value)| value.as_deref().map(str::as_bytes));
        assert_eq!(event.prev_kv.as_ref().map(|kv: &KeyValue| &kv.value[..]), before);
        self.next = batch.revision() + 1;
        (true, false)
    }
}

fn put(store: &Store, random: &mut Random, done: &mut Done) {
    let key = *random.pick(&KEYS);
    let alive = done.iter().rev().find(|(other, _)| *other == key);
    if alive.is_some_and(|(_, value)| value.is_some()) && random.one_in(5) {
        store.delete(key).unwrap();
        done.push((key, None));
    } else {
        let value = format!("{}{}", done.len(), "v".repeat(random.index(60)));
        store.put(key, &value).unwrap();
        done.push((key, Some(value)));
    }
    assert_eq!(store.revision(), done.len() as u64 + 1);
}

fn run(seed: u64) -> (u64, u64) {
    let mut random = Random::new(seed);
    let clock = Arc::new(ManualClock::new(START_TIME));
    let options = tiny(Arc::new(MemoryVfs::new()), clock).retention_interval_seconds(0);
    let mut store = options.open(DIRECTORY).unwrap();
    let mut done = Done::new();
    let mut watches: Vec<Watched> = Vec::new();
    let (mut told, mut refused) = (0, 0);
    for _ in 0..random.between(100, 400) {
        match random.below(100) {
            0..60 => put(&store, &mut random, &mut done),
            60..65 => {
                let retention = match random.below(4) {
                    0 => None,
                    1 => Some(Retention::forever()),
                    _ => Some(Retention::forever().keep_revisions(random.below(60))),
                };
                store.set_retention(random.pick(&PREFIXES), retention).unwrap();
            }
            65..68 => drop(store.apply_retention().unwrap()),
            68..70 => {
                let floor = store.compacted_revision() + random.below(30);
                let _ = store.compact(floor.min(store.revision()));
            }
            70..73 => store.reorganise().unwrap(),
            73..75 => while store.run_background().unwrap() {},
            75..79 if watches.len() < 6 => {
                let range = match random.below(3) {
                    0 => KeyRange::key(random.pick(&KEYS)),
                    _ => KeyRange::prefix(random.pick(&PREFIXES)),
                };
                let oldest = store.oldest_readable(&range).max(1);
                let from = oldest + random.below(store.revision() + 2 - oldest);
                watches.push(Watched::begin(&store, range, from));
            }
            79 => {
                store.close().unwrap();
                store = options.open(DIRECTORY).unwrap();
                for one in &mut watches {
                    let resume = one.watch.resume_revision();
                    *one = Watched::begin(&store, one.range.clone(), resume);
                }
            }
            _ if watches.is_empty() => {}
            _ => {
                let at = random.index(watches.len());
                for _ in 0..random.between(1, 40) {
                    let (was_told, was_refused) = watches[at].ask(&store, &done);
                    told += u64::from(was_told);
                    refused += u64::from(was_refused);
                    if !was_told {
                        break;
                    }
                }
            }
        }
    }
    for one in &mut watches {
        while one.ask(&store, &done).0 {}
    }
    (told, refused)
}

#[test]
fn a_watch_goes_back_as_far_as_its_keys_are_kept() {
    if let Ok(seed) = std::env::var("ANNALS_SEED") {
        run(seed.parse().expect("ANNALS_SEED is a number"));
        return;
    }
    let sequences = number_from_env("ANNALS_SEQUENCES", 400);
    let (mut told, mut refused) = (0, 0);
    for seed in 0..sequences {
        let counts = crate::support::check::caught(|| Ok(run(seed)));
        let counts = counts.unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        (told, refused) = (told + counts.0, refused + counts.1);
    }
    println!("{sequences} sequences, {told} told, {refused} refused");
    if sequences >= 400 {
        assert!(told > 10_000 && refused > 300, "{told} told, {refused} refused");
    }
}
