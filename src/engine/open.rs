//! Opening a store: finding the state a crash or a close has left, and going on from there.
//!
//! ```text
//! writer:  lock - manifest - log replayed into memory (and files, where it is larger than that)
//!          - manifest with the settled log - leftovers removed - ready
//! reader:  manifest - every file opened - log replayed into memory - ready
//! ```
//!
//! Invariants:
//!
//! 1. Until the whole log has been validated nothing is written but new files that no manifest
//!    names, and the lock.
//! 2. A crash at any point of an open leaves a store that the next open finds in the same state.
//! 3. The time it takes depends on the manifest (a record for each file) and the log, not on the data.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;

use annals_format::name::{CURRENT, FileName, SEGMENT_DIR, WAL_DIR};
use annals_format::{FileKind, FileMeta, Frame, Manifest, StoreId};

use crate::commit::Chain;
use crate::error::{Error, ErrorKind, Result};
use crate::index::{Generation, Position, Spare};
use crate::manifest::{ManifestStore, OPENING_ATTEMPTS};
use crate::observe::{self, Span, Task};
use crate::options::{Durability, Options};
use crate::segment::SegmentContext;
use crate::sync::plain::{AtomicU64, Condvar, Mutex, OnceLock, lock};
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::vfs::{Held, HeldVfs, LockGuard, Vfs};
use crate::wal::{self, Location, Mode, Recovered, WalContext, WalFiles, WalWriter};

use super::chain_log::ChainLog;
use super::core::{Core, SharedLog, State};
use super::in_force::flushed;
use super::left_alone::LeftAlone;
use super::new_store::take_lock;
use super::pins::Pins;
use super::report::{DroppedTail, OpenReport, damage};
use super::retention::Retention;
use super::shared::{Shared, generation_size};
use super::shortage::Shortage;
use super::spilled::{Overflow, Spilled};
use super::tables::{FileSet, SealedFile, Tables};

/// Files of the log that are replayed on an open before it flushes them all: sessions that write
/// little would otherwise leave ever more.
const WAL_FILES_MAX: usize = 16;

/// How far above the manifest's next number an unlisted file can be for its number to be avoided.
/// What a crash leaves is a few numbers above.
const NUMBERS_AVOIDED: u64 = 1 << 32;

/// What is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// A store.
    Store,
    /// One that is being put together.
    Load,
}

/// Opens a store for writing, or makes one.
pub(super) fn open(
    path: &Path,
    options: &Options,
    opening: Opening,
) -> Result<(Arc<Core>, OpenReport)> {
    options.validate()?;
    match try_open(path, options, opening, Overflow::Files) {
        // There may be some for less, and for a compaction, which gives space back.
        Err(error) if error.is_no_space() => try_open(path, options, opening, Overflow::Memory),
        opened => opened,
    }
}

fn try_open(
    path: &Path,
    options: &Options,
    opening: Opening,
    overflow: Overflow,
) -> Result<(Arc<Core>, OpenReport)> {
    let manifests = |vfs: &Arc<dyn Vfs>, path: &Path| {
        let store = ManifestStore::new(Arc::clone(vfs), path);
        if opening == Opening::Load { store.of_load() } else { store }
    };
    let vfs = &options.vfs;
    let exists = vfs.exists(path).map_err(|e| Error::of_directory(path, "look for", e))?;
    if !exists && !options.create {
        return Err(ErrorKind::NoStore { path: path.to_path_buf() }.into());
    }
    // Before anything is written, the lock included: is this a store, or may it become one?
    if exists {
        let is_store = vfs.exists(&path.join(CURRENT));
        let is_store = is_store.map_err(|e| Error::of_directory(path, "look into", e))?;
        if !is_store && manifests(vfs, path).load()?.is_none() && !options.create {
            return Err(ErrorKind::NoStore { path: path.to_path_buf() }.into());
        }
    }
    make_dir(options, path)?;
    let canonical = vfs.canonical(path);
    let path = &*canonical.map_err(|error| Error::io("find the path of", path, error))?;
    let guard = take_lock(&*options.vfs, path)?;
    // What a killed process named last may be in memory only; from here on it is relied on.
    vfs.sync_dir(path).map_err(|error| Error::io("sync directory", path, error))?;
    let options = &options.clone().vfs(Arc::new(HeldVfs::new(Arc::clone(vfs), &guard)));
    let store = manifests(&options.vfs, path);
    match store.load()? {
        Some(manifest) => open_existing(path, options, (store, manifest), guard, overflow),
        None if options.create => make_new(path, options, store, guard),
        None => Err(ErrorKind::NoStore { path: path.to_path_buf() }.into()),
    }
}

