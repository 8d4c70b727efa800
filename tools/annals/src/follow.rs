//! When to look again: what a program writes shows itself in the list of files and in the log.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use crate::at;

/// How often it looks whether something has come.
const INTERVAL: Duration = Duration::from_millis(100);

/// A file, its length, and when it was written last.
type File = (PathBuf, u64, Option<SystemTime>);

/// What a store looked like when it was looked at: `CURRENT`, which names the list of files and is replaced with
/// it, and the files of the log. What else lies in the directory tells nothing.
#[derive(Debug)]
pub(crate) struct Seen {
    store: PathBuf,
    files: Vec<File>,
    /// Whether everything that comes changes what is seen.
    settled: bool,
}

impl Seen {
    /// Nothing as yet.
    pub(crate) fn new(store: &Path) -> Self {
        Self { store: store.to_path_buf(), files: Vec::new(), settled: false }
    }

    /// As it is now.
    pub(crate) fn now(store: &Path) -> Self {
        let mut seen = Self::new(store);
        seen.look();
        seen
    }

    /// Notes how it is now. To be called before the store is opened, so that nothing comes between.
    pub(crate) fn look(&mut self) {
        let files = files(&self.store);
        // Two writes within a tick of the system's clock leave the same time, so that it has to be looked at once
        // more after the first; but a time still to come, of a clock that was wrong, stays as it is.
        let settled = |file: &File| file.2.is_none_or(is_past) || self.files.contains(file);
        self.settled = files.iter().all(settled);
        self.files = files;
    }

    /// Whether it may look otherwise.
    pub(crate) fn differs(&self) -> bool {
        files(&self.store) != self.files
    }

    /// Waits until it may look otherwise, or a time has passed.
    pub(crate) fn wait(&self, until: Option<i64>) {
        loop {
            sleep(INTERVAL);
            let over = until.is_some_and(|until| at::now() > until);
            if over || !self.settled || self.differs() {
                return;
            }
        }
    }
}

fn files(store: &Path) -> Vec<File> {
    let log = fs::read_dir(store.join("wal")).into_iter().flatten().flatten();
    let paths = log.map(|entry| entry.path()).chain([store.join("CURRENT")]);
    let of_path = |path: PathBuf| {
        let meta = fs::metadata(&path).ok()?;
        meta.is_file().then(|| (path, meta.len(), meta.modified().ok()))
    };
    let mut files: Vec<_> = paths.filter_map(of_path).collect();
    files.sort();
    files
}

/// Whether a time is so far back that another write has another one.
fn is_past(time: SystemTime) -> bool {
    time.elapsed().is_ok_and(|passed| passed >= INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with files of a store, and what else may lie there, written at a time.
    fn directory(time: SystemTime) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("wal")).unwrap();
        for name in ["CURRENT", "wal/1.wal", "live.json"] {
            write(&directory.path().join(name), "1", time);
        }
        directory
    }

    fn write(path: &Path, text: &str, time: SystemTime) {
        fs::write(path, text).unwrap();
        fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn what_is_no_part_of_the_store_tells_nothing() {
        let past = SystemTime::now() - Duration::from_secs(60);
        let directory = directory(past);
        let mut seen = Seen::now(directory.path());
        assert!(seen.settled);
        write(&directory.path().join("live.json"), "22", SystemTime::now());
        write(&directory.path().join("foreign"), "", past + Duration::from_secs(9999));
        assert!(!seen.differs());
        seen.look();
        assert!(seen.settled);
        for name in ["CURRENT", "wal/1.wal", "wal/2.wal"] {
            write(&directory.path().join(name), "22", past);
            assert!(seen.differs(), "{name}");
            seen.look();
        }
    }

    #[test]
    fn a_time_that_is_to_come_is_looked_at_twice_and_no_more() {
        let future = SystemTime::now() + Duration::from_secs(9999);
        let directory = directory(future);
        let mut seen = Seen::now(directory.path());
        assert!(!seen.settled);
        seen.look();
        assert!(seen.settled);
        // It has changed: what came after that may have left the same.
        write(&directory.path().join("CURRENT"), "2", future + Duration::from_secs(1));
        seen.look();
        assert!(!seen.settled);
    }
}
