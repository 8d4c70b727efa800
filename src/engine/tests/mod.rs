//! Tests of the whole room, on a simulated disk, against a naive model.

mod attend;
mod blobs;
mod blobs_hard;
mod closing;
mod count;
mod crash;
mod follow;
mod latest;
mod levels;
mod model;
mod pacing;
mod random;
mod reclaim;
mod shortage;
mod space;
mod split;
mod threads;
mod watermark;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::{Engine, InternalKey, Outcome, Plan, Write, WriteKind};
use crate::clock::ManualClock;
use crate::error::Result;
use crate::options::{Durability, Options};
use crate::vfs::{MemoryVfs, Vfs};

/// A small generator of numbers; the seed is printed by whoever fails.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

pub(super) const DIR: &str = "/store";

/// Options that make every kind of file small and frequent, without a thread.
pub(super) fn tiny(vfs: &Arc<dyn Vfs>) -> Options {
    Options::new()
        .vfs(Arc::clone(vfs))
        .clock(Arc::new(ManualClock::new(1_000)))
        .background(false)
        .store_id_seed(7)
        .memtable_bytes(16 << 10)
        .wal_bytes(64 << 10)
        .segment_bytes(8 << 10)
        .block_bytes(512)
        .history_block_bytes(1024)
        .l0_files_max(2)
        .history_windows_max(3)
        .blob_value_bytes(64)
}

/// The same, with all values in the entries.
pub(super) fn without_blobs(vfs: &Arc<dyn Vfs>) -> Options {
    tiny(vfs).blob_value_bytes(1 << 30)
}

pub(super) fn memory() -> (MemoryVfs, Arc<dyn Vfs>) {
    let disk = MemoryVfs::new();
    (disk.clone(), Arc::new(disk))
}

pub(super) fn open(options: &Options) -> Result<Engine> {
    Engine::open(Path::new(DIR), options).map(|(engine, _)| engine)
}

/// A user key as the engine knows it.
pub(super) fn user(key: impl AsRef<[u8]>) -> Bytes {
    Bytes::from([&[1], key.as_ref()].concat())
}

/// A system key as the engine knows it.
pub(super) fn system(key: impl AsRef<[u8]>) -> Bytes {
    Bytes::from([&[0], key.as_ref()].concat())
}

pub(super) fn put(key: Bytes, value: impl AsRef<[u8]>) -> Write<'static> {
    let (key, value) = (InternalKey::from_slice(&key), value.as_ref().to_vec().into());
    Write { key, kind: WriteKind::Put { value, lease: 0 } }
}

pub(super) fn delete(key: Bytes) -> Write<'static> {
    Write { key: InternalKey::from_slice(&key), kind: WriteKind::Delete }
}

/// Commits blindly, without waiting for durability.
pub(super) fn submit(engine: &Engine, plan: &Plan<'_>) -> Result<Outcome> {
    engine.transact(None, &mut |_, empty| {
        empty.clone_from(plan);
        Ok(true)
    })
}

/// Commits blindly, and waits as long as the store demands.
pub(super) fn commit(engine: &Engine, writes: Vec<Write<'_>>) -> Result<Outcome> {
    let outcome = submit(engine, &Plan { writes: writes.into(), ..Plan::default() })?;
    engine.wait(&outcome)?;
    Ok(outcome)
}

pub(super) fn compact(engine: &Engine, revision: u64) -> Result<Outcome> {
    let outcome = submit(engine, &Plan { compact: Some(revision), ..Plan::default() })?;
    engine.wait(&outcome)?;
    Ok(outcome)
}

#[test]
fn a_store_is_made_written_closed_and_opened_again() {
    let (_, vfs) = memory();
    let options = tiny(&vfs);
    let (engine, report) = Engine::open(Path::new(DIR), &options).unwrap();
    assert!(report.created && report.clean && report.incarnation == 1 && report.revision == 1);
    assert_eq!(engine.latest().unwrap().revision(), 1);
    let outcome = commit(&engine, vec![put(user("a"), "1"), put(user("b"), "2")]).unwrap();
    assert_eq!((outcome.position.revision, outcome.changed), (2, true));
    let view = engine.latest().unwrap();
    let a = view.get(&user("a")).unwrap().unwrap();
    assert_eq!((&a.value[..], a.mod_revision, a.create_revision, a.version), (&b"1"[..], 2, 2, 1));
    commit(&engine, vec![delete(user("a"))]).unwrap();
    assert!(view.get(&user("a")).unwrap().is_some());
    assert!(engine.latest().unwrap().get(&user("a")).unwrap().is_none());
    engine.close().unwrap();
    assert!(engine.latest().is_err());
    drop(engine);

    let (engine, report) = Engine::open(Path::new(DIR), &options).unwrap();
    assert!(!report.created && report.clean && report.incarnation == 1, "{report:?}");
    assert_eq!(report.frames_replayed, 2);
    assert_eq!(engine.revision(), 3);
    let view = engine.view(2).unwrap();
    assert_eq!(view.get(&user("a")).unwrap().unwrap().value, "1");
    assert!(engine.latest().unwrap().get(&user("a")).unwrap().is_none());
    assert!(engine.view(4).is_err() && engine.view(0).is_err());
}

