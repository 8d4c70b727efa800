//! Makes checksums right, as far as the structure they stand in can be found at all.
//!
//! The offsets are those of `format/SPEC.md`. Where bytes make no sense they are left as they are.

use annals_format::batch::{self, FramesCrc};
use annals_format::checksum::{FileSeed, crc, crc_unplaced};
use annals_format::current::BYTES;
use annals_format::sector::{DATA_BYTES, PAGE_BYTES, SECTOR_BYTES};
use annals_format::segment::{FOOTER_BYTES, HEADER_BYTES};
use annals_format::{FileKind, Place, StoreId, frame, wal_file};

fn u32_at(bytes: &[u8], offset: usize) -> Option<usize> {
    let word = bytes.get(offset..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*word)).ok()
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn put(bytes: &mut [u8], offset: usize, value: &[u8]) -> Option<()> {
    bytes.get_mut(offset..offset.checked_add(value.len())?)?.copy_from_slice(value);
    Some(())
}

fn store_at(bytes: &[u8], offset: usize) -> Option<StoreId> {
    Some(StoreId(*bytes.get(offset..)?.first_chunk()?))
}

/// A CRC in the last four bytes over everything before it.
fn crc_at_end(bytes: &mut [u8], place: &Place) -> Option<()> {
    let end = bytes.len().checked_sub(4)?;
    let crc = crc(place, &[bytes.get(..end)?]);
    put(bytes, end, &crc.to_le_bytes())
}

/// One frame of `store` at the start of `bytes`; answers how long it is.
pub(crate) fn frame(bytes: &mut [u8], store: &StoreId) -> Option<usize> {
    let (header, payload) = (u32_at(bytes, 4)?, u32_at(bytes, 8)?);
    let end = header.checked_add(payload)?;
    let payload_crc = crc_unplaced(store, b'p', bytes.get(header..end)?);
    put(bytes, 12, &payload_crc.to_le_bytes())?;
    let header_crc = crc_unplaced(store, b'h', bytes.get(..header.checked_sub(4)?)?);
    put(bytes, header - 4, &header_crc.to_le_bytes())?;
    Some(end)
}

/// `CURRENT`: the copy of the manifest if there is one, what names it, and the same at the end.
pub(crate) fn current(bytes: &mut [u8]) -> Option<()> {
    let (first, rest) = bytes.split_at_mut_checked(BYTES)?;
    if let Some((copy, _)) =
        rest.len().checked_sub(BYTES).and_then(|at| rest.split_at_mut_checked(at))
        && manifest(copy).is_some()
    {
        put(first, 8, copy.get(8..24)?)?;
        put(first, 24, copy.get(24..40)?)?;
        put(first, 40, copy.get(copy.len().checked_sub(4)?..)?)?;
    }
    let store = store_at(first, 8)?;
    crc_at_end(first, &Place::start_of(store, FileKind::Current, 0))?;
    let last = rest.len().saturating_sub(BYTES);
    if !rest.is_empty() { put(rest, last, first) } else { Some(()) }
}

/// A manifest: its length and its CRC.
pub(crate) fn manifest(bytes: &mut [u8]) -> Option<()> {
    let (store, number) = (store_at(bytes, 8)?, u64_at(bytes, 24)?);
    let length = bytes.len() as u64;
    put(bytes, 32, &length.to_le_bytes())?;
    crc_at_end(bytes, &Place::start_of(store, FileKind::Manifest, number))
}

/// A block: its stored length and its CRC.
pub(crate) fn block(bytes: &mut [u8], seed: FileSeed, offset: u64) -> Option<()> {
    let stored = u32::try_from(bytes.len().checked_sub(24)?).ok()?;
    put(bytes, 8, &stored.to_le_bytes())?;
    crc_in_header(bytes, 20, seed, offset)
}

/// A page: its length and its CRC.
pub(crate) fn page(bytes: &mut [u8], seed: FileSeed, offset: u64) -> Option<()> {
    let length = u32::try_from(bytes.len()).ok()?;
    put(bytes, 8, &length.to_le_bytes())?;
    crc_in_header(bytes, 20, seed, offset)
}

/// A CRC at `at` over the bytes before and after it.
pub(crate) fn crc_in_header(
    bytes: &mut [u8],
    at: usize,
    seed: FileSeed,
    offset: u64,
) -> Option<()> {
    let crc = seed.crc(offset, &[bytes.get(..at)?, bytes.get(at + 4..)?]);
    put(bytes, at, &crc.to_le_bytes())
}

/// A segment's header or footer: the CRC in its last four bytes.
pub(crate) fn segment_end(bytes: &mut [u8], seed: FileSeed, offset: u64) -> Option<()> {
    let at = bytes.len().checked_sub(4)?;
    crc_in_header(bytes, at, seed, offset)
}

