//! A power cut at every operation on the disk: a lease has ended with all its keys or not at all, and none
//! that had time left ends early.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use annals::Store;
use annals::clock::{Clock, ManualClock};
use annals::vfs::{CrashMode, FaultVfs, MemoryVfs};

use super::support::copies::changes_disk;
use super::support::{DIRECTORY, START_TIME, number_from_env, tiny};
use super::{SECOND, TICK, attach, grant, settle};

/// What is certain about a lease.
#[derive(Clone, Debug)]
struct Known {
    /// What is acknowledged: it does not end before, by the clock of the script.
    deadline: i64,
    ttl: i64,
    /// The keys that are attached, and for certain.
    keys: BTreeSet<String>,
    /// A key that is just being attached, or the lease granted: it may be there.
    perhaps: BTreeSet<String>,
    /// Whether it may be there, and whether it may be gone.
    may_be: bool,
    may_be_gone: bool,
}

#[derive(Clone, Debug, Default)]
struct Truth {
    leases: BTreeMap<i64, Known>,
    now: i64,
}

struct Script {
    disk: MemoryVfs,
    faulty: FaultVfs,
    clock: Arc<ManualClock>,
    truth: Arc<Mutex<Truth>>,
    failures: Arc<Mutex<Vec<String>>>,
    images: Arc<Mutex<u64>>,
}

impl Script {
    fn new() -> Self {
        let disk = MemoryVfs::new();
        let faulty = FaultVfs::new(Arc::new(disk.clone()));
        let clock = Arc::new(ManualClock::new(START_TIME));
        let truth = Arc::new(Mutex::new(Truth::default()));
        let failures = Arc::new(Mutex::new(Vec::new()));
        let images = Arc::new(Mutex::new(0));
        let (below, known, notes) = (disk.clone(), Arc::clone(&truth), Arc::clone(&failures));
        let (elapsed, counter) = (Arc::clone(&clock), Arc::clone(&images));
        let random = number_from_env("ANNALS_IMAGES", 2);
        let dirty = Mutex::new(false);
        faulty.observe(move |number, kind| {
            // The operation before this one has left something new on the disk, or has not.
            if !std::mem::replace(&mut *dirty.lock().unwrap(), changes_disk(kind)) {
                return;
            }
            let mut truth = known.lock().unwrap().clone();
            truth.now = elapsed.elapsed_micros();
            let modes = [(CrashMode::LoseAll, 0), (CrashMode::KeepAll, 0)];
            let more = (0..random).map(|seed| (CrashMode::Random, number << 8 | seed));
            for (mode, seed) in modes.into_iter().chain(more) {
                *counter.lock().unwrap() += 1;
                if let Err(found) = look(&below.crash(seed, mode), &truth) {
                    let place = format!("before operation {number} ({kind:?}), {mode:?} {seed}");
                    notes.lock().unwrap().push(format!("{place}: {found}"));
                }
            }
        });
        Self { disk, faulty, clock, truth, failures, images }
    }

    fn open(&self) -> Store {
        let options = tiny(Arc::new(self.faulty.clone()), Arc::clone(&self.clock));
        options.lease_checkpoint_interval_seconds(5).open(Path::new(DIRECTORY)).unwrap()
    }

    fn change<T>(&self, id: i64, change: impl FnOnce(&mut Known) -> T) -> T {
        change(self.truth.lock().unwrap().leases.get_mut(&id).unwrap())
    }

    fn now(&self) -> i64 {
        self.clock.elapsed_micros()
    }

    fn grant(&self, store: &Store, id: i64, ttl: i64) {
        let known = Known {
            deadline: i64::MIN,
            ttl,
            keys: BTreeSet::new(),
            perhaps: BTreeSet::new(),
            may_be: true,
            may_be_gone: true,
        };
        self.truth.lock().unwrap().leases.insert(id, known);
        grant(store, id, ttl).unwrap();
        let deadline = self.now() + ttl * SECOND;
        self.change(id, |known| (known.deadline, known.may_be_gone) = (deadline, false));
    }

    fn attach(&self, store: &Store, id: i64, key: &str) {
        self.change(id, |known| known.perhaps.insert(key.to_owned()));
        attach(store, key, id).unwrap();
        self.change(id, |known| {
            known.perhaps.clear();
            known.keys.insert(key.to_owned())
        });
    }

    fn keep_alive(&self, store: &Store, id: i64) {
        let ttl = store.lease_keep_alive(id).unwrap();
        let deadline = self.now() + ttl * SECOND;
        self.change(id, |known| known.deadline = deadline);
    }

    fn revoke(&self, store: &Store, id: i64) {
        self.change(id, |known| known.may_be_gone = true);
        store.lease_revoke(id).unwrap();
        self.change(id, |known| known.may_be = false);
    }

    /// Lets time pass, and has done what is due.
    fn pass(&self, store: &Store, micros: i64) {
        self.clock.advance(micros);
        self.work(store);
    }

