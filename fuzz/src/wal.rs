//! The log: one frame, and a whole file walked sector by sector and batch by batch.

use annals_format::batch::{self, BatchHeader, BatchKind, FramesCrc};
use annals_format::checksum::FileSeed;
use annals_format::frame::{self, Binding, Frame, FrameSize, Op};
use annals_format::seal::Seal;
use annals_format::sector::{PAGE_BYTES, SECTOR_BYTES, Sector};
use annals_format::wal_file::WalFileHeader;
use annals_format::{FileKind, Place};

use crate::input::Input;
use crate::{FIX, STORE, fix, place};

/// The number of the only log file.
pub(crate) const FILE: u64 = 1;

/// One frame: decodes, and encodes to the same bytes again.
pub(crate) fn frame(data: &[u8]) -> bool {
    let mut input = Input(data);
    let flags = input.byte();
    let mut bytes = input.0.to_vec();
    if flags & FIX != 0 {
        let _ = fix::frame(&mut bytes, &STORE);
    }
    check_frame(&bytes).is_some()
}

/// Checks the frame at the start of `bytes`; answers its length if it is one.
fn check_frame(bytes: &[u8]) -> Option<usize> {
    let binding = Binding::new(&STORE);
    let _ = (Frame::header_bytes(bytes), frame::stored_header_crc(bytes));
    let measured = Frame::measure(bytes, &binding);
    let viewed = Frame::view(bytes);
    let (frame, length) = Frame::decode(bytes, &binding).ok()?;
    assert_eq!(measured, Ok(length));
    assert_eq!(viewed, Ok((frame, length)));
    let all: Vec<_> = frame.ops().collect();
    assert_eq!(all.len(), frame.op_count());
    let ops = || all.iter().map(|op| op.op);
    let size = FrameSize::of(frame.metadata, ops());
    assert_eq!((size.bytes(), size.takes_revision()), (length, frame.takes_revision()));
    let mut again = vec![0; length];
    let buffered = frame.is_buffered();
    frame::encode(&mut again, &binding, &size, buffered, frame.metadata, ops(), |placed| {
        let op = all[placed.index].op;
        assert_eq!(op.key().unwrap_or_default(), &bytes[placed.key]);
        let value = if let Op::Put { value, .. } = op { value } else { &[] };
        assert_eq!(value, &bytes[placed.value]);
    });
    let results = all.iter().map(|op| (op.create_revision, op.version));
    frame::patch_header(&mut again, &binding, frame.seq, frame.revision, frame.time, results);
    assert_eq!(again, bytes[..length], "a frame has one encoding");
    Some(length)
}

/// A log file: two bytes of flags and length, then its bytes. True if a batch was read whole.
pub(crate) fn file(data: &[u8]) -> bool {
    let mut input = Input(data);
    let flags = input.byte();
    let pages = usize::from(input.byte() % 16) + 2;
    let mut bytes = unpack(input.0, pages * PAGE_BYTES);
    if flags & FIX != 0 {
        let _ = fix::wal_file(&mut bytes, STORE, FILE);
    }
    let walked = walk(&bytes) > 0;
    crate::dir::recover_wal(&bytes, flags);
    walked
}

/// A file from its runs: a page number and a length, then so many bytes at the start of that page.
/// Everything else is zero, as in a file that was preallocated.
fn unpack(data: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for (page, run) in runs(data) {
        let start = usize::from(page) * PAGE_BYTES;
        for (to, from) in bytes.iter_mut().skip(start).zip(run) {
            *to = from;
        }
    }
    bytes
}

/// The runs as they are in an input: page numbers, and the bytes at the start of each.
pub(crate) fn runs(data: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut runs = Vec::new();
    let mut input = Input(data);
    while !input.is_empty() {
        let page = input.byte();
        let count = usize::from(input.u16());
        runs.push((page, input.bytes(count).to_vec()));
    }
    runs
}

/// The opposite of [`unpack`].
pub(crate) fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (page, chunk) in (0_u8..).zip(bytes.chunks(PAGE_BYTES)) {
        let used = chunk.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        if used > 0 {
            out.push(page);
            out.extend_from_slice(&u16::try_from(used).expect("a page is short").to_le_bytes());
            out.extend_from_slice(&chunk[..used]);
        }
    }
    out
}

/// Follows the batches as a reader of the file would; answers how many there are.
fn walk(bytes: &[u8]) -> usize {
    let place = place(FileKind::Wal, FILE);
    let seed = FileSeed::new(&place);
    let sector = |offset: usize| {
        let bytes = bytes.get(offset..)?.first_chunk::<SECTOR_BYTES>()?;
        Some(Sector::read(seed, offset as u64, bytes))
    };
    for offset in (0..bytes.len()).step_by(SECTOR_BYTES) {
        let zero = bytes[offset..].iter().take(SECTOR_BYTES).all(|&byte| byte == 0);
        assert_eq!(zero, sector(offset) == Some(Sector::Unwritten));
    }
    let Some(Sector::Written { first: true, data }) = sector(0) else { return 0 };
    let Ok(header) = WalFileHeader::decode(data) else { return 0 };
    assert_eq!(header.encode(), data[..annals_format::wal_file::BYTES]);
    let mut offset = PAGE_BYTES;
    let mut batches = 0;
    while let Some(Sector::Written { first: true, data }) = sector(offset) {
        let at = place.at(offset as u64);
        let Ok((header, crc)) = BatchHeader::decode(data, &at) else { break };
        assert_eq!(header.encode(&at), (*data.first_chunk().expect("64 of 508"), crc));
        let Some(length) = usize::try_from(header.stored_bytes())
            .ok()
            .filter(|&length| length <= bytes.len() - offset)
        else {
            break;
        };
        let mut logical: Vec<u8> = Vec::new();
        for inside in (offset..offset + length).step_by(SECTOR_BYTES) {
            match sector(inside) {
                Some(Sector::Written { first, data }) if first == (inside == offset) => {
                    logical.extend_from_slice(data);
                }
                _ => break,
            }
        }
        let logical_bytes = usize::try_from(header.logical_bytes()).expect("it fits the file");
        let Some(body) = logical.get(batch::BYTES..logical_bytes) else { break };
        if !check_body(&header, body, &at) {
            break;
        }
        batches += 1;
        offset += length;
    }
    batches
}

fn check_body(header: &BatchHeader, body: &[u8], at: &Place) -> bool {
    if header.kind == BatchKind::Seal {
        let Ok(seal) = Seal::decode(body, at) else { return false };
        assert_eq!(seal.encode(at).as_slice(), body);
        return true;
    }
    let (mut rest, mut frames_crc) = (body, FramesCrc::default());
    for _ in 0..header.frame_count {
        let Some(length) = check_frame(rest) else { return false };
        frames_crc.push(rest);
        rest = &rest[length..];
    }
    rest.is_empty() && frames_crc.finish() == header.frames_crc
}
