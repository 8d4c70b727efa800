//! A group's head, revision offsets and columns: everything of a version but its value.

use super::{
    FLAG_DEATHS, FLAG_LEASE, FLAG_LEASES, FLAG_LIFETIMES, FLAG_SUBS, FLAG_ZERO, FLAGS_COLUMNS,
    FLAGS_WIDTH, VERSIONS_MAX,
};
use crate::cursor::Reader;
use crate::entry::EntryRef;
use crate::error::{DecodeError, Problem, Result};
use crate::limits::INTERNAL_KEY_BYTES_MAX;

pub(super) const GROUP: &str = "group";

/// A group of versions of one key, newest first, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The stored bytes of the block up to the end of the group, so that offsets are the block's.
    pub(super) bytes: &'a [u8],
    number: usize,
    pub(super) flags: u8,
    key_suffix: &'a [u8],
    newest: Fields,
    pub(super) offsets: &'a [u8],
    /// Where the columns begin and end.
    pub(super) columns: (usize, usize),
    pub(super) shape_of: &'a [u8],
    /// Where `shape_count` is.
    pub(super) shapes_at: usize,
}

/// What a version says of itself beside key and value; see [`EntryRef`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// The revision that wrote the version.
    pub revision: u64,
    /// The revision that superseded it.
    pub death: u64,
    /// Position of the write within its transaction.
    pub sub: u32,
    /// Revision that began the key's lifetime; 0 in a tombstone.
    pub create_revision: u64,
    /// 1 for the first version of a lifetime, then 2, 3, ...; 0 in a tombstone.
    pub version: u64,
    /// The lease the key is attached to; 0 = none.
    pub lease: i64,
    /// The version says that the key was deleted.
    pub tombstone: bool,
}

impl Fields {
    /// The whole entry.
    pub const fn entry<'a>(&self, key: &'a [u8], value: &'a [u8]) -> EntryRef<'a> {
        let Self { revision, death, sub, create_revision, version, lease, tombstone } = *self;
        EntryRef {
            key,
            revision,
            sub,
            tombstone,
            create_revision,
            version,
            lease,
            death,
            first: 0,
            lived: false,
            value,
            blob: None,
        }
    }

    /// Whether `older` continues this version's lifetime downwards.
    pub(super) const fn is_followed_by(&self, older: &Self) -> bool {
        !self.tombstone
            && !older.tombstone
            && self.create_revision == older.create_revision
            && self.version.saturating_sub(1) == older.version
    }
}

impl<'a> Group<'a> {
    /// Decodes the head of the group at `start`, which ends with `bytes`.
    pub(super) fn parse(bytes: &'a [u8], start: usize, number: usize) -> Result<Self> {
        let mut reader = Reader::new(GROUP, bytes);
        reader.bytes("group", start)?;
        let flags = reader.u8("flags")?;
        let leases = FLAG_LEASE | FLAG_LEASES;
        if flags & FLAG_ZERO != 0 || flags & leases == leases {
            return Err(reader.error_at("flags", start, Problem::Invalid { found: flags.into() }));
        }
        let versions = usize::from(reader.u8("versions")?);
        if !(1..=VERSIONS_MAX).contains(&versions) {
            let found = versions as u64;
            return Err(reader.error_at("versions", start + 1, Problem::Invalid { found }));
        }
        let key_suffix = reader.prefixed("key_suffix", INTERNAL_KEY_BYTES_MAX)?;
        let mut newest = Fields { revision: reader.varint("revision")?, ..Fields::default() };
        newest.death = death(&mut reader, newest.revision)?;
        newest.sub = reader.varint_u32("sub")?;
        life(&mut reader, &mut newest)?;
        if flags & FLAG_LEASE != 0 {
            newest.lease = reader.varint("lease")?.cast_signed();
        }
        let width = usize::from(flags & FLAGS_WIDTH) + 1;
        let offsets = reader.bytes("revision_offset", (versions - 1) * width)?;
        let columns_bytes = if flags & FLAGS_COLUMNS != 0 {
            reader.length("columns_bytes", bytes.len() as u64)?
        } else {
            0
        };
        let columns_at = reader.position();
        reader.bytes("columns", columns_bytes)?;
        let columns = (columns_at, reader.position());
        let shape_of = reader.bytes("shape_of", versions)?;
        let shapes_at = reader.position();
        Ok(Self { bytes, number, flags, key_suffix, newest, offsets, columns, shape_of, shapes_at })
    }

