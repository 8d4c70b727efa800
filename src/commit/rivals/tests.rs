//! The rivals are fair only if they do the same: one order, no lost update, frames that say so.

use std::thread;

use annals_format::frame::{Binding, Frame};

use super::*;

const THREADS: usize = 4;
const COMMITS: usize = 3_000;
/// The keys of generations this small fit many times into what is written.
const SMALL: (usize, usize) = (1 << 19, 200);

fn keys() -> Vec<Key> {
    (0..50).map(|number| Key::new(&format!("key-{number:02}"))).collect()
}

/// Commits from several threads: half to one key, half to several.
fn run(commit: impl Fn(usize, &[&Key]) + Sync) {
    let keys = keys();
    thread::scope(|scope| {
        let (commit, keys) = (&commit, &keys);
        let work = move |thread: usize| {
            for round in 0..COMMITS {
                let own = &keys[1 + (thread * 7 + round) % 49];
                let both: [&Key; 2] = [&keys[0], own];
                commit(thread, if round % 2 == 0 { &both } else { &both[..1] });
            }
        };
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

/// How often the first key was written, as its newest version has it.
fn versions(recent: &Recent) -> u64 {
    let tables = recent.tables();
    match newest_at(&tables.current, &keys()[0].0, u64::MAX) {
        Newest::Known(stub) => stub.version,
        Newest::Absent | Newest::Unknown => panic!("the first key is written all the time"),
    }
}

const WRITTEN: u64 = (THREADS * COMMITS) as u64;

#[test]
fn the_chain_loses_no_update() {
    let store = Chained::new(SMALL.0, SMALL.1);
    let workers: Vec<_> = (0..THREADS).map(|_| Mutex::new(store.worker())).collect();
    run(|thread, keys| {
        store.commit(&mut lock(&workers[thread]), keys, &[7; 100], false);
        store.write_out();
    });
    assert_eq!(store.revision(), 1 + WRITTEN);
    assert_eq!(versions(&store.recent), WRITTEN);
    assert!(store.recent.tables().current.id() > 2);
}

/// Makes drafts until one is ordered.
fn commit<'r>(
    (memtable, worker): (&Memtable, &mut Worker<'r>),
    (keys, value): (&[&Key], &'r [u8]),
    order: impl Fn(&mut Draft<'_>) -> Verdict,
    token: &Mutex<Token>,
) {
    loop {
        match memtable.draft(worker, keys, value) {
            Ok(mut draft) => {
                if order(&mut draft) == Verdict::Ordered {
                    assert!(draft.compares_held());
                    return;
                }
            }
            Err(NoDraft::Conflict) => {}
            Err(NoDraft::Full(spare)) => drop(memtable.switch(&mut lock(token), spare)),
        }
    }
}

/// The frames are a log: dense, and each its predecessor's successor.
fn check(memtable: &Memtable) {
    let mut revisions = 1..;
    memtable.walk(|frame| {
        let (frame, _) = Frame::decode(frame, &Binding::new(&STORE)).expect("an encoded frame");
        assert_eq!(revisions.next(), Some(frame.seq));
        assert_eq!(frame.revision, frame.seq + 1);
    });
    assert_eq!(revisions.next(), Some(1 + WRITTEN));
    assert_eq!(memtable.revision(), 1 + WRITTEN);
    assert_eq!(versions(&memtable.recent), WRITTEN);
    assert!(memtable.recent.tables().current.id() > 2);
}

#[test]
fn a_mutex_around_the_order_loses_no_update() {
    let (memtable, token) = Memtable::new(SMALL.0, SMALL.1);
    let token = Mutex::new(token);
    let workers: Vec<_> = (0..THREADS).map(|_| Mutex::new(memtable.worker())).collect();
    run(|thread, keys| {
        let order = |draft: &mut Draft<'_>| memtable.order(&mut lock(&token), draft);
        commit((&memtable, &mut lock(&workers[thread])), (keys, &[7; 100]), order, &token);
    });
    check(&memtable);
}

#[test]
fn mailboxes_lose_no_update() {
    let (memtable, token) = Memtable::new(SMALL.0, SMALL.1);
    let token = Mutex::new(token);
    let workers: Vec<_> = (0..THREADS).map(|_| Mutex::new(memtable.worker())).collect();
    let mailboxes: Vec<_> = (0..THREADS).map(|_| Mailbox::new(&memtable)).collect();
    run(|thread, keys| {
        let serve_all = || match token.try_lock() {
            Ok(mut token) => mailboxes.iter().for_each(|one| one.serve(&memtable, &mut token)),
            Err(_) => thread::yield_now(),
        };
        let order = |draft: &mut Draft<'_>| mailboxes[thread].hand_in(draft, serve_all);
        commit((&memtable, &mut lock(&workers[thread])), (keys, &[7; 100]), order, &token);
    });
    check(&memtable);
}

#[test]
fn a_draft_of_another_memtable_or_generation_is_not_ordered() {
    let (memtable, mut token) = Memtable::new(SMALL.0, SMALL.1);
    let (_other, mut other_token) = Memtable::new(SMALL.0, SMALL.1);
    let (mut worker, mut late) = (memtable.worker(), memtable.worker());
    let keys = keys();
    let mut draft = memtable.draft(&mut worker, &[&keys[0]], b"a").expect("room");
    assert_eq!(memtable.order(&mut other_token, &mut draft), Verdict::Switched);
    let mut second = memtable.draft(&mut late, &[&keys[0]], b"b").expect("room");
    assert_eq!(memtable.order(&mut token, &mut second), Verdict::Ordered);
    assert_eq!(memtable.order(&mut token, &mut draft), Verdict::Conflict);
    drop((draft, second));
    let mut draft = memtable.draft(&mut worker, &[&keys[1]], b"a").expect("room");
    let next = Generation::new(2, memtable.recent.size);
    drop(memtable.switch(&mut token, Spare(next)));
    assert_eq!(memtable.order(&mut token, &mut draft), Verdict::Switched);
    assert_eq!(memtable.revision(), 2);
}
