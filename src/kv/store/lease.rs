//! The records of leases: what is durable about them. When a lease ends is the business of the room
//! `lease`, above this one.

use annals_format::lease::Value;
use bytes::Bytes;

use crate::error::Result;
use crate::sync::plain::Ordering;

use super::Store;
use super::write::{Done, write_through};
use crate::kv::eval::Evaluation;
use crate::kv::eval::check::Limits;
use crate::kv::eval::lease as lease_table;
use crate::kv::request::{CommitOptions, LeaseGrantRequest};
use crate::kv::response::LeaseRevokeResponse;
use crate::kv::seam::{Door, Newest, Scan, View};
use crate::kv::space;
use crate::kv::types::Lease;
use crate::options::Durability;

/// The records of a store's leases. It does not keep the store open.
#[derive(Clone, Debug)]
pub(crate) struct LeaseRecords {
    door: Door,
    limits: Limits,
}

impl Store {
    /// The records of the leases.
    pub(crate) fn lease_records(&self) -> LeaseRecords {
        LeaseRecords { door: self.engine.door(), limits: self.limits() }
    }

    /// Whether there may be leases.
    pub(crate) fn has_leases(&self) -> bool {
        self.shared.leases.load(Ordering::SeqCst) != 0
    }

    /// There will be: to be said before the first one is granted.
    pub(crate) fn expect_leases(&self) {
        self.shared.leases.store(1, Ordering::SeqCst);
    }

    /// A positive id, well spread, so that a free one is found at once.
    pub(crate) fn pick_lease_id(&self) -> i64 {
        let n = self.shared.next_lease.fetch_add(1, Ordering::Relaxed).cast_unsigned();
        // The multiplier is odd, so that different numbers hardly ever become the same (Knuth, 6.4). What is left has 53
        // bits, the first of which is set: such a number is read from JSON as it is by those who know no others than
        // floating-point ones, and all are equally long.
        let spread = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12;
        (spread | 1 << 52).cast_signed()
    }
}

impl LeaseRecords {
    /// Grants the lease `id`, which is not 0. It takes no revision. Durable when it returns, as far as the
    /// store's durability goes.
    ///
    /// # Errors
    /// `LeaseExists`, `LeaseTtlTooLarge`, `InvalidArgument`.
    pub(crate) fn grant(&self, id: i64, request: &LeaseGrantRequest) -> Result<Lease> {
        let (mut lease, done) = self.write(|evaluation| evaluation.grant(id, request))?;
        lease.revision = done.revision();
        done.wait()?;
        Ok(lease)
    }

    /// Gives the end of a lease its place in the order: the keys that have it are deleted at one revision.
    /// To wait is the caller's business.
    ///
    /// # Errors
    /// `LeaseNotFound`.
    pub(crate) fn revoke(
        &self,
        id: i64,
        options: &CommitOptions,
    ) -> Result<(LeaseRevokeResponse, Done<'_>)> {
        let (revoked, done) = self.revoke_if(id, options, &|_| true)?;
        Ok((revoked.unwrap_or_default(), done))
    }

    /// As [`revoke`](Self::revoke), if `may` says yes of each of the keys; else `None`.
    ///
    /// # Errors
    /// `LeaseNotFound`.
    pub(crate) fn revoke_if(
        &self,
        id: i64,
        options: &CommitOptions,
        may: &dyn Fn(&[u8]) -> bool,
    ) -> Result<(Option<LeaseRevokeResponse>, Done<'_>)> {
        let revoke = |evaluation: &mut Evaluation<'_, '_>| evaluation.revoke(id, may);
        let (deleted, done) = write_through(&self.door, (self.limits, true), options, revoke)?;
        let revision = done.revision();
        Ok((deleted.map(|deleted| LeaseRevokeResponse { revision, deleted }), done))
    }

    /// Writes down that a lease has all of its time left, if its record says less. Answers its time to live
    /// in seconds. Durable when it returns.
    ///
    /// # Errors
    /// `LeaseNotFound`.
    pub(crate) fn renew(&self, id: i64) -> Result<i64> {
        let (ttl, done) = self.write(|evaluation| evaluation.renew_lease(id, false))?;
        done.wait()?;
        Ok(ttl)
    }

