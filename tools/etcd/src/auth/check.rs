//! Who asks, and what that caller may do.
//!
//! Source: etcd's `server/etcdserver/apply/auth.go` and the checks of `v3_server.go`.

#![allow(
    clippy::missing_errors_doc,
    reason = "all are refused with etcd's own status, and say when"
)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use annals::CommitOptions;
use bytes::Bytes;

use super::ranges::Access;
use super::refusal::{DENIED, OLD_REVISION, Refusal, USER_EMPTY, USER_NOT_FOUND};
use super::state::ROOT;
use super::{Rules, Shared};
use crate::proto::etcdserverpb as pb;

/// Who asks.
///
/// As long as one lives that was made under older rules, the change that made them old is not answered (for a time): so
/// keep it until what it was asked for has happened, and no longer.
#[derive(Clone, Debug)]
pub struct Caller(Option<Asked>);

/// A caller while it is asked who calls.
#[derive(Clone, Debug)]
struct Asked {
    /// The user; none who says nothing about it.
    user: Option<String>,
    /// The rules when the request came.
    rules: Arc<Rules>,
    shared: Arc<Shared>,
}

type Allowed = Result<(), tonic::Status>;

/// The longest name that is kept with transactions: etcd has no limit for one, metadata have.
const NAME_KEPT_MAX: usize = 1 << 10;

impl Asked {
    /// Whether nobody is asked any more.
    fn is_anyone(&self) -> bool {
        !self.shared.enabled.load(Ordering::Acquire)
    }

    /// Refused where the rules are not those of when the request came.
    fn check_revision(&self) -> Result<(), Refusal> {
        let now = self.shared.revision.load(Ordering::Acquire);
        if self.rules.state.revision < now { Err(OLD_REVISION) } else { Ok(()) }
    }

    fn may(&self, access: Access, key: &[u8], range_end: &[u8]) -> Result<(), Refusal> {
        if self.is_anyone() {
            return Ok(());
        }
        let name = self.user.as_deref().ok_or(USER_EMPTY)?;
        self.check_revision()?;
        let user = self.rules.state.users.get(name).ok_or(DENIED)?;
        if user.has_role(ROOT) || self.rules.ranges(name).cover(access, key, range_end) {
            Ok(())
        } else {
            Err(DENIED)
        }
    }

    fn must_be_admin(&self) -> Result<(), Refusal> {
        if self.is_anyone() {
            return Ok(());
        }
        let name = self.user.as_deref().unwrap_or_default();
        if name.is_empty() {
            return Err(USER_EMPTY);
        }
        let user = self.rules.state.users.get(name).ok_or(USER_NOT_FOUND)?;
        if user.has_role(ROOT) { Ok(()) } else { Err(DENIED) }
    }
}

impl Caller {
    /// One who may do everything: nobody is asked.
    pub(super) fn anyone() -> Self {
        Self(None)
    }

    pub(super) fn asked(user: Option<String>, rules: Arc<Rules>, shared: Arc<Shared>) -> Self {
        Self(Some(Asked { user, rules, shared }))
    }

    fn check(&self, check: impl FnOnce(&Asked) -> Result<(), Refusal>) -> Allowed {
        self.0.as_ref().map_or(Ok(()), |asked| Ok(check(asked)?))
    }

    /// The name of the user, where it was asked for and told.
    pub fn name(&self) -> Option<&str> {
        self.0.as_ref()?.user.as_deref()
    }

    /// What goes with a transaction of the caller: who it was, as its metadata, where users are asked for.
    pub fn commit_options(&self) -> CommitOptions {
        let name = self.name().filter(|name| name.len() <= NAME_KEPT_MAX);
        let metadata = name.map_or_else(Bytes::new, |name| Bytes::copy_from_slice(name.as_bytes()));
        CommitOptions { metadata, ..CommitOptions::default() }
    }

    /// Whether anything could be refused.
    pub fn is_restricted(&self) -> bool {
        self.must_be_admin().is_err()
    }

    /// May read a range of keys.
    pub fn may_range(&self, key: &[u8], range_end: &[u8]) -> Allowed {
        self.check(|asked| asked.may(Access::Read, key, range_end))
    }

    /// May watch a range of keys. No key is the first of all, as in the request.
    pub fn may_watch(&self, key: &[u8], range_end: &[u8]) -> Allowed {
        self.may_range(if key.is_empty() { &[0] } else { key }, range_end)
    }

    /// May write a key, and read the old value where it is asked for.
    /// Where it is to have a lease, see [`Self::leases_of_put`].
    pub fn may_put(&self, request: &pb::PutRequest) -> Allowed {
        self.check(|asked| put(asked, request))
    }

    /// May delete a range of keys, and read the old values where they are asked for.
    pub fn may_delete(&self, request: &pb::DeleteRangeRequest) -> Allowed {
        self.check(|asked| delete(asked, request))
    }

    /// May read all that is compared, and do all that is in either branch, at any depth.
    /// Where keys are to have leases, see [`Self::leases_of_txn`].
    pub fn may_txn(&self, request: &pb::TxnRequest) -> Allowed {
        self.check(|asked| txn(asked, request))
    }

