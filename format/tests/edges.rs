//! What hardly anything comes to: the words of errors, numbers at their limits, and small questions about a structure.
//! `edges_segment` has what segments are made of.
#![allow(clippy::unwrap_used, reason = "in a test that is how to fail")]

use annals_format::backup::{Block, Chain, Codec, Header as BackupHeader, Kind, Order, Part};
use annals_format::batch::{self, BatchHeader, BatchKind};
use annals_format::checksum::{ContentHash, ContentHasher};
use annals_format::limits::BATCH_BODY_BYTES_MAX;
use annals_format::name::FileName;
use annals_format::sector::SectorBuffer;
use annals_format::wal_file::WalFileHeader;
use annals_format::{DecodeError, FileKind, Place, Problem, StoreId, seal, varint};

const STORE: StoreId = StoreId([0xab; 16]);

fn place(kind: FileKind) -> Place {
    Place::start_of(STORE, kind, 3)
}

#[test]
fn problems_in_words() {
    let (expected, found, max) = (16, 17, 9);
    let table = [
        (
            Problem::Truncated { needed: 8, have: 3 },
            "truncated: needs 8 bytes, has 3",
            "8 bytes",
            "3 bytes",
        ),
        (
            Problem::Checksum { expected: 16, found: 17 },
            "checksum mismatch: expected 0x00000010, found 0x00000011",
            "checksum 0x00000010",
            "checksum 0x00000011",
        ),
        (
            Problem::Magic { expected: 16, found: 17 },
            "wrong magic number: expected 0x00000010, found 0x00000011",
            "magic number 0x00000010",
            "0x00000011",
        ),
        (
            Problem::Version { supported: 1, found: 2 },
            "format version 2; this build reads up to 1",
            "format version up to 1",
            "format version 2",
        ),
        (Problem::Invalid { found }, "invalid value 17", "a valid value", "17"),
        (Problem::Mismatch { expected, found }, "expected 16, found 17", "16", "17"),
        (Problem::NotZero, "bytes that must be zero are not", "zero bytes", "other bytes"),
        (Problem::TooLong { max, found }, "17 is over the limit of 9", "at most 9", "17"),
        (Problem::Varint, "malformed varint", "a canonical varint", "a malformed one"),
        (Problem::Order, "out of order", "ascending order", "an item out of order"),
        (
            Problem::Trailing { bytes: 2 },
            "2 bytes left over",
            "the end of the structure",
            "2 more bytes",
        ),
    ];
    for (problem, text, expected, found) in table {
        assert_eq!((problem.to_string().as_str(), problem.expected().as_str()), (text, expected));
        assert_eq!(problem.found(), found);
        let error = DecodeError { structure: "page", field: "count", offset: 4, problem };
        assert_eq!(error.to_string(), format!("page: count at byte 4: {text}"));
    }
}

#[test]
fn names_of_stores_files_and_hashes() {
    assert_eq!(STORE.to_string(), "abababab-abab-abab-abab-abababababab");
    assert_eq!(format!("{STORE:?}"), "StoreId(abababab-abab-abab-abab-abababababab)");
    let labels = FileKind::ALL.map(FileKind::label);
    assert_eq!(labels.join(" "), "current manifest wal l0 head history events blob");
    let mut hasher = ContentHasher::default();
    assert_eq!(hasher.finish(), ContentHash::of(b""));
    hasher.update(b"an");
    hasher.update(b"nals");
    let hash = ContentHash::of(b"annals");
    assert_eq!(hasher.finish(), hash);
    assert_ne!(hash, ContentHash::of(b"annal"));
    let text = format!("{:032x}", u128::from_be_bytes(hash.0));
    assert_eq!(
        (hash.to_string(), format!("{hash:?}")),
        (text.clone(), format!("ContentHash({text})"))
    );
    assert_eq!(format!("{hasher:?}"), format!("ContentHasher({hash:?})"));
}

#[test]
fn varints_at_every_length() {
    for bits in 0..=64_u32 {
        let highest = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
        for value in [highest, highest.wrapping_add(1), highest.saturating_sub(1)] {
            let (bytes, used) = varint::encode(value);
            assert_eq!(varint::len(value), used, "{value}");
            assert_eq!(used, (64 - value.leading_zeros()).div_ceil(7).max(1) as usize, "{value}");
            for behind in [0, 9] {
                let long = [&bytes[..used], &vec![0xff; behind]].concat();
                assert_eq!(varint::decode(&long), Some((value, used)));
            }
        }
    }
}

/// A batch's header under a checksum that holds.
fn batch_with(change: impl Fn(&mut BatchHeader)) -> Result<BatchHeader, Problem> {
    let mut header = BatchHeader {
        kind: BatchKind::Frames,
        batch_seq: 2,
        previous_crc: 7,
        frame_count: 3,
        body_bytes: 3 * annals_format::frame::BYTES_MIN as u64,
        first_seq: 9,
        durable_upto: 8,
        frames_crc: 5,
    };
    change(&mut header);
    let at = place(FileKind::Wal).at(4096);
    let (bytes, crc) = header.encode(&at);
    let (again, found) = BatchHeader::decode(&bytes, &at).map_err(|error| error.problem)?;
    assert_eq!((again, found), (header, crc));
    assert_eq!(again.logical_bytes(), batch::BYTES as u64 + again.body_bytes);
    assert!(
        again.stored_bytes() >= again.logical_bytes() && again.stored_bytes().is_multiple_of(4096)
    );
    Ok(again)
}

