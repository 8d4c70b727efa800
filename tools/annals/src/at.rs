//! Points in a store's history, as users name them, and lengths of time: one way to spell them in every command.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use annals::{ErrorKind, Store, View};
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, SpanRelativeTo, SpanRound, Timestamp, ToSpan as _, Unit};

use crate::exit::Outcome;

/// How a point in history is spelled, for `--help`.
pub(crate) const SPELLING: &str = "\
AT is a point in history:
  latest                the newest revision
  7, -1                 a revision, or how many before the newest
  24h, '3 days ago'     how long ago: the newest revision that was there then
  2026-11-21            a day, as it begins in UTC; today, yesterday
  '2026-11-21 09:30'    a time, in UTC; 2026-11-21T09:30:00+01:00 in another zone
--since begins at the first revision that is not before AT, --until ends with the last that is not
after it. What follows (watch, history --follow) waits for a revision or a time that is to come.";

/// What is not one of these.
const EXPECTED: &str = "expected latest, a revision such as 7, revisions back such as -1, a time such as \
    2026-11-20T12:00:00Z, a day such as 2026-11-20 or yesterday, or how long ago such as 24h or '3 days ago'";

/// What is a time, but one that could be taken for another.
const NO_DAY: &str = "a time needs its day, such as '2026-11-20 09:30' (in UTC)";
const ZONE_NAME: &str =
    "a zone is told by how far it is from UTC, such as 2026-11-20T12:00:00+01:00, not by its name";

/// A point in history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The newest revision.
    Latest,
    /// This revision.
    Revision(u64),
    /// So many revisions before the newest.
    Back(u64),
    /// A time, in microseconds since the Unix epoch: the last revision that is not later.
    Time(i64),
}

impl At {
    /// As the library takes it.
    fn of(self, store: &Store) -> annals::At {
        match self {
            Self::Latest => annals::At::Latest,
            Self::Revision(revision) => annals::At::Revision(revision),
            // There is no revision before the empty store.
            Self::Back(count) => {
                annals::At::Revision(store.revision().saturating_sub(count).max(1))
            }
            Self::Time(micros) => annals::At::Time(micros),
        }
    }

    /// Opens the view.
    pub(crate) fn view(self, store: &Store) -> Outcome<View> {
        Ok(store.at(self.of(store))?)
    }

    /// The last revision that is not after it, which must be readable.
    pub(crate) fn revision(self, store: &Store) -> Outcome<u64> {
        Ok(store.resolve(self.of(store))?)
    }

    /// The first revision that is not before it, whether that is there or not; `None` where all that can be
    /// found is later.
    pub(crate) fn first(self, store: &Store) -> Outcome<Option<u64>> {
        let Self::Time(micros) = self else {
            return Ok(Some(match self.of(store) {
                annals::At::Revision(revision) => revision,
                _ => store.revision(),
            }));
        };
        match store.revision_at_time(micros.saturating_sub(1)) {
            Ok(before) => Ok(Some(before + 1)),
            Err(error) => match *error.kind() {
                ErrorKind::NoRevisionAtTime { .. } => Ok(None),
                // Rather more than was asked for.
                ErrorKind::TimeUnknown { first, .. } => Ok(Some(first + 1)),
                _ => Err(error.into()),
            },
        }
    }

    /// Reads what a user has written at a time.
    fn parse(text: &str, now: Timestamp) -> Option<Self> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let number = digits.parse().ok()?;
            return Some(if digits == text { Self::Revision(number) } else { Self::Back(number) });
        }
        let time = match text {
            "latest" => return Some(Self::Latest),
            "now" => Some(now),
            "today" => midnight(now, 0),
            "yesterday" => midnight(now, 1),
            _ => time(text).or_else(|| ago(text, now)),
        };
        Some(Self::Time(time?.as_microsecond()))
    }
}

/// The beginning of a day, so many before this one.
fn midnight(now: Timestamp, days_back: i64) -> Option<Timestamp> {
    let today: Date = now.to_zoned(TimeZone::UTC).date();
    let day = today.checked_sub(days_back.days()).ok()?;
    day.to_zoned(TimeZone::UTC).ok().map(|midnight| midnight.timestamp())
}

/// A time with an offset, or in UTC without one; a day as it begins.
fn time(text: &str) -> Option<Timestamp> {
    // The name of a zone, which would be passed over.
    if text.contains('[') {
        return None;
    }
    let zoned = text.parse::<Timestamp>().ok();
    zoned.or_else(|| {
        let civil: DateTime = text.parse().ok()?;
        civil.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
    })
}

