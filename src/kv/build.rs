//! The short spellings: free functions for operations and comparisons, and the transaction builder.

use bytes::Bytes;

use crate::error::Result;
use crate::options::Durability;

use super::request::{
    CommitOptions, Compare, CompareResult, CompareTarget, DeleteRangeRequest, Op, PutRequest,
    RangeRequest, TxnRequest, copy, prefix_pair,
};
use super::response::TxnResponse;
use super::store::Store;
use super::ticket::Ticket;

/// The operation that writes `value` to `key`. For a lease and the like see [`PutRequest`].
pub fn put(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Op {
    PutRequest::new(key, value).into()
}

/// The operation that reads `key`.
pub fn get(key: impl AsRef<[u8]>) -> Op {
    RangeRequest::new(key).into()
}

/// The operation that reads every key that begins with `prefix`. For more see [`RangeRequest`].
pub fn range(prefix: impl AsRef<[u8]>) -> Op {
    RangeRequest::prefix(prefix).into()
}

/// The operation that deletes `key`.
pub fn delete(key: impl AsRef<[u8]>) -> Op {
    DeleteRangeRequest::new(key).into()
}

/// The operation that deletes every key that begins with `prefix`.
pub fn delete_prefix(prefix: impl AsRef<[u8]>) -> Op {
    DeleteRangeRequest::prefix(prefix).into()
}

/// Compares the version of `key`; an absent key has 0.
pub fn version(key: impl AsRef<[u8]>) -> Comparing<u64> {
    Comparing::new(key, CompareTarget::Version)
}

/// Compares the create revision of `key`; an absent key has 0.
pub fn create_revision(key: impl AsRef<[u8]>) -> Comparing<u64> {
    Comparing::new(key, CompareTarget::CreateRevision)
}

/// Compares the mod revision of `key`; an absent key has 0.
pub fn mod_revision(key: impl AsRef<[u8]>) -> Comparing<u64> {
    Comparing::new(key, CompareTarget::ModRevision)
}

/// Compares the lease of `key`; an absent key has 0.
pub fn lease(key: impl AsRef<[u8]>) -> Comparing<i64> {
    Comparing::new(key, CompareTarget::Lease)
}

/// Compares the value of `key`; on an absent key every result is false, "not equal" too.
pub fn value(key: impl AsRef<[u8]>) -> ComparingValue {
    ComparingValue { key: copy(key), range_end: Bytes::new() }
}

/// A comparison of a number that still lacks its other side.
#[derive(Clone, Debug)]
#[must_use = "finish the comparison with eq, ne, gt or lt"]
pub struct Comparing<T> {
    key: Bytes,
    range_end: Bytes,
    target: fn(T) -> CompareTarget,
}

impl<T> Comparing<T> {
    fn new(key: impl AsRef<[u8]>, target: fn(T) -> CompareTarget) -> Self {
        Self { key: copy(key), range_end: Bytes::new(), target }
    }

    /// Compares every key up to `range_end` (`"\0"`: every key from the first on).
    pub fn range_end(mut self, range_end: impl AsRef<[u8]>) -> Self {
        self.range_end = copy(range_end);
        self
    }

    /// Compares every key that begins with the key given.
    pub fn prefix(mut self) -> Self {
        (self.key, self.range_end) = prefix_pair(&self.key);
        self
    }

    /// Holds when it equals `other`.
    pub fn eq(self, other: T) -> Compare {
        self.with(CompareResult::Equal, other)
    }

    /// Holds when it differs from `other`.
    pub fn ne(self, other: T) -> Compare {
        self.with(CompareResult::NotEqual, other)
    }

    /// Holds when it is greater than `other`.
    pub fn gt(self, other: T) -> Compare {
        self.with(CompareResult::Greater, other)
    }

    /// Holds when it is less than `other`.
    pub fn lt(self, other: T) -> Compare {
        self.with(CompareResult::Less, other)
    }

    fn with(self, result: CompareResult, other: T) -> Compare {
        let target = (self.target)(other);
        Compare { key: self.key, range_end: self.range_end, result, target }
    }
}

/// A comparison of a value that still lacks its other side.
#[derive(Clone, Debug)]
#[must_use = "finish the comparison with eq, ne, gt or lt"]
pub struct ComparingValue {
    key: Bytes,
    range_end: Bytes,
}

impl ComparingValue {
    /// Compares every key up to `range_end` (`"\0"`: every key from the first on).
    pub fn range_end(mut self, range_end: impl AsRef<[u8]>) -> Self {
        self.range_end = copy(range_end);
        self
    }

    /// Compares every key that begins with the key given.
    pub fn prefix(mut self) -> Self {
        (self.key, self.range_end) = prefix_pair(&self.key);
        self
    }

    /// Holds when it equals `other`.
    pub fn eq(self, other: impl AsRef<[u8]>) -> Compare {
        self.with(CompareResult::Equal, other.as_ref())
    }

    /// Holds when it differs from `other`.
    pub fn ne(self, other: impl AsRef<[u8]>) -> Compare {
        self.with(CompareResult::NotEqual, other.as_ref())
    }

    /// Holds when it is greater than `other`.
    pub fn gt(self, other: impl AsRef<[u8]>) -> Compare {
        self.with(CompareResult::Greater, other.as_ref())
    }

    /// Holds when it is less than `other`.
    pub fn lt(self, other: impl AsRef<[u8]>) -> Compare {
        self.with(CompareResult::Less, other.as_ref())
    }

    fn with(self, result: CompareResult, other: &[u8]) -> Compare {
        let target = CompareTarget::Value(Bytes::copy_from_slice(other));
        Compare { key: self.key, range_end: self.range_end, result, target }
    }
}

/// A transaction to build on, without a store: for [`Store::transact`], or to nest in the branch of
/// another one.
pub fn txn() -> TxnRequest {
    TxnRequest::default()
}

impl TxnRequest {
    /// Adds comparisons.
    #[must_use]
    pub fn when(mut self, compares: impl IntoIterator<Item = Compare>) -> Self {
        append(&mut self.compare, compares);
        self
    }

    /// Adds operations to do when every comparison holds; [`Op`] tells how to mix them.
    #[must_use]
    pub fn then<T: Into<Op>>(mut self, ops: impl IntoIterator<Item = T>) -> Self {
        append(&mut self.success, ops.into_iter().map(Into::into));
        self
    }

    /// Adds operations to do when a comparison does not hold; [`Op`] tells how to mix them.
    #[must_use]
    pub fn or_else<T: Into<Op>>(mut self, ops: impl IntoIterator<Item = T>) -> Self {
        append(&mut self.failure, ops.into_iter().map(Into::into));
        self
    }
}

/// Lists are mostly made at once, and short: no more room than they need.
fn append<T>(list: &mut Vec<T>, items: impl IntoIterator<Item = T>) {
    let items = items.into_iter();
    if list.is_empty() {
        list.reserve_exact(items.size_hint().0);
    }
    list.extend(items);
}

/// Builds a transaction on a store: *when* every comparison holds *then* one list of operations,
/// *or else* the other. Made by [`Store::txn`].
///
/// ```
/// use annals::{get, mod_revision, put};
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// # let store = annals::Store::open(directory.path())?;
///
/// let first = store.put("/config", "v1")?;
/// let outcome = store
///     .txn()
///     .when([mod_revision("/config").eq(first.revision)])
///     .then([put("/config", "v2")])
///     .or_else([get("/config")])
///     .commit()?;
/// assert!(outcome.succeeded);
/// # Ok::<(), annals::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a transaction does nothing until commit or submit"]
pub struct TxnBuilder<'s> {
    store: &'s Store,
    request: TxnRequest,
    options: CommitOptions,
}

