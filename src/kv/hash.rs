//! etcd's hash of keys and values (`HashKV`), made of what a store retains.
//!
//! etcd keeps versions by revision, in a table whose keys are `main`, the revision of the transaction,
//! and `sub`, the number of the change in it; its hash is a CRC-32C over that table, as far as
//! it is to be seen at a revision `R` after a compaction to `C`:
//!
//! ```text
//! hashed  := "key" version*                     in the order of (main, sub)
//! version := main:u64be "_" sub:u64be "t"?      the "t" of a tombstone
//!            proto                              mvccpb.KeyValue; of a tombstone with the key alone
//! ```
//!
//! 1. Of the versions with `C < main <= R` every one is hashed, tombstones too.
//! 2. Of those with `main <= C` the ones that are alive at `R`;
//! 3. or, if no key is alive at `R`, the ones that are alive at `C`.
//!
//! (The second rule is etcd's as it is: one would expect what is alive at `C`.)
//!
//! The first are the log, in its order. The others come in the order of keys, so each is summed up by itself,
//! and the sums are sorted and joined ([`Crc::followed_by`]): 24 bytes for each. When these are too many for
//! memory, the least of them are taken, and the keys walked over again for the next.

use std::collections::BinaryHeap;
use std::ops::Range;

use bytes::Bytes;

use crate::error::{ErrorKind, Result};

use super::eval::reads::key_value;
use super::log::Log;
use super::range::KeyRange;
use super::seam::{Engine, Record, Scope, View, is_compacted};
use super::space;
use super::types::{Change, ChangeKind, KeyValue};

/// Sums that are kept at once: 48 MiB of them.
const SUMS_MAX: usize = 2 << 20;

/// Hash of the keys and values of a store as of a revision; made by
/// [`Store::hash_at`](crate::Store::hash_at).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KvHash {
    /// The hash.
    pub hash: u32,
    /// The revision up to which versions are in it.
    pub revision: u64,
    /// Every version made after this revision is in the hash, and of older ones those alive at `revision`.
    /// It is the revision last compacted to, or, where rules of retention have forgotten more, the oldest at
    /// which all keys can be read; 0 if nothing was ever forgotten.
    pub compacted: u64,
}

/// The hash as of the revision that `resolve` names, which may be another one each time it is asked.
pub(super) fn hash_at(engine: &Engine, resolve: &dyn Fn() -> Result<u64>) -> Result<KvHash> {
    let (hashing, ()) = Hashing::of(engine, &mut || Ok((resolve()?, ())))?;
    hashing.finish()
}

/// A hash to be made. It holds on to all that it needs, whatever is compacted meanwhile.
pub(super) struct Hashing {
    compacted: u64,
    revision: u64,
    at_end: View,
    at_start: View,
    log: Option<Log>,
}

impl Hashing {
    /// That of the revision which `look` answers, with what else it has found, both of one moment at which
    /// the keys could be read as far back as the hash says. `look` may be asked several times.
    ///
    /// # Errors
    /// `Compacted`, `FutureRevision`, `Closed`; what `look` answers.
    pub(super) fn of<T>(
        engine: &Engine,
        look: &mut dyn FnMut() -> Result<(u64, T)>,
    ) -> Result<(Self, T)> {
        let (start, end) = space::user_range(&KeyRange::all());
        loop {
            let compacted = engine.oldest_of(&start..&end);
            let begun = look().and_then(|(revision, found)| {
                Ok((Self::begin(engine, compacted, revision)?, found))
            });
            match begun {
                Err(error) if !is_compacted(&error) => return Err(error),
                begun if engine.oldest_of(&start..&end) == compacted => return begun,
                // A compaction came between two looks at the store: what was found is of two moments.
                _ => {}
            }
        }
    }

    /// That of a revision, with every version after `compacted`, up to which nothing must be missing.
    ///
    /// # Errors
    /// `Compacted`, `FutureRevision`, `Closed`.
    pub(super) fn begin(engine: &Engine, compacted: u64, revision: u64) -> Result<Self> {
        let at_end = engine.view(revision)?;
        if revision < compacted {
            // The refusal names the rule of retention, if it is one that refuses.
            engine.log(revision, revision, Scope::All)?;
            let requested = revision;
            return Err(ErrorKind::Compacted { requested, compacted, prefix: None }.into());
        }
        let at_start = engine.view(compacted.max(1))?;
        let next = compacted.saturating_add(1);
        let log = (revision > compacted)
            .then(|| Log::new(engine, Some(next), revision.saturating_add(1), &KeyRange::all()));
        Ok(Self { compacted, revision, at_end, at_start, log })
    }

