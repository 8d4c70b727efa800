//! Making the store: the base, the transactions, the leases.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use annals::{
    Change, ChangeKind, ErrorKind, KeyValue, KvHash, LEASE_TTL_MAX, Load, Loading, Options, Origin,
    Store, Transaction,
};
use annals_etcd_files::bolt::Place;
use annals_etcd_files::{Entry, Snapshot, Version};
use annals_format::limits::{KEY_BYTES_DEFAULT, KEY_BYTES_MAX, NUMBER_MAX, VALUE_BYTES_DEFAULT};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::args::Global;
use crate::exit::{Failure, say};
use crate::progress::Progress;

use super::super::deletion;
use super::survey::{above_gaps, once_each, without};
use super::{EtcdArgs, Gaps, Stop, refused};

/// How many revisions that are missing are filled at most.
const FILLED_MAX: u64 = 10_000_000;

/// The newest version of a key at the revision compacted to.
struct Newest {
    place: Place,
    deleted: bool,
}

pub(super) struct Import<'a> {
    snapshot: &'a Snapshot<File>,
    args: &'a EtcdArgs,
    global: &'a Global,
    options: Options,
    time: i64,
    /// The revision that the store is compacted to.
    compacted: u64,
    base: BTreeMap<Vec<u8>, Newest>,
    loading: Option<Loading>,
    /// The transaction that is being read.
    revision: u64,
    changes: Vec<Change>,
    /// The last revision in the file, whether there was anything at it or not.
    last: u64,
    /// The first revision after the last transaction that is in the file and changes nothing, and why.
    idle: Option<(u64, &'static str)>,
    /// Leases that there will be.
    leases: BTreeSet<i64>,
    leases_skipped: u64,
    leases_shortened: u64,
    /// Leases of keys that are not there.
    absent: BTreeSet<i64>,
    transactions: u64,
    longest_key: u64,
    longest_value: u64,
    skipped: u64,
    twice: u64,
    filled: u64,
    /// The first revision that was filled.
    filled_since: Option<u64>,
    progress: Progress,
}

