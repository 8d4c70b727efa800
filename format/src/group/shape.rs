//! Shapes: how long a version's value and payload are, and how the one is made of the other.

use super::apply::short;
use super::head::{GROUP, Group, error};
use super::{
    ALPHABET_SHIFT, ALPHABETS, GROUP_VALUE_BYTES_MAX, KIND_BITS, KIND_DICTIONARY, KIND_NEIGHBOUR,
    KIND_OWN, KIND_RAW, KIND_TOMBSTONE, SHAPES_MAX,
};
use crate::cursor::{Reader, Writer};
use crate::error::{Problem, Result};

/// What the payload of a version is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// One of the `KIND_` constants.
    pub kind: u8,
    /// 0, or the number of one of [`ALPHABETS`], counted from 1: how literals are packed.
    pub alphabet: u8,
    /// Which version or group the value is made from, as the kind says.
    pub base: u8,
    /// Length of the value.
    pub value_bytes: u32,
    /// Length of the payload.
    pub payload_bytes: u32,
    /// Where the ops begin in those of the group.
    pub ops_at: u32,
}

impl Shape {
    /// Whether the payload is literals among copies.
    pub const fn is_delta(&self) -> bool {
        matches!(self.kind, KIND_DICTIONARY..=KIND_NEIGHBOUR)
    }

    /// Appends it as it is stored.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.kind | self.alphabet << ALPHABET_SHIFT);
        out.put_u8(self.base);
        out.put_varint(self.value_bytes.into());
        out.put_varint(self.payload_bytes.into());
        if self.is_delta() {
            out.put_varint(self.ops_at.into());
        }
    }

    /// The quick way: decodes nearly all good shapes, and no bad one.
    #[inline]
    fn usual(rest: &mut &[u8]) -> Option<Self> {
        let [byte, base, after @ ..] = *rest else { return None };
        *rest = after;
        let (kind, alphabet) = (byte & KIND_BITS, byte >> ALPHABET_SHIFT);
        let value_bytes = u32::try_from(short(rest)?).ok()?;
        let payload_bytes = u32::try_from(short(rest)?).ok()?;
        let (good, ops_at) = match kind {
            KIND_RAW..KIND_DICTIONARY => {
                let raw = kind != KIND_RAW || payload_bytes == value_bytes;
                (raw && alphabet == 0 && *base == 0, 0)
            }
            KIND_DICTIONARY..=KIND_NEIGHBOUR => {
                let based = match kind {
                    KIND_DICTIONARY => *base == 0,
                    KIND_OWN => true,
                    _ => *base != 0,
                };
                let packed = usize::from(alphabet) <= ALPHABETS.len();
                (based && packed && value_bytes > 0, u32::try_from(short(rest)?).ok()?)
            }
            _ => (false, 0),
        };
        let good = good && u64::from(value_bytes) <= GROUP_VALUE_BYTES_MAX;
        let base = *base;
        good.then_some(Self { kind, alphabet, base, value_bytes, payload_bytes, ops_at })
    }

    /// Decodes any good shape, or says what is wrong.
    fn any(reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.position();
        let byte = reader.u8("kind")?;
        let (kind, alphabet) = (byte & KIND_BITS, byte >> ALPHABET_SHIFT);
        let delta = matches!(kind, KIND_DICTIONARY..=KIND_NEIGHBOUR);
        let alphabets = if delta { ALPHABETS.len() } else { 0 };
        if kind > KIND_NEIGHBOUR || usize::from(alphabet) > alphabets {
            return Err(reader.error_at("kind", at, Problem::Invalid { found: byte.into() }));
        }
        let base = reader.u8("base")?;
        let based = matches!(kind, KIND_OWN | KIND_NEIGHBOUR);
        if (!based && base != 0) || (kind == KIND_NEIGHBOUR && base == 0) {
            return Err(reader.error_at("base", at + 1, Problem::Invalid { found: base.into() }));
        }
        let value_at = reader.position();
        let found = reader.varint("value_bytes")?;
        // A delta that makes nothing has no ops, a tombstone no value.
        if (kind == KIND_TOMBSTONE && found != 0) || (delta && found == 0) {
            return Err(reader.error_at("value_bytes", value_at, Problem::Invalid { found }));
        }
        let value_bytes = u32::try_from(found).ok().filter(|_| found <= GROUP_VALUE_BYTES_MAX);
        let value_bytes = value_bytes.ok_or_else(|| {
            let problem = Problem::TooLong { max: GROUP_VALUE_BYTES_MAX, found };
            reader.error_at("value_bytes", value_at, problem)
        })?;
        let payload_at = reader.position();
        let payload_bytes = reader.varint_u32("payload_bytes")?;
        let plain = matches!(kind, KIND_TOMBSTONE | KIND_RAW);
        if plain && payload_bytes != value_bytes {
            let (expected, found) = (value_bytes.into(), payload_bytes.into());
            let problem = Problem::Mismatch { expected, found };
            return Err(reader.error_at("payload_bytes", payload_at, problem));
        }
        let ops_at = if delta { reader.varint_u32("ops_at")? } else { 0 };
        Ok(Self { kind, alphabet, base, value_bytes, payload_bytes, ops_at })
    }
}

/// The shapes of one group, decoded.
#[derive(Debug)]
pub(super) struct Shapes {
    list: [Shape; SHAPES_MAX],
    count: usize,
    /// Where the ops begin and end, in the stored bytes of the block.
    pub(super) ops: (usize, usize),
}

