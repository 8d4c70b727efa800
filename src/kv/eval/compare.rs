//! Comparisons: the conditions of a transaction, on the state before it.

use std::cmp::Ordering;

use crate::error::Result;
use crate::kv::range::KeyRange;
use crate::kv::request::{Compare, CompareResult, CompareTarget};
use crate::kv::seam::{Record, Stub};
use crate::kv::space;

use super::Evaluation;

impl Evaluation<'_, '_> {
    /// Whether every comparison holds. The first that does not ends the search, and only what was
    /// looked at is in the footprint.
    pub(super) fn holds(&mut self, compares: &[Compare]) -> Result<bool> {
        for compare in compares {
            if !self.holds_one(compare)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn holds_one(&mut self, compare: &Compare) -> Result<bool> {
        if compare.range_end.is_empty() {
            return Ok(if let CompareTarget::Value(_) = compare.target {
                let found = self.base_record(&compare.key)?;
                matches(compare, found.as_ref().map(Found::from))
            } else {
                let found = self.base_stub(&compare.key)?;
                matches(compare, found.as_ref().map(Found::from))
            });
        }
        let range = KeyRange::from_etcd(&compare.key, &compare.range_end);
        if range.is_empty() {
            return Ok(matches(compare, None));
        }
        let (start, end) = space::user_range(&range);
        let keys_only = !matches!(compare.target, CompareTarget::Value(_));
        let mut any = false;
        for record in self.reads.scan(&start, &end, keys_only) {
            any = true;
            if !matches(compare, Some(Found::from(&record?))) {
                self.plan.reads.ranges.push((start, end));
                return Ok(false);
            }
        }
        self.plan.reads.ranges.push((start, end));
        Ok(any || matches(compare, None))
    }
}

/// What a comparison looks at. The value is empty where the target is a number.
#[derive(Clone, Copy, Default)]
struct Found<'a> {
    create_revision: u64,
    mod_revision: u64,
    version: u64,
    lease: i64,
    value: &'a [u8],
}

impl From<&Stub> for Found<'_> {
    fn from(stub: &Stub) -> Self {
        Self {
            create_revision: stub.create_revision,
            mod_revision: stub.revision,
            version: stub.version,
            lease: stub.lease,
            value: &[],
        }
    }
}

impl<'a> From<&'a Record> for Found<'a> {
    fn from(record: &'a Record) -> Self {
        Self {
            create_revision: record.create_revision,
            mod_revision: record.mod_revision,
            version: record.version,
            lease: record.lease,
            value: &record.value,
        }
    }
}

/// Whether the comparison holds for one key, or for an absent one.
fn matches(compare: &Compare, found: Option<Found<'_>>) -> bool {
    let number = found.unwrap_or_default();
    let order = match &compare.target {
        CompareTarget::Version(other) => number.version.cmp(other),
        CompareTarget::CreateRevision(other) => number.create_revision.cmp(other),
        CompareTarget::ModRevision(other) => number.mod_revision.cmp(other),
        CompareTarget::Lease(other) => number.lease.cmp(other),
        CompareTarget::Value(other) => match found {
            Some(found) => found.value.cmp(other),
            // An absent value is neither equal to another nor different from it.
            None => return false,
        },
    };
    match compare.result {
        CompareResult::Equal => order == Ordering::Equal,
        CompareResult::NotEqual => order != Ordering::Equal,
        CompareResult::Greater => order == Ordering::Greater,
        CompareResult::Less => order == Ordering::Less,
    }
}
