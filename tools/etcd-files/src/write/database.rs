//! The buckets of an etcd's database, and what etcd expects in them.
//!
//! All that an etcd makes are there, if empty, as it and its tools ask for some without looking. Of what they hold,
//! see `snapshot.rs`; and:
//!
//! ```text
//! meta    consistent_index -> index:u64    term -> term:u64    (big-endian; the term is of etcd 3.5 and newer)
//!         storageVersion -> "3.6.0"        (of etcd 3.6 and newer)
//! auth    authEnabled -> 0 or 1            authRevision -> revision:u64
//! alarm   AlarmMember -> nothing
//! authUsers, authRoles    name -> authpb.User, authpb.Role
//! ```

use std::io::{Seek, Write};

use crate::proto::{KeyValue, write_bytes, write_number};
use crate::{Lease, Result};

use super::BoltWriter;

const REVISION_BYTES: usize = 17;

/// A bucket of etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bucket {
    /// Alarms.
    Alarm,
    /// Whether there is authentication.
    Auth,
    /// Roles.
    AuthRoles,
    /// Users.
    AuthUsers,
    /// The version of the cluster.
    Cluster,
    /// Versions of keys.
    Key,
    /// Leases.
    Lease,
    /// Members.
    Members,
    /// Members that were.
    MembersRemoved,
    /// About the database.
    Meta,
}

impl Bucket {
    const ALL: [Self; 10] = [
        Self::Alarm,
        Self::Auth,
        Self::AuthRoles,
        Self::AuthUsers,
        Self::Cluster,
        Self::Key,
        Self::Lease,
        Self::Members,
        Self::MembersRemoved,
        Self::Meta,
    ];

    /// Its name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alarm => "alarm",
            Self::Auth => "auth",
            Self::AuthRoles => "authRoles",
            Self::AuthUsers => "authUsers",
            Self::Cluster => "cluster",
            Self::Key => "key",
            Self::Lease => "lease",
            Self::Members => "members",
            Self::MembersRemoved => "members_removed",
            Self::Meta => "meta",
        }
    }
}

/// What a database says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "it is made by who writes a file")]
pub struct Meta {
    /// The revision compacted to; 0 if never.
    pub compacted: u64,
    /// The index of the last entry of the log that is in it.
    pub consistent_index: u64,
    /// The term of that; 0 to leave it out, as an etcd 3.4 does.
    pub term: u64,
    /// The version of what is stored, as `3.6.0`; empty to leave it out, as an etcd before 3.6 does.
    pub storage_version: String,
}

/// The key of a version: 17 bytes, and one more if it is a deletion. They ascend as revisions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RevisionKey {
    bytes: [u8; REVISION_BYTES + 1],
    length: usize,
}

