//! Compacting by itself: etcd's `--auto-compaction-mode` and `--auto-compaction-retention`.

use std::sync::Weak;
use std::time::{Duration, SystemTime};

use annals::{ErrorKind, Store};

use crate::config::AutoCompaction;
use crate::server::Server;
use crate::{info, warn};

/// How often that many revisions are counted back, as in etcd.
const REVISION_EVERY: Duration = Duration::from_secs(300);

/// The longest and shortest between two compactions by age.
const PERIODIC_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

/// How often a mode compacts; `None` if never. By age as often as the age, at most every hour.
fn every(mode: AutoCompaction) -> Option<Duration> {
    match mode {
        AutoCompaction::Off => None,
        AutoCompaction::Periodic(age) => Some(age.clamp(PERIODIC_EVERY.0, PERIODIC_EVERY.1)),
        AutoCompaction::Revision(_) => Some(REVISION_EVERY),
    }
}

/// The revision to compact to; `None` if there is nothing yet that is old enough.
///
/// The store knows the time of each revision, so one that was started again goes on where it was: etcd begins anew to
/// note what was when.
fn target(store: &Store, mode: AutoCompaction, now: SystemTime) -> annals::Result<Option<u64>> {
    let revision = match mode {
        AutoCompaction::Off => return Ok(None),
        AutoCompaction::Revision(count) => {
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            store.revision().saturating_sub(count)
        }
        AutoCompaction::Periodic(age) => {
            let Some(then) = now.checked_sub(age) else { return Ok(None) };
            match store.resolve(then) {
                Ok(revision) => revision,
                Err(error) => match *error.kind() {
                    ErrorKind::NoRevisionAtTime { .. } => return Ok(None),
                    ErrorKind::TimeUnknown { first, .. } => first,
                    _ => return Err(error),
                },
            }
        }
    };
    Ok((revision > store.compacted_revision() && revision > 1).then_some(revision))
}

fn compact(store: &Store, mode: AutoCompaction) {
    let done = target(store, mode, SystemTime::now()).and_then(|target| match target {
        Some(revision) => store.compact(revision).map(|_| Some(revision)),
        None => Ok(None),
    });
    match done {
        Ok(Some(revision)) => info!("completed auto compaction", "revision" = revision),
        Ok(None) => {}
        Err(error) if matches!(error.kind(), ErrorKind::Compacted { .. }) => {}
        Err(error) => warn!("auto compaction failed", "error" = error.to_string()),
    }
}

/// Compacts from time to time, until the server is gone.
pub async fn run(server: Weak<Server>, mode: AutoCompaction) {
    let Some(every) = every(mode) else { return };
    loop {
        tokio::time::sleep(every).await;
        let Some(server) = server.upgrade() else { return };
        let work = tokio::task::spawn_blocking(move || compact(server.store(), mode));
        if work.await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::sync::Arc;

    use annals::Options;
    use annals::clock::ManualClock;
    use annals::vfs::MemoryVfs;

    use super::*;

    #[test]
    fn what_is_old_enough_is_found_by_number_and_by_time() {
        let start = 1_700_000_000_000_000;
        let clock = Arc::new(ManualClock::new(start));
        let options = Options::new().vfs(Arc::new(MemoryVfs::new())).clock(Arc::clone(&clock) as _);
        let store = options.open("/store").unwrap();
        let at =
            |micros: i64| SystemTime::UNIX_EPOCH + Duration::from_micros(micros.cast_unsigned());
        let hour = Duration::from_secs(3600);
        let by_age = AutoCompaction::Periodic(hour);
        assert_eq!(target(&store, by_age, at(start)).unwrap(), None);
        for n in 0..10 {
            store.put("k", n.to_string()).unwrap();
            clock.advance(600_000_000);
        }
        assert_eq!(target(&store, AutoCompaction::Revision(4), at(start)).unwrap(), Some(7));
        assert_eq!(target(&store, AutoCompaction::Revision(40), at(start)).unwrap(), None);
        // Revision 2 is of the start, each next of ten minutes later; the newest of an hour ago is the fifth.
        assert_eq!(target(&store, by_age, at(start) + hour + hour / 6 * 4).unwrap(), Some(6));
        store.compact(6).unwrap();
        assert_eq!(target(&store, by_age, at(start) + hour + hour / 6 * 4).unwrap(), None);
        assert_eq!(every(by_age), Some(hour));
        assert_eq!(every(AutoCompaction::Off), None);
    }
}
