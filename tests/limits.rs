//! At every limit, exactly: it is written, and survives a crash. One beyond: it is refused with the
//! limit's own error, nothing has changed, and the store goes on.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where it fails")]

use std::sync::Arc;
use std::time::Duration;

use annals::vfs::{CrashMode, MemoryVfs};
use annals::{Error, ErrorKind, Options, PutRequest, Result, Store, delete, put, txn};
use annals_format::frame::Op;
use annals_format::limits::{KEY_BYTES_MAX, METADATA_BYTES_MAX, VALUE_BYTES_MAX};

/// A store on a simulated disk that can be killed.
struct Killable {
    disk: MemoryVfs,
    options: Options,
    store: Store,
}

impl Killable {
    fn new(set: impl FnOnce(Options) -> Options) -> Self {
        let disk = MemoryVfs::new();
        let options = set(Options::new().background(false).memtable_bytes(1 << 20));
        let options = options.vfs(Arc::new(disk.clone()));
        let store = options.open("store").expect("a fresh store opens");
        Self { disk, options, store }
    }

    /// What is there after a power cut; it is also found whole.
    fn killed(&self) -> Store {
        let disk = self.disk.crash(1, CrashMode::LoseAll);
        let options = self.options.clone().vfs(Arc::new(disk));
        let report = annals::check("store", &options, &mut |_, _| ()).unwrap();
        assert!(report.damage.is_empty() && report.unchecked.is_empty(), "{report:?}");
        options.open("store").expect("what was accepted can be read back")
    }

    /// The call was refused: nothing has changed, and the store goes on, and opens again.
    fn refused<T: std::fmt::Debug>(&self, call: impl FnOnce(&Store) -> Result<T>) -> ErrorKind {
        let before = self.store.revision();
        let error = call(&self.store).expect_err("it is beyond a limit");
        assert_eq!(self.store.revision(), before);
        self.store.put("z", "still here").unwrap();
        assert_eq!(self.killed().revision(), before + 1);
        Error::into_kind(error)
    }
}

fn zeros(bytes: u64) -> Vec<u8> {
    vec![0; usize::try_from(bytes).unwrap()]
}

/// Bytes of a put in a transaction.
fn put_bytes(key: &str, value: usize) -> usize {
    let key = [b"\x01", key.as_bytes()].concat();
    Op::Put { key: &key, value: &vec![0; value], lease: 0 }.encoded_bytes()
}

#[test]
fn options_beyond_the_format_are_refused() {
    for options in [
        Options::new().key_bytes_max(KEY_BYTES_MAX + 1),
        Options::new().value_bytes_max(VALUE_BYTES_MAX + 1),
        Options::new().transaction_bytes_max((1 << 30) + 1),
        Options::new().transaction_operations_max(16_000_001),
        Options::new().metadata_bytes_max(METADATA_BYTES_MAX + 1),
        Options::new().wal_bytes((64 << 10) - 1),
    ] {
        let options = options.vfs(Arc::new(MemoryVfs::new()));
        let error = options.open("store").expect_err("the format does not hold that");
        assert!(matches!(error.kind(), ErrorKind::InvalidOption { .. }), "{error}");
    }
}

#[test]
fn the_longest_key_and_metadata_survive() {
    let of = Killable::new(|options| {
        options.key_bytes_max(KEY_BYTES_MAX).metadata_bytes_max(METADATA_BYTES_MAX)
    });
    let lease = of.store.lease_grant(7, Duration::from_secs(60)).unwrap().id;
    let key = zeros(KEY_BYTES_MAX);
    of.store.put_with(PutRequest::new(&key, "long").lease(lease)).unwrap();
    let metadata = zeros(METADATA_BYTES_MAX);
    of.store.txn().then([put("a", "")]).metadata(&metadata).commit().unwrap();
    let after = of.killed();
    assert_eq!(after.get(&key).unwrap().unwrap().value, "long");
    assert_eq!(after.lease_info(lease, true).unwrap().unwrap().keys, [&key[..]]);
    let last = after.log(3..).last().unwrap().unwrap();
    assert_eq!(last.metadata, metadata);

    let key = zeros(KEY_BYTES_MAX + 1);
    let refused = of.refused(|store| store.put(&key, ""));
    assert!(matches!(refused, ErrorKind::KeyTooLong { .. }), "{refused:?}");
    let metadata = zeros(METADATA_BYTES_MAX + 1);
    let refused = of.refused(|store| store.txn().then([put("a", "")]).metadata(&metadata).commit());
    assert!(matches!(refused, ErrorKind::MetadataTooLong { .. }), "{refused:?}");
}

