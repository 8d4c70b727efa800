//! One small sample of every structure, for the golden files and the damage tests.
#![allow(dead_code, reason = "each test uses a part")]

use annals_format::batch::{BatchHeader, BatchKind, FramesCrc};
use annals_format::checksum::{ContentHash, FileSeed};
use annals_format::current::Current;
use annals_format::entry::BlobRef;
use annals_format::frame::{Binding, FrameSize, Op, encode, patch_header};
use annals_format::seal::{ManifestStamp, Seal, SealKind};
use annals_format::sector::SectorBuffer;
use annals_format::space::Key;
use annals_format::wal_file::WalFileHeader;
use annals_format::{FileKind, FileMeta, Manifest, Place, StoreId, WalFile};

/// The store of the samples.
pub(crate) const STORE: StoreId = StoreId(*b"annals of a test");
/// Where the sample batch stands.
pub(crate) const PLACE: Place = Place { store: STORE, kind: FileKind::Wal, file: 7, offset: 4096 };

/// A key of every kind.
pub(crate) fn keys() -> [Key<'static>; 5] {
    [
        Key::User(b"/pods/a"),
        Key::Lease { id: 0x0102_0304_0506_0708 },
        Key::Attachment { id: -2, key: b"/pods/b" },
        Key::Compacted,
        Key::Retention { prefix: b"/events/" },
    ]
}

/// The header of file 7.
pub(crate) fn wal_file_header() -> WalFileHeader {
    WalFileHeader {
        store: STORE,
        number: 7,
        file_bytes: 65536,
        previous_file: 6,
        first_seq: 41,
        incarnation: 2,
    }
}

/// The operations of the sample frame.
pub(crate) fn ops() -> [Op<'static>; 4] {
    [
        Op::Put { key: b"\x01/pods/a", value: b"v2", lease: 0 },
        Op::Put { key: b"\x01/pods/b", value: b"", lease: -1 },
        Op::Delete { key: b"\x01/pods/c" },
        Op::Compact { revision: 300 },
    ]
}

/// A frame with metadata and every kind of operation.
pub(crate) fn frame() -> Vec<u8> {
    let binding = Binding::new(&STORE);
    let size = FrameSize::of(b"me", ops());
    let mut bytes = vec![0; size.bytes()];
    encode(&mut bytes, &binding, &size, true, b"me", ops(), |_| ());
    let results = [(9, 4), (1001, 1), (0, 0), (0, 0)];
    patch_header(&mut bytes, &binding, 41, 1001, 1_700_000_000_000_000, results);
    bytes
}

/// The header of a batch that holds the sample frame.
pub(crate) fn batch_header() -> BatchHeader {
    let mut frames_crc = FramesCrc::default();
    frames_crc.push(&frame());
    BatchHeader {
        kind: BatchKind::Frames,
        batch_seq: 1,
        previous_crc: wal_file_header().crc(),
        frame_count: 1,
        body_bytes: frame().len() as u64,
        first_seq: 41,
        durable_upto: 40,
        frames_crc: frames_crc.finish(),
    }
}

/// The page with the batch of the sample frame.
pub(crate) fn batch_page() -> Vec<u8> {
    let mut buffer = SectorBuffer::default();
    buffer.push(&batch_header().encode(&PLACE).0);
    buffer.push(&frame());
    buffer.seal(FileSeed::new(&PLACE), PLACE.offset);
    buffer.sealed().to_vec()
}

/// A seal of either kind.
pub(crate) fn seal(closed: bool) -> Seal {
    let kind = if closed {
        SealKind::Closed { manifest: manifest().stamp() }
    } else {
        SealKind::Rolled { next_file: 8, next_file_bytes: 131_072 }
    };
    Seal { kind, last_seq: 41, last_revision: 1001 }
}

/// A manifest with every kind of record.
pub(crate) fn manifest_with_floors() -> Manifest {
    let floors = vec![(b"/events/".to_vec(), 900), (b"/pods/".to_vec(), 1)];
    Manifest { floors, ..manifest() }
}

/// A manifest with every kind of record but floors, as stores without rules of retention have it.
pub(crate) fn manifest() -> Manifest {
    Manifest {
        number: 3,
        incarnation: 2,
        next_file: 14,
        compacted: 300,
        revision_floor: 1001,
        flushed_seq: 40,
        flushed_revision: 1000,
        flushed_time: 1_699_999_999_000_000,
        closed: true,
        wal: vec![
            WalFile { number: 6, incarnation: 1, file_bytes: 65536, end: Some(20480) },
            WalFile { number: 7, incarnation: 2, file_bytes: 65536, end: None },
        ],
        files: vec![history_file(), l0_file(), blob_file(), head_file()],
        ..Manifest::new(STORE)
    }
}

fn l0_file() -> FileMeta {
    FileMeta {
        number: 10,
        kind: FileKind::L0,
        death_after: 0,
        death_upto: 0,
        last_seq: 1010,
        folded_to: b"\x01/pods/k".to_vec(),
        blobs: Vec::new(),
        ..history_file()
    }
}

fn blob_file() -> FileMeta {
    FileMeta {
        number: 12,
        kind: FileKind::Blob,
        value_bytes: 900_000,
        death_after: 0,
        death_upto: 0,
        ..history_file()
    }
}

/// Some of the values of the blob file are superseded.
fn head_file() -> FileMeta {
    let blobs = vec![BlobRef { file: 12, bytes: 700_000 }];
    FileMeta {
        number: 13,
        kind: FileKind::Head,
        death_after: 0,
        death_upto: 0,
        blobs,
        ..history_file()
    }
}

fn history_file() -> FileMeta {
    FileMeta {
        number: 11,
        kind: FileKind::History,
        class: 0,
        incarnation: 2,
        bytes: 9000,
        hash: ContentHash([0xc5; 16]),
        entries: 70,
        value_bytes: 40_000,
        first_key: b"\x01/pods/a".to_vec(),
        last_key: b"\x01/pods/z".to_vec(),
        min_revision: 2,
        max_revision: 980,
        death_after: 1,
        death_upto: 1000,
        last_seq: 0,
        folded_to: Vec::new(),
        blobs: Vec::new(),
    }
}

/// The `CURRENT` that puts the sample manifest in force.
pub(crate) fn current() -> Current {
    let ManifestStamp { number, bytes, crc } = manifest().stamp();
    Current { store: STORE, manifest: ManifestStamp { number, bytes, crc } }
}
