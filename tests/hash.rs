//! `hash_at` is etcd's hash of keys and values: recorded answers of a real etcd, and random
//! histories against the rules spelled out naively.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "tests fail by panicking, and numbers are small"
)]

mod recorded;
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use annals::clock::ManualClock;
use annals::vfs::MemoryVfs;
use annals::{
    At, ChangeKind, Error, ErrorKind, LeaseGrantRequest, PutRequest, Retention, Store, Transaction,
    delete, put,
};
use recorded::bytes;
use serde_json::Value;
use support::random::Random;
use support::{DIRECTORY, START_TIME, tiny};

fn fresh() -> (annals::Options, Store) {
    let options = tiny(Arc::new(MemoryVfs::new()), Arc::new(ManualClock::new(START_TIME)));
    let store = options.open(DIRECTORY).unwrap();
    (options, store)
}

/// The recorded transactions with revisions in (`after`, `upto`].
fn play(store: &Store, recording: &Value, after: u64, upto: u64) {
    let transactions = recording["transactions"].as_array().unwrap();
    for (revision, changes) in (2..).zip(transactions) {
        if revision <= after || revision > upto {
            continue;
        }
        let ops = changes.as_array().unwrap().iter().map(|change| {
            let key = bytes(&change[0]);
            match change.get(1) {
                None => delete(key),
                Some(value) => {
                    let lease = change[2].as_i64().unwrap_or_default();
                    PutRequest::new(key, bytes(value)).lease(lease).into()
                }
            }
        });
        let done = store.txn().then(ops.collect::<Vec<_>>()).commit().unwrap();
        assert_eq!(done.revision, revision);
    }
}

/// What is done with a store before it is asked.
type Moved = fn(Store, &annals::Options) -> Store;

#[test]
fn a_recorded_etcd_answers_the_same() {
    let recording: Value = serde_json::from_str(include_str!("recorded/hashkv.json")).unwrap();
    let ways: [(&str, Moved); 3] = [
        ("in memory", |store, _| store),
        ("in files", |store, _| {
            store.reorganise().unwrap();
            store
        }),
        ("from the log, for reading", |store, options| {
            store.close().unwrap();
            Store::open_read_only_with(DIRECTORY, options).unwrap()
        }),
    ];
    let mut compared = 0;
    for (way, moved) in ways {
        let (options, mut store) = fresh();
        for lease in recording["leases"].as_array().unwrap() {
            store.lease_grant_with(LeaseGrantRequest::new(lease.as_i64().unwrap(), 1000)).unwrap();
        }
        for phase in recording["phases"].as_array().unwrap() {
            let [upto, compacted] =
                ["revision", "compacted"].map(|name| phase[name].as_u64().unwrap());
            play(&store, &recording, store.revision(), upto);
            if store.compacted_revision() < compacted {
                store.compact(compacted).unwrap();
            }
            store = moved(store, &options);
            for answer in phase["hashes"].as_array().unwrap() {
                let [revision, hash] = [0, 1].map(|at| answer[at].as_u64().unwrap());
                let found = store.hash_at(revision).unwrap();
                assert_eq!(u64::from(found.hash), hash, "{way}, {upto}, {compacted}, {revision}");
                assert_eq!((found.revision, found.compacted), (revision, compacted));
                compared += 1;
            }
            if compacted > 0 {
                let error = store.hash_at(compacted - 1).unwrap_err();
                assert!(is_compacted(&error, compacted), "{error}");
            }
            drop(store);
            store = options.open(DIRECTORY).unwrap();
        }
    }
    assert_eq!(compared, 3 * 228);
}

fn is_compacted(error: &Error, at: u64) -> bool {
    matches!(error.kind(), ErrorKind::Compacted { compacted, .. } if *compacted == at)
}

/// etcd's table of versions: (main, sub) to whether it is a tombstone, the key, and the encoded
/// key-value.
type Table = BTreeMap<(u64, u32), (bool, Vec<u8>, Vec<u8>)>;

