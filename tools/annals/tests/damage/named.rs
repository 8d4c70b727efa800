//! Single damages, each with what must be saved at least.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use annals::vfs::MemoryVfs;

use crate::Laid;
use crate::made::{Made, made};
use crate::salvage::{Saved, check};

/// The first file of a kind.
fn first<'a>(made: &'a Made, kind: &str) -> &'a str {
    made.paths.iter().find(|path| path.contains(kind)).unwrap()
}

/// A copy with a flipped bit.
fn flipped(made: &Made, path: &str, at: usize) -> MemoryVfs {
    let mut content = made.content(path);
    content[at] ^= 4;
    made.with(path, &content)
}

#[test]
fn a_damaged_current_costs_nothing() {
    for close in [true, false] {
        let made = made(close);
        assert_eq!(check(&flipped(&made, "store/CURRENT", 30), &made, &[]), Ok(Saved::Everything));
        let gone = made.copy();
        gone.forget(Path::new("store/CURRENT"));
        assert_eq!(check(&gone, &made, &[]), Ok(Saved::Everything));
    }
}

/// `CURRENT` has a copy of it.
#[test]
fn a_lost_manifest_costs_nothing_and_the_past_if_current_is_damaged_too() {
    for close in [true, false] {
        let made = made(close);
        let path = first(&made, "MANIFEST");
        assert_eq!(check(&flipped(&made, path, 80), &made, &[]), Ok(Saved::Everything));
        let gone = made.copy();
        gone.forget(Path::new(path));
        assert_eq!(check(&gone, &made, &[]), Ok(Saved::Everything));
        let current = made.content("store/CURRENT");
        let damage = |at: &[usize]| {
            let mut current = current.clone();
            for &at in at {
                current[at] ^= 1;
            }
            gone.overwrite(Path::new("store/CURRENT"), &current);
        };
        // Its ends, so that the store is not opened; then the copy.
        damage(&[20, current.len() - 20]);
        assert_eq!(check(&gone, &made, &[]), Ok(Saved::Everything));
        damage(&[100]);
        assert_eq!(check(&gone, &made, &[]), Ok(Saved::Newest));
        gone.forget(Path::new("store/CURRENT"));
        assert_eq!(check(&gone, &made, &[]), Ok(Saved::Newest));
    }
}

/// Without a manifest nobody says where the log began: what was in a part of it that is gone, too, is named as lost.
#[test]
fn a_lost_manifest_and_lost_logs() {
    for close in [true, false] {
        let made = made(close);
        let logs: Vec<_> = made.paths.iter().filter(|path| path.contains(".wal")).collect();
        assert!(logs.len() > 1, "{logs:?}");
        for which in 1..1_u32 << logs.len() {
            let gone = flipped(&made, first(&made, "MANIFEST"), 80);
            gone.forget(Path::new("store/CURRENT"));
            let logs = logs.iter().enumerate().filter(|(n, _)| which & (1 << n) != 0);
            logs.for_each(|(_, path)| gone.forget(Path::new(path)));
            let saved = check(&gone, &made, &[]);
            assert_eq!(saved, Ok(Saved::Others), "closed: {close}, logs {which:b}");
        }
    }
}

/// The values of a lost HEAD file that EVENTS repeat are there; of the others the keys are named.
#[test]
fn a_lost_head_is_filled_from_events() {
    let made = made(true);
    let gone = made.copy();
    gone.forget(Path::new(first(&made, ".head")));
    let saved = check(&gone, &made, &[]).unwrap();
    assert!(matches!(saved, Saved::Newest | Saved::Others), "{saved:?}");
    let damaged = flipped(&made, first(&made, ".head"), 3000);
    let saved = check(&damaged, &made, &[]).unwrap();
    assert!(matches!(saved, Saved::Everything | Saved::Newest | Saved::Others), "{saved:?}");
}

/// Of a lost blob file nothing else is lost than the values in it that EVENTS do not repeat.
#[test]
fn a_lost_blob_file_costs_its_values() {
    let made = made(true);
    for path in made.paths.iter().filter(|path| path.contains(".blob")) {
        let gone = made.copy();
        gone.forget(Path::new(path));
        let saved = check(&gone, &made, &[]).unwrap();
        assert!(!matches!(saved, Saved::UpToDamage | Saved::Nothing), "{saved:?}");
        for at in (0..made.content(path).len()).step_by(700) {
            let saved = check(&flipped(&made, path, at), &made, &[]).unwrap();
            assert!(!matches!(saved, Saved::UpToDamage | Saved::Nothing), "{at}: {saved:?}");
        }
    }
}

/// What is lost of a file of newest versions is elsewhere, but for long values: the past begins where that is so.
#[test]
fn a_damaged_file_of_newest_versions_costs_little_of_the_past() {
    let made = made(true);
    let mut saved = Vec::new();
    for path in made.paths.iter().filter(|path| path.contains(".l0") || path.contains(".head")) {
        for at in (0..made.content(path).len()).step_by(1500) {
            let what = check(&flipped(&made, path, at), &made, &[]).unwrap();
            println!("{path} at {at}: {what:?}");
            saved.push(what);
        }
    }
    let count = |saved: &[Saved], what| saved.iter().filter(|one| **one == what).count();
    let (all, past) = (count(&saved, Saved::Everything), count(&saved, Saved::Past));
    println!(
        "{} damages: {all} times everything saved, {past} times a part of the past",
        saved.len()
    );
    assert!(all > 0 && all + past > saved.len() / 2, "{saved:?}");
}

#[test]
fn the_past_alone_costs_no_newest_version() {
    let made = made(true);
    // What the versions tell, too, is no loss but for who wrote it, and when.
    for (kind, saved) in [(".hist", Saved::Past), (".events", Saved::Everything)] {
        let gone = made.copy();
        gone.forget(Path::new(first(&made, kind)));
        assert_eq!(check(&gone, &made, &[]), Ok(saved), "{kind}");
    }
}

/// Damage of a batch in the middle of the log: what came before it with the past, or what came behind it as well.
#[test]
fn a_log_damaged_in_the_middle() {
    let made = made(false);
    let last = made.paths.iter().rfind(|path| path.contains(".wal")).unwrap();
    let damaged = flipped(&made, last, 4096 + 100);
    assert_eq!(check(&damaged, &made, &[]), Ok(Saved::UpToDamage));
    let saved = check(&damaged, &made, &["--newest"]).unwrap();
    assert!(matches!(saved, Saved::Newest | Saved::Others), "{saved:?}");
}

/// `verify` and `repair` need no more than to read.
#[test]
fn a_directory_that_can_only_be_read() {
    let made = made(true);
    let laid = Laid::of(&flipped(&made, first(&made, ".hist"), 200));
    let before = laid.snapshot();
    let mut directories = vec![laid.store().join("seg"), laid.store().join("wal"), laid.store()];
    let set = |paths: &[std::path::PathBuf], mode| {
        for path in paths {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    set(&before.keys().cloned().collect::<Vec<_>>(), 0o400);
    set(&directories, 0o500);
    assert_eq!(laid.run(&["verify"]).status.code(), Some(3));
    assert_eq!(laid.repair(&[]).status.code(), Some(9), "the past begins later");
    directories.reverse();
    set(&directories, 0o700);
    let after = laid.snapshot();
    assert_eq!(after, before);
}
