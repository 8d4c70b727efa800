//! How a command ends: the failures, their text and their exit codes.
//!
//! The codes are a contract that scripts rely on; they are in `--help` (see [`CODES`]).

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

use annals::{Error, ErrorKind};

use crate::at::rfc3339;
use crate::hint::{DAMAGED_FILE, hint};

/// The exit codes, for `--help`.
pub(crate) const CODES: &str = "\
Exit codes:
  0  done
  1  any other error; verify: something could not be checked
  2  the command line is wrong
  3  a file of the store, of a backup or of an etcd is damaged
  4  the store is open for writing elsewhere
  5  not found: a key, a lease, a file; or a condition (--if, --fail-on-else) did not hold
  6  the revision has been compacted, or does not exist yet
  7  refused without --confirm
  8  no space left
  9  repair: the new store is sound, but something that was committed is not in it";

/// Why a command did not end well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The engine refused, with what the command was about where that helps.
    Engine { about: Option<String>, error: Error },
    /// The command line is wrong.
    Usage(String),
    /// There is no such thing. The text may be empty: the exit code then says it all.
    NotFound(String),
    /// Damage was found, and has been reported already.
    Damaged,
    /// A file that is not of a store is damaged, or not what it should be.
    DamagedFile(String),
    /// A store was repaired, but not all that was committed is in it, which has been reported already.
    Losses,
    /// Needs `--confirm`, and the plan has been printed already.
    Unconfirmed,
    /// Reading or writing something that is not the store.
    Io { about: String, error: io::Error },
    /// Nobody reads our output any more: end quietly.
    Pipe,
    /// Anything else, in words.
    Other(String),
}

/// What every command returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// The engine's error, with what it was about.
    pub(crate) fn about(about: impl Into<String>, error: Error) -> Self {
        Self::Engine { about: Some(about.into()), error }
    }

    /// A failed read or write of something that is not the store.
    pub(crate) fn io(about: impl Into<String>, error: io::Error) -> Self {
        Self::Io { about: about.into(), error }
    }

    /// The same of output that is of use only as a whole: that nobody reads on is a failure then.
    pub(crate) fn of_whole(self) -> Self {
        match self {
            Self::Pipe => Self::io("standard output", io::ErrorKind::BrokenPipe.into()),
            other => other,
        }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Pipe => 0,
            Self::Usage(_) => 2,
            Self::Damaged | Self::DamagedFile(_) => 3,
            Self::NotFound(_) => 5,
            Self::Unconfirmed => 7,
            Self::Losses => 9,
            Self::Io { error, .. } if is_full(error) => 8,
            Self::Io { .. } | Self::Other(_) => 1,
            // A record of a file that is refused is not a wrong command line.
            Self::Engine { about, error } => match engine_code(error.kind()) {
                2 if about.is_some() => 1,
                code => code,
            },
        }
    }

    /// What to do about it, where that can be said.
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Engine { error, .. } => Some(hint(error.kind())),
            Self::DamagedFile(_) => Some(DAMAGED_FILE.into()),
            _ => None,
        }
    }

    /// Says it on standard error and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let text = self.to_string();
        if !text.is_empty() {
            say(text);
        }
        if let Some(hint) = self.hint() {
            say(format_args!("what to do: {hint}"));
        }
        ExitCode::from(self.code())
    }
}

/// Tells the user something on standard error. Where that cannot be written, the exit code and the
/// data still tell what they have to.
pub(crate) fn say(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "annals: {text}");
}

/// The exit code of an engine's error.
fn engine_code(kind: &ErrorKind) -> u8 {
    match kind {
        ErrorKind::EmptyKey
        | ErrorKind::KeyTooLong { .. }
        | ErrorKind::ValueTooLong { .. }
        | ErrorKind::TransactionTooLarge { .. }
        | ErrorKind::TooManyOperations { .. }
        | ErrorKind::TooManyRules { .. }
        | ErrorKind::DuplicateKey { .. }
        | ErrorKind::ValueProvided
        | ErrorKind::LeaseProvided
        | ErrorKind::LeaseTtlTooLarge { .. }
        | ErrorKind::MetadataTooLong { .. }
        | ErrorKind::InvalidArgument { .. }
        | ErrorKind::InvalidOption { .. }
        | ErrorKind::NotEmpty { .. } => 2,
        ErrorKind::Corrupt(_) => 3,
        ErrorKind::Locked { .. } => 4,
        ErrorKind::KeyNotFound { .. } | ErrorKind::LeaseNotFound { .. } => 5,
        ErrorKind::Compacted { .. }
        | ErrorKind::FutureRevision { .. }
        | ErrorKind::NoRevisionAtTime { .. }
        | ErrorKind::TimeUnknown { .. } => 6,
        ErrorKind::NoSpace { .. } => 8,
        // What was behind it, where that has a code of its own.
        ErrorKind::Poisoned { cause } | ErrorKind::OutcomeUnknown { cause, .. } => {
            match engine_code(cause.kind()) {
                code @ (3 | 8) => code,
                _ => 1,
            }
        }
        _ => 1,
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine { about: None, error }
    }
}

