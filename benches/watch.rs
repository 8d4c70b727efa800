//! How long it takes until watches are told, what they cost commits, and how fast the past is told.
//!
//! ```sh
//! cargo bench --bench watch                      # all of it, about two minutes
//! cargo bench --bench watch -- quick             # proves that it works
//! cargo bench --bench watch -- fanout            # or: cost, replay
//! ```
//!
//! **fanout**: one thread puts a key, waits until every watch has been told, and goes on. The time is from
//! before the put to the moment the watch has the batch with its value, over all watches and puts. `annals`
//! are watches of a prefix, polled by threads, or by tasks that one thread runs. `channels` is what one would
//! write by hand: the committer itself sends the change to one channel for each listener, after its
//! put. That has no history, no order between committers, and no bound. `one each` are 10,000 watches of 10,000
//! keys, of which each put concerns one.
//!
//! **cost**: puts a second of one thread, beside watches that are not asked: of other keys, and of all keys.
//!
//! **replay**: transactions a second that one watch from the oldest revision is told, from files.
//!
//! The store is `Buffered`, so that no device is in the figures, and lies below the target directory.
#![expect(clippy::expect_used, reason = "a bench that cannot do its work has nothing to measure")]
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::cast_precision_loss, reason = "figures are printed with a few digits")]

mod common;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use annals::{Durability, Options, Store, Watch};
use futures_core::Stream;

const VALUE_BYTES: usize = 256;

fn main() {
    let (quick, wanted) = common::asked();
    if wanted("fanout") {
        fanout(if quick { 20 } else { 2_000 });
    }
    if wanted("cost") {
        cost(if quick { 2_000 } else { 300_000 });
    }
    if wanted("replay") {
        replay(if quick { 2_000 } else { 300_000 });
    }
}

fn store() -> Store {
    let dir = common::directory("watch-bench");
    Options::new().durability(Durability::Buffered).open(dir).expect("a store")
}

fn key(n: usize) -> String {
    format!("/registry/pods/{n:06}")
}

// ---- Fan-out. ----

/// When each round began, and who has been told.
struct Rounds {
    clock: Instant,
    /// Nanoseconds on the clock at which the round of now began.
    begun: AtomicU64,
    told: AtomicU64,
    times: Mutex<Vec<u64>>,
    all_told: Condvar,
    over: AtomicBool,
}

impl Rounds {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            clock: Instant::now(),
            begun: AtomicU64::new(0),
            told: AtomicU64::new(0),
            times: Mutex::default(),
            all_told: Condvar::new(),
            over: AtomicBool::new(false),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A listener has been told.
    fn told(&self) {
        let took = self.now() - self.begun.load(Ordering::Acquire);
        let mut times = self.times.lock().expect("no panic");
        times.push(took);
        self.told.fetch_add(1, Ordering::AcqRel);
        drop(times);
        self.all_told.notify_one();
    }

    /// Does a round that `listeners` are to be told of, and waits until they have been.
    fn round<T>(&self, listeners: u64, put: impl FnOnce() -> T) {
        self.told.store(0, Ordering::Release);
        self.begun.store(self.now(), Ordering::Release);
        put();
        let times = self.times.lock().expect("no panic");
        let told = |_: &mut Vec<u64>| self.told.load(Ordering::Acquire) < listeners;
        drop(self.all_told.wait_while(times, told).expect("no panic"));
    }

    fn print(&self, what: &str) {
        let mut times = std::mem::take(&mut *self.times.lock().expect("no panic"));
        times.sort_unstable();
        let at = |share: usize| times[(times.len() - 1) * share / 1000] as f64 / 1000.0;
        let (half, most, max) = (at(500), at(990), at(1000));
        println!("{what:<44} {half:>12.1} {most:>12.1} {max:>12.1}");
    }
}

/// Whatever tells of changes, one at a time.
trait Listener: Send + 'static {
    /// Blocks until the next one; false when there is none any more.
    fn wait(&mut self) -> bool;
    /// The same for a task.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<bool>;
}

impl Listener for Watch {
    fn wait(&mut self) -> bool {
        self.next().is_some_and(|batch| batch.is_ok())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        Pin::new(self).poll_next(context).map(|item| item.is_some_and(|batch| batch.is_ok()))
    }
}

