//! Random calls against a model: which leases there must be, and until when.
//!
//! A crash leaves it open how much time a lease has: as much as it really had, or as its record said, which
//! is an interval more at most. So the model has two deadlines. Before the first a lease must be there,
//! with its keys; a tick after the second it must be gone, at one revision with them.
//!
//! `ANNALS_LEASE_SCRIPTS=n` runs so many scripts; `ANNALS_TEST_SEED=n` one alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use annals::clock::{Clock, ManualClock};
use annals::vfs::{CrashMode, MemoryVfs};
use annals::{Options, Store};

use super::support::random::Random;
use super::support::{DIRECTORY, START_TIME, number_from_env, tiny};
use super::{SECOND, TICK, attach, found, grant, settle};

const IDS: u64 = 6;
const KEYS: u64 = 10;
const INTERVAL: i64 = 5 * SECOND;

#[derive(Clone, Copy, Debug)]
struct Held {
    ttl: i64,
    /// It must not end before.
    earliest: i64,
    /// It must end then.
    latest: i64,
    /// What its record says is left, at most.
    recorded: i64,
}

impl Held {
    fn whole(ttl: i64, now: i64) -> Self {
        let deadline = now + ttl * SECOND;
        Self { ttl, earliest: deadline, latest: deadline, recorded: ttl * SECOND }
    }

    /// Its record says no more than this above what is left.
    fn noted(&mut self, now: i64, lost: i64) {
        // A millisecond for the rounding.
        self.recorded = self.recorded.min((self.latest - now).max(0) + lost + 1000);
    }
}

struct Script {
    random: Random,
    clock: Arc<ManualClock>,
    disk: MemoryVfs,
    store: Store,
    leases: BTreeMap<i64, Held>,
    /// The keys with the lease each has, 0 for none.
    keys: BTreeMap<String, i64>,
    /// What happened, for the message of a failure.
    told: Vec<String>,
    ended: u64,
}