/// A version's shape, and where the rest of what makes its value lies in the stored bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece<'a> {
    /// The numbers of the group and the version.
    pub(super) of: (usize, usize),
    pub(super) shape: Shape,
    pub(super) payload: &'a [u8],
    pub(super) payload_at: usize,
    /// The stored bytes up to the end of the group's ops.
    pub(super) ops: &'a [u8],
    pub(super) ops_at: usize,
}

impl Default for Shapes {
    fn default() -> Self {
        Self { list: [Shape::default(); SHAPES_MAX], count: 0, ops: (0, 0) }
    }
}

impl Shapes {
    /// How many shapes there are.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// The shapes there are.
    pub(super) fn list(&self) -> &[Shape] {
        self.list.get(..self.count).unwrap_or_default()
    }

    /// Decodes the shapes of a group in place of those here.
    pub(super) fn read(&mut self, group: &Group<'_>) -> Result<()> {
        self.count = 0;
        let mut reader = Reader::new(GROUP, group.bytes);
        reader.bytes("shape_of", group.shapes_at)?;
        let count = usize::from(reader.u8("shape_count")?);
        if !(1..=group.len()).contains(&count) {
            let found = count as u64;
            let problem = Problem::Invalid { found };
            return Err(reader.error_at("shape_count", group.shapes_at, problem));
        }
        let ops_bytes = reader.length("ops_bytes", group.bytes.len() as u64)?;
        let mut rest = reader.rest();
        for shape in self.list.iter_mut().take(count) {
            let mut after = rest;
            if let Some(usual) = Shape::usual(&mut after) {
                (*shape, rest) = (usual, after);
                continue;
            }
            reader.bytes("kind", reader.remaining() - rest.len())?;
            *shape = Shape::any(&mut reader)?;
            rest = reader.rest();
        }
        reader.bytes("ops", reader.remaining() - rest.len())?;
        let ops_at = reader.position();
        reader.bytes("ops", ops_bytes)?;
        (self.ops, self.count) = ((ops_at, reader.position()), count);
        Ok(())
    }

    /// The shape of a version.
    pub(super) fn shape(&self, group: &Group<'_>, version: usize) -> Result<&Shape> {
        let number = *group.shape_of.get(version).ok_or_else(|| group.no_version(version))?;
        self.list().get(usize::from(number)).ok_or_else(|| {
            let (max, found) = (self.count.saturating_sub(1) as u64, u64::from(number));
            let at = group.shapes_at - group.len() + version;
            error("shape_of", at, Problem::TooLong { max, found })
        })
    }

    /// A version with its payload, which lies behind those of the versions before.
    pub(super) fn piece<'a>(&self, group: &Group<'a>, version: usize) -> Result<Piece<'a>> {
        let shape = *self.shape(group, version)?;
        let mut payload_at = self.ops.1 as u64;
        for number in group.shape_of.iter().take(version) {
            // A number of no shape is an error where that version is read or checked.
            let before = self.list().get(usize::from(*number)).copied().unwrap_or_default();
            payload_at += u64::from(before.payload_bytes);
        }
        let payload = usize::try_from(payload_at).ok().and_then(|at| {
            let end = at.checked_add(usize::try_from(shape.payload_bytes).ok()?)?;
            Some((at, group.bytes.get(at..end)?))
        });
        let Some((payload_at, payload)) = payload else {
            let needed = payload_at + u64::from(shape.payload_bytes);
            let problem = Problem::Truncated { needed, have: group.bytes.len() as u64 };
            return Err(error("payload", self.ops.1, problem));
        };
        let (ops, ops_at) = self.ops_of(group, &shape)?;
        Ok(Piece { of: (group.number(), version), shape, payload, payload_at, ops, ops_at })
    }

    /// The stored bytes up to the end of the group's ops, and where in them those of a shape begin.
    pub(super) fn ops_of<'a>(&self, group: &Group<'a>, shape: &Shape) -> Result<(&'a [u8], usize)> {
        let (start, end) = self.ops;
        let ops_at = usize::try_from(shape.ops_at).ok().and_then(|at| start.checked_add(at));
        let Some(ops_at) = ops_at.filter(|at| *at <= end) else {
            let (max, found) = ((end - start) as u64, u64::from(shape.ops_at));
            return Err(error("ops_at", group.shapes_at, Problem::TooLong { max, found }));
        };
        Ok((group.bytes.get(..end).unwrap_or_default(), ops_at))
    }
}

impl Group<'_> {
    /// The length of a version's value.
    pub fn value_bytes(&self, version: usize) -> Result<u32> {
        let number = *self.shape_of.get(version).ok_or_else(|| self.no_version(version))?;
        let mut reader = Reader::new(GROUP, self.bytes);
        reader.bytes("shape_of", self.shapes_at)?;
        let count = reader.u8("shape_count")?;
        if number >= count {
            let (max, found) = (u64::from(count).saturating_sub(1), u64::from(number));
            let at = self.shapes_at - self.len() + version;
            return Err(error("shape_of", at, Problem::TooLong { max, found }));
        }
        reader.varint("ops_bytes")?;
        for _ in 0..number {
            Shape::any(&mut reader)?;
        }
        Shape::any(&mut reader).map(|shape| shape.value_bytes)
    }
}
