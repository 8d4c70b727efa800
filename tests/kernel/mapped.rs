//! K7: sealed files that somebody cuts or overwrites while a process reads them. No process of annals does that.
//!
//! What is promised: read with `pread`, such a file is an error, or answered from the cache, and never a wrong
//! answer; mapped, what was not read before the change is an error. What was read before, and opening reads the
//! end of each file, may end the process (SIGBUS) after a cut, and be what it then holds after it was
//! overwritten; nothing else may happen.
//!
//! `ANNALS_MAPPED=n` sets how many trials there are of each kind.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use annals::{ReadMode, Store};

use crate::process::{Running, command};
use crate::session::{self, directory, number, say, setting};
use crate::support::number_from_env;
use crate::support::random::Random;

const KEYS: u64 = 60;
const ROUNDS: u64 = 3;

fn options(mode: &str) -> annals::Options {
    let mode = if mode == "mmap" { ReadMode::Mmap } else { ReadMode::Pread };
    // A cache that is far too small for all there is.
    session::options(mode).background(false).cache_bytes(8 << 10)
}

fn value(key: u64, round: u64) -> Vec<u8> {
    let mut random = Random::new(key << 8 | round);
    (0..60).flat_map(|_| random.next().to_be_bytes()).collect()
}

/// A closed store of which everything is in sealed files.
fn filled(path: &Path) {
    let store = options("pread").open(path).unwrap();
    for round in 0..ROUNDS {
        for key in 0..KEYS {
            store.put(format!("key/{key:03}"), value(key, round)).unwrap();
        }
        store.reorganise().unwrap();
    }
    store.close().unwrap();
}

/// Reads everything once: how many answers were right, errors, wrong.
fn read(store: &Store, found: &mut [u64; 3]) {
    let mut note = |right: Option<bool>| match right {
        Some(true) => found[0] += 1,
        None => found[1] += 1,
        Some(false) => found[2] += 1,
    };
    for key in 0..KEYS {
        let name = format!("key/{key:03}");
        let right =
            store.get(&name).map(|kv| kv.is_some_and(|kv| kv.value == value(key, ROUNDS - 1)));
        note(right.ok());
        for round in 0..ROUNDS {
            let at = store.at(2 + round * KEYS + key).and_then(|view| view.get(&name));
            note(at.map(|kv| kv.is_some_and(|kv| kv.value == value(key, round))).ok());
        }
    }
    for (expected, item) in (2..).zip(store.log(..)) {
        note(item.map(|transaction| transaction.revision == expected).ok());
    }
}

pub fn reader() {
    let mode = setting("MODE").unwrap();
    let opened = Store::open_read_only_with(directory(), &options(&mode));
    let store = opened.unwrap();
    let mut found = [0; 3];
    if number("WARM", 1) == 1 {
        read(&store, &mut found);
        assert_eq!(found[1..], [0, 0], "nothing has happened yet");
    }
    say("READY");
    // Either it waits for the change, or it goes on reading meanwhile.
    if number("LOAD", 0) == 0 {
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
    }
    let mut found = [0; 3];
    let until = Instant::now() + Duration::from_millis(60 * number("LOAD", 0));
    loop {
        read(&store, &mut found);
        if Instant::now() >= until {
            break;
        }
    }
    say(&format!("FOUND {} {} {}", found[0], found[1], found[2]));
    say("END");
}

/// Changes every sealed file.
fn change(path: &Path, what: &str, random: &mut Random) {
    for entry in fs::read_dir(path.join("seg")).unwrap() {
        let file = fs::OpenOptions::new().write(true).open(entry.unwrap().path()).unwrap();
        let bytes = file.metadata().unwrap().len();
        match what {
            "cut" => {
                let to = *random.pick(&[0, 1, bytes / 2, bytes - bytes.min(5000), bytes - 1]);
                file.set_len(to).unwrap();
            }
            _ => {
                let fill = if random.one_in(2) { 0 } else { 0x5a };
                let at = random.below(bytes);
                file.write_all_at(&vec![fill; usize::try_from(bytes - at).unwrap()], at).unwrap();
            }
        }
    }
}

#[test]
fn a_sealed_file_that_is_changed_is_an_error() {
    let trials = number_from_env("ANNALS_MAPPED", 3);
    let seed = number_from_env("ANNALS_KILL_SEED", 1);
    let dir = tempfile::tempdir().unwrap();
    let (whole, path) = (dir.path().join("whole"), dir.path().join("store"));
    filled(&whole);
    let mut tally: BTreeMap<String, BTreeMap<&str, u64>> = BTreeMap::new();
    for (mode, what, when) in ["mmap", "pread"]
        .into_iter()
        .flat_map(|mode| ["cut", "overwritten"].map(|what| (mode, what)))
        .flat_map(|(mode, what)| ["cold", "warm", "load"].map(|when| (mode, what, when)))
    {
        for trial in 0..trials {
            let case = format!("{mode} {what} {when}");
            let mut random = Random::new(seed ^ trial << 20);
            crate::odd::copy_all(&whole, &path);
            let mut command = command("reader", &path);
            command.env("ANNALS_KERNEL_MODE", mode);
            command.env("ANNALS_KERNEL_WARM", u8::from(when != "cold").to_string());
            command.env("ANNALS_KERNEL_LOAD", u8::from(when == "load").to_string());
            let mut running = Running::start(command);
            assert!(running.hears("READY", 1), "{case}");
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            change(&path, what, &mut random);
            running.tell("x");
            let ended =
                running.end(Duration::from_secs(30)).unwrap_or_else(|| panic!("{case} hangs"));
            let found = ended.heard.others.iter().find_map(|line| line.strip_prefix("FOUND "));
            let counts: Vec<u64> = found
                .into_iter()
                .flat_map(|text| text.split(' ').map(|n| n.parse().unwrap()))
                .collect();
            let outcome = match (ended.status.signal(), &counts[..]) {
                (Some(libc::SIGBUS), _) => "SIGBUS",
                (None, [_, _, 1..=u64::MAX]) if ended.heard.ended => "wrong",
                (None, [_, 1..=u64::MAX, _]) if ended.heard.ended => "error",
                (None, [_, 0, 0]) if ended.heard.ended => "unnoticed",
                _ => panic!("{case}, trial {trial}: {ended:?}"),
            };
            let touched = mode == "mmap";
            let allowed = match outcome {
                "SIGBUS" => touched && what == "cut",
                "wrong" => touched && what == "overwritten",
                _ => true,
            };
            assert!(allowed, "{case}, trial {trial}: {outcome}, {ended:?}");
            *tally.entry(case).or_default().entry(outcome).or_default() += 1;
            fs::remove_dir_all(&path).unwrap();
        }
    }
    println!("{trials} trials of each kind, seed {seed}: {tally:#?}");
}
