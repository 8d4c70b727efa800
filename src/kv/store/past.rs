//! Points in the past: which revision they are, when that was, and the hash of the store as of one.

use crate::error::{Error, Result};

use super::Store;
use crate::kv::at::At;
use crate::kv::eval::check;
use crate::kv::hash::{self, KvHash};

impl Store {
    /// The revision that a point in history names; of a time it is the last one ordered then or before.
    ///
    /// # Errors
    ///
    /// As [`Store::at`].
    pub fn resolve(&self, at: impl Into<At>) -> Result<u64> {
        let at = at.into();
        let revision = at.revision(&self.engine)?;
        if at != At::Latest {
            self.engine.view(revision)?;
        }
        Ok(revision)
    }

    /// The last revision ordered at a time or before, the time in microseconds since the Unix epoch. Times
    /// never go backwards from one revision to the next, whatever the clock did. Before the first transaction it is
    /// revision 1, the empty store, as long as that can be read.
    ///
    /// # Errors
    ///
    /// [`NoRevisionAtTime`](crate::ErrorKind::NoRevisionAtTime) if every revision that can be read is later;
    /// [`TimeUnknown`](crate::ErrorKind::TimeUnknown) in a repaired store that has lost when the next ones were ordered;
    /// [`Closed`](crate::ErrorKind::Closed), [`Corrupt`](crate::ErrorKind::Corrupt) or
    /// [`Io`](crate::ErrorKind::Io) from the files.
    pub fn revision_at_time(&self, micros: i64) -> Result<u64> {
        self.engine.revision_at_time(micros)
    }

    /// When a revision was ordered, in microseconds since the Unix epoch. It costs what reading its transaction
    /// costs, as the time is kept there.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// let put = store.put("/a", "1")?;
    /// assert_eq!(store.time_of(put.revision)?, put.time);
    /// assert_eq!(store.revision_at_time(put.time)?, put.revision);
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Compacted`](crate::ErrorKind::Compacted) if no key can be read as of the revision any more,
    /// [`FutureRevision`](crate::ErrorKind::FutureRevision);
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for 0, and for 1, the empty store, which no
    /// transaction made; [`Closed`](crate::ErrorKind::Closed), [`Corrupt`](crate::ErrorKind::Corrupt) or
    /// [`Io`](crate::ErrorKind::Io) from the files.
    pub fn time_of(&self, revision: u64) -> Result<i64> {
        if revision == 0 {
            return Err(check::no_revision_zero());
        }
        // Says so where the revision is not there, and holds on to it.
        let _view = self.engine.view(revision)?;
        let none = || Error::invalid(format!("no transaction has made revision {revision}"));
        self.engine.time_of(revision)?.ok_or_else(none)
    }

    /// The hash of all keys and values as of a point in history: etcd's `HashKV`. Two stores with the same
    /// transactions and the same [compaction](Store::compacted_revision) have the same hash, and so
    /// has an etcd, down to the bit: `etcdctl endpoint hashkv --rev`.
    ///
    /// In it are all versions after the compacted revision, up to the one asked for, and of older ones those
    /// that are still alive then. It tells whether a copy is complete. Being 32 bits of a CRC, it is no proof
    /// against somebody who wants it to be equal.
    ///
    /// It reads all of that, values included, and takes at most some 64 MiB of memory beside the
    /// transaction it is at. Of more than two million keys it walks over the living ones again for each
    /// further two million that have not changed since the compaction.
    ///
    /// # Differences
    ///
    /// An etcd 3.4 refuses the compacted revision itself; a newer one answers for it with a hash that it
    /// made before the compaction. A transaction that writes a key twice, which takes nesting, has one
    /// version of it here, and two there. Where [rules of retention](Store::set_retention) have forgotten more
    /// than `compact`, the hash is that of a store compacted to
    /// [the oldest revision](KvHash::compacted) at which all keys can be read.
    ///
    /// # Errors
    ///
    /// As [`Store::resolve`], and [`Compacted`](crate::ErrorKind::Compacted) if some keys cannot be read
    /// as of the revision; [`Corrupt`](crate::ErrorKind::Corrupt) or [`Io`](crate::ErrorKind::Io) from the
    /// files.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let copy = directory.path().join("copy");
    /// # let store = annals::Store::open(directory.path().join("store"))?;
    /// # let copy = annals::Store::open(copy)?;
    /// use annals::At;
    ///
    /// store.put("/a", "1")?;
    /// copy.put("/a", "1")?;
    /// assert_eq!(store.hash_at(At::Latest)?, copy.hash_at(2)?);
    /// store.put("/a", "2")?;
    /// assert_ne!(store.hash_at(At::Latest)?.hash, copy.hash_at(2)?.hash);
    /// assert_eq!(store.hash_at(2)?, copy.hash_at(2)?);
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn hash_at(&self, at: impl Into<At>) -> Result<KvHash> {
        let at = at.into();
        hash::hash_at(&self.engine, &|| self.resolve(at))
    }
}
