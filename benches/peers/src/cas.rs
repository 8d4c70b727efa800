//! Compare-and-swap under load, and the check afterwards that what was acknowledged is there.
//!
//! The bench's own work per commit is kept small and is the same for everybody: a random number, a key
//! by reference, a value copied into a buffer that is used again, one look at the clock, one bucket of
//! a histogram, one entry of a vector whose room was reserved before.

use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::data::{self, KEY_BYTES, Rng, VALUE_BYTES};
use crate::latency::Latency;
use crate::peer::{Cas, Peer, Result};

/// Values that differ: a write takes one of these and stamps its nonce on it.
const POOL: u64 = 1024;
/// Commits of all threads together that room is reserved for, per second.
const COMMITS_PER_SECOND_MAX: f64 = 4e6;
/// Acknowledged commits that are looked for as of their revisions, and how many of one key: there are
/// stores that read every version of a key to find one.
const PROBES: usize = 1000;
const PROBES_OF_A_KEY: usize = 50;

/// The keys a phase writes to, with the revision each was last seen at.
#[derive(Debug)]
pub struct Field {
    keys: Vec<[u8; KEY_BYTES]>,
    seen: Vec<AtomicU64>,
    pool: Vec<[u8; VALUE_BYTES]>,
    /// Revision after loading.
    loaded: u64,
    runs: u64,
    acked: Vec<Acked>,
}

/// One acknowledged commit.
#[derive(Clone, Copy, Debug)]
struct Acked {
    revision: u64,
    nonce: u64,
    key: u32,
}

/// Who commits what, for how long.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub threads: u64,
    /// Commits outstanding per thread; 1 is a blocking commit.
    pub window: usize,
    /// A window goes commit by commit, as it must where there are neither tickets nor a group commit.
    pub one_by_one: bool,
    /// Everybody writes one key.
    pub hot: bool,
    /// Each commit reads the key and puts a value, with nobody in between, instead of swapping.
    pub update: bool,
    pub time: Duration,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Run {
    pub per_second: f64,
    pub conflicts_per_commit: f64,
    /// Of a commit from its first try to its success, or of a whole window.
    pub latency: Latency,
    /// Commits per sync, where the store tells.
    pub per_sync: Option<f64>,
}

impl Field {
    /// Writes `count` keys into a fresh store.
    pub fn load(peer: &dyn Peer, count: u64) -> Result<Self> {
        let keys = (0..count).map(data::key_array).collect::<Result<_>>()?;
        let mut seen: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let mut last = 1;
        for chunk in Rng::new(11).shuffled(count).chunks(1000) {
            let pairs: Vec<_> = chunk.iter().map(|&i| (data::key(i), data::value(i))).collect();
            last = peer.load(&pairs)?;
            for (&index, revision) in chunk.iter().zip(last + 1 - chunk.len() as u64..) {
                if let Some(seen) = usize::try_from(index).ok().and_then(|i| seen.get_mut(i)) {
                    *seen.get_mut() = revision;
                }
            }
        }
        let pool = (0..POOL).map(data::value_array).collect();
        Ok(Self { keys, seen, pool, loaded: last, runs: 0, acked: Vec::new() })
    }

