//! A range in pages, all of the revision of the first.

use std::fmt;
use std::iter::FusedIterator;

use crate::error::Result;
use crate::kv::{KeyValue, RangeRequest};
use crate::object::kv::ScanRequest;

use super::EtcdKv;

/// Keys of the first page; of the others there are as many as fit into about [`PAGE_BYTES`].
const PAGE_FIRST: u64 = 256;
const PAGE_MIN: u64 = 16;
const PAGE_MAX: u64 = 10_000;
const PAGE_BYTES: u64 = 4 << 20;

/// The key-values of a range of a cluster as of one revision: what [`Kv::scan`](crate::object::Kv::scan) of an [`EtcdKv`] answers.
///
/// It is read in pages of some megabytes, so it ends with [`Compacted`](crate::ErrorKind::Compacted) where its revision is compacted meanwhile.
pub struct EtcdScan {
    kv: EtcdKv,
    key: Vec<u8>,
    range_end: Vec<u8>,
    revision: u64,
    page: std::vec::IntoIter<KeyValue>,
    limit: u64,
    has_more: bool,
}

impl EtcdScan {
    pub(super) fn start(kv: EtcdKv, request: ScanRequest<'_>) -> Result<(Self, u64)> {
        let (key, range_end) = super::bounds(&request.range());
        let mut scan = Self {
            kv,
            key,
            range_end,
            revision: request.at.unwrap_or_default(),
            page: Vec::new().into_iter(),
            limit: PAGE_FIRST,
            has_more: true,
        };
        let newest = scan.read(request.at)?;
        if request.at.is_none() {
            scan.revision = newest;
        }
        let revision = scan.revision;
        Ok((scan, revision))
    }

    /// Reads the next page; answers the newest revision.
    fn read(&mut self, at: Option<u64>) -> Result<u64> {
        let range = RangeRequest::new(&self.key).range_end(&self.range_end).limit(self.limit);
        let answer = self.kv.range(RangeRequest { revision: at, ..range })?;
        self.has_more = answer.more;
        let count = u64::try_from(answer.kvs.len()).unwrap_or(u64::MAX).max(1);
        let bytes: usize = answer.kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
        let each = u64::try_from(bytes).unwrap_or(u64::MAX) / count;
        self.limit = (PAGE_BYTES / each.max(1)).clamp(PAGE_MIN, PAGE_MAX);
        match answer.kvs.last() {
            // The next key there can be.
            Some(last) => self.key = [&last.key[..], &[0]].concat(),
            None => self.has_more = false,
        }
        self.page = answer.kvs.into_iter();
        Ok(answer.revision)
    }
}

impl Iterator for EtcdScan {
    type Item = Result<KeyValue>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(kv) = self.page.next() {
                return Some(Ok(kv));
            }
            if !self.has_more {
                return None;
            }
            if let Err(error) = self.read(Some(self.revision)) {
                self.has_more = false;
                return Some(Err(error));
            }
        }
    }
}

impl FusedIterator for EtcdScan {}

impl fmt::Debug for EtcdScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut scan = f.debug_struct("EtcdScan");
        scan.field("revision", &self.revision).finish_non_exhaustive()
    }
}
