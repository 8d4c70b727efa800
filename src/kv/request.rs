//! Requests in etcd's vocabulary: what to read, write, compare.
//!
//! Every field has etcd's meaning, with Rust types: an absent revision is `None`, never 0.
//! A `range_end` that is empty names the single key, `"\0"` every key from `key` on, and anything
//! else is the exclusive end.

use annals_format::limits;
use bytes::Bytes;

use crate::options::Durability;

use super::range::prefix_range_end;

/// Reads a key or a range of keys, at the newest or at a given revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeRequest {
    /// The first key; must not be empty.
    pub key: Bytes,
    /// Empty for the single key, `"\0"` for every key from `key` on, else the exclusive end.
    pub range_end: Bytes,
    /// At most this many key-values; 0 for all.
    pub limit: u64,
    /// Read the store as of this revision; `None` for the newest.
    pub revision: Option<u64>,
    /// The order of the answer.
    pub sort_order: SortOrder,
    /// What to order by.
    pub sort_target: SortTarget,
    /// Leave the values out.
    pub keys_only: bool,
    /// Count only, return no key-values. It takes as long as [`View::count`](crate::View::count).
    pub count_only: bool,
    /// Leave out keys with a smaller mod revision; 0 for no bound.
    pub min_mod_revision: u64,
    /// Leave out keys with a greater mod revision; 0 for no bound.
    pub max_mod_revision: u64,
    /// Leave out keys with a smaller create revision; 0 for no bound.
    pub min_create_revision: u64,
    /// Leave out keys with a greater create revision; 0 for no bound.
    pub max_create_revision: u64,
}

impl RangeRequest {
    /// Reads the single key `key`.
    pub fn new(key: impl AsRef<[u8]>) -> Self {
        Self { key: copy(key), ..Self::default() }
    }

    /// Reads every key that begins with `prefix`; the empty prefix is every key.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        let (key, range_end) = prefix_pair(prefix.as_ref());
        Self { key, range_end, ..Self::default() }
    }

    /// Sets the exclusive end of the range (or `"\0"` for "from the key on").
    #[must_use]
    pub fn range_end(mut self, range_end: impl AsRef<[u8]>) -> Self {
        self.range_end = copy(range_end);
        self
    }

    /// Returns at most `limit` key-values.
    #[must_use]
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = limit;
        self
    }

    /// Reads as of `revision`.
    #[must_use]
    pub fn at(mut self, revision: u64) -> Self {
        self.revision = Some(revision);
        self
    }

    /// Orders the answer.
    #[must_use]
    pub fn sort(mut self, target: SortTarget, order: SortOrder) -> Self {
        self.sort_target = target;
        self.sort_order = order;
        self
    }

    /// Leaves the values out.
    #[must_use]
    pub fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// Counts only, which takes as long as [`View::count`](crate::View::count).
    #[must_use]
    pub fn count_only(mut self) -> Self {
        self.count_only = true;
        self
    }

    /// Whether any of the four revision filters is set.
    pub(crate) fn is_filtered(&self) -> bool {
        (self.min_mod_revision | self.max_mod_revision) != 0
            || (self.min_create_revision | self.max_create_revision) != 0
    }
}

/// The order of a range's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SortOrder {
    /// Key order; ascending when the target is not the key.
    #[default]
    None,
    /// Ascending; equal ones stay in key order.
    Ascend,
    /// Descending; equal ones stay in key order.
    Descend,
}

/// What a range's answer is ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SortTarget {
    /// The key's bytes.
    #[default]
    Key,
    /// The version.
    Version,
    /// The create revision.
    Create,
    /// The mod revision.
    Mod,
    /// The value's bytes.
    Value,
}

/// Writes one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutRequest {
    /// The key; must not be empty.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The lease to attach the key to; 0 for none, which detaches it.
    pub lease: i64,
    /// Return the key-value as it was before.
    pub prev_kv: bool,
    /// Keep the present value; the key must exist and `value` be empty.
    pub ignore_value: bool,
    /// Keep the present lease; the key must exist and `lease` be 0.
    pub ignore_lease: bool,
}

impl PutRequest {
    /// Writes `value` to `key`.
    pub fn new(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        Self { key: copy(key), value: copy(value), ..Self::default() }
    }

    /// Attaches the key to a lease.
    #[must_use]
    pub fn lease(mut self, lease: i64) -> Self {
        self.lease = lease;
        self
    }

    /// Returns the key-value as it was before.
    #[must_use]
    pub fn prev_kv(mut self) -> Self {
        self.prev_kv = true;
        self
    }

    /// Keeps the present value.
    #[must_use]
    pub fn ignore_value(mut self) -> Self {
        self.ignore_value = true;
        self
    }

