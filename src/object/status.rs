//! `Status`: what an object call that failed says, as a Kubernetes API server says it.
//!
//! The codes, reasons and messages are those of `k8s.io/apimachinery/pkg/api/errors`, so that a REST
//! server can answer with them as they are: a [`Status`] serializes to the JSON of `v1.Status`.

use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Value, json};

use super::GroupResource;
use super::value;

/// The result of every call of the object layer.
pub type Result<T, E = Status> = std::result::Result<T, E>;

/// Why a call failed.
///
/// ```
/// use annals::object::{GroupResource, Reason, Status};
///
/// let status = Status::not_found(&GroupResource::new("apps", "deployments"), "web");
/// assert_eq!(status.code(), 404);
/// assert_eq!(status.reason(), Reason::NotFound);
/// assert_eq!(status.to_string(), "deployments.apps \"web\" not found");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Status(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    reason: Reason,
    message: String,
    details: Details,
    continue_token: Option<String>,
    is_unknown: bool,
}

/// What a failed call was about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Details {
    /// The name of the object; empty where it is about none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group of its resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Its resource, or its kind where the object itself is wrong.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Its UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The fields that are wrong, or that others own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// After how many seconds it is worth while to try again; 0 for nothing known.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}

/// One field that is wrong, or in conflict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Cause {
    /// For programs, as `FieldValueInvalid` or `FieldManagerConflict`.
    pub reason: String,
    /// For people.
    pub message: String,
    /// The path of the field: `spec.replicas` of what is not valid, `.spec.replicas` of a conflict of an apply.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Cause {
    /// A cause of its three parts.
    pub fn new(
        reason: impl Into<String>,
        message: impl Into<String>,
        field: impl Into<String>,
    ) -> Self {
        Self { reason: reason.into(), message: message.into(), field: field.into() }
    }

    /// The field has a value that is not allowed, and why.
    ///
    /// ```
    /// use annals::object::Cause;
    ///
    /// let cause = Cause::invalid("spec.replicas", &(-1).into(), "must be greater than or equal to 0");
    /// assert_eq!(cause.message, "Invalid value: -1: must be greater than or equal to 0");
    /// ```
    pub fn invalid(field: impl Into<String>, value: &Value, why: impl fmt::Display) -> Self {
        Self::new("FieldValueInvalid", format!("Invalid value: {}: {why}", shown(value)), field)
    }

    /// The field has to be there.
    pub fn required(field: impl Into<String>, why: &str) -> Self {
        Self::new("FieldValueRequired", with_detail("Required value", why), field)
    }

    /// The field must not be there, or not so.
    pub fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self::new("FieldValueForbidden", with_detail("Forbidden", why), field)
    }

    /// The field has none of the values that it may have.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let supported: Vec<_> = supported.iter().map(|value| format!("{value:?}")).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        let message = format!("Unsupported value: {}: {detail}", shown(value));
        Self::new("FieldValueNotSupported", message, field)
    }

    /// The field has more than so many bytes.
    pub fn too_long(field: impl Into<String>, bytes_max: usize) -> Self {
        let message = format!("Too long: may not be more than {bytes_max} bytes");
        Self::new("FieldValueTooLong", message, field)
    }
}

/// So many characters of a value are shown: a message is not to grow with what a client sends.
const SHOWN_CHARS: usize = 500;

/// A value as messages show it; of a long one the beginning.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => value::shown(&format_args!("{text:?}"), SHOWN_CHARS),
        other => value::shown(other, SHOWN_CHARS),
    }
}

fn with_detail(what: &str, detail: &str) -> String {
    if detail.is_empty() { what.into() } else { format!("{what}: {detail}") }
}

