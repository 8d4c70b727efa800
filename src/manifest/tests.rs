//! What is stored is read back, whatever a crash or a fault has done in between.

use super::*;
use crate::vfs::{CrashMode, Fault, FaultVfs, MemoryVfs, Operation};
use annals_format::{StoreId, WalFile};

const DIR: &str = "db";

fn manifest() -> Manifest {
    let wal = vec![WalFile { number: 1, incarnation: 1, file_bytes: 65536, end: None }];
    Manifest { wal, ..Manifest::new(StoreId([4; 16])) }
}

fn store(vfs: Arc<dyn Vfs>) -> ManifestStore {
    ManifestStore::new(vfs, DIR)
}

fn stored(times: u64) -> (MemoryVfs, Manifest) {
    let disk = MemoryVfs::new();
    disk.create_dir_all(Path::new(DIR)).unwrap();
    let mut manifest = manifest();
    for floor in 1..=times {
        manifest.revision_floor = floor;
        store(Arc::new(disk.clone())).store(&mut manifest).unwrap();
    }
    (disk, manifest)
}

fn load(disk: &MemoryVfs) -> Result<Option<Manifest>> {
    store(Arc::new(disk.clone())).load()
}

#[test]
fn what_was_stored_is_loaded_and_nothing_is_left_over() {
    let (disk, manifest) = stored(3);
    assert_eq!(manifest.number, 3);
    assert_eq!(load(&disk).unwrap(), Some(manifest));
    assert_eq!(disk.paths(), ["db/CURRENT", "db/MANIFEST-00000003"]);
    assert_eq!(load(&MemoryVfs::new()).unwrap(), None);
}

/// Runs something on copies of a disk, stopped before each operation, and shows what a crash then leaves.
fn killed_at_every_operation(
    base: &MemoryVfs,
    run: impl Fn(&FaultVfs) -> Result<()>,
    check: impl Fn(&MemoryVfs, u64),
) {
    let counting = FaultVfs::new(Arc::new(base.crash(0, CrashMode::KeepAll)));
    run(&counting).unwrap();
    for stop in 0..counting.op_count() {
        for (seed, mode) in
            [(0, CrashMode::LoseAll), (0, CrashMode::KeepAll), (stop, CrashMode::Random)]
        {
            let disk = base.crash(0, CrashMode::KeepAll);
            let faults = FaultVfs::new(Arc::new(disk.clone()));
            faults.stop_after(stop);
            run(&faults).unwrap_err();
            check(&disk.crash(seed, mode), stop);
        }
    }
}

#[test]
fn a_crash_at_every_operation_leaves_the_old_or_the_new_one() {
    let (base, old) = stored(2);
    let run = |faults: &FaultVfs| {
        let mut new = Manifest { compacted: 9, ..old.clone() };
        store(Arc::new(faults.clone())).store(&mut new)
    };
    killed_at_every_operation(&base, run, |disk, _| {
        let mut found = load(disk).unwrap().unwrap();
        assert!((found.number, found.compacted) == (2, 0) || found.compacted == 9);
        // And the next one takes its place whatever was left.
        store(Arc::new(disk.clone())).store(&mut found).unwrap();
        assert_eq!(disk.paths().len(), 2, "{:?}", disk.paths());
        assert_eq!(load(disk).unwrap(), Some(found));
    });
}

/// Else a disk that stays full gets one more file with each attempt.
#[test]
fn what_cannot_be_written_leaves_nothing() {
    let (base, manifest) = stored(2);
    let before = base.paths();
    let prepare = |disk: &MemoryVfs| {
        let mut next = Manifest { compacted: 9, ..manifest.clone() };
        store(Arc::new(disk.clone())).prepare(&mut next).map(drop)
    };
    let mut failed = 0;
    for free in (0..).step_by(16) {
        let disk = base.crash(0, CrashMode::KeepAll);
        disk.set_capacity(Some(disk.used_bytes() + free));
        let Err(error) = prepare(&disk) else { break };
        assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "{free}: {error}");
        assert_eq!(disk.paths(), before, "with {free} bytes");
        failed += 1;
    }
    assert!(failed > 2, "{failed}");
}

