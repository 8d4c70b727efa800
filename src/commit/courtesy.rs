//! Courtesy: how a large transaction gets its place among many small ones.
//!
//! **One that writes much.** Between looking at the last node and linking behind it, a transaction
//! with 50,000 changes takes milliseconds: each of its versions is bound to the head it replaces, and
//! the header of its frame is summed again. Small transactions link a thousand nodes meanwhile, so it
//! loses every race, for as long as they come. One that has lost a few times therefore *asks*, and
//! the others give way: they put off their next link a little ([`Claim`]).
//!
//! It stays lock-free, because what is given is bounded by counting. Each request is good for
//! [`GRANTS`] delays of a fixed number of polls, and is renewed only by its owner, after another
//! loss. If the owner is stopped, the others are late by that much once, and go on.
//!
//! **One that reads much.** To compare a range of 100,000 keys takes a tenth of a second, and a
//! commit in that range meanwhile is a conflict: the whole must be evaluated again, for as long as
//! others write there. One that has been evaluated in vain a few times asks for *quiet*: for a few
//! times as long as its evaluation took, nobody else begins a transaction ([`Quiet`]). What has
//! begun goes on, so it may take another evaluation or two.
//!
//! This is bounded, too. A request for quiet ends by itself, at a time fixed when it is made, never
//! more than [`QUIET_MICROS_MAX`] later; each transaction keeps quiet once, before its first
//! evaluation, and until the end that it then finds. If the owner is stopped, the others are late by
//! that much once, and go on. They sleep before they have pinned or allocated anything.
//!
//! Not part of the models: the words decide nothing but who pauses.

use std::time::Duration;

use crate::clock::Stopwatch;
use crate::sync::plain::{AtomicU64, Ordering, spin_loop};
use crate::sync::{sleep, yield_now};

/// How many times others give way for one request.
const GRANTS: u64 = 256;

/// Bits of the word that hold the grants left; the rest is the number of polls of a delay.
const GRANT_BITS: u32 = 16;
const GRANT_MASK: u64 = (1 << GRANT_BITS) - 1;
const _: () = assert!(GRANTS <= GRANT_MASK);

/// The longest that quiet can be asked for at a time.
const QUIET_MICROS_MAX: u64 = 5_000_000;

/// How many times as long as the last evaluation the first request for quiet is; each further one is
/// twice as long.
const QUIET_FACTOR: u64 = 4;

/// How long a transaction that keeps quiet sleeps between two looks.
const NAP: Duration = Duration::from_micros(50);

/// Requests of transactions that keep losing.
#[derive(Debug)]
pub(super) struct Courtesy {
    /// Polls of a delay, and grants left; 0 when nobody asks.
    word: AtomicU64,
    /// Until when somebody asks for quiet, in microseconds of `age`; 0 when nobody does.
    quiet_until: AtomicU64,
    age: Stopwatch,
}

/// A transaction's losses, and its request if it has made one.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    courtesy: &'a Courtesy,
    changes: u64,
    losses: u64,
}

/// A transaction's evaluations in vain, and its request for quiet if it has made one.
#[derive(Debug)]
pub(crate) struct Quiet<'a> {
    courtesy: &'a Courtesy,
    conflicts: u64,
    /// Runs since the last conflict.
    evaluation: Option<Stopwatch>,
    /// The time of the shortest evaluation: a longer one was interrupted.
    micros: u64,
    requests: u32,
    /// The end of the last request.
    until: u64,
}

impl Courtesy {
    pub(super) fn new() -> Self {
        let (word, quiet_until) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { word, quiet_until, age: Stopwatch::start() }
    }

    /// For a transaction that is about to be evaluated. Keeps quiet if somebody asks for it.
    #[inline]
    pub(super) fn quiet(&self) -> Quiet<'_> {
        let until = self.quiet_until.load(Ordering::Relaxed);
        if until != 0 {
            self.keep_quiet(until);
        }
        let (evaluation, micros) = (None, u64::MAX);
        Quiet { courtesy: self, conflicts: 0, evaluation, micros, requests: 0, until: 0 }
    }

    #[cold]
    fn keep_quiet(&self, until: u64) {
        while self.age.micros() < until {
            // A nap also for a short while: the one that asks may need this processor.
            sleep(NAP);
            if self.quiet_until.load(Ordering::Relaxed) == 0 {
                return;
            }
        }
        // Its time is over for everybody, unless it has been renewed.
        let (from, to) = (until, 0);
        let _ = self.quiet_until.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// For a transaction with this many changes that is about to try for its place.
    pub(super) fn claim(&self, changes: usize) -> Claim<'_> {
        Claim { courtesy: self, changes: changes as u64, losses: 0 }
    }

    /// Pauses for a while if somebody asks for it.
    fn give_way(&self) {
        let word = self.word.load(Ordering::Relaxed);
        if word == 0 {
            return;
        }
        let left = word & GRANT_MASK;
        let after = if left <= 1 { 0 } else { word - 1 };
        // On failure another thread gave way just now, or the request is over: no matter.
        let _ = self.word.compare_exchange(word, after, Ordering::Relaxed, Ordering::Relaxed);
        for poll in 0..word >> GRANT_BITS {
            if self.word.load(Ordering::Relaxed) == 0 {
                return;
            }
            // The one that asks may need this processor.
            if poll % 8 == 0 { yield_now() } else { spin_loop() }
        }
    }
}

