//! Points in a store's history, as users name them: `latest`, a revision, a time.

use std::fmt;
use std::str::FromStr;

use annals::{Store, View};
use jiff::Timestamp;

use crate::exit::Outcome;

/// `latest`, a revision (a bare integer) or an RFC 3339 time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At(pub(crate) annals::At);

impl At {
    /// Opens the view.
    pub(crate) fn view(self, store: &Store) -> Outcome<View> {
        Ok(match self.0 {
            annals::At::Latest => store.latest()?,
            at => store.at(store.resolve(at)?)?,
        })
    }

    /// The revision, which must be readable.
    pub(crate) fn revision(self, store: &Store) -> Outcome<u64> {
        Ok(store.resolve(self.0)?)
    }
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "latest" {
            return Ok(Self(annals::At::Latest));
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let revision = text.parse().map_err(|_| format!("{text} is too large"));
            return revision.map(|revision| Self(annals::At::Revision(revision)));
        }
        let time: Timestamp = text
            .parse()
            .map_err(|_| "expected latest, a revision or a time like 2026-11-20T12:00:00Z")?;
        Ok(Self(annals::At::Time(time.as_microsecond())))
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            annals::At::Revision(revision) => write!(f, "{revision}"),
            annals::At::Time(micros) => f.write_str(&rfc3339(micros)),
            _ => f.write_str("latest"),
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
        let parsed = |text: &str| text.parse::<At>().unwrap().0;
        assert_eq!(parsed("latest"), annals::At::Latest);
        assert_eq!(parsed("17"), annals::At::Revision(17));
        assert_eq!(parsed("1970-01-01T00:00:01.5Z"), annals::At::Time(1_500_000));
        assert_eq!(parsed("1970-01-01T01:00:00+01:00"), annals::At::Time(0));
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
