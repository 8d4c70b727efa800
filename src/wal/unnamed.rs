//! Files of the log that nothing names.

use std::io;
use std::path::Path;

use annals_format::Manifest;
use annals_format::cursor::is_zero;

use super::WalContext;
use super::files::Listing;
use crate::error::{Error, Result};
use crate::vfs::{Access, File};

/// How much is copied or compared at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Files behind the listed ones that hold something. The log has to lead to each of them: by
/// invariant 2 of the room, a file is used only after the one before it has been sealed. Looked at
/// before the log is read, so that a live writer can only make the row longer.
pub(super) fn find_unnamed_data(
    context: &WalContext,
    manifest: &Manifest,
    listing: &Listing,
) -> Result<Vec<(u64, Error)>> {
    let last_listed = manifest.wal.last().map_or(0, |last| last.number);
    let mut found = Vec::new();
    for &(number, bytes) in listing.files.iter().filter(|(number, _)| *number > last_listed) {
        match check_zero(context, number, bytes) {
            Err(error) if error.corruption().is_some() => found.push((number, error)),
            other => other?,
        }
    }
    Ok(found)
}

/// A WAL file that nothing names was never used, so it is zero to its end.
fn check_zero(context: &WalContext, number: u64, bytes: u64) -> Result<()> {
    let path = context.path(number);
    let file = match context.vfs.open(&path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("open", &path, error)),
    };
    for_chunks(&path, &*file, 0, bytes, &mut |bytes, offset| {
        if is_zero(bytes) {
            return Ok(());
        }
        let at = bytes.iter().position(|byte| *byte != 0).unwrap_or(0);
        let (expected, found) = ("zero bytes, as the log does not name it", "other bytes");
        Err(Error::corrupt(&path, offset + at as u64, "spare wal file", expected, found))
    })
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
