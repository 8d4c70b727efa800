//! How long versions are kept, in the caller's words.

use std::time::Duration;

use annals_format::retention::Rule;
use bytes::Bytes;

/// How long the versions of keys are kept; set with [`Store::set_retention`](crate::Store::set_retention).
///
/// Of [`forever`](Self::forever) nothing is ever forgotten. With a number of revisions or an age, what
/// only reads further back could see is forgotten; with both, what both would forget. The newest version
/// of a key that is alive is never forgotten.
///
/// ```
/// use annals::Retention;
/// use std::time::Duration;
///
/// let hour = Retention::forever().keep_for(Duration::from_secs(3600));
/// let at_least_a_hundred = hour.keep_revisions(100);
/// assert_eq!(at_least_a_hundred.revisions(), Some(100));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Retention {
    revisions: Option<u64>,
    /// In microseconds.
    #[cfg_attr(feature = "serde", serde(rename = "age_micros"))]
    age: Option<u64>,
}

impl Retention {
    /// Nothing is forgotten.
    #[must_use]
    pub const fn forever() -> Self {
        Self { revisions: None, age: None }
    }

    /// Keeps the states at the newest revision of the store and at the `count` before it.
    #[must_use]
    pub const fn keep_revisions(mut self, count: u64) -> Self {
        self.revisions = Some(count);
        self
    }

    /// Keeps every state that was the newest within this time; of less than a microsecond, none but the
    /// newest. The times are those of the commits.
    #[must_use]
    pub fn keep_for(mut self, age: Duration) -> Self {
        self.age = Some(u64::try_from(age.as_micros()).unwrap_or(u64::MAX));
        self
    }

    /// How many revisions before the newest are kept, if that was said.
    #[must_use]
    pub const fn revisions(&self) -> Option<u64> {
        self.revisions
    }

    /// How long a state is kept, if that was said.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.age.map(Duration::from_micros)
    }

    pub(super) fn rule(self) -> Rule {
        Rule { revisions: self.revisions, age: self.age, ..Rule::default() }
    }
}

/// The retention of the keys with a prefix, as [`Store::retention`](crate::Store::retention) tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RetentionRule {
    /// The prefix; the empty one is that of all keys that no other is for.
    pub prefix: Bytes,
    /// How long the keys are kept. `None`: the rule was taken back, and the keys are kept as those around
    /// them are, but reads of the revisions that it has forgotten have still to be refused.
    pub retention: Option<Retention>,
    /// The oldest revision at which the keys can be read; 0 if nothing was ever forgotten.
    pub floor: u64,
}

impl RetentionRule {
    pub(super) fn new(prefix: Bytes, rule: &Rule) -> Self {
        let Rule { revisions, age, removed, floor } = *rule;
        let retention = (!removed).then_some(Retention { revisions, age });
        Self { prefix, retention, floor }
    }
}