type Change = Arc<(String, Vec<u8>)>;

impl Listener for mpsc::Receiver<Change> {
    fn wait(&mut self) -> bool {
        self.recv().is_ok()
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<bool> {
        unreachable!("channels of tasks are `TaskChannel`s")
    }
}

/// A channel whose receiver is a task.
#[derive(Default)]
struct TaskChannel(Mutex<(VecDeque<Change>, Option<Waker>)>);

impl TaskChannel {
    fn send(&self, change: Change) {
        let mut state = self.0.lock().expect("no panic");
        state.0.push_back(change);
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Listener for Arc<TaskChannel> {
    fn wait(&mut self) -> bool {
        unreachable!("it is polled")
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.0.lock().expect("no panic");
        if state.0.pop_front().is_some() {
            return Poll::Ready(true);
        }
        state.1 = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Runs each listener in a thread.
fn in_threads(rounds: &Arc<Rounds>, listeners: Vec<impl Listener>) -> Vec<thread::JoinHandle<()>> {
    let listen = |mut listener: Box<dyn Listener>| {
        let rounds = Arc::clone(rounds);
        thread::spawn(move || {
            while listener.wait() {
                rounds.told();
            }
        })
    };
    listeners.into_iter().map(|listener| listen(Box::new(listener))).collect()
}

/// The tasks that are to be polled.
#[derive(Default)]
struct Ready {
    queue: Mutex<VecDeque<usize>>,
    some: Condvar,
}

struct Task {
    number: usize,
    ready: Arc<Ready>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.ready.queue.lock().expect("no panic").push_back(self.number);
        self.ready.some.notify_one();
    }
}

/// Runs all listeners in one thread. Answers when each of them has been polled once.
fn in_tasks(rounds: &Arc<Rounds>, listeners: Vec<impl Listener>) -> Vec<thread::JoinHandle<()>> {
    let (rounds, ready) = (Arc::clone(rounds), Arc::new(Ready::default()));
    let (first, begun) = mpsc::channel();
    let mut listeners = listeners;
    let runner = thread::spawn(move || {
        let wakers: Vec<Waker> = (0..listeners.len())
            .map(|number| Waker::from(Arc::new(Task { number, ready: Arc::clone(&ready) })))
            .collect();
        ready.queue.lock().expect("no panic").extend(0..listeners.len());
        let mut polled = 0;
        while !rounds.over.load(Ordering::Acquire) {
            let queue = ready.queue.lock().expect("no panic");
            let patience = Duration::from_millis(20);
            let is_empty = |queue: &mut VecDeque<usize>| queue.is_empty();
            let waited = ready.some.wait_timeout_while(queue, patience, is_empty);
            let Some(number) = waited.expect("no panic").0.pop_front() else { continue };
            let mut context = Context::from_waker(&wakers[number]);
            while let Poll::Ready(told) = listeners[number].poll(&mut context) {
                if !told {
                    break;
                }
                rounds.told();
            }
            polled += 1;
            if polled == listeners.len() {
                first.send(()).expect("somebody waits");
            }
        }
    });
    begun.recv().expect("it polls");
    vec![runner]
}

fn finish(rounds: &Rounds, threads: Vec<thread::JoinHandle<()>>) {
    rounds.over.store(true, Ordering::Release);
    for thread in threads {
        thread.join().expect("no panic");
    }
}

fn fanout(puts: usize) {
    println!("{:<44} {:>12} {:>12} {:>12}", "told after, microseconds", "p50", "p99", "max");
    let value = vec![b'v'; VALUE_BYTES];
    for (listeners, tasks) in [(1, false), (100, false), (1, true), (100, true), (10_000, true)] {
        let how = if tasks { "tasks" } else { "threads" };
        let puts = if listeners > 1_000 { puts.div_ceil(20) } else { puts };

        let (store, rounds) = (store(), Rounds::new());
        let watch = |_| store.watch("/registry/").prefix().start().expect("a watch");
        let watches: Vec<Watch> = (0..listeners).map(watch).collect();
        let threads = if tasks { in_tasks(&rounds, watches) } else { in_threads(&rounds, watches) };
        for n in 0..puts {
            rounds.round(listeners, || store.put(key(n), &value).expect("a commit"));
        }
        rounds.print(&format!("annals, {listeners} {how}"));
        store.close().expect("it closes");
        finish(&rounds, threads);

        let (store, rounds) = (self::store(), Rounds::new());
        let change = |n: usize| {
            store.put(key(n), &value).expect("a commit");
            Arc::new((key(n), value.clone()))
        };
        let threads = if tasks {
            let channels: Vec<Arc<TaskChannel>> = (0..listeners).map(|_| Arc::default()).collect();
            let threads = in_tasks(&rounds, channels.clone());
            for n in 0..puts {
                rounds.round(listeners, || {
                    let change = change(n);
                    for channel in &channels {
                        channel.send(Arc::clone(&change));
                    }
                });
            }
            threads
        } else {
            let (senders, receivers): (Vec<_>, Vec<_>) =
                (0..listeners).map(|_| mpsc::channel::<Change>()).unzip();
            let threads = in_threads(&rounds, receivers);
            for n in 0..puts {
                rounds.round(listeners, || {
                    let change = change(n);
                    let send = |to: &mpsc::Sender<_>| to.send(Arc::clone(&change)).expect("sent");
                    senders.iter().for_each(send);
                });
            }
            threads
        };
        rounds.print(&format!("channels, {listeners} {how}"));
        store.close().expect("it closes");
        finish(&rounds, threads);
    }
    let (store, rounds) = (store(), Rounds::new());
    let watch = |n| store.watch(key(n)).start().expect("a watch");
    let threads = in_tasks(&rounds, (0..10_000).map(watch).collect());
    for n in 0..puts {
        rounds.round(1, || store.put(key(n * 7_919 % 10_000), &value).expect("a commit"));
    }
    rounds.print("annals, 10000 tasks, one each");
    store.close().expect("it closes");
    finish(&rounds, threads);
}

// ---- What commits pay. ----

fn cost(puts: usize) {
    println!("{:<44} {:>12}", "puts beside watches that are not asked", "puts/s");
    let value = vec![b'v'; VALUE_BYTES];
    let kinds: [(&str, usize, &str); 6] = [
        ("none", 0, ""),
        ("1 of other keys", 1, "/other/"),
        ("10,000 of other keys", 10_000, "/other/"),
        ("1 of all keys", 1, "/registry/"),
        ("100 of all keys", 100, "/registry/"),
        ("10,000 of all keys", 10_000, "/registry/"),
    ];
    for (what, count, prefix) in kinds {
        let store = store();
        let watch = |_| store.watch(prefix).prefix().start().expect("a watch");
        let watches: Vec<Watch> = (0..count).map(watch).collect();
        let begun = Instant::now();
        for n in 0..puts {
            store.put(key(n % 10_000), &value).expect("a commit");
        }
        println!("{what:<44} {:>12.0}", puts as f64 / begun.elapsed().as_secs_f64());
        drop(watches);
        store.close().expect("it closes");
    }
}

// ---- The past. ----

fn replay(puts: usize) {
    println!("{:<44} {:>12}", "told of the past", "changes/s");
    let store = store();
    let value = vec![b'v'; VALUE_BYTES];
    for n in 0..puts {
        store.put(key(n % 10_000), &value).expect("a commit");
    }
    store.reorganise().expect("it is in files");
    let all = || store.watch("/registry/").prefix().from(2);
    let kinds = [
        ("all, with values", all(), puts),
        ("all, keys only", all().keys_only(), puts),
        ("all, with the values before", all().prev_kv(), puts),
        ("one key of 10,000 (revisions passed a second)", store.watch(key(7)).from(2), puts),
    ];
    for (what, builder, revisions) in kinds {
        let mut watch = builder.start().expect("a watch");
        let begun = Instant::now();
        while watch.resume_revision() < store.revision() + 1 {
            let told = watch.try_next().transpose().expect("no error");
            assert!(told.is_some() || watch.resume_revision() > store.revision());
        }
        println!("{what:<44} {:>12.0}", revisions as f64 / begun.elapsed().as_secs_f64());
    }
    store.close().expect("it closes");
}