    /// One run; what it acknowledged is remembered for [`Self::verify`].
    pub fn run(&mut self, peer: &dyn Peer, shape: Shape) -> Result<Run> {
        self.runs += 1;
        let run = self.runs;
        let barrier = Barrier::new(usize::try_from(shape.threads)?);
        let field = &*self;
        let groups_before = peer.groups();
        let clients = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..shape.threads)
                .map(|thread| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let client = Client::new(field, run, thread, shape);
                        barrier.wait();
                        client.work(peer, shape)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| "a client panicked")?)
                .collect::<Result<Vec<Client<'_>>>>()
        })?;
        let started = clients.iter().map(|client| client.started).min();
        let finished = clients.iter().map(|client| client.finished).max();
        let elapsed = started.zip(finished).map_or(Duration::ZERO, |(from, to)| to - from);
        let commits: usize = clients.iter().map(|client| client.acked.len()).sum();
        let conflicts: u64 = clients.iter().map(|client| client.conflicts).sum();
        let groups = groups_before.zip(peer.groups());
        let per_sync = groups.map(|(before, after)| {
            let syncs = after.syncs - before.syncs;
            (after.commits - before.commits) as f64 / syncs.max(1) as f64
        });
        let mut latency = Latency::default();
        let mut acked = Vec::with_capacity(clients.len());
        for client in clients {
            latency.add(&client.latency);
            acked.push(client.acked);
        }
        self.acked.extend(acked.into_iter().flatten());
        Ok(Run {
            per_second: commits as f64 / elapsed.as_secs_f64(),
            conflicts_per_commit: conflicts as f64 / commits.max(1) as f64,
            latency,
            per_sync,
        })
    }

    /// Forgets what was acknowledged, where nothing is to be verified.
    pub fn forget(&mut self) {
        self.acked.clear();
    }

    /// Every acknowledged commit has a revision of its own without gaps, every key holds the newest
    /// of its acknowledged values, and old ones are found as of their revision. `peer` was reopened.
    pub fn verify(&mut self, peer: &dyn Peer) -> Result<()> {
        self.acked.sort_unstable_by_key(|acked| acked.revision);
        for (acked, expected) in self.acked.iter().zip(self.loaded + 1..) {
            if acked.revision != expected {
                return Err(
                    format!("revision {expected} expected, {} acked", acked.revision).into()
                );
            }
        }
        let mut newest = HashMap::new();
        for acked in &self.acked {
            newest.insert(acked.key, *acked);
        }
        for acked in newest.values() {
            self.check(peer, acked, None)?;
        }
        let mut probes = HashMap::<u32, usize>::new();
        for acked in self.acked.iter().step_by(self.acked.len() / PROBES + 1) {
            let probes = probes.entry(acked.key).or_default();
            *probes += 1;
            if *probes <= PROBES_OF_A_KEY {
                self.check(peer, acked, Some(acked.revision))?;
            }
        }
        Ok(())
    }

    fn check(&self, peer: &dyn Peer, acked: &Acked, at: Option<u64>) -> Result<()> {
        let mut found = (0, Vec::new());
        let key = self.key(usize::try_from(acked.key)?);
        peer.get(key, at, &mut |revision, value| found = (revision, value.to_vec()))?;
        let mut expected = [0; VALUE_BYTES];
        self.value(acked.nonce, &mut expected);
        if found.0 != acked.revision || found.1 != expected {
            let (revision, nonce) = (found.0, data::nonce(&found.1));
            return Err(format!("{acked:?} at {at:?}: found {revision} {nonce:?}").into());
        }
        Ok(())
    }

    fn key(&self, index: usize) -> &[u8] {
        self.keys.get(index).map_or(&[], |key| key)
    }

    fn seen(&self, key: usize) -> u64 {
        self.seen.get(key).map_or(0, |seen| seen.load(Ordering::Acquire))
    }

    fn value(&self, nonce: u64, out: &mut [u8; VALUE_BYTES]) {
        if let Some(value) = self.pool.get((nonce % POOL) as usize) {
            *out = *value;
        }
        if let Some(head) = out.first_chunk_mut::<8>() {
            *head = nonce.to_be_bytes();
        }
    }
}

/// One committing thread.
#[derive(Debug)]
struct Client<'a> {
    field: &'a Field,
    rng: Rng,
    next_nonce: u64,
    acked: Vec<Acked>,
    conflicts: u64,
    latency: Latency,
    started: Instant,
    finished: Instant,
    /// As many as are outstanding at a time.
    tries: Vec<Try>,
}

/// A commit to be tried.
#[derive(Clone, Debug)]
struct Try {
    key: usize,
    seen: u64,
    nonce: u64,
    value: [u8; VALUE_BYTES],
}

impl Try {
    fn cas<'t>(&'t self, field: &'t Field) -> Cas<'t> {
        Cas { key: field.key(self.key), seen: Some(self.seen), value: &self.value }
    }
}

impl<'a> Client<'a> {
    fn new(field: &'a Field, run: u64, thread: u64, shape: Shape) -> Self {
        let commits = COMMITS_PER_SECOND_MAX * shape.time.as_secs_f64() / shape.threads as f64;
        let now = Instant::now();
        let empty = Try { key: 0, seen: 0, nonce: 0, value: [0; VALUE_BYTES] };
        Self {
            field,
            rng: Rng::new(run << 16 | thread),
            next_nonce: run << 44 | thread << 32,
            acked: Vec::with_capacity(commits as usize),
            conflicts: 0,
            latency: Latency::default(),
            started: now,
            finished: now,
            tries: vec![empty; shape.window],
        }
    }

