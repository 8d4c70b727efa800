//! Alarms: that there is no space, or that a file is damaged.
//!
//! In etcd the alarm about space stays until somebody takes it back. Here it ends by itself when there is space again:
//! when the store has become smaller than the quota allows, and the disk has room. So that what was deleted and compacted
//! gives its room back, a store above its quota is reorganised. One that a client has raised stays until a client takes it
//! back.
//!
//! A store whose write has failed takes no more until it is opened anew. So it must not come to that: puts are refused
//! while the disk still has the room that what is under way, deletions and compaction need.

mod raised;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use annals::{Error, ErrorKind, Stats, Store};
use parking_lot::Mutex;
use tonic::Status;

pub use self::raised::Raised;
use crate::errors::{CORRUPT, NO_SPACE, refuse};
use crate::proto::etcdserverpb::{AlarmMember, AlarmType};

/// What etcd counts for a put beside its key and value.
const COST_OF_A_PUT: u64 = 256;

/// Bytes that are left free on the disk; on a small one an eighth of it.
const SPARE_BYTES: u64 = 256 << 20;

/// Bytes that one byte of a put may take before the disk is looked at again: in the log, and in files made of it.
const AMPLIFIED: u64 = 3;

/// How often the size of the store is looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The alarms of a server.
#[derive(Debug)]
pub struct Alarms {
    /// 0 for no limit.
    quota: u64,
    /// The size of the store when it was last looked at, and what was written since.
    bytes: AtomicU64,
    /// Its size when it was last looked at.
    looked: AtomicU64,
    /// What could be written then before the disk has but [`SPARE_BYTES`] left.
    room: AtomicU64,
    /// Where the disk is looked at.
    directory: Option<PathBuf>,
    no_space: AtomicBool,
    corrupt: AtomicBool,
    /// What clients have raised.
    raised: Mutex<Raised>,
}

/// The bytes that a store takes: its segments, and what is in the log alone. How long the files of the log are made says
/// nothing about that.
pub(crate) fn bytes_of(stats: &Stats) -> u64 {
    [&stats.l0, &stats.head, &stats.history, &stats.events, &stats.blobs]
        .iter()
        .map(|files| files.bytes)
        .sum::<u64>()
        + stats.wal_bytes.min(stats.memtable_bytes)
}

/// The bytes that may be written to the disk of a directory. One that cannot be asked has room.
fn room(directory: &Path) -> u64 {
    let Ok(disk) = rustix::fs::statvfs(directory) else { return u64::MAX };
    let whole = disk.f_blocks.saturating_mul(disk.f_frsize);
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    free.saturating_sub(SPARE_BYTES.min(whole / 8))
}

impl Alarms {
    /// None yet, over a store that may have so many bytes.
    #[must_use]
    pub fn new(store: &Store, quota: u64) -> Self {
        let bytes = bytes_of(&store.stats());
        Self {
            quota,
            bytes: AtomicU64::new(bytes),
            looked: AtomicU64::new(bytes),
            room: AtomicU64::new(u64::MAX),
            directory: None,
            no_space: AtomicBool::new(false),
            corrupt: AtomicBool::new(false),
            raised: Mutex::default(),
        }
    }

    /// With those that clients have raised before.
    #[must_use]
    pub fn with_raised(mut self, raised: Raised) -> Self {
        self.raised = Mutex::new(raised);
        self
    }

    /// Looks at the room on the disk of a directory, too.
    #[must_use]
    pub fn on_disk_of(mut self, directory: &Path) -> Self {
        self.room = AtomicU64::new(room(directory));
        self.directory = Some(directory.to_owned());
        self
    }

    /// The size of the store when it was last looked at, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The quota in bytes; 0 for none.
    pub fn quota(&self) -> u64 {
        self.quota
    }

    /// Refuses a write for want of space, and raises the alarm where it would go over the quota.
    pub(crate) fn check_space(&self, bytes: usize) -> Result<(), Status> {
        if self.is_raised(AlarmType::Nospace) {
            return Err(refuse(NO_SPACE));
        }
        let cost = bytes as u64 + COST_OF_A_PUT;
        // Relaxed: a sum that is corrected every second.
        let before = self.bytes.fetch_add(cost, Ordering::Relaxed);
        let after = before.saturating_add(cost);
        let spent = after.saturating_sub(self.looked.load(Ordering::Relaxed));
        let is_over = self.quota > 0 && after > self.quota;
        if is_over || spent.saturating_mul(AMPLIFIED) > self.room.load(Ordering::Relaxed) {
            self.bytes.fetch_sub(cost, Ordering::Relaxed);
            self.raise_no_space(|| {
                if is_over {
                    format!("the store has come to its --quota-backend-bytes of {}", self.quota)
                } else {
                    self.of_the_disk()
                }
            });
            return Err(refuse(NO_SPACE));
        }
        Ok(())
    }

