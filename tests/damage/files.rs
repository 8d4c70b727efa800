//! Whole files: removed, swapped, put back from an older state, taken from another store or another copy of it.

use std::path::Path;

use annals::Store;
use annals::vfs::{CrashMode, MemoryVfs};

use crate::judge::Depth;
use crate::made::{kind, made, made_with, options};
use crate::run::{Case, nothing_lost, run};
use crate::support::DIRECTORY;

#[test]
fn removed_swapped_older_and_foreign_files() {
    for close in [true, false] {
        let made = made(close);
        let foreign = made_with(2, close);
        let mut cases: Vec<(String, &str, MemoryVfs)> = Vec::new();
        for path in &made.paths {
            let copy = made.copy();
            copy.forget(Path::new(path));
            cases.push((format!("{path} removed"), path, copy));
            for other in &made.paths {
                let (content, swapped) = (made.content(path), made.content(other));
                if path < other && content != swapped {
                    let copy = made.with(path, &swapped);
                    copy.overwrite(Path::new(other), &content);
                    cases.push((format!("{path} and {other} swapped"), path, copy));
                }
                if path != other && kind(path) == kind(other) {
                    cases.push((format!("{path} is {other}"), path, made.with(path, &swapped)));
                }
            }
            if let Ok(older) = made.older.read(Path::new(path))
                && older != made.content(path)
            {
                cases.push((format!("{path} from an older state"), path, made.with(path, &older)));
            }
            // The same name, and any file of the same kind.
            for other in foreign.paths.iter().filter(|other| kind(other) == kind(path)) {
                let content = foreign.content(other);
                cases.push((
                    format!("{path} is {other} of another store"),
                    path,
                    made.with(path, &content),
                ));
            }
        }
        // CURRENT and the manifest of an older state together, beside the files of now.
        let copy = made.copy();
        for path in made.older.paths() {
            if path.contains("CURRENT") || path.contains("MANIFEST") {
                copy.overwrite(Path::new(&path), &made.older.read(Path::new(&path)).unwrap());
            }
        }
        cases.push(("CURRENT and MANIFEST of an older state".into(), "store/CURRENT", copy));
        let tally = run("whole files", &made, cases.len() as u64, |number| {
            let (name, path, disk) = cases.get(usize::try_from(number).unwrap())?;
            let (name, kind) = (name.clone(), kind(path));
            Some(Case { name, kind, disk: disk.clone(), hit: None, depth: Depth::Background })
        });
        nothing_lost(&tally);
    }
}

/// What says which files there are stands in two places: opening says which is damaged, and that once.
#[test]
fn what_has_a_copy_is_reported_and_written_anew() {
    for close in [true, false] {
        let made = made(close);
        for path in made.paths.iter().filter(|path| ["CURRENT", "MANIFEST"].contains(&kind(path))) {
            let mut content = made.content(path);
            content[30] ^= 1;
            let disk = made.with(path, &content);
            let damage = |store: Store| -> Vec<_> {
                assert_eq!(store.revision(), made.model.revision());
                let damage = &store.open_report().damage;
                damage.iter().map(|damage| damage.file.clone()).collect()
            };
            for _ in 0..2 {
                let reader = Store::open_read_only_with(DIRECTORY, &options(&disk)).unwrap();
                assert_eq!(damage(reader), [Path::new(path)]);
            }
            assert_eq!(damage(options(&disk).open(DIRECTORY).unwrap()), [Path::new(path)]);
            assert!(damage(options(&disk).open(DIRECTORY).unwrap()).is_empty());
            let report = annals::check(DIRECTORY, &options(&disk), &mut |_, _| {}).unwrap();
            assert!(report.damage.is_empty(), "{report:?}");
        }
    }
}

/// Copies of one store have its id, and give the same names to what each writes for itself. So the log of one is not
/// that of the other, although every checksum in it holds there, and as many revisions are in it.
#[test]
fn the_log_of_another_copy() {
    let disk = MemoryVfs::new();
    let write = |seed: u64, copy: &str| {
        // What is by chance is by this seed.
        let store = options(&disk).store_id_seed(seed).open("store").unwrap();
        store.checkpoint(copy).unwrap();
        store.close().unwrap();
        let copy: Store = options(&disk).open(copy).unwrap();
        let commit = copy.put("k", format!("of {}", copy.incarnation())).unwrap();
        // Left as a killed process leaves it: it was never closed.
        std::mem::forget(copy);
        commit.revision
    };
    assert_eq!(write(1, "a"), write(2, "b"));
    let disk = disk.crash(0, CrashMode::KeepAll);
    let logs = disk.paths().into_iter().filter(|path| path.starts_with("a/wal/"));
    let mut swapped = 0;
    for of_a in logs {
        let path = Path::new(&of_a);
        let of_b = disk.read(Path::new(&of_a.replacen('a', "b", 1))).unwrap();
        let image = disk.crash(0, CrashMode::KeepAll);
        if image.read(path).unwrap() == of_b {
            continue;
        }
        image.overwrite(path, &of_b);
        let report = annals::check("a", &options(&image), &mut |_, _| {}).unwrap();
        let found = report.damage.first().expect("check sees it");
        assert_eq!((found.file.as_path(), found.offset), (path, 56), "{found}");
        let error = options(&image).open("a").expect_err("another history");
        assert_eq!(error.corruption(), Some(found), "{error}");
        swapped += 1;
    }
    assert!(swapped > 0);
}
