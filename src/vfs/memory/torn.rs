//! Disks on which the write in flight is there in part; copies of a disk as it is now, and what becomes of it
//! without power.

use super::disk::Disk;
use super::{CrashMode, MemoryVfs};
use crate::sync::plain::Mutex;
use std::sync::Arc;

/// Which sectors of the write in flight have arrived, by their number within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrived {
    /// So many from the front.
    First(u64),
    /// All but one.
    AllBut(u64),
    /// One alone.
    Only(u64),
}

impl Arrived {
    fn has(self, sector: u64) -> bool {
        match self {
            Self::First(count) => sector < count,
            Self::AllBut(missing) => sector != missing,
            Self::Only(one) => sector == one,
        }
    }
}

impl MemoryVfs {
    /// Another disk in the same state: what is not synced here is not synced there. Both go on by
    /// themselves. Locks are not held on the new disk.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::from_disk(self.disk().fork())
    }

    /// This disk itself loses power: from now on it is what [`MemoryVfs::crash`] would have made. Whoever used
    /// it must have stopped; locks are not held any more.
    pub fn lose_power(&self, seed: u64, mode: CrashMode) {
        let left = self.crash(seed, mode).disk().fork();
        let mut disk = self.disk();
        let (operations, trace) = (disk.operations, disk.trace);
        *disk = left;
        (disk.operations, disk.trace) = (operations, trace);
        disk.operation("lose_power", "", [seed, mode as u64], b"");
    }

    /// Disks that a crash in the middle of a write could leave: the last operation that changed this disk must
    /// have been that write, else there are none.
    ///
    /// Of the sectors of the write there are: the first `n`, for every `n`; all but one, for every one; one
    /// alone, for every one. Of what was unsynced before it there is what `earlier` says, with `seed` as in
    /// [`MemoryVfs::crash`]. Where these are more than `most`, `seed` chooses so many of them.
    ///
    /// ```
    /// use std::path::Path;
    /// use annals::vfs::{CrashMode, MemoryVfs, Vfs};
    ///
    /// let disk = MemoryVfs::new();
    /// let file = disk.create(Path::new("a"))?;
    /// disk.sync_dir(Path::new(""))?;
    /// file.write_all_at(&[7; 1024], 0)?;
    /// let torn = disk.crash_torn(CrashMode::KeepAll, 0, usize::MAX);
    /// let first_alone = [[7; 512], [0; 512]].concat();
    /// assert!(torn.iter().any(|disk| disk.read(Path::new("a")).unwrap() == first_alone));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn crash_torn(&self, earlier: CrashMode, seed: u64, most: usize) -> Vec<Self> {
        let (before, write) = {
            let mut disk = self.disk().fork();
            let Some(write) = disk.take_in_flight() else { return Vec::new() };
            (Self::from_disk(disk), write)
        };
        let base = before.crash(seed, earlier);
        let count = write.sectors();
        // The other two at the ends are prefixes as well.
        let mut cases: Vec<Arrived> = (0..=count).map(Arrived::First).collect();
        cases.extend((0..count.saturating_sub(1)).map(Arrived::AllBut));
        cases.extend((1..count).map(Arrived::Only));
        let mut random = super::Random::new(seed);
        while cases.len() > most {
            let at = random.below(cases.len() as u64);
            cases.swap_remove(usize::try_from(at).unwrap_or(0));
        }
        let torn = |arrived: Arrived| {
            let mut disk = base.disk().fork();
            disk.write_part(&write, |sector| arrived.has(sector)).then(|| Self::from_disk(disk))
        };
        cases.into_iter().filter_map(torn).collect()
    }

    /// A hash of every name and of the content it leads to, synced or not. Two disks with the same hash
    /// look the same to who reads them.
    pub fn content_hash(&self) -> u64 {
        self.disk().content_hash()
    }

    fn from_disk(disk: Disk) -> Self {
        Self { disk: Arc::new(Mutex::new(disk)) }
    }
}
