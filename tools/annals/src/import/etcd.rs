//! `import etcd`: a snapshot of an etcd, at the same revisions.
//!
//! The file has every version by revision. What is not above the revision compacted to makes up the base: a
//! first walk notes where the newest version of each key lies, and the versions are then read again in the
//! order of the keys. Memory: about 100 bytes and the key for each key that lived there, and one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::SystemTime;

use annals::{
    Change, ChangeKind, ErrorKind, KeyValue, KvHash, Load, Loading, Options, Origin, Store,
    Transaction,
};
use annals_etcd::bolt::Place;
use annals_etcd::{Entry, Snapshot, Version};
use bytes::Bytes;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::args::Global;
use crate::at::At;
use crate::exit::{Failure, Outcome, say};
use crate::output::Output;
use crate::progress::Progress;

/// How many revisions that are missing are filled at most.
const FILLED_MAX: u64 = 10_000_000;

/// Arguments of `import etcd`.
#[derive(Debug, Args)]
#[command(
    after_help = "FILE is what `etcdctl snapshot save` writes, or a copy of member/snap/db of an etcd that is not
running. The store is new; it has every revision, version and lease that the file has, and what was
compacted there is compacted here. The store is made only if all of it was read and written: until
then the directory is no store, and to be removed after a failure.

With --hash, the hash has to be that of the store, or there is none: what etcd answers to
`etcdctl endpoint hashkv` (with the same newest revision).

etcd does not keep times: all transactions get that of the file's last change, or --time.

Revisions can be missing, where an etcd was restored with --bump-revision. --gaps raise forgets what
was before the last that is missing; --gaps fill=KEY puts an empty value of KEY at each instead.

Examples:
  $ annals -C moved import etcd snapshot.db
  $ annals -C again import etcd snapshot.db --hash 3572163927 --time 2026-11-22T05:00:00Z"
)]
pub(crate) struct EtcdArgs {
    /// The snapshot, or database file.
    file: PathBuf,
    /// The hash that the store must have at its newest revision.
    #[arg(long, value_name = "HASH")]
    hash: Option<u32>,
    /// The time of all transactions, as RFC 3339.
    #[arg(long, value_name = "TIME")]
    time: Option<At>,
    /// What to do about revisions that are missing: refuse, raise or fill=KEY.
    #[arg(long, value_name = "refuse|raise|fill=KEY", default_value = "refuse")]
    gaps: Gaps,
}

/// What becomes of revisions that are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Gaps {
    Refuse,
    Raise,
    Fill(Bytes),
}

impl FromStr for Gaps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("fill=")) {
            ("refuse", _) => Ok(Self::Refuse),
            ("raise", _) => Ok(Self::Raise),
            (_, Some(key)) if !key.is_empty() => {
                Ok(Self::Fill(Bytes::copy_from_slice(key.as_bytes())))
            }
            _ => Err("expected refuse, raise or fill=KEY".into()),
        }
    }
}

/// Why an import stops.
#[derive(Debug)]
enum Stop {
    File(annals_etcd::Error),
    Failure(Failure),
}

impl From<annals_etcd::Error> for Stop {
    fn from(error: annals_etcd::Error) -> Self {
        Self::File(error)
    }
}

impl From<annals::Error> for Stop {
    fn from(error: annals::Error) -> Self {
        Self::Failure(error.into())
    }
}

impl Stop {
    /// With the name of the file, where it is about that.
    fn about(self, file: &str) -> Failure {
        match self {
            Self::File(annals_etcd::Error::Io { error, .. }) => Failure::io(file, error),
            Self::File(error) => Failure::Other(format!("{file}: {error}")),
            Self::Failure(failure) => failure,
        }
    }
}

fn refused<T>(what: String) -> Result<T, Stop> {
    Err(Stop::Failure(Failure::Other(what)))
}

/// `import etcd`: a store out of a snapshot.
pub(super) fn import(global: &Global, args: &EtcdArgs, out: &mut Output) -> Outcome {
    let name = args.file.display().to_string();
    let io = |error| Failure::io(&*name, error);
    let file = File::open(&args.file).map_err(io)?;
    let time = match args.time {
        Some(At::Time(time)) => time,
        Some(_) => return Err(Failure::Usage("--time takes a time".into())),
        None => {
            let changed = file.metadata().and_then(|metadata| metadata.modified()).map_err(io)?;
            let since = changed.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
        }
    };
    // Leases do not end before the store is in use.
    let options = super::options(global)?.lease_expiry(false);
    let snapshot = Snapshot::open(file).map_err(|error| Stop::from(error).about(&name))?;
    if !snapshot.is_checked() {
        say(format!("{name} has no checksum: it is taken as the database file of a server"));
    }
    let import = Import::new(&snapshot, args, global, (options, time));
    let (store, summary) = import.and_then(Import::run).map_err(|stop| stop.about(&name))?;
    super::close(store)?;
    out.object(&Value::Object(summary))
}

/// The newest version of a key at the revision compacted to.
struct Newest {
    place: Place,
    deleted: bool,
}

struct Import<'a> {
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
    leases: BTreeSet<i64>,
    /// Leases of keys that are not there.
    absent: BTreeSet<i64>,
    transactions: u64,
    skipped: u64,
    twice: u64,
    filled: u64,
    /// The first revision that was filled.
    filled_since: Option<u64>,
    progress: Progress,
}

