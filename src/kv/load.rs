//! A new store from what another one had, in etcd's vocabulary.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use annals_format::lease::Value;
use bytes::Bytes;

use crate::engine::OpenReport;
use crate::engine::inspect::PutTogether;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;

use super::eval::check;
use super::eval::lease as lease_table;
use super::hash::{KvHash, hash_at};
use super::range::KeyRange;
use super::request::LeaseGrantRequest;
use super::retention::Retention;
use super::seam::{
    self, BaseWriter, Engine, Event, HistoryRecord, InternalKey, Record, Write, WriteKind,
};
use super::space;
use super::store::Store;
use super::types::{Change, ChangeKind, KeyValue, Origin, Transaction};

/// Records of leases that are written in one transaction, and bytes of their keys.
const RECORDS_TOGETHER: usize = 4096;
const RECORD_BYTES_TOGETHER: usize = 1 << 20;

/// Makes a new store out of what another one had, at the revisions, and with the numbers of versions, that it
/// had there: a store moved here from elsewhere, or a copy.
///
/// A store that has been compacted has forgotten how it came to its keys. So the new one begins with a
/// *base*: what lived at the revision that the other store was compacted to. This takes the time to write
/// the files, and no memory but for the keys changed at that revision itself. After it,
/// [`begin`](Self::begin) answers a [`Loading`], which takes every later transaction, and the leases.
///
/// What a rule of retention kept that is older than the base is not taken along.
///
/// Until [`Loading::finish`] returns, the directory is no store: opening it answers
/// [`NotAStore`](crate::ErrorKind::NotAStore), also after a crash, and it is to be removed then.
///
/// ```
/// use annals::{Load, Options, Origin, Store};
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// # let here = directory.path().join("here");
/// # let there = directory.path().join("there");
///
/// let store = Store::open(&here)?;
/// for n in 0..5 {
///     store.put("/counter", n.to_string())?;
/// }
/// store.put("/other", "")?;
/// store.compact(4)?;
///
/// let compacted = store.compacted_revision();
/// let origin = Origin { time: store.time_of(compacted)?, ..Origin::default() };
/// let mut load = Load::create(&there, &Options::new(), compacted, &origin)?;
/// let view = store.at(compacted)?;
/// for kv in view.range(..) {
///     let kv = kv?;
///     load.base(&kv, view.sub_of(&kv.key)?.unwrap_or_default())?;
/// }
/// let mut loading = load.begin()?;
/// for transaction in store.log(compacted + 1..).with_values() {
///     loading.transaction(&transaction?)?;
/// }
/// let copy = loading.finish()?;
///
/// assert_eq!(copy.get("/counter")?, store.get("/counter")?);
/// assert_eq!(copy.get("/counter")?.expect("it was there").version, 5);
/// assert_eq!(copy.at(5)?.get("/counter")?.expect("it was there").value, "3");
/// assert_eq!((copy.compacted_revision(), copy.revision()), (4, 7));
/// # Ok::<(), annals::Error>(())
/// ```
pub struct Load {
    base: BaseWriter,
}

impl Load {
    /// Begins a store in `directory`, which must be absent or empty. It is compacted to `compacted`, and
    /// `origin` is when the transaction of that revision was ordered, and its metadata. A store that was never
    /// compacted has no base, and `compacted` 0.
    ///
    /// # Errors
    ///
    /// [`NotEmpty`](crate::ErrorKind::NotEmpty) when there is something in the directory;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a time out of bounds; [`MetadataTooLong`](crate::ErrorKind::MetadataTooLong);
    /// [`Locked`](crate::ErrorKind::Locked); [`Io`](crate::ErrorKind::Io).
    pub fn create(
        directory: impl AsRef<Path>,
        options: &Options,
        compacted: u64,
        origin: &Origin,
    ) -> Result<Self> {
        let Origin { time, metadata } = origin;
        check::time(*time)?;
        let begin = (compacted, *time, metadata.clone());
        let base = BaseWriter::create(directory.as_ref(), options, begin)?;
        Ok(Self { base })
    }

