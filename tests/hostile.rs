//! Files whose checksums are right and whose content is not: what a defect or an attacker writes.
//! Every way into a store refuses them as damage, with file and offset, and none panics.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where it fails")]

use std::path::Path;
use std::sync::Arc;

use annals::vfs::{MemoryVfs, Vfs};
use annals::{Corruption, ErrorKind, Options, Store};
use annals_format::batch::{BatchHeader, BatchKind, FramesCrc};
use annals_format::checksum::{ContentHash, FileSeed};
use annals_format::current::Current;
use annals_format::frame::{Binding, FrameSize, Op, encode, patch_header};
use annals_format::limits::NUMBER_MAX;
use annals_format::name::FileName;
use annals_format::seal::{ManifestStamp, Seal, SealKind};
use annals_format::sector::{PAGE_BYTES, SectorBuffer};
use annals_format::wal_file::WalFileHeader;
use annals_format::{FileKind, FileMeta, Manifest, Place, StoreId, WalFile};

const STORE: StoreId = StoreId(*b"a hostile store.");
const FILE_BYTES: u64 = 8 * PAGE_BYTES as u64;
const PUT: Op<'_> = Op::Put { key: b"\x01a", value: b"one", lease: 0 };

/// A frame of a log, whatever it says.
#[derive(Clone)]
struct Forged<'a> {
    seq: u64,
    revision: u64,
    time: i64,
    ops: Vec<Op<'a>>,
    results: Vec<(u64, u64)>,
}

impl<'a> Forged<'a> {
    /// As a commit would write it; every put begins a lifetime.
    fn new(seq: u64, revision: u64, ops: impl Into<Vec<Op<'a>>>) -> Self {
        let ops = ops.into();
        let begins = |op: &Op<'_>| matches!(op, Op::Put { .. }) && op.is_user();
        let results = ops.iter().map(|op| if begins(op) { (revision, 1) } else { (0, 0) });
        let results = results.collect();
        Self { seq, revision, time: 1000, ops, results }
    }

    fn encode(&self) -> Vec<u8> {
        let binding = Binding::new(&STORE);
        let ops = || self.ops.iter().copied();
        let size = FrameSize::of(&[], ops());
        let mut bytes = vec![0; size.bytes()];
        encode(&mut bytes, &binding, &size, false, &[], ops(), |_| ());
        let results = self.results.iter().copied();
        patch_header(&mut bytes, &binding, self.seq, self.revision, self.time, results);
        bytes
    }
}

/// A log file of one batch, and a seal or not.
#[derive(Clone)]
struct Log<'a> {
    header: WalFileHeader,
    frames: Vec<Forged<'a>>,
    batch: fn(&mut BatchHeader),
    seal: Option<Seal>,
}

impl<'a> Log<'a> {
    fn of(frames: impl Into<Vec<Forged<'a>>>) -> Self {
        let header = WalFileHeader {
            store: STORE,
            number: 1,
            file_bytes: FILE_BYTES,
            previous_file: 0,
            first_seq: 1,
            incarnation: 1,
        };
        Self { header, frames: frames.into(), batch: |_| (), seal: None }
    }