/// What kind of failure it is, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub enum Reason {
    /// 400: the request contradicts itself or cannot be read.
    BadRequest,
    /// 403: such a request is not allowed.
    Forbidden,
    /// 404: there is no such object.
    NotFound,
    /// 405: the kind does not support the call.
    MethodNotAllowed,
    /// 409: an object of this name is there already.
    AlreadyExists,
    /// 409: the object has changed meanwhile, or somebody else owns a field.
    Conflict,
    /// 410: the resource version is too old.
    Expired,
    /// 410: it is gone for good.
    Gone,
    /// 413: the request is too large.
    RequestEntityTooLarge,
    /// 415: no such patch type.
    UnsupportedMediaType,
    /// 422: the object is not valid.
    Invalid,
    /// 429: try again later.
    TooManyRequests,
    /// 500: something is broken here.
    InternalError,
    /// 500: what is stored cannot be read.
    StoreReadError,
    /// 504: the answer did not come in time. What was asked for may have been done.
    Timeout,
    /// 500: it could not be done now; trying again is worth while.
    ServerTimeout,
}

impl Reason {
    /// The HTTP status code.
    pub fn code(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Expired | Self::Gone => 410,
            Self::RequestEntityTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Invalid => 422,
            Self::TooManyRequests => 429,
            Self::InternalError | Self::StoreReadError | Self::ServerTimeout => 500,
            Self::Timeout => 504,
        }
    }
}

/// What follows "Operation cannot be fulfilled on ..." where a resource version does not match.
/// `OptimisticLockErrorMsg` of `k8s.io/apiserver/pkg/registry/generic/registry/store.go`.
const OPTIMISTIC_LOCK_MESSAGE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// So many causes are told.
const CAUSES_MAX: usize = 100;

