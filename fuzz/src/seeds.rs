//! The inputs a fuzzer starts from: one or more of every structure, small, made by the encoders.
//!
//! `cargo run` in this directory writes them to `corpus/`. They are checked in, so that what the
//! corpus tests does not depend on the code under test; after a change of the format they are made
//! anew.

use std::time::Duration;

use annals::vfs::MemoryVfs;
use annals::{PutRequest, Store, delete, put};
use annals_format::batch::{self, BatchHeader, BatchKind, FramesCrc};
use annals_format::block::{BlockHeader, BodyBuilder, Encoding};
use annals_format::checksum::FileSeed;
use annals_format::current::{Current, CurrentFile};
use annals_format::entry::{BlobRef, EntryRef};
use annals_format::events::{EventKind, EventRef, TransactionBuilder};
use annals_format::filter::FilterKind;
use annals_format::frame::{self, Binding, FrameSize, Op};
use annals_format::page::{Child, Handle, PageBuilder, Separator};
use annals_format::seal::{Seal, SealKind};
use annals_format::sector::{PAGE_BYTES, SectorBuffer};
use annals_format::segment::{Footer, HEADER_BYTES, Header};
use annals_format::wal_file::WalFileHeader;
use annals_format::{
    ContentHash, FileKind, FileMeta, Manifest, WalFile, dictionary, filter, space,
};

use crate::decoders::{FILE, KINDS, OFFSET};
use crate::{
    FIX, STORE, apply, archive, backup, cli, dir, groups, object, pages, place, records, selector,
    wal,
};

/// What a real etcd has written.
const ETCD_COMPACTED: &[u8] = include_bytes!("../../tests/recorded/etcd-compacted.db");
const ETCD_WHOLE: &[u8] = include_bytes!("../../tests/recorded/etcd-full.db");

/// An input: its target, its name, its bytes.
pub type Seed = (&'static str, String, Vec<u8>);

/// All of them.
pub fn all() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |target, name: &str, flags: &[u8], bytes: &[u8]| {
        seeds.push((target, name.to_owned(), [flags, bytes].concat()));
    };
    for (name, bytes) in frames() {
        add("wal_frame", name, &[FIX], &bytes);
        add("wal_frame", &format!("{name}_as_is"), &[0], &bytes);
    }
    add("wal_file", "two_batches_and_a_seal", &[FIX, 6], &wal::pack(&wal_file(true)));
    add("wal_file", "torn", &[0, 6], &wal::pack(&wal_file(false)));
    for (number, kind) in (0_u8..).zip(KINDS) {
        let label = kind.label();
        add("block", label, &[FIX, number], &block(kind, false));
        if matches!(kind, FileKind::History | FileKind::Events) {
            add("block", &format!("{label}_zstd"), &[FIX, number], &block(kind, true));
        }
        for (part, bytes) in segment_parts(kind) {
            add("segment", &format!("{label}_{part}"), &[FIX, number, part], &bytes);
        }
    }
    for (name, bytes) in groups::seeds() {
        add("groups", name, &[], &bytes);
    }
    add("page", "leaf", &[FIX, 1], &page(0));
    add("page", "branch", &[FIX, 2], &page(1));
    add("manifest", "full", &[FIX], &manifest().encode().0);
    add("manifest", "new", &[0], &Manifest::new(STORE).encode().0);
    let current = Current { store: STORE, manifest: manifest().stamp() };
    add("current", "current", &[FIX], &current.encode());
    add("current", "as_is", &[0], &current.encode());
    add("current", "copy", &[FIX], &CurrentFile::encode(&current, &manifest().encode().0));
    add("events", "three", &[0], &events());
    for (name, bytes) in [("compacted", ETCD_COMPACTED), ("whole", ETCD_WHOLE)] {
        add("bbolt", name, &[FIX], bytes);
    }
    for (name, flags, bytes) in backup::seeds() {
        add("backup", name, &[flags], &bytes);
    }
    for (name, flags, bytes) in object::seeds() {
        add("object_patch", &name, &[flags], &bytes);
    }
    for (name, flags, bytes) in apply::seeds() {
        add("object_apply", name, &[flags], &bytes);
    }
    for (name, flags, text) in pages::seeds() {
        add("object_list", name, &[flags], text.as_bytes());
    }
    for (name, kind, text) in selector::seeds() {
        add("selector", name, &[kind], text.as_bytes());
    }
    for (name, kind, bytes) in records::seeds() {
        add("records", name, &[kind], &bytes);
    }
    for (number, kind) in (0_u8..).zip(KINDS) {
        add("built", kind.label(), &[number], &noise(number, 300));
    }
    for (name, text) in cli::lines() {
        add("import_line", name, &[], text.as_bytes());
    }
    for (name, form, text) in cli::transactions() {
        add("txn", name, &[form], text.as_bytes());
    }
    for (name, flags, bytes) in directories() {
        add("open_dir", name, &[flags], &bytes);
    }
    for seed in 0..8_u8 {
        let flags = [0, 2, 4, 6][usize::from(seed % 4)];
        add("ops_vs_model", &format!("noise_{seed}"), &[flags], &noise(seed, 400));
        add("copies", &format!("noise_{seed}"), &[flags], &noise(seed + 8, 300));
    }
    seeds
}

