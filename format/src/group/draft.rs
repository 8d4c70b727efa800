//! A group that is being written: what it says of its versions beside their values.

use super::head::Fields;
use super::table::{Stored, Table};
use super::{
    FLAG_DEATHS, FLAG_LEASE, FLAG_LEASES, FLAG_LIFETIMES, FLAG_SUBS, FLAGS_COLUMNS, KIND_NEIGHBOUR,
    KIND_OWN, VERSIONS_MAX,
};
use crate::cursor::Writer;
use crate::entry::EntryRef;

/// A group ends when so many versions have been stored and none is made from another, unless they
/// share shapes and are short: nothing is gained by their standing together, and whoever looks for one
/// reads the block.
const WHOLE_VERSIONS_MAX: usize = 8;
const WHOLE_PAYLOAD_BYTES_MAX: usize = 4 << 10;
/// A group ends when the payloads after that of version 0 take so many bytes.
const PAYLOAD_BYTES_MAX: usize = 64 << 10;

/// The versions pushed since the group began.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) key: Vec<u8>,
    versions: Vec<Fields>,
    shape_of: Vec<u8>,
    pub(super) table: Table,
    payload: Vec<u8>,
    /// Bytes of version 0 in `payload`.
    first_bytes: usize,
    /// How version 0 is stored if it may not be made from another group.
    alone: Option<Stored>,
    /// Versions made from others of the group.
    deltas: usize,
    /// Bytes of all values.
    pub(super) raw_bytes: u64,
}

/// A group whose key suffix is not known before its block is complete.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) key: Vec<u8>,
    pub(super) newest: u64,
    pub(super) oldest: u64,
    pub(super) versions: usize,
    pub(super) raw_bytes: u64,
    /// `flags` and `versions`.
    pub(super) start: [u8; 2],
    /// All after the key suffix.
    pub(super) rest: Vec<u8>,
}

