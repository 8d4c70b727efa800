//! A store as a database of etcd: all that it has is in it, of one moment, whatever is done meanwhile.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod snapshot_made;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Cursor, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals::{At, ChangeKind, Options, Store, put};
use annals_etcd::auth::AuthSnapshot;
use annals_etcd::proto::authpb::{Role, User};
use annals_etcd::proto::etcdserverpb::{AlarmMember, AlarmType};
use annals_etcd::snapshot::{Database, Error, Extras, save, write};
use annals_etcd_files::Snapshot;
use snapshot_made::{Found, Random, history, read};

fn made(store: &Store, directory: &Path, extras: &Extras) -> (Database, Found) {
    let database = Database::make(store, directory, extras).unwrap();
    let found = read(database.file());
    let summary = database.summary();
    assert_eq!(database.file().metadata().unwrap().len(), summary.bytes);
    assert_eq!(found.compacted, summary.compacted);
    assert_eq!(found.entries.len() as u64, summary.versions);
    assert_eq!(found.leases.len() as u64, summary.leases);
    (database, found)
}

fn is_dead(store: &Store, revision: u64) -> bool {
    store.at(revision).unwrap().range(..).next().is_none()
}

/// What an etcd would have, from what the store says of itself.
fn expected(store: &Store, revision: u64) -> BTreeMap<(u64, u32, bool), String> {
    let compacted = store.compacted_revision();
    let mut entries = BTreeMap::new();
    if compacted > 1 {
        let view = store.at(compacted).unwrap();
        for kv in view.range(..) {
            let kv = kv.unwrap();
            let sub = view.sub_of(&kv.key).unwrap().unwrap();
            let numbers = [kv.create_revision, kv.mod_revision, kv.version];
            let what = format!("{:?} {:?} {numbers:?} {}", kv.key, kv.value, kv.lease);
            entries.insert((kv.mod_revision, sub, false), what);
        }
    }
    let is_dead = is_dead(store, revision);
    for transaction in store.log(compacted.max(2)..=revision).with_values() {
        let transaction = transaction.unwrap();
        for change in transaction.changes {
            let is_deletion = change.kind == ChangeKind::Delete;
            if transaction.revision == compacted && (!is_deletion || is_dead) {
                continue;
            }
            let numbers = [change.create_revision, transaction.revision, change.version];
            let what = match change.value {
                None => format!("{:?}", change.key),
                Some(value) => format!("{:?} {value:?} {numbers:?} {}", change.key, change.lease),
            };
            entries.insert((transaction.revision, change.sub, is_deletion), what);
        }
    }
    entries
}

#[test]
fn whatever_happened_to_a_store_its_database_has_it() {
    let (mut compared, mut dead) = (0, 0);
    for seed in 0..150 {
        let directory = tempfile::tempdir().unwrap();
        let mut random = Random(seed);
        let options = Options::new().background(false);
        let store = options.open(directory.path().join("store")).unwrap();
        let (keys, steps) = (1 + random.below(12), 1 + random.below(150));
        history(&store, &mut random, keys, steps);
        let sort_bytes = usize::try_from(random.below(3000)).unwrap();
        let extras = Extras { sort_bytes, ..Extras::default() };
        let (database, found) = made(&store, directory.path(), &extras);
        assert_eq!(database.summary().revision, store.revision());
        assert_eq!(found.compacted, store.compacted_revision());
        assert_eq!(found.told(), expected(&store, store.revision()), "{seed}");
        let leases = store.leases().map(|lease| lease.map(|lease| (lease.id, lease.ttl)).unwrap());
        let found_leases = found.leases.iter().map(|lease| (lease.id, lease.ttl));
        assert_eq!(leases.collect::<BTreeSet<_>>(), found_leases.collect());
        let has_deletion =
            found.entries.iter().any(|entry| entry.is_deletion && entry.main == found.compacted);
        for revision in store.compacted_revision().max(1)..=store.revision() {
            // The newest is compared in any case.
            if has_deletion && revision < store.revision() && is_dead(&store, revision) {
                dead += 1;
                continue;
            }
            let hash = store.hash_at(revision).unwrap().hash;
            assert_eq!(found.hash(revision), hash, "{seed} at {revision}");
            compared += 1;
        }
    }
    assert!(compared > 2000 && dead > 0, "{compared} {dead}");
}