    /// Keeps the present lease.
    #[must_use]
    pub fn ignore_lease(mut self) -> Self {
        self.ignore_lease = true;
        self
    }

    /// Whether it does the same whatever the key was before.
    pub(crate) fn is_blind(&self) -> bool {
        !self.prev_kv && !self.ignore_value && !self.ignore_lease && self.lease == 0
    }
}

/// Deletes a key or a range of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteRangeRequest {
    /// The first key; must not be empty.
    pub key: Bytes,
    /// Empty for the single key, `"\0"` for every key from `key` on, else the exclusive end.
    pub range_end: Bytes,
    /// Return the deleted key-values.
    pub prev_kv: bool,
}

impl DeleteRangeRequest {
    /// Deletes the single key `key`.
    pub fn new(key: impl AsRef<[u8]>) -> Self {
        Self { key: copy(key), ..Self::default() }
    }

    /// Deletes every key that begins with `prefix`; the empty prefix is every key.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        let (key, range_end) = prefix_pair(prefix.as_ref());
        Self { key, range_end, ..Self::default() }
    }

    /// Sets the exclusive end of the range (or `"\0"` for "from the key on").
    #[must_use]
    pub fn range_end(mut self, range_end: impl AsRef<[u8]>) -> Self {
        self.range_end = copy(range_end);
        self
    }

    /// Returns the deleted key-values.
    #[must_use]
    pub fn prev_kv(mut self) -> Self {
        self.prev_kv = true;
        self
    }
}

/// What a comparison looks at, with what it compares to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareTarget {
    /// The version; 0 for an absent key.
    Version(u64),
    /// The create revision; 0 for an absent key.
    CreateRevision(u64),
    /// The mod revision; 0 for an absent key.
    ModRevision(u64),
    /// The value's bytes. On an absent key every result is false, "not equal" too.
    Value(Bytes),
    /// The lease; 0 for an absent key.
    Lease(i64),
}

/// How a comparison must come out: the key's side against the given one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CompareResult {
    /// Equal.
    #[default]
    Equal,
    /// The key's side is greater.
    Greater,
    /// The key's side is less.
    Less,
    /// Not equal.
    NotEqual,
}

/// One condition of a transaction. Over a range it must hold for every key; over a range without
/// keys it looks at an absent key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The first key; must not be empty.
    pub key: Bytes,
    /// Empty for the single key, `"\0"` for every key from `key` on, else the exclusive end.
    pub range_end: Bytes,
    /// How it must come out.
    pub result: CompareResult,
    /// What is compared to what.
    pub target: CompareTarget,
}

/// One operation of a transaction.
///
/// [`put`](crate::put), [`get`](crate::get), [`range`](crate::range), [`delete`](crate::delete) and
/// [`delete_prefix`](crate::delete_prefix) all answer an `Op`, so they mix in one array. A request, which
/// has more fields, becomes an `Op` by `into()`; an array of requests of one kind needs no `into()`. What
/// is made in a loop is collected into a `Vec<Op>`. Operations are done in their order: a read shows what
/// was written before it in the same transaction.
///
/// ```
/// use annals::{Op, PutRequest, delete, get, put, txn};
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// # let store = annals::Store::open(directory.path())?;
///
/// let mixed = [put("/a", "1"), get("/a"), delete("/b")];
/// let with_a_request = [PutRequest::new("/c", "2").prev_kv().into(), get("/c")];
/// let of_one_kind = [PutRequest::new("/d", "3").prev_kv(), PutRequest::new("/e", "4").prev_kv()];
/// let mut made: Vec<Op> = (0..3).map(|n| put(format!("/n/{n}"), [n])).collect();
/// made.push(txn().then([get("/n/0")]).into());
///
/// let answer = store.txn().then(mixed).then(with_a_request).then(of_one_kind).then(made).commit()?;
/// assert_eq!(answer.responses.len(), 3 + 2 + 2 + 4);
/// assert_eq!(answer.responses[1].kvs()[0].value, "1");
/// # Ok::<(), annals::Error>(())
/// ```
///
/// Transactions nest at most 128 deep. A deeper one is refused
/// ([`InvalidArgument`](crate::ErrorKind::InvalidArgument)), and can be dropped however deep it is; to clone, compare
/// or print it takes stack for each level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A read.
    Range(RangeRequest),
    /// A write.
    Put(PutRequest),
    /// A delete.
    DeleteRange(DeleteRangeRequest),
    /// A nested transaction: 128 levels at most.
    Txn(TxnRequest),
}

