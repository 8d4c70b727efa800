//! Rules in force, beside views, the worker, failures and compactions at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use annals_format::retention::Rule;
use bytes::Bytes;

use crate::clock::{ManualClock, SystemClock};
use crate::engine::lost_past::LostPast;
use crate::engine::tests::{commit, compact, delete, memory, open, put, tiny, user};
use crate::engine::{Engine, Scope};
use crate::error::{Effect, ErrorKind};
use crate::index::{Place, Position};
use crate::options::Durability;
use crate::vfs::{Fault, FaultVfs, Operation, Vfs};

use super::{Before, RULES_MAX, Rules};

const FOREVER: Rule = Rule { revisions: None, age: None, removed: false, floor: 0 };

fn last(count: u64) -> Rule {
    Rule { revisions: Some(count), ..FOREVER }
}

fn floor(engine: &Engine, prefix: &str) -> u64 {
    let rules = engine.rules();
    rules.iter().find(|(p, _)| p == prefix.as_bytes()).map_or(0, |(_, rule)| rule.floor)
}

fn value(engine: &Engine, key: &str, revision: u64) -> Option<Vec<u8>> {
    let found = engine.view(revision).unwrap().get(&user(key)).unwrap();
    found.map(|record| record.value.to_vec())
}

fn is_refused(engine: &Engine, key: &str, revision: u64) -> bool {
    let Ok(view) = engine.view(revision) else { return true };
    view.get(&user(key)).is_err_and(|e| matches!(e.kind(), ErrorKind::Compacted { .. }))
}

#[test]
fn a_view_goes_on_reading_what_a_rule_has_forgotten_since() {
    let (_, vfs) = memory();
    let engine = open(&tiny(&vfs)).unwrap();
    engine.set_rule(b"e", Some(last(1))).unwrap();
    for n in 0..400 {
        commit(&engine, vec![put(user("e"), format!("{n}")), put(user("k"), format!("{n}"))])
            .unwrap();
    }
    commit(&engine, vec![delete(user("e"))]).unwrap();
    let view = engine.view(7).unwrap();
    let log = engine.log(7, u64::MAX, Scope::All).unwrap();
    let differences = engine.latest().unwrap().diff(8, b"\x01", b"").unwrap();
    assert!(engine.apply_retention().unwrap());
    assert_eq!(floor(&engine, "e"), engine.revision() - 1);
    compact(&engine, 390).unwrap();
    engine.reorganise().unwrap();
    assert!(is_refused(&engine, "e", 7) && is_refused(&engine, "e", 395));
    assert_eq!(value(&engine, "k", 395).unwrap(), b"393");
    for key in ["e", "k"] {
        assert_eq!(view.get(&user(key)).unwrap().unwrap().value, "5", "{key}");
        assert_eq!(view.scan(&user(key), b"", false).next().unwrap().unwrap().value, "5");
    }
    assert_eq!(log.count(), 402 - 6);
    assert_eq!(differences.map(Result::unwrap).count(), 2);
    // What it held goes when it has gone.
    drop(view);
    engine.reorganise().unwrap();
    assert!(engine.stats().history.entries < 50, "{:?}", engine.stats().history);
    assert_eq!(engine.view(402).unwrap().history(&user("e"), true).count(), 2);
}

#[test]
fn rules_are_applied_when_their_time_has_come() {
    let (_, vfs) = memory();
    let clock = Arc::new(ManualClock::new(1_000));
    let engine = open(&tiny(&vfs).clock(clock.clone())).unwrap();
    let work = || while engine.run_background().unwrap() {};
    let write = || commit(&engine, vec![put(user("e"), "v")]).unwrap().position.revision;
    engine.set_rule(b"e", Some(Rule { age: Some(10_000_000), ..FOREVER })).unwrap();
    engine.set_rule(b"", Some(last(2))).unwrap();
    work();
    assert_eq!((floor(&engine, "e"), engine.compacted_revision()), (0, 0), "nothing to forget");
    for _ in 0..10 {
        clock.advance(5_000_000);
        write();
        work();
    }
    assert_eq!(floor(&engine, "e"), 0, "not before a minute has passed");
    clock.advance(10_000_000);
    work();
    // The last one is ten seconds old, and so is what was there ten seconds ago.
    assert_eq!((floor(&engine, "e"), engine.compacted_revision()), (11, 9));
    write();
    clock.advance(59_000_000);
    work();
    assert_eq!(floor(&engine, "e"), 11);
    clock.advance(1_000_000);
    work();
    assert_eq!((floor(&engine, "e"), engine.compacted_revision()), (12, 10));
    assert!(!engine.apply_retention().unwrap(), "nothing more");
}