    /// Refuses a write while a file is said to be damaged, as etcd does; reading goes on.
    pub(crate) fn check_intact(&self) -> Result<(), Status> {
        if self.is_raised(AlarmType::Corrupt) { Err(refuse(CORRUPT)) } else { Ok(()) }
    }

    /// Raises the alarm that belongs to an error of the store, if one does.
    pub(crate) fn note(&self, error: &Error) {
        match error.kind() {
            ErrorKind::NoSpace { .. } => self.raise_no_space(|| error.to_string()),
            ErrorKind::Corrupt(_) => self.corrupt.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Looks at the size of the store, and takes the alarm about space back if there is space again. Called every
    /// [`LOOK_EVERY`].
    pub fn look(&self, store: &Store) {
        let bytes = bytes_of(&store.stats());
        self.bytes.store(bytes, Ordering::Relaxed);
        self.looked.store(bytes, Ordering::Relaxed);
        let room = self.directory.as_deref().map_or(u64::MAX, room);
        self.room.store(room, Ordering::Relaxed);
        let has_space = (self.quota == 0 || bytes < self.quota) && room > 0;
        if room == 0 {
            self.raise_no_space(|| self.of_the_disk());
        }
        if has_space && self.no_space.swap(false, Ordering::Relaxed) {
            crate::log::warn(
                "alarm disarmed: there is space again",
                &[("alarm", "NOSPACE".into())],
            );
        }
    }

    /// Raises the alarm about space, and says why, unless it is raised.
    fn raise_no_space(&self, why: impl FnOnce() -> String) {
        if !self.no_space.swap(true, Ordering::Relaxed) {
            let why = ("reason", why().into());
            crate::log::warn(
                "alarm raised: writes are refused",
                &[("alarm", "NOSPACE".into()), why],
            );
        }
    }

    fn of_the_disk(&self) -> String {
        let directory = self.directory.as_deref().unwrap_or(Path::new("")).display();
        format!(
            "the disk of {directory} is nearly full: what is left is for deletions and compactions"
        )
    }

    /// Whether the store is larger than its quota allows.
    fn is_over(&self) -> bool {
        self.quota > 0 && self.looked.load(Ordering::Relaxed) >= self.quota
    }

    /// Whether a store that is written anew could end an alarm: its space is what is wanting, and the disk has room for
    /// its files once more.
    pub(crate) fn could_shrink(&self) -> bool {
        let wanting = self.is_over() || self.is_raised(AlarmType::Nospace);
        wanting && self.room.load(Ordering::Relaxed) >= self.bytes()
    }

    /// Whether an alarm is raised.
    pub fn is_raised(&self, alarm: AlarmType) -> bool {
        let by_itself = match alarm {
            AlarmType::Nospace => self.no_space.load(Ordering::Relaxed),
            AlarmType::Corrupt => self.corrupt.load(Ordering::Relaxed),
            AlarmType::None => false,
        };
        by_itself || self.raised.lock().all().iter().any(|raised| raised.1 == alarm)
    }

    /// All that are raised.
    pub fn all(&self) -> Vec<AlarmType> {
        [AlarmType::Nospace, AlarmType::Corrupt]
            .into_iter()
            .filter(|alarm| self.is_raised(*alarm))
            .collect()
    }

    /// All that are raised: those that clients have, and those that are this member's own.
    pub(crate) fn members(&self, member: u64) -> Vec<AlarmMember> {
        let mut all = self.raised.lock().all().to_vec();
        let own = [(AlarmType::Nospace, &self.no_space), (AlarmType::Corrupt, &self.corrupt)];
        for (alarm, is_raised) in own {
            if is_raised.load(Ordering::Relaxed) && !all.contains(&(member, alarm)) {
                all.push((member, alarm));
            }
        }
        let told =
            |(member_id, alarm): (u64, AlarmType)| AlarmMember { member_id, alarm: alarm.into() };
        all.into_iter().map(told).collect()
    }

    /// Raises one for a client. Answers whether it is raised. Waits for the disk.
    pub(crate) fn raise(&self, member: u64, alarm: AlarmType) -> bool {
        self.raised.lock().raise(member, alarm)
    }

    /// Takes one of a member back. Answers whether it was raised. `is_own` if the member is this one. Waits for the disk.
    pub(crate) fn disarm(&self, member: u64, alarm: AlarmType, is_own: bool) -> bool {
        let mut was = self.raised.lock().disarm(member, alarm);
        if is_own {
            was |= match alarm {
                AlarmType::Nospace => self.no_space.swap(false, Ordering::Relaxed),
                AlarmType::Corrupt => self.corrupt.swap(false, Ordering::Relaxed),
                AlarmType::None => false,
            };
        }
        was
    }
}