impl AsRef<[u8]> for RevisionKey {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// The key of a version: the revision of the transaction, the place in it, and whether it is a deletion.
pub fn revision_key(main: u64, sub: u32, deleted: bool) -> RevisionKey {
    let mut bytes = [b'_'; REVISION_BYTES + 1];
    let parts = main.to_be_bytes().into_iter().chain([b'_']).chain(u64::from(sub).to_be_bytes());
    bytes.iter_mut().zip(parts.chain([b't'])).for_each(|(byte, part)| *byte = part);
    RevisionKey { bytes, length: REVISION_BYTES + usize::from(deleted) }
}

/// The element of a lease in its bucket. Its keys ascend as unsigned numbers do.
pub fn encode_lease(lease: &Lease) -> ([u8; 8], Vec<u8>) {
    let Lease { id, ttl, remaining } = *lease;
    let mut message = Vec::new();
    for (field, number) in [(1, id), (2, ttl), (3, remaining)] {
        write_number(&mut message, field, number.cast_unsigned());
    }
    (id.to_be_bytes(), message)
}

/// An etcd's database in the making.
///
/// It begins with the bucket of keys, to which versions are added in the order of their revisions; then come the
/// other buckets, in any order.
///
/// ```
/// use annals_etcd_files::proto::KeyValue;
/// use annals_etcd_files::write::{DatabaseWriter, Meta};
/// use annals_etcd_files::Snapshot;
/// use std::io::Cursor;
///
/// let mut database = DatabaseWriter::create(Cursor::new(Vec::new()))?;
/// let kv = KeyValue { key: b"k", value: b"v", create_revision: 2, mod_revision: 2, version: 1, lease: 0 };
/// database.version(&kv, 0)?;
/// database.deletion(b"k", 3, 0)?;
/// let (file, _) = database.finish(&Meta { consistent_index: 5, term: 1, ..Meta::default() })?;
/// let file = file.into_inner();
/// let snapshot = Snapshot::open(&file[..])?;
/// assert_eq!(snapshot.consistent_index(), Some(5));
/// # Ok::<(), annals_etcd_files::Error>(())
/// ```
#[derive(Debug)]
pub struct DatabaseWriter<W: Write + Seek> {
    bolt: BoltWriter<W>,
    begun: Vec<Bucket>,
    message: Vec<u8>,
}

impl<W: Write + Seek> DatabaseWriter<W> {
    /// Begins a database at offset 0 of `out`.
    ///
    /// # Errors
    /// What the system answers.
    pub fn create(out: W) -> Result<Self> {
        let bolt = BoltWriter::create(out)?;
        let mut database = Self { bolt, begun: Vec::new(), message: Vec::new() };
        database.bucket(Bucket::Key)?;
        Ok(database)
    }

    /// Adds a version of a key.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn version(&mut self, kv: &KeyValue<'_>, sub: u32) -> Result<()> {
        self.message.clear();
        kv.encode(&mut self.message);
        self.bolt.put(revision_key(kv.mod_revision, sub, false).as_ref(), &self.message)
    }

    /// Adds the deletion of a key.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn deletion(&mut self, key: &[u8], main: u64, sub: u32) -> Result<()> {
        self.message.clear();
        write_bytes(&mut self.message, 1, key);
        self.bolt.put(revision_key(main, sub, true).as_ref(), &self.message)
    }

    /// Adds an element to the bucket that was begun last, as it is.
    ///
    /// # Errors
    /// The key is not after the one before, or key or value are too long; what the system answers.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.bolt.put(key, value)
    }

    /// Begins another bucket.
    ///
    /// # Errors
    /// It has begun before; what the system answers.
    pub fn bucket(&mut self, bucket: Bucket) -> Result<()> {
        self.begun.push(bucket);
        self.bolt.bucket(bucket.name().as_bytes())
    }

    /// Ends the database, with the bucket [`Bucket::Meta`] and those that are empty. Answers what it was written
    /// to, and how many bytes it has.
    ///
    /// # Errors
    /// What the system answers.
    pub fn finish(mut self, meta: &Meta) -> Result<(W, u64)> {
        for bucket in Bucket::ALL {
            if self.begun.contains(&bucket) {
                continue;
            }
            self.bucket(bucket)?;
            if bucket == Bucket::Meta {
                self.meta(meta)?;
            }
        }
        self.bolt.finish()
    }

    fn meta(&mut self, meta: &Meta) -> Result<()> {
        self.put(b"consistent_index", &meta.consistent_index.to_be_bytes())?;
        let compacted = revision_key(meta.compacted, 0, false);
        if meta.compacted > 0 {
            self.put(b"finishedCompactRev", compacted.as_ref())?;
            self.put(b"scheduledCompactRev", compacted.as_ref())?;
        }
        if !meta.storage_version.is_empty() {
            self.put(b"storageVersion", meta.storage_version.as_bytes())?;
        }
        if meta.term > 0 {
            self.put(b"term", &meta.term.to_be_bytes())?;
        }
        Ok(())
    }
}