impl<'a> Import<'a> {
    fn new(
        snapshot: &'a Snapshot<File>,
        args: &'a EtcdArgs,
        global: &'a Global,
        (options, time): (Options, i64),
    ) -> Result<Self, Stop> {
        let mut compacted = snapshot.compacted();
        if args.gaps == Gaps::Raise {
            compacted = above_gaps(snapshot)?;
        }
        // Before revision 2 there is nothing.
        let compacted = if compacted < 2 { 0 } else { compacted };
        let mut leases = BTreeSet::new();
        snapshot.leases::<annals_etcd::Error>(|lease| {
            leases.insert(lease.id);
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
            leases,
            absent: BTreeSet::new(),
            transactions: 0,
            skipped: 0,
            twice: 0,
            filled: 0,
            filled_since: None,
            progress: Progress::new(None, "revisions"),
        })
    }

    fn run(mut self) -> Result<(Store, Map<String, Value>), Stop> {
        let snapshot = self.snapshot;
        snapshot.entries::<Stop>(|entry| self.entry(entry))?;
        self.transaction()?;
        let last = self.last;
        let mut loading = self.take_loading()?;
        self.fill_up_to(&mut loading, last + 1)?;
        let mut leases = 0_u64;
        snapshot.leases::<Stop>(|lease| {
            let left = u64::try_from(lease.remaining).ok().filter(|left| *left > 0);
            let added =
                loading.lease(lease.id, lease.ttl, left.map(|left| left.saturating_mul(1000)));
            match added {
                Ok(()) => leases += 1,
                // etcd grants no such lease.
                Err(_) => self.skipped += 1,
            }
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
            ("compacted", hash.compacted, true),
            ("keys", keys, true),
            ("transactions", self.transactions, true),
            ("leases", leases, true),
            ("entries_skipped", self.skipped, false),
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

    fn check(&self, found: KvHash) -> Result<(), Stop> {
        match self.args.hash {
            Some(expected) if expected != found.hash => refused(format!(
                "the hash as of revision {} is {}, not {expected}: there is no store, remove {}",
                found.revision,
                found.hash,
                self.global.data.as_deref().unwrap_or(&self.args.file).display()
            )),
            _ => Ok(()),
        }
    }

    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), Stop> {
        self.last = self.last.max(entry.main);
        let Some(version) = entry.version.filter(|version| !version.key().is_empty()) else {
            self.skipped += 1;
            return Ok(());
        };
        if let Version::Put(kv) = &version
            && kv.lease != 0
            && !self.leases.contains(&kv.lease)
        {
            self.absent.insert(kv.lease);
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
                _ if newest.deleted => load.base_deleted(key, sub)?,
                Some((mod_revision, change)) if change.key == key => {
                    let Change { key, create_revision, version, lease, value, .. } = change;
                    let value = value.unwrap_or_default();
                    let kv = KeyValue { key, value, create_revision, mod_revision, version, lease };
                    load.base(&kv, sub)?;
                }
                _ => return refused("the file has changed while it was read".to_owned()),
            }
        }
        Ok(load.begin()?)
    }

    /// Writes the transaction that has been read.
    fn transaction(&mut self) -> Result<(), Stop> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let mut loading = self.take_loading()?;
        let changes = std::mem::take(&mut self.changes);
        let changes = self.once_each(changes);
        if !changes.is_empty() {
            self.fill_up_to(&mut loading, self.revision)?;
            self.write(&mut loading, changes)?;
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
        done.map_err(|error| match error.kind() {
            // It is the file that is wrong, not the command line.
            ErrorKind::InvalidArgument { .. } => {
                Stop::Failure(Failure::about(self.args.file.display().to_string(), error))
            }
            _ => error.into(),
        })
    }

    /// The changes of a transaction, of each key the last: etcd lets a nested transaction change a key again.
    fn once_each(&mut self, mut changes: Vec<Change>) -> Vec<Change> {
        let mut last = BTreeMap::new();
        for (at, change) in changes.iter().enumerate() {
            // A key that it made and deleted was never there.
            let made = change.kind == ChangeKind::Put && change.create_revision == self.revision;
            let entry = last.entry(change.key.clone()).or_insert((at, made));
            entry.0 = at;
        }
        if last.len() < changes.len() {
            self.twice += (changes.len() - last.len()) as u64;
            let mut at = 0..;
            changes.retain(|change| {
                let kept = last.get(&change.key);
                let made_before = kept.is_some_and(|(_, made)| *made);
                let gone = change.kind == ChangeKind::Delete && made_before;
                at.next() == kept.map(|(at, _)| *at) && !gone
            });
        }
        for (sub, change) in (0..).zip(&mut changes) {
            change.sub = sub;
        }
        changes
    }

    /// Does what is said about revisions that are missing before one.
    fn fill_up_to(&mut self, loading: &mut Loading, revision: u64) -> Result<(), Stop> {
        let first = loading.revision() + 1;
        if first >= revision {
            return Ok(());
        }
        let missing = revision - first;
        let Gaps::Fill(key) = self.args.gaps.clone() else {
            return refused(format!(
                "{}: nothing has revision {first}, though there are later ones, and all from the one compacted \
                 to on should be there: see --gaps",
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

/// The revision to compact to so that all after it are there.
fn above_gaps(snapshot: &Snapshot<File>) -> Result<u64, Stop> {
    let mut compacted = snapshot.compacted();
    let mut before = compacted.max(1);
    let mut last = before;
    snapshot.entries::<annals_etcd::Error>(|entry| {
        last = last.max(entry.main);
        let is_there = entry.version.is_some_and(|version| !version.key().is_empty());
        if is_there && entry.main > before {
            if entry.main > before + 1 {
                compacted = entry.main - 1;
            }
            before = entry.main;
        }
        Ok(())
    })?;
    Ok(if last > before { last } else { compacted })
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
        Version::Delete { .. } => Change {
            kind: ChangeKind::Delete,
            key,
            sub: 0,
            create_revision: 0,
            version: 0,
            lease: 0,
            value: None,
        },
    }
}