    fn work(&self, store: &Store) {
        let now = self.now();
        let due = |known: &Known| known.may_be && now >= known.deadline;
        // Not locked while the store is asked: an operation on the disk looks at it.
        let truth = || self.truth.lock().unwrap();
        truth().leases.values_mut().filter(|it| due(it)).for_each(|it| it.may_be_gone = true);
        settle(store);
        let there: BTreeSet<i64> =
            store.lease_list().unwrap().into_iter().map(|lease| lease.id).collect();
        for (id, known) in &mut truth().leases {
            let is_there = there.contains(id);
            assert!(is_there || known.may_be_gone || !known.may_be, "{id} ended early");
            assert!(!is_there || now < known.deadline + TICK, "{id} lives on");
            known.may_be &= is_there;
            known.may_be_gone = !is_there;
        }
    }

    fn finish(self) {
        let truth = Truth { now: self.now(), ..self.truth.lock().unwrap().clone() };
        look(&self.disk.crash(0, CrashMode::LoseAll), &truth).unwrap();
        let failures = self.failures.lock().unwrap();
        println!("{} operations, {} images", self.faulty.op_count(), self.images.lock().unwrap());
        let some = &failures[..failures.len().min(3)];
        assert!(failures.is_empty(), "{} of them: {}", failures.len(), some.join("\n"));
    }
}

/// Checks one image, and that each lease in it lives as long as it must and no longer.
fn look(image: &MemoryVfs, truth: &Truth) -> Result<(), String> {
    let clock = Arc::new(ManualClock::new(START_TIME));
    let options = tiny(Arc::new(image.clone()), Arc::clone(&clock));
    let store = options.open(Path::new(DIRECTORY)).map_err(|error| format!("open: {error}"))?;
    let mut ends = Vec::new();
    for (id, known) in &truth.leases {
        let status = store.lease_time_to_live(*id, true).map_err(|error| error.to_string())?;
        let there = |key: &&String| store.get(key).unwrap().is_some();
        let Some(status) = status else {
            let keys: Vec<&String> = known.keys.union(&known.perhaps).filter(there).collect();
            if !known.may_be_gone || !keys.is_empty() {
                return Err(format!("lease {id} is gone, its keys {keys:?} are not: {known:?}"));
            }
            continue;
        };
        let keys: BTreeSet<String> =
            status.keys.iter().map(|key| String::from_utf8(key.to_vec()).unwrap()).collect();
        let may = |key: &String| known.keys.contains(key) || known.perhaps.contains(key);
        if !known.may_be || !keys.is_superset(&known.keys) || !keys.iter().all(may) {
            return Err(format!("lease {id} has the keys {keys:?}: {known:?}"));
        }
        let left = i64::try_from(status.remaining.as_micros()).unwrap();
        let least = known.deadline.saturating_sub(truth.now);
        if left < least || left > known.ttl * SECOND {
            return Err(format!("lease {id} has {left} us, not {least}: {known:?}"));
        }
        ends.push((left, *id));
    }
    ends.sort_unstable();
    for (left, id) in ends {
        let lives = || store.lease_info(id, false).unwrap().is_some();
        clock.advance((left - 1 - clock.elapsed_micros()).max(0));
        settle(&store);
        if clock.elapsed_micros() < left && !lives() {
            return Err(format!("lease {id} ended early after the crash"));
        }
        clock.advance((left + TICK - clock.elapsed_micros()).max(0));
        settle(&store);
        if lives() {
            return Err(format!("lease {id} lives on after the crash"));
        }
    }
    if store.stats().leases == 0 { Ok(()) } else { Err("there are leases left".into()) }
}

#[test]
fn granted_renewed_revoked_and_ended() {
    let script = Script::new();
    let store = script.open();
    for id in 1..=5 {
        script.grant(&store, id, 4 + id);
        for n in 0..4 {
            script.attach(&store, id, &format!("{id}/{n}"));
        }
    }
    script.pass(&store, 3 * SECOND);
    script.keep_alive(&store, 5);
    script.revoke(&store, 4);
    script.pass(&store, 2 * SECOND);
    script.pass(&store, SECOND / 2);
    script.grant(&store, 4, 30);
    script.attach(&store, 4, "4/again");
    script.pass(&store, SECOND);
    script.pass(&store, 30 * SECOND);
    script.finish();
}

#[test]
fn what_is_left_is_written_down() {
    let script = Script::new();
    let store = script.open();
    for id in 1..=6 {
        script.grant(&store, id, 20);
        script.attach(&store, id, &format!("{id}"));
    }
    for round in 1..=6 {
        script.pass(&store, 5 * SECOND);
        // One after the other is not renewed any more.
        (round + 1..=6).for_each(|id| script.keep_alive(&store, id));
        store.reorganise().unwrap();
    }
    script.pass(&store, 60 * SECOND);
    script.finish();
}

#[test]
fn many_end_at_once_across_reopenings() {
    let script = Script::new();
    let mut store = script.open();
    for round in 0..3 {
        for id in 1..=40 {
            script.grant(&store, id, 10);
            script.attach(&store, id, &format!("{id}"));
        }
        script.pass(&store, 4 * SECOND);
        if round % 2 == 0 {
            store.close().unwrap();
        } else {
            drop(store);
        }
        store = script.open();
        // What passed since the last note, or not, is given again.
        let now = script.now();
        for id in 1..=40 {
            let status = store.lease_time_to_live(id, false).unwrap().unwrap();
            let left = i64::try_from(status.remaining.as_micros()).unwrap();
            script.change(id, |known| known.deadline = now + left);
        }
        script.pass(&store, 6 * SECOND - 1);
        script.pass(&store, 4 * SECOND + 1);
    }
    script.finish();
}
