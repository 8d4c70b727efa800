//! The files of the log: making, listing, forgetting them.

use std::io;
use std::path::Path;
use std::sync::Arc;

use annals_format::limits::{WAL_BYTES_MAX, WAL_BYTES_MIN};
use annals_format::name::{FileName, UNFINISHED, WAL_DIR};
use annals_format::sector::PAGE_BYTES;
use annals_format::{FileKind, WalFile};

use super::WalContext;
use super::ahead::Ahead;
use crate::error::{Error, Result};
use crate::sync::plain::{Mutex, lock};
use crate::vfs::{DirEntry, File};

/// How much is copied or compared at once.
const CHUNK_BYTES: usize = 1 << 20;

/// A file of the log, and how far it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogFile {
    /// What the manifest says about it.
    pub(crate) file: WalFile,
    /// The seq of the last frame in it, or of the last before it if it holds none. The file is no
    /// longer needed once everything up to here is in segments. `u64::MAX` while it is written.
    pub(crate) last_seq: u64,
}

/// The files the log consists of, and the spare one: shared by the writer, the background worker
/// that makes the spare, commits, which see that there is room for them, and whoever writes manifests.
#[derive(Debug)]
pub(crate) struct WalFiles {
    context: WalContext,
    listed: Mutex<Vec<LogFile>>,
    /// The next file, and how far the log can go.
    pub(super) ahead: Ahead,
}

impl WalFiles {
    /// The files that recovery found, oldest first, none for a new store; the log goes on in file `next`.
    pub(crate) fn new(context: WalContext, recovered: Vec<LogFile>, next: u64) -> Arc<Self> {
        let ahead = Ahead::new((next, first_file_bytes(&context)));
        Arc::new(Self { context, listed: Mutex::new(recovered), ahead })
    }

    /// The log these files belong to.
    pub(crate) const fn context(&self) -> &WalContext {
        &self.context
    }

    /// The files for the manifest, oldest first.
    pub(crate) fn listed(&self) -> Vec<WalFile> {
        lock(&self.listed).iter().map(|log| log.file).collect()
    }

    /// The numbers of the files whose frames are all in segments. [Forget](Self::forget) them once a manifest without
    /// them is in force, and then [remove](Self::remove) them.
    pub(crate) fn dispensable(&self, flushed_seq: u64) -> Vec<u64> {
        let listed = lock(&self.listed);
        let needed = listed.iter().position(|log| log.last_seq > flushed_seq);
        listed.iter().take(needed.unwrap_or(0)).map(|log| log.file.number).collect()
    }

    /// Drops files from the list.
    pub(crate) fn forget(&self, numbers: &[u64]) {
        lock(&self.listed).retain(|log| !numbers.contains(&log.file.number));
    }

    /// Removes files that no manifest lists any more. A file that is gone already is fine.
    ///
    /// # Errors
    /// The first removal that the system refuses; the rest is tried all the same.
    pub(crate) fn remove(&self, numbers: &[u64]) -> Result<()> {
        let mut outcome = Ok(());
        for &number in numbers {
            outcome = outcome.and(remove_if_there(&self.context, &self.context.path(number)));
        }
        outcome
    }

    /// Adds the file that is written from now on.
    pub(super) fn push(&self, file: WalFile) {
        lock(&self.listed).push(LogFile { file, last_seq: u64::MAX });
    }

    /// Notes where the file that was being written ended.
    pub(super) fn end_last(&self, end: u64, last_seq: u64) {
        if let Some(last) = lock(&self.listed).last_mut() {
            last.file.end = Some(end);
            last.last_seq = last_seq;
        }
    }
}

/// How long the first file of a session is: small, so that a store opened for one commit is cheap.
pub(super) fn first_file_bytes(context: &WalContext) -> u64 {
    (256 << 10).min(usual_file_bytes(context))
}

/// How long the file after one of `bytes` is: twice that, up to the size configured.
pub(super) fn next_file_bytes(context: &WalContext, bytes: u64) -> u64 {
    bytes.saturating_mul(2).min(usual_file_bytes(context))
}

fn usual_file_bytes(context: &WalContext) -> u64 {
    let bytes = context.wal_bytes.clamp(WAL_BYTES_MIN, WAL_BYTES_MAX);
    bytes.next_multiple_of(PAGE_BYTES as u64)
}

/// Makes file `number`: full of zeros under another name, synced, renamed, the name synced. So a
/// file with the right name is complete.
pub(super) fn make_zeroed(context: &WalContext, number: u64, bytes: u64) -> Result<Arc<dyn File>> {
    let file = make_unfinished(context, number, bytes)?;
    rename_finished(context, number)?;
    sync_dir(context)?;
    Ok(file)
}

