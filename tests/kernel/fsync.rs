//! K3: a sync that fails once. The system says so once, keeps what it could not write as if it were written,
//! and answers the next sync with success.
//!
//! A file system in an image on a tmpfs: the room of the log's tail is taken from the image and given to another
//! file, so that exactly the writes of the next batch find none. Then the room comes back.
//!
//! `ANNALS_FSYNC=n` sets how often.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::disk::Image;
use crate::kill::session;
use crate::oracle::Oracle;
use crate::process::{Running, command};
use crate::support::number_from_env;
use crate::support::random::Random;
use crate::sys;

const PAGE: u64 = 4096;
const IMAGE: u64 = 48 << 20;

#[test]
fn a_sync_that_failed_once_is_never_forgotten() {
    let mkfs = ["mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0", "-b", "4096"];
    let mut image = match Image::new(&mkfs, IMAGE, "64m") {
        Ok(image) => image,
        Err(why) => return println!("syncs that fail once skipped: {why}"),
    };
    let rounds = number_from_env("ANNALS_FSYNC", 4);
    let seed = number_from_env("ANNALS_KILL_SEED", 1);
    let begun = Instant::now();
    let (mut failed, mut shown) = (0, 0);
    for round in 0..rounds {
        let case = format!("round {round}, ANNALS_KILL_SEED={seed}");
        let mut random = Random::new(seed ^ round << 20);
        let mut oracle = Oracle::new(image.root().join("store"));
        let mut command = command("steady", &oracle.directory);
        command.env("ANNALS_KERNEL_COMMITS", random.between(3, 40).to_string());
        let mut running = Running::start(command);
        assert!(running.hears("READY", 1), "{case}");
        fill(&image);
        let punched = punch_tail(&image, &oracle.directory, &mut random);
        let Ok(0..) = punched else {
            return println!("syncs that fail once skipped: {punched:?}");
        };
        take_room(&image);
        running.tell("x");
        assert!(running.hears("FAILED", 1), "{case}");
        fs::remove_file(filler(&image)).unwrap();
        running.tell("x");
        let ended =
            running.end(Duration::from_secs(30)).unwrap_or_else(|| panic!("{case}: it hangs"));
        ended.is_orderly(&[]).unwrap_or_else(|why| panic!("{case}: {why}"));
        let heard = &ended.heard;
        let saw = |what: &str| heard.others.iter().any(|line| line == what);
        if heard.errors.is_empty() {
            return println!("syncs that fail once skipped: none fails here: {:?}", heard.others);
        }
        assert!(
            heard.errors[0].contains("cannot sync") || heard.errors[0].contains("no space"),
            "{case}: {heard:?}"
        );
        // Nothing is acknowledged until it is opened again, also when the disk works again; what was
        // durable can be read.
        assert!(heard.late.is_empty() && saw("REFUSED 10"), "{case}: {heard:?}");
        assert!(saw("READ 0") && !saw("WRONG"), "{case}: {heard:?}");
        assert!(!heard.ended, "{case}: it was closed as if nothing had been");
        failed += 1;
        // In the cache is what is not on the disk. Who opens the store relies on it, or drops it: either
        // way it stays so.
        let wrong = |why: String| panic!("{case}: {why}");
        let before = heard.acknowledged.last().map_or(1, |last| last.0);
        oracle.verify(heard, 1).unwrap_or_else(wrong);
        shown += u64::from(oracle.revision > before);
        let mut running = session(&oracle, 2);
        running.hears("A ", 8);
        let next = running.kill();
        if random.one_in(2) {
            image.cut().unwrap();
        }
        image.remount();
        oracle.verify(&next.heard, round).unwrap_or_else(wrong);
        fs::remove_dir_all(&oracle.directory).unwrap();
    }
    println!(
        "{failed} syncs failed once in {:?}; {shown} times what had failed was found when it was opened, and \
         kept; seed {seed}",
        begun.elapsed()
    );
}

fn filler(image: &Image) -> PathBuf {
    image.below().join("filler")
}

/// Gives the image all the room it can ever need, keeping what is in it.
fn fill(image: &Image) {
    let file = fs::OpenOptions::new().write(true).open(image.file()).unwrap();
    sys::reserve(&file, IMAGE).unwrap();
}

/// Takes all the room there is.
fn take_room(image: &Image) {
    let mut file = fs::File::create(filler(image)).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}

/// Takes the room of the tail of the newest file of the log, which is all zero, or of some pages of it. Answers how
/// many.
fn punch_tail(image: &Image, store: &Path, random: &mut Random) -> std::io::Result<u64> {
    let names = fs::read_dir(store.join("wal"))?.map(|entry| entry.unwrap().path());
    let written = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
    };
    // A spare may be there already.
    let newest = names.filter(|path| written(path) > 0).max();
    let Some(newest) = newest else { return Err(std::io::Error::other("there is no log")) };
    let tail = written(&newest).next_multiple_of(PAGE);
    let pages = if random.one_in(2) { u64::MAX } else { random.between(1, 4) };
    let file = fs::OpenOptions::new().write(true).open(image.file())?;
    let mut punched = 0;
    for (offset, device, bytes) in sys::extents(&fs::File::open(&newest)?)? {
        let mut at = offset.max(tail);
        while at < offset + bytes && punched < pages {
            sys::punch(&file, device + (at - offset), PAGE)?;
            (at, punched) = (at + PAGE, punched + 1);
        }
    }
    Ok(punched)
}
