//! A whole directory: opened, read, verified and, on a copy, written to.
//!
//! Whatever the bytes are, opening for reading changes nothing on the disk, and every answer is a
//! value or a typed error.

use std::path::Path;
use std::sync::Arc;

use annals::vfs::{CrashMode, MemoryVfs, Vfs};
use annals::{Error, ErrorKind, Options, Result, Store};
use annals_format::current::{Current, CurrentFile};
use annals_format::name::FileName;
use annals_format::{ContentHash, FileKind, Manifest, Place, WalFile};

use crate::archive::{self, Files};
use crate::input::Input;
use crate::{FIX, STORE, fix, wal};

/// Flag: open a copy for writing, too.
const WRITE: u8 = 2;
/// Flag: read without maps.
const PREAD: u8 = 4;

/// Where the store lies on the simulated disk.
pub(crate) const DIR: &str = "store";

/// An archive of a store's directory. True if it could be opened.
pub(crate) fn open(data: &[u8]) -> bool {
    let mut input = Input(data);
    let flags = input.byte();
    let mut files = archive::unpack(input.0);
    if flags & FIX != 0 {
        let _ = fix_directory(&mut files);
    }
    try_files(&files, flags)
}

/// A log file as the only content of a store.
pub(crate) fn recover_wal(bytes: &[u8], flags: u8) {
    let mut manifest = Manifest::new(STORE);
    manifest.number = 1;
    manifest.next_file = 2;
    let file_bytes = bytes.len() as u64;
    manifest.wal.push(WalFile { number: wal::FILE, incarnation: 1, file_bytes, end: None });
    let (manifest, stamp) = manifest.encode();
    let current = CurrentFile::encode(&Current { store: STORE, manifest: stamp }, &manifest);
    let name = |kind, number| path_of(FileName::new(kind, number));
    let files = vec![
        ("CURRENT".to_owned(), current),
        (name(FileKind::Manifest, 1), manifest),
        (name(FileKind::Wal, wal::FILE), bytes.to_vec()),
    ];
    try_files(&files, flags);
}

fn path_of(name: FileName) -> String {
    match name.directory() {
        "" => name.base(),
        directory => format!("{directory}/{}", name.base()),
    }
}

/// The disk these files lie on.
fn disk(files: &Files) -> MemoryVfs {
    let disk = MemoryVfs::new();
    for directory in [DIR.to_owned(), format!("{DIR}/wal"), format!("{DIR}/seg")] {
        disk.create_dir_all(Path::new(&directory)).expect("an empty disk");
    }
    for (name, bytes) in files {
        let path = format!("{DIR}/{name}");
        let parent = Path::new(&path).parent().expect("it lies in a directory");
        if disk.create_dir_all(parent).is_ok() && !["wal", "seg"].contains(&name.as_str()) {
            disk.overwrite(Path::new(&path), bytes);
        }
    }
    disk
}

/// The files on a disk, as an archive has them.
pub(crate) fn files_of(disk: &MemoryVfs) -> Files {
    let within = |path: &String| Some(path.strip_prefix(DIR)?.strip_prefix('/')?.to_owned());
    let paths = disk.paths();
    let names = paths.iter().filter_map(|path| Some((path, within(path)?)));
    names.map(|(path, name)| (name, disk.read(Path::new(path)).expect("listed"))).collect()
}

/// Small limits, no worker, nothing of the machine.
pub(crate) fn options(disk: &MemoryVfs) -> Options {
    Options::new()
        .vfs(Arc::new(disk.clone()))
        .background(false)
        .memtable_bytes(16 << 10)
        .wal_bytes(64 << 10)
        .segment_bytes(8 << 10)
        .block_bytes(512)
        .history_block_bytes(1024)
        .cache_bytes(64 << 10)
        .l0_files_max(2)
        .history_windows_max(2)
        .blob_value_bytes(64)
        .store_id_seed(7)
}

fn try_files(files: &Files, flags: u8) -> bool {
    let disk = disk(files);
    let mut options = options(&disk).create(false);
    if flags & PREAD != 0 {
        options = options.read_mode(annals::ReadMode::Pread);
    }
    let before = files_of(&disk);
    let checked = annals::check(DIR, &options, &mut |_, _| ());
    let clean = checked.as_ref().is_ok_and(|report| report.damage.is_empty());
    let (opened, errors) = match Store::open_read_only_with(DIR, &options) {
        Ok(store) => (true, read_everything(&store)),
        Err(error) => (false, vec![error]),
    };
    for error in &errors {
        assert!(!error.to_string().is_empty());
        let corrupt = matches!(error.kind(), ErrorKind::Corrupt(_));
        assert!(!(clean && corrupt), "the check saw no damage: {error}");
    }
    assert_eq!(files_of(&disk), before, "reading changed the disk");
    if flags & WRITE != 0 {
        write_to(&disk.crash(0, CrashMode::KeepAll), flags);
    }
    opened
}

