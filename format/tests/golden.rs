//! The golden files: annotated dumps of one sample of every structure. Encoding gives exactly
//! these bytes, and these bytes decode to exactly the sample.
//!
//! A golden file of a released format version is never changed. `UPDATE=1 cargo test --test golden`
//! writes the files of a version that is still being designed.
#![allow(clippy::unwrap_used, reason = "in a test that is how to fail")]

mod harness;
mod samples;

use annals_format::frame::{Binding, FIXED_BYTES, OPERATION_BYTES};
use annals_format::layout::Layout;
use annals_format::retention::Rule;
use annals_format::space::Key;
use annals_format::wal_file::WalFileHeader;
use annals_format::{
    Frame, Manifest, batch, current, frame, lease, manifest, retention, seal, sector, space,
    wal_file,
};
use harness::{Dump, golden};

#[test]
fn wal_file_header() {
    let sample = samples::wal_file_header();
    let encoded = sample.encode();
    let mut dump = Dump::new("the header of WAL file 7", &encoded);
    dump.layout(&wal_file::LAYOUT);
    let bytes = golden("wal-file-header-v1.hex", &dump.finish());
    assert_eq!(WalFileHeader::decode(&bytes), Ok(sample));
}

#[test]
fn batch_header() {
    let sample = samples::batch_header();
    let (encoded, crc) = sample.encode(&samples::PLACE);
    let mut dump = Dump::new("the header of the first batch of WAL file 7", &encoded);
    dump.layout(&batch::LAYOUT);
    let bytes = golden("batch-header-v1.hex", &dump.finish());
    assert_eq!(batch::BatchHeader::decode(&bytes, &samples::PLACE), Ok((sample, crc)));
}

#[test]
fn seals() {
    for (closed, name) in [(false, "seal-rolled-v1.hex"), (true, "seal-closed-v1.hex")] {
        let sample = samples::seal(closed);
        let encoded = sample.encode(&samples::PLACE);
        let mut dump = Dump::new("the body of a seal batch at offset 4096 of WAL file 7", &encoded);
        dump.layout(&seal::LAYOUT);
        let bytes = golden(name, &dump.finish());
        assert_eq!(seal::Seal::decode(&bytes, &samples::PLACE), Ok(sample));
    }
}

#[test]
fn internal_keys() {
    let [user, lease_key, attachment, compacted, kept] = samples::keys().map(|key| key.encode());
    let ttl = lease::Value { ttl: 60, remaining: None };
    let later = lease::Value { remaining: Some(12_345), ..ttl };
    let rule = Rule { revisions: Some(100), age: Some(3_600_000_000), removed: false, floor: 7 };
    let encoded = [
        &user[..],
        &lease_key,
        &ttl.encode(),
        &later.encode(),
        &attachment,
        &compacted,
        &kept,
        &rule.encode(),
    ]
    .concat();
    let mut dump = Dump::new("a user's key, and every record of the store's own", &encoded);
    dump.bytes(1, "space");
    dump.bytes(7, "key");
    let fields = |dump: &mut Dump<'_>, layout: &Layout| {
        dump.comment(layout.structure);
        for field in layout.fields {
            dump.bytes(field.bytes, field.name);
        }
    };
    fields(&mut dump, &space::LEASE_LAYOUT);
    dump.comment("lease value, with its whole time left");
    dump.bytes(8, "ttl");
    fields(&mut dump, &lease::VALUE_LAYOUT);
    fields(&mut dump, &space::ATTACHMENT_LAYOUT);
    dump.bytes(7, "key");
    fields(&mut dump, &space::COMPACTED_LAYOUT);
    fields(&mut dump, &space::RETENTION_LAYOUT);
    dump.bytes(8, "prefix");
    fields(&mut dump, &retention::VALUE_LAYOUT);
    let mut bytes = &golden("internal-keys-v1.hex", &dump.finish())[..];
    for (key, length) in samples::keys().iter().zip([8, 10, 17, 2, 10]) {
        let (this, rest) = bytes.split_at(length);
        assert_eq!(Key::decode(this).as_ref(), Ok(key));
        bytes = rest;
        if let Key::Lease { .. } = key {
            for (length, value) in [(8, ttl), (16, later)] {
                let (this, rest) = bytes.split_at(length);
                assert_eq!(lease::Value::decode(this), Ok(value));
                bytes = rest;
            }
        }
        if let Key::Retention { .. } = key {
            let (this, rest) = bytes.split_at(25);
            assert_eq!(Rule::decode(this), Ok(rule));
            bytes = rest;
        }
    }
    assert!(bytes.is_empty());
}

