//! The way from a version to its value: down to one that stands for itself, and back up.

use super::apply::apply;
use super::directory::Groups;
use super::head::{Group, error};
use super::shape::{Piece, Shapes};
use super::{
    Codec, KIND_DICTIONARY, KIND_NEIGHBOUR, KIND_OWN, KIND_RAW, KIND_TOMBSTONE,
    KIND_ZSTD_DICTIONARY, STEPS_MAX,
};
use crate::error::{Problem, Result};

/// The value of a version.
#[derive(Debug)]
pub enum Value<'a, F> {
    /// It stands in the block as it is; a tombstone's is empty.
    Stored(&'a [u8]),
    /// It was made, in a vector of exactly its length.
    Made(Vec<u8>),
    /// It is a frame.
    Frame(F),
}

impl<F: AsRef<[u8]>> AsRef<[u8]> for Value<'_, F> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Stored(bytes) => bytes,
            Self::Made(bytes) => bytes,
            Self::Frame(frame) => frame.as_ref(),
        }
    }
}

/// Memory that reading values uses again and again; its contents mean nothing.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The block that the values asked for are of, if that is known.
    block: Option<u64>,
    made: Vec<u8>,
    /// Which version's value `made` is, by the numbers of group and version.
    made_is: Option<(usize, usize)>,
    next: Vec<u8>,
    unpacked: Vec<u8>,
}

/// Most bytes each vector of a [`Scratch`] keeps for the next value.
const KEPT_BYTES: usize = 1 << 20;

impl Scratch {
    /// Says which block the values asked for from now on are of, by a number of the caller's that no
    /// other block has, a file offset for instance. As long as it is the same, what one value was
    /// made from is at hand for the next: a walk makes a keyframe once.
    pub fn of_block(&mut self, block: u64) {
        if self.block != Some(block) {
            (self.block, self.made_is) = (Some(block), None);
        }
    }

    fn trim(&mut self) {
        for vector in [&mut self.next, &mut self.unpacked] {
            if vector.capacity() > KEPT_BYTES {
                *vector = Vec::new();
            }
        }
        if self.made_is.is_none() && self.made.capacity() > KEPT_BYTES {
            self.made = Vec::new();
        }
    }
}

/// What the value of a version of kind 5 or 6 is made from.
enum Base<'a, F> {
    Value(Value<'a, F>),
    /// In `Scratch::made`: the value of that version of that group.
    Made((usize, usize)),
}

impl<F: AsRef<[u8]>> Base<'_, F> {
    fn bytes<'b>(&'b self, made: &'b [u8]) -> &'b [u8] {
        match self {
            Self::Value(value) => value.as_ref(),
            Self::Made(_) => made,
        }
    }
}

/// Where the way down from a version ends.
enum Root<'a> {
    /// At one that stands for itself.
    Piece(Piece<'a>),
    /// At one that `Scratch::made` already has.
    Made((usize, usize)),
}

/// Most values that are made from another one to read one.
const PIECES_MAX: usize = STEPS_MAX + 1;

