//! What etcd's buckets hold.
//!
//! ```text
//! key    main:u64 "_" sub:u64 ["t"]  ->  KeyValue        big-endian; t: the key was deleted, of which only the key is said
//! lease  id:u64                      ->  Lease
//! auth   authEnabled                        ->  1 if users are asked for;    authUsers, authRoles  one each by name
//! meta   scheduledCompactRev, finishedCompactRev  ->  main:u64 "_" sub:u64;    consistent_index  ->  index:u64
//! ```
//!
//! A snapshot ends with the SHA-256 of all before it; the file of a server does not. Their lengths tell them
//! apart, as pages are multiples of 512 bytes.

use sha2::{Digest as _, Sha256};

use crate::bolt::{Bolt, Bucket, Item, Place};
use crate::proto::{KeyValue, decode_lease};
use crate::{Error, Result, Source};

const DIGEST_BYTES: usize = 32;
const PIECE_BYTES: u64 = 1 << 20;
const REVISION_BYTES: usize = 17;
/// The first revision at which anything changes: a database begins at the one before.
const FIRST: u64 = 2;

/// The database of an etcd.
#[derive(Debug)]
pub struct Snapshot<S> {
    bolt: Bolt<S>,
    keys: Option<Bucket>,
    leases: Option<Bucket>,
    auth: Option<Bucket>,
    users: Option<Bucket>,
    roles: Option<Bucket>,
    compacted: u64,
    index: Option<u64>,
    checked: bool,
}

/// One version of a key, or its deletion.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The revision of the transaction.
    pub main: u64,
    /// The place in the transaction.
    pub sub: u32,
    /// What it says; `None` of a revision in which nothing happened, but that `etcdutl` made for the revisions
    /// to go on from there (`--bump-revision`). There is no other entry of that revision.
    pub version: Option<Version<'a>>,
    /// Where it lies.
    pub place: Place,
    /// The page and the offset in the file, for a refusal.
    at: (u64, u64),
}

impl Entry<'_> {
    /// A refusal of this entry.
    pub fn refused(&self, what: impl Into<String>) -> Error {
        Error::refused(self.at.0, self.at.1, what)
    }
}

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is nothing else")]
pub enum Version<'a> {
    /// The key has this value from now on.
    Put(KeyValue<'a>),
    /// The key was deleted.
    Delete {
        /// The key.
        key: &'a [u8],
    },
}

impl<'a> Version<'a> {
    /// The key.
    pub fn key(&self) -> &'a [u8] {
        match self {
            Self::Put(kv) => kv.key,
            Self::Delete { key } => key,
        }
    }
}

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the message has these fields")]
pub struct Lease {
    /// Its id.
    pub id: i64,
    /// Its time to live in seconds.
    pub ttl: i64,
    /// What was left of it in seconds when that was last written down; 0 for all.
    pub remaining: i64,
}

/// How many may do what, and whether that is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing else")]
pub struct Users {
    /// Whether there is authentication.
    pub enabled: bool,
    /// How often users and roles have changed, and one; 0 where it is not said.
    pub revision: u64,
    /// Users.
    pub users: u64,
    /// Roles.
    pub roles: u64,
}

/// A user or a role.
#[derive(Clone, Copy, Debug)]
pub struct Rule<'a> {
    /// Which of both.
    pub kind: RuleKind,
    /// The name.
    pub name: &'a [u8],
    /// What it may: a message `authpb.User` or `authpb.Role`.
    pub message: &'a [u8],
    /// The page and the offset in the file, for a refusal.
    at: (u64, u64),
}

/// A kind of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is nothing else")]
pub enum RuleKind {
    /// A user.
    User,
    /// A role.
    Role,
}

impl Rule<'_> {
    /// A refusal of it.
    pub fn refused(&self, what: impl Into<String>) -> Error {
        Error::refused(self.at.0, self.at.1, what)
    }
}