impl<'a> Import<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot<File>,
        args: &'a EtcdArgs,
        global: &'a Global,
        (options, time): (Options, i64),
    ) -> Result<Self, Stop> {
        let compacted = match &args.gaps {
            Gaps::Raise => above_gaps(snapshot)?,
            Gaps::Fill(key) => {
                without(snapshot, key)?;
                snapshot.compacted()
            }
            Gaps::Refuse => snapshot.compacted(),
        };
        if compacted > NUMBER_MAX / 2 {
            let what =
                format!("compacted to {compacted}, which is no revision that an etcd comes to");
            return Err(Stop::Failure(Failure::DamagedFile(format!(
                "{}: {what}",
                args.file.display()
            ))));
        }
        // Before revision 2 there is nothing.
        let compacted = if compacted < 2 { 0 } else { compacted };
        let mut leases = BTreeSet::new();
        let mut leases_skipped = 0;
        snapshot.leases::<annals_etcd_files::Error>(|lease| {
            // etcd grants no such lease, so a file that has one is damaged.
            if lease.id == 0 || lease.ttl < 1 {
                leases_skipped += 1;
            } else {
                leases.insert(lease.id);
            }
            Ok(())
        })?;
        Ok(Self {
            snapshot,
            args,
            global,
            options,
            time,
            compacted,
            base: BTreeMap::new(),
            loading: None,
            revision: 0,
            changes: Vec::new(),
            last: compacted,
            idle: None,
            leases,
            leases_skipped,
            leases_shortened: 0,
            absent: BTreeSet::new(),
            transactions: 0,
            longest_key: 0,
            longest_value: 0,
            skipped: 0,
            twice: 0,
            filled: 0,
            filled_since: None,
            progress: Progress::new(None, "revisions"),
        })
    }

    /// Makes the store. What is there if that fails is no store.
    pub(super) fn run(&mut self) -> Result<(Store, Map<String, Value>), Stop> {
        let snapshot = self.snapshot;
        snapshot.entries::<Stop>(|entry| self.entry(entry))?;
        self.transaction()?;
        let last = self.last;
        let mut loading = self.take_loading()?;
        self.fill_up_to(&mut loading, last + 1)?;
        let mut leases = 0_u64;
        snapshot.leases::<Stop>(|lease| {
            if !self.leases.contains(&lease.id) {
                return Ok(());
            }
            self.leases_shortened += u64::from(lease.ttl > LEASE_TTL_MAX);
            let left = u64::try_from(lease.remaining).ok().filter(|left| *left > 0);
            let left = left.map(|left| left.saturating_mul(1000));
            let ttl = lease.ttl.min(LEASE_TTL_MAX);
            loading.lease(lease.id, ttl, left).map_err(|error| self.about(None, error))?;
            leases += 1;
            Ok(())
        })?;
        let hash = loading.hash()?;
        self.check(hash)?;
        let store = loading.finish()?;
        let view = store.latest()?;
        let keys = view.count(..)?;
        let mut unattached = 0_u64;
        if !self.absent.is_empty() {
            for kv in view.range(..).keys_only() {
                unattached += u64::from(self.absent.contains(&kv?.lease));
            }
        }
        drop(view);
        let mut summary = Map::new();
        for (name, number, always) in [
            ("revision", hash.revision, true),
            ("compacted_revision", hash.compacted, true),
            ("keys", keys, true),
            ("transactions", self.transactions, true),
            ("leases", leases, true),
            ("entries_skipped", self.skipped, false),
            ("leases_skipped", self.leases_skipped, false),
            ("leases_shortened", self.leases_shortened, false),
            ("changes_of_one_key_in_one_transaction", self.twice, false),
            ("revisions_filled", self.filled, false),
            ("keys_with_absent_leases", unattached, false),
            ("hash", hash.hash.into(), true),
        ] {
            if always || number > 0 {
                summary.insert(name.to_owned(), json!(number));
            }
        }
        Ok((store, summary))
    }

    /// Says what is not as it is in the file.
    pub(super) fn tell(&self) {
        for (number, what) in [
            (
                self.skipped,
                "revision(s) without a change, as etcdutl makes with --bump-revision: skipped",
            ),
            (
                self.leases_skipped,
                "lease(s) with the id 0 or a time to live below 1, which no etcd grants: skipped, and their keys stay",
            ),
            (
                self.leases_shortened,
                "lease(s) with a longer time to live than there is: they have the longest",
            ),
        ] {
            if number > 0 {
                say(format!("{number} {what}"));
            }
        }
        for (what, longest, option, default) in [
            ("key", self.longest_key, "key_bytes_max", KEY_BYTES_DEFAULT),
            ("value", self.longest_value, "value_bytes_max", VALUE_BYTES_DEFAULT),
        ] {
            if longest > default {
                say(format!(
                    "the longest {what} has {longest} bytes: to write it, -O {option}={longest}"
                ));
            }
        }
    }

    fn check(&self, found: KvHash) -> Result<(), Stop> {
        let KvHash { revision, hash, .. } = found;
        let Some(expected) = self.args.hash.filter(|expected| *expected != hash) else {
            return Ok(());
        };
        let is_raised = self.args.gaps == Gaps::Raise && self.compacted > self.snapshot.compacted();
        let other = match () {
            () if self.twice > 0 => "a key was changed twice in a transaction, which is once here",
            () if self.filled > 0 => "missing revisions were filled",
            () if is_raised => "it is compacted to another revision",
            () if self.skipped > 0 => "a revision without a change is in that of etcd",
            () => "",
        };
        let other = match other {
            "" => String::new(),
            why => format!(". It cannot be the same, as {why}: import without --hash"),
        };
        refused(format!("the hash as of revision {revision} is {hash}, not {expected}{other}"))
    }

    /// An error about what the file has: that is wrong, not the command line.
    fn about(&self, revision: Option<u64>, error: annals::Error) -> Stop {
        let name = self.args.file.display();
        let name = revision
            .map_or_else(|| name.to_string(), |revision| format!("{name}: revision {revision}"));
        let failure = match error.kind() {
            // No etcd has it.
            ErrorKind::InvalidArgument { .. } | ErrorKind::EmptyKey => {
                Failure::DamagedFile(format!("{name}: {error}"))
            }
            _ if Failure::from(error.clone()).code() == 2 => Failure::about(name, error),
            _ => error.into(),
        };
        Stop::Failure(failure)
    }

    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), Stop> {
        self.last = self.last.max(entry.main);
        if entry.main > NUMBER_MAX / 2 {
            let what = format!("revision {}, which no etcd comes to", entry.main);
            return Err(entry.refused(what).into());
        }
        let Some(version) = entry.version else {
            self.skipped += 1;
            if entry.main > self.compacted {
                self.transaction()?;
                self.idle.get_or_insert((entry.main, "has no change in the file"));
            }
            return Ok(());
        };
        let key_bytes = version.key().len() as u64;
        if key_bytes > KEY_BYTES_MAX {
            let revision = entry.main;
            return Err(Stop::NotTaken(entry.refused(format!(
                "a key of {key_bytes} bytes at revision {revision}: the most that a store takes is {KEY_BYTES_MAX}"
            ))));
        }
        self.longest_key = self.longest_key.max(key_bytes);
        if let Version::Put(kv) = &version {
            self.longest_value = self.longest_value.max(kv.value.len() as u64);
            if kv.lease != 0 && !self.leases.contains(&kv.lease) {
                self.absent.insert(kv.lease);
            }
        }
        if entry.main <= self.compacted {
            let deleted = matches!(version, Version::Delete { .. });
            if deleted && entry.main < self.compacted {
                self.base.remove(version.key());
            } else {
                self.base.insert(version.key().to_vec(), Newest { place: entry.place, deleted });
            }
            return Ok(());
        }
        if entry.main != self.revision {
            self.transaction()?;
            self.revision = entry.main;
        }
        self.changes.push(change(&version));
        Ok(())
    }

    /// The store as far as it has come; with the base, if it has not begun.
    fn take_loading(&mut self) -> Result<Loading, Stop> {
        if let Some(loading) = self.loading.take() {
            return Ok(loading);
        }
        let origin = Origin { time: self.time, ..Origin::default() };
        let mut load = Load::create(
            self.global.data().map_err(Stop::Failure)?,
            &self.options,
            self.compacted,
            &origin,
        )?;
        for (key, newest) in std::mem::take(&mut self.base) {
            let (sub, kv) = self.snapshot.again(newest.place, |entry| {
                let kv = entry.version.map(|version| change(&version));
                Ok((entry.sub, kv.map(|change| (entry.main, change))))
            })?;
            match kv {
                _ if newest.deleted => {
                    let done = load.base_deleted(key, sub);
                    done.map_err(|error| self.about(None, error))?;
                }
                Some((mod_revision, change)) if change.key == key => {
                    let Change { key, create_revision, version, lease, value, .. } = change;
                    let value = value.unwrap_or_default();
                    let kv = KeyValue { key, value, create_revision, mod_revision, version, lease };
                    load.base(&kv, sub).map_err(|error| self.about(None, error))?;
                }
                _ => return refused("the file has changed while it was read".to_owned()),
            }
        }
        load.begin().map_err(|error| self.about(None, error))
    }

    /// Writes the transaction that has been read.
    fn transaction(&mut self) -> Result<(), Stop> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let mut loading = self.take_loading()?;
        let changes = std::mem::take(&mut self.changes);
        let (changes, again) = once_each(self.revision, changes);
        self.twice += again;
        if changes.is_empty() {
            self.idle.get_or_insert((
                self.revision,
                "makes and deletes the same keys, so it changes nothing",
            ));
        } else {
            self.fill_up_to(&mut loading, self.revision)?;
            self.write(&mut loading, changes)?;
            self.idle = None;
            self.transactions += 1;
            self.progress.set(self.revision, || "".into());
        }
        self.loading = Some(loading);
        Ok(())
    }

    fn write(&self, loading: &mut Loading, changes: Vec<Change>) -> Result<(), Stop> {
        let revision = loading.revision() + 1;
        let (time, metadata) = (self.time, Bytes::new());
        let done = loading.transaction(&Transaction { revision, time, metadata, changes });
        done.map_err(|error| {
            // This kind names the revision itself.
            let is_named = matches!(error.kind(), ErrorKind::InvalidArgument { .. });
            self.about((!is_named).then_some(revision), error)
        })
    }

    /// Does what is said about revisions that are missing before one.
    fn fill_up_to(&mut self, loading: &mut Loading, revision: u64) -> Result<(), Stop> {
        let first = loading.revision() + 1;
        if first >= revision {
            return Ok(());
        }
        let missing = revision - first;
        let Gaps::Fill(key) = self.args.gaps.clone() else {
            let found = match self.idle {
                Some((revision, why)) if revision == first => format!("revision {first} {why}"),
                _ => format!("nothing has revision {first}, though there are later ones"),
            };
            return refused(format!(
                "{}: {found}; from the one compacted to on each should change something: see --gaps",
                self.args.file.display()
            ));
        };
        if missing > FILLED_MAX - self.filled.min(FILLED_MAX) {
            return refused(format!(
                "{missing} revisions from {first} on are too many to fill: see --gaps"
            ));
        }
        for at in first..revision {
            let change = Change {
                kind: ChangeKind::Put,
                key: key.clone(),
                sub: 0,
                create_revision: *self.filled_since.get_or_insert(at),
                version: self.filled + 1,
                lease: 0,
                value: Some(Bytes::new()),
            };
            self.write(loading, vec![change])?;
            self.filled += 1;
        }
        Ok(())
    }
}

fn change(version: &Version<'_>) -> Change {
    let key = Bytes::copy_from_slice(version.key());
    match version {
        Version::Put(kv) => Change {
            kind: ChangeKind::Put,
            key,
            sub: 0,
            create_revision: kv.create_revision,
            version: kv.version,
            lease: kv.lease,
            value: Some(Bytes::copy_from_slice(kv.value)),
        },
        Version::Delete { .. } => deletion(key),
    }
}
