//! Values larger than a memtable: each finds its place, and is there after the next opening.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::vfs::MemoryVfs;
use support::watchdog::Watchdog;
use support::{DIRECTORY, tiny};

const KIB: usize = 1 << 10;

/// Around the size of a memtable's first piece of memory, and of the pieces after it.
const SIZES: &[usize] = &[500, 511, 513, 520, 600, 900, 1000, 1024, 1025, 1500, 2047, 2050, 3000];

#[test]
fn values_larger_than_the_memtable_are_written_and_replayed() {
    for background in [false, true] {
        let watchdog = Watchdog::new(Duration::from_secs(60));
        watchdog.begin("values larger than the memtable");
        let disk = MemoryVfs::new();
        let clock = Arc::new(ManualClock::new(support::START_TIME));
        let options = tiny(Arc::new(disk), clock)
            .memtable_bytes(16 << 10)
            .value_bytes_max(4 << 20)
            .background(background);
        let store = options.open(Path::new(DIRECTORY)).unwrap();
        for (n, kib) in SIZES.iter().enumerate() {
            store.put(format!("{n}"), vec![7; kib * KIB]).unwrap();
            store.put(format!("{n}"), vec![8; kib * KIB]).unwrap();
        }
        store.close().unwrap();
        let store = options.open(Path::new(DIRECTORY)).unwrap();
        for (n, kib) in SIZES.iter().enumerate() {
            let kv = store.get(format!("{n}")).unwrap().unwrap();
            assert_eq!(kv.value, vec![8; kib * KIB]);
        }
        store.close().unwrap();
    }
}