    /// The revision that it is of.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Makes it.
    ///
    /// # Errors
    /// `Closed`, `Corrupt`, `Io`.
    pub(super) fn finish(self) -> Result<KvHash> {
        let Self { compacted, revision, at_end, at_start, log } = self;
        let (start, end) = space::user_range(&KeyRange::all());
        let mut hash = Crc::of(b"key");
        let upto = 0..compacted.saturating_add(1);
        // Before revision 2 there is nothing.
        if compacted > 1 {
            let at_end = || at_end.scan(&start, &end, false);
            if !add_alive(&mut hash, at_end, upto.clone(), SUMS_MAX)? {
                let at_start = || at_start.scan(&start, &end, false);
                add_alive(&mut hash, at_start, upto, SUMS_MAX)?;
            }
        }
        for transaction in log.into_iter().flat_map(Log::with_values) {
            let transaction = transaction?;
            for change in transaction.changes {
                add_change(&mut hash, transaction.revision, change);
            }
        }
        Ok(KvHash { hash: hash.value, revision, compacted })
    }
}

/// The CRC-32C of bytes taken in so far, and how many these are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Crc {
    value: u32,
    length: usize,
}

impl Crc {
    fn of(bytes: &[u8]) -> Self {
        let mut hash = Self::default();
        hash.update(bytes);
        hash
    }

    /// Takes in the next bytes.
    fn update(&mut self, bytes: &[u8]) {
        self.value = crc32c::crc32c_append(self.value, bytes);
        self.length += bytes.len();
    }

    /// Of these bytes, then those of `next`, which are not needed for it.
    fn followed_by(self, next: Self) -> Self {
        let value = crc32c::crc32c_combine(self.value, next.value, next.length);
        Self { value, length: self.length + next.length }
    }
}

/// The sum of one version, in the order in which it is hashed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sum {
    main: u64,
    sub: u32,
    crc: u32,
    length: u32,
}

const _: () = assert!(size_of::<Sum>() == 24);

impl Sum {
    fn place(&self) -> (u64, u32) {
        (self.main, self.sub)
    }
}

/// Hashes the versions that were made in `among`, of the keys of a walk. Answers whether there is any
/// key.
fn add_alive<W>(
    hash: &mut Crc,
    walk: impl Fn() -> W,
    among: Range<u64>,
    sums_max: usize,
) -> Result<bool>
where
    W: Iterator<Item = Result<Record>>,
{
    let mut after = (0, 0);
    loop {
        let (mut any, mut more) = (false, false);
        let mut least = BinaryHeap::new();
        for record in walk() {
            let record = record?;
            any = true;
            let place = (record.mod_revision, record.sub);
            if !among.contains(&record.mod_revision) || place <= after {
                continue;
            }
            if least.len() < sums_max {
                least.push(sum_of(record));
                continue;
            }
            more = true;
            if let Some(mut greatest) = least.peek_mut()
                && place < greatest.place()
            {
                *greatest = sum_of(record);
            }
        }
        for sum in least.into_sorted_vec() {
            after = sum.place();
            *hash = hash.followed_by(Crc { value: sum.crc, length: sum.length as usize });
        }
        if !more {
            return Ok(any);
        }
    }
}

fn sum_of(record: Record) -> Sum {
    let (main, sub) = (record.mod_revision, record.sub);
    let mut crc = Crc::default();
    add_put(&mut crc, sub, &key_value(record));
    // No version is as long as that: a frame is not.
    let length = u32::try_from(crc.length).unwrap_or(u32::MAX);
    Sum { main, sub, crc: crc.value, length }
}

fn add_change(hash: &mut Crc, revision: u64, change: Change) {
    let Change { kind, key, sub, create_revision, version, lease, value } = change;
    match kind {
        ChangeKind::Delete => {
            hash.update(&revision_bytes(revision, sub));
            hash.update(b"t");
            let mut proto = Proto::default();
            proto.bytes(1, &key, hash);
            proto.finish(hash);
        }
        ChangeKind::Put => {
            let value = value.unwrap_or_default();
            let mod_revision = revision;
            let kv = KeyValue { key, value, create_revision, mod_revision, version, lease };
            add_put(hash, sub, &kv);
        }
    }
}

