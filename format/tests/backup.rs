//! Backups: the golden stream, damage to every bit and every length of it, and what only blocks together
//! can get wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test that is how to fail")]

mod harness;
mod samples;

use annals_format::backup::{
    self, BLOCK_BYTES, BLOCK_LAYOUT, Block, Chain, Codec, END_BYTES, End, HEADER_BYTES, Header,
    Order, PIECE_BYTES_MAX, Part, State,
};
use annals_format::checksum::{ContentHash, crc_unplaced};
use annals_format::layout::Layout;
use annals_format::limits::NUMBER_MAX;
use annals_format::{DecodeError, Problem, StoreId};
use harness::{Dump, damage_everywhere, golden};
use samples::STORE;

use Part::{File, Frames, Manifest, System};

/// A piece: part, number, offset, bytes.
type Piece = (Part, u64, u64, Vec<u8>);

fn header(increment: bool) -> Header {
    let from = State { revision: 990, compacted: 300, hash: 0x1234_5678 };
    let from = increment.then_some(from);
    Header { store: STORE, from, upto: 1001, compacted: 300, incarnation: 2 }
}

fn pieces(increment: bool) -> Vec<Piece> {
    let frame = samples::frame();
    let (manifest, _) = samples::manifest().encode();
    if increment {
        let records = b"\x0a\x00L12345678\x081234567x".to_vec();
        return vec![(Frames, 0, 0, frame), (System, 0, 0, records)];
    }
    let (front, back) = frame.split_at(100);
    vec![
        (Manifest, 0, 0, manifest),
        (Frames, 0, 0, front.to_vec()),
        (Frames, 0, 100, back.to_vec()),
        (File, 10, 0, b"the content of a file".to_vec()),
        (File, 11, 0, b"and of another".to_vec()),
    ]
}

fn push(
    out: &mut Vec<u8>,
    chain: &mut Chain,
    part: Part,
    (number, offset): (u64, u64),
    payload: &[u8],
) {
    let bytes = u32::try_from(payload.len()).unwrap();
    let codec = Codec::Raw;
    let block = Block { part, codec, stored_bytes: bytes, raw_bytes: bytes, number, offset };
    out.extend_from_slice(&chain.encode(&block, payload));
    out.extend_from_slice(payload);
}

fn stream(header: &Header, pieces: &[Piece]) -> Vec<u8> {
    let (bytes, mut chain) = header.encode();
    let mut out = bytes.to_vec();
    for (part, number, offset, payload) in pieces {
        push(&mut out, &mut chain, *part, (*number, *offset), payload);
    }
    let end = End {
        blocks: pieces.len() as u64,
        bytes: out.len() as u64,
        hash: ContentHash::of(&out),
        kv_compacted: 300,
        kv_hash: 0x9abc_def0,
    };
    push(&mut out, &mut chain, Part::End, (0, 0), &end.encode());
    out
}

/// Reads a whole stream. Errors name offsets in it.
fn read(bytes: &[u8]) -> Result<(Header, Vec<Piece>), DecodeError> {
    let (header, mut chain) = Header::decode(bytes)?;
    let mut at = HEADER_BYTES;
    let mut order = Order::new(header.kind());
    let mut pieces = Vec::new();
    loop {
        let in_stream =
            |error: DecodeError| DecodeError { offset: error.offset + at as u64, ..error };
        let rest = &bytes[at..];
        let truncated = |needed: usize| {
            let problem = Problem::Truncated { needed: needed as u64, have: rest.len() as u64 };
            DecodeError { structure: "backup", field: "block", offset: at as u64, problem }
        };
        let (head, rest) =
            rest.split_at_checked(BLOCK_BYTES).ok_or_else(|| truncated(BLOCK_BYTES))?;
        let length = backup::payload_bytes(head).map_err(in_stream)?;
        let payload = rest.get(..length).ok_or_else(|| truncated(BLOCK_BYTES + length))?;
        let block = chain.decode(head, payload).map_err(in_stream)?;
        let begins = order.next(&block).map_err(in_stream)?;
        assert_eq!(begins, block.offset == 0);
        if block.part == Part::End {
            let end = End::decode(payload).map_err(in_stream)?;
            assert!(order.is_at_end());
            let before = &bytes[..at];
            let blocks = pieces.len() as u64;
            assert_eq!(
                (end.blocks, end.bytes, end.hash),
                (blocks, at as u64, ContentHash::of(before))
            );
            return Ok((header, pieces));
        }
        at += BLOCK_BYTES + length;
        pieces.push((block.part, block.number, block.offset, payload.to_vec()));
    }
}

