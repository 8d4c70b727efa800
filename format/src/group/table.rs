//! The shapes of a group that is being written, and their ops.
//!
//! Versions whose shapes are the same to the byte share one, and shapes with the same ops share
//! those. Shapes are numbered in the order of their first use.

use super::apply::Op;
use super::shape::{self, Shape, Widths};
use super::{ALPHABETS, KIND_NEIGHBOUR, KIND_RAW};
use crate::cursor::Writer;

/// How one version is stored. The buffers are used again for the next one.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    /// Without `payload_bytes` and `ops_at`.
    shape: Shape,
    /// With a kind that has ops, the ops; else empty.
    pub(super) ops: Vec<Op>,
    /// What is stored of this version alone.
    pub(super) payload: Vec<u8>,
}

impl Stored {
    /// The value as it is.
    pub(super) fn raw(&mut self, value: &[u8]) {
        self.whole(KIND_RAW, value.len());
        self.payload.extend_from_slice(value);
    }

    /// Something without base and ops. The payload is left empty.
    pub(super) fn whole(&mut self, kind: u8, value_bytes: usize) {
        self.shape = Shape { kind, value_bytes: short(value_bytes), ..Shape::default() };
        self.ops.clear();
        self.payload.clear();
    }

    /// Ops over a base, and literals, packed if an alphabet has all of them.
    pub(super) fn delta(
        &mut self,
        kind: u8,
        base: u8,
        value_bytes: usize,
        ops: &[Op],
        literals: &[u8],
    ) {
        self.whole(kind, value_bytes);
        self.shape.base = base;
        self.ops.extend_from_slice(ops);
        self.shape.alphabet = pack(literals, &mut self.payload);
    }

    /// What the payload is.
    pub(super) const fn kind(&self) -> u8 {
        self.shape.kind
    }

    /// Bytes of its payload and of a shape of its own.
    pub(super) fn alone_bytes(&self) -> usize {
        let ops: usize = self.ops.iter().map(|op| op.stored_bytes()).sum();
        self.payload.len() + ops + self.shape_bytes()
    }

    /// Bytes of its shape, but for what other shapes of the group need.
    fn shape_bytes(&self) -> usize {
        Widths::of(&[self.shape()]).shape_bytes() + if self.shape.is_delta() { 2 } else { 0 }
    }

    /// Its shape, with its ops before all others.
    fn shape(&self) -> Shape {
        Shape { payload_bytes: short(self.payload.len()), ..self.shape }
    }
}

