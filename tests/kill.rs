//! A process is killed, so that what it wrote stays in the page cache, whether synced or not; the
//! next one reads that, recovers, and is cut off by a power cut. Or an operation fails, and the
//! store is opened again by the same machine. What was acknowledged must survive the two together.
//!
//! Every kill point times every operation of the recovery is too much for each run:
//! `ANNALS_STRIDE=1` takes all of them, the default every 23rd.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod support;

use std::path::Path;
use std::sync::Arc;

use annals::clock::ManualClock;
use annals::vfs::{CrashMode, Fault, FaultVfs, MemoryVfs, Operation};
use annals::{Options, Store};
use support::{DIRECTORY, START_TIME, number_from_env, tiny};

const KEYS: u64 = 7;
const VALUE_BYTES: usize = 700;
const MODES: [CrashMode; 3] = [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random];

/// What was acknowledged: the last revision, and the last watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Acknowledged {
    revision: u64,
    compacted: u64,
}

fn options(faulty: &FaultVfs) -> Options {
    tiny(Arc::new(faulty.clone()), Arc::new(ManualClock::new(START_TIME)))
}

/// The key and the value that a revision writes.
fn write_of(revision: u64) -> (String, Vec<u8>) {
    (
        format!("k{}", (revision - 2) % KEYS),
        vec![u8::try_from(revision % 251).unwrap(); VALUE_BYTES],
    )
}

/// Several sessions, some closed and some dropped, until the disk refuses.
fn sessions(faulty: &FaultVfs) -> Acknowledged {
    let mut acknowledged = Acknowledged { revision: 1, compacted: 0 };
    for session in 0..5_u64 {
        let Ok(store) = options(faulty).open(Path::new(DIRECTORY)) else { return acknowledged };
        for _ in 0..11 {
            let (key, value) = write_of(store.revision() + 1);
            match store.put(key, value) {
                Ok(done) => acknowledged.revision = done.revision,
                Err(_) => return acknowledged,
            }
        }
        let watermark = acknowledged.revision - 5;
        if session % 2 == 0 && store.compact(watermark).is_ok() {
            acknowledged.compacted = watermark;
        }
        if session % 2 == 1 {
            while matches!(store.run_background(), Ok(true)) {}
        }
        if session == 3 {
            let _ = store.reorganise();
        }
        if session % 3 == 0 {
            let _ = store.close();
        }
    }
    acknowledged
}

/// Opens an image, and holds it against what was acknowledged.
fn check(image: &MemoryVfs, acknowledged: Acknowledged) -> Result<(), String> {
    let say = |error: annals::Error| error.to_string();
    let faulty = FaultVfs::new(Arc::new(image.clone()));
    let store = options(&faulty).open(Path::new(DIRECTORY)).map_err(say)?;
    let revision = store.revision();
    if revision < acknowledged.revision || store.compacted_revision() < acknowledged.compacted {
        return Err(format!("at {revision}, compacted {}", store.compacted_revision()));
    }
    let mut found = 0;
    for kv in store.latest().map_err(say)?.range(..) {
        let kv = kv.map_err(say)?;
        let (key, value) = write_of(kv.mod_revision);
        if (kv.key.as_ref(), kv.value.as_ref()) != (key.as_bytes(), value.as_slice()) {
            return Err(format!("{:?} at {} is wrong", kv.key, kv.mod_revision));
        }
        found += 1;
    }
    if found != (revision - 1).min(KEYS) {
        return Err(format!("{found} keys at revision {revision}"));
    }
    store.log(..).try_for_each(|transaction| transaction.map(drop)).map_err(say)
}

/// Opens what `first` left, cuts that off after each of its operations, and checks the images.
fn cut_recovery(name: &str, acknowledged: Acknowledged, first: &dyn Fn() -> MemoryVfs) -> u64 {
    let mut images = 0;
    for count in 0.. {
        let disk = first();
        let faulty = FaultVfs::new(Arc::new(disk.clone()));
        faulty.stop_after(count);
        let opened = options(&faulty).open(Path::new(DIRECTORY)).map(drop::<Store>);
        for mode in MODES {
            images += 1;
            check(&disk.crash(count, mode), acknowledged).unwrap_or_else(|found| {
                panic!("{name}, recovery cut after {count} operations, {mode:?}: {found}")
            });
        }
        if opened.is_ok() {
            break;
        }
    }
    images
}

#[test]
fn killed_and_the_recovery_cut_off() {
    let run = |stop: u64| {
        let disk = MemoryVfs::new();
        let faulty = FaultVfs::new(Arc::new(disk.clone()));
        faulty.stop_after(stop);
        let acknowledged = sessions(&faulty);
        (disk, acknowledged, faulty.op_count())
    };
    let (_, all, total) = run(u64::MAX);
    assert_eq!(all.revision, 56);
    let stride = number_from_env("ANNALS_STRIDE", 23);
    let mut images = 0;
    for stop in (0..=total).step_by(usize::try_from(stride).unwrap()) {
        let (_, acknowledged, _) = run(stop);
        let name = format!("killed after {stop} operations");
        images += cut_recovery(&name, acknowledged, &|| run(stop).0);
    }
    println!("{total} operations, every {stride}th: {images} images");
}

#[test]
fn an_operation_fails_and_the_next_opening_is_cut_off() {
    let kinds = [
        Operation::SyncDir,
        Operation::Sync,
        Operation::Write,
        Operation::Rename,
        Operation::Create,
        Operation::Remove,
        Operation::SetLen,
    ];
    let stride = number_from_env("ANNALS_STRIDE", 23);
    let mut images = 0;
    for kind in kinds {
        let run = |nth: u64| {
            let disk = MemoryVfs::new();
            let faulty = FaultVfs::new(Arc::new(disk.clone()));
            faulty.fail(Some(kind), nth, Fault::Io, false);
            let acknowledged = sessions(&faulty);
            (disk, acknowledged, faulty.op_count_of(kind))
        };
        let total = run(u64::MAX).2;
        for nth in (0..total).step_by(usize::try_from(stride.div_ceil(4)).unwrap()) {
            let (_, acknowledged, _) = run(nth);
            let name = format!("{kind:?} number {nth} failed");
            images += cut_recovery(&name, acknowledged, &|| run(nth).0);
        }
    }
    println!("{} kinds: {images} images", kinds.len());
}
