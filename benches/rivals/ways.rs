//! The three ways behind one trait.

use std::sync::atomic::{AtomicBool, Ordering};

use annals::rivals::{
    Chained, Draft, Key, Memtable, NoDraft, Retired, STALL, Spare, Token, Verdict, Worker,
};

pub(crate) use crate::combiner::Combiner;
use crate::options::Options;

/// A way to order transactions.
pub(crate) trait Way: Sync {
    /// What a thread works with.
    fn worker<'r>(&self) -> Worker<'r>;

    /// Commits for the thread with this number, and answers how often it had to begin again.
    fn commit<'r>(
        &self,
        thread: usize,
        worker: &mut Worker<'r>,
        transaction: (&[&Key], &'r [u8]),
        stall: &Stall,
    ) -> u64;

    /// Walks the frames that are not yet walked.
    fn write_out(&self);

    /// The newest revision; 1 of a fresh store.
    fn revision(&self) -> u64;
}

/// Whether a transaction should stall, for whoever first comes to the place.
#[derive(Debug, Default)]
pub(crate) struct Stall(AtomicBool);

impl Stall {
    pub(crate) fn order(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }

    /// Sleeps, if this is where it was asked for.
    pub(crate) fn here(&self) {
        if self.take() {
            std::thread::sleep(STALL);
        }
    }
}

/// A cache line of its own, and the one that processors fetch with it.
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// The commit chain.
pub(crate) struct Chain(Chained);

impl Chain {
    pub(crate) fn new(options: &Options) -> Self {
        Self(Chained::new(options.memtable_bytes(), options.memtable_keys()))
    }
}

impl Way for Chain {
    fn worker<'r>(&self) -> Worker<'r> {
        self.0.worker()
    }

    fn commit<'r>(
        &self,
        _thread: usize,
        worker: &mut Worker<'r>,
        (keys, value): (&[&Key], &'r [u8]),
        stall: &Stall,
    ) -> u64 {
        self.0.commit(worker, keys, value, stall.take())
    }

    fn write_out(&self) {
        self.0.write_out();
    }

    fn revision(&self) -> u64 {
        self.0.revision()
    }
}

/// A memtable whose order comes from exclusion.
pub(crate) trait Excluding: Sync {
    fn memtable(&self) -> &Memtable;

    /// Orders the draft of the thread with this number.
    fn order(&self, thread: usize, draft: &mut Draft<'_>, stall: &Stall) -> Verdict;

    /// Goes on in another generation.
    fn switch(&self, spare: Spare) -> Retired;
}

impl<E: Excluding> Way for E {
    fn worker<'r>(&self) -> Worker<'r> {
        self.memtable().worker()
    }

    fn commit<'r>(
        &self,
        thread: usize,
        worker: &mut Worker<'r>,
        (keys, value): (&[&Key], &'r [u8]),
        stall: &Stall,
    ) -> u64 {
        let mut conflicts = 0;
        loop {
            match self.memtable().draft(worker, keys, value) {
                Ok(mut draft) => match self.order(thread, &mut draft, stall) {
                    Verdict::Ordered => return conflicts,
                    Verdict::Conflict => conflicts += 1,
                    Verdict::Switched => {}
                },
                Err(NoDraft::Conflict) => conflicts += 1,
                Err(NoDraft::Full(spare)) => drop(self.switch(spare)),
            }
        }
    }

    fn write_out(&self) {
        self.memtable().write_out();
    }

    fn revision(&self) -> u64 {
        self.memtable().revision()
    }
}

/// A mutex around looking again and applying.
pub(crate) struct Mutex {
    memtable: Memtable,
    token: Apart<parking_lot::Mutex<Token>>,
}

impl Mutex {
    pub(crate) fn new(options: &Options) -> Self {
        let (memtable, token) = Memtable::new(options.memtable_bytes(), options.memtable_keys());
        Self { memtable, token: Apart(parking_lot::Mutex::new(token)) }
    }
}

impl Excluding for Mutex {
    fn memtable(&self) -> &Memtable {
        &self.memtable
    }

    fn order(&self, _thread: usize, draft: &mut Draft<'_>, stall: &Stall) -> Verdict {
        let mut token = self.token.0.lock();
        stall.here();
        self.memtable.order(&mut token, draft)
    }

    fn switch(&self, spare: Spare) -> Retired {
        self.memtable.switch(&mut self.token.0.lock(), spare)
    }
}