fn noise(seed: u8, count: usize) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..count).map(|_| next()).collect()
}

fn encode_frame(seq: u64, revision: u64, metadata: &[u8], ops: &[Op<'_>]) -> Vec<u8> {
    let binding = Binding::new(&STORE);
    let size = FrameSize::of(metadata, ops.iter().copied());
    let mut bytes = vec![0; size.bytes()];
    frame::encode(
        &mut bytes,
        &binding,
        &size,
        seq.is_multiple_of(2),
        metadata,
        ops.iter().copied(),
        |_| (),
    );
    let results = ops.iter().map(|op| match op {
        Op::Put { .. } if op.is_user() => (revision, 1),
        _ => (0, 0),
    });
    frame::patch_header(&mut bytes, &binding, seq, revision, 1_700_000_000_000_000, results);
    bytes
}

fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let put = Op::Put { key: b"\x01/pods/a", value: b"one", lease: 0 };
    let leased = Op::Put { key: b"\x01/pods/b", value: &[7; 40], lease: -5 };
    let system = Op::Put { key: b"\x00L12345678", value: &[1; 8], lease: 0 };
    let mut left = [0; 16];
    (left[0], left[8]) = (60, 7);
    let lease_later = Op::Put { key: b"\x00L12345678", value: &left, lease: 0 };
    let delete = Op::Delete { key: b"\x01/pods/c" };
    vec![
        ("put", encode_frame(1, 2, b"", &[put])),
        ("several", encode_frame(2, 3, b"by hand", &[put, leased, delete, system])),
        ("lease_later", encode_frame(5, 3, b"", &[lease_later])),
        ("compact", encode_frame(3, 3, b"", &[Op::Compact { revision: 2 }])),
        ("nothing", encode_frame(4, 3, b"", &[])),
    ]
}

/// A log file of eight pages: two batches of frames and, if `whole`, a seal.
fn wal_file(whole: bool) -> Vec<u8> {
    let at = place(FileKind::Wal, wal::FILE);
    let seed = FileSeed::new(&at);
    let file_bytes = 8 * PAGE_BYTES as u64;
    let header = WalFileHeader {
        store: STORE,
        number: wal::FILE,
        file_bytes,
        previous_file: 0,
        first_seq: 1,
        incarnation: 1,
    };
    let mut file = Vec::new();
    let mut buffer = SectorBuffer::default();
    let mut append = |file: &mut Vec<u8>, logical: &[u8]| {
        buffer.clear();
        buffer.push(logical);
        buffer.seal(seed, file.len() as u64);
        file.extend_from_slice(buffer.sealed());
    };
    let bytes = header.encode();
    append(&mut file, &bytes);
    let mut previous_crc = u32::from_le_bytes(*bytes.last_chunk().expect("72 bytes"));
    let long = Op::Put { key: b"\x01/pods/long", value: &[9; 1500], lease: 0 };
    let all = frames();
    let batches = [
        vec![all[0].1.clone(), all[1].1.clone()],
        vec![all[2].1.clone(), encode_frame(4, 4, b"", &[long])],
    ];
    let mut first_seq = 1;
    for (batch_seq, frames) in (1..).zip(&batches) {
        let mut frames_crc = FramesCrc::default();
        frames.iter().for_each(|frame| frames_crc.push(frame));
        let body = frames.concat();
        let header = BatchHeader {
            kind: BatchKind::Frames,
            batch_seq,
            previous_crc,
            frame_count: u32::try_from(frames.len()).expect("few"),
            body_bytes: body.len() as u64,
            first_seq,
            durable_upto: first_seq - 1,
            frames_crc: frames_crc.finish(),
        };
        let (bytes, crc) = header.encode(&at.at(file.len() as u64));
        append(&mut file, &[&bytes[..], &body].concat());
        previous_crc = crc;
        first_seq += frames.len() as u64;
    }
    if whole {
        let at = at.at(file.len() as u64);
        let kind = SealKind::Rolled { next_file: 2, next_file_bytes: file_bytes };
        let body = Seal { kind, last_seq: 4, last_revision: 4 }.encode(&at);
        let header = BatchHeader {
            kind: BatchKind::Seal,
            batch_seq: 3,
            previous_crc,
            frame_count: 0,
            body_bytes: body.len() as u64,
            first_seq,
            durable_upto: first_seq - 1,
            frames_crc: 0,
        };
        append(&mut file, &[&header.encode(&at).0[..], &body].concat());
    } else {
        let torn = file.len() - PAGE_BYTES;
        file[torn + 512..torn + 1024].fill(0);
    }
    assert!(file.len() > batch::BYTES);
    file.resize(8 * PAGE_BYTES, 0);
    file
}

