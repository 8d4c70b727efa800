//! A combiner: whoever has the role orders for all that wait.
//!
//! Transactions that wait lie on a stack, linked by the numbers of their threads: pushed by CAS, taken
//! all at once, so that no entry is mistaken for an older one. A thread that waits tries for the role
//! itself, spins a little and then yields its processor; it never sleeps, since to be woken costs more
//! than most waits take.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::yield_now;

use annals::rivals::{Draft, Mailbox, Memtable, Retired, Spare, Token, Verdict};
use parking_lot::Mutex;

use crate::options::Options;
use crate::ways::{Apart, Excluding, Stall};

/// How often a thread that waits looks before it yields.
const SPINS: u32 = 64;
/// How often whoever has the role empties the stack before it gives it up.
const PASSES: usize = 4;
/// The end of the stack.
const NOBODY: usize = usize::MAX;

/// The memtable, the role, and those who wait.
pub(crate) struct Combiner {
    memtable: Memtable,
    /// Whoever holds it has the role.
    role: Apart<Mutex<Token>>,
    /// Number of the thread that came last.
    top: Apart<AtomicUsize>,
    seats: Box<[Apart<Seat>]>,
}

struct Seat {
    mailbox: Mailbox,
    /// Who lies below on the stack.
    below: AtomicUsize,
}

impl Combiner {
    pub(crate) fn new(options: &Options, threads: usize) -> Self {
        let (memtable, token) = Memtable::new(options.memtable_bytes(), options.memtable_keys());
        let seat = |_| {
            let (mailbox, below) = (Mailbox::new(&memtable), AtomicUsize::new(NOBODY));
            Apart(Seat { mailbox, below })
        };
        let seats = (0..threads).map(seat).collect();
        let (role, top) = (Apart(Mutex::new(token)), Apart(AtomicUsize::new(NOBODY)));
        Self { memtable, role, top, seats }
    }

    fn push(&self, thread: usize) {
        let (top, below) = (&self.top.0, &self.seats[thread].0.below);
        let mut seen = top.load(Ordering::Relaxed);
        loop {
            below.store(seen, Ordering::Relaxed);
            match top.compare_exchange_weak(seen, thread, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }

    /// Orders for all that wait.
    fn serve(&self, token: &mut Token) {
        for _ in 0..PASSES {
            if self.top.0.load(Ordering::Relaxed) == NOBODY {
                return;
            }
            let mut next = self.top.0.swap(NOBODY, Ordering::Acquire);
            while next != NOBODY {
                let Apart(seat) = &self.seats[next];
                // Read first: a thread that is served may push itself again.
                next = seat.below.load(Ordering::Relaxed);
                seat.mailbox.serve(&self.memtable, token);
            }
        }
    }
}

impl Excluding for Combiner {
    fn memtable(&self) -> &Memtable {
        &self.memtable
    }

    fn order(&self, thread: usize, draft: &mut Draft<'_>, stall: &Stall) -> Verdict {
        if let Some(mut token) = self.role.0.try_lock() {
            stall.here();
            let verdict = self.memtable.order(&mut token, draft);
            self.serve(&mut token);
            return verdict;
        }
        let mut looks = 0;
        self.seats[thread].0.mailbox.hand_in(draft, || {
            if looks == 0 {
                self.push(thread);
            }
            looks += 1;
            if let Some(mut token) = self.role.0.try_lock() {
                stall.here();
                self.serve(&mut token);
            } else if looks < SPINS {
                spin_loop();
            } else {
                yield_now();
            }
        })
    }

    fn switch(&self, spare: Spare) -> Retired {
        let mut token = self.role.0.lock();
        let retired = self.memtable.switch(&mut token, spare);
        self.serve(&mut token);
        retired
    }
}