fn varint(out: &mut Vec<u8>, field: u8, mut number: u64) {
    if number == 0 {
        return;
    }
    out.push(field << 3);
    while number >= 128 {
        out.push((number % 128 + 128) as u8);
        number /= 128;
    }
    out.push(number as u8);
}

fn string(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        varint(out, field, bytes.len() as u64);
        let tag = out.len()
            - if bytes.len() < 128 {
                2
            } else if bytes.len() < 1 << 14 {
                3
            } else {
                4
            };
        out[tag] |= 2;
        out.extend_from_slice(bytes);
    }
}

fn add(table: &mut Table, transaction: &Transaction) {
    for change in &transaction.changes {
        let mut proto = Vec::new();
        string(&mut proto, 1, &change.key);
        let deleted = change.kind == ChangeKind::Delete;
        if !deleted {
            varint(&mut proto, 2, change.create_revision);
            varint(&mut proto, 3, transaction.revision);
            varint(&mut proto, 4, change.version);
            string(&mut proto, 5, change.value.as_ref().expect("values were asked for"));
            varint(&mut proto, 6, change.lease.cast_unsigned());
        }
        let place = (transaction.revision, change.sub);
        assert!(table.insert(place, (deleted, change.key.to_vec(), proto)).is_none());
    }
}

/// The places of what is alive at a revision.
fn alive(table: &Table, revision: u64) -> Vec<(u64, u32)> {
    let mut newest = BTreeMap::new();
    for (place, (deleted, key, _)) in table.range(..=(revision, u32::MAX)) {
        newest.insert(key, (*place, *deleted));
    }
    newest.into_values().filter(|(_, deleted)| !deleted).map(|(place, _)| place).collect()
}

/// The rules, one after the other.
fn naive(table: &Table, compacted: u64, revision: u64) -> u32 {
    let at_end = alive(table, revision);
    let base = if at_end.is_empty() { alive(table, compacted) } else { at_end };
    let mut bytes = b"key".to_vec();
    for (place, (deleted, _, proto)) in table.range(..=(revision, u32::MAX)) {
        if place.0 > compacted || base.contains(place) {
            bytes.extend(place.0.to_be_bytes());
            bytes.push(b'_');
            bytes.extend(u64::from(place.1).to_be_bytes());
            bytes.extend(deleted.then_some(b't'));
            bytes.extend(proto);
        }
    }
    let mut register = u32::MAX;
    for byte in bytes {
        register ^= u32::from(byte);
        for _ in 0..8 {
            register = register >> 1 ^ if register & 1 == 1 { 0x82F6_3B78 } else { 0 };
        }
    }
    !register
}

/// A random transaction on a few keys.
fn random_write(store: &Store, random: &mut Random, only: Option<&str>) {
    let key = |random: &mut Random| format!("{}{}", only.unwrap_or("/k/"), random.below(9));
    // Values that EVENTS repeat, and such that are looked up.
    let lengths = [0, 3, 90, 3_000];
    let value = |random: &mut Random| {
        let length = lengths[random.below(4) as usize];
        vec![b'a' + random.below(26) as u8; length]
    };
    match random.below(8) {
        0 | 1 => drop(store.delete(key(random)).unwrap()),
        2 => {
            let count = random.below(4) + 2;
            let ops = (0..count).map(|n| {
                let key = format!("{}{n}", only.unwrap_or("/k/"));
                if random.below(3) == 0 { delete(key) } else { put(key, value(random)) }
            });
            let ops: Vec<_> = ops.collect();
            store.txn().then(ops).metadata("several").commit().unwrap();
        }
        3 if random.below(6) == 0 => {
            store.delete_range(annals::DeleteRangeRequest::prefix(only.unwrap_or("/"))).unwrap();
        }
        4 => {
            let request = PutRequest::new(key(random), value(random)).lease(-7);
            store.put_with(request).unwrap();
        }
        _ => drop(store.put(key(random), value(random)).unwrap()),
    }
}