impl Claim<'_> {
    /// Called before each attempt.
    #[inline]
    pub(super) fn before_attempt(&self) {
        if !self.has_asked() {
            self.courtesy.give_way();
        }
    }

    /// Called when another transaction was linked first.
    pub(super) fn lost(&mut self) {
        self.losses += 1;
        if self.has_asked() {
            // Each time for twice as long: an attempt takes longer than was thought.
            let doubled = (self.changes.max(16)) << self.losses.min(20);
            let polls = doubled.min(u64::MAX >> (GRANT_BITS + 1)).min(1 << 24);
            self.courtesy.word.store(polls << GRANT_BITS | GRANTS, Ordering::Relaxed);
        }
    }

    /// One change may lose often, many changes only a few times.
    fn has_asked(&self) -> bool {
        self.losses >= 3 && self.losses * self.changes >= 64
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.has_asked() {
            // Also ends the request of another that asks at the same time; it renews it if it must.
            self.courtesy.word.store(0, Ordering::Relaxed);
        }
    }
}

impl Quiet<'_> {
    /// Called when the transaction was evaluated and something it depends on changed meanwhile.
    pub(crate) fn conflict(&mut self) {
        // Measured from the second evaluation on, so that who has no conflicts asks no clock.
        let micros = self.evaluation.as_ref().map_or(u64::MAX, Stopwatch::micros);
        self.in_vain(micros);
        self.evaluation = Some(Stopwatch::start());
    }

    /// The last evaluation took so long, and was in vain.
    fn in_vain(&mut self, micros: u64) {
        self.conflicts += 1;
        self.micros = self.micros.min(micros);
        // A short evaluation may be in vain often, a long one only a few times.
        if self.conflicts < 3 || self.conflicts.saturating_mul(self.micros) < 64 {
            return;
        }
        let factor = QUIET_FACTOR << self.requests.min(20);
        let micros = self.micros.saturating_mul(factor).min(QUIET_MICROS_MAX);
        self.requests += 1;
        self.until = self.courtesy.age.micros().saturating_add(micros);
        // Of two that ask at a time the one that needs longer counts; the other asks again if it must.
        self.courtesy.quiet_until.fetch_max(self.until, Ordering::Relaxed);
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        if self.until != 0 {
            let (from, to) = (self.until, 0);
            // On failure it is over already, or another asks.
            let word = &self.courtesy.quiet_until;
            let _ = word.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_quiet_ends_by_itself() {
        let courtesy = Courtesy::new();
        let asked = || courtesy.quiet_until.load(Ordering::Relaxed);
        let mut quiet = courtesy.quiet();
        for _ in 0..3 {
            assert_eq!(asked(), 0);
            quiet.in_vain(5_000);
        }
        // Its owner is stopped here; another keeps quiet until the time is over, and then nobody.
        let until = asked();
        assert!(until >= 20_000);
        drop(courtesy.quiet());
        assert!(courtesy.age.micros() >= until);
        assert_eq!(asked(), 0);
        quiet.in_vain(5_000);
        assert!(asked() >= until + 40_000, "for longer each time");
        drop(quiet);
        assert_eq!(asked(), 0);
    }

    #[test]
    fn quiet_is_asked_for_only_by_those_who_need_it_and_never_for_long() {
        let courtesy = Courtesy::new();
        let asked = || courtesy.quiet_until.load(Ordering::Relaxed);
        let mut short = courtesy.quiet();
        for _ in 0..31 {
            short.in_vain(2);
        }
        assert_eq!(asked(), 0);
        let mut long = courtesy.quiet();
        for _ in 0..100 {
            long.in_vain(u64::MAX);
        }
        let before = courtesy.age.micros();
        assert!((1..=before + QUIET_MICROS_MAX).contains(&asked()));
        // Who asks for less does not end it, and who asked for it does.
        short.in_vain(2);
        drop(short);
        assert_ne!(asked(), 0);
        drop(long);
        assert_eq!(asked(), 0);
    }

    #[test]
    fn a_request_ends_by_itself() {
        let courtesy = Courtesy::new();
        let mut claim = courtesy.claim(1_000);
        for _ in 0..3 {
            assert_eq!(courtesy.word.load(Ordering::Relaxed), 0);
            claim.lost();
        }
        // Its owner is stopped here; the others go on after a bounded number of delays.
        for _ in 0..GRANTS {
            assert_ne!(courtesy.word.load(Ordering::Relaxed), 0);
            courtesy.claim(1).before_attempt();
        }
        assert_eq!(courtesy.word.load(Ordering::Relaxed), 0);
        claim.lost();
        assert_ne!(courtesy.word.load(Ordering::Relaxed), 0);
        drop(claim);
        assert_eq!(courtesy.word.load(Ordering::Relaxed), 0);
    }
}
