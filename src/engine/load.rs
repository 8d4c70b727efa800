//! Putting a store together from what another one had: with the revisions, the numbers of versions and the
//! times that things had there.
//!
//! ```text
//! 1 make the directory, lock it, see that nothing is in it, and make a file LOADING, which says that
//!   this is no store yet, whatever else is there
//! 2 the base: what lived at revision C, key by key, straight into HEAD files
//! 3 an EVENTS file with the transaction of revision C, as far as it is known, maybe nothing; a sealed log
//!   without a frame, and a manifest that has come to C and is compacted to it
//! 4 open it; order every later transaction as any other, each of which has to get the revision that it had
//! 5 make all of it durable, and remove LOADING
//! ```
//!
//! Why 3 has a transaction whatever is known of it: EVENTS have every revision from the watermark on, each
//! with its time, so that the time of any revision that can be read is found.
//!
//! A crash before the end of 5 leaves LOADING, and so no store. Nothing that was there before is touched.

use std::path::{Path, PathBuf};

use annals_format::entry::EntryRef;
use annals_format::events::{EventKind, EventRef, TransactionBuilder};
use annals_format::limits::{METADATA_BYTES_MAX, VALUE_BYTES_MAX};
use annals_format::name::SEGMENT_DIR;
use annals_format::{FileKind, FileMeta, Manifest, space};
use bytes::Bytes;

use crate::commit::{Plan, Point, Write, WriteKind};
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::ManifestStore;
use crate::options::{Durability, Options};
use crate::reclaim::output::cut_bytes;
use crate::segment::{NewSegment, SegmentContext, SegmentWriter};
use crate::sync::Arc;
use crate::vfs::{LockGuard, Vfs};

use super::bump::check_begin;
use super::core::Core;
use super::door::Door;
use super::new_store::{
    NewLog, check_ours, claim, directory, remove_marker, sync_dir, write_events,
};
use super::open::{Opening, new_store_id};
use super::record::{Event, HistoryRecord, Transaction};
use super::transact::Snapshot;
use super::{Engine, InternalKey, OpenReport};

/// A revision before the first that a transaction can have: nothing lived there.
const FIRST: u64 = 1;

/// Whether a version can have this number so many revisions after the one that began its lifetime, which had
/// the first: each further one took a revision.
fn is_possible(version: u64, later: u64) -> bool {
    if later == 0 { version == 1 } else { version >= 2 && version - 1 <= later }
}

/// What a store begins with: what lived at one revision, and the transaction that made this.
#[derive(Debug)]
pub(crate) struct BaseWriter {
    path: PathBuf,
    options: Options,
    /// The file system as long as the directory is ours: what is not finished may have been taken for dead, and
    /// removed, and begun anew.
    held: Arc<dyn Vfs>,
    context: SegmentContext,
    /// As it will be: compacted to the revision.
    manifest: Manifest,
    /// The HEAD file that is being written, with the length of its first key.
    head: Option<(SegmentWriter, usize)>,
    last_key: Vec<u8>,
    /// That of the transaction of the revision.
    metadata: Bytes,
    /// What the transaction of the revision did, as far as it still shows.
    newest: Vec<Event>,
    /// Lengths of the values, in the same order.
    value_bytes: Vec<u64>,
    /// Why what is written is not whole.
    broken: Option<Error>,
    lock: LockGuard,
}