    fn encode(&self) -> Vec<u8> {
        let place = Place::start_of(STORE, FileKind::Wal, self.header.number);
        let mut file = Vec::new();
        let append = |file: &mut Vec<u8>, logical: &[u8]| {
            let mut buffer = SectorBuffer::default();
            buffer.push(logical);
            buffer.seal(FileSeed::new(&place), file.len() as u64);
            file.extend_from_slice(buffer.sealed());
        };
        append(&mut file, &self.header.encode());
        let frames: Vec<Vec<u8>> = self.frames.iter().map(Forged::encode).collect();
        let mut frames_crc = FramesCrc::default();
        for frame in &frames {
            frames_crc.push(frame);
        }
        let body = frames.concat();
        let first_seq = self.frames[0].seq;
        let mut header = BatchHeader {
            kind: BatchKind::Frames,
            batch_seq: 1,
            previous_crc: self.header.crc(),
            frame_count: u32::try_from(frames.len()).unwrap(),
            body_bytes: body.len() as u64,
            first_seq,
            durable_upto: first_seq.saturating_sub(1),
            frames_crc: frames_crc.finish(),
        };
        (self.batch)(&mut header);
        let (bytes, crc) = header.encode(&place.at(file.len() as u64));
        append(&mut file, &[&bytes[..], &body].concat());
        if let Some(seal) = &self.seal {
            let at = place.at(file.len() as u64);
            let body = seal.encode(&at);
            let next = first_seq.wrapping_add(frames.len() as u64);
            let header = BatchHeader {
                kind: BatchKind::Seal,
                batch_seq: 2,
                previous_crc: crc,
                frame_count: 0,
                body_bytes: body.len() as u64,
                first_seq: next,
                durable_upto: next.wrapping_sub(1),
                frames_crc: 0,
            };
            append(&mut file, &[&header.encode(&at).0[..], &body].concat());
        }
        file.resize(usize::try_from(FILE_BYTES).unwrap(), 0);
        file
    }
}

fn manifest() -> Manifest {
    let wal = vec![WalFile { number: 1, incarnation: 1, file_bytes: FILE_BYTES, end: None }];
    Manifest { number: 1, wal, ..Manifest::new(STORE) }
}