/// Takes several gigabytes of memory, so it is run by hand: `--ignored`.
#[test]
#[ignore = "takes several gigabytes of memory"]
fn the_longest_value_survives() {
    let of = Killable::new(|options| {
        options.value_bytes_max(VALUE_BYTES_MAX).transaction_bytes_max(1 << 30)
    });
    of.store.put("a", zeros(VALUE_BYTES_MAX)).unwrap();
    assert_eq!(of.killed().get("a").unwrap().unwrap().value.len() as u64, VALUE_BYTES_MAX);
    let refused = of.refused(|store| store.put("a", zeros(VALUE_BYTES_MAX + 1)));
    assert!(matches!(refused, ErrorKind::ValueTooLong { .. }), "{refused:?}");
}

#[test]
fn the_bytes_of_a_transaction_are_those_of_its_payload() {
    let of = Killable::new(|options| options.transaction_bytes_max(4096));
    let metadata = [7; 100];
    let room = 4096 - metadata.len() - put_bytes("a", 1000) - put_bytes("b", 1000);
    let last = room - (put_bytes("c", 1000) - 1000);
    let large = |last: usize| {
        let puts = [put("a", [0; 1000]), put("b", [0; 1000]), put("c", vec![0; last])];
        of.store.txn().then(puts).metadata(metadata)
    };
    let done = large(last).commit().unwrap();
    assert_eq!(of.killed().revision(), done.revision);
    let refused = of.refused(|_| large(last + 1).commit());
    let ErrorKind::TransactionTooLarge { bytes: 4097, max: 4096 } = refused else {
        panic!("{refused:?}");
    };
}

#[test]
fn what_a_transaction_adds_to_the_lease_table_counts() {
    let of = Killable::new(|options| options.transaction_bytes_max(4096));
    let lease = of.store.lease_grant(7, Duration::from_secs(60)).unwrap().id;
    let attached = |count: usize| {
        let puts = (0..count).map(|n| PutRequest::new(format!("{n:0>200}"), "").lease(lease));
        of.store.txn().then(puts).commit()
    };
    // The keys alone would take half of the room; each is in its attachment once more.
    let refused = of.refused(|_| attached(10));
    assert!(matches!(refused, ErrorKind::TransactionTooLarge { .. }), "{refused:?}");
    attached(9).unwrap();
    assert_eq!(of.killed().lease_info(lease, true).unwrap().unwrap().keys.len(), 9);
}

#[test]
fn what_is_taken_back_does_not_count() {
    let of =
        Killable::new(|options| options.transaction_bytes_max(4096).transaction_operations_max(4));
    let large = |key: &str| txn().then([put(key, [0; 3000])]);
    let small = |key: &str| txn().then([delete(key)]);
    let done = of.store.txn().then([large("a"), small("a"), large("b")]).commit().unwrap();
    let after = of.killed();
    assert_eq!(after.revision(), done.revision);
    assert_eq!(after.get("b").unwrap().unwrap().value.len(), 3000);
    let refused = of.refused(|store| store.txn().then([large("c"), large("d")]).commit());
    assert!(matches!(refused, ErrorKind::TransactionTooLarge { .. }), "{refused:?}");
}

#[test]
fn as_many_operations_as_allowed_survive() {
    let of = Killable::new(|options| options.transaction_operations_max(300));
    let puts = |count: usize| (0..count).map(|n| put(n.to_string(), "")).collect::<Vec<_>>();
    of.store.txn().then(puts(300)).commit().unwrap();
    assert_eq!(of.killed().latest().unwrap().count(..).unwrap(), 300);
    let refused = of.refused(|store| store.txn().then(puts(301)).commit());
    let ErrorKind::TooManyOperations { count: 301, max: 300 } = refused else {
        panic!("{refused:?}");
    };
}