#[test]
fn a_store_of_nothing_and_one_of_one_key() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store")).unwrap();
    let (database, found) = made(&store, directory.path(), &Extras::default());
    let summary = database.summary();
    assert_eq!((summary.revision, summary.compacted, found.entries.len()), (1, 0, 0));
    assert_eq!(found.hash(1), store.hash_at(1).unwrap().hash);
    store.put("k", "").unwrap();
    let (_, found) = made(&store, directory.path(), &Extras::default());
    assert_eq!(found.entries.len(), 1);
    assert_eq!(found.hash(2), store.hash_at(2).unwrap().hash);
    store.delete("k").unwrap();
    store.compact(3).unwrap();
    let (_, found) = made(&store, directory.path(), &Extras::default());
    assert_eq!((found.entries.len(), found.compacted), (0, 3), "an etcd goes on from there");
}

#[test]
fn many_keys_and_long_values() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store")).unwrap();
    let keys: Vec<String> =
        (0..100_000).map(|n| format!("/registry/{}", n * 7919 % 100_000)).collect();
    for some in keys.chunks(100) {
        store.txn().then(some.iter().map(|key| put(key, key))).commit().unwrap();
    }
    for (n, bytes) in [0, 4000, 4096, 70_000, 1_500_000].into_iter().enumerate() {
        store.put(format!("/long/{n}"), vec![b'v'; bytes]).unwrap();
    }
    store.compact(store.revision() - 2).unwrap();
    let hash = store.hash_at(At::Latest).unwrap();
    for sort_bytes in [1 << 20, 64 << 20] {
        let extras = Extras { sort_bytes, ..Extras::default() };
        let (_, found) = made(&store, directory.path(), &extras);
        assert_eq!(found.entries.len(), 100_005);
        assert_eq!(found.hash(hash.revision), hash.hash);
    }
}

#[test]
fn what_a_client_gets_is_the_file_and_its_checksum() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store")).unwrap();
    for n in 0..2000 {
        store.put(format!("{n}"), vec![b'v'; 50]).unwrap();
    }
    let file = tempfile::tempfile().unwrap();
    let summary = save(&store, directory.path(), &file, &Extras::default()).unwrap();
    assert!(Snapshot::open(file).unwrap().is_checked());
    let database = Database::make(&store, directory.path(), &Extras::default()).unwrap();
    let mut left = summary.bytes;
    assert_eq!(database.summary(), summary);
    let mut got = Vec::new();
    let mut lengths = Vec::new();
    for message in database.into_blobs() {
        let message = message.unwrap();
        lengths.push(message.blob.len() as u64);
        left = left.saturating_sub(message.blob.len() as u64);
        assert_eq!((message.remaining_bytes, &message.version[..]), (left, "3.6.0"));
        got.extend(message.blob);
    }
    assert_eq!(lengths.pop(), Some(32));
    assert!(lengths.iter().rev().skip(1).all(|length| *length == 32 << 10));
    let snapshot = Snapshot::open(&got[..]).unwrap();
    assert!(snapshot.is_checked());
}