impl<'a> Groups<'a> {
    /// The value of a version of a group of this block.
    pub fn value_of<C: Codec>(
        &self,
        group: &Group<'a>,
        version: usize,
        codec: &mut C,
        scratch: &mut Scratch,
    ) -> Result<Value<'a, C::Frame>> {
        let mut above = [None; PIECES_MAX];
        let value = self.descend(*group, version, &mut above, scratch).and_then(|(root, steps)| {
            scratch.make(root, above.get(..steps).unwrap_or_default(), codec)
        });
        // Also after an error, which may have come with the largest of all.
        scratch.trim();
        value
    }

    /// Collects what the value is made from, from the version down, and answers where the way ends
    /// and how many lie above that.
    fn descend(
        &self,
        mut group: Group<'a>,
        mut version: usize,
        above: &mut [Option<Piece<'a>>; PIECES_MAX],
        scratch: &Scratch,
    ) -> Result<(Root<'a>, usize)> {
        let made_is = scratch.made_is;
        let mut shapes = Shapes::of(&group)?;
        let (mut steps, mut crossed) = (0, false);
        loop {
            let of = (group.number(), version);
            if steps > 0 && made_is == Some(of) {
                return Ok((Root::Made(of), steps));
            }
            let piece = shapes.piece(&group, version)?;
            let kind = piece.shape.kind;
            let bad = |problem| error("base", group.shapes_at, problem);
            if !matches!(kind, KIND_OWN | KIND_NEIGHBOUR) {
                if kind == KIND_TOMBSTONE && steps > 0 {
                    return Err(bad(Problem::Invalid { found: kind.into() }));
                }
                return Ok((Root::Piece(piece), steps));
            }
            // The version of a neighbour stands for itself.
            if crossed {
                return Err(bad(Problem::Invalid { found: kind.into() }));
            }
            // Kind 6 is a step that leads out of the group, after those within it.
            let steps_max = if kind == KIND_OWN { STEPS_MAX } else { PIECES_MAX };
            let Some(slot) = above.get_mut(steps).filter(|_| steps < steps_max) else {
                let (max, found) = (STEPS_MAX as u64, steps as u64 + 1);
                return Err(bad(Problem::TooLong { max, found }));
            };
            *slot = Some(piece);
            steps += 1;
            let back = usize::from(piece.shape.base);
            if kind == KIND_OWN {
                if back >= version {
                    return Err(bad(Problem::Invalid { found: back as u64 }));
                }
                version = back;
                continue;
            }
            let Some(before) = group.number().checked_sub(back).filter(|_| back > 0) else {
                return Err(bad(Problem::TooLong {
                    max: group.number() as u64,
                    found: back as u64,
                }));
            };
            group = self.group(before)?;
            shapes = Shapes::of(&group)?;
            (version, crossed) = (0, true);
        }
    }
}

impl Scratch {
    /// Makes a value from its root and what lies above that, from the version down.
    fn make<'a, C: Codec>(
        &mut self,
        root: Root<'a>,
        above: &[Option<Piece<'a>>],
        codec: &mut C,
    ) -> Result<Value<'a, C::Frame>> {
        let mut base = match root {
            Root::Made(of) => Base::Made(of),
            Root::Piece(root) => match root.shape.kind {
                KIND_TOMBSTONE | KIND_RAW => Base::Value(Value::Stored(root.payload)),
                KIND_DICTIONARY if above.is_empty() => {
                    let mut out = Vec::new();
                    apply(&root, codec.dictionary(), &mut self.unpacked, &mut out)?;
                    Base::Value(Value::Made(out))
                }
                KIND_DICTIONARY => {
                    let Self { made, made_is, unpacked, .. } = self;
                    *made_is = None;
                    apply(&root, codec.dictionary(), unpacked, made)?;
                    Base::Made(root.of)
                }
                _ => Base::Value(Value::Frame(frame(&root, codec)?)),
            },
        };
        // All but the last are made in turns in the vectors here.
        let Some((Some(last), bases)) = above.split_first() else {
            return match base {
                Base::Value(value) => Ok(value),
                // What was at hand is only ever a base.
                Base::Made(_) => Ok(Value::Made(self.made.clone())),
            };
        };
        for piece in bases.iter().rev().flatten() {
            let Self { made, made_is, next, unpacked, .. } = self;
            *made_is = None;
            apply(piece, base.bytes(made), unpacked, next)?;
            std::mem::swap(made, next);
            base = Base::Made(piece.of);
        }
        let mut out = Vec::new();
        let Self { made, unpacked, .. } = self;
        apply(last, base.bytes(made), unpacked, &mut out)?;
        if let Base::Made(of) = base {
            self.made_is = self.block.map(|_| of);
        }
        Ok(Value::Made(out))
    }
}

fn frame<C: Codec>(piece: &Piece<'_>, codec: &mut C) -> Result<C::Frame> {
    let bad = |problem| error("payload", piece.payload_at, problem);
    let expected = u64::from(piece.shape.value_bytes);
    let bytes = usize::try_from(expected).unwrap_or(usize::MAX);
    let dictionary = piece.shape.kind == KIND_ZSTD_DICTIONARY;
    let frame = codec
        .frame(piece.payload_at, piece.payload, bytes, dictionary)
        .ok_or_else(|| bad(Problem::Invalid { found: piece.shape.kind.into() }))?;
    match frame.as_ref().len() as u64 {
        found if found == expected => Ok(frame),
        found => Err(bad(Problem::Mismatch { expected, found })),
    }
}
