//! Shapes: how long a version's value and payload are, and how the one is made of the other.
//!
//! They stand in columns of numbers of one width each, so one shape is read, and the payloads before a
//! version's are summed up, without decoding any other.

use super::head::{GROUP, Group, error};
use super::{
    ALPHABET_SHIFT, ALPHABETS, GROUP_VALUE_BYTES_MAX, KIND_BITS, KIND_DICTIONARY, KIND_NEIGHBOUR,
    KIND_OWN, KIND_RAW, KIND_TOMBSTONE,
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
}

/// How many bytes each number of a column takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Widths {
    /// 1 to 4.
    value_bytes: u8,
    /// 1 to 4.
    payload_bytes: u8,
    /// 0 to 3: as many ops as a group can have lie within three bytes.
    ops_at: u8,
}

/// Bits of `widths` that are zero.
const WIDTHS_ZERO: u8 = 0b1100_0000;

impl Widths {
    /// As few as hold the numbers of all shapes.
    pub(super) fn of(shapes: &[Shape]) -> Self {
        let widest = |number: fn(&Shape) -> u32| {
            let bits =
                u32::BITS - shapes.iter().fold(0, |all, shape| all | number(shape)).leading_zeros();
            // At most 4.
            u8::try_from(bits.div_ceil(8)).unwrap_or(4)
        };
        Self {
            value_bytes: widest(|shape| shape.value_bytes).max(1),
            payload_bytes: widest(|shape| shape.payload_bytes).max(1),
            ops_at: widest(|shape| shape.ops_at).min(3),
        }
    }

    /// As it is stored.
    pub(super) const fn byte(self) -> u8 {
        (self.value_bytes - 1) | (self.payload_bytes - 1) << 2 | self.ops_at << 4
    }

    fn from_byte(byte: u8) -> Option<Self> {
        (byte & WIDTHS_ZERO == 0).then_some(Self {
            value_bytes: (byte & 3) + 1,
            payload_bytes: (byte >> 2 & 3) + 1,
            ops_at: byte >> 4 & 3,
        })
    }

    /// Bytes that a shape takes.
    pub(super) fn shape_bytes(self) -> usize {
        2 + usize::from(self.value_bytes)
            + usize::from(self.payload_bytes)
            + usize::from(self.ops_at)
    }
}

/// Appends `shape_count`, `ops_bytes` and the columns of all shapes.
pub(super) fn encode(shapes: &[Shape], ops_bytes: usize, out: &mut Vec<u8>) {
    // At most one a version.
    out.put_u8(u8::try_from(shapes.len()).unwrap_or(u8::MAX));
    out.put_varint(ops_bytes as u64);
    let widths = Widths::of(shapes);
    out.put_u8(widths.byte());
    for shape in shapes {
        out.put_u8(shape.kind | shape.alphabet << ALPHABET_SHIFT);
    }
    for shape in shapes {
        out.put_u8(shape.base);
    }
    let mut column = |width: u8, number: fn(&Shape) -> u32| {
        for shape in shapes {
            let bytes = number(shape).to_le_bytes();
            out.put_bytes(bytes.get(..usize::from(width)).unwrap_or_default());
        }
    };
    column(widths.value_bytes, |shape| shape.value_bytes);
    column(widths.payload_bytes, |shape| shape.payload_bytes);
    column(widths.ops_at, |shape| shape.ops_at);
}

/// Numbers of one width, and where in the stored bytes of the block they begin.
#[derive(Clone, Copy, Debug)]
struct Column<'a> {
    bytes: &'a [u8],
    width: u8,
    at: usize,
}

impl<'a> Column<'a> {
    fn read(reader: &mut Reader<'a>, field: &'static str, width: u8, count: usize) -> Result<Self> {
        let at = reader.position();
        let bytes = reader.bytes(field, count * usize::from(width))?;
        Ok(Self { bytes, width, at })
    }

    fn get(&self, number: usize) -> Option<u32> {
        match self.width {
            0 => Some(0),
            1 => nth::<1>(self.bytes, number),
            2 => nth::<2>(self.bytes, number),
            3 => nth::<3>(self.bytes, number),
            _ => nth::<4>(self.bytes, number),
        }
    }

    /// The sum over shapes of these numbers. One of no shape is an error where its version is read or checked.
    fn sum(&self, numbers: &[u8]) -> u64 {
        match self.width {
            1 => sum::<1>(self.bytes, numbers),
            2 => sum::<2>(self.bytes, numbers),
            3 => sum::<3>(self.bytes, numbers),
            _ => sum::<4>(self.bytes, numbers),
        }
    }

    fn place(&self, number: usize) -> usize {
        self.at + number * usize::from(self.width)
    }
}

fn nth<const N: usize>(bytes: &[u8], number: usize) -> Option<u32> {
    let mut wide = [0; 4];
    for (to, from) in wide.iter_mut().zip(bytes.as_chunks::<N>().0.get(number)?) {
        *to = *from;
    }
    Some(u32::from_le_bytes(wide))
}

fn sum<const N: usize>(bytes: &[u8], numbers: &[u8]) -> u64 {
    numbers.iter().map(|number| nth::<N>(bytes, usize::from(*number)).map_or(0, u64::from)).sum()
}

/// The shapes of one group, read in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shapes<'a> {
    count: usize,
    widths: Widths,
    kinds: Column<'a>,
    bases: Column<'a>,
    value_bytes: Column<'a>,
    payload_bytes: Column<'a>,
    ops_at: Column<'a>,
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

