//! Compare-and-swap under load, and the check afterwards that what was acknowledged is there.

use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::data::{self, Rng};
use crate::peer::{Cas, Peer, Result};

/// Values that differ: a write takes one of these and stamps its nonce on it.
const POOL: u64 = 1024;

/// The keys a phase writes to, with the revision each was last seen at.
#[derive(Debug)]
pub struct Field {
    keys: Vec<Vec<u8>>,
    seen: Vec<AtomicU64>,
    pool: Vec<Vec<u8>>,
    /// Revision after loading.
    loaded: u64,
    runs: AtomicU64,
    acked: Vec<Acked>,
}

/// One acknowledged commit.
#[derive(Clone, Copy, Debug)]
struct Acked {
    revision: u64,
    key: usize,
    nonce: u64,
}

/// Who commits what, for how long.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub threads: u64,
    /// Commits outstanding per thread; 1 is a blocking commit.
    pub window: usize,
    /// Everybody writes one key.
    pub hot: bool,
    pub time: Duration,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Rate {
    pub per_second: f64,
    pub conflicts_per_commit: f64,
    /// Of a commit, or of a whole window.
    pub p99_us: f64,
}

impl Field {
    /// Writes `count` keys into a fresh store.
    pub fn load(peer: &dyn Peer, count: u64) -> Result<Self> {
        let order = Rng::new(11).shuffled(count);
        let keys: Vec<Vec<u8>> = (0..count).map(data::key).collect();
        let seen: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let mut last = 1;
        for chunk in order.chunks(1000) {
            let pairs: Vec<_> = chunk.iter().map(|&i| (data::key(i), data::value(i))).collect();
            last = peer.load(&pairs)?;
            for (&index, revision) in chunk.iter().zip(last + 1 - chunk.len() as u64..) {
                if let Some(seen) = usize::try_from(index).ok().and_then(|index| seen.get(index)) {
                    seen.store(revision, Ordering::Relaxed);
                }
            }
        }
        let pool = (0..POOL).map(data::value).collect();
        let runs = AtomicU64::new(1);
        Ok(Self { keys, seen, pool, loaded: last, runs, acked: Vec::new() })
    }

    /// One run; what it acknowledged is remembered for [`Self::verify`].
    pub fn run(&mut self, peer: &dyn Peer, shape: Shape) -> Result<Rate> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let barrier = Barrier::new(usize::try_from(shape.threads)?);
        let field = &*self;
        let mut clients = Vec::new();
        let started = Instant::now();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..shape.threads)
                .map(|thread| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let client = Client::new(field, run, thread);
                        barrier.wait();
                        client.work(peer, shape, Instant::now() + shape.time)
                    })
                })
                .collect();
            for thread in threads {
                clients.push(thread.join().map_err(|_| "a client panicked")??);
            }
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        })?;
        let seconds = started.elapsed().as_secs_f64();
        let commits: usize = clients.iter().map(|client| client.acked.len()).sum();
        let conflicts: u64 = clients.iter().map(|client| client.conflicts).sum();
        let mut nanos: Vec<u64> =
            clients.iter().flat_map(|client| client.nanos.iter().copied()).collect();
        nanos.sort_unstable();
        let acked: Vec<Acked> = clients.into_iter().flat_map(|client| client.acked).collect();
        self.acked.extend(acked);
        Ok(Rate {
            per_second: commits as f64 / seconds,
            conflicts_per_commit: conflicts as f64 / commits.max(1) as f64,
            p99_us: percentile(&nanos, 99),
        })
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
        for acked in self.acked.iter().step_by(self.acked.len() / 1000 + 1) {
            self.check(peer, acked, Some(acked.revision))?;
        }
        Ok(())
    }

    fn check(&self, peer: &dyn Peer, acked: &Acked, at: Option<u64>) -> Result<()> {
        let key = self.keys.get(acked.key).ok_or("no such key")?;
        let mut found = (0, Vec::new());
        peer.get(key, at, &mut |revision, value| found = (revision, value.to_vec()))?;
        if found.0 != acked.revision || found.1 != self.value(acked.nonce)? {
            let (revision, nonce) = (found.0, data::nonce(&found.1));
            return Err(format!("{acked:?} at {at:?}: found {revision} {nonce:?}").into());
        }
        Ok(())
    }

    fn value(&self, nonce: u64) -> Result<Vec<u8>> {
        let index = usize::try_from(nonce % POOL)?;
        let mut value = self.pool.get(index).ok_or("no such value")?.clone();
        if let Some(head) = value.first_chunk_mut::<8>() {
            *head = nonce.to_be_bytes();
        }
        Ok(value)
    }
}