impl<S: Source> Snapshot<S> {
    /// Opens a snapshot, after its checksum has been compared, or a database file, which has none.
    ///
    /// # Errors
    /// It is neither; it is cut or damaged.
    pub fn open(source: S) -> Result<Self> {
        let io = |offset| move |error| Error::Io { offset, error };
        let bytes = source.bytes().map_err(io(0))?;
        let digest_bytes = DIGEST_BYTES as u64;
        let (data, checked) = match bytes % 512 {
            0 => (bytes, false),
            extra if extra == digest_bytes => (bytes - digest_bytes, true),
            _ => {
                let what = format!("{bytes} bytes are neither a database nor a snapshot: cut?");
                return Err(Error::refused(0, bytes, what));
            }
        };
        if checked {
            let mut expected = [0; DIGEST_BYTES];
            source.read(&mut expected, data).map_err(io(data))?;
            if digest(&source, data)? != expected {
                let what = "the checksum of the snapshot is that of something else: damaged";
                return Err(Error::refused(0, data, what));
            }
        }
        let bolt = Bolt::open(source, data)?;
        let (mut keys, mut leases, mut meta) = (None, None, None);
        let (mut auth, mut users, mut roles) = (None, None, None);
        bolt.buckets::<Error>(|name, bucket| {
            match name {
                b"key" => keys = Some(bucket),
                b"lease" => leases = Some(bucket),
                b"meta" => meta = Some(bucket),
                b"auth" => auth = Some(bucket),
                b"authUsers" => users = Some(bucket),
                b"authRoles" => roles = Some(bucket),
                _ => {}
            }
            Ok(())
        })?;
        if keys.is_none() && meta.is_none() {
            let what = "a file of bbolt, but of no etcd: there is neither a bucket key nor meta";
            return Err(Error::refused(0, 0, what));
        }
        let (compacted, index) = meta.map_or(Ok((0, None)), |meta| said(&bolt, &meta))?;
        Ok(Self { bolt, keys, leases, auth, users, roles, compacted, index, checked })
    }

    /// Whether there was a checksum, which was right.
    pub fn is_checked(&self) -> bool {
        self.checked
    }

    /// The file.
    pub fn source(&self) -> &S {
        self.bolt.source()
    }

    /// The revision compacted to; 0 if never. It may not be finished: versions may be there that are forgotten.
    pub fn compacted(&self) -> u64 {
        self.compacted
    }

    /// The index of the last entry of etcd's log (`member/wal`) that is in it: what has come after is in the log alone.
    pub fn consistent_index(&self) -> Option<u64> {
        self.index
    }

