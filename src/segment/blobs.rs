//! Large values of newest versions, which lie in files of their own.
//!
//! An entry of L0 or HEAD may say that its value is that of the entry with the same key and revision in a blob
//! file. When the entry is written to another file it goes on to refer to the same value, which is not written
//! again.

use std::sync::Arc;

use annals_format::entry::{BlobRef, EntryRef};
use bytes::Bytes;

use super::blocks::Caching;
use super::opened::Opened;
use super::reader::{Segment, Version};
use super::verify::reported;
use crate::error::{Corruption, Error, Result};

impl Segment {
    /// Checks that every value that an entry refers to is where it says, and hands out what is wrong with the entries. Damage
    /// of a blob file is for the check of that file to tell. Reads all values.
    ///
    /// # Errors
    /// Only if a file cannot be read.
    pub(crate) fn verify_blobs(self: &Arc<Self>, report: &mut dyn FnMut(Corruption)) -> Result<()> {
        if self.meta().blobs.is_empty() {
            return Ok(());
        }
        let mut cursor = self.cold_cursor();
        cursor.seek_first()?;
        while let Some(entry) = cursor.entry() {
            if entry.blob.is_some() {
                reported(cursor.value(), &mut |damage| {
                    if damage.file == self.path() {
                        report(damage);
                    }
                })?;
            }
            cursor.next()?;
        }
        Ok(())
    }
}

impl Opened {
    /// The value that an entry of this file refers to, which stands in the block at `offset`.
    ///
    /// # Errors
    /// Corruption if it is not where the entry says; what reading the other file answers.
    pub(super) fn blob_value(
        &self,
        offset: u64,
        key: &[u8],
        (fields, blob): (&EntryRef<'_>, BlobRef),
        caching: Caching,
    ) -> Result<Bytes> {
        let at = self.blobs.binary_search_by_key(&blob.file, |file| file.meta().number);
        let Some(file) = at.ok().and_then(|at| self.blobs.get(at)) else {
            return Err(self.unfounded(
                offset,
                blob,
                "a file that the manifest does not name for it",
            ));
        };
        let found = file.open()?.find_unfiltered(key, caching)?;
        let Some(Version { value, revision, create_revision, version, .. }) = found else {
            return Err(self.unfounded(offset, blob, "a file without the key"));
        };
        let is_it = revision == fields.revision
            && (create_revision, version) == (fields.create_revision, fields.version)
            && value.len() as u64 == blob.bytes;
        if is_it { Ok(value) } else { Err(self.unfounded(offset, blob, "another version")) }
    }

    #[cold]
    fn unfounded(&self, offset: u64, blob: BlobRef, found: &str) -> Error {
        let expected = format!("a value of {} bytes in blob file {}", blob.bytes, blob.file);
        self.corrupt(offset, "entry: blob_file", &expected, found)
    }
}
