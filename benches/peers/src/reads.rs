//! A store with a history, and reading it: newest, as of a revision, one key and many.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::data::{self, Rng};
use crate::peer::{Peer, Result};

/// What the values of a history are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 256 bytes of which half is noise.
    Small,
    /// Pods of about 2.1 KiB that differ little from version to version.
    Pod,
}

/// `keys` keys with `versions` versions each, written version by version, the keys in random order.
#[derive(Clone, Debug)]
pub struct History {
    pub kind: Kind,
    pub keys: u64,
    pub versions: u64,
    /// Position of each key in the order they are written in.
    position: Vec<u64>,
    order: Vec<u64>,
}

impl History {
    pub fn new(kind: Kind, keys: u64, versions: u64) -> Self {
        let order = Rng::new(23).shuffled(keys);
        let mut position = vec![0; order.len()];
        for (at, &key) in (0..).zip(&order) {
            if let Some(slot) = usize::try_from(key).ok().and_then(|key| position.get_mut(key)) {
                *slot = at;
            }
        }
        Self { kind, keys, versions, position, order }
    }

    fn value(&self, key: u64, version: u64) -> Vec<u8> {
        match self.kind {
            Kind::Small => data::value(version << 32 | key),
            Kind::Pod => data::pod(key, version),
        }
    }

    /// The revision that wrote a version (from 0) of a key.
    fn revision(&self, key: u64, version: u64) -> u64 {
        let position = usize::try_from(key).ok().and_then(|key| self.position.get(key));
        2 + version * self.keys + position.copied().unwrap_or(0)
    }

    pub fn last_revision(&self) -> u64 {
        1 + self.versions * self.keys
    }

    /// Writes everything in batches of 1000 revisions; returns versions per second.
    pub fn load(&self, peer: &dyn Peer) -> Result<f64> {
        let mut busy = Duration::ZERO;
        for version in 0..self.versions {
            for chunk in self.order.chunks(1000) {
                let pairs: Vec<_> =
                    chunk.iter().map(|&key| (data::key(key), self.value(key, version))).collect();
                let started = Instant::now();
                peer.load(&pairs)?;
                busy += started.elapsed();
            }
        }
        Ok((self.keys * self.versions) as f64 / busy.as_secs_f64())
    }

    /// Key and value bytes of all versions.
    pub fn raw_bytes(&self) -> u64 {
        let value = self.value(0, 0).len() as u64;
        (value + data::key(0).len() as u64) * self.keys * self.versions
    }

    /// Bytes of the same versions sorted by key, newest first, in 16 KiB blocks of zstd level 3: what an LSM
    /// tree that compresses its blocks can come to.
    pub fn zstd_bytes(&self) -> Result<u64> {
        let (mut total, mut block) = (0, Vec::new());
        let mut pack = |block: &mut Vec<u8>| -> Result<()> {
            total += zstd::bulk::compress(block, 3)?.len() as u64;
            block.clear();
            Ok(())
        };
        for key in 0..self.keys {
            for version in (0..self.versions).rev() {
                block.extend_from_slice(&data::key(key));
                block.extend_from_slice(&(!self.revision(key, version)).to_be_bytes());
                block.extend_from_slice(&self.value(key, version));
                if block.len() >= 16 << 10 {
                    pack(&mut block)?;
                }
            }
        }
        pack(&mut block)?;
        Ok(total)
    }

