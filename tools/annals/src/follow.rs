//! When to look again: what a program writes shows itself in the list of files and in the log.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use annals_format::name::LIVE;

/// How often it looks whether something has come.
const INTERVAL: Duration = Duration::from_millis(100);

/// What a store's directory looked like: the lengths and times of the list of files and of the log.
#[derive(Debug)]
pub(crate) struct Seen(Vec<(PathBuf, u64, Option<SystemTime>)>);

impl Seen {
    /// As it is now. To be taken before the store is opened, so that nothing comes between.
    pub(crate) fn now(store: &Path) -> Self {
        let directories = [store.to_path_buf(), store.join("wal")];
        let entries = directories.iter().flat_map(fs::read_dir).flatten().flatten();
        let of_entry = |entry: fs::DirEntry| {
            let meta = entry.metadata().ok()?;
            // What changes each second, and says nothing of what is stored.
            let is_live = entry.file_name().to_string_lossy().starts_with(LIVE);
            (meta.is_file() && !is_live).then(|| (entry.path(), meta.len(), meta.modified().ok()))
        };
        let mut files: Vec<_> = entries.filter_map(of_entry).collect();
        files.sort();
        Self(files)
    }

    /// Whether it may look otherwise.
    pub(crate) fn differs(&self, store: &Path) -> bool {
        Self::now(store).0 != self.0
    }

    /// Waits until it may look otherwise.
    pub(crate) fn wait(&self, store: &Path) {
        // Two writes within a tick of the system's clock leave the same time: look once more after the first.
        let settled = self.0.iter().all(|(_, _, time)| time.is_none_or(is_past));
        loop {
            sleep(INTERVAL);
            if !settled || Self::now(store).0 != self.0 {
                return;
            }
        }
    }
}

/// Whether a time is so far back that another write has another one.
fn is_past(time: SystemTime) -> bool {
    time.elapsed().is_ok_and(|passed| passed >= INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_the_store_are_no_change_of_it_and_its_log_is() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path();
        fs::create_dir(store.join("wal")).unwrap();
        let seen = Seen::now(store);
        for name in ["live.json", "live.json.tmp"] {
            fs::write(store.join(name), "{}").unwrap();
        }
        assert!(!seen.differs(store));
        fs::write(store.join("wal/00000001.wal"), "x").unwrap();
        assert!(seen.differs(store));
    }
}