/// Lengths of values are at most 2^29, places of ops below 2^22.
fn short(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Shapes and ops of one group.
#[derive(Debug, Default)]
pub(super) struct Table {
    shapes: Vec<Shape>,
    ops: Vec<u8>,
    /// Where the ops of a shape that did not find its own begin, and their length.
    lists: Vec<(usize, usize)>,
    scratch: Vec<u8>,
}

impl Table {
    /// Forgets all shapes.
    pub(super) fn clear(&mut self) {
        self.shapes.clear();
        self.ops.clear();
        self.lists.clear();
    }

    /// Bytes that all of it takes, give or take two.
    pub(super) fn stored_bytes(&self) -> usize {
        5 + self.ops.len() + Widths::of(&self.shapes).shape_bytes() * self.shapes.len()
    }

    /// How many shapes there are.
    pub(super) fn len(&self) -> usize {
        self.shapes.len()
    }

    /// Bytes that the version would add: its payload and what of its shape is new.
    pub(super) fn added_bytes(&mut self, stored: &Stored) -> usize {
        let (shape, list) = self.find(stored);
        if self.shapes.contains(&shape) {
            return stored.payload.len();
        }
        let ops = if list { self.scratch.len() } else { 0 };
        stored.payload.len() + stored.shape_bytes() + ops
    }

    /// The number of the version's shape, which is added if it is new.
    pub(super) fn shape_of(&mut self, stored: &Stored) -> u8 {
        let (shape, list) = self.find(stored);
        let number = self.shapes.iter().position(|known| *known == shape).unwrap_or_else(|| {
            if list {
                self.lists.push((self.ops.len(), self.scratch.len()));
                self.ops.extend_from_slice(&self.scratch);
            }
            self.shapes.push(shape);
            self.shapes.len() - 1
        });
        // A group has no more shapes than versions.
        u8::try_from(number).unwrap_or(u8::MAX)
    }

    /// The shape as it would be, and whether its ops, which are then in `scratch`, are new.
    fn find(&mut self, stored: &Stored) -> (Shape, bool) {
        let mut shape = stored.shape();
        if !shape.is_delta() {
            return (shape, false);
        }
        encode_ops(&stored.ops, &mut self.scratch);
        let is_same = |list: &&(usize, usize)| {
            self.ops.get(list.0..list.0 + list.1) == Some(self.scratch.as_slice())
        };
        // What the first version takes from another group may be taken back: nobody shares it.
        let own = self.shapes.first().is_some_and(|shape| shape.kind == KIND_NEIGHBOUR);
        let known = self.lists.iter().skip(usize::from(own)).find(is_same);
        shape.ops_at = short(known.map_or(self.ops.len(), |list| list.0));
        (shape, known.is_none())
    }

    /// Replaces shape 0, that of a version over another group, by one that stands for itself.
    /// `shape_of` are the versions' shapes.
    pub(super) fn replace_first(&mut self, stored: &Stored, shape_of: &mut [u8]) {
        let Some((_, old)) = self.lists.first().copied() else { return };
        let new = if stored.shape.is_delta() {
            encode_ops(&stored.ops, &mut self.scratch);
            self.scratch.len()
        } else {
            self.scratch.clear();
            0
        };
        self.ops.splice(..old, self.scratch.iter().copied());
        if new == 0 {
            self.lists.remove(0);
        } else if let Some(list) = self.lists.first_mut() {
            list.1 = new;
        }
        for list in self.lists.iter_mut().filter(|list| list.0 > 0) {
            list.0 = list.0 - old + new;
        }
        for shape in self.shapes.iter_mut().skip(1).filter(|shape| shape.is_delta()) {
            shape.ops_at = shape.ops_at - short(old) + short(new);
        }
        let shape = stored.shape();
        let twin = self.shapes.iter().skip(1).position(|known| *known == shape).map(|at| at + 1);
        if let Some(first) = self.shapes.first_mut() {
            *first = shape;
        }
        if let Some(twin) = twin {
            self.shapes.remove(twin);
            for number in shape_of {
                *number = match usize::from(*number).cmp(&twin) {
                    std::cmp::Ordering::Less => *number,
                    std::cmp::Ordering::Equal => 0,
                    std::cmp::Ordering::Greater => *number - 1,
                };
            }
        }
    }

    /// Appends the shapes and the ops.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        shape::encode(&self.shapes, self.ops.len(), out);
        out.put_bytes(&self.ops);
    }
}

fn encode_ops(ops: &[Op], out: &mut Vec<u8>) {
    out.clear();
    for op in ops {
        out.put_varint(op.insert as u64);
        out.put_varint(op.copy as u64);
        out.put_varint(op.zigzag());
    }
}

/// Of each byte its number in an alphabet, or 16.
const NUMBERS: [[u8; 256]; 2] = [numbers(&ALPHABETS[0]), numbers(&ALPHABETS[1])];

const fn numbers(alphabet: &[u8; 16]) -> [u8; 256] {
    let mut numbers = [16; 256];
    let mut number = 0;
    while number < 16 {
        numbers[alphabet[number as usize] as usize] = number;
        number += 1;
    }
    numbers
}

/// Appends the literals, two a byte if one alphabet has them all; answers its number.
fn pack(literals: &[u8], out: &mut Vec<u8>) -> u8 {
    let number =
        |table: &[u8; 256], byte: &u8| table.get(usize::from(*byte)).copied().unwrap_or(16);
    let packed = NUMBERS.iter().zip(1..).find(|(table, _)| {
        literals.len() > 1 && literals.iter().all(|byte| number(table, byte) < 16)
    });
    let Some((table, alphabet)) = packed else {
        out.extend_from_slice(literals);
        return 0;
    };
    let (pairs, odd) = literals.as_chunks::<2>();
    out.extend(pairs.iter().map(|[low, high]| number(table, low) | number(table, high) << 4));
    out.extend(odd.iter().map(|low| number(table, low)));
    alphabet
}