#[test]
fn an_unfinished_start_is_no_store() {
    let base = MemoryVfs::new();
    let run = |faults: &FaultVfs| -> Result<()> {
        let vfs: Arc<dyn Vfs> = Arc::new(faults.clone());
        vfs.create_dir_all(Path::new(DIR)).map_err(|error| Error::io("create", DIR, error))?;
        store(vfs).store(&mut manifest())
    };
    let counting = FaultVfs::new(Arc::new(base.crash(0, CrashMode::KeepAll)));
    run(&counting).unwrap();
    for stop in 0..counting.op_count() {
        let disk = base.crash(0, CrashMode::KeepAll);
        let faults = FaultVfs::new(Arc::new(disk.clone()));
        faults.stop_after(stop);
        run(&faults).unwrap_err();
        for (seed, mode) in [(stop, CrashMode::Random), (stop, CrashMode::KeepAll)] {
            let found = load(&disk.crash(seed, mode)).unwrap();
            assert!(found.is_none() || found == Some(Manifest { number: 1, ..manifest() }));
        }
    }
}

const OF_CURRENT: &str = "db/CURRENT";
const OF_MANIFEST: &str = "db/MANIFEST-00000002";

/// The disk with another content of one file.
fn with(disk: &MemoryVfs, path: &str, content: &[u8]) -> MemoryVfs {
    let image = disk.crash(0, CrashMode::KeepAll);
    image.overwrite(Path::new(path), content);
    image
}

fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    damaged[bit / 8] ^= 1 << (bit % 8);
    damaged
}

/// The files that are named as damaged, of a store that is loaded all the same.
fn damaged(disk: &MemoryVfs, manifest: &Manifest) -> Vec<PathBuf> {
    assert_eq!(load(disk).unwrap().as_ref(), Some(manifest));
    let damage = store(Arc::new(disk.clone())).damage(manifest).unwrap();
    let files = damage.iter().map(|error| error.corruption().expect("corrupt").file.clone());
    let mut files: Vec<PathBuf> = files.collect();
    files.dedup();
    files
}

fn nothing() -> Vec<PathBuf> {
    Vec::new()
}

fn refused(disk: &MemoryVfs, path: &str) {
    let error = load(disk).unwrap_err();
    let damage = error.corruption().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(damage.file, Path::new(path), "{damage}");
}

#[test]
fn any_one_damage_is_named_and_costs_nothing() {
    let (disk, manifest) = stored(2);
    assert_eq!(damaged(&disk, &manifest), nothing());
    for path in [OF_CURRENT, OF_MANIFEST] {
        let bytes = disk.read(Path::new(path)).unwrap();
        let survived = |damage: &[u8]| {
            let image = with(&disk, path, damage);
            assert_eq!(damaged(&image, &manifest), [Path::new(path)]);
            // What is put in force next is whole.
            let mut next = load(&image).unwrap().unwrap();
            store(Arc::new(image.clone())).store(&mut next).unwrap();
            assert_eq!(damaged(&image, &next), nothing());
        };
        (0..bytes.len() * 8).for_each(|bit| survived(&flipped(&bytes, bit)));
        survived(&[bytes.as_slice(), &[0]].concat());
        let begin = if path == OF_CURRENT { CURRENT_BYTES } else { 0 };
        for cut in begin..bytes.len() {
            // Files of so many bytes have no copy.
            if (path, cut) != (OF_CURRENT, CURRENT_BYTES) {
                survived(&bytes[..cut]);
            }
            let zeroed = [&vec![0; cut][..], &bytes[cut..]].concat();
            match path {
                OF_CURRENT if cut > bytes.len() - CURRENT_BYTES => {
                    refused(&with(&disk, path, &zeroed), path);
                }
                OF_MANIFEST if cut == 0 => {}
                _ => survived(&zeroed),
            }
        }
    }
    let image = disk.crash(0, CrashMode::KeepAll);
    image.remove(Path::new(OF_MANIFEST)).unwrap();
    assert_eq!(damaged(&image, &manifest), [Path::new(OF_MANIFEST)]);
}

