//! The commands that look into the files: inspect and dump. They open no store: they read the
//! manifest and walk over the files it lists, and see what is there, damage included.

mod damaged;
mod dump;
mod entries;
mod find;
mod frames;
mod inspect;
mod lists;
mod manifest;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use annals::inspect::StoreFiles;
use annals::{Error, Result as EngineResult};
use annals_format::name::FileName;
use annals_format::space::Key;
use annals_format::{FileKind, FileMeta};

use crate::args::Global;
use crate::exit::{Failure, Outcome};

pub(crate) use damaged::{DamagedKeys, damaged_keys};
pub(crate) use dump::{DumpArgs, dump};
pub(crate) use find::{FindArgs, find_key};
pub(crate) use inspect::{InspectArgs, inspect};
pub(crate) use lists::{ManifestArgs, SegmentsArgs, WalArgs, manifest_of, segments, wal};

/// Opens the files of the store.
pub(crate) fn open(global: &Global) -> Outcome<StoreFiles> {
    Ok(StoreFiles::open(global.data()?, &global.engine_options()?)?)
}

/// Finds the file that a user means: by its path in the store, its path from here, or its name
/// alone.
fn find(files: &StoreFiles, data: &Path, named: &OsStr) -> Outcome<FileName> {
    let named = Path::new(named);
    let inside = within(data, named);
    let inside = inside.to_string_lossy();
    let found = files.names().find(|name| name.to_string() == inside || name.base() == inside);
    found.ok_or_else(|| {
        Failure::NotFound(format!("{}: the store has no such file", named.display()))
    })
}

/// A path below the store's directory, however it was written.
fn within(data: &Path, named: &Path) -> PathBuf {
    let real = |path: &Path| path.canonicalize();
    // A file that is missing has no real path: then the words have to do.
    let words = |path: &Path| std::path::absolute(path);
    for (data, named) in
        [(real(data), real(named)), (words(data), words(named))].into_iter().filter_map(both)
    {
        if let Ok(inside) = named.strip_prefix(&data) {
            return inside.to_path_buf();
        }
    }
    named.components().filter(|part| *part != Component::CurDir).collect()
}

fn both<T, E>((one, two): (Result<T, E>, Result<T, E>)) -> Option<(T, T)> {
    Some((one.ok()?, two.ok()?))
}

/// The WAL files that are there, and those that should be.
pub(crate) fn logs(files: &StoreFiles) -> Vec<FileName> {
    let there = files.names().filter(|name| name.kind == FileKind::Wal);
    let listed = files.manifest().wal.iter().map(|file| FileName::new(FileKind::Wal, file.number));
    let names: BTreeSet<FileName> = there.chain(listed).collect();
    names.into_iter().collect()
}

/// Where a file of the log ends: what lies behind that a recovery has dropped.
pub(crate) fn log_end(files: &StoreFiles, name: FileName) -> u64 {
    let listed = files.manifest().wal.iter().find(|file| file.number == name.number);
    listed.and_then(|file| file.end).unwrap_or(u64::MAX)
}

/// What `disk_bytes` means in everything the tool writes: the length of all files of the store's that
/// lie in its directory, those included that are still to be removed.
pub(crate) fn disk_bytes(files: &StoreFiles) -> u64 {
    files.names().filter_map(|name| files.file_bytes(name)).sum()
}

/// The files of the log and their bytes, as they lie on disk.
pub(crate) fn log_extent(files: &StoreFiles) -> [u64; 2] {
    let logs = in_force(files).filter(|(name, _)| name.kind == FileKind::Wal);
    logs.fold([0, 0], |[count, all], (_, bytes)| [count + 1, all + bytes])
}

/// The files the store is made of, with their lengths: those that its manifest lists, and what leads
/// to it. Anything else in the directories is left over and never read.
pub(crate) fn in_force(files: &StoreFiles) -> impl Iterator<Item = (FileName, u64)> {
    let manifest = files.manifest();
    let listed = |name: &FileName| match name.kind {
        FileKind::Current => true,
        FileKind::Manifest => name.number == manifest.number,
        // A writer goes on in files that the manifest does not list yet.
        FileKind::Wal => manifest.wal.iter().any(|file| file.number <= name.number),
        kind => manifest.files.iter().any(|file| file.kind == kind && file.number == name.number),
    };
    files.names().filter(listed).map(|name| (name, files.file_bytes(name).unwrap_or(0)))
}

/// What the manifest says of a segment file.
fn meta(files: &StoreFiles, name: FileName) -> Outcome<&FileMeta> {
    let listed = files.manifest().files.iter();
    let mut listed = listed.filter(|meta| meta.kind == name.kind && meta.number == name.number);
    listed.next().ok_or_else(|| {
        Failure::Other(format!("{name}: not listed in the manifest, so not part of the store"))
    })
}

/// The name of a segment file.
fn name_of(meta: &FileMeta) -> FileName {
    FileName::new(meta.kind, meta.number)
}

/// Runs a walk whose steps can fail in the tool's own ways.
pub(crate) fn walk(
    run: impl FnOnce(&mut dyn FnMut(Outcome) -> EngineResult<bool>) -> EngineResult<()>,
) -> Outcome {
    let mut failure = None;
    let walked = run(&mut |step| match step {
        Ok(()) => Ok(true),
        Err(failed) => {
            failure = Some(failed);
            Err(Error::invalid("stopped"))
        }
    });
    match failure {
        Some(failure) => Err(failure),
        None => Ok(walked?),
    }
}

/// How internal keys are shown: users' keys as they are, the system's decoded.
fn key_json(kind: FileKind, key: &[u8]) -> serde_json::Value {
    if kind == FileKind::Events {
        let revision = key.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        return serde_json::json!({ "revision": revision });
    }
    match Key::decode(key) {
        Ok(Key::User(user)) => crate::bytes::json(user),
        _ => serde_json::json!({ "system": system_key(key) }),
    }
}

/// A key of the system's space in words.
fn system_key(key: &[u8]) -> String {
    match Key::decode(key) {
        Ok(Key::Lease { id }) => format!("lease {id}"),
        Ok(Key::Attachment { id, key }) => {
            format!("lease {id} holds {}", crate::bytes::show(key, 200))
        }
        Ok(Key::Compacted) => "compacted to 0".to_owned(),
        Ok(Key::Retention { prefix }) => {
            format!("retention of {}", crate::bytes::show(prefix, 200))
        }
        _ => crate::bytes::show(key, 200),
    }
}

/// An internal key in a cell.
pub(crate) fn key_cell(kind: FileKind, key: &[u8], max: usize) -> String {
    if kind == FileKind::Events {
        let revision = key.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        return format!("revision {revision}");
    }
    match Key::decode(key) {
        Ok(Key::User(user)) => crate::bytes::show(user, max),
        _ => format!("({})", system_key(key)),
    }
}