#[test]
fn batches_at_their_limits() {
    let max = BATCH_BODY_BYTES_MAX;
    batch_with(|_| ()).unwrap();
    batch_with(|batch| batch.body_bytes = max).unwrap();
    let too_long = |found| Err(Problem::TooLong { max, found });
    assert_eq!(batch_with(|batch| batch.body_bytes = max + 1), too_long(max + 1));
    let least = 3 * annals_format::frame::BYTES_MIN as u64;
    assert_eq!(batch_with(|batch| batch.body_bytes = least - 1), too_long(least - 1));
    assert_eq!(batch_with(|batch| batch.frame_count = 0), Err(Problem::Invalid { found: 0 }));
    assert_eq!(batch_with(|batch| batch.durable_upto = 9), Err(Problem::Invalid { found: 9 }));
    let seal = |frame_count, body_bytes| {
        batch_with(|batch| {
            (batch.kind, batch.frame_count, batch.body_bytes) =
                (BatchKind::Seal, frame_count, body_bytes);
        })
    };
    let bytes = seal::BYTES as u64;
    seal(0, bytes).unwrap();
    assert_eq!(seal(0, bytes - 1), too_long(bytes - 1));
    assert_eq!(seal(1, bytes), Err(Problem::Invalid { found: 1 }));
}

#[test]
fn log_files_at_their_limits() {
    let decoded = |file_bytes, number, previous_file| {
        let (first_seq, incarnation) = (1, 7);
        let header = WalFileHeader {
            store: STORE,
            number,
            file_bytes,
            previous_file,
            first_seq,
            incarnation,
        };
        let decoded = WalFileHeader::decode(&header.encode()).map_err(|error| error.problem)?;
        assert_eq!(decoded, header);
        Ok(())
    };
    assert_eq!(decoded(64 << 10, 3, 2), Ok(()));
    assert_eq!(decoded(64 << 10, 3, 3), Err(Problem::Invalid { found: 3 }));
    assert_eq!(decoded((64 << 10) + 1, 3, 2), Err(Problem::Invalid { found: (64 << 10) + 1 }));
    assert_eq!(decoded(0, 3, 2), Err(Problem::Invalid { found: 0 }));
}

#[test]
fn a_sector_buffer_forgets() {
    let mut buffer = SectorBuffer::default();
    buffer.push(&[1; 1000]);
    assert_eq!(buffer.logical_bytes(), 1000);
    let capacity = buffer.capacity();
    assert!(capacity >= 1000);
    buffer.clear();
    assert_eq!((buffer.logical_bytes(), buffer.capacity()), (0, capacity));
}

#[test]
fn blocks_of_backups_at_their_limits() {
    let sample = BackupHeader { store: STORE, from: None, upto: 9, compacted: 0, incarnation: 1 };
    let decoded = |block: Block, payload: &[u8]| {
        let (bytes, mut chain) = sample.encode();
        let (_, mut read): (_, Chain) = BackupHeader::decode(&bytes).unwrap();
        let header = chain.encode(&block, payload);
        read.decode(&header, payload).map_err(|error| (error.field, error.problem))
    };
    let (codec, number, offset) = (Codec::Raw, 0, 0);
    let block =
        Block { part: Part::Manifest, codec, stored_bytes: 3, raw_bytes: 3, number, offset };
    assert_eq!(decoded(block, b"abc"), Ok(block));
    let mismatch = Problem::Mismatch { expected: 3, found: 2 };
    assert_eq!(decoded(block, b"ab"), Err(("stored_bytes", mismatch)));
    assert!(decoded(Block { raw_bytes: 2, ..block }, b"abc").is_err());
    assert!(decoded(Block { raw_bytes: 4, ..block }, b"abc").is_err());
    assert!(decoded(Block { codec: Codec::Zstd, ..block }, b"abc").is_err());
    let packed = Block { codec: Codec::Zstd, raw_bytes: 4, ..block };
    assert_eq!(decoded(packed, b"abc"), Ok(packed));
    assert!(decoded(Block { number: 1, ..block }, b"abc").is_err(), "only files have numbers");
    let max = annals_format::backup::PIECE_BYTES_MAX;
    let long = Block { codec: Codec::Zstd, raw_bytes: max, ..block };
    assert_eq!(decoded(long, b"abc"), Ok(long));
    let too_long = Problem::TooLong { max: max.into(), found: u64::from(max) + 1 };
    assert_eq!(decoded(Block { raw_bytes: max + 1, ..long }, b"abc"), Err(("raw_bytes", too_long)));

    let mut order = Order::new(Kind::Full);
    assert!(!order.is_at_end());
    assert_eq!(order.next(&block), Ok(true));
    let next = Block { offset: 3, ..block };
    let elsewhere = order.next(&Block { offset: 4, ..block }).unwrap_err();
    assert_eq!((elsewhere.field, elsewhere.offset), ("offset", 20));
    assert_eq!(order.next(&next), Ok(false));
    let end = Block { part: Part::End, ..block };
    assert_eq!(order.next(&end), Ok(true));
    assert!(order.is_at_end());
    assert_eq!(order.next(&end).unwrap_err().field, "kind");
}

#[test]
fn files_that_are_being_made_have_names_of_their_own() {
    let name = FileName::new(FileKind::Wal, 7);
    assert_eq!(name.unfinished(), "wal/00000007.wal.tmp");
    assert_eq!(FileName::parse(&name.unfinished()), None);
}
