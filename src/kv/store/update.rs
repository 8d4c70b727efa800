//! Transactions by a function: read what they need, write what follows from it, again as long as somebody comes between.
//!
//! **The problem.** If/Then/Else decides on what can be compared. Who decides by more than that reads first, and then has to
//! say in comparisons what must not have changed: of each key its mod revision, of each key that was absent that it
//! still is, and of a range that no key has come into it, which can be said, or gone from it, which cannot. What is
//! forgotten there is found in production.
//!
//! **What is done.** The function reads a view of the newest state in the order, durable or not, and each key and range that
//! it reads is noted. When it is through, its writes are given a place in the order, under the condition that nothing of what
//! is noted has changed since: each key has no newer version, each range no newer version of any key, tombstones
//! included. If something has, the function is called again, with a view of that moment. So the transaction is as if it had been
//! done at its place, whole and alone: transactions of this kind are serializable, with each other and with all others.
//!
//! The view is pinned until the end, so that no tombstone of a later deletion is dropped, by which it is told. As for
//! [`Store::modify`] the function runs between two evaluations, with nothing held but the view, and only the answer waits
//! for the disk.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::error::{Error, Result};

use super::Store;
use super::write::Done;
use crate::kv::eval::Evaluation;
use crate::kv::eval::reads::key_value;
use crate::kv::range::{AsKeyRange, KeyRange};
use crate::kv::request::{CommitOptions, DeleteRangeRequest, Op, PutRequest, TxnRequest};
use crate::kv::response::TxnResponse;
use crate::kv::seam::{self, Snapshot};
use crate::kv::space;
use crate::kv::ticket::Ticket;
use crate::kv::types::KeyValue;
use crate::options::Durability;

/// What the function of [`Store::update`] reads, and what it writes: one state of the store, with its own changes over it.
#[derive(Debug)]
pub struct Update<'s> {
    pub(super) store: &'s Store,
    pub(super) view: seam::View,
    pub(super) seen: Seen,
    /// What becomes of keys; `None` = it is deleted.
    pub(super) writes: BTreeMap<Bytes, Option<Written>>,
    options: CommitOptions,
}

#[derive(Debug)]
pub(super) struct Written {
    pub(super) value: Bytes,
    pub(super) lease: i64,
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Seen {
    keys: BTreeSet<Bytes>,
    /// Ranges of internal keys.
    pub(super) ranges: Vec<(Bytes, Bytes)>,
    /// Leases that are there.
    pub(super) leases: BTreeSet<i64>,
}

/// What a transaction by [`Store::update`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Updated<T> {
    /// What the function has answered.
    pub value: T,
    /// The transaction's revision; where it changed nothing, the revision it was decided at.
    pub revision: u64,
    /// Whether it changed something.
    pub changed: bool,
}