#[test]
fn golden_streams() {
    let fields = |dump: &mut Dump<'_>, layout: &Layout| {
        for field in layout.fields {
            dump.bytes(field.bytes, field.name);
        }
    };
    for (increment, name) in [(false, "backup-full-v1.hex"), (true, "backup-increment-v1.hex")] {
        let encoded = stream(&header(increment), &pieces(increment));
        let mut dump = Dump::new("a backup of the sample store", &encoded);
        dump.layout(&backup::LAYOUT);
        for (part, _, _, payload) in pieces(increment) {
            dump.comment(part.label());
            fields(&mut dump, &BLOCK_LAYOUT);
            dump.bytes(payload.len(), "piece");
        }
        dump.comment(Part::End.label());
        fields(&mut dump, &BLOCK_LAYOUT);
        fields(&mut dump, &backup::END_LAYOUT);
        let bytes = golden(name, &dump.finish());
        assert_eq!(read(&bytes), Ok((header(increment), pieces(increment))));
    }
}

#[test]
fn every_flipped_bit_and_every_cut_is_an_error() {
    for increment in [false, true] {
        let bytes = stream(&header(increment), &pieces(increment));
        // The length of a payload is needed to find what its checksum covers.
        let mut lengths = Vec::new();
        let mut at = HEADER_BYTES;
        for length in pieces(increment).iter().map(|piece| piece.3.len()).chain([END_BYTES]) {
            lengths.extend(at + 4..at + 8);
            at += BLOCK_BYTES + length;
        }
        assert_eq!(at, bytes.len());
        let in_length = |at: usize, _: &DecodeError| lengths.contains(&at);
        damage_everywhere(&bytes, true, &|bytes| read(bytes).map(drop), &in_length);
    }
}

#[test]
fn blocks_left_out_exchanged_or_foreign_do_not_check() {
    let pieces = pieces(false);
    let bytes = stream(&header(false), &pieces);
    let checksum = |bytes: &[u8]| {
        let error = read(bytes).unwrap_err();
        assert!(matches!(error.problem, Problem::Checksum { .. }), "{error}");
        error.offset
    };
    let mut starts = vec![HEADER_BYTES];
    for piece in &pieces {
        starts.push(starts.last().unwrap() + BLOCK_BYTES + piece.3.len());
    }
    let block = |n: usize| &bytes[starts[n]..starts.get(n + 1).copied().unwrap_or(bytes.len())];
    for n in 0..pieces.len() {
        let (before, after) = (&bytes[..starts[n]], &bytes[starts[n + 1]..]);
        let at = checksum(&[before, after].concat());
        assert!((starts[n]..starts[n] + BLOCK_BYTES).contains(&usize::try_from(at).unwrap()));
        checksum(&[before, block(n), block(n), after].concat());
        if n + 1 < pieces.len() {
            checksum(&[before, block(n + 1), block(n), &bytes[starts[n + 2]..]].concat());
        }
    }
    // The same block of a later backup of the same store, and of a copy of the store.
    let later = stream(&Header { upto: 1002, ..header(false) }, &pieces);
    checksum(&[&later[..starts[2]], &bytes[starts[2]..]].concat());
    let other = stream(&Header { store: StoreId([3; 16]), ..header(false) }, &pieces);
    checksum(&[&other[..starts[1]], &bytes[starts[1]..]].concat());
}