/// A disk with a store of these files.
fn disk(manifest: &Manifest, logs: &[&Log<'_>]) -> MemoryVfs {
    let disk = MemoryVfs::new();
    for directory in ["store", "store/wal", "store/seg"] {
        disk.create_dir_all(Path::new(directory)).unwrap();
    }
    let write = |name: FileName, bytes: &[u8]| {
        disk.overwrite(Path::new(&format!("store/{name}")), bytes);
    };
    let (bytes, stamp) = manifest.encode();
    write(FileName::new(FileKind::Manifest, manifest.number), &bytes);
    let current = Current { store: STORE, manifest: stamp };
    write(FileName::new(FileKind::Current, 0), &current.encode());
    for log in logs {
        write(FileName::new(FileKind::Wal, log.header.number), &log.encode());
    }
    disk
}

fn options(disk: &MemoryVfs) -> Options {
    Options::new().vfs(Arc::new(disk.clone())).background(false).memtable_bytes(1 << 20)
}

/// Every way in refuses the store; answers what `open` found.
fn refused(what: &str, disk: &MemoryVfs) -> Corruption {
    let damage = |way: &str, error: annals::Error| match error.into_kind() {
        ErrorKind::Corrupt(damage) => *damage,
        other => panic!("{what}: {way}: {other:?}"),
    };
    let report = annals::check("store", &options(disk), &mut |_, _| ()).unwrap();
    assert!(!report.damage.is_empty(), "{what}: check found nothing: {report:?}");
    let read = Store::open_read_only_with("store", &options(disk));
    let read = damage("open_read_only", read.expect_err(what));
    let before = disk.paths();
    let opened = damage("open", Store::open_with("store", &options(disk)).expect_err(what));
    assert_eq!(read, opened, "{what}");
    assert_eq!(disk.paths(), [before, vec!["store/LOCK".into()]].concat().sorted(), "{what}");
    opened
}

trait Sorted {
    fn sorted(self) -> Self;
}

impl Sorted for Vec<String> {
    fn sorted(mut self) -> Self {
        self.sort();
        self.dedup();
        self
    }
}

fn refused_log(what: &str, log: &Log<'_>) {
    let damage = refused(what, &disk(&manifest(), &[log]));
    assert_eq!(damage.file, Path::new("store/wal/00000001.wal"), "{what}: {damage}");
    assert!(damage.offset < FILE_BYTES, "{what}: {damage}");
}

#[test]
fn the_forger_can_write_a_store_that_is_well() {
    let ops = [PUT, Op::Put { key: b"\x00L12345678", value: &[9; 8], lease: 0 }];
    let mut second = Forged::new(2, 3, [PUT, Op::Compact { revision: 2 }]);
    second.results[0] = (2, 2);
    let rolled = SealKind::Rolled { next_file: 2, next_file_bytes: FILE_BYTES };
    let seal = Some(Seal { kind: rolled, last_seq: 2, last_revision: 3 });
    let first = Log { seal, ..Log::of([Forged::new(1, 2, ops), second]) };
    let header = WalFileHeader { number: 2, previous_file: 1, first_seq: 3, ..first.header };
    let next = Log { header, ..Log::of([Forged::new(3, 4, [Op::Delete { key: b"\x01a" }])]) };
    let disk = disk(&manifest(), &[&first, &next]);
    let report = annals::check("store", &options(&disk), &mut |_, _| ()).unwrap();
    assert!(report.damage.is_empty() && report.revision == 4, "{report:?}");
    let store = Store::open_read_only_with("store", &options(&disk)).unwrap();
    assert_eq!((store.revision(), store.compacted_revision()), (4, 2));
    drop(store);
    let store = Store::open_with("store", &options(&disk)).unwrap();
    assert_eq!(store.at(3).unwrap().get("a").unwrap().unwrap().version, 2);
    assert_eq!(store.get("a").unwrap(), None);
    assert_eq!(store.put("a", "").unwrap().revision, 5);
}

#[test]
fn frames_that_say_the_impossible_are_refused() {
    let compact = |revision| Op::Compact { revision };
    let leased = Op::Put { key: b"\x00C", value: b"", lease: 5 };
    let lease = Op::Put { key: b"\x00L12345678", value: b"", lease: 0 };
    let unknown = Op::Put { key: b"\x00Q", value: b"", lease: 0 };
    let empty = Op::Put { key: b"\x01", value: b"", lease: 0 };
    let mut version = Forged::new(1, 2, [PUT]);
    version.results = vec![(2, 2)];
    let mut number = Forged::new(1, 2, [PUT]);
    number.results = vec![(u64::MAX, u64::MAX)];
    for (what, frame) in [
        ("a compaction to 0", Forged::new(1, 1, [compact(0)])),
        ("a compaction above the frame", Forged::new(1, 1, [compact(2)])),
        ("a compaction to the largest number", Forged::new(1, 1, [compact(u64::MAX)])),
        ("a compaction before a put", Forged::new(1, 2, [compact(1), PUT])),
        ("an empty key", Forged::new(1, 2, [empty])),
        ("a key twice", Forged::new(1, 2, [PUT, PUT])),
        ("a system key with a lease", Forged::new(1, 1, [leased])),
        ("a lease without a time to live", Forged::new(1, 1, [lease])),
        ("a record of no known kind", Forged::new(1, 1, [unknown])),
        ("a second version that begins a lifetime", version),
        ("the largest version", number),
        ("no seq", Forged::new(0, 2, [PUT])),
        ("the largest seq", Forged::new(u64::MAX, 2, [PUT])),
        ("a seq out of reach", Forged::new(NUMBER_MAX, 2, [PUT])),
        ("the second seq first", Forged::new(2, 2, [PUT])),
        ("no revision", Forged::new(1, 0, [])),
        ("the largest revision", Forged::new(1, u64::MAX, [PUT])),
        ("a revision not taken", Forged::new(1, 2, [])),
        ("a revision passed over", Forged::new(1, 3, [PUT])),
        ("a revision given before", Forged::new(1, 1, [PUT])),
    ] {
        refused_log(what, &Log::of([frame.clone()]));
        // Also where the file and the batch begin with that seq.
        let mut log = Log::of([frame]);
        log.header.first_seq = log.frames[0].seq.max(1);
        refused_log(what, &log);
    }
}

#[test]
fn frames_that_do_not_follow_are_refused() {
    let first = Forged::new(1, 2, [PUT]);
    let other = Op::Put { key: b"\x01b", value: b"", lease: 0 };
    let compact = |seq| Forged::new(seq, 2, [Op::Compact { revision: 2 }]);
    let earlier = Forged { time: 999, ..Forged::new(2, 3, [other]) };
    for (what, rest) in [
        ("the same seq", vec![Forged::new(1, 3, [other])]),
        ("a seq passed over", vec![Forged::new(3, 3, [other])]),
        ("the same revision", vec![Forged::new(2, 2, [other])]),
        ("a revision passed over", vec![Forged::new(2, 4, [other])]),
        ("an earlier time", vec![earlier]),
        ("the same compaction", vec![compact(2), compact(3)]),
    ] {
        refused_log(what, &Log::of([vec![first.clone()], rest].concat()));
    }
}

#[test]
fn what_follows_the_segments_continues_them() {
    let flushed = Manifest {
        flushed_seq: 4,
        flushed_revision: 5,
        flushed_time: 1000,
        revision_floor: 5,
        ..manifest()
    };
    let log = |seq, revision, time| {
        let mut log = Log::of([Forged { time, ..Forged::new(seq, revision, [PUT]) }]);
        log.header.first_seq = seq;
        disk(&flushed, &[&log])
    };
    assert_eq!(Store::open_with("store", &options(&log(5, 6, 1000))).unwrap().revision(), 6);
    assert_eq!(Store::open_with("store", &options(&log(4, 5, 1000))).unwrap().revision(), 5);
    for (what, disk) in [
        ("another revision of the last frame flushed", log(4, 6, 1000)),
        ("a revision given before", log(5, 5, 1000)),
        ("a revision passed over", log(5, 7, 1000)),
        ("a seq passed over", log(6, 6, 1000)),
        ("a time before the last one flushed", log(5, 6, 999)),
    ] {
        let damage = refused(what, &disk);
        assert_eq!(damage.file, Path::new("store/wal/00000001.wal"), "{what}: {damage}");
    }
}

#[test]
fn headers_and_seals_that_say_the_impossible_are_refused() {
    let log = || Log::of([Forged::new(1, 2, [PUT])]);
    let with = |change: fn(&mut WalFileHeader)| {
        let mut log = log();
        change(&mut log.header);
        log
    };
    for (what, log) in [
        ("a file of no incarnation", with(|header| header.incarnation = 0)),
        ("a file of another incarnation", with(|header| header.incarnation = 2)),
        ("a file that follows itself", with(|header| header.previous_file = 1)),
        ("a file that follows the largest", with(|header| header.previous_file = u64::MAX)),
        ("no first seq", with(|header| header.first_seq = 0)),
        ("another first seq", with(|header| header.first_seq = 2)),
        ("the largest first seq", with(|header| header.first_seq = u64::MAX)),
        ("a file of no bytes", with(|header| header.file_bytes = 0)),
        ("a file of all bytes", with(|header| header.file_bytes = u64::MAX)),
    ] {
        refused_log(what, &log);
    }
    for (what, batch) in [
        ("no batch seq", (|batch| batch.batch_seq = 0) as fn(&mut BatchHeader)),
        ("the largest batch seq", |batch| batch.batch_seq = u64::MAX),
        ("the largest first seq", |batch| batch.first_seq = u64::MAX),
        ("all that follows durable", |batch| batch.durable_upto = u64::MAX),
        ("all bytes", |batch| batch.body_bytes = u64::MAX),
        ("all frames", |batch| batch.frame_count = u32::MAX),
    ] {
        refused_log(what, &Log { batch, ..log() });
    }
    let rolled = |next_file, next_file_bytes| SealKind::Rolled { next_file, next_file_bytes };
    let stamp =
        |number, bytes| SealKind::Closed { manifest: ManifestStamp { number, bytes, crc: 0 } };
    for (what, kind, last_seq, last_revision) in [
        ("a seal with another seq", rolled(2, FILE_BYTES), 2, 2),
        ("a seal with the largest seq", rolled(2, FILE_BYTES), u64::MAX, 2),
        ("a seal with another revision", rolled(2, FILE_BYTES), 1, 3),
        ("a seal with the largest revision", rolled(2, FILE_BYTES), 1, u64::MAX),
        ("a seal that names the same file", rolled(1, FILE_BYTES), 1, 2),
        ("a seal that names the largest file", rolled(u64::MAX, FILE_BYTES), 1, 2),
        ("a seal that names a file of some bytes", rolled(2, 5000), 1, 2),
        ("a seal that names a file of all bytes", rolled(2, u64::MAX), 1, 2),
        ("a seal that names the largest manifest", stamp(u64::MAX, 100), 1, 2),
    ] {
        let seal = Some(Seal { kind, last_seq, last_revision });
        refused_log(what, &Log { seal, ..log() });
    }
}

fn segment() -> FileMeta {
    FileMeta {
        number: 5,
        kind: FileKind::L0,
        class: 0,
        incarnation: 1,
        bytes: 4096,
        hash: ContentHash([0; 16]),
        entries: 1,
        value_bytes: 10,
        first_key: b"\x01a".to_vec(),
        last_key: b"\x01b".to_vec(),
        min_revision: 1,
        max_revision: 1,
        death_after: 0,
        death_upto: 0,
        last_seq: 0,
        folded_to: Vec::new(),
        blobs: Vec::new(),
    }
}

#[test]
fn manifests_that_say_the_impossible_are_refused() {
    let log = Log::of([Forged::new(1, 2, [PUT])]);
    let with_file = |change: fn(&mut FileMeta)| {
        let mut file = segment();
        change(&mut file);
        Manifest { next_file: 6, files: vec![file], ..manifest() }
    };
    let wal = |wal: &[WalFile]| Manifest { wal: wal.to_vec(), ..manifest() };
    let listed = |number| WalFile { number, incarnation: 1, file_bytes: FILE_BYTES, end: None };
    let twice = Manifest { next_file: 6, files: vec![segment(), segment()], ..manifest() };
    let huge = FileMeta { bytes: NUMBER_MAX, ..segment() };
    let sums = [1, 2, 3, 4, 5].map(|number| FileMeta { number, ..huge.clone() });
    for (what, manifest) in [
        ("the largest incarnation", Manifest { incarnation: u64::MAX, ..manifest() }),
        ("no incarnation", Manifest { incarnation: 0, ..manifest() }),
        ("no next file", Manifest { next_file: 0, ..manifest() }),
        ("the largest next file", Manifest { next_file: u64::MAX, ..manifest() }),
        ("the largest watermark", Manifest { compacted: u64::MAX, ..manifest() }),
        ("the largest floor", Manifest { revision_floor: u64::MAX, ..manifest() }),
        ("the largest flushed seq", Manifest { flushed_seq: u64::MAX, ..manifest() }),
        ("the largest flushed revision", Manifest { flushed_revision: u64::MAX, ..manifest() }),
        ("no flushed revision", Manifest { flushed_revision: 0, ..manifest() }),
        ("the largest manifest", Manifest { number: u64::MAX, ..manifest() }),
        ("a log file of no number", wal(&[listed(0)])),
        ("the largest log file", wal(&[listed(u64::MAX)])),
        ("a log with a gap", wal(&[listed(1), listed(3)])),
        ("a log file twice", wal(&[listed(1), listed(1)])),
        ("a log file of no incarnation", wal(&[WalFile { incarnation: 0, ..listed(1) }])),
        ("a log file of no bytes", wal(&[WalFile { file_bytes: 0, ..listed(1) }])),
        ("a log file of all bytes", wal(&[WalFile { file_bytes: u64::MAX, ..listed(1) }])),
        ("an end behind the file", wal(&[WalFile { end: Some(FILE_BYTES + 1), ..listed(1) }])),
        ("a segment twice", twice),
        ("a segment of a number to come", with_file(|file| file.number = 6)),
        ("the largest segment", with_file(|file| file.number = u64::MAX)),
        ("a segment of no incarnation", with_file(|file| file.incarnation = 0)),
        ("a segment of an incarnation to come", with_file(|file| file.incarnation = 2)),
        ("a segment of all bytes", with_file(|file| file.bytes = u64::MAX)),
        ("a segment of all entries", with_file(|file| file.entries = u64::MAX)),
        ("a segment of all values", with_file(|file| file.value_bytes = u64::MAX)),
        (
            "segments larger than can be added up",
            Manifest { next_file: 6, files: sums.into(), ..manifest() },
        ),
        ("the largest revision of a segment", with_file(|file| file.max_revision = u64::MAX)),
        ("revisions the wrong way round", with_file(|file| file.min_revision = 2)),
        ("the largest death", with_file(|file| file.death_upto = u64::MAX)),
        ("deaths the wrong way round", with_file(|file| file.death_after = 2)),
        ("keys the wrong way round", with_file(|file| file.first_key = b"\x01c".to_vec())),
    ] {
        let damage = refused(what, &disk(&manifest, &[&log]));
        let name = FileName::new(FileKind::Manifest, manifest.number).to_string();
        assert_eq!(damage.file, Path::new("store").join(name), "{what}: {damage}");
    }
    for (what, manifest) in [
        ("a watermark above all revisions", Manifest { compacted: 3, ..manifest() }),
        ("a floor above all revisions", Manifest { revision_floor: 3, ..manifest() }),
        ("a log file of another incarnation", wal(&[WalFile { incarnation: 2, ..listed(1) }])),
    ] {
        refused(what, &disk(&manifest, &[&log]));
    }
}

#[test]
fn at_the_last_numbers_a_store_can_be_read_and_not_written() {
    let last = Manifest {
        flushed_seq: NUMBER_MAX,
        flushed_revision: NUMBER_MAX,
        revision_floor: NUMBER_MAX,
        wal: Vec::new(),
        closed: true,
        ..manifest()
    };
    let full = disk(&last, &[]);
    for _ in 0..2 {
        let store = Store::open_with("store", &options(&full)).unwrap();
        assert_eq!(store.revision(), NUMBER_MAX);
        let error = store.put("a", "").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
        assert_eq!(store.get("a").unwrap(), None);
        store.close().unwrap();
    }
    let log = Log::of([Forged::new(1, 2, [PUT])]);
    for last in [
        Manifest { incarnation: NUMBER_MAX, ..manifest() },
        Manifest { number: NUMBER_MAX, ..manifest() },
    ] {
        let full = disk(&last, &[&log]);
        let error = Store::open_with("store", &options(&full)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
        let store = Store::open_read_only_with("store", &options(&full)).unwrap();
        assert_eq!(store.revision(), 2);
    }
}

#[test]
fn names_alone_do_not_use_up_the_numbers() {
    let log = Log::of([Forged::new(1, 2, [PUT])]);
    for number in [NUMBER_MAX - 1, NUMBER_MAX, NUMBER_MAX + 1, u64::MAX] {
        let disk = disk(&manifest(), &[&log]);
        for name in [format!("seg/{number}.l0"), format!("wal/{number}.wal")] {
            disk.overwrite(Path::new(&format!("store/{name}")), &[]);
        }
        for revision in 3..6 {
            let store = Store::open_with("store", &options(&disk)).unwrap();
            assert_eq!(store.put("a", "").unwrap().revision, revision);
            store.flush().unwrap();
            store.close().unwrap();
        }
    }
}