    /// Only what a search among groups needs: the key's suffix and the newest revision.
    pub(super) fn first(bytes: &'a [u8], start: usize) -> Result<(&'a [u8], u64)> {
        let mut reader = Reader::new(GROUP, bytes);
        reader.bytes("group", start)?;
        reader.bytes("flags", 2)?;
        let suffix = reader.prefixed("key_suffix", INTERNAL_KEY_BYTES_MAX)?;
        Ok((suffix, reader.varint("revision")?))
    }

    /// How many versions there are: 1 to [`VERSIONS_MAX`].
    #[expect(clippy::len_without_is_empty, reason = "a group is never empty")]
    pub const fn len(&self) -> usize {
        self.shape_of.len()
    }

    /// The group's number in the block.
    pub const fn number(&self) -> usize {
        self.number
    }

    /// The key without the prefix that all groups of the block share.
    pub const fn key_suffix(&self) -> &'a [u8] {
        self.key_suffix
    }

    /// The fields of version 0. Of its lease only what the head says: see [`fields`](Self::fields).
    pub const fn newest(&self) -> &Fields {
        &self.newest
    }

    /// The newest version with a revision of at most `at`.
    pub fn position_at(&self, at: u64) -> Option<usize> {
        // The first offset that leads to `at` or below.
        let least = match self.newest.revision.checked_sub(at) {
            None | Some(0) => return Some(0),
            Some(least) => least,
        };
        let before = match self.flags & FLAGS_WIDTH {
            0 => below::<1>(self.offsets, least),
            1 => below::<2>(self.offsets, least),
            2 => below::<3>(self.offsets, least),
            _ => below::<4>(self.offsets, least),
        };
        Some(before + 1).filter(|version| *version < self.len())
    }

    /// The revision of a version.
    pub fn revision(&self, version: usize) -> Result<u64> {
        let Some(index) = version.checked_sub(1) else { return Ok(self.newest.revision) };
        let offset = match self.flags & FLAGS_WIDTH {
            0 => nth::<1>(self.offsets, index),
            1 => nth::<2>(self.offsets, index),
            2 => nth::<3>(self.offsets, index),
            _ => nth::<4>(self.offsets, index),
        };
        let offset = offset.ok_or_else(|| self.no_version(version))?;
        self.newest.revision.checked_sub(offset).ok_or_else(|| {
            let problem = Problem::TooLong { max: self.newest.revision, found: offset };
            error("revision_offset", self.shapes_at, problem)
        })
    }

    /// Everything of a version but its value.
    pub fn fields(&self, version: usize) -> Result<Fields> {
        if version >= self.len() {
            return Err(self.no_version(version));
        }
        if self.flags & FLAGS_COLUMNS != 0 {
            return self.fields_of_columns(version);
        }
        let mut fields = Fields { revision: self.revision(version)?, ..self.newest };
        if let Some(before) = version.checked_sub(1) {
            fields.death = self.revision(before)?;
            self.follow(&mut fields, version)?;
        }
        Ok(fields)
    }

    fn fields_of_columns(&self, version: usize) -> Result<Fields> {
        let mut reader = self.column_reader();
        let mut fields = Fields { revision: self.revision(version)?, ..self.newest };
        if let Some(before) = version.checked_sub(1) {
            fields.death = self.revision(before)?;
        }
        if self.flags & FLAG_DEATHS != 0 {
            for marked in Self::bitmap(self.len(), &mut reader, "deaths")?.versions() {
                if marked == version {
                    fields.death = death(&mut reader, fields.revision)?;
                } else {
                    reader.varint("lived")?;
                }
            }
        }
        // The last version at or before this one that does not follow the one before.
        let mut start = 0;
        if self.flags & FLAG_LIFETIMES != 0 {
            for marked in Self::bitmap(self.len(), &mut reader, "lifetimes")?.versions() {
                if marked <= version {
                    start = marked;
                    fields.revision = self.revision(marked)?;
                    life(&mut reader, &mut fields)?;
                } else if reader.varint("version")? != 0 {
                    reader.varint("create")?;
                }
            }
            fields.revision = self.revision(version)?;
        }
        self.follow(&mut fields, version - start)?;
        if self.flags & FLAG_SUBS != 0 {
            for number in 1..self.len() {
                let sub = reader.varint_u32("sub")?;
                if number == version {
                    fields.sub = sub;
                }
            }
        }
        if self.flags & FLAG_LEASES != 0 {
            for _ in 0..version {
                reader.varint("lease")?;
            }
            fields.lease = reader.varint("lease")?.cast_signed();
        }
        Ok(fields)
    }

    /// Goes `steps` versions down in a lifetime.
    fn follow(&self, fields: &mut Fields, steps: usize) -> Result<()> {
        if steps == 0 {
            return Ok(());
        }
        let steps = steps as u64;
        let Some(version) = fields.version.checked_sub(steps).filter(|version| *version > 0) else {
            let problem = Problem::TooLong { max: fields.version, found: steps + 1 };
            return Err(error("version", self.columns.0, problem));
        };
        fields.version = version;
        if fields.create_revision > fields.revision {
            let (max, found) = (fields.revision, fields.create_revision);
            return Err(error("create", self.columns.0, Problem::TooLong { max, found }));
        }
        Ok(())
    }

    /// The columns, positions being those of the block.
    pub(super) fn column_reader(&self) -> Reader<'a> {
        let (start, end) = self.columns;
        let mut reader = Reader::new(GROUP, self.bytes.get(..end).unwrap_or_default());
        let skipped = reader.bytes("columns", start);
        debug_assert!(skipped.is_ok(), "the columns were found when the group was parsed");
        reader
    }

    /// The bitmap at the reader, of a group of so many versions. It marks neither version 0 nor any there is not.
    pub(super) fn bitmap(
        versions: usize,
        reader: &mut Reader<'_>,
        field: &'static str,
    ) -> Result<Bitmap> {
        let at = reader.position();
        let bytes = reader.bytes(field, versions.div_ceil(8))?;
        let mut bits = [0; 8];
        for (to, from) in bits.iter_mut().zip(bytes) {
            *to = *from;
        }
        let bits = u64::from_le_bytes(bits);
        let allowed = u64::MAX >> (VERSIONS_MAX - versions) & !1;
        if bits & !allowed != 0 {
            return Err(reader.error_at(field, at, Problem::NotZero));
        }
        Ok(Bitmap(bits))
    }

    #[cold]
    pub(super) const fn no_version(&self, version: usize) -> DecodeError {
        let problem = Problem::TooLong { max: self.len() as u64 - 1, found: version as u64 };
        error("versions", self.shapes_at, problem)
    }
}