    /// Random reads and one scan against what was written.
    pub fn verify(&self, peer: &dyn Peer, probes: u64) -> Result<()> {
        let mut rng = Rng::new(31);
        for _ in 0..probes {
            let key = rng.below(self.keys);
            let version = rng.below(self.versions);
            let newest = version + 1 == self.versions;
            let first = self.revision(key, version);
            let below = if newest { first } else { self.revision(key, version + 1) };
            let at = first + rng.below((below - first).max(1));
            let mut found = (0, Vec::new());
            let at = if newest { None } else { Some(at) };
            peer.get(&data::key(key), at, &mut |revision, value| {
                found = (revision, value.to_vec());
            })?;
            if found.0 != first || found.1 != self.value(key, version) {
                return Err(format!("key {key} at {at:?}: {} not {first}", found.0).into());
            }
        }
        for at in [None, Some(self.revision(0, self.versions / 2)), Some(1 + self.keys)] {
            let mut next = 0;
            let mut wrong = None;
            let limit = usize::try_from(self.keys)?;
            let count =
                peer.scan(data::KEYS_START, data::KEYS_END, limit, at, &mut |key, revision, _| {
                    let at = at.unwrap_or(u64::MAX);
                    let right = (0..self.versions)
                        .rev()
                        .map(|version| self.revision(next, version))
                        .find(|&revision| revision <= at);
                    if key != data::key(next) || right != Some(revision) {
                        wrong.get_or_insert(next);
                    }
                    next += 1;
                })?;
            if count != limit || wrong.is_some() {
                return Err(format!("scan at {at:?}: {count} of {limit}, wrong {wrong:?}").into());
            }
        }
        Ok(())
    }

    /// Point reads per second by `threads` threads; at random revisions if `old`.
    pub fn gets(&self, peer: &dyn Peer, threads: u64, old: bool, time: Duration) -> Result<f64> {
        self.measure(threads, time, |rng| {
            let key = data::key(rng.below(self.keys));
            let mut sum = 0;
            if !peer.get(&key, self.when(rng, old), &mut |_, value| sum = fold(value))? {
                return Err("a key is missing".into());
            }
            std::hint::black_box(sum);
            Ok(1)
        })
    }

    /// Keys per second in scans of up to `limit` keys from random places; at random revisions if `old`.
    pub fn scans(&self, peer: &dyn Peer, limit: u64, old: bool, time: Duration) -> Result<f64> {
        let limit = limit.min(self.keys);
        self.measure(1, time, |rng| {
            let from = data::key(rng.below(self.keys - limit + 1));
            let mut sum = 0;
            let at = self.when(rng, old);
            let count = peer.scan(
                &from,
                data::KEYS_END,
                usize::try_from(limit)?,
                at,
                &mut |_, _, value| sum ^= fold(value),
            )?;
            if count as u64 != limit {
                return Err("a scan fell short".into());
            }
            std::hint::black_box(sum);
            Ok(limit)
        })
    }

    /// A revision since every key exists.
    fn when(&self, rng: &mut Rng, old: bool) -> Option<u64> {
        old.then(|| 1 + self.keys + rng.below(self.last_revision() - self.keys))
    }

    fn measure(
        &self,
        threads: u64,
        time: Duration,
        work: impl Fn(&mut Rng) -> Result<u64> + Sync,
    ) -> Result<f64> {
        let started = Instant::now();
        let totals = std::thread::scope(|scope| {
            let work = &work;
            let clients: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut rng = Rng::new(self.keys << 8 | thread);
                        let mut total = 0;
                        while started.elapsed() < time {
                            for _ in 0..8 {
                                total += work(&mut rng)?;
                            }
                        }
                        Ok(total)
                    })
                })
                .collect();
            clients
                .into_iter()
                .map(|client| client.join().map_err(|_| "a reader panicked")?)
                .collect::<Result<Vec<u64>>>()
        })?;
        Ok(totals.iter().sum::<u64>() as f64 / started.elapsed().as_secs_f64())
    }
}

/// Looks at every byte of a value.
pub fn fold(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks::<8>();
    let sum = words.iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word));
    rest.iter().fold(sum, |sum, &byte| sum.rotate_left(8) ^ u64::from(byte))
}

/// Bytes of disk a directory takes: allocated blocks, not lengths.
pub fn disk_bytes(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut total = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        total +=
            if metadata.is_dir() { disk_bytes(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(total)
}