#[test]
fn what_is_damaged_in_both_places_is_refused() {
    let (disk, manifest) = stored(2);
    let [current, of_manifest] =
        [OF_CURRENT, OF_MANIFEST].map(|path| disk.read(Path::new(path)).unwrap());
    let (begin, copied) = (CURRENT_BYTES * 8, of_manifest.len() * 8);
    for bit in (0..copied).step_by(7) {
        let image = with(&disk, OF_MANIFEST, &flipped(&of_manifest, copied - 1 - bit));
        refused(&with(&image, OF_CURRENT, &flipped(&current, begin + bit)), OF_MANIFEST);
        // Where the places differ, nothing is lost.
        let image = with(&image, OF_CURRENT, &flipped(&current, bit % begin));
        assert_eq!(damaged(&image, &manifest), [OF_CURRENT, OF_MANIFEST].map(PathBuf::from));
    }
    for bit in 0..begin {
        let damage = flipped(&flipped(&current, bit), current.len() * 8 - 1 - bit);
        refused(&with(&disk, OF_CURRENT, &damage), OF_CURRENT);
    }
    for cut in 0..CURRENT_BYTES {
        refused(&with(&disk, OF_CURRENT, &current[..cut]), OF_CURRENT);
    }
    // Both ends are whole, and of different manifests.
    let older = stored(1).0.read(Path::new(OF_CURRENT)).unwrap();
    let mixed = [&older[..CURRENT_BYTES], &current[CURRENT_BYTES..]].concat();
    refused(&with(&disk, OF_CURRENT, &mixed), OF_CURRENT);
}

/// Whoever finds the manifest damaged or lost and makes the next one may be killed at any step, and the one after it.
#[test]
fn a_crash_while_the_next_takes_the_place_of_a_damaged_one() {
    let (whole, manifest) = stored(2);
    let lost = whole.crash(0, CrashMode::KeepAll);
    lost.remove(Path::new(OF_MANIFEST)).unwrap();
    lost.sync_dir(Path::new(DIR)).unwrap();
    let damage =
        with(&whole, OF_MANIFEST, &flipped(&whole.read(Path::new(OF_MANIFEST)).unwrap(), 99));
    let open = |faults: &FaultVfs| -> Result<()> {
        let manifests = store(Arc::new(faults.clone()));
        let mut found = manifests.load()?.unwrap();
        manifests.mend(&found)?;
        manifests.store(&mut found)
    };
    for base in [&lost, &damage] {
        killed_at_every_operation(base, open, |disk, stop| {
            let found = load(disk).unwrap().unwrap();
            assert_eq!(Manifest { number: manifest.number, ..found }, manifest, "{stop}");
            open(&FaultVfs::new(Arc::new(disk.clone()))).unwrap();
            assert_eq!(disk.paths().len(), 2, "{:?}", disk.paths());
        });
    }
}

/// As the first builds wrote it.
#[test]
fn a_file_without_a_copy_is_read() {
    let (disk, manifest) = stored(2);
    let current = disk.read(Path::new(OF_CURRENT)).unwrap();
    let image = with(&disk, OF_CURRENT, &current[..CURRENT_BYTES]);
    assert_eq!(damaged(&image, &manifest), nothing());
    image.remove(Path::new(OF_MANIFEST)).unwrap();
    refused(&image, OF_MANIFEST);
}

/// A `CURRENT` that is not the last one names a manifest that is gone; its copy is not the one in force.
#[test]
fn the_copy_of_an_older_manifest_is_not_taken() {
    let (disk, _) = stored(2);
    let older = stored(1).0.read(Path::new(OF_CURRENT)).unwrap();
    refused(&with(&disk, OF_CURRENT, &older), "db/MANIFEST-00000001");
}

