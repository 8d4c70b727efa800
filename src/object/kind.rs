//! Which kind of object: its group, version and names.

use std::fmt;

use serde_json::Value;

use super::status::{Result, Status};

/// A resource of an API group, as `deployments` of `apps`; the core group is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// The API group.
    pub group: String,
    /// The plural name in lower case.
    pub resource: String,
}

impl GroupResource {
    /// Of its two parts.
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }
}

/// `deployments.apps`; without a group `pods`.
impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// A kind of objects: what its objects say in `apiVersion` and `kind`, and how its resource is called.
///
/// ```
/// use annals::object::Kind;
///
/// let kind = Kind::new("apps/v1", "Deployment", "deployments");
/// assert_eq!((kind.group(), kind.version()), ("apps", "v1"));
/// assert_eq!(kind.group_resource().to_string(), "deployments.apps");
/// assert!(kind.namespaced);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Kind {
    /// Group and version, as `apps/v1` or `v1`.
    pub api_version: String,
    /// The name that objects bear in `kind`.
    pub kind: String,
    /// The plural name in lower case.
    pub resource: String,
    /// Whether each object lies in a namespace.
    pub namespaced: bool,
}

impl Kind {
    /// A kind whose objects lie in namespaces.
    pub fn new(
        api_version: impl Into<String>,
        kind: impl Into<String>,
        resource: impl Into<String>,
    ) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
            resource: resource.into(),
            namespaced: true,
        }
    }

    /// A kind whose objects lie in no namespace, as nodes.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    /// The part of `api_version` before the slash; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.rsplit_once('/').map_or("", |(group, _)| group)
    }

    /// The part of `api_version` behind the slash.
    pub fn version(&self) -> &str {
        self.api_version.rsplit_once('/').map_or(&self.api_version, |(_, version)| version)
    }

    /// Sets `apiVersion` and `kind` where they are not said.
    pub(super) fn accept(&self, object: &mut Value) -> Result<()> {
        let Some(fields) = object.as_object_mut() else {
            return Err(Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): it is no JSON object",
                self.kind
            )));
        };
        for (field, own) in [("apiVersion", &self.api_version), ("kind", &self.kind)] {
            match fields.get(field) {
                None | Some(Value::Null) => {
                    fields.insert(field.into(), own.as_str().into());
                }
                Some(Value::String(said)) if said.is_empty() => {
                    fields.insert(field.into(), own.as_str().into());
                }
                Some(_) => {}
            }
        }
        let said = |field: &str| match &object[field] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let (version, kind) = (said("apiVersion"), said("kind"));
        if kind != self.kind {
            return Err(Status::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {}: it is another kind",
                self.kind
            )));
        }
        if version != self.api_version {
            return Err(Status::bad_request(format!(
                "the API version in the data ({version}) does not match the expected API version ({})",
                self.api_version
            )));
        }
        Ok(())
    }

    /// What messages call it.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.group(), &self.resource)
    }
}
