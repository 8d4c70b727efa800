//! The copy of a store of which only the log, or the past, is damaged.

use std::borrow::Cow;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read as _};
use std::path::Path;

use annals::inspect::{PutTogether, StoreFiles, WalPart};
use annals_format::current::{Current, CurrentFile};
use annals_format::name::{CURRENT, FileName, SEGMENT_DIR, WAL_DIR};
use annals_format::{FileKind, FileMeta, Manifest, WalFile};

use super::anew::Anew;
use super::kept::Kept;
use super::{Damaged, Repaired, write_new};
use crate::exit::{Failure, Outcome};
use crate::files::walk;
use crate::progress::Progress;

/// What is kept of a file of the log.
#[derive(Debug)]
struct KeptLog {
    name: FileName,
    /// Where a seal begins that is not true of the copy.
    cut: Option<u64>,
    /// The length that it was made with.
    made: u64,
}

/// Makes the copy in a directory that is claimed, and answers what it has of files that are damaged; `None` where it cannot
/// be made.
pub(super) fn copy(
    data: &Path,
    target: &PutTogether,
    files: &StoreFiles,
    damaged: &Damaged,
) -> Outcome<Option<(Repaired, Kept)>> {
    let to = target.path();
    let mut repaired = Repaired::by("copy");
    let mut manifest = files.manifest().clone();
    let log = if damaged.has(&[FileKind::Wal]) { None } else { log(files, &mut repaired)? };
    let log = match log {
        Some(whole) => Log::Whole(whole),
        None => Log::Anew(Anew::read(files, &mut repaired)?),
    };
    let is_damaged =
        |meta: &FileMeta| damaged.files.contains(&FileName::new(meta.kind, meta.number));
    let (damaged_files, kept): (Vec<_>, Vec<_>) =
        std::mem::take(&mut manifest.files).into_iter().partition(is_damaged);
    let mut anew = Kept::default();
    for meta in &damaged_files {
        let to = (meta, manifest.next_file);
        if !matches!(meta.kind, FileKind::L0 | FileKind::Head) {
            anew.file(target, files, to, &mut repaired)?;
        } else if !anew.newest(target, files, to, &mut repaired)? {
            return Ok(None);
        }
        manifest.next_file += 1;
    }
    let mut progress = Progress::new(Some(kept.iter().map(|meta| meta.bytes).sum()), "bytes");
    let mut done = 0;
    for meta in &kept {
        let name = FileName::new(meta.kind, meta.number);
        let (from, to) = (data.join(name.to_string()), to.join(name.to_string()));
        let failed = |error| Failure::io(name.to_string(), error);
        fs::copy(&from, &to).map_err(failed)?;
        File::open(&to).and_then(|file| file.sync_all()).map_err(failed)?;
        repaired.note(name, meta.bytes, "copied", "");
        done += meta.bytes;
        progress.set(done, || Cow::Borrowed("copied"));
    }
    drop(progress);
    manifest.files = kept;
    manifest.files.append(&mut anew.files);
    match &log {
        Log::Whole(kept) => {
            manifest.wal = wal(kept, &manifest);
            for kept in kept {
                write_log(data, to, kept)?;
            }
        }
        Log::Anew(anew) => manifest.wal = vec![anew.write(to, &manifest)?],
    }
    put_in_force(to, &mut manifest)?;
    Ok(Some((repaired, anew)))
}

/// The log of the copy.
#[derive(Debug)]
enum Log {
    /// The files as they are, but for the last seal.
    Whole(Vec<KeptLog>),
    /// Written anew, of what can be read.
    Anew(Anew),
}

/// The files of the log; `None` where something of them is damaged.
fn log(files: &StoreFiles, repaired: &mut Repaired) -> Outcome<Option<Vec<KeptLog>>> {
    let names = crate::files::in_force(files).filter(|(name, _)| name.kind == FileKind::Wal);
    let mut kept: Vec<KeptLog> = Vec::new();
    let mut damaged = false;
    for (name, _) in names {
        let mut found = KeptLog { name, cut: None, made: 0 };
        walk(|step| {
            files.wal(name.number, &mut |offset, _, part| {
                match part {
                    WalPart::FileHeader(header) => found.made = header.file_bytes,
                    WalPart::Damage(_) => damaged = true,
                    WalPart::Seal(_) => found.cut = Some(offset),
                    _ => {}
                }
                step(Ok(())).map(|_| ())
            })
        })?;
        kept.push(found);
    }
    if damaged {
        return Ok(None);
    }
    for kept in &kept {
        repaired.note(kept.name, files.file_bytes(kept.name).unwrap_or(0), "copied", "");
    }
    // The last one goes on nowhere, and was closed by nobody: a seal names the manifest of the original. Those of the
    // others, which say what file comes next, are true.
    if let Some((_, others)) = kept.split_last_mut() {
        for kept in others {
            kept.cut = None;
        }
    }
    Ok(Some(kept))
}

/// The log as the manifest lists it. What follows the last one listed is found by itself.
fn wal(log: &[KeptLog], manifest: &Manifest) -> Vec<WalFile> {
    let mut listed: Vec<WalFile> = manifest
        .wal
        .iter()
        .filter(|file| log.iter().any(|kept| kept.name.number == file.number))
        .copied()
        .collect();
    for file in &mut listed {
        let kept = log.iter().find(|kept| kept.name.number == file.number);
        if kept.is_some_and(|kept| kept.cut.is_some()) {
            file.end = None;
        }
    }
    listed
}

fn write_log(data: &Path, to: &Path, kept: &KeptLog) -> Outcome {
    let name = kept.name.to_string();
    let content = File::open(data.join(&name)).map_err(|error| Failure::io(&name, error))?;
    let to = to.join(&name);
    let Some(cut) = kept.cut else { return write_new(&to, content) };
    // Never written from there on, as where a machine has stopped. A file that was closed is shorter than it
    // was made.
    let zeros = io::repeat(0).take(kept.made.saturating_sub(cut));
    write_new(&to, content.take(cut).chain(zeros))
}

/// Writes the manifest, and the file that says that it is the one in force.
fn put_in_force(to: &Path, manifest: &mut Manifest) -> Outcome {
    manifest.number = manifest.next_file;
    manifest.next_file += 1;
    // What is written to it is another history, also than that of the original when it is opened again.
    let by_chance = RandomState::new().build_hasher().finish() >> 32;
    manifest.incarnation += 1 + by_chance;
    manifest.closed = false;
    manifest.revision_floor = manifest.revision_floor.min(manifest.flushed_revision);
    let (bytes, stamp) = manifest.encode();
    let name = FileName::new(FileKind::Manifest, manifest.number);
    write_new(&to.join(name.to_string()), &bytes[..])?;
    let current = Current { store: manifest.store, manifest: stamp };
    write_new(&to.join(CURRENT), &CurrentFile::encode(&current, &bytes)[..])?;
    for directory in [SEGMENT_DIR, WAL_DIR, ""] {
        let directory = to.join(directory);
        let synced = File::open(&directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| Failure::io(directory.display().to_string(), error))?;
    }
    Ok(())
}
