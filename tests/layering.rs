//! The rank rule of ARCHITECTURE.md: a room imports only rooms of a lower rank, and only `sync.rs` and `clock.rs` name the things
//! they exist for. A newcomer can trust the map because this test reads every file.

#![expect(clippy::expect_used, reason = "a test stops where it cannot read the source")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Every room of `src/` with its rank. A room may import rooms of strictly lower rank and itself.
const RANKS: &[(&str, u32)] = &[
    ("error", 1),
    ("observe", 2),
    ("options", 3),
    ("sync", 0),
    ("clock", 1),
    ("vfs", 2),
    ("wal", 4),
    ("segment", 4),
    ("manifest", 4),
    ("index", 5),
    ("commit", 6),
    ("reclaim", 6),
    ("engine", 7),
    ("kv", 8),
    ("lease", 9),
    ("watch", 9),
    ("open", 10),
    ("object", 11),
];

/// The most lines of a file, its tests included.
const LINES_MAX: usize = 500;

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(dir)
        .expect("readable source folder")
        .map(|e| e.expect("entry").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for dir in ["src", "format/src", "tools/annals/src", "tools/etcd-files/src", "tools/etcd/src"] {
        rust_files(&root.join(dir), &mut files);
    }
    // What a generator has made is as it makes it.
    files.retain(|path| !path.starts_with(root.join("tools/etcd/src/proto")));
    assert!(files.len() > 30, "the scan found only {} files", files.len());
    files
        .into_iter()
        .map(|p| {
            let text = fs::read_to_string(&p).expect("UTF-8 source");
            (p.strip_prefix(root).expect("below the root").to_path_buf(), text)
        })
        .collect()
}

/// The part of a file that ships: everything before its first in-file test module. (A line
/// `mod tests;` near the top of a file does not end it.)
fn shipped(text: &str) -> &str {
    let mut from = 0;
    while let Some(at) = text[from..].find("#[cfg(test)]\nmod ").map(|at| from + at) {
        let line = text[at..].lines().nth(1).unwrap_or("");
        if line.trim_end().ends_with('{') {
            return &text[..at];
        }
        from = at + 1;
    }
    text
}

fn is_test_file(path: &Path) -> bool {
    let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or("");
    name.ends_with("tests") || path.components().any(|c| c.as_os_str() == "tests")
}

/// Names that follow `crate::` in code (comments left out), with nested `use crate::{a::x, b}` opened.
fn crate_imports(text: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .filter(|l| !l.trim_start().starts_with("//"))
        .map(|l| l.split(" // ").next().unwrap_or(l))
        .collect::<Vec<_>>()
        .join("\n");
    let mut rooms = Vec::new();
    let mut rest = code.as_str();
    while let Some(at) = rest.find("crate::") {
        // `$crate::` and `other_crate::` are not ours.
        let before = rest[..at].chars().next_back();
        rest = &rest[at + "crate::".len()..];
        if before.is_some_and(|c| c == '$' || c == '_' || c.is_alphanumeric()) {
            continue;
        }
        if let Some(inner) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut word = String::new();
            let mut fresh = true;
            for c in inner.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => fresh = true,
                    c if depth == 0 && fresh && (c.is_alphanumeric() || c == '_') => word.push(c),
                    _ if !word.is_empty() => {
                        rooms.push(std::mem::take(&mut word));
                        fresh = false;
                        if c == '{' {
                            depth += 1;
                        }
                    }
                    _ => {}
                }
                if c == ',' && depth == 0 {
                    if !word.is_empty() {
                        rooms.push(std::mem::take(&mut word));
                    }
                    fresh = true;
                }
            }
            if !word.is_empty() {
                rooms.push(word);
            }
        } else {
            rooms.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    rooms
}

#[test]
fn rooms_import_only_lower_ranks() {
    let ranks: BTreeMap<&str, u32> = RANKS.iter().copied().collect();
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let Ok(inside) = path.strip_prefix("src") else { continue };
        if is_test_file(&path) {
            continue;
        }
        let first = inside.components().next().expect("a component").as_os_str().to_string_lossy();
        let room = first.trim_end_matches(".rs").to_string();
        if room == "lib" {
            continue;
        }
        let Some(&rank) = ranks.get(room.as_str()) else {
            wrong.push(format!("{}: room `{room}` has no rank", path.display()));
            continue;
        };
        for import in crate_imports(shipped(&text)) {
            if import == room {
                continue;
            }
            match ranks.get(import.as_str()) {
                Some(&other) if other < rank => {}
                Some(&other) => wrong.push(format!(
                    "{}: {room} ({rank}) imports {import} ({other})",
                    path.display()
                )),
                // Re-exports at the crate root (`crate::Error`) belong to rank 1 types only.
                None if matches!(import.as_str(), "Error" | "Result" | "ErrorKind" | "Effect") => {}
                None => {
                    wrong.push(format!("{}: imports unknown `crate::{import}`", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_it_is_and_stays_short() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        if !text.starts_with("//!") {
            wrong.push(format!("{}: does not open with `//!`", path.display()));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            wrong.push(format!("{}: {lines} lines", path.display()));
        }
        if let Some(line) = text.lines().position(|l| !l.is_ascii()) {
            wrong.push(format!("{}:{}: not ASCII", path.display(), line + 1));
        }
        for word in
            ["FIXME", concat!("dbg", "!("), concat!("todo", "!("), concat!("unimpl", "emented!(")]
        {
            if text.contains(word) {
                wrong.push(format!("{}: contains {word}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_are_named_only_by_the_vfs_and_clocks_only_by_the_clock() {
    let rules: &[(&str, &[&str])] = &[
        ("std::fs", &["src/vfs"]),
        ("SystemTime::now", &["src/clock.rs"]),
        ("sync::atomic", &["src/sync.rs"]),
        ("crossbeam_epoch", &["src/sync.rs"]),
        ("std::sync::Mutex", &["src/sync.rs"]),
        ("std::sync::Condvar", &["src/sync.rs"]),
        ("std::sync::OnceLock", &["src/sync.rs"]),
        ("use std::thread", &["src/sync.rs", "src/engine/worker.rs"]),
    ];
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        if !path.starts_with("src") || is_test_file(&path) {
            continue;
        }
        let code: String = shipped(&text)
            .lines()
            .filter(|l| !l.trim_start().starts_with("//"))
            .collect::<Vec<_>>()
            .join("\n");
        for (word, homes) in rules {
            if code.contains(word) && !homes.iter().any(|home| path.starts_with(home)) {
                wrong.push(format!("{}: names {word}, which belongs to {homes:?}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_architecture_page_names_every_room() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    for (room, _) in RANKS {
        assert!(page.contains(&format!("`{room}")), "ARCHITECTURE.md does not mention `{room}`");
    }
}

#[test]
fn the_tests_that_the_table_of_objects_names_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join("src/object/TESTS.md")).expect("the table");
    let mut files = Vec::new();
    rust_files(&root.join("tests/object"), &mut files);
    let mut count = 0;
    for name in table.split('`').filter(|part| part.contains("::")) {
        let (room, test) = name.split_once("::").expect("a module and a test");
        let there = files.iter().any(|path| {
            let is_room = path.file_stem().is_some_and(|stem| stem == room)
                || path.parent().and_then(Path::file_name).is_some_and(|parent| parent == room);
            is_room && fs::read_to_string(path).expect("source").contains(&format!("fn {test}("))
        });
        assert!(there, "there is no test {name}");
        count += 1;
    }
    assert!(count > 50, "{count}");
}