/// How long ago. A time of day is none: whoever writes one means that time.
fn ago(text: &str, now: Timestamp) -> Option<Timestamp> {
    if text.contains(':') || text.starts_with('+') {
        return None;
    }
    let span: Span = text.parse().ok()?;
    let then = now.to_zoned(TimeZone::UTC).checked_sub(span.abs()).ok()?;
    Some(then.timestamp())
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = match text {
            _ if text.contains('[') => ZONE_NAME,
            _ if text.starts_with(|c: char| c.is_ascii_digit())
                && text.contains(':')
                && !text.contains('-') =>
            {
                NO_DAY
            }
            _ => EXPECTED,
        };
        Self::parse(text, Timestamp::now()).ok_or_else(|| expected.to_owned())
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Revision(revision) => write!(f, "{revision}"),
            Self::Back(count) => write!(f, "-{count}"),
            Self::Time(micros) => f.write_str(&rfc3339(*micros)),
        }
    }
}

/// The time now, in microseconds since the Unix epoch.
pub(crate) fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

/// A length of time with its unit, such as `90s`, `1h30m` or `30d`; a day has 24 hours.
pub(crate) fn length(text: &str) -> Result<Duration, String> {
    let expected = || "expected a length of time, such as 90s, 15m, 1h or 30d".to_owned();
    let span: Span = text.parse().map_err(|_| expected())?;
    let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| expected())?;
    // "3 days ago" is a point in time.
    Duration::try_from(length).map_err(|_| expected())
}

/// As [`length`] takes it: `30d`, `1h 30m`; seconds where that cannot be said otherwise.
pub(crate) fn spelled(length: Duration) -> String {
    let days = SpanRound::new().largest(Unit::Day).days_are_24_hours();
    let span = Span::try_from(length).and_then(|span| span.round(days));
    span.map_or_else(|_| format!("{length:?}"), |span| format!("{span:#}"))
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
    fn lengths_are_spelled_as_they_are_taken() {
        for text in ["90d", "1h", "1h 30m", "2d 1s", "45s", "1s 500ms"] {
            assert_eq!(spelled(length(text).unwrap()), text);
        }
        assert_eq!(spelled(length("90s").unwrap()), "1m 30s");
    }

    #[test]
    fn points_in_history() {
        let now: Timestamp = "2026-11-22T10:30:00Z".parse().unwrap();
        let parsed = |text: &str| At::parse(text, now).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(parsed("latest"), At::Latest);
        assert_eq!(parsed("17"), At::Revision(17));
        assert_eq!(parsed("-3"), At::Back(3));
        assert_eq!(parsed("1970-01-01T00:00:01.5Z"), At::Time(1_500_000));
        assert_eq!(parsed("1970-01-01T01:00:00+01:00"), At::Time(0));
        for (text, time) in [
            ("now", "2026-11-22T10:30:00Z"),
            ("today", "2026-11-22T00:00:00Z"),
            ("yesterday", "2026-11-21T00:00:00Z"),
            ("2026-11-20", "2026-11-20T00:00:00Z"),
            ("2026-11-20 12:15", "2026-11-20T12:15:00Z"),
            ("2026-11-20T12:15:30", "2026-11-20T12:15:30Z"),
            ("24h", "2026-11-21T10:30:00Z"),
            ("90m", "2026-11-22T09:00:00Z"),
            ("1h30m", "2026-11-22T09:00:00Z"),
            ("3 days ago", "2026-11-19T10:30:00Z"),
            ("1 month ago", "2026-10-22T10:30:00Z"),
            ("-2h", "2026-11-22T08:30:00Z"),
        ] {
            assert_eq!(parsed(text).to_string(), time, "{text}");
        }
        for text in
            ["", "-", "newest", "1.5", "99999999999999999999", "0x10", "tomorrow", "3 days since"]
        {
            assert_eq!(At::parse(text, now), None, "{text}");
        }
    }

    #[test]
    fn a_time_that_could_be_taken_for_another_is_refused() {
        for (text, why) in [
            ("09:30:00", NO_DAY),
            ("00:00:00", NO_DAY),
            ("09:30", NO_DAY),
            ("-09:30:00", EXPECTED),
            ("1 day 02:30:00", NO_DAY),
            ("+3h", EXPECTED),
            ("2026-11-22T12:00:00[Asia/Tokyo]", ZONE_NAME),
            ("2026-11-22 12:00[Europe/Berlin]", ZONE_NAME),
            ("2026-11-22[UTC]", ZONE_NAME),
            ("2026-11-22T12:00:00+01:00[Asia/Tokyo]", ZONE_NAME),
        ] {
            assert_eq!(text.parse::<At>(), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn prints_what_it_parses() {
        for text in ["latest", "17", "-1", "2026-11-20T12:00:00Z", "2026-11-20T12:00:00.000001Z"] {
            assert_eq!(text.parse::<At>().unwrap().to_string(), text);
        }
        assert_eq!(rfc3339(i64::MAX), "9223372036854775807 us");
    }

    #[test]
    fn a_length_of_time_has_a_unit() {
        for (text, seconds) in [
            ("90s", 90),
            ("15m", 900),
            ("1h", 3_600),
            ("1h30m", 5_400),
            ("30d", 2_592_000),
            ("1w", 604_800),
        ] {
            assert_eq!(length(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "1", "h", "-1h", "1hh", "1 month", "1h ago", "99999999999999999999d"] {
            length(text).unwrap_err();
        }
    }
}
