//! The proof of what a block of groups promises.

use std::cmp::Ordering;

use super::apply::Ops;
use super::directory::Groups;
use super::head::{Fields, Group, death, error, life};
use super::shape::{Piece, Shape, Shapes, Widths};
use super::value::Scratch;
use super::{
    Codec, FLAG_DEATHS, FLAG_LEASE, FLAG_LEASES, FLAG_LIFETIMES, FLAG_SUBS, FLAGS_WIDTH,
    KIND_TOMBSTONE,
};
use crate::block::{self, BlockHeader};
use crate::entry::{EntryRef, common_prefix};
use crate::error::{DecodeError, Problem, Result};
use crate::limits::INTERNAL_KEY_BYTES_MAX;

impl Groups<'_> {
    /// Checks everything that the stored bytes of a block promise, the values included, and hands
    /// out its entries with whole keys.
    pub fn check<C: Codec>(
        &self,
        header: &BlockHeader,
        codec: &mut C,
        scratch: &mut Scratch,
        mut each: impl FnMut(&EntryRef<'_>, &[u8]),
    ) -> Result<()> {
        let mut key = self.prefix().to_vec();
        let mut first: &[u8] = &[];
        let mut before: Option<(&[u8], u64)> = None;
        let (mut entries, mut bytes) = (0_u64, 0_u64);
        for index in 0..self.count() {
            let at = self.span(index)?.0;
            let group = self.group(index)?;
            let (suffix, newest) = (group.key_suffix(), group.newest().revision);
            if before.is_some_and(|(key, revision)| {
                block::compare(key, revision, suffix, newest) != Ordering::Less
            }) {
                return Err(error("key_suffix", at, Problem::Order));
            }
            if index == 0 {
                first = suffix;
            }
            key.truncate(self.prefix().len());
            key.extend_from_slice(suffix);
            if key.len() as u64 > INTERNAL_KEY_BYTES_MAX {
                let (max, found) = (INTERNAL_KEY_BYTES_MAX, key.len() as u64);
                return Err(error("key_suffix", at, Problem::TooLong { max, found }));
            }
            self.check_hash(index, suffix)?;
            group.check_revisions(at)?;
            group.check_columns(at)?;
            let shapes = Shapes::of(&group)?;
            shapes.check(&group)?;
            for version in 0..group.len() {
                let fields = group.fields(version)?;
                let shape = shapes.shape(&group, version)?;
                if fields.tombstone != (shape.kind == KIND_TOMBSTONE) {
                    let problem = Problem::Invalid { found: shape.kind.into() };
                    return Err(error("kind", group.shapes_at, problem));
                }
                let value = self.value_of(&group, version, codec, scratch)?;
                each(&fields.entry(&key, value.as_ref()), &key);
                entries += 1;
                bytes = bytes.saturating_add(u64::from(shape.value_bytes));
            }
            before = Some((suffix, group.revision(group.len() - 1)?));
        }
        let of_all =
            |field, problem| DecodeError { structure: "groups", field, offset: 0, problem };
        if let Some((last, _)) = before {
            let more = common_prefix(first, last) as u64;
            if more > 0 {
                let expected = self.prefix().len() as u64 + more;
                let found = self.prefix().len() as u64;
                return Err(of_all("prefix", Problem::Mismatch { expected, found }));
            }
        }
        for (field, found, expected) in
            [("entry_count", entries, header.entry_count), ("raw_bytes", bytes, header.raw_bytes)]
        {
            let expected = u64::from(expected);
            if found != expected {
                return Err(of_all(field, Problem::Mismatch { expected, found }));
            }
        }
        Ok(())
    }
}

