//! The end of a store: commits and views that come late, and who waits when nobody leads.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use super::{DIR, Engine, Plan, commit, memory, open, put, submit, tiny, user};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Durability;

/// Closes an engine when it is asked for the time: after all checks, and before the commit.
#[derive(Debug, Default)]
struct ClosingClock(Mutex<Option<Engine>>);

impl Clock for ClosingClock {
    fn now_micros(&self) -> i64 {
        let engine = self.0.lock().unwrap().take();
        if let Some(engine) = engine {
            engine.close().unwrap();
        }
        1_000
    }

    fn elapsed_micros(&self) -> i64 {
        0
    }
}

#[test]
fn a_commit_that_close_does_not_write_is_not_answered() {
    let (_, vfs) = memory();
    let clock = Arc::new(ClosingClock::default());
    let its_clock: Arc<dyn Clock> = clock.clone();
    let engine = open(&tiny(&vfs).durability(Durability::Buffered).clock(its_clock)).unwrap();
    commit(&engine, vec![put(user("a"), "1")]).unwrap();
    *clock.0.lock().unwrap() = Some(engine.clone());
    let error = commit(&engine, vec![put(user("a"), "2")]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "{error}");
    let (engine, report) = Engine::open(std::path::Path::new(DIR), &tiny(&vfs)).unwrap();
    assert!(report.clean);
    assert_eq!(engine.latest().unwrap().get(&user("a")).unwrap().unwrap().value, "1");
}

#[test]
fn a_view_of_a_closed_store_answers_closed() {
    let (_, vfs) = memory();
    let engine = open(&tiny(&vfs)).unwrap();
    for key in ["a", "b"] {
        commit(&engine, vec![put(user(key), "1")]).unwrap();
    }
    let view = engine.latest().unwrap();
    let mut begun = view.scan(&user(""), b"", false);
    assert_eq!(begun.next().unwrap().unwrap().key, user("a"));
    engine.close().unwrap();
    let closed = |error: Error| assert!(matches!(error.kind(), ErrorKind::Closed), "{error}");
    closed(view.get(&user("a")).unwrap_err());
    closed(view.newest(&user("a")).unwrap_err());
    closed(view.diff(2, &user(""), b"").unwrap_err());
    closed(view.previous(&user("a")).unwrap_err());
    let mut scan = view.scan(&user(""), b"", false);
    closed(scan.next().unwrap().unwrap_err());
    assert!(scan.next().is_none() && scan.next_back().is_none());
    let mut history = view.history(&user("a"), false);
    closed(history.next().unwrap().unwrap_err());
    assert!(history.next().is_none());
    assert_eq!(begun.next().unwrap().unwrap().key, user("b"), "what was begun goes on");
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Awaits a future, but not for ever.
fn within<F: Future<Output = Result<()>> + Send + 'static>(what: &str, future: F) {
    let (done, outcome) = mpsc::channel();
    thread::spawn(move || {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(outcome) => return done.send(outcome),
                Poll::Pending => thread::park(),
            }
        }
    });
    match outcome.recv_timeout(Duration::from_secs(20)) {
        Ok(outcome) => outcome.unwrap_or_else(|error| panic!("{what}: {error}")),
        Err(timeout) => panic!("{what}: nobody led: {timeout}"),
    }
}

fn written(engine: &Engine, key: &str) -> super::Outcome {
    let writes = vec![put(user(key), "1")];
    submit(engine, &Plan { writes: writes.into(), ..Plan::default() }).unwrap()
}

#[test]
fn tasks_are_served_after_background_work_has_failed() {
    let (_, vfs) = memory();
    let engine = open(&tiny(&vfs).background(true)).unwrap();
    within("all is well", engine.ticket(&written(&engine, "a")));
    let outcome = written(&engine, "b");
    engine.0.door.0.fail(&Error::invalid("as if a flush had failed"));
    within("after the failure", engine.ticket(&outcome));
}

#[test]
fn tasks_are_served_when_the_background_thread_is_gone() {
    let (_, vfs) = memory();
    let engine = open(&tiny(&vfs).background(true)).unwrap();
    let outcome = written(&engine, "a");
    let worker = std::mem::take(&mut *crate::sync::plain::lock(&engine.0.worker));
    drop(worker);
    assert!(!engine.0.door.0.shared.logger.is_attended());
    within("what was written before", engine.ticket(&outcome));
    within("what was written after", engine.ticket(&written(&engine, "b")));
}