#[cfg(test)]
mod tests {
    use super::super::{KIND_DICTIONARY, KIND_OWN, KIND_TOMBSTONE};
    use super::*;

    fn delta(kind: u8, insert: usize, literals: &[u8]) -> Stored {
        let mut stored = Stored::default();
        let ops = [Op { insert, copy: 9 - insert, skip: -1 }];
        stored.delta(kind, 1, 9, &ops, literals);
        stored
    }

    fn raw(value: &[u8]) -> Stored {
        let mut stored = Stored::default();
        stored.raw(value);
        stored
    }

    #[test]
    fn literals_of_one_alphabet_are_packed() {
        for (literals, alphabet, packed) in [
            (&b"12"[..], 1, &[0x21][..]),
            (b"9:-.TZ\"", 1, &[0xa9, 0xcb, 0xed, 0x0f]),
            (b"1f0", 2, &[0xf1, 0x00]),
            (b"1g", 0, b"1g"),
            (b"1", 0, b"1"),
            (b"", 0, b""),
        ] {
            let mut out = Vec::new();
            assert_eq!(pack(literals, &mut out), alphabet, "{}", literals.escape_ascii());
            assert_eq!(out, packed);
        }
    }

    #[test]
    fn equal_shapes_and_equal_ops_are_stored_once() {
        let mut table = Table::default();
        let mut tombstone = Stored::default();
        tombstone.whole(KIND_TOMBSTONE, 0);
        assert_eq!(table.shape_of(&raw(b"abc")), 0);
        assert_eq!(table.shape_of(&tombstone), 1);
        assert_eq!(table.shape_of(&raw(b"xyz")), 0);
        assert_eq!(table.added_bytes(&raw(b"xyz")), 3);
        assert_eq!(table.shape_of(&delta(KIND_OWN, 2, b"zz")), 2);
        assert_eq!(table.shape_of(&delta(KIND_OWN, 2, b"yy")), 2);
        let ops = table.ops.len();
        assert_eq!(table.shape_of(&delta(KIND_OWN, 2, b"12")), 3, "packed");
        assert_eq!(table.ops.len(), ops);
        assert_eq!(table.shape_of(&delta(KIND_OWN, 3, b"yyy")), 4);
        assert!(table.ops.len() > ops);
    }

    #[test]
    fn a_version_over_another_group_can_be_made_to_stand_for_itself() {
        let group = || {
            let mut table = Table::default();
            let stored = [
                delta(KIND_NEIGHBOUR, 2, b"zz"),
                raw(b"123456789"),
                delta(KIND_OWN, 3, b"abc"),
                delta(KIND_OWN, 2, b"ab"),
            ];
            let shape_of: Vec<u8> = stored.iter().map(|stored| table.shape_of(stored)).collect();
            assert_eq!(shape_of, [0, 1, 2, 3]);
            (table, shape_of)
        };
        let (mut table, mut shape_of) = group();
        table.replace_first(&raw(b"987654321"), &mut shape_of);
        assert_eq!(shape_of, [0, 0, 1, 2]);
        assert_eq!(table.shapes.iter().map(|shape| shape.ops_at).collect::<Vec<_>>(), [0, 0, 3]);
        assert_eq!(table.ops, [3, 6, 1, 2, 7, 1]);

        let (mut table, mut shape_of) = group();
        let mut longer = delta(KIND_DICTIONARY, 4, b"zzzz");
        longer.ops.push(Op { insert: 0, copy: 0, skip: 300 });
        table.replace_first(&longer, &mut shape_of);
        assert_eq!(shape_of, [0, 1, 2, 3]);
        assert_eq!(
            table.shapes.iter().map(|shape| shape.ops_at).collect::<Vec<_>>(),
            [0, 0, 7, 10]
        );
        assert_eq!(table.ops, [4, 5, 1, 0, 0, 0xd8, 4, 3, 6, 1, 2, 7, 1]);
        // And what comes later finds all of it.
        let known = table.ops.len();
        assert_eq!(table.shape_of(&delta(KIND_OWN, 2, b"cd")), 3);
        assert_eq!(table.shape_of(&delta(KIND_OWN, 3, b"12345")), 4);
        assert_eq!(table.ops.len(), known);
    }
}