    /// Hands out all that ever happened to keys and is kept, in the order in which it did.
    ///
    /// # Errors
    /// The file is damaged; or what `see` answers.
    pub fn entries<E: From<Error>>(
        &self,
        mut see: impl FnMut(&Entry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(keys) = &self.keys else { return Ok(()) };
        let mut last = None;
        let mut bumped = None;
        self.bolt.walk(keys, |item| {
            let entry = entry(item)?;
            let place = Some((entry.main, entry.sub));
            if place <= last {
                return Err(item.refused("two changes in one place of a transaction").into());
            }
            let is_alone = last.is_none_or(|(main, _)| main < entry.main);
            if bumped == Some(entry.main) || entry.version.is_none() && !is_alone {
                return Err(item
                    .refused("a change without a key and a value, among others")
                    .into());
            }
            last = place;
            bumped = entry.version.is_none().then_some(entry.main);
            see(&entry)
        })
    }

    /// An entry again.
    ///
    /// # Errors
    /// The file has changed since.
    pub fn again<T>(&self, place: Place, see: impl FnOnce(&Entry<'_>) -> Result<T>) -> Result<T> {
        let Some(keys) = &self.keys else {
            return Err(Error::refused(0, 0, "there are no keys"));
        };
        self.bolt.again(keys, place, |item| see(&entry(item)?))
    }

    /// Hands out the leases.
    ///
    /// # Errors
    /// The file is damaged; or what `see` answers.
    pub fn leases<E: From<Error>>(
        &self,
        mut see: impl FnMut(Lease) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(leases) = &self.leases else { return Ok(()) };
        self.bolt.walk(leases, |item| {
            let lease = decode_lease(item.value).filter(|_| !item.is_bucket);
            let (id, ttl, remaining) = lease.ok_or_else(|| item.refused("no lease"))?;
            if *item.key != id.to_be_bytes() {
                return Err(item.refused(format!("lease {id} under the id of another")).into());
            }
            see(Lease { id, ttl, remaining })
        })
    }

    /// Counts users and roles.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn users(&self) -> Result<Users> {
        let mut found = Users::default();
        if let Some(auth) = &self.auth {
            self.bolt.walk::<Error>(auth, |item| {
                match item.key {
                    b"authEnabled" => found.enabled = item.value == [1],
                    b"authRevision" => {
                        let revision = item.value.try_into().ok().map(u64::from_be_bytes);
                        let revision = revision.filter(|r| *r <= i64::MAX.cast_unsigned());
                        found.revision = revision.ok_or_else(|| item.refused("no revision"))?;
                    }
                    _ => {}
                }
                Ok(())
            })?;
        }
        self.rules::<Error>(|rule| {
            match rule.kind {
                RuleKind::User => found.users += 1,
                RuleKind::Role => found.roles += 1,
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Hands out the users, and then the roles, each kind in the order of their names. What they say is not read.
    ///
    /// # Errors
    /// The file is damaged; or what `see` answers.
    pub fn rules<E: From<Error>>(
        &self,
        mut see: impl FnMut(&Rule<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (bucket, kind) in [(&self.users, RuleKind::User), (&self.roles, RuleKind::Role)] {
            let Some(bucket) = bucket else { continue };
            self.bolt.walk(bucket, |item| {
                if item.is_bucket {
                    return Err(item.refused("a bucket among users or roles").into());
                }
                let (name, message, at) = (item.key, item.value, (item.page, item.offset));
                see(&Rule { kind, name, message, at })
            })?;
        }
        Ok(())
    }
}

/// The SHA-256 of the first bytes.
fn digest(source: &impl Source, bytes: u64) -> Result<[u8; DIGEST_BYTES]> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; usize::try_from(PIECE_BYTES.min(bytes)).unwrap_or(0)];
    let mut offset = 0;
    while offset < bytes {
        let count = usize::try_from(PIECE_BYTES.min(bytes - offset)).unwrap_or(0);
        let piece = buffer.get_mut(..count).unwrap_or_default();
        source.read(piece, offset).map_err(|error| Error::Io { offset, error })?;
        digest.update(&*piece);
        offset += PIECE_BYTES;
    }
    Ok(digest.finalize().into())
}

/// A key of the bucket `key`: revision, place, and whether something was deleted.
fn revision(key: &[u8]) -> Option<(u64, u32, bool)> {
    let (main, rest) = key.split_first_chunk()?;
    let (&separator, rest) = rest.split_first()?;
    let (sub, rest) = rest.split_first_chunk()?;
    let (main, sub) = (u64::from_be_bytes(*main), u64::from_be_bytes(*sub));
    let tombstone = match rest {
        [] => false,
        b"t" => true,
        _ => return None,
    };
    let known = separator == b'_' && main <= i64::MAX.cast_unsigned();
    known.then_some((main, u32::try_from(sub).ok()?, tombstone))
}

/// What the bucket `meta` says: the revision compacted to, and the index.
fn said<S: Source>(bolt: &Bolt<S>, meta: &Bucket) -> Result<(u64, Option<u64>)> {
    let (mut compacted, mut index) = (0, None);
    bolt.walk::<Error>(meta, |item| {
        if [&b"scheduledCompactRev"[..], b"finishedCompactRev"].contains(&item.key) {
            let found = revision(item.value).filter(|_| item.value.len() == REVISION_BYTES);
            let (main, ..) = found.ok_or_else(|| item.refused("no revision compacted to"))?;
            compacted = compacted.max(main);
        }
        if item.key == b"consistent_index" {
            index = item.value.try_into().ok().map(u64::from_be_bytes);
        }
        Ok(())
    })?;
    Ok((compacted, index))
}

fn entry<'a>(item: &Item<'a>) -> Result<Entry<'a>> {
    let found = revision(item.key).filter(|_| !item.is_bucket);
    let (main, sub, tombstone) =
        found.ok_or_else(|| item.refused("no revision in the bucket of keys"))?;
    let at = (item.page, item.offset);
    let entry = Entry { main, sub, version: None, place: item.place, at };
    if item.value.is_empty() && sub == 0 && !tombstone {
        return Ok(entry);
    }
    let kv = KeyValue::decode(item.value);
    let kv = kv.ok_or_else(|| item.refused(format!("no key-value at revision {main}")))?;
    if kv.key.is_empty() {
        return Err(item.refused(format!("a change of no key at revision {main}")));
    }
    if main < FIRST {
        return Err(item.refused(format!("a change at revision {main}: the first is {FIRST}")));
    }
    if tombstone {
        return Ok(Entry { version: Some(Version::Delete { key: kv.key }), ..entry });
    }
    if kv.mod_revision != main {
        let what = format!("a version of revision {} at revision {main}", kv.mod_revision);
        return Err(item.refused(what));
    }
    // Each version after the first took a revision: a transaction puts a key once.
    let later = main.saturating_sub(kv.create_revision);
    let version = if later == 0 { 1..=1 } else { 2..=later.saturating_add(1) };
    if !(FIRST..=main).contains(&kv.create_revision) || !version.contains(&kv.version) {
        let what = format!("version {} created at {}", kv.version, kv.create_revision);
        return Err(item.refused(format!("{what} at revision {main}")));
    }
    Ok(Entry { version: Some(Version::Put(kv)), ..entry })
}
