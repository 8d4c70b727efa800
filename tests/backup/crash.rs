//! Complete or no store, whatever stops a restore.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use annals::vfs::{Fault, FaultVfs, MemoryVfs};

use crate::support::check::caught;
use crate::support::copies::{changes_disk, complete, hashes, images, options, scripted};
use crate::{COPY, backup, restored};

#[test]
fn a_crash_of_a_restore_leaves_no_store_or_all_of_it() {
    let (store, model) = scripted(&options(MemoryVfs::new()), 5);
    let (stream, expected) = (backup(&store), hashes(&store));
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let failures = Arc::new(Mutex::new(Vec::<String>::new()));
    let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let look = {
        let (disk, failures, counts) = (disk.clone(), Arc::clone(&failures), Arc::clone(&counts));
        move |place: String| {
            for image in images(&disk) {
                let found = caught(|| {
                    counts.0.fetch_add(1, Ordering::Relaxed);
                    let is_store = complete(&options(image.clone()), COPY, &model, &expected)?;
                    counts.1.fetch_add(u64::from(is_store), Ordering::Relaxed);
                    Ok(())
                });
                if let Err(found) = found {
                    failures.lock().unwrap().push(format!("{place}: {found}"));
                }
            }
        }
    };
    let (dirty, before) = (AtomicBool::new(true), look.clone());
    faulty.observe(move |number, kind| {
        if dirty.swap(changes_disk(kind), Ordering::Relaxed) {
            before(format!("before operation {number} ({kind:?})"));
        }
    });
    restored(&stream, &options(faulty), COPY).unwrap();
    let before = counts.1.load(Ordering::Relaxed);
    look("at the end".into());
    let (images, stores) = (counts.0.load(Ordering::Relaxed), counts.1.load(Ordering::Relaxed));
    assert!(stores > before, "what has returned is durable");
    println!("{images} images, {stores} stores");
    let failures = failures.lock().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(images > 60);
}

#[test]
fn a_failure_of_a_restore_leaves_no_store_or_all_of_it() {
    let (store, model) = scripted(&options(MemoryVfs::new()), 6);
    let (stream, expected) = (backup(&store), hashes(&store));
    for fault in [Fault::Io, Fault::NoSpace, Fault::Torn, Fault::Short] {
        let mut failed = 0;
        for nth in 0.. {
            let disk = MemoryVfs::new();
            let faulty = FaultVfs::new(Arc::new(disk.clone()));
            faulty.fail(None, nth, fault, false);
            let made = restored(&stream, &options(faulty.clone()), COPY);
            let is_store = complete(&options(disk), COPY, &model, &expected);
            let is_store = is_store.unwrap_or_else(|found| panic!("{fault:?} {nth}: {found}"));
            assert!(made.is_err() || is_store, "{fault:?} {nth}");
            failed += u64::from(made.is_err());
            if faulty.fired() == 0 {
                assert!(made.is_ok());
                break;
            }
        }
        assert_eq!(failed > 30, fault != Fault::Short, "{fault:?}: {failed}");
    }
}