impl<'a> Shapes<'a> {
    /// Finds the columns of a group. Decodes no shape.
    pub(super) fn of(group: &Group<'a>) -> Result<Self> {
        let mut reader = Reader::new(GROUP, group.bytes);
        reader.bytes("shape_of", group.shapes_at)?;
        let count = usize::from(reader.u8("shape_count")?);
        if !(1..=group.len()).contains(&count) {
            let found = count as u64;
            let problem = Problem::Invalid { found };
            return Err(reader.error_at("shape_count", group.shapes_at, problem));
        }
        let ops_bytes = reader.length("ops_bytes", group.bytes.len() as u64)?;
        let at = reader.position();
        let byte = reader.u8("widths")?;
        let Some(widths) = Widths::from_byte(byte) else {
            return Err(reader.error_at("widths", at, Problem::Invalid { found: byte.into() }));
        };
        let kinds = Column::read(&mut reader, "kind", 1, count)?;
        let bases = Column::read(&mut reader, "base", 1, count)?;
        let value_bytes = Column::read(&mut reader, "value_bytes", widths.value_bytes, count)?;
        let payload_bytes =
            Column::read(&mut reader, "payload_bytes", widths.payload_bytes, count)?;
        let ops_at = Column::read(&mut reader, "ops_at", widths.ops_at, count)?;
        let start = reader.position();
        reader.bytes("ops", ops_bytes)?;
        let ops = (start, reader.position());
        Ok(Self { count, widths, kinds, bases, value_bytes, payload_bytes, ops_at, ops })
    }

    /// How many shapes there are.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// How wide the columns are, and where the group says so.
    pub(super) const fn widths(&self) -> (Widths, usize) {
        (self.widths, self.kinds.at - 1)
    }

    /// A shape by its number; `None` if there are not as many.
    pub(super) fn nth(&self, number: usize) -> Option<Result<Shape>> {
        let byte = u8::try_from(self.kinds.get(number)?).ok()?;
        let shape = Shape {
            kind: byte & KIND_BITS,
            alphabet: byte >> ALPHABET_SHIFT,
            base: u8::try_from(self.bases.get(number)?).ok()?,
            value_bytes: self.value_bytes.get(number)?,
            payload_bytes: self.payload_bytes.get(number)?,
            ops_at: self.ops_at.get(number)?,
        };
        Some(self.check_fields(number, shape))
    }

    /// Whether the fields of a shape go together.
    #[inline]
    fn check_fields(&self, number: usize, shape: Shape) -> Result<Shape> {
        let Shape { kind, alphabet, base, value_bytes, payload_bytes, ops_at } = shape;
        let delta = shape.is_delta();
        let alphabets = if delta { ALPHABETS.len() } else { 0 };
        let invalid = |field, column: &Column<'_>, found: u64| {
            Err(error(field, column.place(number), Problem::Invalid { found }))
        };
        if kind > KIND_NEIGHBOUR || usize::from(alphabet) > alphabets {
            let byte = kind | alphabet << ALPHABET_SHIFT;
            return invalid("kind", &self.kinds, byte.into());
        }
        let based = matches!(kind, KIND_OWN | KIND_NEIGHBOUR);
        if (!based && base != 0) || (kind == KIND_NEIGHBOUR && base == 0) {
            return invalid("base", &self.bases, base.into());
        }
        // A delta that makes nothing has no ops, a tombstone no value.
        if (kind == KIND_TOMBSTONE && value_bytes != 0) || (delta && value_bytes == 0) {
            return invalid("value_bytes", &self.value_bytes, value_bytes.into());
        }
        if u64::from(value_bytes) > GROUP_VALUE_BYTES_MAX {
            let problem =
                Problem::TooLong { max: GROUP_VALUE_BYTES_MAX, found: value_bytes.into() };
            return Err(error("value_bytes", self.value_bytes.place(number), problem));
        }
        let plain = matches!(kind, KIND_TOMBSTONE | KIND_RAW);
        if plain && payload_bytes != value_bytes {
            let (expected, found) = (value_bytes.into(), payload_bytes.into());
            let problem = Problem::Mismatch { expected, found };
            return Err(error("payload_bytes", self.payload_bytes.place(number), problem));
        }
        if !delta && ops_at != 0 {
            return invalid("ops_at", &self.ops_at, ops_at.into());
        }
        Ok(shape)
    }

    /// The shape of a version.
    pub(super) fn shape(&self, group: &Group<'_>, version: usize) -> Result<Shape> {
        let number = *group.shape_of.get(version).ok_or_else(|| group.no_version(version))?;
        self.nth(usize::from(number)).unwrap_or_else(|| {
            let (max, found) = (self.count.saturating_sub(1) as u64, u64::from(number));
            let at = group.shapes_at - group.len() + version;
            Err(error("shape_of", at, Problem::TooLong { max, found }))
        })
    }

    /// A version with its payload, which lies behind those of the versions before.
    pub(super) fn piece(&self, group: &Group<'a>, version: usize) -> Result<Piece<'a>> {
        let shape = self.shape(group, version)?;
        let before = group.shape_of.get(..version).unwrap_or_default();
        let payload_at = self.ops.1 as u64 + self.payload_bytes.sum(before);
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
    pub(super) fn ops_of(&self, group: &Group<'a>, shape: &Shape) -> Result<(&'a [u8], usize)> {
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
        Ok(Shapes::of(self)?.shape(self, version)?.value_bytes)
    }
}
