//! Strictly lock-free, tested: one thread is parked for good between any two of its steps, and the
//! others must finish.
//!
//! `cargo test -p annals --features shuttle --release --lib shuttle_`. The schedule is ours: every
//! access to an atomic is a step, the victim is never chosen again after its k-th, for k = 0, 1, 2
//! and so on until it gets through, several random schedules for each k. If the others ever have
//! nothing to run but the victim, they were waiting for it. The same is done to a mutex, which must
//! be caught.

use ::shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use ::shuttle::{Config, Runner, thread};

use super::*;

/// How many random schedules for each step the victim is parked at; `ANNALS_SCHEDULES` instead, if given.
const SCHEDULES: usize = 60;
/// The victim is spawned first.
const VICTIM: usize = 1;
const OTHERS: usize = 2;

/// What scheduler and test tell each other; all on one thread of the system.
#[derive(Clone, Debug, Default)]
struct Board {
    /// Others that have finished in this execution.
    finished: Arc<AtomicU64>,
    /// Executions in which the victim was parked while the others worked.
    parked: Arc<AtomicU64>,
    /// Executions in which the others could not go on without the victim.
    stuck: Arc<AtomicU64>,
    /// The last step the victim was parked at.
    steps: Arc<AtomicU64>,
}

/// Chooses at random, but the victim not after its k-th step, until the others have finished.
#[derive(Debug)]
struct Parking {
    board: Board,
    random: Random,
    park_after: usize,
    schedules: usize,
    schedule: usize,
    /// Steps of the victim in this execution.
    taken: usize,
    /// Whether the victim was parked in this execution; and in any with this `park_after`.
    parked_now: bool,
    parked_ever: bool,
}

impl Parking {
    fn new(board: &Board) -> Self {
        Self {
            board: board.clone(),
            random: Random(0x5eed),
            park_after: 0,
            schedules: std::env::var("ANNALS_SCHEDULES")
                .map_or(SCHEDULES, |text| text.parse().expect("a number")),
            schedule: 0,
            taken: 0,
            parked_now: false,
            parked_ever: true,
        }
    }
}

impl Scheduler for Parking {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.schedule == self.schedules {
            if !self.parked_ever {
                return None;
            }
            (self.schedule, self.parked_ever) = (0, false);
            self.park_after += 1;
            self.board.steps.store(self.park_after as u64, Ordering::Relaxed);
        }
        self.schedule += 1;
        (self.taken, self.parked_now) = (0, false);
        self.board.finished.store(0, Ordering::Relaxed);
        Some(Schedule::new(self.random.next()))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let working = self.board.finished.load(Ordering::Relaxed) < OTHERS as u64;
        let park = working && self.taken >= self.park_after;
        let ids: Vec<TaskId> = runnable.iter().map(|task| task.id()).collect();
        let is_victim = |id: &TaskId| usize::from(*id) == VICTIM;
        let mut choice = ids.clone();
        if park && ids.iter().any(is_victim) {
            if !self.parked_now {
                self.board.parked.fetch_add(1, Ordering::Relaxed);
            }
            (self.parked_now, self.parked_ever) = (true, true);
            choice.retain(|id| !is_victim(id));
        }
        if choice.is_empty() {
            // Only the victim can run: somebody waits for it.
            self.board.stuck.fetch_add(1, Ordering::Relaxed);
            choice = ids;
        }
        if is_yielding && choice.len() > 1 {
            choice.retain(|id| Some(*id) != current);
        }
        let chosen = *self.random.one_of(&choice);
        self.taken += usize::from(is_victim(&chosen));
        Some(chosen)
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next()
    }
}

fn join(others: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    for other in others {
        other.join().expect("no panic");
    }
}

/// Runs `test` under all parked schedules and answers the board.
fn park_everywhere(test: impl Fn(&Board) + Send + Sync + 'static) -> Board {
    let board = Board::default();
    let mut config = Config::default();
    config.max_steps = ::shuttle::MaxSteps::FailAfter(100_000);
    config.failure_persistence = ::shuttle::FailurePersistence::None;
    let shared = board.clone();
    let schedules = Runner::new(Parking::new(&board), config).run(move || test(&shared));
    let (parked, steps) = (&board.parked, &board.steps);
    println!("{schedules} schedules, parked {parked:?} times, at up to {steps:?} steps");
    board
}