    /// May write a key.
    pub fn may_write_key(&self, key: &[u8]) -> Allowed {
        self.check(|asked| asked.may(Access::Write, key, &[]))
    }

    /// The leases that a put names, all of whose keys this caller must be allowed to write
    /// ([`Self::may_write_keys`]): with the lease they go. None for a caller who may do everything.
    pub fn leases_of_put(&self, request: &pb::PutRequest) -> Vec<i64> {
        if request.lease == 0 || !self.is_restricted() { Vec::new() } else { vec![request.lease] }
    }

    /// The leases that the puts of a transaction name, each once: as [`Self::leases_of_put`].
    pub fn leases_of_txn(&self, request: &pb::TxnRequest) -> Vec<i64> {
        let mut leases = Vec::new();
        if self.0.is_some() {
            named(request, &mut leases);
        }
        leases.sort_unstable();
        leases.dedup();
        if !leases.is_empty() && !self.is_restricted() {
            leases.clear();
        }
        leases
    }

    /// May write all of these keys.
    pub fn may_write_keys<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Allowed {
        if !self.is_restricted() {
            return Ok(());
        }
        keys.into_iter().try_for_each(|key| self.may_write_key(key.as_ref()))
    }

    /// May read all of these keys.
    pub fn may_read_keys<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Allowed {
        if !self.is_restricted() {
            return Ok(());
        }
        keys.into_iter().try_for_each(|key| self.may_range(key.as_ref(), &[]))
    }

    /// May grant a lease: anyone who is known.
    pub fn may_lease_grant(&self) -> Allowed {
        self.must_be_known()
    }

    /// May revoke a lease with these keys, which are deleted.
    pub fn may_lease_revoke<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Allowed {
        self.must_be_known()?;
        self.may_write_keys(keys)
    }

    /// May renew a lease with these keys.
    pub fn may_lease_keep_alive<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Allowed {
        self.may_lease_revoke(keys)
    }

    /// May look at a lease: with its keys where those are asked for, without any where they are not.
    pub fn may_lease_time_to_live<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Allowed {
        self.must_be_known()?;
        self.may_read_keys(keys)
    }

    /// May list the leases, which have these keys together.
    pub fn may_lease_leases<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Allowed {
        self.may_lease_time_to_live(keys)
    }

    /// Has said who it is.
    pub fn must_be_known(&self) -> Allowed {
        self.check(
            |asked| {
                if asked.is_anyone() || asked.user.is_some() { Ok(()) } else { Err(USER_EMPTY) }
            },
        )
    }

    /// Has the role `root`.
    pub fn must_be_admin(&self) -> Allowed {
        self.check(Asked::must_be_admin)
    }

    /// May look at a user: `root` at all, others at themselves.
    pub fn may_get_user(&self, name: &str) -> Allowed {
        let is_self = |asked: &Asked| asked.user.as_deref().unwrap_or_default() == name;
        self.check(|asked| {
            asked.must_be_admin().or_else(|no| if is_self(asked) { Ok(()) } else { Err(no) })
        })
    }

    /// May look at a role: `root` at all, others at those that they have.
    pub fn may_get_role(&self, role: &str) -> Allowed {
        self.check(|asked| {
            let user = asked.user.as_deref().and_then(|name| asked.rules.state.users.get(name));
            let has = user.is_some_and(|user| user.has_role(role));
            asked.must_be_admin().or_else(|no| if has { Ok(()) } else { Err(no) })
        })
    }

    /// What was read under the rules of this caller may still be told: etcd asks once more after it has read.
    pub fn is_current(&self) -> Allowed {
        self.check(|asked| {
            if asked.user.is_none() || asked.is_anyone() { Ok(()) } else { asked.check_revision() }
        })
    }
}

fn put(asked: &Asked, request: &pb::PutRequest) -> Result<(), Refusal> {
    asked.may(Access::Write, &request.key, &[])?;
    if request.prev_kv { asked.may(Access::Read, &request.key, &[]) } else { Ok(()) }
}

fn delete(asked: &Asked, request: &pb::DeleteRangeRequest) -> Result<(), Refusal> {
    let (key, range_end) = (&request.key, &request.range_end);
    asked.may(Access::Write, key, range_end)?;
    if request.prev_kv { asked.may(Access::Read, key, range_end) } else { Ok(()) }
}

fn txn(asked: &Asked, request: &pb::TxnRequest) -> Result<(), Refusal> {
    use pb::request_op::Request;
    for compare in &request.compare {
        asked.may(Access::Read, &compare.key, &compare.range_end)?;
    }
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            Some(Request::RequestRange(range)) => {
                asked.may(Access::Read, &range.key, &range.range_end)?;
            }
            Some(Request::RequestPut(request)) => put(asked, request)?,
            Some(Request::RequestDeleteRange(request)) => delete(asked, request)?,
            Some(Request::RequestTxn(nested)) => txn(asked, nested)?,
            None => {}
        }
    }
    Ok(())
}

/// The leases that the puts of a transaction name.
fn named(request: &pb::TxnRequest, leases: &mut Vec<i64>) {
    use pb::request_op::Request;
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            Some(Request::RequestPut(put)) if put.lease != 0 => leases.push(put.lease),
            Some(Request::RequestTxn(nested)) => named(nested, leases),
            _ => {}
        }
    }
}