impl Status {
    /// A failure of this kind, with its code.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            reason,
            message: message.into(),
            details: Details::default(),
            continue_token: None,
            is_unknown: false,
        }))
    }

    fn about(mut self, resource: &GroupResource, name: &str) -> Self {
        self.0.details.group.clone_from(&resource.group);
        self.0.details.kind.clone_from(&resource.resource);
        name.clone_into(&mut self.0.details.name);
        self
    }

    /// 404.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(Reason::NotFound, format!("{resource} {name:?} not found")).about(resource, name)
    }

    /// 409: there is one already.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::new(Reason::AlreadyExists, format!("{resource} {name:?} already exists"))
            .about(resource, name)
    }

    /// 409: the server has chosen a name that is taken.
    pub(super) fn generate_name_conflict(resource: &GroupResource, name: &str) -> Self {
        let message = format!(
            "{resource} {name:?} already exists, the server was not able to generate a unique name for the object"
        );
        let mut status = Self::new(Reason::AlreadyExists, message).about(resource, name);
        status.0.details.retry_after_seconds = 1;
        status
    }

    /// 409: it cannot be done, and why not.
    pub fn conflict(resource: &GroupResource, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Self::new(Reason::Conflict, message).about(resource, name)
    }

    /// 409: the resource version is not the newest.
    pub fn modified(resource: &GroupResource, name: &str) -> Self {
        Self::conflict(resource, name, OPTIMISTIC_LOCK_MESSAGE)
    }

    /// 409: others own fields that an apply would change.
    pub(super) fn apply_conflict(message: impl Into<String>, causes: Vec<Cause>) -> Self {
        let mut status = Self::new(Reason::Conflict, message);
        status.0.details.causes = causes;
        status
    }

    /// 422: the object of this kind is not valid; each cause names a field. Of very many causes a hundred are told, and
    /// how many more there are.
    pub fn invalid(group: &str, kind: &str, name: &str, mut causes: Vec<Cause>) -> Self {
        let qualified = if group.is_empty() { kind.into() } else { format!("{kind}.{group}") };
        let more = causes.len().saturating_sub(CAUSES_MAX);
        causes.truncate(CAUSES_MAX);
        let mut told: Vec<String> = Vec::new();
        for cause in &causes {
            let one = format!("{}: {}", cause.field, cause.message);
            if !told.contains(&one) {
                told.push(one);
            }
        }
        if more > 0 {
            told.push(format!("and {more} more"));
        }
        let told = match told.len() {
            1 => told.remove(0),
            _ => format!("[{}]", told.join(", ")),
        };
        let message = format!("{qualified} {name:?} is invalid: {told}");
        let mut status = Self::new(Reason::Invalid, message);
        status.0.details = Details {
            name: name.into(),
            group: group.into(),
            kind: kind.into(),
            causes,
            ..Details::default()
        };
        status
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    /// 422 without a list of fields.
    pub(super) fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(Reason::Invalid, message)
    }

    /// 500.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(Reason::InternalError, format!("Internal error occurred: {message}"))
    }

    /// 410.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(Reason::Expired, message)
    }

    /// 504: the resource version is one that is still to come. `NewTooLargeResourceVersionError` of
    /// `k8s.io/apiserver/pkg/storage/errors.go`.
    pub fn too_large_resource_version(asked: u64, current: u64, retry_after_seconds: u32) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut status = Self::new(Reason::Timeout, message);
        status.0.details.retry_after_seconds = retry_after_seconds;
        status.0.details.causes =
            vec![Cause::new("ResourceVersionTooLarge", "Too large resource version", "")];
        status
    }

    /// 504: whether the write has happened cannot be known.
    pub fn unknown(message: impl fmt::Display) -> Self {
        let mut status = Self::new(Reason::Timeout, format!("Timeout: {message}"));
        status.0.is_unknown = true;
        status
    }

    /// What a call that has done what it should answers where there is no object to answer with: the `v1.Status` of
    /// success, with what it was about.
    ///
    /// ```
    /// use annals::object::{GroupResource, Status};
    /// use serde_json::json;
    ///
    /// let status = Status::success(&GroupResource::new("", "pods"), "web", "a-b-c");
    /// assert_eq!(status["status"], "Success");
    /// assert_eq!(status["details"], json!({"name": "web", "kind": "pods", "uid": "a-b-c"}));
    /// ```
    pub fn success(resource: &GroupResource, name: &str, uid: &str) -> Value {
        let details = Details {
            name: name.into(),
            group: resource.group.clone(),
            kind: resource.resource.clone(),
            uid: uid.into(),
            ..Details::default()
        };
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details,
        })
    }

    /// With a token from which a list that has expired can go on, at the newest state.
    #[must_use]
    pub(super) fn with_continue(mut self, token: String) -> Self {
        self.0.continue_token = Some(token);
        self
    }

    /// With a beginning of the message, as "object is being deleted: ".
    #[must_use]
    pub(super) fn with_prefix(mut self, prefix: &str) -> Self {
        self.0.message.insert_str(0, prefix);
        self
    }

    /// With what it was about.
    #[must_use]
    pub fn with_details(mut self, details: Details) -> Self {
        self.0.details = details;
        self
    }

    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        self.reason().code()
    }

    /// For programs.
    pub fn reason(&self) -> Reason {
        self.0.reason
    }

    /// For people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What it was about.
    pub fn details(&self) -> &Details {
        &self.0.details
    }

    /// From where a list that has expired can go on, at the newest state.
    pub fn continue_token(&self) -> Option<&str> {
        self.0.continue_token.as_deref()
    }

    /// Whether the write may have happened all the same: the store could not say.
    pub fn is_unknown(&self) -> bool {
        self.0.is_unknown
    }
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ListMeta<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            r#continue: Option<&'a str>,
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", "Status")?;
        map.serialize_entry("apiVersion", "v1")?;
        let metadata = ListMeta { r#continue: self.continue_token() };
        map.serialize_entry("metadata", &metadata)?;
        map.serialize_entry("status", "Failure")?;
        map.serialize_entry("message", self.message())?;
        map.serialize_entry("reason", &self.reason())?;
        if *self.details() != Details::default() {
            map.serialize_entry("details", self.details())?;
        }
        map.serialize_entry("code", &self.code())?;
        map.end()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

/// The text of `Display`, with the reason: what `fn main() -> Result` prints.
impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({}): {}", self.reason(), self.code(), self.message())
    }
}

impl std::error::Error for Status {}
