//! Who follows sees every transaction once, in order, wherever it lies by then, and sleeps no longer than
//! there is nothing to see.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::{Engine, Numbers, commit, compact, delete, memory, open, put, system, tiny, user};
use crate::engine::{Attendant, Follow, Scope, Seen, Transaction};
use crate::error::{ErrorKind, Result};
use crate::options::Durability;
use crate::vfs::{Fault, FaultVfs, Operation, Vfs};

/// Long enough for any thread to have had its turn.
const LONG: Duration = Duration::from_secs(120);

/// Takes one step, and checks what it tells against what was told before.
fn step(follow: &mut Follow, most: usize, told: &mut Vec<Transaction>) -> Result<u64> {
    let before = told.len();
    let upto = follow.step(most, &mut |seen| {
        let whole = seen.decode(true).unwrap();
        assert_eq!(whole.revision, seen.revision());
        let keys: Vec<&[u8]> = seen.keys().collect();
        assert!(
            keys.iter().eq(whole
                .events
                .iter()
                .map(|event| &event.key[..])
                .collect::<Vec<_>>()
                .iter())
        );
        assert!(seen.decode(false).unwrap().events.iter().all(|event| event.value.is_none()));
        told.push(whole);
    })?;
    assert!(told.len() - before <= most);
    if let Some(last) = told.last() {
        assert!(upto >= last.revision);
    }
    Ok(upto)
}

/// What the log tells from a revision on, with the values at hand.
fn log(engine: &Engine, from: u64) -> Vec<Transaction> {
    let mut log = engine.log(from, u64::MAX, Scope::All).unwrap();
    log.with_values();
    log.collect::<Result<_>>().unwrap()
}

/// Commits a few things, some of which take no revision.
fn write(engine: &Engine, numbers: &mut Numbers, n: u64) {
    let key = |n: u64| user(format!("k{:02}", n % 30));
    let mut writes = vec![put(key(n), vec![7; usize::try_from(numbers.below(400)).unwrap()])];
    match numbers.below(4) {
        0 => writes.push(put(key(n + 1), "second")),
        1 => writes = vec![put(system("Llease-01"), n.to_le_bytes())],
        2 if engine.latest().unwrap().get(&key(n)).unwrap().is_some() => {
            writes = vec![delete(key(n))];
        }
        _ => {}
    }
    commit(engine, writes).unwrap();
}

#[test]
fn every_revision_is_told_once_across_rotations_and_flushes() {
    for (seed, durability) in [(1, Durability::Sync), (2, Durability::Buffered)] {
        let (_, vfs) = memory();
        let engine = open(&tiny(&vfs).durability(durability)).unwrap();
        let mut numbers = Numbers::new(seed);
        let mut follow = Follow::at(&engine, 2).unwrap();
        let mut told = Vec::new();
        for n in 0..3_000 {
            write(&engine, &mut numbers, n);
            // At times the store is far ahead, at times it is met where it is.
            if numbers.below(40) < n / 300 {
                let most = usize::try_from(numbers.below(50)).unwrap();
                step(&mut follow, most, &mut told).unwrap();
            }
            if numbers.below(20) == 0 {
                engine.run_background().unwrap();
            }
        }
        while step(&mut follow, 7, &mut told).unwrap() < engine.revision() {}
        assert_eq!(step(&mut follow, 7, &mut told).unwrap(), engine.revision());
        assert!(engine.stats().flushes > 3, "{:?}", engine.stats());
        let revisions = told.iter().map(|transaction| transaction.revision);
        assert!(revisions.eq(2..=engine.revision()));
        // Values that have left memory meanwhile are not at hand any more.
        let plain = |mut transaction: Transaction| {
            transaction.events.iter_mut().for_each(|event| event.value = None);
            transaction
        };
        let logged: Vec<_> = log(&engine, 2).into_iter().map(plain).collect();
        assert_eq!(told.into_iter().map(plain).collect::<Vec<_>>(), logged);
    }
}

/// Where the transactions of a step are read.
fn sources(follow: &mut Follow, most: usize) -> (usize, usize) {
    let (mut frames, mut events) = (0, 0);
    let count = &mut |seen: &Seen<'_>| match seen {
        Seen::Frame(_) => frames += 1,
        Seen::Events(_) => events += 1,
    };
    follow.step(most, count).unwrap();
    (frames, events)
}

#[test]
fn what_was_flushed_meanwhile_is_read_in_files_and_keeps_no_memory() {
    let (_, vfs) = memory();
    let engine = open(&tiny(&vfs).memtable_bytes(1 << 20)).unwrap();
    let mut follow = Follow::at(&engine, 2).unwrap();
    for n in 0..60 {
        commit(&engine, vec![put(user(format!("{n}")), "1")]).unwrap();
    }
    assert_eq!(sources(&mut follow, 10), (10, 0));
    let first = Arc::downgrade(&engine.0.door.0.shared.tables().generations[0]);
    engine.reorganise().unwrap();
    assert_eq!(sources(&mut follow, 10), (0, 10), "from the middle of a generation");
    // Now the log is written in the next generation, so the chain needs the first no more.
    commit(&engine, vec![put(user("memory"), "1")]).unwrap();
    // A thread of another test may be pinned, and not have run for a while.
    let begun = std::time::Instant::now();
    while first.upgrade().is_some() {
        assert!(begun.elapsed() < LONG, "the memory of what was flushed is kept");
        crate::sync::epoch::pin().flush();
        std::thread::yield_now();
    }
    assert_eq!(sources(&mut follow, 1_000), (1, 40), "out of the files and on");
    assert_eq!(sources(&mut follow, 1_000), (0, 0));
}