#[test]
fn sections_come_in_order_and_leave_nothing_out() {
    let refused = |increment: bool, pieces: &[(Part, u64, u64)]| {
        let pieces: Vec<Piece> = pieces
            .iter()
            .map(|(part, number, offset)| (*part, *number, *offset, vec![7; 10]))
            .collect();
        read(&stream(&header(increment), &pieces)).map(drop).map_err(|error| error.field)
    };
    assert_eq!(refused(false, &[(Manifest, 0, 0)]), Ok(()));
    assert_eq!(
        refused(false, &[(Manifest, 0, 0), (Manifest, 0, 10), (File, 3, 0), (File, 9, 0)]),
        Ok(())
    );
    assert_eq!(refused(true, &[]), Ok(()));
    assert_eq!(refused(true, &[(System, 0, 0)]), Ok(()));
    for (increment, pieces, field) in [
        (false, &[][..], "kind"),
        (false, &[(Frames, 0, 0)], "kind"),
        (false, &[(Manifest, 0, 0), (File, 3, 0), (Frames, 0, 0)], "kind"),
        (false, &[(Manifest, 0, 0), (File, 3, 0), (File, 2, 0)], "kind"),
        (false, &[(Manifest, 0, 0), (System, 0, 0)], "kind"),
        (true, &[(Manifest, 0, 0)], "kind"),
        (true, &[(Frames, 0, 0), (File, 1, 0)], "kind"),
        (true, &[(System, 0, 0), (Frames, 0, 0)], "kind"),
        (false, &[(Manifest, 0, 1)], "offset"),
        (false, &[(Manifest, 0, 0), (Manifest, 0, 0)], "offset"),
        (false, &[(Manifest, 0, 0), (Manifest, 0, 11)], "offset"),
        (false, &[(Manifest, 0, 0), (File, 3, 10)], "offset"),
        // Under a checksum that holds.
        (false, &[(Manifest, 1, 0)], "raw_bytes"),
        (false, &[(Manifest, 0, 0), (File, 0, 0)], "number"),
        (false, &[(Manifest, 0, 0), (File, NUMBER_MAX + 1, 0)], "number"),
        (false, &[(Manifest, 0, 0), (Manifest, 0, u64::MAX)], "offset"),
    ] {
        assert_eq!(refused(increment, pieces), Err(field), "{pieces:?}");
    }
}

#[test]
fn lengths_are_bounded_and_agree_though_the_checksums_are_right() {
    let refused = |codec, stored_bytes, raw_bytes, payload: &[u8]| {
        let (_, chain) = header(false).encode();
        let block = Block { part: Manifest, codec, stored_bytes, raw_bytes, number: 0, offset: 0 };
        let bytes = chain.clone().encode(&block, payload);
        let bounded = backup::payload_bytes(&bytes).map(|length| length == payload.len());
        (bounded.ok(), chain.clone().decode(&bytes, payload).map(drop).map_err(|error| error.field))
    };
    let most = PIECE_BYTES_MAX;
    assert_eq!(refused(Codec::Raw, 3, 3, b"abc"), (Some(true), Ok(())));
    assert_eq!(refused(Codec::Zstd, 3, most, b"abc"), (Some(true), Ok(())));
    assert_eq!(refused(Codec::Zstd, 3, most + 1, b"abc"), (Some(true), Err("raw_bytes")));
    assert_eq!(refused(Codec::Zstd, 3, 3, b"abc"), (Some(true), Err("raw_bytes")));
    assert_eq!(refused(Codec::Raw, 3, 4, b"abc"), (Some(true), Err("raw_bytes")));
    assert_eq!(refused(Codec::Raw, 0, 0, b""), (Some(true), Err("raw_bytes")));
    assert_eq!(refused(Codec::Raw, 4, 4, b"abc"), (Some(false), Err("stored_bytes")));
    assert_eq!(refused(Codec::Raw, most + 1, most + 1, b"abc").0, None);
}

#[test]
fn a_header_says_nothing_that_contradicts_itself() {
    let (bytes, _) = header(true).encode();
    let forged = |changes: &[(usize, u8)]| {
        let mut bytes = bytes;
        for (at, value) in changes {
            bytes[*at] = *value;
        }
        let crc = crc_unplaced(&STORE, b'k', &bytes[..76]);
        bytes[76..].copy_from_slice(&crc.to_le_bytes());
        Header::decode(&bytes).map(drop).map_err(|error| (error.field, error.offset))
    };
    assert_eq!(forged(&[]), Ok(()));
    assert_eq!(forged(&[(4, 2)]), Err(("format_version", 4)));
    assert_eq!(forged(&[(24, 0)]), Err(("kind", 24)));
    assert_eq!(forged(&[(24, 3)]), Err(("kind", 24)));
    assert_eq!(forged(&[(24, 1)]), Err(("from", 32)));
    assert_eq!(forged(&[(25, 1)]), Err(("zero", 25)));
    assert_eq!(forged(&[(72, 1)]), Err(("zero", 72)));
    assert_eq!(forged(&[(32, 0), (33, 0)]), Err(("from", 32)));
    assert_eq!(forged(&[(39, 0x80)]), Err(("from", 32)));
    assert_eq!(forged(&[(41, 9)]), Err(("from", 32)), "made with a later compaction");
    assert_eq!(forged(&[(49, 2)]), Err(("upto", 48)), "before where it begins");
    assert_eq!(forged(&[(57, 9)]), Err(("compacted", 56)));
    assert_eq!(forged(&[(64, 0)]), Err(("incarnation", 64)));
}
