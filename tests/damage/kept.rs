//! What makes up for damaged newest versions is not forgotten once the damage was met.

use std::path::Path;

use annals::At;
use annals::vfs::MemoryVfs;

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
