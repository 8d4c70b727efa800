//! Looking into WAL files: every byte named, damage shown and stepped over.
//!
//! [`walk`] is for people (`annals dump`, `inspect`) and for `repair`, which takes the frames it
//! can still get; [`verify`] checks the whole log and reports everything that is wrong.

use std::sync::Arc;

use annals_format::batch::BatchHeader;
use annals_format::seal::Seal;
use annals_format::sector::{PAGE_BYTES, SECTOR_BYTES, Sector};
use annals_format::wal_file::WalFileHeader;
use annals_format::{Frame, Manifest, WalFile};

use super::files::list;
use super::found::Found;
use super::reader::WalScan;
use super::{Location, Mode, Recovered, WalContext, recovery};
use crate::error::{Corruption, Error, ErrorKind, Result};
use crate::vfs::{Access, File};

/// A piece of a WAL file.
#[derive(Debug, Clone, PartialEq)]
pub enum WalPart<'a> {
    /// The file's header, in page 0.
    FileHeader(WalFileHeader),
    /// A frame; those of a batch come before the batch itself, which is known good only as a
    /// whole.
    Frame(Frame<'a>, Location),
    /// A batch of frames.
    Batch(BatchHeader),
    /// The file's last batch.
    Seal(Seal),
    /// Zeros, to the end of the file: never written.
    Unwritten,
    /// A batch that was being written when the machine stopped; nobody was told it was durable.
    Torn {
        /// Its sectors that were written.
        sectors: u64,
        /// The first that was not.
        missing: u64,
    },
    /// Bytes that are not what was written.
    Damage(Corruption),
}

