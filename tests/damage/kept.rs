//! What makes up for damaged newest versions is not forgotten once the damage was met.

use std::collections::BTreeMap;
use std::path::Path;

use annals::At;
use annals::vfs::MemoryVfs;

use crate::alive::background;
use crate::made::{kind, made, options};
use crate::support::DIRECTORY;

/// The files of the past.
fn past(disk: &MemoryVfs) -> Vec<String> {
    let is_past = |path: &String| path.contains(".hist") || path.contains(".events");
    disk.paths().into_iter().filter(is_past).collect()
}

/// Reads the newest state, compacts to it, and does all that is to be done then. Answers whether damage was met; `None`
/// where the store does not open.
fn forget(disk: &MemoryVfs) -> Option<bool> {
    let store = options(disk).open(Path::new(DIRECTORY)).ok()?;
    let met = store.at(At::Latest).unwrap().range(..).any(|found| found.is_err());
    store.compact(store.revision()).unwrap();
    while let Ok(true) = store.run_background() {}
    Some(met)
}

#[test]
fn a_store_that_has_met_damage_of_newest_versions_forgets_nothing() {
    let made = made(true);
    let before = past(&made.disk);
    let sound = made.copy();
    assert_eq!(forget(&sound), Some(false));
    assert!(past(&sound).len() < before.len(), "{before:?} {:?}", past(&sound));
    let mut damages = 0;
    for path in made.paths.iter().filter(|path| matches!(kind(path), ".head" | ".l0")) {
        let mut content = made.content(path);
        let middle = content.len() / 2;
        content[middle] ^= 0x10;
        let disk = made.with(path, &content);
        if forget(&disk) == Some(true) {
            let after = past(&disk);
            assert!(before.iter().all(|path| after.contains(path)), "{path}: {before:?} {after:?}");
            damages += 1;
        }
    }
    assert!(damages > 0);
}

/// Whoever opens it next has not met the damage, and goes by a note.
#[test]
fn nor_does_it_when_it_is_opened_again() {
    let made = made(true);
    let note = Path::new(DIRECTORY).join("DAMAGED");
    let mut kinds = BTreeMap::new();
    for path in made.paths.iter().filter(|path| matches!(kind(path), ".head" | ".l0" | ".blob")) {
        for part in 1..6 {
            let mut content = made.content(path);
            let at = content.len() * part / 6;
            content[at] ^= 0x10;
            let disk = made.with(path, &content);
            // The rules of retention are damaged.
            let Ok(store) = options(&disk).open(Path::new(DIRECTORY)) else { continue };
            if store.reorganise().is_ok() {
                continue;
            }
            // Where a file can be read for all that, as only the bytes behind its blocks are damaged, nothing is noted.
            let is_noted = store.stats().damage.is_some();
            store.compact(store.revision()).unwrap();
            for n in 0..20 {
                store.put(format!("/after/{n}"), "x".repeat(300)).unwrap();
            }
            background(&store).unwrap();
            store.close().unwrap();
            assert_eq!(disk.read(&note).is_ok(), is_noted, "{path} {part}");
            let before = past(&disk);
            for _ in 0..2 {
                let store = options(&disk).open(Path::new(DIRECTORY)).unwrap();
                assert_eq!(store.stats().damage.is_some(), is_noted, "{path} {part}");
                background(&store).unwrap();
                store.close().unwrap();
            }
            assert_eq!(past(&disk), before, "{path} {part}");
            *kinds.entry(kind(path)).or_insert(0) += 1;
            // The device reads it again: there is no reason to keep anything.
            disk.overwrite(Path::new(path), &made.content(path));
            let store = options(&disk).open(Path::new(DIRECTORY)).unwrap();
            assert_eq!(store.stats().damage, None);
            assert!(disk.read(&note).is_err());
            background(&store).unwrap();
            assert!(past(&disk).len() < before.len(), "{path} {part}: {before:?}");
        }
    }
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    // What says nothing is gone, and harms nothing.
    for note_says in ["", "seg/99999999.head\n", "../CURRENT\n", "\u{fffd}", &"x".repeat(5_000)] {
        let disk = made.copy();
        disk.overwrite(&note, note_says.as_bytes());
        let store = options(&disk).open(Path::new(DIRECTORY)).unwrap();
        assert_eq!(store.stats().damage, None);
        assert!(disk.read(&note).is_err());
    }
}

/// One of the files that were damaged is well again: what makes up for the other is still kept.
#[test]
fn each_file_that_is_damaged_is_noted() {
    let made = made(true);
    let disk = made.copy();
    let of = |wanted: &str| made.paths.iter().find(|path| kind(path) == wanted).unwrap();
    let (head, l0) = (of(".head"), of(".l0"));
    for path in [head, l0] {
        let mut content = made.content(path);
        let middle = content.len() / 2;
        content[middle] ^= 0x10;
        disk.overwrite(Path::new(path), &content);
    }
    let store = options(&disk).open(Path::new(DIRECTORY)).unwrap();
    store.reorganise().unwrap_err();
    // What is not folded is merged, which meets the other one.
    for n in 0..400 {
        store.put(format!("/after/{n}"), "x".repeat(200)).unwrap();
        background(&store).unwrap();
    }
    store.compact(store.revision()).unwrap();
    let met = store.stats().damaged_files;
    store.close().unwrap();
    let note = disk.read(&Path::new(DIRECTORY).join("DAMAGED")).unwrap();
    let note = String::from_utf8(note).unwrap();
    assert_eq!(note.lines().count() as u64, met, "{note}");
    let before = past(&disk);
    for (well, other) in [(head, l0), (l0, head)] {
        let disk = disk.crash(0, annals::vfs::CrashMode::KeepAll);
        disk.overwrite(Path::new(well), &made.content(well));
        let store = options(&disk).open(Path::new(DIRECTORY)).unwrap();
        let is_noted = note.lines().any(|name| other.ends_with(name));
        assert_eq!(store.stats().damage.is_some(), is_noted, "{well} is well, noted {note}");
        background(&store).unwrap();
        assert!(!is_noted || past(&disk) == before);
    }
    assert_eq!(met, 2, "{note}");
}
