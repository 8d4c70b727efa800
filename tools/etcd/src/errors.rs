//! What etcd says where something is refused: codes and texts, which clients compare to the letter.
//!
//! Source: etcd's `api/v3rpc/rpctypes/error.go`.

use annals::{Effect, Error, ErrorKind};
use http::Response;
use tonic::body::Body;
use tonic::{Code, Status};

/// A refusal: its code, and its text without `etcdserver: `.
pub(crate) type Refusal = (Code, &'static str);

pub(crate) const EMPTY_KEY: Refusal = (Code::InvalidArgument, "key is not provided");
pub(crate) const KEY_NOT_FOUND: Refusal = (Code::InvalidArgument, "key not found");
pub(crate) const VALUE_PROVIDED: Refusal = (Code::InvalidArgument, "value is provided");
pub(crate) const LEASE_PROVIDED: Refusal = (Code::InvalidArgument, "lease is provided");
pub(crate) const TOO_MANY_OPS: Refusal =
    (Code::InvalidArgument, "too many operations in txn request");
pub(crate) const DUPLICATE_KEY: Refusal =
    (Code::InvalidArgument, "duplicate key given in txn request");
pub(crate) const INVALID_SORT: Refusal = (Code::InvalidArgument, "invalid sort option");
pub(crate) const TOO_LARGE: Refusal = (Code::InvalidArgument, "request is too large");
pub(crate) const COMPACTED: Refusal =
    (Code::OutOfRange, "mvcc: required revision has been compacted");
pub(crate) const FUTURE: Refusal =
    (Code::OutOfRange, "mvcc: required revision is a future revision");
pub(crate) const NO_SPACE: Refusal = (Code::ResourceExhausted, "mvcc: database space exceeded");
pub(crate) const TOO_MANY_REQUESTS: Refusal = (Code::ResourceExhausted, "too many requests");
pub(crate) const LEASE_NOT_FOUND: Refusal = (Code::NotFound, "requested lease not found");
pub(crate) const LEASE_EXISTS: Refusal = (Code::FailedPrecondition, "lease already exists");
pub(crate) const LEASE_TTL: Refusal = (Code::OutOfRange, "too large lease TTL");
pub(crate) const MEMBER_NOT_FOUND: Refusal = (Code::NotFound, "member not found");
pub(crate) const NOT_A_LEARNER: Refusal =
    (Code::FailedPrecondition, "can only promote a learner member");
pub(crate) const BAD_TRANSFEREE: Refusal = (Code::FailedPrecondition, "bad leader transferee");
pub(crate) const CORRUPT: Refusal = (Code::DataLoss, "corrupt cluster");
pub(crate) const STOPPED: Refusal = (Code::Unavailable, "server stopped");
pub(crate) const TIMEOUT: Refusal = (Code::Unavailable, "request timed out");

/// The status of a refusal.
pub(crate) fn refuse((code, text): Refusal) -> Status {
    Status::new(code, format!("etcdserver: {text}"))
}

/// What the protocol's library does not take, told as etcd does: clients look for these words.
///
/// Messages that are too deep are transactions in each other, of which each counts as an operation at least. etcd takes
/// as many as it takes operations (128), this library fewer (about 50).
pub(crate) fn not_taken(answer: Response<Body>) -> Response<Body> {
    let status = Status::from_header_map(answer.headers());
    if status.as_ref().is_some_and(is_too_deep) {
        return refuse(TOO_MANY_OPS).into_http();
    }
    let limits = status.and_then(|status| {
        let text = status.message().strip_prefix("Error, decoded message length too large: found ");
        let (found, limit) = text?.strip_suffix(" bytes")?.split_once(" bytes, the limit is: ")?;
        Some(format!("grpc: received message larger than max ({found} vs. {limit})"))
    });
    limits.map_or(answer, |text| Status::resource_exhausted(text).into_http())
}

fn is_too_deep(status: &Status) -> bool {
    status.code() == Code::Internal && status.message().ends_with("recursion limit reached")
}

/// What etcd would say of what the store says.
///
/// A write whose outcome is unknown is told with the words of a time limit, which etcd's clients take as just that.
/// Of damage and of failed disks the details go to the log alone: they name files.
pub(crate) fn status(error: &Error) -> Status {
    if error.effect() == Effect::Unknown {
        tracing(error);
        return refuse(TIMEOUT);
    }
    refuse(match error.kind() {
        ErrorKind::EmptyKey => EMPTY_KEY,
        ErrorKind::KeyNotFound { .. } => KEY_NOT_FOUND,
        ErrorKind::ValueProvided => VALUE_PROVIDED,
        ErrorKind::LeaseProvided => LEASE_PROVIDED,
        ErrorKind::TooManyOperations { .. } => TOO_MANY_OPS,
        ErrorKind::DuplicateKey { .. } => DUPLICATE_KEY,
        ErrorKind::KeyTooLong { .. }
        | ErrorKind::ValueTooLong { .. }
        | ErrorKind::TransactionTooLarge { .. } => TOO_LARGE,
        ErrorKind::Compacted { .. } => COMPACTED,
        ErrorKind::FutureRevision { .. } => FUTURE,
        ErrorKind::LeaseNotFound { .. } => LEASE_NOT_FOUND,
        ErrorKind::LeaseExists { .. } => LEASE_EXISTS,
        ErrorKind::LeaseTtlTooLarge { .. } => LEASE_TTL,
        ErrorKind::NoSpace { .. } => NO_SPACE,
        ErrorKind::Closed => STOPPED,
        ErrorKind::Corrupt(_) => {
            tracing(error);
            CORRUPT
        }
        ErrorKind::InvalidArgument { what } => return Status::invalid_argument(what.clone()),
        _ => {
            tracing(error);
            let text = "annals: the store accepts no more writes, or cannot be read: see the log";
            return Status::unavailable(text);
        }
    })
}

fn tracing(error: &Error) {
    crate::log::error("a request failed in the store", &[("error", error.to_string().into())]);
}