fn add_put(hash: &mut Crc, sub: u32, kv: &KeyValue) {
    let KeyValue { key, value, create_revision, mod_revision, version, lease } = kv;
    hash.update(&revision_bytes(*mod_revision, sub));
    let mut proto = Proto::default();
    proto.bytes(1, key, hash);
    proto.number(2, *create_revision);
    proto.number(3, *mod_revision);
    proto.number(4, *version);
    proto.bytes(5, value, hash);
    proto.number(6, lease.cast_unsigned());
    proto.finish(hash);
}

/// A revision as etcd's table has it, without the mark of a tombstone.
fn revision_bytes(main: u64, sub: u32) -> [u8; 17] {
    let mut bytes = [b'_'; 17];
    bytes[..8].copy_from_slice(&main.to_be_bytes());
    bytes[9..].copy_from_slice(&u64::from(sub).to_be_bytes());
    bytes
}

/// A message of protocol buffers on its way into a hash, which takes long fields from where they lie. What is
/// 0 or empty is left out.
#[derive(Default)]
struct Proto {
    pending: smallvec::SmallVec<[u8; 64]>,
}

impl Proto {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.pending.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.pending.push(number.to_le_bytes()[0]);
    }

    fn number(&mut self, field: u64, number: u64) {
        if number != 0 {
            self.varint(field << 3);
            self.varint(number);
        }
    }

    fn bytes(&mut self, field: u64, bytes: &Bytes, hash: &mut Crc) {
        if !bytes.is_empty() {
            self.varint(field << 3 | 2);
            self.varint(bytes.len() as u64);
            hash.update(&self.pending);
            self.pending.clear();
            hash.update(bytes);
        }
    }

    fn finish(self, hash: &mut Crc) {
        hash.update(&self.pending);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(n: u64, revision: u64, sub: u32) -> Record {
        Record {
            key: Bytes::from(format!("\x01key {n}")),
            value: Bytes::from(vec![b'v'; usize::try_from(n * 37 % 300).unwrap()]),
            create_revision: revision / 2 + 1,
            mod_revision: revision,
            sub,
            version: n + 1,
            lease: if n.is_multiple_of(3) { -5 } else { 0 },
        }
    }

    #[test]
    fn however_few_sums_fit_in_memory_the_hash_is_that_of_all_in_their_order() {
        // The order of keys has nothing to do with that of revisions; some come in one revision.
        let records: Vec<Record> =
            (0..100).map(|n| record(n, 2 + n * 61 % 100 / 3, u32::try_from(n).unwrap())).collect();
        let mut sorted: Vec<&Record> =
            records.iter().filter(|record| record.mod_revision <= 30).collect();
        sorted.sort_by_key(|record| (record.mod_revision, record.sub));
        assert!(sorted.len() > 50 && sorted.len() < 100);
        let mut expected = Crc::of(b"key");
        for record in sorted {
            add_put(&mut expected, record.sub, &key_value(record.clone()));
        }
        for sums_max in [1, 2, 7, 85, 86, 87, 1000] {
            let mut hash = Crc::of(b"key");
            let walk = || records.iter().cloned().map(Ok);
            assert!(add_alive(&mut hash, walk, 0..31, sums_max).unwrap());
            assert_eq!(hash, expected, "{sums_max}");
        }
        let mut hash = Crc::of(b"key");
        assert!(!add_alive(&mut hash, || [].into_iter(), 0..31, 10).unwrap());
        assert_eq!(hash, Crc::of(b"key"));
    }

    #[test]
    fn a_version_is_hashed_as_etcd_writes_it() {
        let kv = KeyValue {
            key: "k".into(),
            value: "".into(),
            create_revision: 2,
            mod_revision: 300,
            version: 1,
            lease: -1,
        };
        let mut hash = Crc::default();
        add_put(&mut hash, 1, &kv);
        let written = [
            &b"\0\0\0\0\0\0\x01\x2c_\0\0\0\0\0\0\0\x01"[..],
            b"\x0a\x01k\x10\x02\x18\xac\x02\x20\x01",
            b"\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ];
        assert_eq!(hash, Crc::of(&written.concat()));
        let mut hash = Crc::default();
        let delete = Change {
            kind: ChangeKind::Delete,
            key: "k".into(),
            sub: 0,
            create_revision: 0,
            version: 0,
            lease: 0,
            value: None,
        };
        add_change(&mut hash, 2, delete);
        assert_eq!(hash, Crc::of(b"\0\0\0\0\0\0\0\x02_\0\0\0\0\0\0\0\0t\x0a\x01k"));
    }
}
