//! A past of which one half is damaged: the files of versions and EVENTS make up for each other.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::time::Duration;

use annals::{ErrorKind, KeyValue, PutRequest, Store, Transaction, delete, put};
use common::{Tool, small};

/// A store in small files: puts, deletions, transactions of several changes with metadata, large values, a lease; compacted
/// up to this revision, if any.
fn written(tool: &Tool, compacted: Option<u64>) -> Store {
    let options = small().event_value_bytes(200).blob_value_bytes(3000).background(false);
    let store = options.open(tool.store()).unwrap();
    let lease = store.lease_grant(7, Duration::from_secs(1000)).unwrap().id;
    for n in 0..400_usize {
        let key = |n: usize| format!("k/{:03}", n % 40);
        let value = match n % 20 {
            0 => "large".repeat(800),
            1 => "middle".repeat(50),
            _ => format!("{n} {}", "x".repeat(n % 60)),
        };
        let txn = store.txn().metadata(format!("by {n}"));
        let txn = match n % 7 {
            3 => txn.then([put("other", n.to_string()), delete(key(n)), put(key(n + 1), value)]),
            5 => txn.then([put(key(n), value), delete(key(n + 9)), delete(key(n + 5))]),
            6 => txn.then([PutRequest::new(key(n), value).lease(lease)]),
            _ => txn.then([put(key(n), value)]),
        };
        txn.commit().unwrap();
        if n % 100 == 99 {
            store.reorganise().unwrap();
        }
    }
    if let Some(revision) = compacted {
        store.compact(revision).unwrap();
        store.reorganise().unwrap();
    }
    store
}

/// All that was alive at each revision that can be read.
fn states(store: &Store) -> Vec<(u64, Vec<KeyValue>)> {
    let revisions = store.oldest_readable(..).max(1)..=store.revision();
    let state = |revision| store.at(revision).unwrap().range(..).collect::<annals::Result<_>>();
    revisions.map(|revision| (revision, state(revision).unwrap())).collect()
}

fn log(store: &Store) -> Vec<Transaction> {
    let first = store.oldest_readable(..) + 1;
    store.log(first.max(2)..).with_values().collect::<annals::Result<_>>().unwrap()
}

/// The files of the past of a store, and how their damage is to be told.
fn check(tool: &Tool, kind: &str, mut told: impl FnMut(&Store, &serde_json::Value, i32)) -> usize {
    let files = tool.lines(&["segments"]).into_iter().filter(|file| file["kind"] == kind);
    let mut damages = 0;
    for file in files {
        let path = tool.store().join(file["file"].as_str().unwrap());
        let whole = std::fs::read(&path).unwrap();
        // Not the header, nor the index and what comes behind it.
        for at in (100..whole.len() * 3 / 4).step_by(whole.len() / 5 + 1) {
            let mut content = whole.clone();
            content[at] ^= 0x10;
            std::fs::write(&path, content).unwrap();
            let other = Tool::new();
            let (report, done) = tool.repaired(&other);
            let saved = Store::open(other.store()).unwrap();
            told(&saved, &report, done.0.status.code().unwrap());
            saved.close().unwrap();
            damages += 1;
        }
        std::fs::write(&path, whole).unwrap();
    }
    damages
}

#[test]
fn what_events_do_not_tell_any_more_is_put_together_from_the_versions() {
    for compacted in [None, Some(150)] {
        let tool = Tool::new();
        let store = written(&tool, compacted);
        let (truth, transactions) = (states(&store), log(&store));
        store.close().unwrap();
        let (mut mended, mut unknown) = (0, 0);
        let damages = check(&tool, "events", |saved, report, code| {
            assert_eq!((&report["way"], &report["past_lost"]), (&"copy".into(), &false.into()));
            assert!(states(saved) == truth, "{report}");
            let gaps: Vec<(u64, u64)> =
                serde_json::from_value(report["lost_origins"].clone()).unwrap();
            assert_eq!(code, if gaps.is_empty() { 0 } else { 9 }, "{report}");
            // Of no time another answer than the true one.
            for transaction in &transactions {
                let wanted = transactions.iter().rev().find(|one| one.time <= transaction.time);
                let wanted = wanted.unwrap().revision;
                let found = saved.revision_at_time(transaction.time);
                match found.as_ref().map_err(annals::Error::kind) {
                    Ok(revision) => assert_eq!(*revision, wanted, "{report}"),
                    Err(ErrorKind::TimeUnknown { first, last, .. }) => {
                        assert!((*first..=*last).contains(&wanted), "{first} to {last}: {wanted}");
                        // The last one known before, or all of a gap.
                        let gap = gaps.iter().find(|gap| gap.1 == *last).unwrap();
                        assert!(*first + 1 >= gap.0 && *first <= gap.0, "{first} of {gap:?}");
                        unknown += 1;
                    }
                    Err(other) => panic!("{other:?} {report}"),
                }
            }
            let found = log(saved);
            assert_eq!(found.len(), transactions.len());
            for (found, truth) in found.iter().zip(&transactions) {
                let is_lost = gaps.iter().any(|gap| (gap.0..=gap.1).contains(&found.revision));
                assert_eq!((found.revision, &found.changes), (truth.revision, &truth.changes));
                assert!(is_lost || found == truth, "{found:?}, not {truth:?}");
                assert!(!is_lost || found.metadata.is_empty() && found.time >= truth.time);
                mended += usize::from(is_lost);
            }
        });
        assert!(damages > 5 && mended > 20, "{damages} damages, {mended} put together");
        assert!(unknown > 20, "{unknown}");
    }
}

#[test]
fn versions_that_cannot_be_read_are_taken_from_events() {
    let tool = Tool::new();
    let store = written(&tool, None);
    let truth = states(&store);
    store.close().unwrap();
    let (mut all, mut some) = (0, 0);
    let damages = check(&tool, "history", |saved, report, code| {
        let found = states(saved);
        // Larger values are in the files of versions alone.
        let is_whole = report["past_lost"] == false;
        assert_eq!(code, if is_whole { 0 } else { 9 }, "{report}");
        assert!(!is_whole || found.len() == truth.len());
        assert!(truth.ends_with(&found), "{report}");
        *(if is_whole { &mut all } else { &mut some }) += 1;
    });
    assert!(damages > 5 && all > 0 && some > 0, "{damages} damages, {all} without a loss");
}