/// Opens a store for reading, beside a writer that may be alive. Nothing is written.
pub(super) fn open_read_only(path: &Path, options: &Options) -> Result<(Arc<Core>, OpenReport)> {
    options.validate()?;
    let canonical = match options.vfs.canonical(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_path_buf(),
        found => found.map_err(|e| Error::of_directory(path, "find the path of", e))?,
    };
    let path = &*canonical;
    let store = ManifestStore::new(Arc::clone(&options.vfs), path);
    let read = |manifest: &Manifest| try_read_only(path, options, &store, manifest.clone());
    // A file that is missing or cut because a live writer has gone on is no damage: so look again.
    // If it is damage, the rest of the store can be read, and what needs the file names it.
    let whole = |opened: &Result<(_, _, bool)>| matches!(opened, Ok((_, _, true)));
    let (core, report, _) = store.read_store(OPENING_ATTEMPTS, read, whole)??;
    Ok((core, report))
}

/// Also answers whether every segment file is there.
pub(super) fn try_read_only(
    path: &Path,
    options: &Options,
    store: &ManifestStore,
    manifest: Manifest,
) -> Result<(Arc<Core>, OpenReport, bool)> {
    let (core, wal) = build(path, options, store.clone(), manifest, None, true);
    let mut whole = true;
    for file in core.shared.tables().files.all() {
        // So that they stay readable when the writer removes them.
        match file.hold() {
            Err(error) if error.corruption().is_some() => whole = false,
            held => held?,
        }
    }
    let manifest = lock(&core.state).manifest.clone();
    let recovered =
        wal::recover(&wal, &manifest, Mode::ReadOnly, &mut |frame, at| core.replay(frame, at))?;
    check_floor(&core, &manifest, &recovered)?;
    core.load_rules()?;
    let damage = damage(path, store, &manifest)?;
    let report = OpenReport { damage, ..report(&core, &manifest, &recovered) };
    Ok((core, report, whole))
}

fn make_new(
    path: &Path,
    options: &Options,
    store: ManifestStore,
    guard: LockGuard,
) -> Result<(Arc<Core>, OpenReport)> {
    for dir in [WAL_DIR, SEGMENT_DIR] {
        make_dir(options, &path.join(dir))?;
    }
    let manifest = Manifest::new(new_store_id(options));
    let recovered = Recovered {
        last_seq: manifest.flushed_seq,
        last_revision: manifest.flushed_revision,
        files: Vec::new(),
        next_number: 1,
        torn: None,
        closed: true,
    };
    let (core, wal) = build(path, options, store, manifest.clone(), Some(guard), false);
    // The directory itself may be new, and its name never synced if a crash came before this.
    if let Some(parent) = path.parent() {
        let synced = options.vfs.sync_dir(parent);
        synced.map_err(|error| Error::io("sync directory", parent, error))?;
    }
    wal::remove_leftovers(&wal)?;
    core.go_on(&wal, &recovered, &[])?;
    let report = OpenReport { created: true, ..report(&core, &manifest, &recovered) };
    Ok((core, report))
}

fn open_existing(
    path: &Path,
    options: &Options,
    (store, manifest): (ManifestStore, Manifest),
    guard: LockGuard,
    overflow: Overflow,
) -> Result<(Arc<Core>, OpenReport)> {
    for dir in [WAL_DIR, SEGMENT_DIR] {
        make_dir(options, &path.join(dir))?;
    }
    let damage = damage(path, &store, &manifest)?;
    if !damage.is_empty() {
        store.mend(&manifest)?;
    }
    let (core, wal) = build(path, options, store, manifest.clone(), Some(guard), false);
    let orphans = core.orphans(&manifest)?;
    let mut spilled = Spilled::default();
    let recovered = recover(&core, &wal, &manifest, (&mut spilled, overflow))
        .inspect_err(|_| core.discard(&spilled.files))?;
    core.go_on(&wal, &recovered, &spilled.files)?;
    for orphan in &orphans {
        core.context.remove(orphan.kind, orphan.number)?;
    }
    core.heed_note()?;
    let incarnation = lock(&core.state).manifest.incarnation;
    let orphans_removed = orphans.len();
    let report =
        OpenReport { incarnation, orphans_removed, damage, ..report(&core, &manifest, &recovered) };
    if let Some(DroppedTail { file, offset, bytes, .. }) = &report.dropped {
        observe::torn_tail(file, *offset, *bytes);
    }
    Ok((core, report))
}