fn percentile(sorted: &[u64], percent: usize) -> f64 {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).map_or(0.0, |&nanos| nanos as f64 / 1000.0)
}

/// One committing thread.
#[derive(Debug)]
struct Client<'a> {
    field: &'a Field,
    rng: Rng,
    next_nonce: u64,
    acked: Vec<Acked>,
    conflicts: u64,
    nanos: Vec<u64>,
}

/// A commit to be tried.
#[derive(Debug)]
struct Try {
    key: usize,
    seen: u64,
    nonce: u64,
    value: Vec<u8>,
}

impl<'a> Client<'a> {
    fn new(field: &'a Field, run: u64, thread: u64) -> Self {
        Self {
            field,
            rng: Rng::new(run << 16 | thread),
            next_nonce: run << 44 | thread << 32,
            acked: Vec::new(),
            conflicts: 0,
            nanos: Vec::new(),
        }
    }

    fn work(mut self, peer: &dyn Peer, shape: Shape, deadline: Instant) -> Result<Self> {
        let mut before = Instant::now();
        while before < deadline {
            if shape.window == 1 {
                let key = if shape.hot { 0 } else { self.random_key() };
                let seen = self.field.seen.get(key).map_or(0, |s| s.load(Ordering::Acquire));
                self.commit(peer, key, seen)?;
            } else {
                self.commit_window(peer, shape.window)?;
            }
            let now = Instant::now();
            self.nanos.push(u64::try_from((now - before).as_nanos())?);
            before = now;
        }
        Ok(self)
    }

    fn random_key(&mut self) -> usize {
        let keys = self.field.keys.len() as u64;
        usize::try_from(self.rng.below(keys)).unwrap_or(0)
    }

    fn attempt(&mut self, key: usize, seen: u64) -> Result<Try> {
        let nonce = self.next_nonce;
        self.next_nonce += 1;
        Ok(Try { key, seen, nonce, value: self.field.value(nonce)? })
    }

    fn cas<'t>(&'t self, attempt: &'t Try) -> Cas<'t> {
        let key = self.field.keys.get(attempt.key).map_or(&[][..], Vec::as_slice);
        Cas { key, seen: attempt.seen, value: &attempt.value }
    }

    fn acknowledge(&mut self, attempt: &Try, revision: u64) {
        if let Some(seen) = self.field.seen.get(attempt.key) {
            seen.fetch_max(revision, Ordering::AcqRel);
        }
        self.acked.push(Acked { revision, key: attempt.key, nonce: attempt.nonce });
    }

    /// Commits to one key, again after each conflict, as an application would: by reading it.
    fn commit(&mut self, peer: &dyn Peer, key: usize, seen: u64) -> Result<()> {
        let mut attempt = self.attempt(key, seen)?;
        loop {
            if let Some(revision) = peer.cas(self.cas(&attempt))? {
                self.acknowledge(&attempt, revision);
                return Ok(());
            }
            self.conflicts += 1;
            let mut newest = 0;
            peer.get(self.cas(&attempt).key, None, &mut |revision, _| newest = revision)?;
            attempt.seen = newest;
        }
    }

    fn commit_window(&mut self, peer: &dyn Peer, window: usize) -> Result<()> {
        let first = self.random_key();
        let keys = self.field.keys.len();
        let mut attempts = Vec::with_capacity(window);
        for offset in 0..window {
            let key = (first + offset) % keys;
            let seen = self.field.seen.get(key).map_or(0, |seen| seen.load(Ordering::Acquire));
            attempts.push(self.attempt(key, seen)?);
        }
        let cas: Vec<Cas<'_>> = attempts.iter().map(|attempt| self.cas(attempt)).collect();
        let answers = peer.cas_window(&cas)?;
        drop(cas);
        for (attempt, answer) in attempts.iter().zip(answers) {
            match answer {
                Some(revision) => self.acknowledge(attempt, revision),
                None => self.conflicts += 1,
            }
        }
        Ok(())
    }
}