    fn work(mut self, peer: &dyn Peer, shape: Shape) -> Result<Self> {
        self.started = Instant::now();
        let mut before = self.started;
        while before - self.started < shape.time {
            if shape.window == 1 {
                self.commit(peer, shape)?;
            } else {
                self.commit_window(peer, shape.one_by_one)?;
            }
            let now = Instant::now();
            self.latency.record((now - before).as_nanos() as u64);
            before = now;
        }
        self.finished = before;
        Ok(self)
    }

    fn random_key(&mut self) -> usize {
        self.rng.below(self.field.keys.len() as u64) as usize
    }

    fn prepare(&mut self, at: usize, key: usize) {
        let Some(attempt) = self.tries.get_mut(at) else { return };
        attempt.key = key;
        attempt.seen = self.field.seen(key);
        attempt.nonce = self.next_nonce;
        self.next_nonce += 1;
        self.field.value(attempt.nonce, &mut attempt.value);
    }

    /// Commits to one key, again after each conflict, as an application would: by reading it.
    fn commit(&mut self, peer: &dyn Peer, shape: Shape) -> Result<()> {
        let key = if shape.hot { 0 } else { self.random_key() };
        self.prepare(0, key);
        let Some(attempt) = self.tries.first_mut() else { return Ok(()) };
        loop {
            let mut cas = attempt.cas(self.field);
            if shape.update {
                cas.seen = None;
            }
            if let Some(revision) = peer.cas(cas)? {
                self.acked.push(self.field.acknowledge(attempt, revision));
                return Ok(());
            }
            self.conflicts += 1;
            let mut newest = 0;
            peer.get(self.field.key(key), None, &mut |revision, _| newest = revision)?;
            attempt.seen = newest;
        }
    }

    fn commit_window(&mut self, peer: &dyn Peer, one_by_one: bool) -> Result<()> {
        let first = self.random_key();
        for at in 0..self.tries.len() {
            self.prepare(at, (first + at) % self.field.keys.len());
        }
        let field = self.field;
        let mut window = self.tries.iter().map(|attempt| attempt.cas(field));
        let answers = if one_by_one {
            window.map(|cas| peer.cas(cas)).collect::<Result<Vec<_>>>()?
        } else {
            let window: Vec<Cas<'_>> = window.by_ref().collect();
            peer.cas_window(&window)?
        };
        for (attempt, answer) in self.tries.iter().zip(answers) {
            match answer {
                Some(revision) => self.acked.push(field.acknowledge(attempt, revision)),
                None => self.conflicts += 1,
            }
        }
        Ok(())
    }
}

impl Field {
    fn acknowledge(&self, attempt: &Try, revision: u64) -> Acked {
        if let Some(seen) = self.seen.get(attempt.key) {
            seen.fetch_max(revision, Ordering::AcqRel);
        }
        Acked { revision, nonce: attempt.nonce, key: attempt.key as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Level;
    use crate::peers::{annals, nothing::Nothing};

    const SHAPE: Shape = Shape {
        threads: 4,
        window: 1,
        one_by_one: false,
        hot: true,
        update: false,
        time: Duration::from_millis(20),
    };

    #[test]
    fn verification_passes_what_was_kept_and_finds_what_was_not() -> Result<()> {
        let dir = std::env::temp_dir().join(format!("annals-peers-test-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let peer = annals::open(&dir, Level::Buffered)?;
        let mut field = Field::load(&*peer, 100)?;
        for (window, one_by_one) in [(1, false), (8, false), (8, true)] {
            let run = field.run(&*peer, Shape { window, one_by_one, ..SHAPE })?;
            assert!(run.per_second > 0.0 && run.latency.nanos(5_000) <= run.latency.nanos(10_000));
        }
        peer.close()?;
        let peer = annals::open(&dir, Level::Buffered)?;
        field.verify(&*peer)?;

        let last = field.acked.pop().ok_or("nothing was acknowledged")?;
        field.acked.push(Acked { nonce: last.nonce ^ 1, ..last });
        assert!(field.verify(&*peer).is_err(), "another value");
        field.acked.pop();
        field.acked.push(Acked { revision: last.revision + 1, ..last });
        assert!(field.verify(&*peer).is_err(), "a gap");
        assert!(field.verify(&Nothing::default()).is_err(), "an empty store");
        field.forget();
        field.verify(&*peer)?;
        peer.close()?;
        Ok(std::fs::remove_dir_all(&dir)?)
    }
}
