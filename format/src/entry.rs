//! An entry: one version of one key as it lies in a data block.
//!
//! ```text
//! entry := shared:varint unshared:varint suffix:bytes(unshared) flags:u8
//!          revision:varint                 the revision, or with FOLLOWS the distance to the neighbour's
//!          sub:varint
//!          [create_revision:varint version:varint]   unless TOMBSTONE or SAME_LIFETIME
//!          [lease:varint]                            only with LEASE
//!          [death:varint]                            HISTORY only, unless FOLLOWS: death - revision
//!          [first_lived:varint]                      L0 only: (revision - first) * 2 + lived
//!          value_bytes:varint value:bytes(value_bytes)   or with BLOB
//!          blob_file:varint value_bytes:varint           the value lies there
//! ```
//!
//! A key is stored as the number of bytes it shares with the key before it and the bytes that
//! differ. In HISTORY the versions of one key are neighbours, newest first, so most of what an entry
//! says about itself follows from the entry before it:
//!
//! * `FOLLOWS`: the neighbour is the version that superseded this one. `death` is the neighbour's
//!   revision and is left out; `revision` is stored as `neighbour.revision - revision`.
//! * `SAME_LIFETIME`: `create_revision` is the neighbour's and `version` is one less; both left out.
//!
//! An L0 entry is the newest version of its key in the transactions that the file was made of, and
//! says two more things of the key in them: the revision of its oldest version there, which is what
//! superseded whatever older files have of the key, and whether the key lived before that.
//!
//! A large value need not lie in the entry: with `BLOB` it is that of the entry with the same key, revision,
//! `create_revision` and version in
//! a blob file, which is not written again when the entry is.
//!
//! Invariants, checked by `Run::next`: `FOLLOWS` and `SAME_LIFETIME` stand only in HISTORY blocks and only after a
//! neighbour of the same key, `BLOB` only in L0 and HEAD; no unknown flag is set; a tombstone has no value; revisions of one
//! key strictly descend; `death` is above `revision`, `first` is not.

use crate::cursor::{Reader, Writer};
use crate::error::{Problem, Result};
use crate::limits::{BLOCK_RAW_BYTES_MAX, INTERNAL_KEY_BYTES_MAX};
use crate::place::FileKind;

/// One version of one key, borrowing key and value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The internal key (or, in EVENTS, the revision as eight big-endian bytes).
    pub key: &'a [u8],
    /// The revision (for system keys the sequence number) that wrote this version.
    pub revision: u64,
    /// Position of the write within its transaction.
    pub sub: u32,
    /// The version says that the key was deleted.
    pub tombstone: bool,
    /// Revision that began the key's lifetime; 0 in a tombstone.
    pub create_revision: u64,
    /// 1 for the first version of a lifetime, then 2, 3, ...; 0 in a tombstone.
    pub version: u64,
    /// The lease the key is attached to; 0 = none.
    pub lease: i64,
    /// HISTORY only: the revision that superseded this version; else 0.
    pub death: u64,
    /// L0 only: the revision of the oldest version of the key in the transactions that the file was
    /// made of, at most `revision`; else 0. It superseded what older files have of the key.
    pub first: u64,
    /// L0 only: the key was alive before `first`; else false.
    pub lived: bool,
    /// The value; empty in a tombstone, and where it lies in a blob file.
    pub value: &'a [u8],
    /// L0 and HEAD only: where the value lies, if not here.
    pub blob: Option<BlobRef>,
}

/// Values in a blob file: one, in an entry, or all that a file refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobRef {
    /// The number of the blob file.
    pub file: u64,
    /// How many bytes the values have together; never 0.
    pub bytes: u64,
}

/// The version says that the key was deleted.
pub const FLAG_TOMBSTONE: u8 = 1;
/// A lease id is present.
pub const FLAG_LEASE: u8 = 1 << 1;
/// The neighbour before is the version that superseded this one.
pub const FLAG_FOLLOWS: u8 = 1 << 2;
/// The neighbour before belongs to the same lifetime and is one version further.
pub const FLAG_SAME_LIFETIME: u8 = 1 << 3;
/// The value lies in a blob file.
pub const FLAG_BLOB: u8 = 1 << 4;
const FLAGS_KNOWN: u8 = FLAG_TOMBSTONE | FLAG_LEASE | FLAG_FOLLOWS | FLAG_SAME_LIFETIME | FLAG_BLOB;