impl BaseWriter {
    /// Begins a store that is compacted to `compacted`, the transaction of which has this time and this
    /// metadata. Without a base it is 1 or less.
    ///
    /// # Errors
    /// `NotEmpty`, `Locked`, or what making files answers.
    pub(crate) fn create(
        path: &Path,
        options: &Options,
        (compacted, time, metadata): (u64, i64, Bytes),
    ) -> Result<Self> {
        options.validate()?;
        let (bytes, max) = (metadata.len() as u64, METADATA_BYTES_MAX);
        if bytes > max {
            return Err(ErrorKind::MetadataTooLong { bytes, max }.into());
        }
        check_begin(compacted)?;
        let vfs = &options.vfs;
        let real = directory(&**vfs, path)?;
        let (lock, held) = claim(vfs, &real)?;
        let mut manifest = Manifest::new(new_store_id(options));
        if compacted > FIRST {
            manifest.compacted = compacted;
            manifest.revision_floor = compacted;
            // As if each revision had been one transaction.
            manifest.flushed_seq = compacted - FIRST;
            manifest.flushed_revision = compacted;
            manifest.flushed_time = time;
        }
        let held_options = options.clone().vfs(Arc::clone(&held));
        Ok(Self {
            context: SegmentContext::new(
                &real,
                manifest.store,
                manifest.incarnation,
                &held_options,
            ),
            path: real,
            options: options.clone().create(true),
            held,
            manifest,
            head: None,
            last_key: Vec::new(),
            metadata,
            newest: Vec::new(),
            value_bytes: Vec::new(),
            broken: None,
            lock,
        })
    }

    /// What it was begun with.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The revision compacted to.
    pub(crate) fn compacted(&self) -> u64 {
        self.manifest.compacted
    }

    /// Adds the newest version of a key: keys ascend. A tombstone can only be of the revision itself: of
    /// one before nothing is to be read.
    ///
    /// # Errors
    /// `InvalidArgument` for numbers that no version has, and keys out of order; what writing answers, from
    /// then on each time.
    pub(crate) fn add(&mut self, version: &HistoryRecord) -> Result<()> {
        let HistoryRecord { record, tombstone } = version;
        let (key, revision, compacted) =
            (&record.key, record.mod_revision, self.manifest.compacted);
        let later = revision.saturating_sub(record.create_revision);
        let what = if !matches!(space::Key::decode(key), Ok(space::Key::User(_))) {
            "no key of a user"
        } else if record.value.len() as u64 > VALUE_BYTES_MAX {
            "a value that is too long"
        } else if *self.last_key >= **key {
            "a key that is not after the one before it"
        } else if *tombstone && revision != compacted {
            "a tombstone of another revision"
        } else if !(FIRST < revision && revision <= compacted) {
            "a version that is not of a revision up to the one compacted to"
        } else if !tombstone && !(FIRST + 1..=revision).contains(&record.create_revision) {
            "a version older than its lifetime"
        } else if !tombstone && !is_possible(record.version, later) {
            // The next put would have a number that no frame may have.
            "a version with a number that it cannot have"
        } else {
            ""
        };
        if !what.is_empty() {
            let key = shown(key);
            return Err(Error::invalid(format!(
                "the base has {what}: {key} of revision {revision}"
            )));
        }
        let entry = EntryRef {
            key,
            revision,
            sub: record.sub,
            tombstone: *tombstone,
            create_revision: if *tombstone { 0 } else { record.create_revision },
            version: if *tombstone { 0 } else { record.version },
            lease: if *tombstone { 0 } else { record.lease },
            value: if *tombstone { &[] } else { &record.value },
            ..EntryRef::default()
        };
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.write(&entry).inspect_err(|error| self.broken = Some(error.clone()))?;
        if revision == compacted {
            self.newest.push(Event {
                key: record.key.slice(1..),
                value: None,
                delete: *tombstone,
                sub: record.sub,
                create_revision: entry.create_revision,
                version: entry.version,
                lease: entry.lease,
            });
            self.value_bytes.push(entry.value.len() as u64);
        }
        Ok(())
    }

    /// Writes an entry to HEAD.
    fn write(&mut self, entry: &EntryRef<'_>) -> Result<()> {
        if let Some((head, first_key)) = &self.head
            && head.bytes()
                >= cut_bytes(self.options.segment_bytes, *first_key, self.last_key.len())
        {
            self.cut()?;
        }
        let (mut head, first_key) = match self.head.take() {
            Some(head) => head,
            None => (self.create_file(FileKind::Head)?, entry.key.len()),
        };
        head.add(entry)?;
        self.head = Some((head, first_key));
        self.last_key.clear();
        self.last_key.extend_from_slice(entry.key);
        Ok(())
    }