#[test]
fn random_histories_have_the_hash_that_the_rules_say() {
    let mut dead_ends = 0;
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let (options, mut store) = fresh();
        store.lease_grant_with(LeaseGrantRequest::new(-7, 100)).unwrap();
        let mut table = Table::new();
        let mut told = 1;
        for round in 0..8 {
            for _ in 0..40 {
                random_write(&store, &mut random, None);
            }
            if round == 5 {
                store.delete_range(annals::DeleteRangeRequest::prefix("/")).unwrap();
            }
            for transaction in store.log(told + 1..).with_values() {
                add(&mut table, &transaction.unwrap());
            }
            told = store.revision();
            let compacted = store.compacted_revision();
            if round % 3 == 2 {
                let to = compacted + random.below(told - compacted) + 1;
                store.compact(to).unwrap();
            }
            match random.below(3) {
                0 => store.reorganise().unwrap(),
                1 => {
                    store.close().unwrap();
                    store = options.open(DIRECTORY).unwrap();
                }
                _ => {}
            }
            let compacted = store.compacted_revision();
            for revision in compacted.max(1)..=told {
                let found = store.hash_at(revision).unwrap();
                let expected = naive(&table, compacted, revision);
                assert_eq!(found.hash, expected, "seed {seed}, {compacted}, {revision}");
                dead_ends += u64::from(alive(&table, revision).is_empty());
            }
            assert_eq!(store.hash_at(At::Latest).unwrap(), store.hash_at(told).unwrap());
        }
    }
    assert!(dead_ends > 10, "{dead_ends} revisions without a living key");
}

#[test]
fn with_rules_of_retention_it_is_as_if_compacted_to_where_all_can_be_read() {
    let mut random = Random::new(77);
    let (_, store) = fresh();
    store.lease_grant_with(LeaseGrantRequest::new(-7, 100)).unwrap();
    store.set_retention("/short/", Some(Retention::forever().keep_revisions(20))).unwrap();
    let mut table = Table::new();
    for n in 0..120 {
        let only = if n % 2 == 0 { "/short/" } else { "/long/" };
        random_write(&store, &mut random, Some(only));
    }
    for transaction in store.log(..).with_values() {
        add(&mut table, &transaction.unwrap());
    }
    let newest = store.revision();
    store.compact(30).unwrap();
    store.apply_retention().unwrap();
    store.reorganise().unwrap();
    let oldest = store.oldest_readable(..);
    assert!((31..newest).contains(&oldest), "{oldest}");
    for revision in oldest..=newest {
        let found = store.hash_at(revision).unwrap();
        assert_eq!((found.hash, found.compacted), (naive(&table, oldest, revision), oldest));
    }
    match store.hash_at(oldest - 1).unwrap_err().kind() {
        ErrorKind::Compacted { prefix: Some(prefix), .. } => assert_eq!(&prefix[..], b"/short/"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_fresh_store_has_a_hash_and_revisions_that_are_not_there_have_none() {
    let (_, store) = fresh();
    let found = store.hash_at(1).unwrap();
    assert_eq!((found.hash, found.revision, found.compacted), (naive(&Table::new(), 0, 1), 1, 0));
    assert!(matches!(store.hash_at(0).unwrap_err().kind(), ErrorKind::InvalidArgument { .. }));
    let future = store.hash_at(2).unwrap_err();
    assert!(matches!(future.kind(), ErrorKind::FutureRevision { .. }), "{future}");
    assert_eq!(store.hash_at(At::Time(i64::MIN)).unwrap(), found);
}

#[test]
fn compactions_meanwhile_refuse_only_what_they_compact() {
    let (_, store) = fresh();
    for n in 0..300 {
        store.put(format!("/k/{}", n % 40), "v").unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for to in 2..250 {
                store.compact(to).unwrap();
            }
        });
        scope.spawn(|| {
            // Whatever is compacted meanwhile, this is not.
            while store.compacted_revision() < 249 {
                assert_eq!(store.hash_at(290).unwrap().revision, 290);
                store.hash_at(At::Latest).unwrap();
            }
        });
    });
}