impl Update<'_> {
    /// The revision of the state that is read.
    pub fn revision(&self) -> u64 {
        self.view.revision()
    }

    /// The key as it is, with what this transaction has done to it before. Where that is a put, the revisions and
    /// the version, which only the commit gives it, are 0.
    ///
    /// # Errors
    ///
    /// As [`View::get`](crate::View::get).
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<KeyValue>> {
        let key = key.as_ref();
        if let Some((key, written)) = self.writes.get_key_value(key) {
            return Ok(written.as_ref().map(|written| written.of(key)));
        }
        // First: a function may go on although it could not be read.
        self.seen.keys.insert(Bytes::copy_from_slice(key));
        Ok(self.view.get(&space::user(key))?.map(key_value))
    }

    /// The living keys of a range, in byte order, with what this transaction has done to them, as [`get`](Self::get) gives
    /// them. That a key comes into the range, goes, or gets another version, is a conflict.
    ///
    /// They are read at once, with their values, and held in memory.
    ///
    /// # Errors
    ///
    /// As [`View::get`](crate::View::get).
    pub fn range(&mut self, range: impl AsKeyRange) -> Result<Vec<KeyValue>> {
        self.read(&range.to_key_range(), false)
    }

    /// As [`range`](Self::range), of all keys that begin with a prefix; the empty prefix is every key.
    ///
    /// # Errors
    ///
    /// As [`View::get`](crate::View::get).
    pub fn prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<Vec<KeyValue>> {
        self.range(KeyRange::prefix(prefix))
    }

    fn read(&mut self, range: &KeyRange, keys_only: bool) -> Result<Vec<KeyValue>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let (start, end) = space::user_range(range);
        let mut kvs = BTreeMap::new();
        let records = self.view.scan(&start, &end, keys_only);
        self.seen.ranges.push((start, end));
        for record in records {
            let kv = key_value(record?);
            kvs.insert(kv.key.clone(), kv);
        }
        let own = self.writes.range::<Bytes, _>(range.start()..);
        for (key, written) in own.take_while(|(key, _)| range.contains(key)) {
            match written {
                Some(written) => drop(kvs.insert(key.clone(), written.of(key))),
                None => drop(kvs.remove(key)),
            }
        }
        Ok(kvs.into_values().collect())
    }

    /// Gives the key a value, and takes it off its lease.
    ///
    /// # Errors
    ///
    /// [`EmptyKey`](crate::ErrorKind::EmptyKey), or a limit of the options.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_leased(key, value, 0)
    }

    /// The same, attached to a lease. That there is no such lease is told by the commit.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn put_leased(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        lease: i64,
    ) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.store.limits().sizes(key, value)?;
        let written = Written { value: Bytes::copy_from_slice(value), lease };
        self.writes.insert(Bytes::copy_from_slice(key), Some(written));
        Ok(())
    }

    /// Deletes the key, if it is there.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        self.store.limits().sizes(key, &[])?;
        self.writes.insert(Bytes::copy_from_slice(key), None);
        Ok(())
    }

    /// Deletes the keys of a range, which are read for it. Answers how many there were.
    ///
    /// # Errors
    ///
    /// As [`range`](Self::range).
    pub fn delete_range(&mut self, range: impl AsKeyRange) -> Result<u64> {
        let doomed = self.read(&range.to_key_range(), true)?;
        let count = doomed.len() as u64;
        self.writes.extend(doomed.into_iter().map(|kv| (kv.key, None)));
        Ok(count)
    }

    /// Attaches opaque metadata to the transaction: an author, a message, a commit id.
    pub fn metadata(&mut self, metadata: impl AsRef<[u8]>) {
        self.options.metadata = Bytes::copy_from_slice(metadata.as_ref());
    }

    /// Sets the transaction's time, in microseconds since the Unix epoch: see [`CommitOptions::time`].
    pub fn time(&mut self, micros: i64) {
        self.options.time = Some(micros);
    }

    /// Sets the durability of the commit: see [`CommitOptions::durability`].
    pub fn durability(&mut self, durability: Durability) {
        self.options.durability = Some(durability);
    }

    /// The writes, which no longer need this.
    fn request(writes: BTreeMap<Bytes, Option<Written>>) -> TxnRequest {
        let op = |(key, written): (Bytes, Option<Written>)| match written {
            Some(Written { value, lease }) => {
                Op::Put(PutRequest { key, value, lease, ..PutRequest::default() })
            }
            None => Op::DeleteRange(DeleteRangeRequest { key, ..DeleteRangeRequest::default() }),
        };
        TxnRequest { success: writes.into_iter().map(op).collect(), ..TxnRequest::default() }
    }
}

impl Written {
    fn of(&self, key: &Bytes) -> KeyValue {
        KeyValue {
            key: key.clone(),
            value: self.value.clone(),
            create_revision: 0,
            mod_revision: 0,
            version: 0,
            lease: self.lease,
        }
    }
}

