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
    /// Who writes: the name that `metadata.managedFields` gives the fields.
    ///
    /// Empty for nobody in particular: of an object that nobody has applied such writes leave no trace, but with its first
    /// apply all that is there belongs to `before-first-apply`, and what such a write changes later to `unknown`; both
    /// conflict with appliers as any other.
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
    /// Whether [`update`](super::Objects::update) creates an object that is not there, also where the kind does not. The other
    /// calls do not ask: a status is never created, nor is what is modified, and `create_or_modify` always creates.
    pub force_allow_create: bool,
    /// Seconds for which the object lives from now on; `None` leaves it to the [`Strategy`](super::Strategy), `Some(0)` is
    /// for ever.
    pub ttl: Option<u64>,
}

/// How to delete: `DeleteOptions` of `meta/v1`.
///
/// What happens by itself is little: an object without finalizers whose kind gives it no grace is gone at once, and all
/// others are marked, with `deletionTimestamp`, and stay. Then it is gone
///
/// - with its last finalizer, which whoever has put it there takes away by an update;
/// - gracefully, when somebody deletes it again with `grace_period_seconds` 0, as the kubelet does for pods. When the time is
///   over, nobody does so for you.
///
/// Nor does anybody delete what it owned: that is for a garbage collector of yours, which watches for owners that are
/// gone (`Background`) or that have the finalizer `foregroundDeletion` or `orphan`, and takes it away in the end.
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "options are built by their fields")]
pub struct DeleteOptions {
    /// Does everything but write.
    pub dry_run: bool,
    /// Seconds that the object is left to end by itself, where its kind is deleted gracefully: `None` for what the kind
    /// says, 0 for at once. They are written into it; nobody waits for them here.
    pub grace_period_seconds: Option<i64>,
    /// What has to be true of the object.
    pub preconditions: Preconditions,
    /// What becomes of objects that it owns.
    pub propagation_policy: Option<PropagationPolicy>,
    /// The older form of the same: true is [`PropagationPolicy::Orphan`].
    pub orphan_dependents: Option<bool>,
    /// Deletes an object that cannot be read, and only such a one: one that no key opens any more, whose bytes are
    /// damaged, or that [cannot be converted](super::Objects::also_stored_as). Nothing is asked, neither finalizers nor the kind, and nothing but a dry run goes with it. (Of
    /// `meta/v1`: `ignoreStoreReadErrorWithClusterBreakingPotential`.)
    ///
    /// Watches that come by it end, with 410 or 500.
    pub ignore_store_read_error: bool,
}

/// What becomes of the objects that a deleted one owns. The store does not look for them: a policy puts the finalizer on
/// the object by which a garbage collector knows what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "Kubernetes has these three")]
pub enum PropagationPolicy {
    /// They are to stay: the finalizer `orphan`, until the collector has taken their owner references away.
    Orphan,
    /// They are to be deleted afterwards: no finalizer, so the object is gone, and a collector finds them without owner.
    Background,
    /// They are to be deleted before it: the finalizer `foregroundDeletion`, until the collector has done so. Without one
    /// the object stays for ever.
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

const IGNORE_STORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

impl DeleteOptions {
    /// Whether they can be those of the deletion of many.
    pub(super) fn check_of_many(&self) -> Result<()> {
        self.check()?;
        if !self.ignore_store_read_error {
            return Ok(());
        }
        let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
        let cause = Cause::invalid(IGNORE_STORE_READ_ERROR, &true.into(), why);
        refuse("DeleteOptions", vec![cause])
    }

    pub(super) fn check(&self) -> Result<()> {
        let mut causes = Vec::new();
        if let (Some(policy), Some(_)) = (self.propagation_policy, self.orphan_dependents) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(Cause::invalid("propagationPolicy", &policy.name().into(), why));
        }
        if self.ignore_store_read_error {
            let others = [
                (self.propagation_policy.is_some(), "propagationPolicy"),
                (self.orphan_dependents.is_some(), "orphanDependents"),
                (self.grace_period_seconds.is_some(), "gracePeriodSeconds"),
                (self.preconditions != Preconditions::none(), "preconditions"),
            ];
            for (_, other) in others.iter().filter(|(is_set, _)| *is_set) {
                let why = format!("cannot be set together with .{other}");
                causes.push(Cause::invalid(IGNORE_STORE_READ_ERROR, &true.into(), why));
            }
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
