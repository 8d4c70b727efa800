//! A frame: one transaction as it stands in the log.
//!
//! ```text
//! frame   := header section, payload
//! header  := fixed part (64 bytes), op_count x { create_revision u64, version u64 }, crc u32
//! payload := metadata, op_count x op
//! op      := 1, lease varint, key prefixed, value prefixed      put
//!          | 2, key prefixed                                    delete
//!          | 3, revision varint                                 compact
//! ```
//!
//! A frame is encoded once, where it will stay in memory. The payload is final at once and has
//! its own CRC. What is known only when the transaction finds its place in the order (seq,
//! revision, time, and what each put makes of its key) lies in the header section, which
//! [`patch_header`] fills in, as often as the place changes. So the log, replay, watch and EVENTS
//! need no lookup to know everything about a change.
//!
//! Keys are internal keys (see [`space`](crate::space)).

mod decode;
mod encode;
mod op;

use crc32fast::Hasher;

use crate::layout::{Layout, field};
use crate::limits::TRANSACTION_BYTES_MAX;
use crate::place::StoreId;

pub use decode::{Frame, FrameOp, Ops};
pub use encode::{EncodedOp, FrameSize, encode, patch_header, stored_header_crc};
pub use op::Op;

/// `"anfr"`: a frame starts here.
pub const MAGIC: u32 = u32::from_le_bytes(*b"anfr");
/// Bytes of the fixed part of the header section.
pub const FIXED_BYTES: usize = 64;
/// Bytes the header section has for each operation.
pub const OPERATION_BYTES: usize = 16;
/// Bytes of the smallest frame.
pub const BYTES_MIN: usize = header_bytes(0);
/// Largest payload. The bytes of a transaction, wherever they are counted, are those of its payload:
/// the metadata, and every operation with its key, its value and the few bytes around them.
pub const PAYLOAD_BYTES_MAX: u64 = TRANSACTION_BYTES_MAX;

/// Flag: the transaction writes user keys and so takes a revision of its own.
pub const FLAG_REVISION: u32 = 1;
/// Flag: the transaction was acknowledged before it was durable.
pub const FLAG_BUFFERED: u32 = 2;

/// The fixed part of the header section.
pub const LAYOUT: Layout = Layout {
    structure: "frame header",
    fields: &[
        field(0, 4, "magic"),
        field(4, 4, "header_bytes"),
        field(8, 4, "payload_bytes"),
        field(12, 4, "payload_crc"),
        field(16, 8, "seq"),
        field(24, 8, "revision"),
        field(32, 8, "time"),
        field(40, 4, "op_count"),
        field(44, 4, "flags"),
        field(48, 4, "metadata_bytes"),
        field(52, 12, "zero"),
    ],
};
const _: () = assert!(LAYOUT.bytes() == FIXED_BYTES);

const STRUCTURE: &str = "frame header";
const CRC_BYTES: usize = 4;
const TAG_HEADER: u8 = b'h';
const TAG_PAYLOAD: u8 = b'p';

/// What binds a frame's checksums to its store; made once per store.
///
/// A frame has no place in a file while it is made, so its two CRCs are bound to the store and to
/// what they cover; the sectors around it bind the place.
#[derive(Debug, Clone)]
pub struct Binding {
    // Hashers and not their states: a new one asks for the features of the processor first.
    header: Hasher,
    payload: Hasher,
}

impl Binding {
    /// The binding of this store's frames.
    pub fn new(store: &StoreId) -> Self {
        let seed = |tag| Hasher::new_with_initial(crate::checksum::crc_unplaced(store, tag, &[]));
        Self { header: seed(TAG_HEADER), payload: seed(TAG_PAYLOAD) }
    }

    fn header_crc(&self, bytes: &[u8]) -> u32 {
        continue_crc(&self.header, bytes)
    }

    fn payload_crc(&self, bytes: &[u8]) -> u32 {
        continue_crc(&self.payload, bytes)
    }
}

const fn header_bytes(op_count: usize) -> usize {
    FIXED_BYTES + op_count * OPERATION_BYTES + CRC_BYTES
}

