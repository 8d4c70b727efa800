//! A pinned store, written as a database.

use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use annals::{Change, ChangeKind, Transaction};
use annals_etcd_files::Lease;
use annals_etcd_files::proto::KeyValue;
use annals_etcd_files::write::{Bucket, DatabaseWriter, Meta, Sorter, encode_lease, revision_key};
use prost::Message as _;

use crate::auth::AuthSnapshot;
use crate::proto::etcdserverpb::AlarmMember;

use super::pin::{Leases, Pinned};
use super::{Error, Extras, Result, Summary};

/// Entries between two looks at whether the database is still wanted.
const ENTRIES_TOGETHER: u64 = 1024;

pub(super) fn write<W: Write + Seek>(
    pinned: Pinned,
    directory: &Path,
    out: W,
    extras: &Extras,
) -> Result<(W, Summary)> {
    let Pinned { revision, compacted, .. } = pinned;
    let database = DatabaseWriter::create(out)?;
    let mut making = Making { database, directory: directory.to_owned(), extras, versions: 0 };
    // While they are as they were; that takes less time than the keys.
    let leases = making.sorted_leases(&pinned.store, pinned.leases)?;
    let mut first = pinned.first;
    if let Some(base) = pinned.base {
        let at_base = first.take_if(|transaction| transaction.revision == compacted);
        let at_base = at_base.filter(|_| pinned.is_alive);
        making.base(&base, at_base)?;
    }
    for transaction in first.into_iter().map(Ok).chain(pinned.rest.into_iter().flatten()) {
        making.transaction(&transaction?)?;
    }
    let leases = making.leases(leases)?;
    making.alarms()?;
    if let Some(auth) = &extras.auth {
        making.auth(auth)?;
    }
    let Making { database, versions, .. } = making;
    let consistent_index = match extras.consistent_index {
        0 => revision,
        index => index,
    };
    let storage_version = extras.storage_version.clone();
    let meta = Meta { compacted, consistent_index, term: extras.term, storage_version };
    let (out, bytes) = database.finish(&meta)?;
    Ok((out, Summary { bytes, revision, compacted, versions, leases }))
}

/// A database in the making.
struct Making<'e, W: Write + Seek> {
    database: DatabaseWriter<W>,
    directory: PathBuf,
    extras: &'e Extras,
    versions: u64,
}

impl<W: Write + Seek> Making<'_, W> {
    fn sorter(&self) -> Sorter {
        let directory = self.directory.clone();
        Sorter::new(self.extras.sort_bytes, move || tempfile::tempfile_in(&directory))
    }

    /// Looks at whether the database is still wanted, now and then.
    fn check(&self, entries: u64) -> Result<()> {
        if entries.is_multiple_of(ENTRIES_TOGETHER) { self.extras.check() } else { Ok(()) }
    }

    /// What lived at the revision compacted to, and what was deleted there.
    fn base(&mut self, base: &annals::View, then: Option<Transaction>) -> Result<()> {
        let mut sorter = self.sorter();
        let mut message = Vec::new();
        for (count, kv) in (0..).zip(base.range(..)) {
            self.check(count)?;
            let kv = kv?;
            let sub = base.sub_of(&kv.key)?.unwrap_or_default();
            message.clear();
            KeyValue {
                key: &kv.key,
                create_revision: kv.create_revision,
                mod_revision: kv.mod_revision,
                version: kv.version,
                value: &kv.value,
                lease: kv.lease,
            }
            .encode(&mut message);
            sorter.push(revision_key(kv.mod_revision, sub, false).as_ref(), &message)?;
        }
        if let Some(Transaction { revision, changes, .. }) = then {
            for change in changes.iter().filter(|change| change.kind == ChangeKind::Delete) {
                message.clear();
                KeyValue { key: &change.key, ..KeyValue::default() }.encode(&mut message);
                sorter.push(revision_key(revision, change.sub, true).as_ref(), &message)?;
            }
        }
        sorter.finish(|key, value| {
            self.check(self.versions)?;
            self.versions += 1;
            self.database.put(key, value).map_err(Error::from)
        })
    }

    fn transaction(&mut self, transaction: &Transaction) -> Result<()> {
        let mod_revision = transaction.revision;
        for change in &transaction.changes {
            self.check(self.versions)?;
            self.versions += 1;
            let Change { key, sub, create_revision, version, lease, value, .. } = change;
            match change.kind {
                ChangeKind::Delete => self.database.deletion(key, mod_revision, *sub)?,
                ChangeKind::Put => {
                    let kv = KeyValue {
                        key,
                        create_revision: *create_revision,
                        mod_revision,
                        version: *version,
                        value: value.as_deref().unwrap_or_default(),
                        lease: *lease,
                    };
                    self.database.version(&kv, *sub)?;
                }
            }
        }
        Ok(())
    }

    /// The leases in the order in which etcd has them: with negative ids last.
    fn sorted_leases(&self, store: &annals::Store, leases: Leases) -> Result<Sorter> {
        let mut sorter = self.sorter();
        for (count, lease) in (0..).zip(leases) {
            self.check(count)?;
            let annals::Lease { id, ttl, .. } = lease?;
            // One that is gone meanwhile has keys here, and ends with them in all its time.
            let status = store.lease_time_to_live(id, false)?;
            let millis = status.map_or(u128::MAX, |status| status.remaining.as_millis());
            // Rounded up: no lease ends early. And 0 stands for all.
            let left = i64::try_from(millis.div_ceil(1000)).unwrap_or(i64::MAX).max(1);
            let remaining = if left < ttl { left } else { 0 };
            let (key, value) = encode_lease(&Lease { id, ttl, remaining });
            sorter.push(&key, &value)?;
        }
        Ok(sorter)
    }

    fn leases(&mut self, sorted: Sorter) -> Result<u64> {
        let mut count = 0;
        self.database.bucket(Bucket::Lease)?;
        sorted.finish(|key, value| {
            count += 1;
            self.database.put(key, value).map_err(Error::from)
        })?;
        Ok(count)
    }

    fn alarms(&mut self) -> Result<()> {
        let mut alarms: Vec<_> =
            self.extras.alarms.iter().map(AlarmMember::encode_to_vec).collect();
        alarms.sort();
        alarms.dedup();
        self.database.bucket(Bucket::Alarm)?;
        alarms.iter().try_for_each(|alarm| self.database.put(alarm, b"").map_err(Error::from))
    }

    fn auth(&mut self, auth: &AuthSnapshot) -> Result<()> {
        let AuthSnapshot { enabled, revision, users, roles } = auth;
        self.database.bucket(Bucket::Auth)?;
        self.database.put(b"authEnabled", &[u8::from(*enabled)])?;
        self.database.put(b"authRevision", &revision.to_be_bytes())?;
        self.database.bucket(Bucket::AuthUsers)?;
        let mut users: Vec<_> = users.iter().collect();
        users.sort_by(|a, b| a.name.cmp(&b.name));
        for user in users {
            self.database.put(&user.name, &user.encode_to_vec())?;
        }
        self.database.bucket(Bucket::AuthRoles)?;
        let mut roles: Vec<_> = roles.iter().collect();
        roles.sort_by(|a, b| a.name.cmp(&b.name));
        for role in roles {
            self.database.put(&role.name, &role.encode_to_vec())?;
        }
        Ok(())
    }
}