#[test]
fn one_that_has_seen_everything_delays_no_reclaim_and_another_does() {
    let (_, vfs) = memory();
    let engine = open(&tiny(&vfs)).unwrap();
    let mut follow = Follow::at(&engine, 2).unwrap();
    let core = &engine.0.door.0;
    for n in 0..50 {
        commit(&engine, vec![put(user("a"), format!("{n}"))]).unwrap();
    }
    follow.step(20, &mut |_| {}).unwrap();
    compact(&engine, 40).unwrap();
    assert_eq!(core.pins.keep(|| (40, ())).0, 22, "what has not been told stays");
    assert_eq!(engine.stats().oldest_pinned, Some(22));
    follow.step(1_000, &mut |_| {}).unwrap();
    assert_eq!(core.pins.keep(|| (40, ())).0, 40);
    assert_eq!(engine.stats().oldest_pinned, None, "what is not there yet delays nothing");
    commit(&engine, vec![put(user("a"), "last")]).unwrap();
    compact(&engine, engine.revision()).unwrap();
    assert_eq!(sources(&mut follow, 10), (1, 0), "and is kept once it is there");
    let last = engine.revision();
    assert_eq!(core.pins.keep(|| (last, ())).0, last);
    drop(follow);
    let late = Follow::at(&engine, 7).unwrap_err();
    assert!(matches!(late.kind(), ErrorKind::Compacted { requested: 7, .. }), "{late}");
}

#[test]
fn it_may_begin_with_what_is_not_there_yet_and_ends_with_the_store() {
    let (_, vfs) = memory();
    let engine = open(&tiny(&vfs)).unwrap();
    let mut follow = Follow::at(&engine, 4).unwrap();
    let mut told = Vec::new();
    for n in 0..5 {
        commit(&engine, vec![put(user("a"), format!("{n}"))]).unwrap();
        step(&mut follow, 10, &mut told).unwrap();
    }
    assert!(told.iter().map(|transaction| transaction.revision).eq(4..=6));
    engine.close().unwrap();
    let closed = step(&mut follow, 10, &mut told).unwrap_err();
    assert!(matches!(closed.kind(), ErrorKind::Closed), "{closed}");
    let closed = Follow::at(&engine, 4).unwrap_err();
    assert!(matches!(closed.kind(), ErrorKind::Closed), "{closed}");
}

/// Has a thread follow that sleeps whenever it has seen everything, and tells each revision.
fn followed(engine: &Engine) -> (Attendant, mpsc::Receiver<Result<u64>>) {
    let mut follow = Follow::at(engine, engine.revision() + 1).unwrap();
    let (tell, told) = mpsc::channel();
    let duty = move |me: &Attendant| {
        loop {
            let mut see = |seen: &Seen<'_>| drop(tell.send(Ok(seen.revision())));
            if let Err(error) = follow.step(16, &mut see) {
                drop(tell.send(Err(error)));
                return None;
            }
            if me.is_dismissed() || follow.rest(me) {
                return None;
            }
        }
    };
    (engine.attend("annals-follow", Box::new(duty)).unwrap(), told)
}

fn many_follow(durability: Durability) {
    const THREADS: u64 = 4;
    const EACH: u64 = 1_500;
    let (_, vfs) = memory();
    let options = tiny(&vfs).background(true).durability(durability);
    let engine = open(&options).unwrap();
    let followers = [followed(&engine), followed(&engine)];
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let engine = &engine;
            scope.spawn(move || {
                for n in 0..EACH {
                    commit(engine, vec![put(user(format!("{thread}-{}", n % 50)), "1")]).unwrap();
                    // So that those who follow fall asleep now and then.
                    if n % 16 == 0 {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                }
            });
        }
        for (_, told) in &followers {
            for revision in 2..2 + THREADS * EACH {
                let next = told.recv_timeout(LONG).expect("nobody was told");
                assert_eq!(next.unwrap(), revision);
            }
        }
    });
    // One at a time, so that everyone sleeps before each.
    for _ in 0..200 {
        commit(&engine, vec![put(user("a"), "1")]).unwrap();
        for (_, told) in &followers {
            let next = told.recv_timeout(LONG).expect("nobody was told");
            assert_eq!(next.unwrap(), engine.revision());
        }
    }
    engine.close().unwrap();
}

#[test]
fn nobody_sleeps_while_there_is_more_to_see_in_a_sync_store() {
    many_follow(Durability::Sync);
}

#[test]
fn nobody_sleeps_while_there_is_more_to_see_in_a_buffered_store() {
    many_follow(Durability::Buffered);
}

#[test]
fn whoever_sleeps_learns_that_no_more_will_come() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let (_, vfs) = memory();
        let faulty = FaultVfs::new(vfs);
        let its_vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        let engine = open(&tiny(&its_vfs).background(true).durability(durability)).unwrap();
        let (_, told) = followed(&engine);
        commit(&engine, vec![put(user("a"), "1")]).unwrap();
        assert_eq!(told.recv_timeout(LONG).expect("nobody was told").unwrap(), 2);
        faulty.fail(Some(Operation::Sync), 0, Fault::Io, true);
        let _ = commit(&engine, vec![put(user("a"), "2")]);
        engine.flush().unwrap_err();
        // What is only applied may have been told before.
        let error = loop {
            match told.recv_timeout(LONG).expect("nobody was told") {
                Ok(revision) => assert_eq!((revision, durability), (3, Durability::Buffered)),
                Err(error) => break error,
            }
        };
        assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "{error}");
    }
}
