//! Comparisons: the conditions of a transaction, on the state before it.

use std::cmp::Ordering;

use crate::error::Result;
use crate::kv::range::KeyRange;
use crate::kv::request::{Compare, CompareResult, CompareTarget};
use crate::kv::space;
use crate::kv::types::KeyValue;

use super::Evaluation;
use super::reads::key_value;

impl Evaluation<'_> {
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
            let found = self.base_key(&compare.key)?;
            return Ok(matches(compare, found.as_ref()));
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
            if !matches(compare, Some(&key_value(record?))) {
                self.footprint.ranges.push((start, end));
                return Ok(false);
            }
        }
        self.footprint.ranges.push((start, end));
        Ok(any || matches(compare, None))
    }
}

/// Whether the comparison holds for one key, or for an absent one.
fn matches(compare: &Compare, found: Option<&KeyValue>) -> bool {
    let number = |field: fn(&KeyValue) -> u64| found.map_or(0, field);
    let order = match &compare.target {
        CompareTarget::Version(other) => number(|kv| kv.version).cmp(other),
        CompareTarget::CreateRevision(other) => number(|kv| kv.create_revision).cmp(other),
        CompareTarget::ModRevision(other) => number(|kv| kv.mod_revision).cmp(other),
        CompareTarget::Lease(other) => found.map_or(0, |kv| kv.lease).cmp(other),
        CompareTarget::Value(other) => match found {
            Some(kv) => kv.value.cmp(other),
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