/// Asks for everything, within bounds; answers the errors.
fn read_everything(store: &Store) -> Vec<Error> {
    let mut errors = Vec::new();
    let (first, last) = (store.compacted_revision().max(1), store.revision());
    for revision in [last, first, first.midpoint(last)] {
        let view = match store.at(revision) {
            Ok(view) => view,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        let mut keys = Vec::new();
        for kv in taken(view.range(..), &mut errors) {
            assert!(kv.mod_revision <= revision && kv.create_revision <= kv.mod_revision);
            keys.push(kv.key);
        }
        assert!(keys.is_sorted_by(|a, b| a < b), "keys ascend");
        taken(view.range(..).rev(), &mut errors);
        for key in keys.iter().take(50) {
            errors.extend(view.get(key).err());
            let versions = taken(store.history(key), &mut errors);
            let descends = versions.is_sorted_by(|a, b| a.mod_revision > b.mod_revision);
            assert!(descends, "a history descends");
        }
    }
    match store.diff(first, last, ..) {
        Ok(differences) => drop(taken(differences, &mut errors)),
        Err(error) => errors.push(error),
    }
    taken(store.log(..), &mut errors);
    errors.extend(store.lease_list().err());
    errors
}

/// What an iterator gives, within bounds; its errors go to the others.
fn taken<T>(iter: impl Iterator<Item = Result<T>>, errors: &mut Vec<Error>) -> Vec<T> {
    let mut items = Vec::new();
    for item in iter.take(5000) {
        match item {
            Ok(item) => items.push(item),
            Err(error) => errors.push(error),
        }
    }
    items
}

/// Recovers, writes, closes; what was written is there again.
fn write_to(disk: &MemoryVfs, flags: u8) {
    let options = options(disk);
    let Ok(store) = Store::open_with(DIR, &options) else { return };
    let Ok(commit) = store.put("fuzz", [flags]) else { return };
    for _ in 0..50 {
        if !store.run_background().unwrap_or(false) {
            break;
        }
    }
    if store.close().is_err() {
        return;
    }
    let Ok(again) = Store::open_read_only_with(DIR, &options) else {
        panic!("a store that was closed in good order opens again");
    };
    assert_eq!(again.revision(), commit.revision);
    let kv = again.get("fuzz").expect("just written").expect("just written");
    assert_eq!((kv.value.as_ref(), kv.mod_revision), (&[flags][..], commit.revision));
}

/// Makes right: what is inside the segments and the log, then what the manifest says of the
/// segments, then the manifest, then `CURRENT`.
fn fix_directory(files: &mut Files) -> Option<()> {
    let current = files.iter().find(|file| file.0 == "CURRENT")?;
    let store = CurrentFile::decode(&current.1).map_or(STORE, |file| file.current.store);
    for (name, bytes) in files.iter_mut() {
        let Some(FileName { kind, number, .. }) = FileName::parse(name) else { continue };
        let _ = match kind {
            FileKind::Wal => fix::wal_file(bytes, store, number),
            FileKind::Manifest => fix::manifest(bytes),
            FileKind::Current => None,
            _ => fix::segment_file(bytes, &Place::start_of(store, kind, number)),
        };
    }
    let newest = files.iter().rposition(|file| file.0.starts_with("MANIFEST"))?;
    let mut manifest = Manifest::decode(&files.get(newest)?.1).ok()?;
    for meta in &mut manifest.files {
        let name = path_of(FileName::new(meta.kind, meta.number));
        if let Some((_, bytes)) = files.iter().find(|file| file.0 == name) {
            meta.bytes = bytes.len() as u64;
            meta.hash = ContentHash::of(bytes);
        }
    }
    let (bytes, stamp) = manifest.encode();
    let current = Current { store: manifest.store, manifest: stamp };
    let current = CurrentFile::encode(&current, &bytes);
    files.get_mut(newest)?.1 = bytes;
    files.iter_mut().find(|file| file.0 == "CURRENT")?.1 = current;
    Some(())
}
