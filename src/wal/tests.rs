//! The log as a whole, on a simulated disk: what was acknowledged is found again, what was torn is
//! dropped and said so, and what has rotted is refused.

use std::path::Path;
use std::sync::Arc;

use annals_format::frame::{Binding, FrameSize, Op, encode, patch_header};
use annals_format::sector::{PAGE_BYTES, SECTOR_BYTES};
use annals_format::{Frame, Manifest, StoreId};

use super::inspect::{WalPart, verify, walk};
use super::*;
use crate::error::Result;
use crate::manifest::ManifestStore;
use crate::vfs::{CrashMode, Fault, FaultVfs, MemoryVfs, Operation};

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
    manifest: Manifest,
    store: ManifestStore,
    seen: Vec<u64>,
    recovered: Recovered,
}

fn context(vfs: &Arc<dyn Vfs>) -> WalContext {
    WalContext { vfs: Arc::clone(vfs), dir: DIR.into(), store: STORE, wal_bytes: 128 << 10 }
}

impl Log {
    fn open(vfs: Arc<dyn Vfs>) -> Result<Self> {
        let context = context(&vfs);
        let dir_error = |error| Error::io("create directory", DIR, error);
        vfs.create_dir_all(Path::new(DIR)).map_err(dir_error)?;
        vfs.create_dir_all(&context.wal_dir()).map_err(dir_error)?;
        let store = ManifestStore::new(vfs, DIR);
        let mut manifest = store.load()?.unwrap_or_else(|| Manifest::new(STORE));
        let mut seen = Vec::new();
        let recovered = recover(&context, &manifest, Mode::Writer, &mut |frame, location| {
            check_frame(frame);
            assert!(location.offset > location.batch_offset);
            seen.push(frame.seq);
            Ok(())
        })?;
        let files = WalFiles::new(context.clone(), recovered.files.clone());
        let (last_seq, last_revision) = (recovered.last_seq, recovered.last_revision);
        let writer = WalWriter::create(files, recovered.next_number, last_seq, last_revision)?;
        manifest.wal = writer.files().listed();
        manifest.closed = false;
        manifest.revision_floor = manifest.revision_floor.max(last_revision);
        store.store(&mut manifest)?;
        settle(&context, &recovered.files)?;
        Ok(Self { writer, manifest, store, seen, recovered })
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
        self.manifest.wal = self.writer.files().listed();
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
    verify(&context(&vfs), &manifest, &mut |damage| found.push(damage)).unwrap();
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

#[test]
fn what_was_appended_is_found_again() {
    let (disk, vfs) = disk();
    let mut log = Log::open(vfs).unwrap();
    let mut last = 0;
    for batch in 1..40 {
        last = log.append(batch % 5 + 1, usize::try_from(batch * 97).unwrap()).unwrap();
    }
    for image in [image(&disk), disk.crash(1, CrashMode::LoseAll)] {
        let (seen, recovered) = read(&image).unwrap();
        assert_eq!(seen, all(last));
        assert_eq!(recovered.last_revision, last + 1);
        assert_eq!(recovered.last_time, time_of(last));
        assert_eq!((recovered.torn, recovered.closed), (None, false));
        assert_eq!(verify_all(&image), []);
        assert_eq!(reopen(&image).seen, all(last));
    }
    log.close().unwrap();
    let (seen, recovered) = read(&disk).unwrap();
    assert_eq!(seen, all(last));
    assert!(recovered.closed);
    assert_eq!(verify_all(&disk), []);
}

#[test]
fn sessions_follow_each_other() {
    let (disk, _) = disk();
    let mut last = 0;
    for session in 0..12 {
        let mut log = reopen(&disk);
        assert_eq!(log.seen, all(last));
        for _ in 0..session % 4 {
            last = log.append(2, 100).unwrap();
        }
        if session % 3 == 0 {
            log.close().unwrap();
        }
        assert_eq!(verify_all(&disk), []);
    }
    assert_eq!(read(&disk).unwrap().0, all(last));
}

#[test]
fn the_log_rolls_over_and_flushed_files_are_forgotten() {
    let (disk, vfs) = disk();
    let mut log = Log::open(vfs).unwrap();
    let mut last = 0;
    for batch in 0..200 {
        last = log.append(1, 3000).unwrap();
        if batch % 2 == 0 && log.writer.files().spare_is_wanted() {
            assert!(log.writer.files().prepare_spare().unwrap());
        }
    }
    let listed = log.writer.files().listed();
    assert!(listed.len() >= 4, "{listed:?}");
    assert!(listed.iter().rev().skip(1).all(|file| file.end.is_some()));
    // The manifest still lists the first file only: the rest is found by the seals.
    assert_eq!(read(&disk).unwrap().0, all(last));
    assert_eq!(verify_all(&disk), []);

    let flushed = 100;
    let numbers = log.writer.files().forget(flushed);
    assert!(!numbers.is_empty());
    log.manifest.wal = log.writer.files().listed();
    (log.manifest.flushed_seq, log.manifest.flushed_revision) = (flushed, flushed + 1);
    log.store.store(&mut log.manifest).unwrap();
    log.writer.files().remove(&numbers).unwrap();
    let (seen, _) = read(&image(&disk)).unwrap();
    assert_eq!(seen, (flushed + 1..=last).collect::<Vec<_>>());
    assert_eq!(verify_all(&disk), []);
    log.append(1, 10).unwrap();
    log.close().unwrap();
    assert_eq!(reopen(&disk).last_seq(), last + 1);
}

#[test]
fn a_batch_larger_than_the_file_gets_a_stretched_file() {
    for spare in [false, true] {
        let (disk, vfs) = disk();
        let mut log = Log::open(vfs).unwrap();
        log.append(20, 4000).unwrap();
        if spare {
            assert!(log.writer.files().prepare_spare().unwrap());
        }
        log.append(1, 65 << 20).unwrap();
        let last = log.append(2, 100).unwrap();
        assert_eq!(read(&disk.crash(0, CrashMode::LoseAll)).unwrap().0, all(last));
        assert_eq!(verify_all(&disk), []);
        log.close().unwrap();
        assert_eq!(reopen(&disk).seen, all(last));
    }
}

/// Every subset of the sectors of the batch in flight: whole it counts, else it is dropped.
#[test]
fn a_torn_batch_is_dropped_and_reported() {
    for batches_before in [0, 2] {
        let (disk, vfs) = disk();
        let mut log = Log::open(vfs).unwrap();
        for _ in 0..batches_before {
            log.append(2, 100).unwrap();
        }
        let (before, acked) = (image(&disk), log.last_seq());
        let path = wal_path(1);
        let old = disk.read(Path::new(&path)).unwrap();
        let last = log.append(2, 1400).unwrap();
        let new = disk.read(Path::new(&path)).unwrap();
        let sectors: Vec<usize> = (0..old.len())
            .step_by(SECTOR_BYTES)
            .filter(|at| old[*at..][..SECTOR_BYTES] != new[*at..][..SECTOR_BYTES])
            .collect();
        assert!((6..=9).contains(&sectors.len()), "{sectors:?}");
        for subset in 0..1_u32 << sectors.len() {
            let mut bytes = old.clone();
            for (index, &at) in sectors.iter().enumerate() {
                if subset >> index & 1 == 1 {
                    bytes[at..at + SECTOR_BYTES].copy_from_slice(&new[at..at + SECTOR_BYTES]);
                }
            }
            let disk = image(&before);
            disk.overwrite(Path::new(&path), &bytes);
            let whole = subset + 1 == 1 << sectors.len();
            let (seen, recovered) = read(&disk).unwrap();
            assert_eq!(seen, all(if whole { last } else { acked }), "{subset:b}");
            let written = u64::from(subset.count_ones()) * SECTOR_BYTES as u64;
            let dropped = recovered.torn.map_or(0, |torn| torn.dropped_bytes);
            let header = usize::from(batches_before == 0 && subset & 1 == 1) * SECTOR_BYTES;
            if whole {
                assert_eq!(dropped, 0);
            } else {
                assert_eq!(dropped + header as u64, written, "{subset:b}");
            }
            assert_eq!(verify_all(&disk), []);
            // The writer settles it, and what was dropped does not come back.
            let mut log = reopen(&disk);
            assert_eq!(log.seen, seen);
            log.append(1, 10).unwrap();
            assert_eq!(read(&disk).unwrap().0.len(), seen.len() + 1);
            assert_eq!(verify_all(&disk), []);
        }
    }
}

/// Damages one file of a store and says whether anybody noticed, in `open` and in `verify`.
fn assert_refused(disk: &MemoryVfs, path: &str, bytes: &[u8], offset: usize, what: &str) {
    let damaged = image(disk);
    damaged.overwrite(Path::new(path), bytes);
    let error = read(&damaged).map(|(seen, _)| seen).expect_err(what);
    let damage = error.corruption().unwrap_or_else(|| panic!("{what}: {error}")).clone();
    assert_eq!(damage.file, Path::new(path), "{what}: {damage}");
    let sector = (offset - offset % SECTOR_BYTES) as u64;
    let near = sector.saturating_sub(SECTOR_BYTES as u64)..=sector + SECTOR_BYTES as u64;
    assert!(near.contains(&damage.offset), "{what}: {damage}");
    let before = damaged.trace_hash();
    assert!(Log::open(Arc::new(damaged.clone())).is_err(), "{what}");
    assert_eq!(damaged.read(Path::new(path)).unwrap(), bytes, "{what}: nothing was written");
    assert_ne!(before, damaged.trace_hash());
    assert!(!verify_all(&damaged).is_empty(), "{what}");
}

#[test]
fn every_flipped_bit_of_a_closed_log_is_refused() {
    let disk = closed_store();
    let bytes = disk.read(Path::new(&wal_path(1))).unwrap();
    assert_eq!(bytes.len() % PAGE_BYTES, 0);
    for bit in (0..bytes.len() * 8).step_by(if cfg!(miri) { 997 } else { 1 }) {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let image = image(&disk);
        image.overwrite(Path::new(&wal_path(1)), &damaged);
        let error = read(&image).expect_err("damaged");
        let damage = error.corruption().unwrap_or_else(|| panic!("bit {bit}: {error}"));
        let sector = (bit / 8 / SECTOR_BYTES * SECTOR_BYTES) as u64;
        let within = sector..sector + SECTOR_BYTES as u64;
        assert!(within.contains(&damage.offset), "bit {bit}: {damage}");
    }
}

#[test]
fn every_cut_and_extension_of_a_log_is_refused() {
    for disk in [closed_store(), killed_store()] {
        let path = wal_path(1);
        let bytes = disk.read(Path::new(&path)).unwrap();
        let step = if bytes.len() > 64 << 10 { 509 } else { 1 };
        for cut in (0..bytes.len()).step_by(step).chain((0..bytes.len()).step_by(4096)) {
            let image = image(&disk);
            image.overwrite(Path::new(&path), &bytes[..cut]);
            let error = read(&image).expect_err("cut");
            assert!(error.corruption().is_some(), "cut at {cut}: {error}");
        }
        for extra in [1, 511, 512, 4096, 8192] {
            for fill in [0, 0xa5] {
                let image = image(&disk);
                let longer = [bytes.as_slice(), &vec![fill; extra]].concat();
                image.overwrite(Path::new(&path), &longer);
                let error = read(&image).expect_err("extended");
                assert!(error.corruption().is_some(), "{extra} bytes of {fill}: {error}");
            }
        }
    }
}

#[test]
fn rot_in_a_killed_log_is_refused_with_file_and_offset() {
    let disk = killed_store();
    let path = wal_path(1);
    let bytes = disk.read(Path::new(&path)).unwrap();
    // Every byte of the part in use, and some of the empty rest.
    for at in (0..24 << 10).chain((24 << 10..bytes.len()).step_by(1021)) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        if at % 257 == 0 {
            assert_refused(&disk, &path, &damaged, at, &format!("byte {at}"));
        } else {
            let image = image(&disk);
            image.overwrite(Path::new(&path), &damaged);
            let error = read(&image).expect_err("damaged");
            let damage = error.corruption().unwrap();
            assert_eq!(damage.offset / 512, at as u64 / 512, "{damage}");
        }
    }
}

#[test]
fn zeroed_sectors_are_refused_except_in_the_last_batch_of_a_killed_log() {
    for (disk, closed) in [(closed_store(), true), (killed_store(), false)] {
        let path = wal_path(1);
        let bytes = disk.read(Path::new(&path)).unwrap();
        let last_written = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        for at in (0..=last_written).step_by(SECTOR_BYTES) {
            let mut damaged = bytes.clone();
            damaged[at..at + SECTOR_BYTES].fill(0);
            if damaged == bytes {
                continue;
            }
            let last_batch = at >= last_written / PAGE_BYTES * PAGE_BYTES;
            let image = image(&disk);
            image.overwrite(Path::new(&path), &damaged);
            match read(&image) {
                Err(error) => assert!(error.corruption().is_some(), "sector at {at}: {error}"),
                // The named limit: it looks like a tear, and open says that it dropped something.
                Ok((seen, recovered)) => {
                    assert!(!closed && last_batch, "sector at {at}: {seen:?}");
                    assert_eq!(seen, all(4));
                    let start =
                        recovered.torn.map_or(recovered.files[0].file.end, |torn| Some(torn.end));
                    assert_eq!(start, Some((last_written / PAGE_BYTES * PAGE_BYTES) as u64));
                }
            }
        }
    }
}

#[test]
fn missing_swapped_and_foreign_files_are_refused() {
    let (disk, vfs) = disk();
    let mut log = Log::open(vfs).unwrap();
    for _ in 0..100 {
        log.append(1, 3000).unwrap();
    }
    drop(log);
    let files: Vec<_> = disk.paths().into_iter().filter(|path| path.ends_with(".wal")).collect();
    assert!(files.len() >= 3, "{files:?}");
    let contents: Vec<_> = files.iter().map(|path| disk.read(Path::new(path)).unwrap()).collect();
    for (index, path) in files.iter().enumerate() {
        let image = image(&disk);
        image.remove(Path::new(path)).unwrap();
        let error = read(&image).expect_err("missing");
        assert_eq!(error.corruption().unwrap().file, Path::new(path), "{error}");
        for (other, content) in contents.iter().enumerate() {
            if other != index {
                let image = disk.crash(0, CrashMode::KeepAll);
                image.overwrite(Path::new(path), content);
                assert!(read(&image).expect_err("swapped").corruption().is_some());
                let zeros = vec![0; contents[index].len()];
                image.overwrite(Path::new(path), &zeros);
                match read(&image) {
                    Err(error) => assert!(error.corruption().is_some()),
                    // The last file of a killed log, wholly zeroed, was never written.
                    Ok(_) => assert_eq!(index, files.len() - 1),
                }
            }
        }
    }
    // A file behind the last one may exist, but only as zeros.
    let next = wal_path(files.len() as u64 + 1);
    let image = image(&disk);
    image.overwrite(Path::new(&next), &[0; 8192]);
    assert!(verify_all(&image).is_empty());
    image.overwrite(Path::new(&next), &contents[0]);
    assert_eq!(verify_all(&image).len(), 1);
    assert!(Log::open(Arc::new(image.clone())).is_err());
}

#[test]
fn a_log_of_another_store_is_refused() {
    let disk = killed_store();
    let vfs: Arc<dyn Vfs> = Arc::new(disk);
    let manifest = ManifestStore::new(Arc::clone(&vfs), DIR).load().unwrap().unwrap();
    let other = WalContext { store: StoreId([1; 16]), ..context(&vfs) };
    let error = recover(&other, &manifest, Mode::ReadOnly, &mut |_, _| Ok(())).unwrap_err();
    assert!(error.corruption().is_some());
}

#[test]
fn walking_a_log_names_every_byte() {
    for disk in [closed_store(), killed_store()] {
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        let length = disk.read(Path::new(&wal_path(1))).unwrap().len() as u64;
        let (mut next, mut frames, mut batches) = (0, 0, 0);
        walk(&context(&vfs), 1, length, &mut |offset, bytes, part| {
            if let WalPart::Frame(..) = part {
                frames += 1;
                return Ok(());
            }
            batches += u32::from(matches!(part, WalPart::Batch(_)));
            assert_eq!(offset, next, "{part:?}");
            next = offset + bytes;
            Ok(())
        })
        .unwrap();
        assert_eq!((next, frames, batches), (length, 6, 3));
    }
}

#[test]
fn walking_steps_over_damage() {
    let disk = killed_store();
    let path = wal_path(1);
    let mut bytes = disk.read(Path::new(&path)).unwrap();
    // In the second of three batches.
    bytes[2 * PAGE_BYTES + 700] ^= 1;
    disk.overwrite(Path::new(&path), &bytes);
    let vfs: Arc<dyn Vfs> = Arc::new(disk);
    let (mut seen, mut damage) = (Vec::new(), Vec::new());
    walk(&context(&vfs), 1, bytes.len() as u64, &mut |_, _, part| {
        match part {
            WalPart::Frame(frame, _) => seen.push(frame.seq),
            WalPart::Damage(found) => damage.push(found.offset),
            _ => {}
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, [1, 5, 6]);
    assert_eq!(damage, [2 * PAGE_BYTES as u64 + 512]);
}

#[test]
fn after_a_failed_write_the_writer_refuses_everything() {
    let (disk, vfs) = disk();
    let faults = FaultVfs::new(vfs);
    let mut log = Log::open(Arc::new(faults.clone())).unwrap();
    let acked = log.append(2, 100).unwrap();
    let next = faults.op_count_of(Operation::Sync);
    faults.fail(Some(Operation::Sync), next, Fault::Io, false);
    let before = log.last_seq();
    assert!(log.append(1, 10).is_err());
    faults.heal();
    assert_eq!(log.last_seq(), before);
    let error = log.append(1, 10).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "{error}");
    let seen = reopen(&disk).seen;
    assert!(seen == all(acked) || seen == all(acked + 1));
}

/// Everything a session does with the log, with rolls and a spare.
fn script(vfs: Arc<dyn Vfs>, acked: &mut u64, possible: &mut u64) -> Result<()> {
    let mut log = Log::open(vfs)?;
    for batch in 0..6 {
        *possible = log.last_seq() + 4;
        *acked = log.append(4, 4000)?;
        if batch == 3 && log.writer.files().spare_is_wanted() {
            log.writer.files().prepare_spare()?;
        }
    }
    log.close()
}

/// The machine stops after every single operation, twice in a row: in the session and in the
/// recovery from it.
#[test]
fn a_crash_at_every_operation_keeps_what_was_acknowledged() {
    let (base, vfs) = disk();
    let (mut acked, mut possible) = (0, 0);
    script(vfs, &mut acked, &mut possible).unwrap();
    let operations = {
        let faults = FaultVfs::new(Arc::new(image(&base)));
        script(Arc::new(faults.clone()), &mut 0, &mut 0).unwrap();
        faults.op_count()
    };
    let modes = [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random];
    let mut images = 0;
    for stop in 0..operations {
        let disk = image(&base);
        let faults = FaultVfs::new(Arc::new(disk.clone()));
        faults.stop_after(stop);
        let (mut acked, mut possible) = (acked, possible);
        let outcome = script(Arc::new(faults), &mut acked, &mut possible);
        assert!(outcome.is_err());
        for (seed, mode) in (stop..).zip(modes) {
            let crashed = disk.crash(seed, mode);
            let (seen, _) = read(&crashed).unwrap_or_else(|error| {
                panic!("stopped after {stop}, {mode:?}, seed {seed}: {error}")
            });
            let last = seen.len() as u64;
            assert_eq!(seen, all(last));
            assert!((acked..=possible).contains(&last), "{stop} {mode:?}: {last}, acked {acked}");
            // Now the recovery is stopped as well, somewhere.
            let again = FaultVfs::new(Arc::new(crashed.clone()));
            again.stop_after(stop * 7 % 40);
            let opened = Log::open(Arc::new(again)).map(|log| log.seen);
            let crashed = if opened.is_ok() { crashed } else { crashed.crash(seed, mode) };
            let log = reopen(&crashed);
            assert_eq!(log.seen, seen, "{stop} {mode:?}");
            assert_eq!(verify_all(&crashed), [], "{stop} {mode:?}");
            images += 2;
        }
    }
    assert!(images > 300, "{images}");
}

#[test]
fn a_reader_beside_a_live_writer_sees_a_prefix() {
    let (disk, vfs) = disk();
    let mut log = Log::open(vfs).unwrap();
    for _ in 0..60 {
        let last = log.append(2, 2000).unwrap();
        let before = disk.paths();
        assert_eq!(read(&disk).unwrap().0, all(last));
        assert_eq!(disk.paths(), before);
    }
}
