//! The log as a whole, on a simulated disk: what was acknowledged is found again, what was torn is
//! dropped and said so, and what has rotted is refused.

mod ahead;
mod append;
mod crash;
mod damage;
mod flushed;
mod steps;
mod walk;

use std::path::Path;
use std::sync::Arc;

use annals_format::frame::{Binding, FrameSize, Op, encode, patch_header};
use annals_format::sector::{PAGE_BYTES, SECTOR_BYTES};
use annals_format::{Frame, Manifest, StoreId};

use super::inspect::{WalPart, verify, walk};
use super::*;
use crate::error::Result;
use crate::manifest::ManifestStore;
use crate::vfs::{Access, CrashMode, Fault, FaultVfs, File, MemoryVfs, Operation};

const STORE: StoreId = StoreId([0x5a; 16]);
const DIR: &str = "db";

/// Frame `seq`: the content follows from the number, so that any log can be checked alone.
fn frame(seq: u64, value_bytes: usize) -> Vec<u8> {
    let value = vec![u8::try_from(seq % 251).unwrap(); value_bytes];
    let key = format!("\x01key-{seq}");
    let ops = [Op::Put { key: key.as_bytes(), value: &value, lease: 0 }];
    let binding = Binding::new(&STORE);
    let size = FrameSize::of(&[], ops);
    let mut bytes = vec![0; size.bytes()];
    encode(&mut bytes, &binding, &size, false, &[], ops, |_| ());
    patch_header(&mut bytes, &binding, seq, seq + 1, time_of(seq), [(seq + 1, 1)]);
    bytes
}

fn time_of(seq: u64) -> i64 {
    i64::try_from(seq).unwrap() * 10
}

/// What an engine does with the log, and nothing else.
struct Log {
    writer: WalWriter,
    files: Arc<WalFiles>,
    manifest: Manifest,
    store: ManifestStore,
    seen: Vec<u64>,
    recovered: Recovered,
}

fn context(vfs: &Arc<dyn Vfs>) -> WalContext {
    context_in(vfs, Path::new(DIR))
}

fn context_in(vfs: &Arc<dyn Vfs>, dir: &Path) -> WalContext {
    WalContext {
        vfs: Arc::clone(vfs),
        dir: dir.into(),
        store: STORE,
        incarnation: 1,
        wal_bytes: 128 << 10,
        quick_syncs: true,
    }
}

impl Log {
    fn open(vfs: Arc<dyn Vfs>) -> Result<Self> {
        Self::open_in(vfs, Path::new(DIR))
    }

    fn open_in(vfs: Arc<dyn Vfs>, dir: &Path) -> Result<Self> {
        Self::open_with(vfs, dir, 128 << 10)
    }

    fn open_with(vfs: Arc<dyn Vfs>, dir: &Path, wal_bytes: u64) -> Result<Self> {
        let context = WalContext { wal_bytes, ..context_in(&vfs, dir) };
        let dir_error = |error| Error::io("create directory", dir, error);
        vfs.create_dir_all(dir).map_err(dir_error)?;
        vfs.create_dir_all(&context.wal_dir()).map_err(dir_error)?;
        let store = ManifestStore::new(vfs, dir);
        let mut manifest = store.load()?.unwrap_or_else(|| Manifest::new(STORE));
        let mut seen = Vec::new();
        let recovered = recover(&context, &manifest, Mode::Writer, &mut |frame, location| {
            check_frame(frame);
            assert!(location.offset > location.batch_offset);
            seen.push(frame.seq);
            Ok(())
        })?;
        let files = WalFiles::new(context.clone(), recovered.files.clone(), recovered.next_number);
        let (last_seq, last_revision) = (recovered.last_seq, recovered.last_revision);
        let writer = WalWriter::create(Arc::clone(&files), last_seq, last_revision)?;
        manifest.wal = files.listed();
        manifest.closed = false;
        manifest.revision_floor = manifest.revision_floor.max(last_revision);
        store.store(&mut manifest)?;
        settle(&context, &recovered.files)?;
        Ok(Self { writer, files, manifest, store, seen, recovered })
    }