#[test]
fn what_the_disk_cannot_read_is_taken_from_the_other_place() {
    let (disk, manifest) = stored(2);
    let loaded = |reads: &[u64]| {
        let faults = FaultVfs::new(Arc::new(disk.crash(0, CrashMode::KeepAll)));
        for &nth in reads {
            faults.fail(Some(Operation::Read), nth, Fault::Io, false);
        }
        store(Arc::new(faults)).load()
    };
    // Of CURRENT whole, then of its begin; of the manifest, which is looked for once more.
    assert_eq!(loaded(&[0]).unwrap().as_ref(), Some(&manifest));
    let faults = FaultVfs::new(Arc::new(disk.crash(0, CrashMode::KeepAll)));
    faults.fail(Some(Operation::Read), 0, Fault::Io, false);
    let damage = store(Arc::new(faults)).damage(&manifest).unwrap();
    assert!(
        matches!(damage[..], [ref one] if matches!(one.kind(), ErrorKind::Io { .. })),
        "{damage:?}"
    );
    assert!(matches!(loaded(&[0, 1]).unwrap_err().kind(), ErrorKind::Io { .. }));
    assert_eq!(loaded(&[1]).unwrap().as_ref(), Some(&manifest));
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let (disk, manifest) = stored(2);
    let (older, _) = stored(1);
    let (current, second) = (Path::new("db/CURRENT"), Path::new("db/MANIFEST-00000002"));
    // An older manifest under the newer name.
    let image = disk.crash(0, CrashMode::KeepAll);
    let first = older.read(Path::new("db/MANIFEST-00000001")).unwrap();
    image.overwrite(second, &first);
    assert_eq!(damaged(&image, &manifest), [second]);
    // No CURRENT, though there is a manifest in use, or data.
    let image = disk.crash(0, CrashMode::KeepAll);
    image.remove(current).unwrap();
    assert!(load(&image).unwrap_err().corruption().is_some());
    for (path, bytes) in [("db/wal/00000001.wal", &[0, 1][..]), ("db/seg/00000001.l0", &[7])] {
        let image = MemoryVfs::new();
        image.create_dir_all(Path::new(path).parent().unwrap()).unwrap();
        image.overwrite(Path::new(path), bytes);
        assert!(load(&image).unwrap_err().corruption().is_some(), "{path}");
        image.overwrite(Path::new(path), &[0; 9000]);
        assert_eq!(load(&image).unwrap(), None);
    }
    // Somebody else's directory.
    let image = MemoryVfs::new();
    image.create_dir_all(Path::new(DIR)).unwrap();
    image.overwrite(Path::new("db/notes.txt"), b"hello");
    let error = load(&image).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotAStore { .. }), "{error}");
}

#[test]
fn a_newer_format_is_named_and_damage_is_not_taken_for_it() {
    let (disk, _) = stored(1);
    let bytes = disk.read(Path::new(OF_CURRENT)).unwrap();
    let end = bytes.len() - CURRENT_BYTES;
    let place = annals_format::Place::start_of(StoreId([4; 16]), FileKind::Current, 0);
    let newer = |ends: &[usize], sealed: bool| {
        let mut bytes = bytes.clone();
        for &at in ends {
            bytes[at + 4] = 9;
            if sealed {
                let crc = annals_format::checksum::crc(&place, &[&bytes[at..at + 60]]);
                bytes[at + 60..at + 64].copy_from_slice(&crc.to_le_bytes());
            }
        }
        with(&disk, OF_CURRENT, &bytes)
    };
    refused(&newer(&[0, end], false), OF_CURRENT);
    // With a checksum that holds, in one place or in both.
    for ends in [&[0, end][..], &[0], &[end]] {
        let error = load(&newer(ends, true)).unwrap_err();
        let kind = error.kind();
        assert!(matches!(kind, ErrorKind::UnsupportedVersion { found: 9, supported: 1, .. }));
    }
}
