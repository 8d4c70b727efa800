//! Alarms: that there is no space, or that a file is damaged.
//!
//! In etcd the alarm about space stays until somebody takes it back. Here it ends by itself when there is space again:
//! when the store has become smaller than the quota allows, or, where a write has failed for want of space, when a file
//! can be written again. One that a client has raised stays until a client takes it back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use annals::{Error, ErrorKind, Store};
use parking_lot::Mutex;
use tonic::Status;

use crate::errors::{NO_SPACE, refuse};
use crate::proto::etcdserverpb::AlarmType;

/// What etcd counts for a put beside its key and value.
const COST_OF_A_PUT: u64 = 256;

/// How often the size of the store is looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The alarms of a server.
#[derive(Debug)]
pub struct Alarms {
    /// 0 for no limit.
    quota: u64,
    /// The size of the store when it was last looked at, and what was written since.
    bytes: AtomicU64,
    no_space: AtomicBool,
    corrupt: AtomicBool,
    /// What clients have raised.
    raised: Mutex<Vec<AlarmType>>,
}

/// The bytes of all files of a store.
#[must_use]
pub fn store_bytes(store: &Store) -> u64 {
    let stats = store.stats();
    [&stats.l0, &stats.head, &stats.history, &stats.events]
        .iter()
        .map(|files| files.bytes)
        .sum::<u64>()
        + stats.wal_bytes
}

impl Alarms {
    /// None yet, over a store that may have so many bytes.
    #[must_use]
    pub fn new(store: &Store, quota: u64) -> Self {
        Self {
            quota,
            bytes: AtomicU64::new(store_bytes(store)),
            no_space: AtomicBool::new(false),
            corrupt: AtomicBool::new(false),
            raised: Mutex::default(),
        }
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
        if self.quota > 0 && before.saturating_add(cost) > self.quota {
            self.bytes.fetch_sub(cost, Ordering::Relaxed);
            self.no_space.store(true, Ordering::Relaxed);
            crate::log::warn("alarm raised", &[("alarm", "NOSPACE".into())]);
            return Err(refuse(NO_SPACE));
        }
        Ok(())
    }

    /// Raises the alarm that belongs to an error of the store, if one does.
    pub(crate) fn note(&self, error: &Error) {
        match error.kind() {
            ErrorKind::NoSpace { .. } => self.no_space.store(true, Ordering::Relaxed),
            ErrorKind::Corrupt(_) => self.corrupt.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Looks at the size of the store, and takes the alarm about space back if there is space again. Called every
    /// [`LOOK_EVERY`].
    pub fn look(&self, store: &Store) {
        let bytes = store_bytes(store);
        self.bytes.store(bytes, Ordering::Relaxed);
        let has_space = self.quota == 0 || bytes < self.quota;
        if has_space && self.no_space.swap(false, Ordering::Relaxed) {
            crate::log::warn("alarm disarmed", &[("alarm", "NOSPACE".into())]);
        }
    }

    /// Whether an alarm is raised.
    pub fn is_raised(&self, alarm: AlarmType) -> bool {
        let by_itself = match alarm {
            AlarmType::Nospace => self.no_space.load(Ordering::Relaxed),
            AlarmType::Corrupt => self.corrupt.load(Ordering::Relaxed),
            AlarmType::None => false,
        };
        by_itself || self.raised.lock().contains(&alarm)
    }

    /// All that are raised.
    pub fn all(&self) -> Vec<AlarmType> {
        [AlarmType::Nospace, AlarmType::Corrupt]
            .into_iter()
            .filter(|alarm| self.is_raised(*alarm))
            .collect()
    }

    /// Raises one for a client.
    pub(crate) fn raise(&self, alarm: AlarmType) {
        let mut raised = self.raised.lock();
        if !raised.contains(&alarm) {
            raised.push(alarm);
        }
    }

    /// Takes one back. Answers whether it was raised.
    pub(crate) fn disarm(&self, alarm: AlarmType) -> bool {
        let was = self.is_raised(alarm);
        self.raised.lock().retain(|raised| *raised != alarm);
        match alarm {
            AlarmType::Nospace => self.no_space.store(false, Ordering::Relaxed),
            AlarmType::Corrupt => self.corrupt.store(false, Ordering::Relaxed),
            AlarmType::None => {}
        }
        was
    }
}