/// An error of a group; `at` is an offset in the stored bytes of the block.
pub(super) const fn error(field: &'static str, at: usize, problem: Problem) -> DecodeError {
    DecodeError { structure: GROUP, field, offset: at as u64, problem }
}

/// Which versions a column describes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bitmap(u64);

impl Bitmap {
    /// Whether no version is marked.
    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The versions marked, ascending.
    pub(super) fn versions(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let next = (rest != 0).then_some(rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(next)
        })
    }
}

/// A `lived`, as the death of a version of this revision.
pub(super) fn death(reader: &mut Reader<'_>, revision: u64) -> Result<u64> {
    let at = reader.position();
    let lived = reader.varint("lived")?;
    match revision.checked_add(lived) {
        Some(death) if lived > 0 => Ok(death),
        _ => Err(reader.error_at("lived", at, Problem::Invalid { found: lived })),
    }
}

/// A `life`, for a version whose revision is known.
pub(super) fn life(reader: &mut Reader<'_>, fields: &mut Fields) -> Result<()> {
    fields.version = reader.varint("version")?;
    fields.tombstone = fields.version == 0;
    fields.create_revision = 0;
    if !fields.tombstone {
        let at = reader.position();
        let found = reader.varint("create")?;
        fields.create_revision = fields.revision.checked_sub(found).ok_or_else(|| {
            reader.error_at("create", at, Problem::TooLong { max: fields.revision, found })
        })?;
    }
    Ok(())
}

/// How many of the offsets, which ascend, are below `least`.
fn below<const N: usize>(offsets: &[u8], least: u64) -> usize {
    offsets.as_chunks::<N>().0.partition_point(|bytes| uint(*bytes) < least)
}

/// An offset by its number.
fn nth<const N: usize>(offsets: &[u8], index: usize) -> Option<u64> {
    offsets.as_chunks::<N>().0.get(index).map(|bytes| uint(*bytes))
}

/// A number of `N` bytes.
fn uint<const N: usize>(bytes: [u8; N]) -> u64 {
    let mut wide = [0; 8];
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = from;
    }
    u64::from_le_bytes(wide)
}
