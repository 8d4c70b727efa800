//! What the whole-store tests share: a naive model, a generator of requests, a driver that holds a
//! store against the model, and checks of crash images.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "tests fail by panicking, and every test uses another part of it"
)]

pub mod check;
pub mod clients;
pub mod copies;
pub mod drive;
pub mod gate;
pub mod generate;
pub mod images;
pub mod model;
pub mod parallel;
pub mod random;
pub mod tasks;
pub mod wakers;
pub mod watchdog;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::vfs::Vfs;
use annals::{HistoryCodec, Options, ReadMode, Store};
use random::Random;

/// Where the store is on a simulated disk.
pub const DIRECTORY: &str = "store";

/// Options that make every file small, so that a short script makes many of each kind.
pub fn tiny(vfs: Arc<dyn Vfs>, clock: Arc<ManualClock>) -> Options {
    Options::new()
        .memtable_bytes(16 << 10)
        .wal_bytes(64 << 10)
        .segment_bytes(4 << 10)
        .block_bytes(512)
        .history_block_bytes(512)
        .l0_files_max(2)
        .history_windows_max(3)
        .blob_value_bytes(256)
        .cache_bytes(64 << 10)
        .background(false)
        .store_id_seed(1)
        .read_mode(ReadMode::Mmap)
        .vfs(vfs)
        .clock(clock)
}

/// Options with sizes and ways to store and read of a seed's own.
pub fn shaped(options: Options, random: &mut Random) -> Options {
    options
        .memtable_bytes(*random.pick(&[16 << 10, 16 << 10, 64 << 10]))
        .wal_bytes(*random.pick(&[64 << 10, 80 << 10, 100_000]))
        .segment_bytes(*random.pick(&[4 << 10, 16 << 10, 1 << 20]))
        .block_bytes(*random.pick(&[512, 4096]))
        .history_block_bytes(*random.pick(&[512, 4096]))
        .l0_files_max(random.between(1, 5))
        .history_windows_max(random.between(2, 6))
        .cache_bytes(*random.pick(&[0, 4 << 10, 1 << 20]))
        .history_codec(*random.pick(&[
            HistoryCodec::Fast,
            HistoryCodec::Raw,
            HistoryCodec::Small,
            HistoryCodec::ZstdBlocks,
        ]))
        .read_mode(*random.pick(&[ReadMode::Mmap, ReadMode::Pread]))
        .blob_value_bytes(*random.pick(&[64, 256, 1 << 30]))
}

/// Opens the store of a simulated disk with [`tiny`] options.
pub fn open_tiny(vfs: Arc<dyn Vfs>) -> annals::Result<Store> {
    tiny(vfs, Arc::new(ManualClock::new(START_TIME))).open(Path::new(DIRECTORY))
}

/// When simulations begin, in microseconds since the Unix epoch.
pub const START_TIME: i64 = 1_700_000_000_000_000;

/// A number from the environment, or the default.
pub fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The time that this process has had of the processors; `None` where the system does not say. What a machine does
/// beside it does not count.
pub fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    let ticks = after_name.split_whitespace().skip(11).take(2);
    // A tick is a hundredth of a second on every Linux.
    Some(ticks.map(|ticks| Duration::from_millis(10 * ticks.parse().unwrap_or(0))).sum())
}