fn block(kind: FileKind, compressed: bool) -> Vec<u8> {
    let mut builder = BodyBuilder::new(kind);
    // Some kinds have one version of a key.
    let versions = if kind.has_one_version() { 1 } else { 2 };
    for number in 0..40_u64 {
        let name = format!("\u{1}/pods/pod-{:02}", number / versions).into_bytes();
        let key = if kind == FileKind::Events { number.to_be_bytes().to_vec() } else { name };
        let revision = if kind == FileKind::Events { number } else { 90 - number };
        let tombstone = number % 7 == 3 && kind != FileKind::Events;
        let blob = Some(BlobRef { file: 10, bytes: 70_000 });
        let blob = blob.filter(|_| kind.may_refer() && !tombstone && number % 6 == 1);
        builder.push(&EntryRef {
            key: &key,
            revision,
            sub: 1,
            tombstone,
            create_revision: if tombstone { 0 } else { 10 },
            version: if tombstone { 0 } else { 100 - number },
            lease: if number % 5 == 0 && !tombstone { 77 } else { 0 },
            death: if kind == FileKind::History { revision + 1 } else { 0 },
            first: if kind == FileKind::L0 { revision - number % 3 } else { 0 },
            lived: kind == FileKind::L0 && number % 2 == 1,
            value: match blob {
                None if !tombstone => b"a value that repeats itself, a value that",
                _ => b"",
            },
            blob,
        });
    }
    let raw = builder.finish();
    let zstd = zstd::bulk::compress(&raw.body, 1).expect("zstd");
    let (encoding, stored) =
        if compressed { (Encoding::Zstd, zstd) } else { (Encoding::Raw, raw.body.clone()) };
    let header = BlockHeader {
        kind,
        encoding,
        raw_bytes: u32::try_from(raw.body.len()).expect("small"),
        stored_bytes: u32::try_from(stored.len()).expect("small"),
        entry_count: raw.entry_count,
        base_distance: 0,
    };
    let mut out = Vec::new();
    header.encode(&mut out, FileSeed::new(&place(kind, FILE)), OFFSET, &stored);
    out
}

fn page(level: u8) -> Vec<u8> {
    let mut builder = PageBuilder::new(level);
    for number in 0..12_u32 {
        let separator = match number {
            0 => Separator::first(),
            number => Separator {
                key: format!("\u{1}/pods/pod-{number:03}").into_bytes(),
                revision: u64::from(number),
            },
        };
        let offset = OFFSET + u64::from(number) * 600;
        let handle = Handle { offset, bytes: 600, number };
        builder.push(Child { separator, handle, rank: 5 * i32::try_from(number).expect("small") });
    }
    let mut out = Vec::new();
    builder.finish(&mut out, FileSeed::new(&place(KINDS[1], FILE)), OFFSET);
    out
}