impl Group<'_> {
    /// Revisions descend, and their offsets are as narrow as they can be.
    fn check_revisions(&self, at: usize) -> Result<()> {
        let mut before = self.newest().revision;
        for version in 1..self.len() {
            let revision = self.revision(version)?;
            if revision >= before {
                return Err(error("revision_offset", self.columns.0, Problem::Order));
            }
            before = revision;
        }
        let widest = self.newest().revision - before;
        let width = self.flags & FLAGS_WIDTH;
        let fits = (0..FLAGS_WIDTH).find(|width| widest >> (8 * (u32::from(*width) + 1)) == 0);
        if width != fits.unwrap_or(FLAGS_WIDTH) {
            return Err(error("flags", at, Problem::Invalid { found: self.flags.into() }));
        }
        Ok(())
    }

    /// A column is there only if it is needed, marks only what it must, and has nothing behind it.
    fn check_columns(&self, at: usize) -> Result<()> {
        let needless = || error("flags", at, Problem::Invalid { found: u64::from(self.flags) });
        let mut reader = self.column_reader();
        if self.flags & FLAG_DEATHS != 0 {
            let bitmap = Self::bitmap(self.len(), &mut reader, "deaths")?;
            for version in bitmap.versions() {
                let at = reader.position();
                let died = death(&mut reader, self.revision(version)?)?;
                if died == self.revision(version - 1)? {
                    return Err(error("lived", at, Problem::Invalid { found: died }));
                }
            }
            if bitmap.is_empty() {
                return Err(needless());
            }
        }
        if self.flags & FLAG_LIFETIMES != 0 {
            let bitmap = Self::bitmap(self.len(), &mut reader, "lifetimes")?;
            for version in bitmap.versions() {
                let at = reader.position();
                let mut fields = Fields { revision: self.revision(version)?, ..Fields::default() };
                life(&mut reader, &mut fields)?;
                if self.fields(version - 1)?.is_followed_by(&fields) {
                    let found = fields.version;
                    return Err(error("version", at, Problem::Invalid { found }));
                }
            }
            if bitmap.is_empty() {
                return Err(needless());
            }
        }
        if self.flags & FLAG_SUBS != 0 {
            let mut differs = false;
            for _ in 1..self.len() {
                differs |= reader.varint_u32("sub")? != self.newest().sub;
            }
            if !differs {
                return Err(needless());
            }
        }
        if self.flags & FLAG_LEASES != 0 {
            let first = reader.varint("lease")?;
            let mut differs = false;
            for _ in 1..self.len() {
                differs |= reader.varint("lease")? != first;
            }
            if !differs {
                return Err(needless());
            }
        }
        if self.flags & FLAG_LEASE != 0 && self.newest().lease == 0 {
            return Err(needless());
        }
        reader.finish()
    }
}

impl<'a> Shapes<'a> {
    /// Every shape is in use, in the order of first use, and is another than those before; columns are
    /// as narrow as they can be; every op belongs to a shape; the payloads end where the group does.
    fn check(&self, group: &Group<'a>) -> Result<()> {
        let mut used = 0;
        let mut payloads = 0_u64;
        for (version, number) in group.shape_of.iter().enumerate() {
            let at = group.shapes_at - group.len() + version;
            match usize::from(*number) {
                number if number == used => used += 1,
                number if number > used => {
                    return Err(error("shape_of", at, Problem::Order));
                }
                _ => {}
            }
            payloads += u64::from(self.shape(group, version)?.payload_bytes);
        }
        if used != self.count() {
            let problem = Problem::Mismatch { expected: used as u64, found: self.count() as u64 };
            return Err(error("shape_count", group.shapes_at, problem));
        }
        let shapes = (0..self.count()).map_while(|number| self.nth(number));
        let shapes = shapes.collect::<Result<Vec<_>>>()?;
        let is_twin = |(index, shape): (usize, &Shape)| {
            shapes.get(..index).unwrap_or_default().contains(shape)
        };
        if shapes.iter().enumerate().any(is_twin) {
            let found = shapes.len() as u64;
            return Err(error("shape_count", group.shapes_at, Problem::Invalid { found }));
        }
        let (widths, widths_at) = self.widths();
        if widths != Widths::of(&shapes) {
            let found = widths.byte().into();
            return Err(error("widths", widths_at, Problem::Invalid { found }));
        }
        let (start, end) = self.ops;
        let mut ends = start;
        for (index, shape) in shapes.iter().enumerate().filter(|(_, shape)| shape.is_delta()) {
            if shape.alphabet != 0 && shape.payload_bytes == 0 {
                let found = u64::from(shape.alphabet);
                return Err(error("kind", group.shapes_at, Problem::Invalid { found }));
            }
            let (at, reaches) = self.check_ops(group, shape)?;
            let earlier = shapes.get(..index).unwrap_or_default();
            if at == ends {
                ends = reaches;
            } else if !earlier.iter().any(|other| {
                let same = (other.ops_at, other.value_bytes) == (shape.ops_at, shape.value_bytes);
                other.is_delta() && same
            }) {
                return Err(error("ops_at", group.shapes_at, Problem::Order));
            }
        }
        if ends != end {
            let problem = Problem::Trailing { bytes: end.saturating_sub(ends) as u64 };
            return Err(error("ops", ends, problem));
        }
        let left = (group.bytes.len() - end) as u64;
        if payloads != left {
            let problem = Problem::Mismatch { expected: left, found: payloads };
            return Err(error("payload", end, problem));
        }
        Ok(())
    }

    /// Walks the ops of a shape; answers where they begin and end in the block.
    fn check_ops(&self, group: &Group<'a>, shape: &Shape) -> Result<(usize, usize)> {
        let (ops, ops_at) = self.ops_of(group, shape)?;
        let piece = Piece { shape: *shape, ops, ops_at, ..Piece::default() };
        let mut ops = Ops::new(&piece);
        ops.each(|_| true);
        ops.finish()?;
        Ok((ops_at, ops.position()))
    }
}
