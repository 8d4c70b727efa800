//! What the errors say, in one line each.

use std::fmt;

use super::{Corruption, ErrorKind};

/// A time in microseconds since the Unix epoch, as RFC 3339 spells it in UTC; the number itself outside of
/// the years 1 to 9999.
struct Utc(i64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000));
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Days since 1 March of the year 0: a leap day is then the last of its year. 400 years have 146,097.
        let days = days + 719_468;
        let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        let year = era * 400 + year + carry;
        if !(1..=9999).contains(&year) {
            return write!(f, "{} us since the epoch", self.0);
        }
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if micros > 0 {
            let digits = format!("{micros:06}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

impl fmt::Display for ErrorKind {
    #[expect(
        clippy::too_many_lines,
        reason = "a line or two for each kind, and none may be left out"
    )]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyKey => f.write_str("the key is empty"),
            Self::KeyTooLong { bytes, max } => too_long(f, "key", *bytes, *max, "bytes"),
            Self::ValueTooLong { bytes, max } => too_long(f, "value", *bytes, *max, "bytes"),
            Self::TransactionTooLarge { bytes, max } => {
                too_long(f, "transaction", *bytes, *max, "bytes")
            }
            Self::TooManyOperations { count, max } => {
                too_long(f, "transaction", *count, *max, "operations")
            }
            Self::MetadataTooLong { bytes, max } => too_long(f, "metadata", *bytes, *max, "bytes"),
            Self::DuplicateKey { key } => {
                write!(f, "the transaction writes the key {} twice", Printable(key))
            }
            Self::KeyNotFound { key } => write!(f, "the key {} does not exist", Printable(key)),
            Self::ValueProvided => f.write_str("a value was given together with ignore_value"),
            Self::LeaseProvided => f.write_str("a lease was given together with ignore_lease"),
            Self::LeaseNotFound { lease } => write!(f, "there is no lease {lease}"),
            Self::LeaseExists { lease } => write!(f, "lease {lease} exists already"),
            Self::LeaseTtlTooLarge { ttl, max } => {
                write!(f, "a lease of {ttl} seconds is too long: the most is {max}")
            }
            Self::InvalidArgument { what } => f.write_str(what),
            Self::InvalidOption { name, value, expected } => {
                write!(f, "option {name}={value} is not valid: expected {expected}")
            }
            // Asked for by a compaction alone: it can be read.
            Self::Compacted { requested, compacted, prefix: None } if requested == compacted => {
                write!(f, "the store is compacted to revision {compacted} already")
            }
            Self::Compacted { requested, compacted, prefix: None } => write!(
                f,
                "revision {requested} has been compacted: the oldest readable one is {compacted}"
            ),
            Self::Compacted { requested, compacted, prefix: Some(prefix) } => write!(
                f,
                "revision {requested} is not kept for keys with the prefix {}: the oldest readable \
                 one is {compacted}",
                Printable(prefix)
            ),
            Self::TooManyRules { max } => {
                write!(f, "a store has at most {max} rules of retention")
            }
            Self::FutureRevision { requested, current } => {
                write!(f, "revision {requested} does not exist yet: the newest is {current}")
            }
            Self::NoRevisionAtTime { requested, oldest: Some(oldest) } => write!(
                f,
                "no retained revision is as old as {}: the oldest is of {}",
                Utc(*requested),
                Utc(*oldest)
            ),
            Self::NoRevisionAtTime { requested, oldest: None } => {
                write!(f, "no retained revision is as old as {}", Utc(*requested))
            }
            Self::TimeUnknown { requested, first, last } => write!(
                f,
                "which of the revisions {first} to {last} was the newest at {} is not known: their times are lost",
                Utc(*requested)
            ),
            Self::Lagged { resume, current } => write!(
                f,
                "the watch fell behind: revision {resume} is due, and the store was at {current}"
            ),
            Self::ReadOnly => f.write_str("the store was opened for reading only"),
            Self::Closed => f.write_str("the store has been closed"),
            Self::WouldWait => f.write_str("the commit would have to wait for the disk"),
            Self::NoStore { path } => write!(f, "{}: no store here", path.display()),
            Self::NotAStore { path, detail } => {
                write!(f, "{}: not a store: {detail}", path.display())
            }
            Self::NotEmpty { path, unfinished: true, .. } => write!(
                f,
                "{}: the directory has a store that was not finished: remove it",
                path.display()
            ),
            Self::NotEmpty { path, found, unfinished: false } => {
                write!(f, "{}: the directory is not empty: it holds {found}", path.display())
            }
            Self::Locked { path } => {
                write!(f, "{}: the store is open for writing elsewhere", path.display())
            }
            Self::UnsupportedVersion { file, found, supported } => write!(
                f,
                "{}: format version {found} is not supported: this build reads up to {supported}",
                file.display()
            ),
            Self::NoSpace { operation, path } => {
                write!(f, "{}: no space left on the device to {operation}", path.display())
            }
            Self::Corrupt(corruption) => fmt::Display::fmt(corruption, f),
            Self::Io { operation, path, source } => {
                write!(f, "{}: cannot {operation}: {source}", path.display())
            }
            Self::Poisoned { cause } if cause.corruption().is_some() => {
                write!(f, "the store refuses writes, since a file is damaged: {cause}")
            }
            Self::Poisoned { cause } => write!(
                f,
                "the store refuses writes until it is reopened, since an earlier one failed: \
                 {cause}"
            ),
            Self::OutcomeUnknown { revision: 0, cause } => {
                write!(f, "the write may or may not have been made: {cause}")
            }
            Self::OutcomeUnknown { revision, cause } => write!(
                f,
                "revision {revision} may or may not have been kept: its write failed: {cause}"
            ),
        }
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: damaged at offset {}: {}: expected {}, found {}",
            self.file.display(),
            self.offset,
            self.structure,
            self.expected,
            self.found
        )?;
        match (self.revision, self.revision_upto) {
            (None, _) => Ok(()),
            (Some(first), Some(upto)) if first < upto => {
                write!(f, " (revisions {first} to {upto})")
            }
            (Some(revision), _) => write!(f, " (revision {revision})"),
        }
    }
}

fn too_long(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    have: u64,
    max: u64,
    unit: &str,
) -> fmt::Result {
    write!(f, "the {what} has {have} {unit}: the most allowed is {max}")
}

/// A key as text where it is UTF-8, else in hexadecimal.
struct Printable<'a>(&'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ok(text) = std::str::from_utf8(self.0) {
            return write!(f, "{text:?}");
        }
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compaction_that_was_done_is_not_told_as_a_revision_that_is_gone() {
        let told =
            |requested| ErrorKind::Compacted { requested, compacted: 5, prefix: None }.to_string();
        assert_eq!(told(4), "revision 4 has been compacted: the oldest readable one is 5");
        assert_eq!(told(5), "the store is compacted to revision 5 already");
    }

    #[test]
    fn times_are_spelled_as_calendars_do() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_500_000, "1970-01-01T00:00:01.5Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00Z"),
            (1_795_348_800_000_000, "2026-11-22T12:00:00Z"),
            (253_402_300_799_000_000, "9999-12-31T23:59:59Z"),
            (253_402_300_800_000_000, "253402300800000000 us since the epoch"),
            (-62_135_596_800_000_000, "0001-01-01T00:00:00Z"),
            (i64::MIN, "-9223372036854775808 us since the epoch"),
        ] {
            assert_eq!(Utc(micros).to_string(), text);
        }
    }
}