impl Seen {
    /// Whether all of it is in a snapshot as it was at `since`. It must be so where the evaluation's plan lands, too.
    fn is_as_of(
        &self,
        since: u64,
        evaluation: &mut Evaluation<'_, '_>,
        snapshot: &Snapshot<'_>,
    ) -> Result<bool> {
        for key in &self.keys {
            if evaluation.newest_revision(key)? > since {
                return Ok(false);
            }
        }
        for (start, end) in &self.ranges {
            if snapshot.has_changed(start, end, since)? {
                return Ok(false);
            }
            evaluation.depend_on(start, end);
        }
        for id in &self.leases {
            if !evaluation.has_lease(*id)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Store {
    /// Does a transaction of any number of keys by a function: `change` reads what it needs and writes what follows from
    /// it, and all of that takes place at one revision, as if nobody else had written meanwhile, or not at all. If
    /// somebody changes something that `change` has read, also by putting a key into a range that it read or deleting one, before its
    /// writes have their place, it is called again.
    ///
    /// `change` sees the newest state, which may not be durable yet: only when this call has returned `Ok` is it certain
    /// that there has ever been such a state. As it may be called several times, it should do nothing but read, decide and
    /// write by its [`Update`]. What it answers as an error ends the transaction, nothing is written then.
    ///
    /// A call costs its reads twice, the second time without their values (of a range, if anything was committed meanwhile: a
    /// walk over its keys in memory, and in files that have come since), and a commit. It is not fair: a `change` that
    /// takes long, beside fast ones of the same keys, may be
    /// asked again for as long as they come. For one key [`Store::modify`] is the quicker form.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::{Error, Store};
    ///
    /// /// Gives a job that nobody has to a worker with fewer than two, for as long as its lease lives.
    /// fn claim(store: &Store, worker: &str, lease: i64) -> Result<Option<String>, Error> {
    ///     let done = store.update(|update| {
    ///         let jobs = update.prefix("/jobs/")?;
    ///         let claims = update.prefix("/claims/")?;
    ///         let mine = claims.iter().filter(|claim| claim.value == worker.as_bytes()).count();
    ///         let is_free = |job: &str| claims.iter().all(|claim| !claim.key.ends_with(job.as_bytes()));
    ///         let names = jobs.iter().filter_map(|job| std::str::from_utf8(&job.key[6..]).ok());
    ///         let Some(job) = names.map(str::to_owned).find(|job| mine < 2 && is_free(job)) else {
    ///             return Ok(None);
    ///         };
    ///         update.metadata(format!("claimed by {worker}"));
    ///         update.put_leased(format!("/claims/{job}"), worker.to_owned(), lease)?;
    ///         Ok::<_, Error>(Some(job))
    ///     })?;
    ///     Ok(done.value)
    /// }
    ///
    /// for job in ["a", "b", "c"] {
    ///     store.put(format!("/jobs/{job}"), "")?;
    /// }
    /// let lease = store.lease_grant(0, std::time::Duration::from_secs(60))?.id;
    /// assert_eq!(claim(&store, "ada", lease)?.as_deref(), Some("a"));
    /// assert_eq!(claim(&store, "ada", lease)?.as_deref(), Some("b"));
    /// assert_eq!(claim(&store, "ada", lease)?, None);
    /// assert_eq!(claim(&store, "ben", lease)?.as_deref(), Some("c"));
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What `change` answers. As [`Store::transact`]; [`LeaseNotFound`](crate::ErrorKind::LeaseNotFound).
    pub fn update<T, E: From<Error>>(
        &self,
        change: impl FnMut(&mut Update<'_>) -> Result<T, E>,
    ) -> Result<Updated<T>, E> {
        let (value, done) = self.updated(change)?;
        let (changed, revision) = (done.changed(), done.revision());
        done.wait()?;
        Ok(Updated { value, revision, changed })
    }

    /// As [`Store::update`], with a ticket for the answer, which lists no responses. `change` is called before this returns, and
    /// never after. What it answered is not to be told to anybody before the ticket is.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// let (sum, ticket) = store.submit_update(|update| {
    ///     let sum = update.range(..)?.len();
    ///     update.put("/sum", sum.to_string())?;
    ///     Ok::<_, annals::Error>(sum)
    /// })?;
    /// ticket.wait()?; // or `.await`
    /// assert_eq!(sum, 0);
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Store::update`].
    pub fn submit_update<T, E: From<Error>>(
        &self,
        change: impl FnMut(&mut Update<'_>) -> Result<T, E>,
    ) -> Result<(T, Ticket), E> {
        let (value, done) = self.updated(change)?;
        let response =
            TxnResponse { revision: done.revision(), succeeded: true, responses: Vec::new() };
        Ok((value, done.ticket(response)))
    }

    fn updated<T, E: From<Error>>(
        &self,
        mut change: impl FnMut(&mut Update<'_>) -> Result<T, E>,
    ) -> Result<(T, Done<'_>), E> {
        let now = |snapshot: &Snapshot<'_>| snapshot.at(snapshot.position().revision);
        let (mut view, mut done) =
            self.write_seeing(self.defaults(), |_, snapshot| now(snapshot))?;
        loop {
            let mut update = Update {
                store: self,
                view,
                seen: Seen::default(),
                writes: BTreeMap::new(),
                options: CommitOptions::default(),
            };
            let changed = change(&mut update);
            let Update { view: pinned, seen, writes, options, .. } = update;
            let options = self.completed(options);
            // What was read by a call before may have been asked for with less.
            done = done.at_least(options.durability);
            let request = Update::request(writes);
            let fits = || {
                self.limits().commit(&options)?;
                self.limits().transaction(&request)
            };
            let value = match changed.and_then(|value| Ok(fits().map(|()| value)?)) {
                Ok(value) if request.success.is_empty() => return Ok((value, done)),
                Ok(value) => value,
                Err(error) => {
                    // An answer like any other: what it was decided on is to be certain first.
                    done.wait()?;
                    return Err(error);
                }
            };
            let since = pinned.revision();
            let (newer, written) = self.write_seeing(&options, |evaluation, snapshot| {
                if !seen.is_as_of(since, evaluation, snapshot)? {
                    return now(snapshot).map(Some);
                }
                evaluation.transaction(&request)?;
                Ok(None)
            })?;
            match newer {
                None => return Ok((value, written)),
                Some(newer) => (view, done) = (newer, written),
            }
        }
    }
}
