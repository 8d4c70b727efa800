//! What is restored is what was there: every version, lease and rule.

use std::sync::Arc;
use std::time::Duration;

use annals::vfs::{Fault, FaultVfs, MemoryVfs, Operation};
use annals::{At, Options, Retention, Store, inspect_backup};

use crate::support::DIRECTORY;
use crate::support::check::{self, Depth};
use crate::support::copies::{complete, hashes, options, scripted, sound};
use crate::support::random::Random;
use crate::{COPY, backup, restored};

#[test]
fn what_is_restored_equals_the_store_at_every_revision() {
    for seed in 0..12 {
        let options = options(MemoryVfs::new());
        let (store, model) = scripted(&options, seed);
        let (expected, leases) = (hashes(&store), store.lease_list().unwrap());
        if seed % 3 == 0 {
            store.reorganise().unwrap();
        }
        let stream = backup(&store);
        // The store goes on meanwhile; what was read is of its moment.
        store.put("not", "in it").unwrap();
        let report = restored(&stream, &options, COPY).unwrap();
        assert_eq!(report.revision, model.revision());
        assert_eq!(report.bytes, stream.len() as u64);
        {
            let copy = Store::open_read_only_with(COPY, &options).unwrap();
            assert!(copy.incarnation() > store.incarnation() + 1);
            assert_eq!(copy.lease_list().unwrap(), leases);
        }
        assert_eq!(complete(&options, COPY, &model, &expected), Ok(true), "{seed}");
        // A restored store is backed up like any other.
        let copy = options.open(COPY).unwrap();
        let again = backup(&copy);
        restored(&again, &options, "again").unwrap();
        assert_eq!(hashes(&options.open("again").unwrap()), hashes(&copy), "{seed}");
    }
}

#[test]
fn frames_longer_than_a_block_are_put_together_again() {
    let disk = MemoryVfs::new();
    let options = Options::new().vfs(Arc::new(disk)).background(false).wal_bytes(64 << 10);
    let store = options.open(DIRECTORY).unwrap();
    let mut random = Random::new(3);
    for n in 0..24_u64 {
        let bytes = usize::try_from(n * 40_000 + 1).unwrap();
        let value: Vec<u8> = (0..bytes).map(|_| random.next().to_le_bytes()[0]).collect();
        store.put(format!("key/{n}"), value).unwrap();
    }
    store.put("long", vec![8; 9 << 20]).unwrap();
    let expected = hashes(&store);
    let stream = backup(&store);
    assert!(stream.len() > 11_000_000, "{}", stream.len());
    assert!(stream.len() < 13 << 20, "what can be compressed is: {}", stream.len());
    let found = inspect_backup(&stream[..]).unwrap().remove(0);
    assert_eq!((found.transactions, found.files), (25, 0));
    restored(&stream, &options, COPY).unwrap();
    assert_eq!(hashes(&options.open(COPY).unwrap()), expected);
}

#[test]
fn an_empty_store_is_backed_up_like_any_other() {
    let options = options(MemoryVfs::new());
    let store = options.open(DIRECTORY).unwrap();
    let stream = backup(&store);
    restored(&stream, &options, COPY).unwrap();
    let copy = options.open(COPY).unwrap();
    assert_eq!((copy.revision(), copy.put("/a", "1").unwrap().revision), (1, 2));
}

#[test]
fn rules_of_retention_and_leases_go_with_it() {
    let options = options(MemoryVfs::new());
    let store = options.open(DIRECTORY).unwrap();
    store.set_retention("/a/", Some(Retention::forever().keep_revisions(5))).unwrap();
    let lease = store.lease_grant(9, Duration::from_secs(60)).unwrap();
    for n in 0..30 {
        store.put(format!("/a/{}", n % 3), "v").unwrap();
        store
            .put_with(annals::PutRequest::new(format!("/b/{}", n % 3), "v").lease(lease.id))
            .unwrap();
    }
    store.apply_retention().unwrap();
    store.compact(10).unwrap();
    store.reorganise().unwrap();
    store.put("/c", "in no file yet").unwrap();
    let stream = backup(&store);
    restored(&stream, &options, COPY).unwrap();
    let copy = options.open(COPY).unwrap();
    assert_eq!(copy.retention(), store.retention());
    assert_eq!(copy.lease_list().unwrap(), store.lease_list().unwrap());
    assert_eq!(copy.oldest_readable(..), store.oldest_readable(..));
    assert_eq!(copy.hash_at(At::Latest).unwrap(), store.hash_at(At::Latest).unwrap());
    // The keys of the lease are attached to it as they were.
    copy.lease_revoke(lease.id).unwrap();
    assert_eq!(copy.get("/b/1").unwrap(), None);
    assert!(copy.get("/a/1").unwrap().is_some());
    drop((store, copy));
    sound(&options, COPY).unwrap();
}

#[test]
fn a_store_that_accepts_no_write_any_more_can_still_be_backed_up() {
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let (store, model) = scripted(&options(faulty.clone()), 9);
    let expected = hashes(&store);
    faulty.fail(Some(Operation::Sync), faulty.op_count_of(Operation::Sync), Fault::Io, false);
    assert!(store.put("not", "durable").is_err());
    restored(&backup(&store), &options(disk.clone()), COPY).unwrap();
    check::same(|| "revision".into(), &store.revision(), &model.revision()).unwrap();
    check::store(&options(disk.clone()).open(COPY).unwrap(), &model, Depth::Sampled(1)).unwrap();
    assert_eq!(complete(&options(disk), COPY, &model, &expected), Ok(true));
}
