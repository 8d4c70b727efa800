//! Random histories of a store, and what a database says, read by the reader of etcd's files.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test uses what it needs of it"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::time::Duration;

use annals::{PutRequest, Store, delete, put};
use annals_etcd_files::bolt::Bolt;
use annals_etcd_files::proto::KeyValue;
use annals_etcd_files::{Error, Lease, Snapshot};

/// Numbers that follow from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 ^ self.0 >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) % (u64::MAX / 2) / 7 % end
    }
}

/// Does something to a store so many times.
pub fn history(store: &Store, random: &mut Random, keys: u64, steps: u64) {
    let mut leases = Vec::new();
    let key = |random: &mut Random| format!("key {}", random.below(keys));
    for _ in 0..steps {
        match random.below(20) {
            0..8 => {
                let value = vec![b'v'; usize::try_from(random.below(200)).unwrap()];
                store.put(key(random), value).unwrap();
            }
            8..12 => drop(store.delete(key(random)).unwrap()),
            12 | 13 => {
                let some: BTreeSet<String> = (0..random.below(5)).map(|_| key(random)).collect();
                // Not in the order of keys.
                let operations = some.iter().rev().map(|key| match random.below(3) {
                    0 => delete(key),
                    _ => put(key, "of a transaction"),
                });
                store.txn().then(operations.collect::<Vec<_>>()).commit().unwrap();
            }
            14 => {
                let id = i64::from_le_bytes(
                    random.below(1 << 40).wrapping_mul(0x1234_5677).to_le_bytes(),
                );
                let id = if random.below(2) == 0 { -id } else { id };
                let ttl = Duration::from_secs(10_000 + random.below(1000));
                leases.push(store.lease_grant(id, ttl).unwrap().id);
            }
            15 | 16 => {
                if let Some(lease) = leases.last() {
                    let request = PutRequest::new(key(random), "leased").lease(*lease);
                    store.put_with(request).unwrap();
                }
            }
            17 => {
                if let Some(lease) = leases.pop().filter(|_| random.below(2) == 0) {
                    store.lease_revoke(lease).unwrap();
                }
            }
            18 => {
                let back = random.below(20);
                // Somebody else may have compacted further.
                let _ = store.compact(store.revision().saturating_sub(back));
            }
            _ => store.flush().unwrap(),
        }
    }
}

/// A key and a value.
pub type Element = (Vec<u8>, Vec<u8>);

/// An element of the bucket of keys.
pub struct Entry {
    pub main: u64,
    pub sub: u32,
    pub is_deletion: bool,
    pub element: Element,
}

impl Entry {
    pub fn kv(&self) -> KeyValue<'_> {
        KeyValue::decode(&self.element.1).unwrap()
    }
}

/// A database.
pub struct Found {
    pub compacted: u64,
    pub entries: Vec<Entry>,
    pub leases: Vec<Lease>,
    /// The elements of all buckets.
    pub others: BTreeMap<String, Vec<Element>>,
}

pub fn read(file: &File) -> Found {
    let file = file.try_clone().unwrap();
    let bytes = file.metadata().unwrap().len();
    let snapshot = Snapshot::open(file.try_clone().unwrap()).unwrap();
    let (mut entries, mut leases) = (Vec::new(), Vec::new());
    let bolt = Bolt::open(file, bytes).unwrap();
    let mut others = BTreeMap::new();
    bolt.buckets::<Error>(|name, bucket| {
        let mut elements = Vec::new();
        bolt.walk::<Error>(&bucket, |item| {
            elements.push((item.key.to_vec(), item.value.to_vec()));
            Ok(())
        })?;
        others.insert(String::from_utf8(name.to_vec()).unwrap(), elements);
        Ok(())
    })
    .unwrap();
    let mut elements = others["key"].clone().into_iter();
    snapshot
        .entries::<Error>(|entry| {
            let element = elements.next().unwrap();
            let is_deletion = element.0.len() == 18;
            entries.push(Entry { main: entry.main, sub: entry.sub, is_deletion, element });
            Ok(())
        })
        .unwrap();
    snapshot
        .leases::<Error>(|lease| {
            leases.push(lease);
            Ok(())
        })
        .unwrap();
    Found { compacted: snapshot.compacted(), entries, leases, others }
}

impl Found {
    /// The newest version of each key that is alive at a revision, by key.
    pub fn alive(&self, revision: u64) -> impl Iterator<Item = KeyValue<'_>> {
        let mut alive = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| entry.main <= revision) {
            let kv = entry.kv();
            alive.insert(kv.key, (!entry.is_deletion).then_some(kv));
        }
        alive.into_values().flatten()
    }

    /// What the entries say.
    pub fn told(&self) -> BTreeMap<(u64, u32, bool), String> {
        let bytes = bytes::Bytes::copy_from_slice;
        let told = self.entries.iter().map(|entry| {
            let kv = entry.kv();
            let (key, value) = (bytes(kv.key), bytes(kv.value));
            let numbers = [kv.create_revision, kv.mod_revision, kv.version];
            let told = if entry.is_deletion {
                format!("{key:?}")
            } else {
                format!("{key:?} {value:?} {numbers:?} {}", kv.lease)
            };
            ((entry.main, entry.sub, entry.is_deletion), told)
        });
        told.collect()
    }

    /// etcd's hash of it, as its own code makes it.
    pub fn hash(&self, revision: u64) -> u32 {
        let keep: BTreeSet<(u64, Vec<u8>)> =
            self.alive(revision).map(|kv| (kv.mod_revision, kv.key.to_vec())).collect();
        let mut crc = crc32c(!0, b"key");
        for entry in self.entries.iter().filter(|entry| entry.main <= revision) {
            let kept = || keep.contains(&(entry.main, entry.kv().key.to_vec()));
            if entry.main <= self.compacted && !keep.is_empty() && (entry.is_deletion || !kept()) {
                continue;
            }
            crc = crc32c(crc32c(crc, &entry.element.0), &entry.element.1);
        }
        !crc
    }
}

pub fn crc32c(mut crc: u32, bytes: &[u8]) -> u32 {
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
        }
    }
    crc
}