/// The victim runs `victim`; two others increment `a` three times each by compare-and-swap.
fn others_finish(size: GenerationSize, victim: fn(&Fixture)) -> Board {
    let board = park_everywhere(move |board| {
        let store = Fixture::new(size);
        store.order(&plan([put("a", "0"), put("b", "0")]));
        let parked = {
            let store = store.clone();
            thread::spawn(move || victim(&store))
        };
        let others: Vec<_> = (0..OTHERS)
            .map(|_| {
                let (store, board) = (store.clone(), board.clone());
                thread::spawn(move || {
                    for _ in 0..3 {
                        let (ordered, _) = store.transact(|store, snapshot| {
                            let seen = store.seen("a", snapshot.position().revision);
                            Some(cas([put("a", "1")], &[("a", seen)]))
                        });
                        let ordered = ordered.expect("never gives up");
                        let applied = store.chain.applied();
                        assert!(applied >= ordered.position, "not visible to its own thread");
                        let read = store.read("a", ordered.position.revision);
                        assert_eq!(read.expect("written").at, ordered.position.revision);
                    }
                    board.finished.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        join(others);
        parked.join().expect("no panic");
        store.chain.wait_durable(store.chain.applied()).expect("a log that does not fail");
        let keys = store.verify();
        assert!(keys[&user("a")[..]].len() >= 7);
    });
    assert_eq!(board.stuck.load(Ordering::Relaxed), 0, "{board:?}");
    board
}

#[test]
fn shuttle_a_parked_committer_stops_nobody() {
    let size = GenerationSize { arena_bytes: 1 << 16, keys: 10 };
    let board = others_finish(size, |store| {
        // Three keys: hot, warm, and never seen.
        store.order(&plan([put("a", "v"), put("b", "v"), put("c", "v")]));
    });
    let (parked, steps) = (&board.parked, &board.steps);
    assert!(steps.load(Ordering::Relaxed) > 20 && parked.load(Ordering::Relaxed) > 1_000);
}

#[test]
fn shuttle_a_parked_switcher_stops_nobody() {
    // The third key does not fit: the victim switches generations.
    let size = GenerationSize { arena_bytes: 1 << 16, keys: 2 };
    let board = others_finish(size, |store| {
        store.order(&plan([put("c", "v"), put("a", "v")]));
    });
    assert!(board.steps.load(Ordering::Relaxed) > 20, "{board:?}");
}

#[test]
fn shuttle_a_parked_leader_stops_no_commit() {
    let size = GenerationSize { arena_bytes: 1 << 16, keys: 10 };
    let board = others_finish(size, |store| {
        let ordered = store.order(&plan([put("a", "v")]));
        store.chain.wait_durable(ordered.position).expect("a log that does not fail");
    });
    assert!(board.steps.load(Ordering::Relaxed) > 20, "{board:?}");
}

/// The control: what the test says of a mutex.
#[test]
fn shuttle_a_parked_mutex_holder_is_caught() {
    let board = park_everywhere(|board| {
        let counter = Arc::new(::shuttle::sync::Mutex::new(0));
        let work = |counter: Arc<::shuttle::sync::Mutex<i32>>, board: Option<Board>| {
            thread::spawn(move || {
                for _ in 0..3 {
                    let mut counter = counter.lock().expect("no panic");
                    thread::yield_now();
                    *counter += 1;
                }
                if let Some(board) = board {
                    board.finished.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let victim = work(Arc::clone(&counter), None);
        let others: Vec<_> =
            (0..OTHERS).map(|_| work(Arc::clone(&counter), Some(board.clone()))).collect();
        join(others);
        victim.join().expect("no panic");
        assert_eq!(*counter.lock().expect("no panic"), 9);
    });
    assert!(board.stuck.load(Ordering::Relaxed) > 0, "{board:?}");
}
