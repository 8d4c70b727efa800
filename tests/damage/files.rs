//! Whole files: removed, swapped, put back from an older state, taken from another store.

use std::path::Path;

use annals::vfs::MemoryVfs;

use crate::judge::Depth;
use crate::made::{kind, made, made_with};
use crate::run::{Case, nothing_lost, run};

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
