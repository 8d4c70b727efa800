//! How a store is opened: every knob, with its unit, range and default.
//!
//! [`Options`] is a plain value with setters that take and return it. The same knobs can be set by
//! name from text ([`Options::set`], the tool's `-O NAME=VALUE`); [`KNOBS`] is the one table both
//! the parser and the documentation of the tool are made from.
//!
//! Invariant: a value out of range never reaches the engine. Text is checked when it is set, and
//! [`Options::validate`] checks everything once more on open.

use std::sync::Arc;

use annals_format::limits;

use crate::clock::{Clock, SystemClock};
use crate::error::Result;
use crate::vfs::{OsVfs, Vfs};

use self::knob::{invalid, parse_number, range_text};

pub use self::knob::{KNOBS, Knob, KnobRange};

mod knob;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[expect(clippy::exhaustive_enums, reason = "there are these two levels and no others")]
pub enum Durability {
    /// Acknowledged once it has been synced to the device: it survives a power cut.
    #[default]
    Sync,
    /// Acknowledged once it is ordered and applied: it survives the process only after the next
    /// write-out, a fraction of a second later, or after `flush()`.
    ///
    /// One commit of a `Sync` store may ask for this level, too. It is acknowledged when it is
    /// ordered, and readers see it once it is durable. The acknowledgement is the one answer of such
    /// a store that may depend on what a crash takes back: a transaction is decided on everything
    /// ordered before it, durable or not. So even one that turns out to write nothing (a comparison
    /// fails, there is nothing to delete) may tell of values that `get` does not show yet, and that
    /// are not there after a crash. A transaction that holds nothing but reads is answered like
    /// `get`.
    ///
    /// Once a write or sync has failed, what was not durable is lost: readers see it no more, and
    /// what was decided on it is answered with [`Poisoned`](crate::ErrorKind::Poisoned). What was answered
    /// before the failure was noticed, and views taken before it, may still show it.
    Buffered,
}

/// How sealed files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there are these two ways and no others")]
pub enum ReadMode {
    /// Files are mapped into memory. The newest versions are read in place, and so are superseded
    /// ones unless they were stored as `HistoryCodec::ZstdBlocks`. However many files
    /// there are, at most 128 of them have a descriptor at a time (before Linux 5.14: each that is
    /// mapped).
    #[default]
    Mmap,
    /// Blocks are read with `pread` into the block cache; nothing is mapped. A store opened for
    /// reading only takes a descriptor for each of its files; another one, 128 at most, one for each
    /// file that a fold or merge is just replacing, and one for each file that was removed and is
    /// still being read.
    Pread,
}

/// How superseded versions are stored in files that are written from now on. Files of either kind are
/// read whatever is set. With all but `ZstdBlocks` one version is found and read from a few kilobytes,
/// without its neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HistoryCodec {
    /// In blocks that are compressed as a whole: a read decompresses one.
    ZstdBlocks,
    /// Most versions as a delta against another version of the key, the others (full versions) as they are:
    /// nothing is ever decompressed, and `history_level` has no effect.
    Raw,
    /// Deltas as with `Raw`. Full versions of up to 4 KiB are a delta against a dictionary of the file (where
    /// it has none, a zstd frame from 512 B on), longer ones a zstd frame.
    #[default]
    Fast,
    /// As `Fast`, but full versions are zstd frames from 256 B on, and a read makes up to 8 versions, not 3, to
    /// have one.
    Small,
}