    /// Writes down that a lease has all of its time left, whatever its record says: a note that it has less
    /// may be on its way, and is not ordered behind this unless it is evaluated anew. Answers its time to
    /// live in seconds. Durable when it returns, whatever the store's durability: the note may be.
    ///
    /// # Errors
    /// `LeaseNotFound`.
    pub(crate) fn renew_always(&self, id: i64) -> Result<i64> {
        let options =
            CommitOptions { durability: Some(Durability::Sync), ..CommitOptions::default() };
        let renew = |evaluation: &mut Evaluation<'_, '_>| evaluation.renew_lease(id, true);
        let (ttl, done) = write_through(&self.door, (self.limits, true), &options, renew)?;
        done.wait()?;
        Ok(ttl)
    }

    /// Writes down how much time leases have left. `notes` is asked each time that this is evaluated; a lease
    /// that is gone is left out. `None` for the store's durability; what a crash takes back makes leases
    /// live longer.
    ///
    /// # Errors
    /// As every write.
    pub(crate) fn note(
        &self,
        notes: &dyn Fn() -> Vec<(i64, Value)>,
        durability: Option<Durability>,
    ) -> Result<()> {
        let options = CommitOptions { durability, ..CommitOptions::default() };
        let note = |evaluation: &mut Evaluation<'_, '_>| {
            notes().into_iter().try_for_each(|(id, value)| evaluation.note_lease(id, value))
        };
        write_through(&self.door, (self.limits, true), &options, note)?.1.wait()
    }

    /// The newest revision, durable or not.
    pub(crate) fn revision(&self) -> u64 {
        self.door.applied_revision()
    }

    /// Fails where nothing can be written any more.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Poisoned`, also after a failure of the log.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.door.check_writable()?;
        self.door.failure().map_or(Ok(()), Err)
    }

    /// What the record of a lease says, if there is one.
    ///
    /// # Errors
    /// `Closed`, or what reading a file answers.
    pub(crate) fn get(&self, id: i64) -> Result<Option<Value>> {
        let (_, record) = self.door.get_latest(&space::lease(id))?;
        Ok(record.map(|record| lease_table::value_of(&record.value)))
    }

    /// A lease with what its record says, and with its keys if `keys`, at one moment.
    ///
    /// # Errors
    /// `Closed`, or what reading a file answers.
    pub(crate) fn info(&self, id: i64, keys: bool) -> Result<Option<(Lease, Value)>> {
        lease_table::info(&self.table()?, id, keys)
    }

    /// Every record of one moment, by id.
    ///
    /// # Errors
    /// `Closed`.
    pub(crate) fn all(&self) -> Result<AllLeases> {
        let view = self.door.latest_of_both_spaces()?;
        // Ids are compared as unsigned numbers there: the negative ones come last.
        let [negative, rest] = space::leases_by_sign();
        let scan = |(start, end): (Bytes, Bytes)| view.scan(&start, &end, false);
        let scans = [scan(negative), scan(rest)].map(Some);
        Ok(AllLeases { revision: view.revision(), scans, _view: view })
    }

    /// The leases and the keys of one moment: an answer takes many reads, and is of one revision.
    fn table(&self) -> Result<Newest<'_>> {
        Newest::with_leases(&self.door)
    }

    fn write<T>(
        &self,
        evaluate: impl FnMut(&mut Evaluation<'_, '_>) -> Result<T>,
    ) -> Result<(T, Done<'_>)> {
        write_through(&self.door, (self.limits, true), &CommitOptions::default(), evaluate)
    }
}

/// The records of leases, one after the other.
pub(crate) struct AllLeases {
    /// The revision they are of.
    pub(crate) revision: u64,
    scans: [Option<Scan>; 2],
    /// Keeps what they show readable.
    _view: View,
}

