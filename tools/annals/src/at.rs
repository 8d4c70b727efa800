//! Points in a store's history, as users name them: `latest`, a revision, a time.

use std::fmt;
use std::str::FromStr;

use annals::{Store, View};
use jiff::Timestamp;

use crate::exit::Outcome;

/// `latest`, a revision (a bare integer) or an RFC 3339 time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The newest revision.
    Latest,
    /// This revision.
    Revision(u64),
    /// The last revision at this time or before, in microseconds since the Unix epoch.
    Time(i64),
}

impl At {
    /// Opens the view.
    pub(crate) fn view(self, store: &Store) -> Outcome<View> {
        Ok(match self {
            Self::Latest => store.latest()?,
            Self::Revision(revision) => store.at(revision)?,
            Self::Time(micros) => store.at_time(micros)?,
        })
    }

    /// The revision, which must be readable.
    pub(crate) fn revision(self, store: &Store) -> Outcome<u64> {
        Ok(self.view(store)?.revision())
    }
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(Self::Revision).map_err(|_| format!("{text} is too large"));
        }
        let time: Timestamp = text
            .parse()
            .map_err(|_| "expected latest, a revision or a time like 2026-11-20T12:00:00Z")?;
        Ok(Self::Time(time.as_microsecond()))
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Revision(revision) => write!(f, "{revision}"),
            Self::Time(micros) => f.write_str(&rfc3339(*micros)),
        }
    }
}

/// A time for people and JSON: RFC 3339 in UTC; the number itself where the calendar ends.
pub(crate) fn rfc3339(micros: i64) -> String {
    match Timestamp::from_microsecond(micros) {
        Ok(time) => time.to_string(),
        Err(_) => format!("{micros} us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses() {
        assert_eq!("latest".parse(), Ok(At::Latest));
        assert_eq!("17".parse(), Ok(At::Revision(17)));
        assert_eq!("1970-01-01T00:00:01.5Z".parse(), Ok(At::Time(1_500_000)));
        assert_eq!("1970-01-01T01:00:00+01:00".parse(), Ok(At::Time(0)));
        for text in ["", "-1", "newest", "1.5", "99999999999999999999", "2026-11-20", "0x10"] {
            assert!(text.parse::<At>().is_err(), "{text}");
        }
    }

    #[test]
    fn prints_what_it_parses() {
        for text in ["latest", "17", "2026-11-20T12:00:00Z", "2026-11-20T12:00:00.000001Z"] {
            assert_eq!(text.parse::<At>().unwrap().to_string(), text);
        }
        assert_eq!(rfc3339(i64::MAX), "9223372036854775807 us");
    }
}