/// Reads the log into memory, and into files where it is longer than that. Whatever can refuse the store does so here,
/// before anything else is written.
fn recover(
    core: &Core,
    wal: &WalContext,
    manifest: &Manifest,
    (spilled, overflow): (&mut Spilled, Overflow),
) -> Result<Recovered> {
    let recovered = {
        let span = Span::of(Task::Recover);
        let _within = span.enter();
        let recovered = wal::recover(wal, manifest, Mode::Writer, &mut |frame, at| {
            core.replay(frame, at)?;
            spilled.spill(core, overflow)
        })?;
        span.revision(recovered.last_revision);
        let ends = recovered.files.iter().map(|log| log.file.end.unwrap_or(log.file.file_bytes));
        span.size(recovered.files.len() as u64, ends.sum());
        recovered
    };
    check_floor(core, manifest, &recovered)?;
    if recovered.files.len() > WAL_FILES_MAX {
        core.chain.freeze();
        spilled.spill(core, overflow)?;
    }
    {
        let mut state = lock(&core.state);
        if let Some(last) = spilled.last {
            core.context.sync_dir()?;
            flushed(&mut state.manifest, last, &spilled.files);
        }
        if !recovered.closed {
            state.manifest.incarnation += 1;
            core.context.set_incarnation(state.manifest.incarnation);
        }
        state.manifest.closed = false;
    }
    core.load_rules()?;
    Ok(recovered)
}

/// The parts of a store as its manifest describes it, before the log.
fn build(
    path: &Path,
    options: &Options,
    store: ManifestStore,
    manifest: Manifest,
    guard: Option<LockGuard>,
    read_only: bool,
) -> (Arc<Core>, WalContext) {
    let context =
        Arc::new(SegmentContext::new(path, manifest.store, manifest.incarnation, options));
    let files = Arc::new(FileSet::new(SealedFile::all(&context, &manifest.files, [])));
    let size = generation_size(options.memtable_bytes);
    let spare = Spare::new(size.arena_bytes);
    let generation = Generation::as_needed(1, size, &spare);
    let tables = Tables { generations: [Arc::clone(&generation)].into(), files };
    let shared = Arc::new(Shared::new(tables, options, spare));
    let start = Position {
        seq: manifest.flushed_seq,
        revision: manifest.flushed_revision,
        time: manifest.flushed_time,
    };
    let world = Arc::clone(&shared);
    let chain = Chain::new(&manifest.store, start, manifest.compacted, generation, world);
    let wal = WalContext {
        vfs: Arc::clone(&options.vfs),
        dir: path.to_path_buf(),
        store: manifest.store,
        incarnation: manifest.incarnation,
        wal_bytes: options.wal_bytes,
        quick_syncs: options.durability == Durability::Sync,
    };
    let pins = Arc::new(Pins::new(Some(Arc::clone(&shared))));
    let core = Core {
        path: path.to_path_buf(),
        options: options.clone(),
        context,
        shared,
        chain: Arc::new(chain),
        pins,
        retention: Retention::new(),
        next_file: AtomicU64::new(manifest.next_file),
        busy: Mutex::new(()),
        swept: AtomicU64::new(0),
        looked_through: Mutex::default(),
        damage_noted: AtomicU64::new(0),
        left_alone: LeftAlone::default(),
        state: Mutex::new(State { store, manifest, wal: None, log: SharedLog::default() }),
        flushed: Condvar::new(),
        flushed_lock: Mutex::new(()),
        read_only,
        closed: AtomicBool::new(false),
        failed: OnceLock::new(),
        shortage: Shortage::new(),
        lock: Mutex::new(guard),
        counters: Arc::default(),
    };
    (Arc::new(core), wal)
}

impl Core {
    /// Takes a frame of the log into memory.
    fn replay(&self, frame: &Frame<'_>, at: Location) -> Result<()> {
        self.chain.replay(frame).map_err(|error| {
            let file = self.path.join(FileName::new(FileKind::Wal, at.file).to_string());
            Error::corrupt(file, at.offset, "frame", "one that follows the last", error.to_string())
        })
    }

    /// Goes on with the log in a new file, puts what was found in force, and removes what is not
    /// needed any more. The files `spilled`, which the manifest names then, are removed where it does not come to that.
    fn go_on(&self, wal: &WalContext, recovered: &Recovered, spilled: &[FileMeta]) -> Result<()> {
        let mut state = lock(&self.state);
        let context = WalContext { incarnation: state.manifest.incarnation, ..wal.clone() };
        let files = WalFiles::new(context, recovered.files.clone(), recovered.next_number);
        let (last_seq, last_revision) = (recovered.last_seq, recovered.last_revision);
        let writer = WalWriter::create(Arc::clone(&files), last_seq, last_revision);
        let writer = writer.inspect_err(|_| self.discard(spilled))?;
        state.wal = Some(Arc::clone(&files));
        let forgotten = files.dispensable(state.manifest.flushed_seq);
        files.forget(&forgotten);
        self.put_in_force(&mut state, spilled, |_| ())?;
        let needed: Vec<_> = recovered
            .files
            .iter()
            .filter(|log| !forgotten.contains(&log.file.number))
            .copied()
            .collect();
        wal::settle(wal, &needed)?;
        files.remove(&forgotten)?;
        *lock(&state.log) = Some(writer);
        let log = Arc::clone(&state.log);
        drop(state);
        // Set once: a store is opened once.
        let _ = self.shared.log_files.set(files);
        let counters = Arc::clone(&self.counters);
        let shared = Arc::clone(&self.shared);
        let Some(held) = lock(&self.lock).as_ref().map(Held::new) else {
            return Err(ErrorKind::ReadOnly.into());
        };
        let store = self.path.clone();
        self.chain.open_log(Box::new(ChainLog { log, held, store, counters, shared }));
        Ok(())
    }