impl Script {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::new(START_TIME));
        let disk = MemoryVfs::new();
        let store = Self::options(&disk, &clock).open(Path::new(DIRECTORY)).unwrap();
        Self {
            random: Random::new(seed),
            clock,
            disk,
            store,
            leases: BTreeMap::new(),
            keys: BTreeMap::new(),
            told: Vec::new(),
            ended: 0,
        }
    }

    fn options(disk: &MemoryVfs, clock: &Arc<ManualClock>) -> Options {
        let interval = u64::try_from(INTERVAL / SECOND).unwrap();
        tiny(Arc::new(disk.clone()), Arc::clone(clock)).lease_checkpoint_interval_seconds(interval)
    }

    fn now(&self) -> i64 {
        self.clock.elapsed_micros()
    }

    fn attached(&self, id: i64) -> BTreeSet<String> {
        let keys = self.keys.iter().filter(|(_, lease)| **lease == id);
        keys.map(|(key, _)| key.clone()).collect()
    }

    /// A lease has ended, and its keys with it.
    fn end(&mut self, id: i64) {
        self.leases.remove(&id);
        self.keys.retain(|_, lease| *lease != id);
        self.ended += 1;
    }

    fn step(&mut self) {
        let id = 1 + i64::try_from(self.random.below(IDS)).unwrap();
        let key = format!("key/{}", self.random.below(KEYS));
        match self.random.below(30) {
            0..5 => self.grant(id),
            5..10 => {
                self.told.push(format!("attach {key} to {id}"));
                let attached = found(attach(&self.store, &key, id)).is_some();
                assert_eq!(attached, self.leases.contains_key(&id));
                if attached {
                    self.keys.insert(key, id);
                }
            }
            10..12 => {
                self.told.push(format!("detach {key}"));
                self.store.put(&key, "alone").unwrap();
                self.keys.insert(key, 0);
            }
            12 => {
                self.told.push(format!("delete {key}"));
                self.store.delete(&key).unwrap();
                self.keys.remove(&key);
            }
            13..18 => self.keep_alive(id),
            18 => {
                self.told.push(format!("revoke {id}"));
                let revoked = found(self.store.lease_revoke(id)).map(|revoked| revoked.deleted);
                let expected: Vec<String> = self.attached(id).into_iter().collect();
                assert_eq!(revoked.is_some(), self.leases.contains_key(&id));
                assert!(revoked.is_none_or(|deleted| deleted == expected));
                if self.leases.remove(&id).is_some() {
                    self.keys.retain(|_, lease| *lease != id);
                }
            }
            19..24 => {
                let most = *self.random.pick(&[SECOND / 20, SECOND, 4 * SECOND, 15 * SECOND]);
                let micros = i64::try_from(self.random.below(most.unsigned_abs())).unwrap();
                self.told.push(format!("{micros} us pass"));
                self.clock.advance(micros);
            }
            24..28 => self.work(),
            28 => {
                self.told.push("reorganise".into());
                self.store.reorganise().unwrap();
            }
            _ => self.reopen(),
        }
        self.look();
    }

    fn grant(&mut self, id: i64) {
        let ttl = 1 + i64::try_from(self.random.below(20)).unwrap();
        self.told.push(format!("grant {id} for {ttl} s"));
        match grant(&self.store, id, ttl) {
            Ok(granted) => {
                assert_eq!(granted, id);
                let now = self.now();
                if let Some(held) = self.leases.get(&id).copied() {
                    // The one before was due, and was ended first.
                    assert!(now >= held.earliest, "it was there: {held:?} at {now}");
                    self.end(id);
                }
                self.leases.insert(id, Held::whole(ttl, now));
            }
            Err(error) => {
                assert!(matches!(error.kind(), annals::ErrorKind::LeaseExists { .. }), "{error}");
                assert!(self.leases.contains_key(&id), "it was not there");
            }
        }
    }

    fn keep_alive(&mut self, id: i64) {
        self.told.push(format!("keep {id} alive"));
        let (ttl, now) = (found(self.store.lease_keep_alive(id)), self.now());
        match (self.leases.get(&id).copied(), ttl) {
            (None, None) => {}
            (Some(held), Some(ttl)) => {
                assert!(now < held.latest && ttl == held.ttl, "renewed: {held:?} at {now}");
                self.leases.insert(id, Held::whole(ttl, now));
            }
            (Some(held), None) => {
                assert!(now >= held.earliest, "ended early: {held:?} at {now}");
                self.end(id);
            }
            (None, Some(_)) => panic!("renewed what is not there"),
        }
    }

    /// What is due ends, at one revision each.
    fn work(&mut self) {
        self.told.push("work".into());
        let (before, now) = (self.store.revision(), self.now());
        settle(&self.store);
        let told = self.store.log(before + 1..).map(|transaction| {
            let changes = transaction.unwrap().changes;
            changes.iter().map(|change| String::from_utf8(change.key.to_vec()).unwrap()).collect()
        });
        let mut told: Vec<BTreeSet<String>> = told.collect();
        for (id, held) in self.leases.clone() {
            if self.store.lease_info(id, false).unwrap().is_some() {
                assert!(now < held.latest + TICK, "{id} lives on: {held:?} at {now}");
                self.leases.get_mut(&id).unwrap().noted(now, INTERVAL);
                continue;
            }
            assert!(now >= held.earliest, "{id} ended early: {held:?} at {now}");
            let attached = self.attached(id);
            if !attached.is_empty() {
                let at = told.iter().position(|keys| *keys == attached);
                told.remove(at.expect("all its keys went at one revision"));
            }
            self.end(id);
        }
        assert!(told.is_empty(), "changed besides: {told:?}");
        assert_eq!(self.store.stats().leases, self.leases.len() as u64);
        assert_eq!(self.store.stats().lease_overdue_micros, 0);
    }

    fn reopen(&mut self) {
        let now = self.now();
        let closes = self.random.one_in(2);
        self.told.push(if closes { "close".into() } else { "kill".into() });
        if closes {
            let store = self.store.clone();
            store.close().unwrap();
            self.leases.values_mut().for_each(|held| held.noted(now, SECOND));
        } else {
            let mode =
                *self.random.pick(&[CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random]);
            self.disk = self.disk.crash(self.random.next(), mode);
        }
        // However long it is closed.
        let pause = i64::try_from(self.random.below(100)).unwrap() * SECOND;
        self.clock.advance(pause);
        self.store = Self::options(&self.disk, &self.clock).open(Path::new(DIRECTORY)).unwrap();
        let opened = self.now();
        for held in self.leases.values_mut() {
            held.earliest = opened + (held.earliest - now).max(0);
            held.latest = opened + held.recorded;
        }
    }

    /// Holds what the store shows against the model.
    fn look(&self) {
        let now = self.now();
        for id in 1..=i64::try_from(IDS).unwrap() {
            let status = self.store.lease_time_to_live(id, true).unwrap();
            assert_eq!(status.is_some(), self.leases.contains_key(&id), "lease {id}");
            let (Some(status), Some(held)) = (status, self.leases.get(&id)) else { continue };
            assert!(status.keys.iter().eq(self.attached(id).iter()), "{:?}", status.keys);
            assert_eq!(status.granted_ttl, held.ttl);
            let left = i64::try_from(status.remaining.as_micros()).unwrap();
            let least = (held.earliest - now).max(0);
            let most = (held.latest - now).max(0) + 1000;
            assert!((least..=most).contains(&left), "{left}: {held:?} at {now}");
        }
        let found = self.store.latest().unwrap().range(..).map(|kv| {
            let kv = kv.unwrap();
            (String::from_utf8(kv.key.to_vec()).unwrap(), kv.lease)
        });
        assert_eq!(found.collect::<BTreeMap<_, _>>(), self.keys);
    }

    /// In the end nothing is left of any lease.
    fn finish(&mut self) {
        self.clock.advance(100 * SECOND);
        self.work();
        assert!(self.leases.is_empty() && self.keys.values().all(|lease| *lease == 0));
        self.look();
    }
}

#[test]
fn leases_are_there_until_their_time_and_no_longer() {
    let seed = std::env::var("ANNALS_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = match seed {
        Some(seed) => seed..seed + 1,
        None => 0..number_from_env("ANNALS_LEASE_SCRIPTS", 150),
    };
    let mut ended = 0;
    for seed in seeds {
        let mut script = Script::new(seed);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..200).for_each(|_| script.step());
            script.finish();
        }));
        if run.is_err() {
            let last = script.told.len().saturating_sub(60);
            panic!("ANNALS_TEST_SEED={seed}\n{}", script.told[last..].join("\n"));
        }
        ended += script.ended;
    }
    println!("{ended} leases ended by their time");
    assert!(ended > 0);
}