/// Reads file `number` up to `limit` bytes and hands over every piece with its offset and length.
/// After damage the walk goes on at the next batch that can be read. A live writer may be at work.
///
/// # Errors
/// The system refused to read, or what `on_part` answers. Damage is a piece, not an error.
pub(crate) fn walk(
    context: &WalContext,
    file: Arc<dyn File>,
    number: u64,
    limit: u64,
    on_part: &mut dyn FnMut(u64, u64, &WalPart<'_>) -> Result<()>,
) -> Result<()> {
    let mut scan = WalScan::over(context, file, number, limit, true);
    let mut header_seen = false;
    loop {
        let start = scan.offset();
        let found = scan.next(&mut |frame, location| {
            on_part(location.offset, location.bytes, &WalPart::Frame(*frame, location))
        });
        if let (false, Some(header)) = (header_seen, scan.header()) {
            header_seen = true;
            on_part(0, PAGE_BYTES as u64, &WalPart::FileHeader(*header))?;
        }
        let start = if header_seen { start.max(PAGE_BYTES as u64) } else { start };
        let end = scan.offset();
        match found {
            Ok(Found::Batch(batch)) => on_part(start, end - start, &WalPart::Batch(batch))?,
            // A walk is not told to pass over any.
            Ok(Found::PassedOver(_)) => {}
            Ok(Found::Seal(_, seal)) => {
                on_part(start, end - start, &WalPart::Seal(seal))?;
                return unwritten(end, limit, on_part);
            }
            Ok(Found::End(tail)) if tail.torn_sectors == 0 => {
                return unwritten(tail.end, limit, on_part);
            }
            Ok(Found::End(tail)) => {
                let (sectors, missing) = (tail.torn_sectors, tail.missing);
                return on_part(tail.end, limit - tail.end, &WalPart::Torn { sectors, missing });
            }
            Err(error) => {
                let damage = damage_of(error)?;
                let next = scan.resync()?;
                let end = next.unwrap_or(limit);
                on_part(start, end.saturating_sub(start), &WalPart::Damage(damage))?;
                if next.is_none() {
                    return Ok(());
                }
            }
        }
    }
}

fn unwritten(
    start: u64,
    limit: u64,
    on_part: &mut dyn FnMut(u64, u64, &WalPart<'_>) -> Result<()>,
) -> Result<()> {
    if start == limit { Ok(()) } else { on_part(start, limit - start, &WalPart::Unwritten) }
}

/// Checks the whole log: every byte of every file, the row of the files, the spare. Writes
/// nothing. Answers the log as it was found, every frame of which behind the flushed ones was handed
/// out; `None` if damage keeps it from being read.
///
/// Beside a live writer, what is missing may be gone because another manifest is in force by now.
///
/// # Errors
/// The system refused to read. Damage is reported, not returned.
pub(crate) fn verify(
    context: &WalContext,
    manifest: &Manifest,
    on_frame: &mut dyn FnMut(&Frame<'_>, Location),
    report: &mut dyn FnMut(Corruption),
) -> Result<Option<Recovered>> {
    let mut first = None;
    let mut hand_out = |frame: &Frame<'_>, location| {
        on_frame(frame, location);
        Ok(())
    };
    let found = recovery::recover(context, manifest, Mode::Verify, &mut hand_out);
    let (found, files) = match found {
        Ok(found) => {
            let files = found.files.iter().map(|log| log.file).collect();
            (Some(found), files)
        }
        Err(error) => {
            let damage = damage_of(error)?;
            report(damage.clone());
            first = Some(damage);
            (None, to_the_end(context, manifest)?)
        }
    };
    // After a first pass without damage only what it does not look at is left to be read.
    let again = first.is_some();
    // The first pass may not know of which revision the damage is, so that is not compared.
    let place = |damage: &Corruption| (damage.file.clone(), damage.offset, damage.found.clone());
    let mut report_new = |damage: Corruption| {
        if first.as_ref().map(place) != Some(place(&damage)) {
            report(damage);
        }
    };
    for file in &files {
        let listed = manifest.wal.iter().find(|listed| listed.number == file.number);
        let recorded_end = listed.and_then(|listed| listed.end);
        verify_file(context, file, recorded_end, again, &mut report_new)?;
    }
    Ok(found)
}

/// The files that a manifest lists, and those behind them: which of these belong to the log is told by the file
/// before each, and so not known behind damage.
fn to_the_end(context: &WalContext, manifest: &Manifest) -> Result<Vec<WalFile>> {
    let mut files = manifest.wal.clone();
    let last = files.last().map_or(0, |last| last.number);
    let incarnation = manifest.incarnation;
    let behind = list(context)?.files.into_iter().filter(|(number, _)| *number > last);
    files.extend(behind.map(|(number, file_bytes)| WalFile {
        number,
        incarnation,
        file_bytes,
        end: None,
    }));
    Ok(files)
}

fn verify_file(
    context: &WalContext,
    file: &WalFile,
    recorded_end: Option<u64>,
    again: bool,
    report: &mut dyn FnMut(Corruption),
) -> Result<()> {
    let path = context.path(file.number);
    let Ok(opened) = context.vfs.open(&path, Access::Read) else {
        // Reported by the pass over the row of the files.
        return Ok(());
    };
    let length = opened.len().map_err(|error| Error::io("read length of", &path, error))?;
    let limit = recorded_end.unwrap_or(length).min(length);
    if again {
        walk(context, Arc::clone(&opened), file.number, limit, &mut |_, _, part| {
            if let WalPart::Damage(damage) = part {
                report(damage.clone());
            }
            Ok(())
        })?;
    }
    // Behind a recorded end lies what recovery dropped and had no time to cut: torn, or nothing.
    let mut scan = WalScan::over(context, opened, file.number, length, true);
    let mut offset = limit;
    while offset < length {
        if let Sector::Rotten { .. } = scan.sector(offset)? {
            let damage = scan.damage(offset, "sector", "a whole sector or none", "other bytes");
            report(damage_of(damage)?);
        }
        offset += SECTOR_BYTES as u64;
    }
    Ok(())
}

fn damage_of(error: Error) -> Result<Corruption> {
    match error.into_kind() {
        ErrorKind::Corrupt(damage) => Ok(*damage),
        other => Err(other.into()),
    }
}
