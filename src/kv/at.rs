//! Points in a store's history: the newest state, a revision, a time.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::Result;

use super::eval::check;
use super::seam::Engine;

/// A point in a store's history. A revision (`u64`) and a [`SystemTime`] can stand for it wherever it
/// is asked for; [`Store::resolve`](crate::Store::resolve) says which revision it is.
///
/// ```
/// use annals::At;
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// # let store = annals::Store::open(directory.path())?;
///
/// let put = store.put("/a", "1")?;
/// assert_eq!(store.resolve(At::Latest)?, 2);
/// assert_eq!(store.resolve(2)?, 2);
/// assert_eq!(store.resolve(At::Time(put.time))?, 2);
/// assert_eq!(store.resolve(std::time::SystemTime::now())?, 2);
/// # Ok::<(), annals::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum At {
    /// The newest revision.
    #[default]
    Latest,
    /// This revision.
    Revision(u64),
    /// The last revision ordered at this time or before, in microseconds since the Unix epoch.
    Time(i64),
}

impl At {
    /// The revision it names. Whether that is there, and can still be read, is for the one who reads to
    /// find out.
    pub(super) fn revision(self, engine: &Engine) -> Result<u64> {
        match self {
            Self::Latest => Ok(engine.latest()?.revision()),
            Self::Revision(0) => Err(check::no_revision_zero()),
            Self::Revision(revision) => Ok(revision),
            Self::Time(micros) => engine.revision_at_time(micros),
        }
    }
}

impl From<u64> for At {
    fn from(revision: u64) -> Self {
        Self::Revision(revision)
    }
}

/// To the microsecond that it lies in.
impl From<SystemTime> for At {
    fn from(time: SystemTime) -> Self {
        let micros = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
            Err(before) => {
                let before = before.duration().as_nanos().div_ceil(1000);
                i64::try_from(before).map_or(i64::MIN, |before| -before)
            }
        };
        Self::Time(micros)
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("the newest revision"),
            Self::Revision(revision) => write!(f, "revision {revision}"),
            Self::Time(micros) => write!(f, "{micros} us after the Unix epoch"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_rounded_down_on_both_sides_of_the_epoch() {
        let nanos = Duration::from_nanos;
        assert_eq!(At::from(UNIX_EPOCH + nanos(1_999)), At::Time(1));
        assert_eq!(At::from(UNIX_EPOCH - nanos(1_001)), At::Time(-2));
        assert_eq!(At::from(UNIX_EPOCH), At::Time(0));
        assert_eq!(At::from(7), At::Revision(7));
    }
}
