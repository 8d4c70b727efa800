//! K1: `kill -9` at any moment, while everything goes on.
//!
//! `ANNALS_KILLS=n` sets how often, `ANNALS_KILL_SEED=n` with which delays.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::oracle::Oracle;
use crate::process::{Ended, Heard, Running, command};
use crate::support::number_from_env;
use crate::support::random::Random;

/// Sessions that go on in one directory.
const SESSIONS: u64 = 8;

/// Starts a session that goes on where the last one was killed.
pub fn session(oracle: &Oracle, number: u64) -> Running {
    Running::start(command_of(oracle, number))
}

/// The same, not started yet.
pub fn command_of(oracle: &Oracle, number: u64) -> Command {
    let mut command = command("session", &oracle.directory);
    command.env("ANNALS_KERNEL_SESSION", number.to_string());
    command.env("ANNALS_KERNEL_WATCH", oracle.watch_from.to_string());
    // One in four compacts whatever it likes; the others what has been checked.
    let compact = if number % 4 == 3 { 0 } else { oracle.revision };
    command.env("ANNALS_KERNEL_COMPACT", compact.to_string());
    command
}

/// Mostly in the midst of it, sometimes while it opens.
pub fn delay(random: &mut Random) -> Duration {
    let most = *random.pick(&[5_000, 30_000, 150_000, 300_000]);
    Duration::from_micros(random.below(most))
}

#[test]
fn a_killed_process_takes_back_nothing_that_was_told() {
    let kills = number_from_env("ANNALS_KILLS", 25);
    let seed = number_from_env("ANNALS_KILL_SEED", 1);
    let begun = Instant::now();
    let (mut acknowledged, mut transactions, mut told, mut torn) = (0, 0, 0, 0);
    let mut kept = None;
    for number in 0..kills {
        let (dir, mut oracle) = kept.take().unwrap_or_else(|| {
            let dir = tempfile::tempdir().unwrap();
            let oracle = Oracle::new(dir.path().join("store"));
            (dir, oracle)
        });
        let mut random = Random::new(seed ^ number << 20);
        let mut running = session(&oracle, number % SESSIONS + 1);
        if !random.one_in(4) {
            running.hears("O ", 1);
        }
        thread::sleep(delay(&mut random));
        let Ended { heard, errors, .. } = running.kill();
        let case = || format!("kill {number}, ANNALS_KILL_SEED={seed}");
        assert!(
            errors.is_empty() && heard.errors.is_empty(),
            "{}: {errors} {:?}",
            case(),
            heard.errors
        );
        if let Err(wrong) = oracle.verify(&heard, number) {
            let kept = dir.keep();
            panic!("{}: {wrong}\nthe store is in {}", case(), kept.display());
        }
        if number % SESSIONS == SESSIONS - 1 || number + 1 == kills {
            acknowledged += oracle.acknowledged;
            transactions += oracle.transactions;
            told += oracle.told;
            torn += oracle.torn;
        } else {
            kept = Some((dir, oracle));
        }
    }
    println!(
        "{kills} kills in {:?}: {acknowledged} acknowledged commits there, of {transactions} \
         transactions; {told} told to watches; {torn} torn ends; seed {seed}",
        begun.elapsed()
    );
}

/// The oracle must notice, or the other tests say nothing.
#[test]
fn the_oracle_notices_what_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut oracle = Oracle::new(dir.path().join("store"));
    let mut running = session(&oracle, 1);
    running.hears("A ", 40);
    let Ended { heard, .. } = running.kill();
    let fresh = || Oracle::new(oracle.directory.clone());
    fresh().verify(&heard, 0).unwrap();
    // An acknowledgement of what is not there, at another revision, of another; a watch that is told twice,
    // or of the future.
    let (revision, token) = *heard.acknowledged.last().unwrap();
    let more = |change: &dyn Fn(&mut Heard)| {
        let mut wrong = Heard {
            opened: heard.opened,
            acknowledged: heard.acknowledged.clone(),
            told: heard.told.clone(),
            ..Heard::default()
        };
        change(&mut wrong);
        fresh().verify(&wrong, 0).unwrap_err()
    };
    more(&|heard| heard.acknowledged.push((revision + 1_000, token)));
    more(&|heard| heard.acknowledged.push((revision - 1, token)));
    more(&|heard| heard.acknowledged[0].1.number += 1);
    more(&|heard| {
        heard.told = vec![(2, None), (2, heard.told[0].1.clone()), (2, heard.told[0].1.clone())];
    });
    more(&|heard| heard.told = vec![(1_000_000, None), (1_000_000, Some(String::new()))]);
    more(&|heard| heard.granted.push(7));
    more(&|heard| heard.late.push("late".to_owned()));
    // A store that is older than what was checked.
    oracle.verify(&heard, 0).unwrap();
    let store =
        crate::session::options(annals::ReadMode::Mmap).open(dir.path().join("other")).unwrap();
    store.put("s/1", "1").unwrap();
    store.close().unwrap();
    oracle.directory = dir.path().join("other");
    oracle.verify(&Heard::default(), 0).unwrap_err();
}
