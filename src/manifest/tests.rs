//! What is stored is read back, whatever a crash or a fault has done in between.

use super::*;
use crate::vfs::{CrashMode, FaultVfs, MemoryVfs};
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

#[test]
fn a_crash_at_every_operation_leaves_the_old_or_the_new_one() {
    let (base, old) = stored(2);
    let run = |faults: &FaultVfs| {
        let mut new = Manifest { compacted: 9, ..old.clone() };
        store(Arc::new(faults.clone())).store(&mut new)
    };
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
            let disk = disk.crash(seed, mode);
            let mut found = load(&disk).unwrap().unwrap();
            assert!((found.number, found.compacted) == (2, 0) || found.compacted == 9);
            // And the next one takes its place whatever was left.
            store(Arc::new(disk.clone())).store(&mut found).unwrap();
            assert_eq!(disk.paths().len(), 2, "{:?}", disk.paths());
            assert_eq!(load(&disk).unwrap(), Some(found));
        }
    }
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

#[test]
fn every_flipped_bit_cut_and_extension_is_refused() {
    let (disk, _) = stored(2);
    for path in disk.paths() {
        let bytes = disk.read(Path::new(&path)).unwrap();
        let refused = |damaged: &[u8]| {
            let image = disk.crash(0, CrashMode::KeepAll);
            image.overwrite(Path::new(&path), damaged);
            let error = load(&image).unwrap_err();
            let damage = error.corruption().unwrap_or_else(|| panic!("{error}"));
            assert_eq!(damage.file, Path::new(&path), "{damage}");
        };
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            refused(&damaged);
        }
        (0..bytes.len()).for_each(|cut| refused(&bytes[..cut]));
        refused(&[bytes.as_slice(), &[0]].concat());
        refused(&vec![0; bytes.len()]);
    }
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let (disk, _) = stored(2);
    let (older, _) = stored(1);
    let (current, second) = (Path::new("db/CURRENT"), Path::new("db/MANIFEST-00000002"));
    // An older CURRENT names a manifest that is gone.
    let image = disk.crash(0, CrashMode::KeepAll);
    image.overwrite(current, &older.read(current).unwrap());
    assert!(load(&image).unwrap_err().corruption().is_some());
    // An older manifest under the newer name.
    let image = disk.crash(0, CrashMode::KeepAll);
    let first = older.read(Path::new("db/MANIFEST-00000001")).unwrap();
    image.overwrite(second, &first);
    assert!(load(&image).unwrap_err().corruption().is_some());
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
    let path = Path::new("db/CURRENT");
    let mut bytes = disk.read(path).unwrap();
    bytes[4] = 9;
    disk.overwrite(path, &bytes);
    assert!(load(&disk).unwrap_err().corruption().is_some());
    // The same with a checksum that holds.
    let place = annals_format::Place::start_of(StoreId([4; 16]), FileKind::Current, 0);
    let crc = annals_format::checksum::crc(&place, &[&bytes[..60]]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    disk.overwrite(path, &bytes);
    let error = load(&disk).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnsupportedVersion { found: 9, supported: 1, .. }));
}