#[test]
fn users_alarms_and_numbers_are_where_etcd_has_them() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store")).unwrap();
    let user = |name: &'static str| {
        let (name, password) = (name.into(), "hash".into());
        User { name, password, ..User::default() }
    };
    let role = Role { name: "r".into(), key_permission: Vec::new() };
    let users = vec![user("root"), user("ada")];
    let extras = Extras {
        auth: Some(AuthSnapshot { enabled: true, revision: 258, users, roles: vec![role] }),
        alarms: vec![AlarmMember { member_id: 5, alarm: AlarmType::Nospace.into() }],
        consistent_index: 77,
        term: 3,
        ..Extras::default()
    };
    let (_, found) = made(&store, directory.path(), &extras);
    // They are read as they were written.
    let path = directory.path().join("snapshot.db");
    save(&store, directory.path(), &File::create_new(&path).unwrap(), &extras).unwrap();
    let (mut written, read) = (extras.auth.unwrap(), AuthSnapshot::of_etcd(&path).unwrap());
    written.users.reverse();
    for user in &mut written.users {
        user.options.get_or_insert_default();
    }
    assert_eq!(read, written);
    let pair = |key: &str, value: &[u8]| (key.as_bytes().to_vec(), value.to_vec());
    let number = |n: u8| vec![0, 0, 0, 0, 0, 0, 0, n];
    let revision = pair("authRevision", &[0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(found.others["auth"], [pair("authEnabled", &[1]), revision]);
    let ada = pair("ada", b"\x0a\x03ada\x12\x04hash");
    assert_eq!(found.others["authUsers"], [ada, pair("root", b"\x0a\x04root\x12\x04hash")]);
    assert_eq!(found.others["authRoles"], [pair("r", b"\x0a\x01r")]);
    assert_eq!(found.others["alarm"], [(vec![8, 5, 16, 1], vec![])]);
    let [index, term] = [("consistent_index", 77), ("term", 3)].map(|(k, n)| pair(k, &number(n)));
    assert_eq!(found.others["meta"], [index, pair("storageVersion", b"3.6.0"), term]);
}

#[test]
fn a_database_is_of_one_moment_while_others_write() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store")).unwrap();
    let stop = AtomicBool::new(false);
    let (mut leased, mut hashed) = (0, 0);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let mut random = Random(writer);
                while !stop.load(Ordering::Relaxed) {
                    history(store, &mut random, 20, 40);
                }
            });
        }
        for round in 0..3000 {
            // Whether there is a moment between two compactions to compare a hash in is a matter of chance.
            if round >= 150 && leased > 0 && hashed > 0 {
                break;
            }
            let extras = Extras { sort_bytes: 2000, ..Extras::default() };
            let (database, found) = made(&store, directory.path(), &extras);
            let summary = database.summary();
            // From the revision compacted to on there is every one.
            let revisions = found.entries.iter().map(|entry| entry.main);
            let after: BTreeSet<u64> = revisions.filter(|main| *main > found.compacted).collect();
            assert_eq!(after.len() as u64, summary.revision - found.compacted.max(1));
            let leases: BTreeSet<i64> = found.leases.iter().map(|lease| lease.id).collect();
            for kv in found.alive(summary.revision) {
                assert!(kv.lease == 0 || leases.contains(&kv.lease), "{kv:?}");
                leased += u64::from(kv.lease != 0);
            }
            let hash = store.hash_at(summary.revision);
            if let Some(hash) = hash.ok().filter(|hash| hash.compacted == found.compacted) {
                assert_eq!(found.hash(summary.revision), hash.hash);
                hashed += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(leased > 0 && hashed > 0, "{leased} {hashed}");
}

/// A disk that is full after some bytes.
struct Full(Cursor<Vec<u8>>, usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.1);
        self.1 -= count;
        match count {
            0 if !bytes.is_empty() => Err(io::ErrorKind::StorageFull.into()),
            _ => self.0.write(&bytes[..count]),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Full {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn what_goes_wrong_is_told_by_its_kind() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store")).unwrap();
    for n in 0..3000 {
        store.put(format!("{n}"), [b'v'; 200]).unwrap();
    }
    store.compact(3000).unwrap();
    let extras = Extras::default();
    for left in [0, 5000, 200_000] {
        let full = Full(Cursor::default(), left);
        let error = write(&store, directory.path(), full, &extras).err().unwrap();
        assert!(matches!(error, Error::File(_)) && error.is_no_space(), "{error}");
    }
    let full = File::options().read(true).write(true).open("/dev/full").unwrap();
    assert!(save(&store, directory.path(), &full, &extras).unwrap_err().is_no_space());
    let nowhere = directory.path().join("nowhere");
    let error = Database::make(&store, &nowhere, &extras).unwrap_err();
    assert!(matches!(error, Error::File(_)) && !error.is_no_space());
    // Where there is no room for the sort.
    let little = Extras { sort_bytes: 100, ..Extras::default() };
    let error = write(&store, &nowhere, Cursor::new(Vec::new()), &little).unwrap_err();
    assert!(matches!(error, Error::File(_)));
    let stopped = Extras { stop: Arc::new(AtomicBool::new(true)), ..Extras::default() };
    let error = Database::make(&store, directory.path(), &stopped).unwrap_err();
    assert!(matches!(error, Error::Stopped), "{error}");
    let closed = store.clone();
    store.close().unwrap();
    let error = Database::make(&closed, directory.path(), &extras).unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
}
