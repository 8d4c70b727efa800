//! How to create, update, patch and delete.

use crate::object::apply;
use crate::object::status::{Cause, Result, Status};
use crate::object::storage::Preconditions;

/// How to create an object: `CreateOptions` of `meta/v1`.
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "options are built by their fields")]
pub struct CreateOptions {
    /// Does everything but write.
    pub dry_run: bool,
    /// Who writes: the name that `metadata.managedFields` gives the fields. Empty for nobody in particular.
    pub field_manager: String,
    /// Seconds for which the object lives; `None` leaves it to the [`Strategy`](super::Strategy), `Some(0)` is for
    /// ever.
    pub ttl: Option<u64>,
}

/// How to replace an object: `UpdateOptions` of `meta/v1`.
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "options are built by their fields")]
pub struct UpdateOptions {
    /// Does everything but write.
    pub dry_run: bool,
    /// Who writes, as in [`CreateOptions::field_manager`].
    pub field_manager: String,
    /// What has to be true of the object that is there. A UID in the new object is one, too.
    pub preconditions: Preconditions,
    /// Whether to create an object that is not there, also where the kind does not.
    pub force_allow_create: bool,
    /// Seconds for which the object lives from now on; `None` leaves it to the [`Strategy`](super::Strategy).
    pub ttl: Option<u64>,
}

/// How to delete: `DeleteOptions` of `meta/v1`.
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "options are built by their fields")]
pub struct DeleteOptions {
    /// Does everything but write.
    pub dry_run: bool,
    /// Seconds until the object is deleted, where its kind is deleted gracefully: `None` for what the kind says, 0
    /// for at once.
    pub grace_period_seconds: Option<i64>,
    /// What has to be true of the object.
    pub preconditions: Preconditions,
    /// What becomes of objects that it owns.
    pub propagation_policy: Option<PropagationPolicy>,
    /// The older form of the same: true is [`PropagationPolicy::Orphan`].
    pub orphan_dependents: Option<bool>,
}

/// What becomes of the objects that a deleted one owns. The store does not look for them: a policy puts the finalizer on
/// the object by which a garbage collector knows what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "Kubernetes has these three")]
pub enum PropagationPolicy {
    /// They stay: the finalizer `orphan`.
    Orphan,
    /// They are deleted afterwards: no finalizer.
    Background,
    /// They are deleted before it: the finalizer `foregroundDeletion`.
    Foreground,
}

impl PropagationPolicy {
    /// The policy of a name, as `Foreground`.
    ///
    /// # Errors
    ///
    /// 422 for any other.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "Orphan" => Ok(Self::Orphan),
            "Background" => Ok(Self::Background),
            "Foreground" => Ok(Self::Foreground),
            _ => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                let cause = Cause::not_supported("propagationPolicy", &name.into(), &supported);
                Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", vec![cause]))
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Orphan => "Orphan",
            Self::Background => "Background",
            Self::Foreground => "Foreground",
        }
    }
}

impl CreateOptions {
    pub(super) fn check(&self) -> Result<()> {
        refuse("CreateOptions", field_manager(&self.field_manager, "fieldManager"))
    }
}

impl UpdateOptions {
    pub(super) fn check(&self) -> Result<()> {
        refuse("UpdateOptions", field_manager(&self.field_manager, "fieldManager"))
    }
}

impl DeleteOptions {
    pub(super) fn check(&self) -> Result<()> {
        let mut causes = Vec::new();
        if let (Some(policy), Some(_)) = (self.propagation_policy, self.orphan_dependents) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(Cause::invalid("propagationPolicy", &policy.name().into(), why));
        }
        refuse("DeleteOptions", causes)
    }
}

pub(super) fn refuse(kind: &str, causes: Vec<Cause>) -> Result<()> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid("meta.k8s.io", kind, "", causes))
}

/// What is wrong with the name of a field manager.
pub(super) fn field_manager(name: &str, field: &str) -> Vec<Cause> {
    apply::wrong_name(name, field).into_iter().collect()
}