/// Header, footer, filter and dictionary, by the number the target gives them.
fn segment_parts(kind: FileKind) -> Vec<(u8, Vec<u8>)> {
    let at = place(kind, FILE);
    let seed = FileSeed::new(&at);
    let mut parts = vec![Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    Header { place: at, class: 0, incarnation: 2 }.encode(&mut parts[0]);
    let index_offset = HEADER_BYTES as u64 + 1200;
    let filter_offset = index_offset + 400;
    let history = kind == FileKind::History;
    Footer {
        place: at.at(filter_offset + 96 + 40),
        class: 0,
        incarnation: 2,
        entries: 40,
        keys: 20,
        tombstones: 3,
        value_bytes: 1600,
        min_revision: 2,
        max_revision: 90,
        death_after: if history { 2 } else { 0 },
        death_upto: if history { 91 } else { 0 },
        block_count: 2,
        page_count: 1,
        index_offset,
        root: Handle { offset: index_offset, bytes: 400, number: 0 },
        height: 1,
        filter_offset,
        filter_bytes: 96,
        dictionary_bytes: 40,
        living: if kind == FileKind::Head { 17 } else { 0 },
    }
    .encode(&mut parts[1]);
    let wanted = if kind == FileKind::History { FilterKind::Fuse } else { FilterKind::Bloom };
    filter::encode(&mut parts[2], wanted, &[1, 2, filter::hash_key(b"\x01k")], seed, OFFSET);
    dictionary::encode(&mut parts[3], b"a dictionary of words", seed, OFFSET);
    (0..).zip(parts).collect()
}

fn manifest() -> Manifest {
    let mut manifest = Manifest::new(STORE);
    manifest.number = 9;
    manifest.incarnation = 2;
    manifest.next_file = 12;
    manifest.compacted = 3;
    manifest.revision_floor = 90;
    (manifest.flushed_seq, manifest.flushed_revision, manifest.flushed_time) = (80, 70, 1_700_000);
    let file_bytes = 64 << 10;
    manifest.wal = vec![
        WalFile { number: 4, incarnation: 1, file_bytes, end: Some(8192) },
        WalFile { number: 5, incarnation: 2, file_bytes, end: None },
    ];
    for (number, kind) in (6..).zip(KINDS) {
        let l0 = kind == FileKind::L0;
        let history = kind == FileKind::History;
        manifest.files.push(FileMeta {
            number,
            kind,
            class: 0,
            incarnation: 2,
            bytes: 4000 + number,
            hash: ContentHash::of(&[u8::try_from(number).expect("small")]),
            entries: 40,
            value_bytes: 1600,
            first_key: space::Key::User(b"a").encode(),
            last_key: space::Key::User(b"z").encode(),
            min_revision: 2,
            max_revision: 70,
            death_after: if history { 2 } else { 0 },
            death_upto: if history { 70 } else { 0 },
            last_seq: if l0 { 70 } else { 0 },
            folded_to: if l0 { space::Key::User(b"b").encode() } else { Vec::new() },
            blobs: match kind {
                FileKind::Head => vec![BlobRef { file: 10, bytes: 900 }],
                _ => Vec::new(),
            },
        });
    }
    manifest
}

fn events() -> Vec<u8> {
    let mut builder = TransactionBuilder::new();
    for (sub, kind) in [EventKind::Put, EventKind::Delete, EventKind::Put].into_iter().enumerate() {
        let put = kind == EventKind::Put;
        builder.push(&EventRef {
            kind,
            key: b"/pods/a",
            sub: u32::try_from(sub).expect("three"),
            create_revision: if put { 300 } else { 0 },
            version: u64::from(put),
            lease: if put { -1 } else { 0 },
            value_bytes: if put { 1 << 20 } else { 0 },
            value: (sub == 2).then_some(&b"repeated"[..]),
        });
    }
    let mut out = Vec::new();
    builder.finish(1, -3, b"by hand", &mut out);
    out
}

/// Archives of small stores: one closed, one killed, one with every kind of file.
fn directories() -> Vec<(&'static str, u8, Vec<u8>)> {
    let mut out = Vec::new();
    for (name, flags, writes, close) in [
        ("closed", FIX, 3, true),
        ("killed", FIX | 2, 5, false),
        ("every_kind", FIX, 170, true),
        ("every_kind_killed", FIX | 2 | 4, 170, false),
    ] {
        let disk = MemoryVfs::new();
        let store = Store::open_with(dir::DIR, &dir::options(&disk)).expect("a new store");
        let lease = store.lease_grant(9, Duration::from_secs(60)).expect("a lease").id;
        for number in 0..writes {
            let key = format!("/pods/{}", number % 7);
            let value = vec![b'a' + u8::try_from(number % 26).expect("a letter"); 90];
            let leased = PutRequest::new(&key, &value).lease(lease);
            store.put_with(leased).expect("a put");
            if number % 10 == 5 {
                let other = format!("/pods/{}", (number + 1) % 7);
                let txn = store.txn().then([put(&key, "short"), delete(&other)]);
                txn.metadata("by hand").commit().expect("a transaction");
            }
            while store.run_background().expect("background work") {}
        }
        let image = if close {
            store.close().expect("a close");
            disk
        } else {
            disk.crash(0, annals::vfs::CrashMode::KeepAll)
        };
        out.push((name, flags, archive::pack(&dir::files_of(&image))));
    }
    out
}
