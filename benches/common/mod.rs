//! What the benches of this crate share.

use std::path::{Path, PathBuf};

/// What was asked for on the command line: whether it is to be quick, and whether a part is wanted, which all
/// are where none is named.
pub(crate) fn asked() -> (bool, impl Fn(&str) -> bool) {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let quick = arguments.iter().any(|a| a == "quick");
    let all = arguments.iter().all(|a| a == "quick");
    (quick, move |name: &str| all || arguments.iter().any(|a| a == name))
}

/// An empty directory below the target directory.
pub(crate) fn directory(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}