/// The first half of it, which touches nothing that has the right name.
pub(super) fn make_unfinished(
    context: &WalContext,
    number: u64,
    bytes: u64,
) -> Result<Arc<dyn File>> {
    if bytes > WAL_BYTES_MAX {
        let what =
            format!("a batch needs a WAL file of {bytes} bytes; {WAL_BYTES_MAX} is the most");
        return Err(Error::invalid(what));
    }
    let unfinished = context.unfinished_path(number);
    remove_if_there(context, &unfinished)?;
    let file =
        context.vfs.create(&unfinished).map_err(|error| Error::io("create", &unfinished, error))?;
    fill(context, &unfinished, &*file, bytes).inspect_err(|_| {
        // On a full disk others need what it takes.
        let _ = context.vfs.remove_if_there(&unfinished);
    })?;
    Ok(file)
}

/// Gives the file its name, which is durable with the next [`sync_dir`]. Another file of this name is gone then.
pub(super) fn rename_finished(context: &WalContext, number: u64) -> Result<()> {
    let unfinished = context.unfinished_path(number);
    let renamed = context.vfs.rename(&unfinished, &context.path(number));
    renamed.map_err(|error| Error::io("rename", &unfinished, error))
}

/// Gives a new file its length, and space for all of it; it reads as zeros.
fn fill(context: &WalContext, path: &Path, file: &dyn File, bytes: u64) -> Result<()> {
    if !context.quick_syncs {
        let allocated = file.allocate(bytes);
        if allocated.map_err(|error| Error::io("allocate", path, error))? {
            return file.sync_all().map_err(|error| Error::io("sync", path, error));
        }
    }
    write_zeros(path, file, 0, bytes)
}

/// Writes zeros from `start` to `end` and syncs: real blocks, so that appending later allocates
/// nothing.
pub(super) fn write_zeros(path: &Path, file: &dyn File, start: u64, end: u64) -> Result<()> {
    const CHUNK: usize = 256 << 10;
    static ZEROS: [u8; CHUNK] = [0; CHUNK];
    let mut offset = start;
    while offset < end {
        let count = CHUNK.min(usize::try_from(end - offset).unwrap_or(CHUNK));
        let zeros = ZEROS.get(..count).unwrap_or(&ZEROS);
        file.write_all_at(zeros, offset).map_err(|error| Error::io("write", path, error))?;
        // A sync of the log in use would wait behind a whole file of zeros.
        file.write_back(offset..offset + count as u64);
        offset += count as u64;
    }
    file.sync_all().map_err(|error| Error::io("sync", path, error))
}

/// Makes the names in the log's directory durable.
pub(super) fn sync_dir(context: &WalContext) -> Result<()> {
    let dir = context.wal_dir();
    context.vfs.sync_dir(&dir).map_err(|error| Error::io("sync directory", &dir, error))
}

/// Removes a file that may be gone already.
pub(super) fn remove_if_there(context: &WalContext, path: &Path) -> Result<()> {
    context.vfs.remove_if_there(path).map_err(|error| Error::io("remove", path, error))
}

/// For a store that is being made: removes what a crash left of an earlier start, files of zeros
/// at most.
///
/// # Errors
/// The system refuses to list or remove.
pub(crate) fn remove_leftovers(context: &WalContext) -> Result<()> {
    let Listing { files, unfinished } = list(context)?;
    let numbered = files.iter().map(|(number, _)| context.path(*number));
    let unfinished = unfinished.iter().map(|name| context.wal_dir().join(name));
    for path in numbered.chain(unfinished) {
        remove_if_there(context, &path)?;
    }
    Ok(())
}

fn is_unfinished(entry: &DirEntry) -> bool {
    let finished = entry.name.strip_suffix(UNFINISHED);
    let name = finished.and_then(|name| FileName::parse(&format!("{WAL_DIR}/{name}")));
    name.is_some_and(|name| name.kind == FileKind::Wal) && !entry.is_dir
}

/// What lies in the log's directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Numbers and lengths of the WAL files, ascending.
    pub(super) files: Vec<(u64, u64)>,
    /// Names of files that were never finished.
    pub(super) unfinished: Vec<String>,
}

/// Lists the log's directory; one that does not exist is empty.
pub(super) fn list(context: &WalContext) -> Result<Listing> {
    let dir = context.wal_dir();
    let entries = match context.vfs.list(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Listing::default()),
        Err(error) => return Err(Error::io("list", &dir, error)),
    };
    let mut listing = Listing::default();
    for entry in entries {
        match FileName::parse(&format!("{WAL_DIR}/{}", entry.name)) {
            Some(name) if name.kind == FileKind::Wal && !entry.is_dir => {
                listing.files.push((name.number, entry.bytes));
            }
            _ if is_unfinished(&entry) => listing.unfinished.push(entry.name),
            // Not a name this store would give: not ours to touch.
            _ => {}
        }
    }
    listing.files.sort_unstable();
    Ok(listing)
}

/// Reads a piece of a file in chunks, and hands them over with their offsets.
pub(super) fn for_chunks(
    path: &Path,
    file: &dyn File,
    start: u64,
    end: u64,
    visit: &mut dyn FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let mut buffer = Vec::new();
    let mut offset = start;
    while offset < end {
        let count = usize::try_from(end - offset).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        buffer.resize(count, 0);
        file.read_exact_at(&mut buffer, offset).map_err(|error| Error::io("read", path, error))?;
        visit(&buffer, offset)?;
        offset += count as u64;
    }
    Ok(())
}