/// Takes nested transactions apart level by level, so that one nested very deep, which is refused, does not overflow
/// the stack when it is dropped.
impl Drop for Op {
    fn drop(&mut self) {
        let Self::Txn(request) = self else { return };
        let mut rest = Vec::new();
        take_nested(request, &mut rest);
        while let Some(mut op) = rest.pop() {
            if let Self::Txn(request) = &mut op {
                take_nested(request, &mut rest);
            }
        }
    }
}

/// Takes the operations of each branch that has nested transactions.
fn take_nested(request: &mut TxnRequest, taken: &mut Vec<Op>) {
    for ops in [&mut request.success, &mut request.failure] {
        if ops.iter().any(|op| matches!(op, Op::Txn(_))) {
            taken.append(ops);
        }
    }
}

impl From<RangeRequest> for Op {
    fn from(request: RangeRequest) -> Self {
        Self::Range(request)
    }
}

impl From<PutRequest> for Op {
    fn from(request: PutRequest) -> Self {
        Self::Put(request)
    }
}

impl From<DeleteRangeRequest> for Op {
    fn from(request: DeleteRangeRequest) -> Self {
        Self::DeleteRange(request)
    }
}

impl From<TxnRequest> for Op {
    fn from(request: TxnRequest) -> Self {
        Self::Txn(request)
    }
}

/// If every comparison holds, then do one list of operations, else the other; all at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnRequest {
    /// The conditions; an empty list holds.
    pub compare: Vec<Compare>,
    /// Done when all conditions hold.
    pub success: Vec<Op>,
    /// Done when one does not.
    pub failure: Vec<Op>,
}

impl TxnRequest {
    /// Whether neither branch holds anything but reads.
    pub(crate) fn is_read_only(&self) -> bool {
        let reads = |ops: &[Op]| {
            ops.iter().all(|op| match op {
                Op::Range(_) => true,
                Op::Put(_) | Op::DeleteRange(_) => false,
                Op::Txn(nested) => nested.is_read_only(),
            })
        };
        reads(&self.success) && reads(&self.failure)
    }
}

/// The earliest time a commit can be given: the beginning of the year 1, in microseconds since the
/// Unix epoch.
pub const COMMIT_TIME_MIN: i64 = limits::COMMIT_TIME_MIN;

/// The latest time a commit can be given: the last microsecond of the year 9999.
pub const COMMIT_TIME_MAX: i64 = limits::COMMIT_TIME_MAX;

/// What goes with a transaction besides its operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitOptions {
    /// The transaction's time in microseconds since the Unix epoch; `None` for now. It is raised
    /// to the time of the revision before it when it is less, so a time in the future is also
    /// that of the commits after it, until that time has come. A time before [`COMMIT_TIME_MIN`] or
    /// after [`COMMIT_TIME_MAX`] is refused; a clock that is beyond counts as if it were there.
    pub time: Option<i64>,
    /// Opaque bytes kept with the transaction: an author, a message, a commit id. Empty: those of the
    /// [handle](crate::Store::with_metadata), none as a rule.
    pub metadata: Bytes,
    /// The durability of this commit; `None` for the store's. What
    /// [`Buffered`](Durability::Buffered) means in a `Sync` store is told there: its answer, also
    /// that of a failed comparison, may depend on what a crash takes back.
    pub durability: Option<Durability>,
}

/// The least time to live that [`LeaseGrantRequest::new`] asks for: etcd's, in seconds.
pub const LEASE_TTL_MIN: i64 = 2;

/// The greatest time to live a lease can have: etcd's, in seconds.
pub const LEASE_TTL_MAX: i64 = 9_000_000_000;

/// Grants a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseGrantRequest {
    /// The id; 0 lets the store pick one.
    pub id: i64,
    /// The wished time to live, in seconds.
    pub ttl: i64,
    /// A smaller `ttl` is raised to this. etcd derives 2 s from its election timeout. The greater of
    /// the two must be from 1 to [`LEASE_TTL_MAX`].
    pub ttl_min: i64,
}

impl LeaseGrantRequest {
    /// Grants the lease `id` for `ttl` seconds, at least [`LEASE_TTL_MIN`].
    pub fn new(id: i64, ttl: i64) -> Self {
        Self { id, ttl, ttl_min: LEASE_TTL_MIN }
    }
}

pub(crate) fn copy(bytes: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(bytes.as_ref())
}

/// The `(key, range_end)` that name every key beginning with `prefix`; no key is empty, so every
/// key at all is "from `\0` on".
pub(crate) fn prefix_pair(prefix: &[u8]) -> (Bytes, Bytes) {
    if prefix.is_empty() {
        (Bytes::from_static(b"\0"), Bytes::from_static(b"\0"))
    } else {
        (Bytes::copy_from_slice(prefix), prefix_range_end(prefix))
    }
}