impl Draft {
    /// Starts over with another group.
    pub(super) fn begin(&mut self, key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.versions.clear();
        self.shape_of.clear();
        self.table.clear();
        self.payload.clear();
        self.first_bytes = 0;
        self.alone = None;
        self.deltas = 0;
        self.raw_bytes = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.versions.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// Whether the version with this revision has to begin another group.
    pub(super) fn ends_before(&self, revision: u64) -> bool {
        let Some(newest) = self.versions.first() else { return false };
        self.len() == VERSIONS_MAX
            || (self.deltas == 0 && self.is_heavy())
            || self.payload.len() - self.first_bytes >= PAYLOAD_BYTES_MAX
            || u32::try_from(newest.revision - revision).is_err()
    }

    fn is_heavy(&self) -> bool {
        let long = self.payload.len() >= WHOLE_PAYLOAD_BYTES_MAX;
        self.table.len() >= WHOLE_VERSIONS_MAX || (long && self.len() >= WHOLE_VERSIONS_MAX)
    }

    /// Whether version 0 stands for itself, or could be made to.
    pub(super) const fn stands_alone(&self) -> bool {
        self.alone.is_none()
    }

    /// Appends a version. `alone` is given if `stored` is made from another group.
    pub(super) fn push(&mut self, entry: &EntryRef<'_>, stored: &Stored, alone: Option<&Stored>) {
        if self.is_empty() {
            self.first_bytes = stored.payload.len();
            self.alone = alone.cloned();
        }
        self.versions.push(Fields {
            revision: entry.revision,
            death: entry.death,
            sub: entry.sub,
            create_revision: entry.create_revision,
            version: entry.version,
            lease: entry.lease,
            tombstone: entry.tombstone,
        });
        let shape = self.table.shape_of(stored);
        self.shape_of.push(shape);
        self.payload.extend_from_slice(&stored.payload);
        self.deltas += usize::from(stored.kind() == KIND_OWN);
        self.raw_bytes += entry.value.len() as u64;
    }

    /// Makes version 0 stand for itself, as the group goes to another block than those before.
    pub(super) fn detach(&mut self) {
        let Some(alone) = self.alone.take() else { return };
        debug_assert_ne!(alone.kind(), KIND_NEIGHBOUR);
        self.table.replace_first(&alone, &mut self.shape_of);
        self.payload.splice(..self.first_bytes, alone.payload.iter().copied());
        self.first_bytes = alone.payload.len();
    }

    /// About the bytes it takes in a block: at least as many, as a rule.
    pub(super) fn stored_bytes(&self) -> usize {
        // Head, and an offset and a shape a version.
        24 + self.key.len() + 5 * self.len() + self.table.stored_bytes() + self.payload.len()
    }

    /// Ends the group, which has one version at least. The draft is left as it is.
    pub(super) fn finish(&mut self) -> Option<Finished> {
        let (first, last) = (*self.versions.first()?, *self.versions.last()?);
        let mut rest = Vec::with_capacity(self.stored_bytes());
        let mut columns = Vec::new();
        let mut flags = self.columns(&mut columns);
        let all_leases = flags & FLAG_LEASES == 0;
        if all_leases && first.lease != 0 {
            flags |= FLAG_LEASE;
        }
        rest.put_varint(first.revision);
        rest.put_varint(first.death.saturating_sub(first.revision));
        rest.put_varint(u64::from(first.sub));
        put_life(&first, &mut rest);
        if flags & FLAG_LEASE != 0 {
            rest.put_varint(first.lease.cast_unsigned());
        }
        let span = first.revision - last.revision;
        let width = (usize::try_from(u64::BITS - span.leading_zeros()).unwrap_or(0)).div_ceil(8);
        let width = width.max(1);
        // `ends_before` bounds the span to four bytes.
        flags |= u8::try_from(width - 1).unwrap_or(0);
        for version in self.versions.iter().skip(1) {
            let offset = (first.revision - version.revision).to_le_bytes();
            rest.put_bytes(offset.get(..width).unwrap_or_default());
        }
        if flags & FLAGS_COLUMNS != 0 {
            rest.put_prefixed(&columns);
        }
        rest.put_bytes(&self.shape_of);
        self.table.encode(&mut rest);
        rest.put_bytes(&self.payload);
        Some(Finished {
            key: std::mem::take(&mut self.key),
            newest: first.revision,
            oldest: last.revision,
            versions: self.len(),
            raw_bytes: self.raw_bytes,
            // At most 64.
            start: [flags, u8::try_from(self.len()).unwrap_or(u8::MAX)],
            rest,
        })
    }

    /// Appends what does not follow from the version before; answers the flags that say so.
    fn columns(&self, out: &mut Vec<u8>) -> u8 {
        let mut flags = 0;
        let deaths = self.marked(|before, version| version.death != before.revision);
        if !deaths.is_empty() {
            flags |= FLAG_DEATHS;
            self.put_bitmap(&deaths, out);
            for version in deaths.iter().filter_map(|number| self.versions.get(*number)) {
                out.put_varint(version.death.saturating_sub(version.revision));
            }
        }
        let lifetimes = self.marked(|before, version| !before.is_followed_by(version));
        if !lifetimes.is_empty() {
            flags |= FLAG_LIFETIMES;
            self.put_bitmap(&lifetimes, out);
            for version in lifetimes.iter().filter_map(|number| self.versions.get(*number)) {
                put_life(version, out);
            }
        }
        if !self.marked(|before, version| version.sub != before.sub).is_empty() {
            flags |= FLAG_SUBS;
            for version in self.versions.iter().skip(1) {
                out.put_varint(u64::from(version.sub));
            }
        }
        if !self.marked(|before, version| version.lease != before.lease).is_empty() {
            flags |= FLAG_LEASES;
            for version in &self.versions {
                out.put_varint(version.lease.cast_unsigned());
            }
        }
        flags
    }

    /// The numbers of the versions that `is_marked` finds to differ from the version before.
    fn marked(&self, is_marked: impl Fn(&Fields, &Fields) -> bool) -> Vec<usize> {
        let pairs = self.versions.iter().zip(self.versions.iter().skip(1)).zip(1..);
        pairs
            .filter(|((before, version), _)| is_marked(before, version))
            .map(|(_, number)| number)
            .collect()
    }

    fn put_bitmap(&self, marked: &[usize], out: &mut Vec<u8>) {
        let mut bits = 0_u64;
        for number in marked {
            bits |= 1 << number;
        }
        out.put_bytes(bits.to_le_bytes().get(..self.len().div_ceil(8)).unwrap_or_default());
    }
}

/// Appends a `life`.
fn put_life(fields: &Fields, out: &mut Vec<u8>) {
    out.put_varint(fields.version);
    if !fields.tombstone {
        out.put_varint(fields.revision.saturating_sub(fields.create_revision));
    }
}
