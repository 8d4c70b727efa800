//! What etcd says where users, roles or permissions are why something is refused.
//!
//! Source: etcd's `api/v3rpc/rpctypes/error.go`. What has no entry there goes out as it is, with the code `Unknown`.

use tonic::{Code, Status};

/// A refusal: its code, and all of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal(Code, &'static str);

impl From<Refusal> for Status {
    fn from(Refusal(code, text): Refusal) -> Self {
        Self::new(code, text)
    }
}

const fn precondition(text: &'static str) -> Refusal {
    Refusal(Code::FailedPrecondition, text)
}

const fn invalid(text: &'static str) -> Refusal {
    Refusal(Code::InvalidArgument, text)
}

pub(super) const ROOT_USER_MISSING: Refusal = precondition("etcdserver: root user does not exist");
pub(super) const ROOT_ROLE_MISSING: Refusal =
    precondition("etcdserver: root user does not have root role");
pub(super) const USER_EXISTS: Refusal = precondition("etcdserver: user name already exists");
pub(super) const USER_EMPTY: Refusal = invalid("etcdserver: user name is empty");
pub(super) const USER_NOT_FOUND: Refusal = precondition("etcdserver: user name not found");
pub(super) const ROLE_EXISTS: Refusal = precondition("etcdserver: role name already exists");
pub(super) const ROLE_NOT_FOUND: Refusal = precondition("etcdserver: role name not found");
pub(super) const ROLE_EMPTY: Refusal = invalid("etcdserver: role name is empty");
pub(super) const FAILED: Refusal =
    invalid("etcdserver: authentication failed, invalid user ID or password");
pub(super) const PERMISSION_NOT_GIVEN: Refusal = invalid("etcdserver: permission not given");
pub(super) const DENIED: Refusal = Refusal(Code::PermissionDenied, "etcdserver: permission denied");
pub(super) const ROLE_NOT_GRANTED: Refusal =
    precondition("etcdserver: role is not granted to the user");
pub(super) const PERMISSION_NOT_GRANTED: Refusal =
    precondition("etcdserver: permission is not granted to the role");
pub(super) const NOT_ENABLED: Refusal = precondition("etcdserver: authentication is not enabled");
pub(super) const INVALID_TOKEN: Refusal =
    Refusal(Code::Unauthenticated, "etcdserver: invalid auth token");
pub(super) const INVALID_MANAGEMENT: Refusal = invalid("etcdserver: invalid auth management");
pub(super) const OLD_REVISION: Refusal = invalid("etcdserver: revision of auth store is old");
pub(super) const NO_PASSWORD_USER: Refusal =
    Refusal(Code::Unknown, "auth: authentication failed, password was given for no password user");
pub(super) const PASSWORD_TOO_LONG: Refusal =
    Refusal(Code::Unknown, "bcrypt: password length exceeds 72 bytes");
/// Not etcd's, which ends where it cannot write.
pub(super) const NOT_KEPT: Refusal =
    Refusal(Code::Unavailable, "annals: the users and roles cannot be written: see the log");
/// Not etcd's either.
pub(super) const NO_RANDOM: Refusal =
    Refusal(Code::Unavailable, "annals: the system gives no random numbers");
