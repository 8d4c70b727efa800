//! K2: power cuts of real file systems. What was not synced is gone, the names too; what is tried after the
//! cut fails. Then the file system is mounted again, as after the power is back.
//!
//! `ANNALS_POWER_CUTS=n` sets how often on each, `ANNALS_KILL_SEED=n` at which moments.

use std::thread;
use std::time::{Duration, Instant};

use crate::disk::Image;
use crate::kill::{delay, session};
use crate::oracle::Oracle;
use crate::support::number_from_env;
use crate::support::random::Random;

/// Sessions that go on in one directory.
const SESSIONS: u64 = 5;

#[test]
fn a_power_cut_of_ext4_takes_back_nothing_that_was_told() {
    cuts("ext4", &["mkfs.ext4", "-q"], 64 << 20);
}

#[test]
fn a_power_cut_of_xfs_takes_back_nothing_that_was_told() {
    cuts("xfs", &["mkfs.xfs", "-q"], 300 << 20);
}

fn cuts(name: &str, mkfs: &[&str], bytes: u64) {
    let mut image = match Image::new(mkfs, bytes, "700m") {
        Ok(image) => image,
        Err(why) => return println!("power cuts of {name} skipped: {why}"),
    };
    let cuts = number_from_env("ANNALS_POWER_CUTS", 5);
    let seed = number_from_env("ANNALS_KILL_SEED", 1);
    let begun = Instant::now();
    let (mut acknowledged, mut transactions, mut told, mut refused) = (0, 0, 0, 0);
    let mut oracle = Oracle::new(image.root().join("store"));
    for number in 0..cuts {
        let case = format!("cut {number} of {name}, ANNALS_KILL_SEED={seed}");
        let mut random = Random::new(seed ^ number << 20);
        let mut running = session(&oracle, number % SESSIONS + 1);
        if !random.one_in(5) {
            running.hears("O ", 1);
        }
        thread::sleep(delay(&mut random));
        if let Err(why) = image.cut() {
            assert_eq!(number, 0, "{why}");
            return println!("power cuts of {name} skipped: {why}");
        }
        // Some live on for a while, with nothing but failures. They must bear it.
        let ended = if random.one_in(2) {
            running.kill()
        } else {
            thread::sleep(Duration::from_millis(random.below(60)));
            let ended = running.end(Duration::from_secs(30));
            let ended = ended.unwrap_or_else(|| panic!("{case}: it hangs"));
            ended.is_orderly(&[]).unwrap_or_else(|why| panic!("{case}: {why}"));
            ended
        };
        image.remount();
        refused += ended.heard.errors.len();
        if let Err(wrong) = oracle.verify(&ended.heard, number) {
            let kept = tempfile::tempdir().unwrap().keep();
            let mut copy = std::process::Command::new("cp");
            drop(copy.arg("-r").arg(image.root()).arg(&kept).status());
            panic!("{case}: {wrong}\nthe file system is in {}", kept.display());
        }
        if number % SESSIONS == SESSIONS - 1 || number + 1 == cuts {
            acknowledged += oracle.acknowledged;
            transactions += oracle.transactions;
            told += oracle.told;
            std::fs::remove_dir_all(&oracle.directory).unwrap_or_default();
            // Another name: the next cut may take the removal back.
            oracle = Oracle::new(image.root().join(format!("store-{number}")));
        }
    }
    println!(
        "{cuts} power cuts of {name} in {:?}: {acknowledged} acknowledged commits there, of {transactions} \
         transactions; {told} told to watches; {refused} calls failed; seed {seed}",
        begun.elapsed()
    );
}
