//! Further background threads: when they are called, and that they end with the store.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Engine, commit, memory, open, put, tiny, user};
use crate::engine::{Attendant, Plan};
use crate::error::ErrorKind;
use crate::vfs::Vfs;

/// Long enough for any thread to have had its turn.
const LONG: Duration = Duration::from_secs(120);

fn engine(vfs: &Arc<dyn Vfs>) -> Engine {
    open(&tiny(vfs).background(true)).unwrap()
}

/// Says that its thread has ended when it is dropped with the duty.
struct Ended(Sender<&'static str>);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.send("ended");
    }
}

/// A thread that tells each of its turns.
fn telling(engine: &Engine, again: Option<Duration>) -> (Attendant, mpsc::Receiver<&'static str>) {
    let (turns, told) = mpsc::channel();
    let turns = Ended(turns);
    let duty = move |me: &Attendant| {
        let _ = turns.0.send(if me.is_dismissed() { "last" } else { "turn" });
        again
    };
    (engine.attend("annals-test", Box::new(duty)).unwrap(), told)
}

#[test]
fn a_turn_comes_first_and_with_each_ring_and_last() {
    let (_, vfs) = memory();
    let engine = engine(&vfs);
    let (attendant, told) = telling(&engine, None);
    for _ in 0..100 {
        assert_eq!(told.recv_timeout(LONG), Ok("turn"));
        attendant.ring();
    }
    // The last ring may have come within the turn before.
    attendant.dismiss();
    let rest: Vec<_> = told.iter().collect();
    let (turns, end) = rest.split_at(rest.len() - 2);
    assert!(turns.len() <= 1 && end == ["last", "ended"], "{rest:?}");
    assert!(attendant.is_dismissed());
}

#[test]
fn a_turn_comes_again_after_its_time_and_a_nap_ends() {
    let (_, vfs) = memory();
    let engine = engine(&vfs);
    let (_attendant, told) = telling(&engine, Some(Duration::from_millis(1)));
    for _ in 0..3 {
        assert_eq!(told.recv_timeout(LONG), Ok("turn"));
    }
    let (naps, napped) = mpsc::channel();
    let duty = move |me: &Attendant| {
        me.nap(Duration::from_millis(1));
        let _ = naps.send(());
        None
    };
    let sleeper = engine.attend("annals-test", Box::new(duty)).unwrap();
    napped.recv_timeout(LONG).unwrap();
    sleeper.ring();
    napped.recv_timeout(LONG).unwrap();
}

#[test]
fn a_close_waits_for_it_and_it_may_still_write() {
    let (_, vfs) = memory();
    let engine = engine(&vfs);
    let door = engine.door();
    let duty = move |me: &Attendant| {
        if me.is_dismissed() {
            let write = || put(user("last"), "words");
            let written = door.transact(None, &mut |_, plan: &mut Plan<'_>| {
                plan.writes = [write()].into_iter().collect();
                Ok(true)
            });
            door.wait(&written.unwrap()).unwrap();
        }
        None
    };
    engine.attend("annals-test", Box::new(duty)).unwrap();
    let door = engine.door();
    engine.close().unwrap();
    let closed = |error: &ErrorKind| matches!(error, ErrorKind::Closed);
    assert!(
        closed(door.latest().unwrap_err().kind()) && closed(engine.close().unwrap_err().kind())
    );
    let refused = engine.attend("annals-test", Box::new(|_| None)).unwrap_err();
    assert!(closed(refused.kind()), "{refused}");
    drop(engine);
    let engine = open(&tiny(&vfs)).unwrap();
    assert_eq!(engine.latest().unwrap().get(&user("last")).unwrap().unwrap().value, "words");
}

#[test]
fn a_door_does_not_keep_the_store_open() {
    let (_, vfs) = memory();
    let engine = engine(&vfs);
    let (_attendant, told) = telling(&engine, None);
    let door = engine.door();
    commit(&engine, vec![put(user("a"), "1")]).unwrap();
    assert_eq!(door.latest().unwrap().get(&user("a")).unwrap().unwrap().value, "1");
    drop(engine);
    assert!(matches!(door.latest().unwrap_err().kind(), ErrorKind::Closed));
    assert_eq!(told.iter().last(), Some("ended"));
    open(&tiny(&vfs)).unwrap();
}

/// A waker, say, may hold the last handle, and be dropped in a thread of the store.
#[test]
fn the_last_handle_may_be_dropped_within_it() {
    let (_, vfs) = memory();
    let engine = engine(&vfs);
    let last: Arc<Mutex<Option<Engine>>> = Arc::default();
    let (its_last, (turns, told)) = (Arc::clone(&last), mpsc::channel());
    let turns = Ended(turns);
    let duty = move |_: &Attendant| {
        let _ = &turns;
        drop(its_last.lock().unwrap().take());
        None
    };
    let attendant = engine.attend("annals-test", Box::new(duty)).unwrap();
    let (other, other_told) = telling(&engine, None);
    *last.lock().unwrap() = Some(engine);
    attendant.ring();
    assert_eq!(told.recv_timeout(LONG), Ok("ended"));
    assert_eq!(other_told.iter().last(), Some("ended"));
    drop((attendant, other));
    // The store is shut by a thread that nobody waits for.
    while let Err(error) = open(&tiny(&vfs)) {
        assert!(matches!(error.kind(), ErrorKind::Locked { .. }), "{error}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_panic_in_it_ends_writing() {
    let (_, vfs) = memory();
    let engine = engine(&vfs);
    let (turns, told) = mpsc::channel();
    let turns = Ended(turns);
    let duty = move |_: &Attendant| -> Option<Duration> {
        let _ = &turns;
        panic!("of a test")
    };
    engine.attend("annals-test", Box::new(duty)).unwrap();
    assert_eq!(told.recv_timeout(LONG), Ok("ended"));
    let begun = std::time::Instant::now();
    while commit(&engine, vec![put(user("a"), "1")]).is_ok() {
        assert!(begun.elapsed() < LONG);
    }
    assert!(engine.close().is_err());
}