#[test]
fn the_worker_applies_rules_by_itself() {
    let (_, vfs) = memory();
    let options = tiny(&vfs).background(true).clock(Arc::new(SystemClock::new()));
    let engine = open(&options.retention_interval_seconds(1)).unwrap();
    engine.set_rule(b"e", Some(last(0))).unwrap();
    let patience = Instant::now() + Duration::from_secs(120);
    for _ in 0..3 {
        let revision = commit(&engine, vec![put(user("e"), "v")]).unwrap().position.revision;
        while floor(&engine, "e") < revision {
            assert!(Instant::now() < patience, "the worker does not come");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn rules_are_found_again_and_never_fall() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let (disk, vfs) = memory();
        let options = tiny(&vfs).durability(durability);
        let engine = open(&options).unwrap();
        engine.set_rule(b"a", Some(FOREVER)).unwrap();
        engine.set_rule(b"e", Some(last(3))).unwrap();
        for n in 0..20 {
            commit(&engine, vec![put(user("e"), format!("{n}")), put(user("a"), "")]).unwrap();
        }
        engine.apply_retention().unwrap();
        // Durable at once, and everything before it, whatever the store promises for commits.
        let crashed: Arc<dyn Vfs> = Arc::new(disk.crash(1, crate::vfs::CrashMode::LoseAll));
        let again = open(&tiny(&crashed)).unwrap();
        assert_eq!(again.rules(), engine.rules());
        assert_eq!((floor(&again, "e"), again.revision()), (18, 21));
        again.set_rule(b"e", Some(FOREVER)).unwrap();
        again.reorganise().unwrap();
        again.close().unwrap();
        drop(again);
        let again = open(&tiny(&crashed)).unwrap();
        assert_eq!(floor(&again, "e"), 18, "what was refused once stays so");
        assert!(is_refused(&again, "e", 17) && !is_refused(&again, "a", 17));
        again.set_rule(b"e", None).unwrap();
        assert!(is_refused(&again, "e", 17), "also without the rule");
        again.set_rule(b"e", Some(last(9))).unwrap();
        assert!(is_refused(&again, "e", 17) && !is_refused(&again, "e", 18));
    }
}

#[test]
fn a_rule_whose_sync_fails_may_be_there_or_not() {
    let (_, vfs) = memory();
    let faulty = FaultVfs::new(Arc::clone(&vfs));
    let dynamic: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let engine = open(&tiny(&dynamic)).unwrap();
    commit(&engine, vec![put(user("e"), "v")]).unwrap();
    let next = faulty.op_count_of(Operation::Sync);
    faulty.fail(Some(Operation::Sync), next, Fault::Io, false);
    let error = engine.set_rule(b"e", Some(last(0))).unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
    assert!(engine.rules().is_empty(), "not in force");
    let refused = engine.set_rule(b"e", Some(last(0))).unwrap_err();
    assert_eq!(refused.effect(), Effect::None, "{refused}");
    assert_eq!(value(&engine, "e", 2).unwrap(), b"v");
    let _ = engine.close();
    drop(engine);
    let again = open(&tiny(&vfs)).unwrap();
    assert!(again.rules().len() <= 1);
    assert_eq!(value(&again, "e", 2).unwrap(), b"v");
}

/// Rules come and go while the store is compacted and written to: from its own floor on a rule for ever
/// keeps everything, from the moment it was set.
#[test]
fn a_new_rule_keeps_everything_from_its_floor_on() {
    const PREFIXES: u64 = 6;
    let (_, vfs) = memory();
    let engine = open(&tiny(&vfs)).unwrap();
    let (done, checked) = (AtomicBool::new(false), AtomicU64::new(0));
    let key = |n: u64| format!("p{n}/k");
    // Revision r has written one key, and its own number into it.
    let expected = |n: u64, revision: u64| (2..=revision).rev().find(|r| r % PREFIXES == n);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = 2;
            while !done.load(Ordering::Relaxed) {
                let write = put(user(key(next % PREFIXES)), next.to_string());
                assert_eq!(commit(&engine, vec![write]).unwrap().position.revision, next);
                next += 1;
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let newest = engine.revision();
                if newest > engine.compacted_revision() + 10 {
                    compact(&engine, newest - 3).unwrap();
                }
                engine.run_background().unwrap();
                engine.reorganise().unwrap();
            }
        });
        // Also when this thread panics.
        let _done = SetAtEnd(&done);
        let until = Instant::now() + Duration::from_secs(4);
        let mut round = 0;
        while Instant::now() < until {
            round += 1;
            let n = round % PREFIXES;
            let prefix = format!("p{n}/");
            engine.set_rule(prefix.as_bytes(), Some(FOREVER)).unwrap();
            let floor = floor(&engine, &prefix);
            for _ in 0..3 {
                for revision in floor.max(2)..=engine.revision() {
                    let found = value(&engine, &key(n), revision);
                    let expected = expected(n, revision).map(|r| r.to_string().into_bytes());
                    assert_eq!(found, expected, "{prefix} at {revision}, from {floor}");
                    checked.fetch_add(1, Ordering::Relaxed);
                }
            }
            engine.set_rule(prefix.as_bytes(), None).unwrap();
            engine.apply_retention().unwrap();
        }
    });
    assert!(checked.load(Ordering::Relaxed) > 100, "{checked:?}");
}