    /// Appends a batch of frames that go on where the log ends.
    fn append(&mut self, frames: u64, value_bytes: usize) -> Result<u64> {
        let before = self.last_seq();
        let frames: Vec<_> =
            (before + 1..=before + frames).map(|seq| frame(seq, value_bytes)).collect();
        let last_seq = before + frames.len() as u64;
        self.writer.append(
            &mut frames.iter().map(Vec::as_slice),
            BatchInfo {
                first_seq: before + 1,
                last_seq,
                last_revision: last_seq + 1,
                durable_upto: before,
            },
        )?;
        self.seen.extend(before + 1..=last_seq);
        Ok(last_seq)
    }

    fn last_seq(&self) -> u64 {
        self.seen.last().copied().unwrap_or(self.recovered.last_seq)
    }

    fn close(mut self) -> Result<()> {
        self.manifest.closed = true;
        self.manifest.wal = self.files.listed();
        self.store.store(&mut self.manifest)?;
        self.writer.close(self.manifest.stamp())
    }
}

fn check_frame(frame: &Frame<'_>) {
    assert_eq!(frame.time, time_of(frame.seq));
    assert_eq!(frame.revision, frame.seq + 1);
    let op = frame.ops().next().unwrap();
    assert_eq!(op.op.key().unwrap(), format!("\x01key-{}", frame.seq).as_bytes());
    let Op::Put { value, .. } = op.op else { panic!("a put") };
    assert!(value.iter().all(|byte| u64::from(*byte) == frame.seq % 251));
}

fn disk() -> (MemoryVfs, Arc<dyn Vfs>) {
    let disk = MemoryVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    (disk, vfs)
}

fn image(disk: &MemoryVfs) -> MemoryVfs {
    disk.crash(0, CrashMode::KeepAll)
}

/// Opens a store that must be well, and answers what its log held.
fn reopen(disk: &MemoryVfs) -> Log {
    Log::open(Arc::new(disk.clone())).unwrap()
}

/// Reads the log without writing.
fn read(disk: &MemoryVfs) -> Result<(Vec<u64>, Recovered)> {
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let manifest = ManifestStore::new(Arc::clone(&vfs), DIR).load()?;
    let manifest = manifest.ok_or_else(|| Error::invalid("no store"))?;
    let mut seen = Vec::new();
    let recovered = recover(&context(&vfs), &manifest, Mode::ReadOnly, &mut |frame, _| {
        check_frame(frame);
        seen.push(frame.seq);
        Ok(())
    })?;
    Ok((seen, recovered))
}

fn verify_all(disk: &MemoryVfs) -> Vec<Corruption> {
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let manifest = ManifestStore::new(Arc::clone(&vfs), DIR).load().unwrap().unwrap();
    let mut found = Vec::new();
    verify(&context(&vfs), &manifest, &mut |_, _| (), &mut |damage| found.push(damage)).unwrap();
    found
}

fn all(last: u64) -> Vec<u64> {
    (1..=last).collect()
}

fn wal_path(number: u64) -> String {
    format!("{DIR}/wal/{number:08}.wal")
}

/// A small store with a few batches, cleanly closed.
fn closed_store() -> MemoryVfs {
    let (disk, vfs) = disk();
    let mut log = Log::open(vfs).unwrap();
    log.append(1, 30).unwrap();
    log.append(3, 300).unwrap();
    log.append(2, 1).unwrap();
    log.close().unwrap();
    disk
}

/// The same store, killed instead.
fn killed_store() -> MemoryVfs {
    let (disk, vfs) = disk();
    let mut log = Log::open(vfs).unwrap();
    log.append(1, 30).unwrap();
    log.append(3, 300).unwrap();
    log.append(2, 1).unwrap();
    image(&disk)
}
