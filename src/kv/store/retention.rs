//! Rules of retention: set, list, apply.

use annals_format::limits::RETENTION_PREFIX_BYTES_MAX;

use crate::error::{ErrorKind, Result};

use super::Store;
use crate::kv::range::AsKeyRange;
use crate::kv::retention::{Retention, RetentionRule};
use crate::kv::space;

impl Store {
    /// Says how long the versions of the keys with `prefix` are kept, or with `None` takes that back. The
    /// longest prefix decides; the empty one is for all keys that no other is for. Without any rule nothing
    /// is forgotten but by [`compact`](Self::compact).
    ///
    /// What a rule no longer keeps is forgotten when rules are applied: by the background thread, every
    /// [`retention_interval_seconds`](crate::Options::retention_interval_seconds), or by
    /// [`apply_retention`](Self::apply_retention). A read below that answers
    /// [`Compacted`](crate::ErrorKind::Compacted), which names the prefix; live views and iterators go on.
    /// The rule of the empty prefix does what `compact` does. `compact` in turn forgets nothing of keys
    /// that have a rule of their own: only that rule does.
    ///
    /// What was forgotten once stays so, whatever rule follows. The call is durable when it returns, and
    /// takes no revision.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::{ErrorKind, Retention};
    ///
    /// store.set_retention("/audit/", Some(Retention::forever()))?;
    /// store.set_retention("/events/", Some(Retention::forever().keep_revisions(1)))?;
    /// for n in 0..3 {
    ///     store.put("/audit/a", n.to_string())?;
    ///     store.put("/events/a", n.to_string())?;
    /// }
    /// store.compact(7)?;
    /// store.apply_retention()?;
    ///
    /// let view = store.at(3)?;
    /// assert_eq!(view.get("/audit/a")?.expect("kept").value, "0");
    /// let refused = view.get("/events/a").expect_err("forgotten").into_kind();
    /// let ErrorKind::Compacted { compacted, prefix, .. } = refused else { unreachable!() };
    /// assert_eq!((compacted, prefix.as_deref()), (6, Some(&b"/events/"[..])));
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyTooLong`](crate::ErrorKind::KeyTooLong) for a prefix of more than 1 KiB,
    /// [`TooManyRules`](crate::ErrorKind::TooManyRules) where there are 64. As every write:
    /// [`Closed`](crate::ErrorKind::Closed), [`ReadOnly`](crate::ErrorKind::ReadOnly),
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown), [`Poisoned`](crate::ErrorKind::Poisoned).
    pub fn set_retention(
        &self,
        prefix: impl AsRef<[u8]>,
        retention: Option<Retention>,
    ) -> Result<()> {
        let prefix = prefix.as_ref();
        let (bytes, max) = (prefix.len() as u64, RETENTION_PREFIX_BYTES_MAX);
        if bytes > max {
            return Err(ErrorKind::KeyTooLong { bytes, max }.into());
        }
        self.engine.set_rule(prefix, retention.map(Retention::rule))
    }

    /// Every rule, by prefix, with how far back its keys can be read now.
    pub fn retention(&self) -> Vec<RetentionRule> {
        let rules = self.engine.rules();
        rules.into_iter().map(|(prefix, rule)| RetentionRule::new(prefix, &rule)).collect()
    }

    /// The oldest revision at which every key of a range can be read; 0 if nothing of them was ever
    /// forgotten. Unless rules say otherwise it is the [compacted](Self::compacted_revision) one.
    pub fn oldest_readable(&self, range: impl AsKeyRange) -> u64 {
        let (start, end) = space::user_range(&range.to_key_range());
        self.engine.oldest_of(&start..&end)
    }

    /// Forgets at once what the rules no longer keep, as the background thread does from time to time.
    /// Answers whether that was anything. Space is given back as after [`compact`](Self::compact).
    ///
    /// # Errors
    ///
    /// As [`set_retention`](Self::set_retention); [`Corrupt`](crate::ErrorKind::Corrupt) or
    /// [`Io`](crate::ErrorKind::Io) from the files that have the times of the commits.
    pub fn apply_retention(&self) -> Result<bool> {
        self.engine.apply_retention()
    }
}