/// What does not compress.
fn noise(seed: u64) -> Vec<u8> {
    let mut numbers = crate::engine::tests::Numbers::new(seed);
    (0..40).flat_map(|_| numbers.next().to_le_bytes()).collect()
}

/// Revision n + 2 writes `noise(n)` to one key of each class.
fn fill(engine: &Engine, revisions: std::ops::Range<u64>) {
    for n in revisions {
        let keys = [format!("audit/{}", n % 3), format!("events/{}", n % 5), format!("k{}", n % 4)];
        let writes = keys.map(|key| put(user(key), noise(n)));
        commit(engine, writes.into()).unwrap();
        while engine.run_background().unwrap() {}
    }
}

/// Every version of `audit/`, and of the others what is kept.
fn assert_kept(engine: &Engine, events: u64, others: u64) {
    let newest = engine.revision();
    for revision in (2..=newest).step_by(7).chain([events, others, newest]) {
        let at = |key: &str, step: u64| {
            let n = revision - 2;
            let found = value(engine, &format!("{key}{}", n % step), revision);
            assert!(found.unwrap() == noise(n), "{key} at {revision}");
        };
        at("audit/", 3);
        assert_eq!(is_refused(engine, "events/0", revision), revision < events);
        assert_eq!(is_refused(engine, "k0", revision), revision < others);
        if revision >= events {
            at("events/", 5);
        }
        if revision >= others {
            at("k", 4);
        }
    }
    for n in 0..3 {
        let history = engine.latest().unwrap().history(&user(format!("audit/{n}")), true);
        let found: Vec<u64> = history.map(|v| v.unwrap().record.mod_revision).collect();
        let expected: Vec<u64> = (2..=newest).rev().filter(|r| (r - 2) % 3 == n).collect();
        assert_eq!(found, expected);
    }
}