/// A whole WAL file: header, batches with their frames, and the trailer of every sector that is
/// not all zero.
pub(crate) fn wal_file(bytes: &mut [u8], store: StoreId, number: u64) -> Option<()> {
    let place = Place::start_of(store, FileKind::Wal, number);
    let mut header: Vec<u8> = bytes.get(..wal_file::BYTES)?.to_vec();
    crc_at_end(&mut header, &place)?;
    put(bytes, 0, &header)?;
    let mut previous: [u8; 4] = *header.last_chunk()?;
    let mut offset = PAGE_BYTES;
    let magic = batch::MAGIC.to_le_bytes();
    while bytes.get(offset..).is_some_and(|rest| rest.starts_with(&magic)) {
        let (length, crc) = one_batch(bytes, place.at(offset as u64), offset, previous)?;
        previous = crc;
        offset = offset.checked_add(length)?;
    }
    let seed = FileSeed::new(&place);
    for (index, sector) in bytes.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        let offset = index * SECTOR_BYTES;
        let (data, trailer) = sector.split_at_mut(DATA_BYTES);
        if data.iter().all(|&byte| byte == 0) && trailer.iter().all(|&byte| byte == 0) {
            continue;
        }
        let starts_batch = offset.is_multiple_of(PAGE_BYTES) && data.starts_with(&magic);
        let first = u8::from(offset == 0 || starts_batch);
        let crc = seed.crc(offset as u64, &[data, &[first]]).max(1);
        trailer.copy_from_slice(&crc.to_le_bytes());
    }
    Some(())
}

/// The batch at `offset`; answers how many bytes of the file it takes, and its CRC.
fn one_batch(
    bytes: &mut [u8],
    place: Place,
    offset: usize,
    previous: [u8; 4],
) -> Option<(usize, [u8; 4])> {
    let body = usize::try_from(u64_at(bytes, offset + 24)?).ok()?;
    let logical_bytes = body.checked_add(batch::BYTES)?;
    let sectors = logical_bytes.div_ceil(DATA_BYTES);
    let end = offset.checked_add(sectors.checked_mul(SECTOR_BYTES)?)?;
    let stored = bytes.get_mut(offset..end)?;
    let mut logical: Vec<u8> = Vec::with_capacity(sectors * DATA_BYTES);
    for sector in stored.chunks_exact(SECTOR_BYTES) {
        logical.extend_from_slice(sector.get(..DATA_BYTES)?);
    }
    let is_seal = logical.get(4) == Some(&2);
    let (header, rest) = logical.split_at_mut_checked(batch::BYTES)?;
    let content = rest.get_mut(..body)?;
    if is_seal {
        crc_at_end(content, &place)?;
    } else {
        let (mut frames_crc, mut at) = (FramesCrc::default(), 0);
        while let Some(rest) = content.get_mut(at..).filter(|rest| !rest.is_empty()) {
            let length = frame(rest, &place.store).filter(|&length| length >= frame::BYTES_MIN)?;
            frames_crc.push(rest);
            at += length;
        }
        put(header, 48, &frames_crc.finish().to_le_bytes())?;
    }
    put(header, 16, &previous)?;
    crc_at_end(header, &place)?;
    let crc = *header.last_chunk()?;
    for (sector, data) in stored.chunks_exact_mut(SECTOR_BYTES).zip(logical.chunks(DATA_BYTES)) {
        put(sector, 0, data)?;
    }
    Some(((sectors * SECTOR_BYTES).next_multiple_of(PAGE_BYTES), crc))
}

/// A whole segment: its header, its footer, and between them whatever the footer finds.
pub(crate) fn segment_file(bytes: &mut [u8], place: &Place) -> Option<()> {
    let seed = FileSeed::new(place);
    let footer_at = bytes.len().checked_sub(FOOTER_BYTES)?;
    segment_end(bytes.get_mut(..HEADER_BYTES)?, seed, 0)?;
    let footer = bytes.get(footer_at..)?.to_vec();
    segment_end(bytes.get_mut(footer_at..)?, seed, footer_at as u64)?;
    let offset = |at| usize::try_from(u64_at(&footer, at)?).ok();
    let (index, filter, dictionary) = (offset(120)?, offset(136)?, offset(152)?);
    let mut at = HEADER_BYTES;
    while at < index {
        let length = u32_at(bytes, at.checked_add(8)?)?.checked_add(24)?;
        let block = bytes.get_mut(at..at.checked_add(length)?)?;
        crc_in_header(block, 20, seed, at as u64)?;
        at += length;
    }
    while at < filter {
        let length = u32_at(bytes, at.checked_add(8)?)?;
        let page = bytes.get_mut(at..at.checked_add(length.max(24))?)?;
        crc_in_header(page, 20, seed, at as u64)?;
        at += page.len();
    }
    if filter < dictionary {
        crc_in_header(bytes.get_mut(filter..dictionary)?, 28, seed, filter as u64)?;
    }
    if dictionary < footer_at {
        crc_in_header(bytes.get_mut(dictionary..footer_at)?, 12, seed, dictionary as u64)?;
    }
    Some(())
}