    fn create_file(&mut self, kind: FileKind) -> Result<SegmentWriter> {
        let number = self.manifest.next_file;
        self.manifest.next_file += 1;
        SegmentWriter::create(&self.context, NewSegment::new(kind, number))
    }

    fn cut(&mut self) -> Result<()> {
        if let Some((head, _)) = self.head.take() {
            self.manifest.files.push(head.finish()?);
        }
        Ok(())
    }

    /// Ends the base, and opens the store, for which [`Door::apply`] is meant then.
    ///
    /// # Errors
    /// What writing and opening answer. The directory is to be removed then.
    pub(crate) fn begin(mut self) -> Result<(Engine, OpenReport)> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        self.cut()?;
        if self.manifest.compacted > FIRST {
            let events = self.events()?;
            self.manifest.files.push(events);
            let (vfs, manifest) = (&self.held, &mut self.manifest);
            sync_dir(&**vfs, &self.path.join(SEGMENT_DIR))?;
            NewLog::create(vfs, &self.path, &self.options, manifest, 1)?.seal(manifest)?;
            ManifestStore::new(Arc::clone(vfs), &*self.path).store(manifest)?;
        }
        let Self { path, options, lock, .. } = self;
        // Until it is taken again nobody else opens what is no store yet.
        drop(lock);
        Engine::open_loading(&path, &options)
    }

    /// The file with the transaction of the revision.
    fn events(&mut self) -> Result<FileMeta> {
        let mut order: Vec<usize> = (0..self.newest.len()).collect();
        order.sort_unstable_by_key(|&at| self.newest[at].sub);
        if order.windows(2).any(|pair| self.newest[pair[0]].sub == self.newest[pair[1]].sub) {
            let what = "the base has two changes in one place of their transaction";
            return Err(Error::invalid(what));
        }
        let mut builder = TransactionBuilder::new();
        for at in order {
            let event = &self.newest[at];
            builder.push(&EventRef {
                kind: if event.delete { EventKind::Delete } else { EventKind::Put },
                key: &event.key,
                sub: event.sub,
                create_revision: event.create_revision,
                version: event.version,
                lease: event.lease,
                value_bytes: self.value_bytes[at],
                value: None,
            });
        }
        let file = self.create_file(FileKind::Events)?;
        let Manifest { compacted, flushed_time, .. } = self.manifest;
        write_events(file, builder, (compacted, flushed_time, &self.metadata))
    }
}

impl Engine {
    /// Opens what is no store yet, to go on with it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn open_loading(path: &Path, options: &Options) -> Result<(Self, OpenReport)> {
        let opened = Self::open_as(Opening::Load, path, options)?;
        check_ours(path, &*options.vfs)?;
        Ok(opened)
    }

    /// From when this returns what is open is a store, whatever happens.
    ///
    /// # Errors
    /// What making everything durable answers, and removing the file that says that it is none.
    pub(crate) fn loaded(&self) -> Result<()> {
        self.flush()?;
        remove_marker(&*self.options().vfs, self.path())
    }
}

impl Door {
    /// Writes a transaction as another store had it: its metadata and its time as they are, each change in its
    /// place. It must get its revision, and each change its numbers, which is looked at before anything is
    /// written. Leases are not looked for, and nothing but the users' keys is written. It is durable after the
    /// next flush.
    ///
    /// Nobody else may write to the store meanwhile.
    ///
    /// # Errors
    /// `InvalidArgument` where something does not follow from what is there; whatever keeps the store from
    /// writing. Nothing was changed then.
    pub(crate) fn apply(&self, transaction: &Transaction) -> Result<()> {
        self.0.apply_given(transaction)
    }