impl Iterator for AllLeases {
    type Item = Result<(i64, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let scan = self.scans.iter_mut().find(|scan| scan.is_some())?;
            match scan.as_mut().and_then(Iterator::next) {
                None => *scan = None,
                Some(Ok(record)) => {
                    let Some(id) = space::lease_id(&record.key) else { continue };
                    return Some(Ok((id, lease_table::value_of(&record.value))));
                }
                Some(Err(error)) => {
                    self.scans = [None, None];
                    return Some(Err(error));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::kv::eval::reads::{Reads, Records};
    use crate::kv::seam::{Record, Stub};
    use crate::kv::{PutRequest, txn};
    use crate::options::Options;
    use crate::vfs::MemoryVfs;

    /// Lets something happen before the first scan.
    struct Interrupted<'a> {
        inner: Newest<'a>,
        interrupt: &'a dyn Fn(),
    }

    impl Reads for Interrupted<'_> {
        fn revision(&self) -> u64 {
            self.inner.revision()
        }

        fn compacted(&self) -> u64 {
            self.inner.compacted()
        }

        fn check_past(&self, start: &[u8], end: &[u8], revision: u64) -> Result<()> {
            self.inner.check_past(start, end, revision)
        }

        fn get(&self, key: &[u8]) -> Result<Option<Record>> {
            self.inner.get(key)
        }

        fn newest(&self, key: &[u8]) -> Result<Option<Stub>> {
            self.inner.newest(key)
        }

        fn scan(&self, start: &[u8], end: &[u8], keys_only: bool) -> Records<'_> {
            (self.interrupt)();
            self.inner.scan(start, end, keys_only)
        }

        fn get_at(&self, key: &[u8], revision: u64) -> Result<Option<Record>> {
            self.inner.get_at(key, revision)
        }

        fn scan_at(&self, start: &[u8], end: &[u8], only: bool, at: u64) -> Result<Records<'_>> {
            self.inner.scan_at(start, end, only, at)
        }
    }

    #[test]
    fn a_key_that_comes_meanwhile_keeps_a_lease_from_being_revoked_without_it() {
        let options = Options::new().vfs(Arc::new(MemoryVfs::new())).background(false);
        let store = options.open("store").unwrap();
        store.lease_grant(7, Duration::from_secs(60)).unwrap();
        store.put_with(PutRequest::new("a", "").lease(7)).unwrap();
        let mut evaluations = 0;
        let (answer, done) = store
            .write(&CommitOptions::default(), |evaluation| {
                evaluations += 1;
                let answer = evaluation.revoke(7, &|key| key == b"a");
                if evaluations == 1 {
                    assert!(answer.as_ref().unwrap().is_some(), "there is no other key yet");
                    store.put_with(PutRequest::new("b", "").lease(7)).unwrap();
                }
                answer
            })
            .unwrap();
        assert_eq!((answer, done.revision(), evaluations), (None, 3, 2));
        done.wait().unwrap();
        assert_eq!(store.lease_info(7, true).unwrap().expect("it stays").keys, ["a", "b"]);
    }

    #[test]
    fn what_is_told_of_a_lease_is_of_one_revision() {
        for flushed in [false, true] {
            let options = Options::new().vfs(Arc::new(MemoryVfs::new())).background(false);
            let store = options.open("store").unwrap();
            store.lease_grant(7, Duration::from_secs(60)).unwrap();
            let attached = ["a", "b"].map(|key| PutRequest::new(key, "").lease(7));
            store.transact(txn().then(attached)).unwrap();
            let interrupt = || {
                store.lease_revoke(7).unwrap();
                if flushed {
                    store.reorganise().unwrap();
                }
            };
            let records = store.lease_records();
            let inner = records.table().unwrap();
            let reads = Interrupted { inner, interrupt: &interrupt };
            let (lease, _) = lease_table::info(&reads, 7, true).unwrap().expect("it was there");
            assert_eq!((lease.revision, lease.keys.len()), (2, 2), "flushed: {flushed}");
            assert_eq!(store.lease_info(7, true).unwrap(), None);
        }
    }
}