    /// Adds a key that lived at the revision compacted to; keys ascend. `sub` is the place of the change in
    /// the transaction of its `mod_revision`; only [`Store::hash_at`] shows it for revisions before that
    /// compacted to.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a key that is not after the last one, and for
    /// numbers that no version up to the revision compacted to has: nothing was added then.
    /// [`Io`](crate::ErrorKind::Io), [`NoSpace`](crate::ErrorKind::NoSpace), from then on each time.
    pub fn base(&mut self, kv: &KeyValue, sub: u32) -> Result<()> {
        let KeyValue { value, create_revision, mod_revision, version, lease, .. } = kv;
        self.base.add(&HistoryRecord {
            record: Record {
                key: internal(&kv.key),
                value: value.clone(),
                create_revision: *create_revision,
                mod_revision: *mod_revision,
                sub,
                version: *version,
                lease: *lease,
            },
            tombstone: false,
        })
    }

    /// Adds a key that was deleted at exactly the revision compacted to, among the others in their order: that
    /// it was deleted can be read, from that revision on.
    ///
    /// # Errors
    ///
    /// As [`base`](Self::base).
    pub fn base_deleted(&mut self, key: impl AsRef<[u8]>, sub: u32) -> Result<()> {
        let mod_revision = self.base.compacted();
        self.base.add(&HistoryRecord {
            record: Record {
                key: internal(key.as_ref()),
                value: Bytes::new(),
                create_revision: 0,
                mod_revision,
                sub,
                version: 0,
                lease: 0,
            },
            tombstone: true,
        })
    }

    /// Ends the base.
    ///
    /// # Errors
    ///
    /// [`Io`](crate::ErrorKind::Io), [`NoSpace`](crate::ErrorKind::NoSpace);
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when two changes of the revision compacted to
    /// have the same place.
    pub fn begin(self) -> Result<Loading> {
        let options = self.base.options().clone();
        let (engine, report) = self.base.begin()?;
        Ok(Loading { engine, options, report, leases: BTreeMap::new(), rules: BTreeMap::new() })
    }
}

/// A store that is being put together, from the base on; made by [`Load::begin`].
pub struct Loading {
    engine: Engine,
    options: Options,
    report: OpenReport,
    leases: BTreeMap<i64, Value>,
    rules: BTreeMap<Bytes, Retention>,
}

impl Loading {
    /// The revision that it has come to.
    pub fn revision(&self) -> u64 {
        self.engine.applied_revision()
    }

    /// Takes the next transaction, as [`Store::log`] tells it [with values](crate::Log::with_values). It has
    /// to follow the one before: its revision is the next, its time not earlier, and each change has the
    /// `create_revision` and the `version` that come of what is there. Its keys may have leases that are not
    /// there, or not yet. The limits of [`Options`] do not hold, only those of the format.
    ///
    /// It costs what a [`Buffered`](crate::Durability::Buffered) commit does, and a look-up of each key.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when it does not follow, or changes nothing; as
    /// any write. Nothing was changed then.
    pub fn transaction(&mut self, transaction: &Transaction) -> Result<()> {
        let Transaction { revision, time, metadata, changes } = transaction;
        check::time(*time)?;
        self.engine.apply(&seam::Transaction {
            revision: *revision,
            time: *time,
            metadata: metadata.clone(),
            events: changes.iter().map(event).collect(),
        })
    }

    /// Adds a lease with the time to live that it was granted, in seconds, and how many milliseconds of that
    /// are left, `None` for all. The time begins to pass when the store is [finished](Self::finish); the keys
    /// that have the lease then are attached to it.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for the id 0, a time to live of less than a
    /// second, or a lease that was added before;
    /// [`LeaseTtlTooLarge`](crate::ErrorKind::LeaseTtlTooLarge).
    pub fn lease(&mut self, id: i64, ttl: i64, remaining_millis: Option<u64>) -> Result<()> {
        let ttl = lease_table::granted_ttl(&LeaseGrantRequest { id, ttl, ttl_min: ttl })?;
        if id == 0 || self.leases.contains_key(&id) {
            return Err(Error::invalid(format!("lease {id} is no new one")));
        }
        let whole = Value { ttl, remaining: None };
        let remaining = remaining_millis.filter(|left| *left < whole.whole_millis());
        self.leases.insert(id, Value { remaining, ..whole });
        Ok(())
    }