    /// Segment files that the manifest does not name; their numbers are not used again. None where one that it
    /// names is not there: then it may be the manifest that is not the newest, and these what there is.
    fn orphans(&self, manifest: &Manifest) -> Result<Vec<FileName>> {
        let dir = self.path.join(SEGMENT_DIR);
        let names = self.options.vfs.names(&dir).map_err(|error| Error::io("list", &dir, error))?;
        let mut orphans = Vec::new();
        let mut missing = manifest.files.len();
        let listed: HashSet<(u64, u8)> =
            manifest.files.iter().map(|file| (file.number, file.kind.number())).collect();
        for name in names {
            let Some(name) = FileName::parse(&format!("{SEGMENT_DIR}/{name}")) else {
                continue;
            };
            // Numbers that are never reached before the file is removed are not avoided: a name
            // alone must not use them up.
            if name.number - manifest.next_file.min(name.number) < NUMBERS_AVOIDED {
                self.next_file.fetch_max(name.number + 1, Ordering::AcqRel);
            }
            if listed.contains(&(name.number, name.kind.number())) {
                missing = missing.saturating_sub(1);
            } else {
                orphans.push(name);
            }
        }
        if missing > 0 {
            orphans.clear();
        }
        Ok(orphans)
    }
}

/// What was once durable cannot be gone, and only what was there can have been compacted.
fn check_floor(core: &Core, manifest: &Manifest, recovered: &Recovered) -> Result<()> {
    if recovered.last_revision >= manifest.revision_floor {
        let compacted = core.chain.applied_place().compacted;
        if compacted > recovered.last_revision {
            return Err(core.watermark_above(compacted, recovered.last_revision));
        }
        return Ok(());
    }
    let file = match recovered.files.last() {
        Some(log) => {
            let name = FileName::new(FileKind::Wal, log.file.number);
            core.path.join(name.to_string())
        }
        None => core.path.join(CURRENT),
    };
    let offset = recovered.files.last().and_then(|log| log.file.end).unwrap_or(0);
    let expected = format!("revision {} or later", manifest.revision_floor);
    let found = format!("revision {}", recovered.last_revision);
    Err(Error::corrupt(file, offset, "end of the log", expected, found))
}

fn report(core: &Core, manifest: &Manifest, recovered: &Recovered) -> OpenReport {
    OpenReport {
        created: false,
        clean: recovered.closed,
        incarnation: manifest.incarnation,
        revision: recovered.last_revision,
        frames_replayed: recovered.last_seq.saturating_sub(manifest.flushed_seq),
        dropped: recovered.torn.map(|tail| DroppedTail {
            file: core.path.join(FileName::new(FileKind::Wal, tail.file).to_string()),
            offset: tail.end,
            bytes: tail.dropped_bytes,
            missing: tail.missing,
        }),
        orphans_removed: 0,
        damage: Vec::new(),
    }
}

fn make_dir(options: &Options, path: &Path) -> Result<()> {
    let exists = options.vfs.exists(path).map_err(|error| Error::io("look for", path, error))?;
    if exists {
        return Ok(());
    }
    let made = options.vfs.create_dir_all(path);
    made.map_err(|error| Error::io("create directory", path, error))
}

/// The incarnation of a copy of a store that had this one: what is written to the copy is another history, also
/// than that of any other copy, and of the store when it is opened after a crash. So it is by chance, far above.
pub(super) fn another_history(incarnation: u64, options: &Options) -> u64 {
    let StoreId([a, b, c, d, ..]) = new_store_id(options);
    incarnation.saturating_add(1 + u64::from(u32::from_le_bytes([a, b, c, d])))
}

/// An identity that no other store has.
pub(super) fn new_store_id(options: &Options) -> StoreId {
    let mut id = [0; 16];
    for (part, bytes) in (0_u64..).zip(id.chunks_exact_mut(8)) {
        let number = match options.store_id_seed {
            Some(seed) => xxhash_rust::xxh3::xxh3_64_with_seed(&part.to_le_bytes(), seed),
            // Keys of the standard library's hasher come from the system's entropy.
            None => {
                let mut hasher = RandomState::new().build_hasher();
                hasher.write_u64(part);
                hasher.write_i64(options.clock.now_micros());
                hasher.write_u32(std::process::id());
                hasher.finish()
            }
        };
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    StoreId(id)
}