/// Errors of writing to standard output; the only stream that is written without a name.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Pipe,
            _ => Self::Io { about: "standard output".into(), error },
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        if error.is_io() { io::Error::from(error).into() } else { Self::Other(error.to_string()) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine { about, error } => {
                if let Some(about) = about {
                    write!(f, "{about}: ")?;
                }
                write_engine(f, error)
            }
            Self::Io { about, error } => write!(f, "{about}: {error}"),
            Self::Usage(text)
            | Self::NotFound(text)
            | Self::DamagedFile(text)
            | Self::Other(text) => f.write_str(text),
            Self::Damaged | Self::Losses | Self::Unconfirmed | Self::Pipe => Ok(()),
        }
    }
}

/// The engine's text; where it counts microseconds, times as they are written here.
fn write_engine(f: &mut fmt::Formatter<'_>, error: &Error) -> fmt::Result {
    match error.kind() {
        ErrorKind::NoRevisionAtTime { requested, oldest } => {
            write!(f, "no retained revision is as old as {}", rfc3339(*requested))?;
            match oldest {
                Some(oldest) => write!(f, ": the oldest is of {}", rfc3339(*oldest)),
                None => Ok(()),
            }
        }
        ErrorKind::TimeUnknown { requested, first, last } => {
            let time = rfc3339(*requested);
            write!(
                f,
                "which of the revisions {first} to {last} was the newest at {time} is not known: "
            )?;
            f.write_str("their times are lost")
        }
        _ => write!(f, "{error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn codes() {
        let engine = |kind: ErrorKind| Failure::from(Error::from(kind));
        let full = || Error::from(ErrorKind::NoSpace { operation: "write", path: "x".into() });
        let not_empty = || {
            let (path, found) = ("x".into(), "notes".into());
            ErrorKind::NotEmpty { path, found, unfinished: false }
        };
        let closed = || Arc::new(Error::from(ErrorKind::Closed));
        for (failure, code) in [
            (engine(ErrorKind::EmptyKey), 2),
            (engine(ErrorKind::Locked { path: "x".into() }), 4),
            (engine(ErrorKind::LeaseNotFound { lease: 1 }), 5),
            (engine(ErrorKind::Compacted { requested: 1, compacted: 2, prefix: None }), 6),
            (engine(ErrorKind::FutureRevision { requested: 2, current: 1 }), 6),
            (full().into(), 8),
            (engine(ErrorKind::OutcomeUnknown { revision: 2, cause: Arc::new(full()) }), 8),
            (engine(ErrorKind::Poisoned { cause: Arc::new(full()) }), 8),
            (engine(ErrorKind::Poisoned { cause: closed() }), 1),
            (engine(ErrorKind::NoStore { path: "x".into() }), 1),
            (Error::corrupt("f", 1, "block", "a", "b").into(), 3),
            (Failure::about("line 3", ErrorKind::EmptyKey.into()), 1),
            (Failure::Usage(String::new()), 2),
            (engine(not_empty()), 2),
            (Failure::about("line 3", not_empty().into()), 1),
            (Failure::DamagedFile(String::new()), 3),
            (Failure::Unconfirmed, 7),
            (io::Error::from(io::ErrorKind::BrokenPipe).into(), 0),
            (Failure::io("f", io::ErrorKind::StorageFull.into()), 8),
        ] {
            assert_eq!(failure.code(), code, "{failure:?}");
        }
    }

    #[test]
    fn every_code_is_in_the_help() {
        for code in 0..=8 {
            assert!(CODES.contains(&format!("\n  {code}  ")), "{code}");
        }
    }
}