impl BlobRef {
    /// Appends both numbers.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.put_varint(self.file);
        out.put_varint(self.bytes);
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let file = reader.varint_number("blob_file", 1)?;
        let at = reader.position();
        match reader.varint("value_bytes")? {
            0 => Err(reader.error_at("value_bytes", at, Problem::Invalid { found: 0 })),
            bytes => Ok(Self { file, bytes }),
        }
    }
}

/// What an entry needs to know of the entry before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// Length of its key. Meaningless unless `present`.
    pub key_bytes: usize,
    /// Its revision.
    pub revision: u64,
    /// Its `create_revision`.
    pub create_revision: u64,
    /// Its version.
    pub version: u64,
    /// False at a restart point: there an entry stands for itself.
    pub present: bool,
}

impl Neighbour {
    /// What the entry after `item` needs to know of it.
    pub(crate) const fn of(item: &Item<'_>) -> Self {
        Self {
            key_bytes: item.shared + item.suffix.len(),
            revision: item.fields.revision,
            create_revision: item.fields.create_revision,
            version: item.fields.version,
            present: true,
        }
    }
}

/// An entry decoded in place. Its key is the first `shared` bytes of the key before it followed by
/// `suffix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Where the entry begins in the block's body.
    pub offset: usize,
    /// Bytes taken over from the key before it.
    pub shared: usize,
    /// The rest of the key.
    pub suffix: &'a [u8],
    /// Where the value begins in the block's body.
    pub value_offset: usize,
    /// See [`EntryRef`]; its `key` is empty here.
    pub fields: EntryRef<'a>,
}

/// Appends `entry` to `out`. `previous` is the entry before it, `None` at a restart point.
///
/// The caller keeps the order (key ascending, revision descending); it is asserted in debug builds.
pub fn encode(
    out: &mut Vec<u8>,
    kind: FileKind,
    entry: &EntryRef<'_>,
    previous: Option<(&[u8], Neighbour)>,
) {
    let shared = previous.map_or(0, |(key, _)| common_prefix(key, entry.key));
    let suffix = entry.key.get(shared..).unwrap_or_default();
    let neighbour = previous.map(|(_, n)| n).filter(|n| n.key_bytes == shared && suffix.is_empty());
    debug_assert!(neighbour.is_none_or(|n| n.revision > entry.revision), "revisions must descend");

    let mut flags = 0;
    let mut revision = entry.revision;
    if entry.tombstone {
        flags |= FLAG_TOMBSTONE;
    }
    if entry.lease != 0 {
        flags |= FLAG_LEASE;
    }
    if entry.blob.is_some() {
        flags |= FLAG_BLOB;
    }
    if kind == FileKind::History
        && let Some(n) = neighbour
    {
        if n.revision == entry.death && entry.death > entry.revision {
            flags |= FLAG_FOLLOWS;
            revision = n.revision - entry.revision;
        }
        let same = n.create_revision == entry.create_revision
            && entry.version.checked_add(1) == Some(n.version);
        if !entry.tombstone && same {
            flags |= FLAG_SAME_LIFETIME;
        }
    }

    out.put_varint(shared as u64);
    out.put_prefixed(suffix);
    out.push(flags);
    out.put_varint(revision);
    out.put_varint(u64::from(entry.sub));
    if flags & (FLAG_TOMBSTONE | FLAG_SAME_LIFETIME) == 0 {
        out.put_varint(entry.create_revision);
        out.put_varint(entry.version);
    }
    if flags & FLAG_LEASE != 0 {
        out.put_varint(entry.lease.cast_unsigned());
    }
    if kind == FileKind::History && flags & FLAG_FOLLOWS == 0 {
        out.put_varint(entry.death.wrapping_sub(entry.revision));
    }
    if kind == FileKind::L0 {
        debug_assert!(entry.first <= entry.revision, "the oldest version is not after the newest");
        let distance = entry.revision.saturating_sub(entry.first);
        out.put_varint(distance.wrapping_mul(2) | u64::from(entry.lived));
    }
    match entry.blob {
        Some(blob) => blob.encode(out),
        None => out.put_prefixed(entry.value),
    }
}

