//! What EVENTS say of each transaction: all that its frame said, and the values that are short enough.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::Duration;

use annals::inspect::StoreFiles;
use annals::{Durability, Op, Options, PutRequest, delete, put};
use annals_format::FileKind;
use annals_format::events::{EventKind, Transaction};

#[test]
fn every_transaction_is_told_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().event_value_bytes(10);
    let store = options.open(directory.path()).unwrap();
    store.lease_grant(5, Duration::from_secs(600)).unwrap();
    let leased = PutRequest::new("b", "12345678901").lease(5);
    let ops = [put("a", "1234567890"), Op::from(leased)];
    store.txn().then(ops).time(7_000_000).metadata("by hand").commit().unwrap();
    store.txn().then([put("a", "")]).durability(Durability::Buffered).commit().unwrap();
    store.txn().then([delete("a")]).commit().unwrap();
    let told: Vec<_> = store.log(2..).collect::<annals::Result<_>>().unwrap();
    store.reorganise().unwrap();
    store.close().unwrap();

    let files = StoreFiles::open(directory.path(), &options).unwrap();
    let meta = files.manifest().files.iter().find(|meta| meta.kind == FileKind::Events).unwrap();
    let mut found = Vec::new();
    let entries = files.segment(meta).unwrap();
    entries
        .entries(&mut |entry| {
            let transaction = Transaction::decode(entry.value).unwrap();
            let Transaction { flags, time, metadata, .. } = transaction;
            let events = transaction.events().map(Result::unwrap).map(|event| {
                let is_put = event.kind == EventKind::Put;
                let key = String::from_utf8_lossy(event.key).into_owned();
                let value = event.value.map(|value| String::from_utf8_lossy(value).into_owned());
                let numbers = (event.create_revision, event.version, event.lease);
                (is_put, key, event.sub, numbers, event.value_bytes, value)
            });
            let (metadata, revision) = (metadata.to_vec(), entry.revision);
            found.push((revision, flags, time, metadata, events.collect::<Vec<_>>()));
            Ok(true)
        })
        .unwrap();

    let times: Vec<_> = told.iter().map(|transaction| transaction.time).collect();
    let value = |value: &str| Some(value.to_owned());
    let expected = [
        (
            2,
            0,
            times[0],
            b"by hand".to_vec(),
            vec![
                (true, "a".to_owned(), 0, (2, 1, 0), 10, value("1234567890")),
                (true, "b".to_owned(), 1, (2, 1, 5), 11, None),
            ],
        ),
        // Buffered.
        (3, 2, times[1], vec![], vec![(true, "a".to_owned(), 0, (2, 2, 0), 0, value(""))]),
        (4, 0, times[2], vec![], vec![(false, "a".to_owned(), 0, (0, 0, 0), 0, None)]),
    ];
    assert_eq!(found, expected);
}
