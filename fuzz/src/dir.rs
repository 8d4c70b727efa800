//! A whole directory: opened, read, verified and, on a copy, written to.
//!
//! Whatever the bytes are, opening for reading changes nothing on the disk, and every answer is a
//! value or a typed error.

use std::path::Path;
use std::sync::Arc;

use annals::vfs::{CrashMode, MemoryVfs, Vfs};
use annals::{Options, Store};
use annals_format::current::Current;
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
    manifest.wal.push(WalFile { number: wal::FILE, file_bytes, end: None });
    let (manifest, stamp) = manifest.encode();
    let current = Current { store: STORE, manifest: stamp }.encode();
    let name = |kind, number| path_of(FileName::new(kind, number));
    let files = vec![
        ("CURRENT".to_owned(), current.to_vec()),
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
        .wal_bytes(8 << 10)
        .segment_bytes(8 << 10)
        .block_bytes(512)
        .history_block_bytes(1024)
        .cache_bytes(64 << 10)
        .l0_files_max(2)
        .history_windows_max(2)
        .store_id_seed(7)
}

fn try_files(files: &Files, flags: u8) -> bool {
    let disk = disk(files);
    let mut options = options(&disk).create(false);
    if flags & PREAD != 0 {
        options = options.read_mode(annals::ReadMode::Pread);
    }
    let before = files_of(&disk);
    let opened = match Store::open_read_only_with(DIR, &options) {
        Ok(store) => {
            read_everything(&store);
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    };
    assert_eq!(files_of(&disk), before, "reading changed the disk");
    if flags & WRITE != 0 {
        write_to(&disk.crash(0, CrashMode::KeepAll), flags);
    }
    opened
}

/// Asks for everything, within bounds; errors are answers.
fn read_everything(store: &Store) {
    const MOST: usize = 5000;
    let (first, last) = (store.compacted_revision().max(1), store.revision());
    for revision in [last, first, first.midpoint(last)] {
        let Ok(view) = store.at(revision) else { continue };
        let mut keys = Vec::new();
        for kv in view.range(..).take(MOST) {
            let Ok(kv) = kv else { break };
            assert!(kv.mod_revision <= revision && kv.create_revision <= kv.mod_revision);
            keys.push(kv.key);
        }
        assert!(keys.is_sorted_by(|a, b| a < b), "keys ascend");
        let _ = view.range(..).rev().take(MOST).filter(Result::is_err).count();
        for key in keys.iter().take(50) {
            let _ = view.get(key);
            let versions = store.history(key).take(MOST);
            let revisions: Vec<u64> =
                versions.map_while(Result::ok).map(|version| version.mod_revision).collect();
            assert!(revisions.is_sorted_by(|a, b| a > b), "a history descends");
        }
    }
    if let Ok(differences) = store.diff(first, last, ..) {
        let _ = differences.take(MOST).filter(Result::is_err).count();
    }
    let _ = store.log(..).take(MOST).filter(Result::is_err).count();
    let _ = store.lease_list();
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
    let store = Current::decode(&current.1).map_or(STORE, |current| current.store);
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
    files.get_mut(newest)?.1 = bytes;
    let current = files.iter_mut().find(|file| file.0 == "CURRENT")?;
    current.1 = Current { store: manifest.store, manifest: stamp }.encode().to_vec();
    Some(())
}