#[test]
fn one_frame() {
    let sample = samples::frame();
    let mut dump = Dump::new("a transaction of four operations, with metadata", &sample);
    dump.layout(&frame::LAYOUT);
    for index in 0..samples::ops().len() {
        dump.bytes(8, &format!("op {index} create_revision"));
        dump.bytes(8, &format!("op {index} version"));
    }
    dump.bytes(4, "header_crc");
    assert_eq!(dump.reader.position(), FIXED_BYTES + 4 * OPERATION_BYTES + 4);
    dump.comment("payload");
    dump.bytes(2, "metadata");
    for _ in samples::ops() {
        match dump.bytes(1, "kind")[0] {
            1 => {
                dump.varint("lease");
                dump.prefixed("key");
                dump.prefixed("value");
            }
            2 => dump.prefixed("key"),
            _ => assert_eq!(dump.varint("revision"), 300),
        }
    }
    let bytes = golden("frame-v1.hex", &dump.finish());
    let (frame, used) = Frame::decode(&bytes, &Binding::new(&samples::STORE)).unwrap();
    assert_eq!(used, bytes.len());
    assert_eq!((frame.seq, frame.revision, frame.metadata), (41, 1001, &b"me"[..]));
    assert_eq!(frame.ops().map(|op| op.op).collect::<Vec<_>>(), samples::ops());
}

#[test]
fn one_batch_in_its_sectors() {
    let sample = samples::batch_page();
    let mut dump = Dump::new("the sectors of a batch: header, one frame, padding", &sample);
    let data = (batch::BYTES + samples::frame().len(), sector::DATA_BYTES);
    dump.bytes(batch::BYTES, "batch header");
    dump.bytes(data.0 - batch::BYTES, "frame");
    dump.bytes(data.1 - data.0, "zero");
    dump.bytes(4, "sector crc");
    for _ in 1..sector::PAGE_BYTES / sector::SECTOR_BYTES {
        dump.bytes(sector::DATA_BYTES, "zero");
        dump.bytes(4, "sector crc");
    }
    assert_eq!(golden("batch-v1.hex", &dump.finish()), sample);
}

#[test]
fn current_file() {
    let sample = samples::current();
    let encoded = sample.encode();
    let mut dump = Dump::new("the file CURRENT", &encoded);
    dump.layout(&current::LAYOUT);
    let bytes = golden("current-v1.hex", &dump.finish());
    assert_eq!(current::Current::decode(&bytes), Ok(sample));
    // As drafts wrote it, without a copy of the manifest, and as it is written.
    let alone = current::CurrentFile { current: sample, copy: None, damage: None };
    assert_eq!(current::CurrentFile::decode(&bytes), Ok(alone));
    let (manifest, _) = samples::manifest().encode();
    let whole = current::CurrentFile::encode(&sample, &manifest);
    assert_eq!(whole, [&bytes, &manifest, &bytes].map(Vec::as_slice).concat());
    let file = current::CurrentFile::decode(&whole).unwrap();
    assert_eq!((file.current, file.copy, &file.damage), (sample, Some(&manifest[..]), &None));
    assert_eq!(file.manifest(), Ok(Some(samples::manifest())));
}

#[test]
fn manifest_file() {
    let what = "a manifest with every kind of record but floors";
    manifest_is("manifest-v1.hex", what, &samples::manifest());
    let what = "a manifest with every kind of record";
    manifest_is("manifest-floors-v1.hex", what, &samples::manifest_with_floors());
}

fn manifest_is(file: &str, what: &str, sample: &Manifest) {
    let (encoded, _) = sample.encode();
    let mut dump = Dump::new(what, &encoded);
    dump.layout(&manifest::LAYOUT);
    while dump.reader.remaining() > 4 {
        let kind = dump.bytes(1, "kind")[0];
        dump.comment(["state", "wal", "segment", "floor"][usize::from(kind) - 1]);
        dump.varint("length");
        match kind {
            1 => {
                for name in [
                    "incarnation",
                    "next_file",
                    "compacted",
                    "revision_floor",
                    "flushed_seq",
                    "flushed_revision",
                ] {
                    dump.varint(name);
                }
                dump.bytes(8, "flushed_time");
                dump.bytes(1, "closed");
            }
            2 => {
                dump.varint("number");
                dump.varint("incarnation");
                dump.varint("file_bytes");
                if dump.bytes(1, "has_end")[0] == 1 {
                    dump.varint("end");
                }
            }
            4 => {
                dump.prefixed("prefix");
                dump.varint("floor");
            }
            _ => {
                dump.varint("number");
                let kind = dump.bytes(1, "kind")[0];
                dump.varint("class");
                dump.varint("incarnation");
                dump.varint("bytes");
                dump.bytes(16, "hash");
                dump.varint("entries");
                dump.varint("value_bytes");
                dump.prefixed("first_key");
                dump.prefixed("last_key");
                for name in ["min_revision", "max_revision", "death_after", "death_upto"] {
                    dump.varint(name);
                }
                if kind == annals_format::FileKind::L0.number() {
                    dump.varint("last_seq");
                    dump.prefixed("folded_to");
                }
                // The one of the sample that refers to values elsewhere.
                if kind == annals_format::FileKind::Head.number() {
                    dump.varint("blob_count");
                    dump.varint("blob_file");
                    dump.varint("value_bytes");
                }
            }
        }
    }
    dump.bytes(4, "crc");
    let bytes = golden(file, &dump.finish());
    assert_eq!(Manifest::decode(&bytes), Ok(sample.clone()));
    let stamp = sample.stamp();
    assert_eq!(Manifest::decode_stamped(&bytes), Ok((sample.clone(), stamp)));
}
