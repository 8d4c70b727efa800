//! Files of the log that nothing names.

use std::io;

use annals_format::Manifest;
use annals_format::cursor::is_zero;

use super::WalContext;
use super::files::{Listing, for_chunks};
use crate::error::{Error, Result};
use crate::vfs::Access;

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
