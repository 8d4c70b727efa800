//! What a failed call of etcd was: whether it may be tried again, whether it may have changed something, and which error of
//! the store that is.
//!
//! Invariant: a write is said to have changed nothing only where it was never sent, or where etcd has said why it refused it.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tonic::{Code, ConnectError, Status};

use crate::error::{Error, ErrorKind};
use crate::kv::LEASE_TTL_MAX;

/// What may be done after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Etcd has not seen the call, or has refused it for the time being: whatever it is, it may be made again, elsewhere.
    Again,
    /// As that, but with another token.
    Authenticate,
    /// It is not known what has become of the call: a read may be made again.
    Unknown,
    /// Etcd has refused the call, and would do so again.
    Refused,
}

/// As [`Status::message`] of etcd.
pub(super) const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
pub(super) const FUTURE: &str = "etcdserver: mvcc: required revision is a future revision";
/// What a call says that could not get a token, and so was not sent.
pub(super) const CANNOT_SIGN: &str = "cannot authenticate";
const TOO_LARGE: &str = "etcdserver: request is too large";
/// What a server takes unless it is told otherwise.
const REQUEST_BYTES_MAX: u64 = 1_572_864;
const TXN_OPERATIONS_MAX: u64 = 128;

pub(super) fn judge(status: &Status) -> Verdict {
    match status.message() {
        "etcdserver: too many requests" => return Verdict::Again,
        "etcdserver: invalid auth token" | "etcdserver: revision of auth store is old" => {
            return Verdict::Authenticate;
        }
        message if message.starts_with(CANNOT_SIGN) => return Verdict::Again,
        _ => {}
    }
    match status.code() {
        Code::Unauthenticated => Verdict::Authenticate,
        Code::Unavailable if is_unsent(status) => Verdict::Again,
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::OutOfRange
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Unimplemented => Verdict::Refused,
        _ => Verdict::Unknown,
    }
}

/// Whether there was no connection on which the call could have been sent.
fn is_unsent(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// What was asked, as far as errors tell of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// What was being done.
    pub(super) operation: &'static str,
    /// A key of the request.
    pub(super) key: bytes::Bytes,
    /// A lease of the request.
    pub(super) lease: i64,
    /// Seconds of a lease.
    pub(super) ttl: i64,
    /// How many operations there are.
    pub(super) operations: u64,
    /// Length of the request.
    pub(super) bytes: u64,
    /// Whether it can change something.
    pub(super) is_write: bool,
}

impl Asked {
    pub(super) fn reading(operation: &'static str) -> Self {
        Self { operation, ..Self::default() }
    }

    /// The error that a call ends with. Those of revisions are told apart before, since they name more than etcd says.
    pub(super) fn error(&self, endpoint: &str, status: &Status) -> Error {
        if let Some(kind) = self.refused(status, endpoint) {
            return kind.into();
        }
        let error = self.failed(endpoint, status);
        if self.is_write && judge(status) == Verdict::Unknown {
            return ErrorKind::OutcomeUnknown { revision: 0, cause: Arc::new(error) }.into();
        }
        error
    }

    /// What etcd says of the request.
    fn refused(&self, status: &Status, endpoint: &str) -> Option<ErrorKind> {
        Some(match status.message() {
            "etcdserver: key is not provided" => ErrorKind::EmptyKey,
            "etcdserver: key not found" => ErrorKind::KeyNotFound { key: self.key.clone() },
            "etcdserver: value is provided" => ErrorKind::ValueProvided,
            "etcdserver: lease is provided" => ErrorKind::LeaseProvided,
            "etcdserver: requested lease not found" => {
                ErrorKind::LeaseNotFound { lease: self.lease }
            }
            "etcdserver: too large lease TTL" => {
                ErrorKind::LeaseTtlTooLarge { ttl: self.ttl, max: LEASE_TTL_MAX }
            }
            "etcdserver: duplicate key given in txn request" => {
                ErrorKind::DuplicateKey { key: self.key.clone() }
            }
            "etcdserver: too many operations in txn request" => {
                let count = self.operations;
                ErrorKind::TooManyOperations { count, max: TXN_OPERATIONS_MAX }
            }
            "etcdserver: mvcc: database space exceeded" => {
                ErrorKind::NoSpace { operation: self.operation, path: PathBuf::from(endpoint) }
            }
            message
                if message == TOO_LARGE
                    || message.starts_with("grpc: received message larger than max") =>
            {
                ErrorKind::TransactionTooLarge { bytes: self.bytes, max: REQUEST_BYTES_MAX }
            }
            _ => return None,
        })
    }

    /// What the machines or the network say of it.
    fn failed(&self, endpoint: &str, status: &Status) -> Error {
        let kind = match status.code() {
            Code::DeadlineExceeded | Code::Cancelled => io::ErrorKind::TimedOut,
            Code::Unavailable if status.message().starts_with("etcdserver: request timed out") => {
                io::ErrorKind::TimedOut
            }
            Code::Unavailable if is_unsent(status) => io::ErrorKind::ConnectionRefused,
            Code::Unavailable => io::ErrorKind::ConnectionAborted,
            Code::Unauthenticated | Code::PermissionDenied => io::ErrorKind::PermissionDenied,
            Code::InvalidArgument => io::ErrorKind::InvalidInput,
            Code::Unimplemented => io::ErrorKind::Unsupported,
            _ => io::ErrorKind::Other,
        };
        io_error(self.operation, endpoint, kind, told(status))
    }
}

/// An error of the network or of etcd.
pub(super) fn io_error(
    operation: &'static str,
    endpoint: &str,
    kind: io::ErrorKind,
    told: String,
) -> Error {
    let (path, source) = (PathBuf::from(endpoint), Arc::new(io::Error::new(kind, told)));
    ErrorKind::Io { operation, path, source }.into()
}

/// What a failure says, down to its first cause.
fn told(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = status.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&more);
        }
        source = error.source();
    }
    if text.is_empty() { status.code().to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Effect;

    #[test]
    fn a_write_changed_nothing_only_where_etcd_says_so() {
        let asked = Asked { operation: "write to", is_write: true, ..Asked::default() };
        for (status, is_known) in [
            (Status::unavailable("etcdserver: request timed out"), false),
            (Status::unavailable("etcdserver: leader changed"), false),
            (Status::unavailable("transport error"), false),
            (Status::deadline_exceeded(""), false),
            (Status::cancelled("Timeout expired"), false),
            (Status::unknown("h2 protocol error"), false),
            (Status::internal("stream reset"), false),
            (Status::resource_exhausted("etcdserver: too many requests"), true),
            (Status::resource_exhausted("etcdserver: mvcc: database space exceeded"), true),
            (Status::invalid_argument(TOO_LARGE), true),
            (Status::permission_denied("etcdserver: permission denied"), true),
            (Status::not_found("etcdserver: requested lease not found"), true),
        ] {
            let error = asked.error("http://a", &status);
            assert_eq!(error.effect() == Effect::None, is_known, "{error}");
        }
    }

    #[test]
    fn a_read_never_has_an_effect() {
        let asked = Asked::reading("read from");
        let error = asked.error("http://a", &Status::unavailable("gone"));
        assert_eq!(error.effect(), Effect::None);
        assert_eq!(error.to_string(), "http://a: cannot read from: gone");
    }
}