/// The bytes of superseded versions of `audit/` and of all, where each file is of one class.
fn bytes(engine: &Engine) -> (u64, u64) {
    let files = engine.0.door.0.shared.tables().files;
    let rules = engine.rules_seen().unwrap();
    let (mut audit, mut all) = (0, 0);
    for file in files.windows.iter().flat_map(|window| &window.files) {
        let meta = file.meta();
        let class = rules.floors(0).class_of_all(&meta.first_key, &meta.last_key);
        let class = class.expect("a file holds keys of one class");
        all += meta.bytes;
        audit += if class == 1 { meta.bytes } else { 0 };
    }
    (audit, all)
}

#[test]
fn the_space_of_what_a_rule_forgets_returns_beside_what_another_keeps_for_ever() {
    for set_first in [true, false] {
        let (_, vfs) = memory();
        let engine = open(&tiny(&vfs).retention_interval_seconds(0)).unwrap();
        let set = || {
            engine.set_rule(b"audit/", Some(FOREVER)).unwrap();
            engine.set_rule(b"events/", Some(last(20))).unwrap();
        };
        if set_first {
            set();
        }
        fill(&engine, 0..1_000);
        if !set_first {
            set();
        }
        engine.reorganise().unwrap();
        let before = engine.stats().history.bytes;
        compact(&engine, 951).unwrap();
        assert!(engine.apply_retention().unwrap());
        engine.reorganise().unwrap();
        let (audit, all) = bytes(&engine);
        assert!(audit > before / 4 && all - audit < before / 10, "{audit} of {all} of {before}");
        assert_kept(&engine, 981, 951);
        // And so it goes on, by itself, in a number of files that does not grow with the writes.
        fill(&engine, 1_000..2_000);
        engine.apply_retention().unwrap();
        compact(&engine, 1_951).unwrap();
        engine.reorganise().unwrap();
        let (audit, all) = bytes(&engine);
        assert!(all - audit < before / 10, "{audit} of {all}");
        assert_kept(&engine, 1_981, 1_951);
        let windows = engine.0.door.0.shared.tables().files.windows.len();
        assert!(windows <= 3 * 4, "{windows} windows");
        // A class without keys that live in HISTORY has no file.
        engine.set_rule(b"events/", Some(last(0))).unwrap();
        engine.apply_retention().unwrap();
        while engine.run_background().unwrap() {}
        assert_kept(&engine, 2_001, 1_951);
    }
}

struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The floors that a state whose rules are lost is to have: those of the log before it was cut, by the key.
#[test]
fn what_was_forgotten_before_the_log_was_cut_stays_so() {
    let rule = |prefix: &'static str, floor, removed| {
        (Bytes::from_static(prefix.as_bytes()), Rule { floor, removed, ..FOREVER })
    };
    let listed = |list: &[(&str, u64)]| -> Vec<(Vec<u8>, u64)> {
        list.iter().map(|(prefix, floor)| (prefix.as_bytes().to_vec(), *floor)).collect()
    };
    let position = Position { seq: 100, revision: 90, time: 0 };
    let place = |compacted| Place { order: 100, position, compacted, logged_bytes: 0 };
    let floors = |rules: Vec<(Bytes, Rule)>, before: &[(&str, u64)], compacted| {
        let (old, floors) = (Rules::new(rules), listed(before));
        let before = Before { floors: &floors, compacted };
        let change = old.without(&[], &before, place(compacted)).0;
        let rules = change.map_or(old, |change| change.rules);
        let found = rules.floors(compacted);
        ["a/1", "a/b/1", "c/1", "other"].map(|key| found.of(&user(key)))
    };
    // A rule had come further; one is lost, and what it keeps with it: its keys go by the rule around them.
    assert_eq!(floors(vec![rule("a/", 10, false)], &[("a/", 30)], 5), [30, 30, 5, 5]);
    assert_eq!(floors(vec![], &[("a/", 30), ("a/b/", 20)], 5), [30, 30, 5, 5]);
    assert_eq!(floors(vec![], &[("a/", 30), ("a/b/", 40)], 5), [30, 40, 5, 5]);
    // One that was taken back behind the cut: its keys went by the rule around them, or by the watermark.
    let both = vec![rule("a/", 30, false), rule("a/b/", 10, false)];
    assert_eq!(floors(both, &[("a/", 30)], 5), [30, 30, 5, 5]);
    assert_eq!(floors(vec![rule("c/", 10, false)], &[], 50), [50, 50, 50, 50]);
    // Not behind the newest revision, and nobody who is as far.
    assert_eq!(floors(vec![rule("a/", 10, false)], &[("a/", 95)], 5), [90, 90, 5, 5]);
    let kept = vec![rule("a/", 40, false), rule("a/b/", 0, false), rule("c/", 60, true)];
    let before = [("a/", 30), ("a/b/", 0), ("c/", 20)];
    assert_eq!(floors(kept, &before, 50), [40, 0, 60, 50]);
}