/// How a store is opened.
///
/// ```no_run
/// use annals::{Durability, Options};
///
/// let options = Options::new().durability(Durability::Buffered).memtable_bytes(8 << 20);
/// # Ok::<(), annals::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Level of durability of a commit that does not name one. Default: `Sync`.
    pub(crate) durability: Durability,
    /// Make a new store where the directory is absent or empty. Default: true.
    pub(crate) create: bool,
    /// Size of one memtable generation. 16 KiB to 4 GiB; default 32 MiB. A single larger
    /// transaction stretches its generation.
    pub(crate) memtable_bytes: u64,
    /// Size a WAL file grows to. 64 KiB to 4 GiB; default 64 MiB. A single larger transaction
    /// stretches its file.
    pub(crate) wal_bytes: u64,
    /// Size at which a segment file is cut. 4 KiB to 4 GiB; default 32 MiB. A file whose first and
    /// last key are long grows to at least 256 times their bytes.
    pub(crate) segment_bytes: u64,
    /// Size of a block of newest versions (HEAD, L0). 512 B to 256 KiB; default 8 KiB.
    pub(crate) block_bytes: u64,
    /// Size, before compression, of a block of HISTORY and EVENTS. 512 B to 256 KiB; default
    /// 16 KiB.
    pub(crate) history_block_bytes: u64,
    /// How HISTORY is stored. Default: `Fast`.
    pub(crate) history_codec: HistoryCodec,
    /// Compression level of HISTORY and EVENTS (zstd). 1 to 19; default 1.
    pub(crate) history_level: u64,
    pub(crate) event_value_bytes: u64,
    pub(crate) blob_value_bytes: u64,
    /// L0 files from which on they are folded into HEAD and HISTORY, or merged with each other while HEAD is
    /// far larger. 1 to 64; default 4.
    pub(crate) l0_files_max: u64,
    /// HISTORY windows of one class of keys beyond which neighbours are merged. 2 to 1024; default 12.
    pub(crate) history_windows_max: u64,
    /// What folds, merges and trims may write for each sync of the log. 4 KiB to 4 GiB; default
    /// 256 KiB.
    pub(crate) background_bytes_per_sync: u64,
    /// How often rules of retention are applied, in seconds. 0 (never) to a year; default 60.
    pub(crate) retention_interval_seconds: u64,
    /// Whether leases end when their time is over. Default: true.
    pub(crate) lease_expiry: bool,
    /// How much longer a lease may live because of a crash, in seconds. 0 (any time) to a day; default 60.
    pub(crate) lease_checkpoint_interval_seconds: u64,
    /// How often the figures of the store are written to its `live.json`, in seconds. 0 (never) to a day;
    /// default 0.
    pub(crate) live_interval_seconds: u64,
    /// Memory for decoded blocks. 0 to 1 TiB; default 64 MiB.
    pub(crate) cache_bytes: u64,
    /// How sealed files are read. Default: `Mmap`.
    pub(crate) read_mode: ReadMode,
    /// Longest key. 1 B to 1 MiB; default 64 KiB.
    pub(crate) key_bytes_max: u64,
    /// Longest value. 0 B to 512 MiB; default 16 MiB.
    pub(crate) value_bytes_max: u64,
    /// Largest transaction, as it is encoded in the log: its metadata, the keys and values it
    /// writes, the lease table's included, and a few bytes for each. 4 KiB to 1 GiB; default
    /// 64 MiB.
    pub(crate) transaction_bytes_max: u64,
    /// Most operations in a transaction, and most keys it changes. 1 to 16,000,000; default
    /// 1,000,000.
    pub(crate) transaction_operations_max: u64,
    /// Longest metadata of a transaction. 0 B to 64 KiB; default 64 KiB.
    pub(crate) metadata_bytes_max: u64,
    /// Whether the store has background threads, for the log of what nobody waits for and for flush,
    /// fold and reclaim. Default: true. Without them the caller runs that work with
    /// `Store::run_background`.
    pub(crate) background: bool,
    /// The file system. Default: the operating system's.
    pub(crate) vfs: Arc<dyn Vfs>,
    /// The clock. Default: the system's.
    pub(crate) clock: Arc<dyn Clock>,
    /// Makes the identity of a new store reproducible; for tests. Default: none, so that every
    /// new store has an identity of its own.
    pub(crate) store_id_seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// Writes the setters of fields that are set as they are.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $kind:ty,)*) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $name: $kind) -> Self {
                self.$name = $name;
                self
            }
        )*
    };
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            durability: Durability::Sync,
            create: true,
            memtable_bytes: 32 * MIB,
            wal_bytes: 64 * MIB,
            segment_bytes: 32 * MIB,
            block_bytes: 8 * KIB,
            history_block_bytes: 16 * KIB,
            history_codec: HistoryCodec::Fast,
            history_level: 1,
            event_value_bytes: KIB,
            blob_value_bytes: 64 * KIB,
            l0_files_max: 4,
            history_windows_max: 12,
            background_bytes_per_sync: 256 * KIB,
            retention_interval_seconds: 60,
            lease_expiry: true,
            lease_checkpoint_interval_seconds: 60,
            live_interval_seconds: 0,
            cache_bytes: 64 * MIB,
            read_mode: ReadMode::Mmap,
            key_bytes_max: limits::KEY_BYTES_DEFAULT,
            value_bytes_max: limits::VALUE_BYTES_DEFAULT,
            transaction_bytes_max: limits::TRANSACTION_BYTES_DEFAULT,
            transaction_operations_max: limits::TRANSACTION_OPERATIONS_DEFAULT,
            metadata_bytes_max: limits::METADATA_BYTES_MAX,
            background: true,
            vfs: Arc::new(OsVfs::new()),
            clock: Arc::new(SystemClock::new()),
            store_id_seed: None,
        }
    }

    setters! {
        /// Sets the level of durability of a commit that does not name one. Default: `Sync`.
        durability: Durability,
        /// Sets whether a new store is made where the directory is absent or empty. Default: true.
        create: bool,
        /// Sets the size of one memtable generation. 16 KiB to 4 GiB; default 32 MiB. Up to four
        /// generations can be in memory at a time: commits slow down once two of them wait to be written
        /// to files, and wait once three do. There can be more while somebody reads them, and each
        /// `Store::reorganise` may end one early. The memory of a generation that has been written to
        /// files is kept for the next one.
        memtable_bytes: u64,
        /// Sets the size a WAL file grows to. 64 KiB to 4 GiB; default 64 MiB. The first file of a
        /// session is smaller.
        wal_bytes: u64,
        /// Sets the size at which a segment file is cut. 4 KiB to 4 GiB; default 32 MiB.
        ///
        /// A file whose first and last key are long is not cut before it holds 256 times their
        /// bytes: the manifest lists both keys of every file, and so stays a small part of the
        /// store.
        segment_bytes: u64,
        /// Sets the size of a block of newest versions. 512 B to 256 KiB; default 8 KiB.
        block_bytes: u64,
        /// Sets the size, before compression, of a block of history and events. 512 B to 256 KiB;
        /// default 16 KiB. Where superseded versions are not compressed as whole blocks, a block of
        /// them is about a quarter of this in the file.
        history_block_bytes: u64,
        /// Sets how superseded versions are stored in files written from now on. Default: `Fast`.
        history_codec: HistoryCodec,
        /// Sets the zstd level of history and events. 1 to 19; default 1.
        history_level: u64,
        /// Sets the length up to which EVENTS repeat the values put. 0 to 1 MiB; default 1 KiB.
        ///
        /// A replay of old changes with their values ([`Log::with_values`](crate::Log::with_values))
        /// then reads one file from front to back; a value that is not repeated is looked up, which
        /// takes some ten times as long. What is repeated takes its room, compressed, a second time
        /// until its revision is compacted.
        event_value_bytes: u64,
        /// Sets from which length on newest values are put in blob files. 64 B to 4 GiB (none is so long);
        /// default 64 KiB.
        ///
        /// Such a value is written there when it leaves memory, and once more as history when it is superseded. It is not
        /// written again when HEAD is because of other keys, but where blob files have as many dead values as a move of
        /// those in use writes. A get of it looks into two files.
        blob_value_bytes: u64,
        /// Sets from how many L0 files on they are folded into HEAD, or merged with each other as long as
        /// they are less than a quarter of HEAD. 1 to 64; default 4.
        l0_files_max: u64,
        /// Sets beyond how many HISTORY windows of one class of keys neighbours are merged. 2 to 1024;
        /// default 12.
        history_windows_max: u64,
        /// Sets what folds, merges and trims may write for each sync of the log. 4 KiB to 4 GiB;
        /// default 256 KiB.
        ///
        /// A sync makes the device write whatever it has been given. Less keeps commits faster while
        /// background work runs, and lets that take longer: reads find more files meanwhile. It is no
        /// limit where nobody commits, and none for work that is far behind; the largest value is
        /// none at all. Flushes are not counted.
        background_bytes_per_sync: u64,
        /// Sets how often rules of retention are applied, in seconds. 0 (never) to a year; default 60.
        ///
        /// Rules are set with [`Store::set_retention`](crate::Store::set_retention);
        /// [`Store::apply_retention`](crate::Store::apply_retention) applies them at once.
        retention_interval_seconds: u64,
        /// Sets whether leases end when their time is over. Default: true.
        ///
        /// Without it no time passes for any lease: they are state, and end when they are revoked. For a
        /// store that repeats what another one decides.
        lease_expiry: bool,
        /// Sets how much longer a lease may live because of a crash, in seconds. 0 (any time) to a day;
        /// default 60.
        ///
        /// How much time a lease has left is written down whenever it was not renewed for so long, and when
        /// the store is closed. After a crash it has as much as was written down last. With 0 nothing is
        /// written, and after every opening each lease has all of its time again.
        lease_checkpoint_interval_seconds: u64,
        /// Sets how often the figures of the store are written to a file `live.json` in its directory, in
        /// seconds. 0 (never) to a day; default 0.
        ///
        /// It is what `annals top` shows beside a program that has the store open: the
        /// [`Stats`](crate::Stats), which revisions are held, which watches are furthest behind. The file
        /// takes 64 KiB at most, is not synced, and is removed when the store is closed. A background thread of
        /// its own writes it.
        live_interval_seconds: u64,
        /// Sets the memory for decoded blocks. 0 to 1 TiB; default 64 MiB.
        cache_bytes: u64,
        /// Sets how sealed files are read. Default: `Mmap`.
        read_mode: ReadMode,
        /// Sets the longest key. 1 B to 1 MiB; default 64 KiB.
        key_bytes_max: u64,
        /// Sets the longest value. 0 B to 512 MiB; default 16 MiB.
        value_bytes_max: u64,
        /// Sets the largest transaction, as it is encoded in the log: its metadata, the keys and
        /// values it writes, the lease table's included, and a few bytes for each. 4 KiB to 1 GiB;
        /// default 64 MiB.
        transaction_bytes_max: u64,
        /// Sets the most operations in a transaction, and the most keys it changes. 1 to
        /// 16,000,000; default 1,000,000.
        transaction_operations_max: u64,
        /// Sets the longest metadata of a transaction. 0 B to 64 KiB; default 64 KiB.
        metadata_bytes_max: u64,
        /// Sets whether the store has background threads. Default: true. Without them the caller runs
        /// the background work, which makes a single-threaded program deterministic; a ticket that is
        /// awaited then syncs in the polling thread, and what nobody waits for is not written before
        /// somebody flushes, waits, or runs that work.
        background: bool,
        /// Sets the file system. Default: the operating system's.
        vfs: Arc<dyn Vfs>,
        /// Sets the clock. Default: the system's.
        clock: Arc<dyn Clock>,
    }

    /// Makes the identity of a new store a function of `seed`, so that the same calls write the
    /// same bytes. For tests: two stores with one identity cannot tell each other's files apart.
    #[must_use]
    pub fn store_id_seed(mut self, seed: u64) -> Self {
        self.store_id_seed = Some(seed);
        self
    }

    /// Sets a knob by name, from text.
    ///
    /// Numbers are decimal, with an optional suffix `K`, `M` or `G` (powers of 1024; also `KiB`
    /// and so on). Words are lower case. The names are in [`KNOBS`].
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) if there is no such knob or the value is out of its range;
    /// nothing is changed then.
    ///
    /// ```
    /// let mut options = annals::Options::new();
    /// options.set("memtable_bytes", "64K")?;
    /// assert!(options.set("memtable_bytes", "1").is_err());
    /// assert!(options.set("no_such_thing", "1").is_err());
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let Some(knob) = KNOBS.iter().find(|knob| knob.name == name) else {
            let names: Vec<&str> = KNOBS.iter().map(|knob| knob.name).collect();
            return Err(invalid(name, value, format!("one of {}", names.join(", "))));
        };
        match knob.range {
            None => self.set_word(name, value),
            Some(range) => {
                let number = parse_number(value)
                    .filter(|number| (range.min..=range.max).contains(number))
                    .ok_or_else(|| invalid(name, value, range_text(range)))?;
                for (of, field) in self.numbers_mut() {
                    if of == name {
                        *field = number;
                    }
                }
                Ok(())
            }
        }
    }

    /// Checks that every number is in its range.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) for the first that is not.
    pub fn validate(&self) -> Result<()> {
        for (name, field) in self.clone().numbers_mut() {
            let range = KNOBS.iter().find(|knob| knob.name == name).and_then(|knob| knob.range);
            match range {
                Some(range) if (range.min..=range.max).contains(field) => {}
                Some(range) => return Err(invalid(name, &field.to_string(), range_text(range))),
                None => {}
            }
        }
        Ok(())
    }

    /// The zstd level of history and events, as zstd takes it.
    pub(crate) fn zstd_level(&self) -> i32 {
        i32::try_from(self.history_level).unwrap_or(1)
    }

    /// How often rules of retention are applied, in microseconds; 0 for never.
    pub(crate) fn retention_interval_micros(&self) -> u64 {
        self.retention_interval_seconds.saturating_mul(1_000_000)
    }

    /// How much longer a lease may live because of a crash, in microseconds; 0 for any time.
    pub(crate) fn lease_checkpoint_interval_micros(&self) -> u64 {
        self.lease_checkpoint_interval_seconds.saturating_mul(1_000_000)
    }

    fn set_word(&mut self, name: &str, value: &str) -> Result<()> {
        match (name, value) {
            ("durability", "sync") => self.durability = Durability::Sync,
            ("durability", "buffered") => self.durability = Durability::Buffered,
            ("read_mode", "mmap") => self.read_mode = ReadMode::Mmap,
            ("read_mode", "pread") => self.read_mode = ReadMode::Pread,
            ("create", "true") => self.create = true,
            ("create", "false") => self.create = false,
            ("background", "true") => self.background = true,
            ("background", "false") => self.background = false,
            ("lease_expiry", "true") => self.lease_expiry = true,
            ("lease_expiry", "false") => self.lease_expiry = false,
            ("history_codec", "zstd-blocks") => self.history_codec = HistoryCodec::ZstdBlocks,
            ("history_codec", "raw") => self.history_codec = HistoryCodec::Raw,
            ("history_codec", "fast") => self.history_codec = HistoryCodec::Fast,
            ("history_codec", "small") => self.history_codec = HistoryCodec::Small,
            ("history_codec", _) => {
                return Err(invalid(name, value, "zstd-blocks, raw, fast or small"));
            }
            ("durability", _) => return Err(invalid(name, value, "sync or buffered")),
            ("read_mode", _) => return Err(invalid(name, value, "mmap or pread")),
            _ => return Err(invalid(name, value, "true or false")),
        }
        Ok(())
    }

    /// Every knob that is a number.
    fn numbers_mut(&mut self) -> [(&'static str, &mut u64); 20] {
        [
            ("memtable_bytes", &mut self.memtable_bytes),
            ("wal_bytes", &mut self.wal_bytes),
            ("segment_bytes", &mut self.segment_bytes),
            ("block_bytes", &mut self.block_bytes),
            ("history_block_bytes", &mut self.history_block_bytes),
            ("history_level", &mut self.history_level),
            ("event_value_bytes", &mut self.event_value_bytes),
            ("blob_value_bytes", &mut self.blob_value_bytes),
            ("l0_files_max", &mut self.l0_files_max),
            ("history_windows_max", &mut self.history_windows_max),
            ("background_bytes_per_sync", &mut self.background_bytes_per_sync),
            ("retention_interval_seconds", &mut self.retention_interval_seconds),
            ("lease_checkpoint_interval_seconds", &mut self.lease_checkpoint_interval_seconds),
            ("live_interval_seconds", &mut self.live_interval_seconds),
            ("cache_bytes", &mut self.cache_bytes),
            ("key_bytes_max", &mut self.key_bytes_max),
            ("value_bytes_max", &mut self.value_bytes_max),
            ("transaction_bytes_max", &mut self.transaction_bytes_max),
            ("transaction_operations_max", &mut self.transaction_operations_max),
            ("metadata_bytes_max", &mut self.metadata_bytes_max),
        ]
    }
}

#[cfg(test)]
mod tests;