fn continue_crc(seed: &Hasher, bytes: &[u8]) -> u32 {
    let mut hasher = seed.clone();
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Problem;
    use crate::limits::{KEY_BYTES_MAX, NUMBER_MAX};

    const STORE: StoreId = StoreId([1; 16]);

    fn sample_ops() -> Vec<Op<'static>> {
        vec![
            Op::Put { key: b"\x01/pods/a", value: b"v1", lease: 7 },
            Op::Delete { key: b"\x01/pods/b" },
            Op::Put { key: b"\x00C", value: b"", lease: 0 },
            Op::Put { key: b"\x01z", value: &[9; 300], lease: -1 },
            Op::Compact { revision: 8 },
        ]
    }

    fn sample() -> Vec<u8> {
        let binding = Binding::new(&STORE);
        let size = FrameSize::of(b"me", sample_ops());
        let mut bytes = vec![0xee; size.bytes()];
        let mut placed = Vec::new();
        encode(&mut bytes, &binding, &size, true, b"me", sample_ops(), |op| placed.push(op));
        for (op, at) in sample_ops().iter().zip(&placed) {
            assert_eq!(at.op, *op);
            assert_eq!(&bytes[at.key.clone()], op.key().unwrap_or_default());
            if let Op::Put { value, .. } = op {
                assert_eq!(&bytes[at.value.clone()], *value);
            }
        }
        patch_header(&mut bytes, &binding, 1, 1, 1, [(1, 1), (0, 0), (0, 0), (1, 1), (0, 0)]);
        patch_header(&mut bytes, &binding, 5, 9, -2, [(9, 1), (0, 0), (0, 0), (2, 4), (0, 0)]);
        bytes
    }

    #[test]
    fn a_frame_round_trips() {
        let mut bytes = sample();
        let length = bytes.len();
        bytes.extend_from_slice(b"next frame");
        let (frame, used) = Frame::decode(&bytes, &Binding::new(&STORE)).unwrap();
        assert_eq!(used, length);
        assert_eq!((frame.seq, frame.revision, frame.time), (5, 9, -2));
        assert_eq!(frame.metadata, b"me");
        assert!(frame.is_buffered() && frame.takes_revision());
        assert_eq!(frame.ops().len(), 5);
        let ops: Vec<_> = frame.ops().collect();
        assert_eq!(ops.iter().map(|op| op.op).collect::<Vec<_>>(), sample_ops());
        assert_eq!(ops.iter().map(|op| op.sub).collect::<Vec<_>>(), [0, 1, 2, 2, 3]);
        assert_eq!((ops[3].create_revision, ops[3].version), (2, 4));
        assert_eq!(Frame::view(&bytes).unwrap(), (frame, used));
        assert_eq!(Frame::measure(&bytes, &Binding::new(&STORE)), Ok(length));
    }

    #[test]
    fn a_frame_of_another_store_fails() {
        let error = Frame::decode(&sample(), &Binding::new(&StoreId([2; 16]))).unwrap_err();
        assert!(matches!(error.problem, Problem::Checksum { .. }));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_an_error() {
        let binding = Binding::new(&STORE);
        let bytes = sample();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            Frame::decode(&damaged, &binding).unwrap_err();
            let _ = Frame::view(&damaged).map(|(frame, _)| frame.ops().count());
        }
        for cut in 0..bytes.len() {
            Frame::decode(&bytes[..cut], &binding).unwrap_err();
        }
    }

    #[test]
    fn only_writes_of_user_keys_take_a_revision() {
        let binding = Binding::new(&STORE);
        let ops = [Op::Delete { key: b"\x00L12345678" }, Op::Compact { revision: 1 }];
        let size = FrameSize::of(&[], ops);
        assert!(!size.takes_revision());
        let mut bytes = vec![0; size.bytes()];
        encode(&mut bytes, &binding, &size, false, &[], ops, |_| ());
        patch_header(&mut bytes, &binding, 2, 1, 0, [(0, 0), (0, 0)]);
        let (frame, _) = Frame::decode(&bytes, &binding).unwrap();
        assert!(!frame.takes_revision() && !frame.is_buffered());

        // A put of a user key that claims to have no version is refused, though the CRC is right.
        let bytes = &mut sample();
        patch_header(bytes, &binding, 5, 9, 0, [(0, 0), (0, 0), (0, 0), (2, 4), (0, 0)]);
        assert_eq!(Frame::decode(bytes, &binding).unwrap_err().field, "create_revision");
    }

    /// A frame with right checksums, whatever it says.
    fn forged(
        (seq, revision): (u64, u64),
        ops: &[Op<'_>],
        results: impl IntoIterator<Item = (u64, u64)>,
    ) -> Vec<u8> {
        let binding = Binding::new(&STORE);
        let size = FrameSize::of(&[], ops.iter().copied());
        let mut bytes = vec![0; size.bytes()];
        encode(&mut bytes, &binding, &size, false, &[], ops.iter().copied(), |_| ());
        patch_header(&mut bytes, &binding, seq, revision, 0, results);
        bytes
    }

    #[test]
    fn what_a_commit_never_writes_is_refused_though_the_checksums_are_right() {
        const PUT: Op<'_> = Op::Put { key: b"\x01a", value: b"", lease: 0 };
        const DELETE: Op<'_> = Op::Delete { key: b"\x01a" };
        const fn key(key: &[u8]) -> Op<'_> {
            Op::Put { key, value: b"", lease: 0 }
        }
        const fn compact(revision: u64) -> Op<'static> {
            Op::Compact { revision }
        }
        let refused = |place, ops: &[Op<'_>], results: &[(u64, u64)]| {
            let bytes = forged(place, ops, results.iter().copied());
            Frame::decode(&bytes, &Binding::new(&STORE)).map(|_| ()).map_err(|error| error.field)
        };
        assert_eq!(refused((4, 9), &[PUT, compact(9)], &[(9, 1), (0, 0)]), Ok(()));
        assert_eq!(refused((NUMBER_MAX, NUMBER_MAX), &[PUT], &[(NUMBER_MAX, 1)]), Ok(()));
        let long =
            [&[crate::space::USER][..], &vec![7; usize::try_from(KEY_BYTES_MAX).unwrap() + 1]]
                .concat();
        let attached = Op::Put { key: b"\x00L12345678", value: &[1; 8], lease: 3 };
        let lease = |value| Op::Put { key: b"\x00L12345678", value, lease: 0 };
        let record = |key| Op::Put { key, value: b"more", lease: 0 };
        for (place, ops, results, field) in [
            ((0, 9), &[PUT][..], &[(9, 1)][..], "seq"),
            ((NUMBER_MAX + 1, 9), &[PUT], &[(9, 1)], "seq"),
            ((u64::MAX, 9), &[PUT], &[(9, 1)], "seq"),
            ((4, 0), &[], &[], "revision"),
            ((4, NUMBER_MAX + 1), &[PUT], &[(9, 9)], "revision"),
            ((4, u64::MAX), &[PUT], &[(u64::MAX, 1)], "revision"),
            // Compactions: to nothing, to what is not there yet, before the end, twice.
            ((4, 9), &[compact(0)], &[(0, 0)], "revision"),
            ((4, 9), &[compact(10)], &[(0, 0)], "revision"),
            ((4, 9), &[compact(u64::MAX)], &[(0, 0)], "revision"),
            ((4, 9), &[compact(3), PUT], &[(0, 0), (9, 1)], "kind"),
            ((4, 9), &[compact(3), compact(4)], &[(0, 0), (0, 0)], "kind"),
            ((4, 9), &[compact(3)], &[(3, 1)], "create_revision"),
            // Versions that no history leads to.
            ((4, 9), &[PUT], &[(10, 1)], "create_revision"),
            ((4, 9), &[PUT], &[(0, 1)], "create_revision"),
            ((4, 9), &[PUT], &[(9, 0)], "version"),
            ((4, 9), &[PUT], &[(9, 2)], "version"),
            ((4, 9), &[PUT], &[(8, 1)], "version"),
            ((4, 9), &[PUT], &[(8, 3)], "version"),
            ((4, 9), &[PUT], &[(1, u64::MAX)], "version"),
            ((4, 9), &[DELETE], &[(9, 1)], "create_revision"),
            ((4, 9), &[DELETE], &[(0, 1)], "version"),
            // Keys.
            ((4, 9), &[key(b"")], &[(9, 1)], "key"),
            ((4, 9), &[key(b"\x01")], &[(9, 1)], "key"),
            ((4, 9), &[key(b"\x00")], &[(0, 0)], "key"),
            ((4, 9), &[key(b"\x02a")], &[(0, 0)], "key"),
            ((4, 9), &[key(&long)], &[(9, 1)], "key"),
            ((4, 9), &[Op::Delete { key: b"\x01" }], &[(0, 0)], "key"),
            ((4, 9), &[PUT, PUT], &[(9, 1), (9, 1)], "key"),
            ((4, 9), &[key(b"\x01b"), PUT, DELETE], &[(9, 1), (9, 1), (0, 0)], "key"),
            // The store's own keys have no lease and no lifetime.
            ((4, 9), &[attached], &[(0, 0)], "lease"),
            ((4, 9), &[lease(b"")], &[(0, 0)], "value"),
            ((4, 9), &[lease(&[1; 9])], &[(0, 0)], "value"),
            ((4, 9), &[record(b"\x00C")], &[(0, 0)], "value"),
            ((4, 9), &[record(b"\x00A12345678key")], &[(0, 0)], "value"),
            ((4, 9), &[key(b"\x00A12345678")], &[(0, 0)], "key"),
            ((4, 9), &[key(b"\x00L1234567")], &[(0, 0)], "key"),
            ((4, 9), &[key(b"\x00Q")], &[(0, 0)], "key"),
            ((4, 9), &[Op::Delete { key: b"\x00L123456789" }], &[(0, 0)], "key"),
            ((4, 9), &[key(b"\x00C")], &[(9, 1)], "create_revision"),
            ((4, 9), &[key(b"\x00C")], &[(0, 1)], "version"),
        ] {
            assert_eq!(refused(place, ops, results), Err(field), "{place:?} {ops:?} {results:?}");
        }
    }
}