    /// The newest revision, durable or not.
    pub(crate) fn applied_revision(&self) -> u64 {
        self.0.chain.applied().revision
    }

    /// Writes keys of the system's. It is durable after the next flush.
    ///
    /// # Errors
    /// Whatever keeps the store from writing.
    pub(crate) fn apply_system(&self, writes: &[Write<'_>]) -> Result<()> {
        self.0.transact(Some(Durability::Buffered), &mut |_, plan| {
            plan.writes.extend(writes.iter().cloned());
            Ok(!plan.writes.is_empty())
        })?;
        Ok(())
    }
}

impl Core {
    fn apply_given(self: &Arc<Self>, transaction: &Transaction) -> Result<()> {
        check_places(transaction)?;
        self.transact(Some(Durability::Buffered), &mut |snapshot, plan| {
            fill_in(transaction, snapshot, plan)?;
            Ok(true)
        })?;
        Ok(())
    }
}

/// Refuses changes that no transaction can have made.
fn check_places(transaction: &Transaction) -> Result<()> {
    let Transaction { revision, events, .. } = transaction;
    let what = if events.is_empty() {
        Some("changes nothing".to_owned())
    } else if let Some((at, event)) =
        (0..).zip(events).find(|(at, event)| u64::from(event.sub) != *at)
    {
        Some(format!("has its change {at} in place {}", event.sub))
    } else {
        let mut keys: Vec<&[u8]> = events.iter().map(|event| &event.key[..]).collect();
        keys.sort_unstable();
        let twice = keys.windows(2).find(|pair| pair[0] == pair[1]);
        twice.map(|pair| format!("changes {} twice", pair[0].escape_ascii()))
    };
    what.map_or(Ok(()), |what| {
        Err(Error::invalid(format!("the transaction of revision {revision} {what}")))
    })
}

/// What a transaction writes, if it follows what is there.
fn fill_in<'r>(
    transaction: &'r Transaction,
    snapshot: &Snapshot<'_>,
    plan: &mut Plan<'r>,
) -> Result<()> {
    let Transaction { revision, time, metadata, events } = transaction;
    let refuse = |what: String| {
        Err(Error::invalid(format!("the transaction of revision {revision} {what}")))
    };
    let last = snapshot.position();
    if last.revision + 1 != *revision {
        return refuse(format!("does not follow revision {}", last.revision));
    }
    if *time < last.time {
        return refuse(format!("has an earlier time, {time}, than the one before, {}", last.time));
    }
    plan.time = Some(*time);
    plan.metadata = metadata;
    for event in events {
        let mut key = InternalKey::with_capacity(event.key.len() + 1);
        key.push(space::USER);
        key.extend_from_slice(&event.key);
        let newest = snapshot.newest(&key)?;
        let alive = newest.filter(|stub| !stub.tombstone);
        let name = shown(&key);
        let kind = if event.delete {
            if alive.is_none() {
                return refuse(format!("deletes {name}, which is absent"));
            }
            WriteKind::Delete
        } else {
            let expected =
                alive.map_or((*revision, 1), |old| (old.create_revision, old.version + 1));
            let found = (event.create_revision, event.version);
            if expected != found {
                return refuse(format!(
                    "makes version {} of {name}, created at {}, where {} created at {} follows",
                    found.1, found.0, expected.1, expected.0
                ));
            }
            let Some(value) = &event.value else {
                return refuse(format!("has no value for {name}"));
            };
            WriteKind::Put { value: value[..].into(), lease: event.lease }
        };
        plan.reads.points.push(Point::new(key.clone(), newest));
        plan.writes.push(Write { key, kind });
    }
    Ok(())
}

/// A user's key for a message.
fn shown(key: &[u8]) -> String {
    key.get(1..).unwrap_or_default().escape_ascii().to_string()
}
