//! What cannot be is refused, and nothing is touched then.

use std::io::{self, Write};
use std::path::Path;

use annals::vfs::MemoryVfs;
use annals::{Error, ErrorKind, RestoreOptions, Store, restore};

use crate::backup;
use crate::support::DIRECTORY;
use crate::support::check::good;
use crate::support::copies::{is_not_empty, options, scripted};

/// A stream that takes so many bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stream_that_fails_leaves_the_store_as_it_was() {
    let options = options(MemoryVfs::new());
    let (store, model) = scripted(&options, 8);
    let bytes = backup(&store).len();
    for room in [0, 1, 80, 1000, bytes / 2, bytes - 1] {
        let error = store.backup(Full(room)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "{room}: {error}");
    }
    store.backup(Full(bytes)).unwrap();
    good(|| "the store".into(), store.put("still", "writes")).unwrap();
    assert_eq!(store.revision(), model.revision() + 1);
    store.compact(store.revision()).unwrap();
    store.reorganise().unwrap();
}

#[test]
fn a_damaged_file_is_not_backed_up() {
    let disk = MemoryVfs::new();
    let options = options(disk.clone());
    let (store, _) = scripted(&options, 9);
    store.reorganise().unwrap();
    store.close().unwrap();
    let segment = disk.paths().into_iter().find(|path| path.contains(".hist")).unwrap();
    let mut bytes = disk.read(Path::new(&segment)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    disk.overwrite(Path::new(&segment), &bytes);
    let store = options.open(DIRECTORY).unwrap();
    let error = store.backup(io::sink()).unwrap_err();
    let damage = error.corruption().unwrap_or_else(|| panic!("{error}"));
    assert!(damage.file.ends_with(segment.strip_prefix("store/").unwrap()), "{error}");
}

#[test]
fn other_directories_are_refused_and_nothing_in_them_is_touched() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let store = Store::open(path("store")).unwrap();
    store.put("/a", "1").unwrap();
    let stream = backup(&store);
    let refused =
        |to: &str| -> Error { restore(&stream[..], path(to), &RestoreOptions::new()).unwrap_err() };
    std::fs::create_dir(path("full")).unwrap();
    std::fs::write(path("full").join("notes"), "mine").unwrap();
    is_not_empty(&refused("full"), "full", Some("notes"));
    assert!(matches!(refused("store").kind(), ErrorKind::Locked { .. }));
    store.close().unwrap();
    assert!(matches!(refused("store").kind(), ErrorKind::NotEmpty { unfinished: false, .. }));
    assert_eq!(Store::open(path("store")).unwrap().revision(), 2);
    // What is no backup is refused before anything is made.
    let error = restore(&b"{}"[..], path("new"), &RestoreOptions::new()).unwrap_err();
    assert!(error.corruption().is_some(), "{error}");
    assert!(!path("new").exists());
    // One that breaks off leaves what no other takes for a store.
    let cut = &stream[..stream.len() - 1];
    let error = restore(cut, path("new"), &RestoreOptions::new()).unwrap_err();
    assert!(error.corruption().is_some(), "{error}");
    is_not_empty(&refused("new"), "new", None);
    let error = Store::open(path("new")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotAStore { .. }), "{error}");
    std::fs::remove_dir_all(path("new")).unwrap();
    restore(&stream[..], path("new"), &RestoreOptions::new()).unwrap();
    assert_eq!(Store::open(path("new")).unwrap().get("/a").unwrap().unwrap().value, "1");
    std::fs::create_dir(path("empty")).unwrap();
    restore(&stream[..], path("empty"), &RestoreOptions::new()).unwrap();
}

#[test]
fn a_closed_store_says_so() {
    let options = options(MemoryVfs::new());
    let (store, _) = scripted(&options, 1);
    let other = store.clone();
    store.close().unwrap();
    let error = other.backup(io::sink()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "{error}");
}