#[test]
fn a_second_writer_is_refused_and_a_reader_is_not() {
    let (_, vfs) = memory();
    let options = tiny(&vfs);
    let engine = open(&options).unwrap();
    commit(&engine, vec![put(user("a"), "1")]).unwrap();
    let error = open(&options).unwrap_err();
    assert!(matches!(error.kind(), crate::ErrorKind::Locked { .. }), "{error}");
    let (reader, report) = Engine::open_read_only(Path::new(DIR), &options).unwrap();
    assert!(!report.clean);
    assert_eq!(reader.latest().unwrap().get(&user("a")).unwrap().unwrap().value, "1");
    assert!(reader.refreshed().unwrap().is_none());
    commit(&engine, vec![put(user("a"), "2")]).unwrap();
    let (reader, again) = reader.refreshed().unwrap().expect("news");
    assert_eq!(again.revision, report.revision + 1, "the report is of this opening");
    assert_eq!(reader.latest().unwrap().get(&user("a")).unwrap().unwrap().value, "2");
    let refused = commit(&reader, vec![put(user("a"), "3")]).unwrap_err();
    assert!(matches!(refused.kind(), crate::ErrorKind::ReadOnly), "{refused}");
}

#[test]
fn a_missing_store_is_not_made_unless_asked_for() {
    let (disk, vfs) = memory();
    let options = tiny(&vfs).create(false);
    for error in
        [open(&options).unwrap_err(), Engine::open_read_only(Path::new(DIR), &options).unwrap_err()]
    {
        assert!(matches!(error.kind(), crate::ErrorKind::NoStore { .. }), "{error}");
    }
    assert!(disk.paths().is_empty());
}

#[test]
fn a_buffered_commit_is_visible_at_once_and_durable_after_a_flush() {
    let (disk, vfs) = memory();
    let options = tiny(&vfs).durability(Durability::Buffered);
    let engine = open(&options).unwrap();
    commit(&engine, vec![put(user("a"), "1")]).unwrap();
    assert_eq!(engine.latest().unwrap().get(&user("a")).unwrap().unwrap().value, "1");
    assert_eq!((engine.revision(), engine.durable_revision()), (2, 1));
    let lost: Arc<dyn Vfs> = Arc::new(disk.crash(1, crate::vfs::CrashMode::LoseAll));
    let (reopened, report) = Engine::open(Path::new(DIR), &tiny(&lost)).unwrap();
    assert_eq!((reopened.revision(), report.incarnation), (1, 2));
    engine.flush().unwrap();
    assert_eq!(engine.durable_revision(), 2);
    let kept: Arc<dyn Vfs> = Arc::new(disk.crash(1, crate::vfs::CrashMode::LoseAll));
    assert_eq!(open(&tiny(&kept)).unwrap().revision(), 2);
}

#[test]
fn the_system_space_is_read_as_of_now_and_takes_no_revision() {
    let (_, vfs) = memory();
    let options = tiny(&vfs);
    let mut engine = open(&options).unwrap();
    for round in 0..400_u64 {
        let key = system(format!("Llease-{:02}", round % 7));
        let write = if round % 13 == 5 {
            // A key that does not live cannot be deleted.
            let lives = engine.latest().unwrap().get(&key).unwrap().is_some();
            if lives { delete(key) } else { put(key, round.to_le_bytes()) }
        } else {
            put(key, round.to_le_bytes())
        };
        let outcome = commit(&engine, vec![write]).unwrap();
        assert!(!outcome.changed && outcome.position.revision == 1);
        commit(&engine, Vec::new()).unwrap();
        if round % 50 == 49 {
            engine.reorganise().unwrap();
        }
        if round % 90 == 89 {
            engine.close().unwrap();
            drop(engine);
            engine = open(&options).unwrap();
        }
    }
    let view = engine.latest().unwrap();
    let found: Vec<Bytes> =
        view.scan(&system(""), b"", false).map(|record| record.unwrap().key).collect();
    assert!(!found.is_empty() && found.len() <= 7);
    assert_eq!(view.scan(&user(""), b"", false).count(), 0);
    for key in found {
        assert!(view.get(&key).unwrap().is_some());
    }
}
