//! Making a frame: its size, its payload, and the header that is patched when it is ordered.

use std::ops::Range;

use super::op::put_op;
use super::{
    Binding, CRC_BYTES, FIXED_BYTES, FLAG_BUFFERED, FLAG_REVISION, Frame, MAGIC, OPERATION_BYTES,
    Op, header_bytes,
};
use crate::cursor::{SliceWriter, Writer};

/// Where the fields start that depend on the place in the order.
const SEQ_AT: usize = 16;

/// The exact size of a frame before it is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameSize {
    /// Bytes of the header section.
    pub header_bytes: usize,
    /// Bytes of the payload.
    pub payload_bytes: usize,
    /// Operations.
    pub op_count: usize,
    user: bool,
}

impl FrameSize {
    /// The size of a frame with this metadata and these operations.
    pub fn of<'a>(metadata: &[u8], ops: impl IntoIterator<Item = Op<'a>>) -> Self {
        let (mut payload_bytes, mut op_count, mut user) = (metadata.len(), 0, false);
        for op in ops {
            payload_bytes += op.encoded_bytes();
            op_count += 1;
            user |= op.is_user();
        }
        Self { header_bytes: header_bytes(op_count), payload_bytes, op_count, user }
    }

    /// Bytes of the whole frame.
    pub const fn bytes(&self) -> usize {
        self.header_bytes + self.payload_bytes
    }

    /// Whether the transaction writes user keys and so takes a revision.
    pub const fn takes_revision(&self) -> bool {
        self.user
    }
}

/// An operation, and where its bytes lie in the frame that was just encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedOp<'a> {
    /// The operation's number, from 0.
    pub index: usize,
    /// The operation.
    pub op: Op<'a>,
    /// Where the internal key lies; empty for a compact operation.
    pub key: Range<usize>,
    /// Where the value lies; empty where there is none.
    pub value: Range<usize>,
}

/// Encodes a frame into `out`, which must have exactly [`FrameSize::bytes`] bytes, and tells
/// `placed` where each operation's key and value lie. Everything that depends on the place in the
/// order stays zero until [`patch_header`].
///
/// # Panics
/// If `out` does not have the size of exactly this frame.
pub fn encode<'a>(
    out: &mut [u8],
    binding: &Binding,
    size: &FrameSize,
    buffered: bool,
    metadata: &[u8],
    ops: impl IntoIterator<Item = Op<'a>>,
    mut placed: impl FnMut(EncodedOp<'a>),
) {
    assert_eq!(out.len(), size.bytes(), "a frame is encoded into exactly its size");
    let (header, payload) = out.split_at_mut(size.header_bytes);
    let mut writer = SliceWriter::new(payload);
    writer.put_bytes(metadata);
    for (index, op) in ops.into_iter().enumerate() {
        let (key, value) = put_op(&mut writer, &op);
        let shift = |range: Range<usize>| range.start + header.len()..range.end + header.len();
        placed(EncodedOp { index, op, key: shift(key), value: shift(value) });
    }
    assert_eq!(writer.position(), size.payload_bytes, "a payload fills exactly its size");

    let flags =
        if size.user { FLAG_REVISION } else { 0 } | if buffered { FLAG_BUFFERED } else { 0 };
    let payload_crc = binding.payload_crc(payload);
    // Of a known size: nothing is checked while it is written.
    let mut start = [0; FIXED_BYTES];
    let mut fixed = SliceWriter::new(&mut start);
    fixed.put_u32(MAGIC);
    fixed.put_u32(narrow(size.header_bytes));
    fixed.put_u32(narrow(size.payload_bytes));
    fixed.put_u32(payload_crc);
    fixed.put_zeros(24);
    fixed.put_u32(narrow(size.op_count));
    fixed.put_u32(flags);
    fixed.put_u32(narrow(metadata.len()));
    header[..FIXED_BYTES].copy_from_slice(&start);
    header[FIXED_BYTES..].fill(0);
}

/// Fills in what the place in the order decides, and the header's CRC. May be called again when
/// the place changes.
///
/// `ops` has one `(create_revision, version)` per operation, in order: of the version that a put
/// of a user key writes, and (0, 0) for every other operation.
///
/// # Panics
/// If `frame` is not a frame made by [`encode`], or `ops` has another number of items than it has
/// operations.
pub fn patch_header(
    frame: &mut [u8],
    binding: &Binding,
    seq: u64,
    revision: u64,
    time: i64,
    ops: impl IntoIterator<Item = (u64, u64)>,
) {
    let header_bytes = stored_header_bytes(frame).unwrap_or(0);
    let (header, _) = frame.split_at_mut(header_bytes);
    let (covered, crc) = header.split_at_mut(header_bytes - CRC_BYTES);
    let (fixed, results) = covered.split_at_mut(FIXED_BYTES);
    for (slot, number) in fixed[SEQ_AT..].as_chunks_mut::<8>().0.iter_mut().zip([
        seq.to_le_bytes(),
        revision.to_le_bytes(),
        time.to_le_bytes(),
    ]) {
        *slot = number;
    }
    let mut ops = ops.into_iter();
    let (slots, _) = results.as_chunks_mut::<OPERATION_BYTES>();
    for slot in slots {
        let Some((create_revision, version)) = ops.next() else {
            panic!("one (create_revision, version) per operation");
        };
        let (first, second) = slot.split_at_mut(OPERATION_BYTES / 2);
        first.copy_from_slice(&create_revision.to_le_bytes());
        second.copy_from_slice(&version.to_le_bytes());
    }
    assert!(ops.next().is_none(), "one (create_revision, version) per operation");
    crc.copy_from_slice(&binding.header_crc(covered).to_le_bytes());
}

/// The header CRC as it stands in a frame: what a batch header's checksum over its frames covers.
pub fn stored_header_crc(frame: &[u8]) -> Option<[u8; 4]> {
    let end = stored_header_bytes(frame)?;
    frame.get(end.checked_sub(CRC_BYTES)?..end)?.try_into().ok()
}

/// The length of the header section as it stands in the frame, if the frame holds all of it.
fn stored_header_bytes(frame: &[u8]) -> Option<usize> {
    Frame::header_bytes(frame).ok().filter(|bytes| *bytes <= frame.len())
}

/// Sizes were checked against limits below 4 GiB before they come here.
fn narrow(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