impl<'s> TxnBuilder<'s> {
    pub(super) fn new(store: &'s Store) -> Self {
        Self { store, request: TxnRequest::default(), options: CommitOptions::default() }
    }

    /// Adds comparisons.
    pub fn when(mut self, compares: impl IntoIterator<Item = Compare>) -> Self {
        self.request = self.request.when(compares);
        self
    }

    /// Adds operations to do when every comparison holds; [`Op`] tells how to mix them.
    pub fn then<T: Into<Op>>(mut self, ops: impl IntoIterator<Item = T>) -> Self {
        self.request = self.request.then(ops);
        self
    }

    /// Adds operations to do when a comparison does not hold; [`Op`] tells how to mix them.
    pub fn or_else<T: Into<Op>>(mut self, ops: impl IntoIterator<Item = T>) -> Self {
        self.request = self.request.or_else(ops);
        self
    }

    /// Sets the transaction's time, in microseconds since the Unix epoch: see
    /// [`CommitOptions::time`].
    pub fn time(mut self, micros: i64) -> Self {
        self.options.time = Some(micros);
        self
    }

    /// Attaches opaque metadata: an author, a message, a commit id.
    pub fn metadata(mut self, metadata: impl AsRef<[u8]>) -> Self {
        self.options.metadata = copy(metadata);
        self
    }

    /// Sets the durability of this commit: see [`CommitOptions::durability`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.options.durability = Some(durability);
        self
    }

    /// Commits, and waits until the answer may leave.
    ///
    /// # Errors
    ///
    /// As [`Store::transact`].
    pub fn commit(self) -> Result<TxnResponse> {
        self.store.transact_with(self.request, self.options)
    }

    /// Orders the transaction and returns a ticket for its durability.
    ///
    /// # Errors
    ///
    /// As [`Store::submit`].
    pub fn submit(self) -> Result<Ticket> {
        self.store.submit_with(self.request, self.options)
    }
}
