//! A power cut before every write and sync of a script: what a watch of a `Sync` store has told is there
//! after it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use annals::clock::ManualClock;
use annals::vfs::{CrashMode, FaultVfs, MemoryVfs, Operation};
use annals::{Batch, Durability, Watch, put, txn};

use crate::support::{DIRECTORY, START_TIME, open_tiny, tiny};

type Told = Arc<Mutex<Vec<Batch>>>;

/// Everything told is in the image, as it was told.
fn check(image: &MemoryVfs, told: &[Batch]) {
    let store = open_tiny(Arc::new(image.clone())).unwrap();
    let Some(last) = told.last() else { return };
    assert!(store.revision() >= last.revision(), "{} was told", last.revision());
    let floor = store.compacted_revision().max(2);
    let again = store.watch_range(..).from(floor).prev_kv().start().unwrap();
    let expected = told.iter().filter(|batch| batch.revision() >= floor);
    for (told, again) in expected.zip(again) {
        assert_eq!(again.unwrap(), *told);
    }
}

fn drain(watch: &mut Watch, told: &Told) {
    while let Some(batch) = watch.try_next() {
        told.lock().unwrap().push(batch.unwrap());
    }
}

#[test]
fn what_was_told_survives_a_power_cut_at_any_moment() {
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let clock = Arc::new(ManualClock::new(START_TIME));
    let store = tiny(Arc::new(faulty.clone()), clock).open(Path::new(DIRECTORY)).unwrap();
    let told = Told::default();
    let images = Arc::new(Mutex::new(0));
    let (below, watched, counted) = (disk, Arc::clone(&told), Arc::clone(&images));
    faulty.observe(move |number, operation| {
        if matches!(operation, Operation::Read) {
            return;
        }
        let told = watched.lock().unwrap().clone();
        for mode in [CrashMode::LoseAll, CrashMode::Random] {
            check(&below.crash(number, mode), &told);
            *counted.lock().unwrap() += 1;
        }
    });
    let mut watch = store.watch_range(..).prev_kv().start().unwrap();
    for n in 0..60 {
        let ops = [put(format!("k{}", n % 5), "v".repeat(n * 7 % 300)), put("all", format!("{n}"))];
        match n % 4 {
            // Told when it is durable, whoever made it so.
            0 => drop(store.txn().then(ops).durability(Durability::Buffered).commit().unwrap()),
            1 => {
                let ticket = store.submit(txn().then(ops)).unwrap();
                drain(&mut watch, &told);
                ticket.wait().unwrap();
            }
            _ => drop(store.txn().then(ops).commit().unwrap()),
        }
        drain(&mut watch, &told);
        match n {
            20 | 50 => store.reorganise().unwrap(),
            30 => drop(store.compact(store.revision() - 5).unwrap()),
            _ => {}
        }
    }
    store.flush().unwrap();
    drain(&mut watch, &told);
    let told = told.lock().unwrap().clone();
    let revisions: Vec<u64> = told.iter().map(Batch::revision).collect();
    assert_eq!(revisions, (2..62).collect::<Vec<_>>());
    println!("{} images", images.lock().unwrap());
    assert!(*images.lock().unwrap() > 200);
}