/// What is lost of the past is given up by prefix: of the keys that have it, whatever rules they have, and of no others as
/// long as there is room for another rule.
#[test]
fn keys_whose_past_is_lost_are_given_up() {
    let rule = |prefix: &str, floor| {
        (Bytes::copy_from_slice(prefix.as_bytes()), Rule { floor, ..FOREVER })
    };
    let position = Position { seq: 100, revision: 90, time: 0 };
    let place = Place { order: 100, position, compacted: 5, logged_bytes: 0 };
    let given_up = |rules: Vec<(Bytes, Rule)>, lost: &[(&str, u64)]| {
        let lost = lost
            .iter()
            .map(|(prefix, upto)| LostPast { prefix: prefix.as_bytes().to_vec(), upto: *upto });
        let lost: Vec<_> = lost.collect();
        let floors: Vec<_> = rules.iter().map(|(prefix, r)| (prefix.to_vec(), r.floor)).collect();
        let before = Before { floors: &floors, compacted: 5 };
        let old = Rules::new(rules);
        let (change, raises) = old.without(&lost, &before, place);
        assert_eq!(change.is_some(), !raises.is_empty());
        let (rules, compacted) =
            change.map_or((old, 5), |change| (change.rules, change.compact.unwrap_or(5)));
        let found = rules.floors(compacted);
        ["a/1", "a/12", "a/b/1", "c/1", "other"].map(|key| found.of(&user(key)))
    };
    assert_eq!(given_up(vec![], &[]), [5; 5]);
    // One key, and those that begin with it; one that can be read from later on already.
    assert_eq!(given_up(vec![], &[("a/1", 30)]), [31, 31, 5, 5, 5]);
    assert_eq!(given_up(vec![], &[("a/1", 4)]), [5; 5]);
    assert_eq!(given_up(vec![rule("a/", 40)], &[("a/1", 30)]), [40, 40, 40, 5, 5]);
    // Within a rule, around one, of one itself; of keys that have another one, each by the later.
    let rules = || vec![rule("a/", 0), rule("a/b/", 2)];
    assert_eq!(given_up(rules(), &[("a/1", 30)]), [31, 31, 2, 5, 5]);
    assert_eq!(given_up(rules(), &[("a", 30)]), [31, 31, 31, 5, 5]);
    assert_eq!(given_up(rules(), &[("a/b/", 30)]), [0, 0, 31, 5, 5]);
    assert_eq!(given_up(rules(), &[("a/1", 30), ("a/12", 20), ("c", 7)]), [31, 31, 2, 8, 5]);
    // All keys.
    assert_eq!(given_up(rules(), &[("", 30)]), [31; 5]);
    // There is no room for another rule: with the keys around it.
    let many: Vec<_> = (0..RULES_MAX - 1).map(|n| rule(&format!("n/{n:02}"), 0)).collect();
    let full = || [vec![rule("a/", 0)], many.clone()].concat();
    assert_eq!(given_up(full(), &[("a/1", 30)]), [31, 31, 31, 5, 5]);
    assert_eq!(given_up(full(), &[("c/1", 30)]), [0, 0, 0, 31, 31]);
}