    /// Sets how long the keys with a prefix are kept, in place of what was said of it before, as
    /// [`Store::set_retention`] does. It holds when the store is [finished](Self::finish).
    ///
    /// # Errors
    ///
    /// [`KeyTooLong`](crate::ErrorKind::KeyTooLong); [`TooManyRules`](crate::ErrorKind::TooManyRules) for more than 64.
    pub fn set_retention(&mut self, prefix: impl AsRef<[u8]>, retention: Retention) -> Result<()> {
        check::retention_prefix(prefix.as_ref())?;
        if self.rules.len() >= seam::RULES_MAX && !self.rules.contains_key(prefix.as_ref()) {
            return Err(ErrorKind::TooManyRules { max: seam::RULES_MAX as u64 }.into());
        }
        self.rules.insert(Bytes::copy_from_slice(prefix.as_ref()), retention);
        Ok(())
    }

    /// The hash of what is there so far, as [`Store::hash_at`] tells it. Makes everything durable first.
    ///
    /// # Errors
    ///
    /// As [`Store::hash_at`] and [`Store::flush`].
    pub fn hash(&self) -> Result<KvHash> {
        self.engine.flush()?;
        hash_at(&self.engine, &|| Ok(self.engine.revision()))
    }

    /// Ends the loading, without what the rooms above add.
    pub(crate) fn finish_alone(self) -> Result<Store> {
        self.complete()?;
        let Self { engine, report, .. } = self;
        engine.loaded()?;
        Store::over(engine, report)
    }

    /// Ends the loading, but the directory is no store yet: a tool still has something to put there.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    pub fn finish_apart(self) -> Result<PutTogether> {
        self.complete()?;
        self.engine.close()?;
        PutTogether::held(self.engine.path().to_path_buf(), &self.options)
    }

    /// Adds what was not written yet.
    fn complete(&self) -> Result<()> {
        let Self { engine, leases, rules, .. } = self;
        engine.flush()?;
        for (prefix, retention) in rules {
            engine.set_rule(prefix, Some(retention.rule()))?;
        }
        if !leases.is_empty() {
            let mut records = Records { engine, writes: Vec::new(), bytes: 0 };
            for (id, value) in leases {
                records.add(space::lease(*id), value.encode())?;
            }
            let (start, end) = space::user_range(&KeyRange::all());
            for record in engine.latest()?.scan(&start, &end, true) {
                let record = record?;
                if leases.contains_key(&record.lease) {
                    let key = space::attachment(record.lease, &space::strip(record.key));
                    records.add(key, Vec::new())?;
                }
            }
            records.write()?;
        }
        Ok(())
    }
}

/// Records of leases, written many at a time.
struct Records<'e> {
    engine: &'e Engine,
    writes: Vec<Write<'static>>,
    /// That the keys of these have.
    bytes: usize,
}

impl Records<'_> {
    fn add(&mut self, key: InternalKey, value: Vec<u8>) -> Result<()> {
        let kind = WriteKind::Put { value: value.into(), lease: 0 };
        self.bytes += key.len();
        self.writes.push(Write { key, kind });
        let is_much = self.writes.len() >= RECORDS_TOGETHER || self.bytes >= RECORD_BYTES_TOGETHER;
        if is_much { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.engine.apply_system(&self.writes)?;
        self.writes.clear();
        self.bytes = 0;
        Ok(())
    }
}

fn internal(key: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&space::user(key))
}

pub(super) fn event(change: &Change) -> Event {
    let Change { kind, key, sub, create_revision, version, lease, value } = change;
    let delete = *kind == ChangeKind::Delete;
    Event {
        key: key.clone(),
        value: value.clone(),
        delete,
        sub: *sub,
        create_revision: *create_revision,
        version: *version,
        lease: *lease,
    }
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Load").finish_non_exhaustive()
    }
}

impl fmt::Debug for Loading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loading").field("revision", &self.revision()).finish_non_exhaustive()
    }
}