/// Decodes the entry at the reader.
pub(crate) fn decode<'a>(
    reader: &mut Reader<'a>,
    kind: FileKind,
    neighbour: &Neighbour,
) -> Result<Item<'a>> {
    let offset = reader.position();
    let shared = reader.varint("shared")?;
    let shared_max = if neighbour.present { neighbour.key_bytes as u64 } else { 0 };
    if shared > shared_max {
        return Err(reader.error("shared", Problem::TooLong { max: shared_max, found: shared }));
    }
    let suffix = reader.prefixed("suffix", INTERNAL_KEY_BYTES_MAX)?;
    let flags = reader.u8("flags")?;
    let same_key = neighbour.present && suffix.is_empty() && shared == shared_max;
    check_flags(reader, kind, flags, same_key)?;

    let mut fields = EntryRef { tombstone: flags & FLAG_TOMBSTONE != 0, ..EntryRef::default() };
    fields.revision = reader.varint("revision")?;
    if flags & FLAG_FOLLOWS != 0 {
        let distance = fields.revision;
        if distance == 0 || distance > neighbour.revision {
            return Err(reader.error("revision", Problem::Order));
        }
        fields.revision = neighbour.revision - distance;
        fields.death = neighbour.revision;
    }
    if same_key && fields.revision >= neighbour.revision {
        return Err(reader.error("revision", Problem::Order));
    }
    fields.sub = reader.varint_u32("sub")?;
    if flags & FLAG_SAME_LIFETIME != 0 {
        fields.create_revision = neighbour.create_revision;
        fields.version = neighbour.version.saturating_sub(1);
    } else if !fields.tombstone {
        fields.create_revision = reader.varint("create_revision")?;
        fields.version = reader.varint("version")?;
    }
    if flags & FLAG_LEASE != 0 {
        fields.lease = reader.varint("lease")?.cast_signed();
    }
    if kind == FileKind::History && flags & FLAG_FOLLOWS == 0 {
        let lived = reader.varint("death")?;
        fields.death = match fields.revision.checked_add(lived) {
            Some(death) if lived > 0 => death,
            _ => return Err(reader.error("death", Problem::Invalid { found: lived })),
        };
    }
    if kind == FileKind::L0 {
        let found = reader.varint("first_lived")?;
        let Some(first) = fields.revision.checked_sub(found / 2) else {
            return Err(reader.error("first_lived", Problem::Invalid { found }));
        };
        (fields.first, fields.lived) = (first, found % 2 == 1);
    }
    if flags & FLAG_BLOB != 0 {
        fields.blob = Some(BlobRef::decode(reader)?);
    } else {
        fields.value = reader.prefixed("value", BLOCK_RAW_BYTES_MAX)?;
    }
    if fields.tombstone && !fields.value.is_empty() {
        return Err(reader.error("value", Problem::NotZero));
    }
    let value_offset = reader.position() - fields.value.len();
    // `shared` is at most `key_bytes`, a usize.
    let shared = usize::try_from(shared).unwrap_or(usize::MAX);
    Ok(Item { offset, shared, suffix, value_offset, fields })
}

/// The key of the entry at the front of `bytes`, where it is short and shares nothing with the one
/// before, as at a restart point. If not, only [`decode`] can tell.
pub(crate) fn whole_key(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        [0, length @ 0..0x80, rest @ ..] => rest.get(..usize::from(*length)),
        _ => None,
    }
}

fn check_flags(reader: &Reader<'_>, kind: FileKind, flags: u8, same_key: bool) -> Result<()> {
    let neighbourly = flags & (FLAG_FOLLOWS | FLAG_SAME_LIFETIME) != 0;
    let refers = flags & FLAG_BLOB != 0;
    let described = flags & (FLAG_SAME_LIFETIME | FLAG_BLOB) != 0;
    if flags & !FLAGS_KNOWN != 0
        || (neighbourly && !(same_key && kind == FileKind::History))
        || (refers && !kind.may_refer())
        || (described && flags & FLAG_TOMBSTONE != 0)
    {
        return Err(reader.error("flags", Problem::Invalid { found: u64::from(flags) }));
    }
    Ok(())
}

/// How many leading bytes two keys, or values, share.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (a_words, _) = a.as_chunks::<8>();
    let (b_words, _) = b.as_chunks::<8>();
    // Eight bytes at a time: every look-up and every entry written comes here.
    for (index, (x, y)) in a_words.iter().zip(b_words).enumerate() {
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return 8 * index + (differing.trailing_zeros() / 8) as usize;
        }
    }
    let words = 8 * a_words.len().min(b_words.len());
    let (a_rest, b_rest) = (a.iter().skip(words), b.iter().skip(words));
    words + a_rest.zip(b_rest).take_while(|(x, y)| x == y).count()
}
