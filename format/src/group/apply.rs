//! Makes a value from literals and copies of a base.

use super::head::{GROUP, error};
use super::shape::Piece;
use super::{ALPHABETS, OPS_MAX};
use crate::cursor::Reader;
use crate::error::{DecodeError, Problem, Result};

/// One op: so many literals, then so many bytes of the base from a place `skip` past the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Op {
    pub(super) insert: usize,
    pub(super) copy: usize,
    pub(super) skip: isize,
}

/// The ops of a shape, in place, up to where they have made its value.
#[derive(Clone, Debug)]
pub(super) struct Ops<'a> {
    reader: Reader<'a>,
    /// Bytes still to be made.
    rest: usize,
    count: usize,
}

impl<'a> Ops<'a> {
    pub(super) fn new(piece: &Piece<'a>) -> Result<Self> {
        let mut reader = Reader::new(GROUP, piece.ops);
        reader.bytes("ops_at", piece.ops_at)?;
        let rest = usize::try_from(piece.shape.value_bytes).unwrap_or(usize::MAX);
        Ok(Self { reader, rest, count: 0 })
    }

    /// Where the next op begins.
    pub(super) const fn position(&self) -> usize {
        self.reader.position()
    }

    /// The next op, `None` when the value is made.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<Op>> {
        if self.rest == 0 {
            return Ok(None);
        }
        let at = self.reader.position();
        self.count += 1;
        let insert = self.reader.varint("insert")?;
        let copy = self.reader.varint("copy")?;
        let skip = self.reader.varint("skip")?;
        let made = insert.checked_add(copy).and_then(|made| usize::try_from(made).ok());
        let rest = made.filter(|made| *made > 0).and_then(|made| self.rest.checked_sub(made));
        let (Some(rest), 0..=OPS_MAX) = (rest, self.count) else {
            return Err(self.error(at, insert.saturating_add(copy)));
        };
        if copy == 0 && (skip != 0 || rest != 0) {
            return Err(self.reader.error_at("copy", at, Problem::Invalid { found: 0 }));
        }
        self.rest = rest;
        // Both are below `rest`, which is a usize.
        let wide = |number| usize::try_from(number).unwrap_or(usize::MAX);
        // Zigzag: the sign is the lowest bit.
        let signed = (skip >> 1).cast_signed() ^ -(skip & 1).cast_signed();
        let skip = isize::try_from(signed).unwrap_or(isize::MAX);
        Ok(Some(Op { insert: wide(insert), copy: wide(copy), skip }))
    }

    #[cold]
    fn error(&self, at: usize, found: u64) -> DecodeError {
        if self.count > OPS_MAX {
            let (max, found) = (OPS_MAX as u64, self.count as u64);
            return self.reader.error_at("ops", at, Problem::TooLong { max, found });
        }
        if found == 0 {
            return self.reader.error_at("insert", at, Problem::Invalid { found });
        }
        let problem = Problem::TooLong { max: self.rest as u64, found };
        self.reader.error_at("value_bytes", at, problem)
    }
}

/// Values up to this length get their memory before it is known that the ops make them.
const TRUSTED_BYTES: u32 = 64 << 10;

/// Makes the value of `piece` from `base` in `out`, which is emptied. `unpacked` is memory to be
/// used again.
pub(super) fn apply(
    piece: &Piece<'_>,
    base: &[u8],
    unpacked: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let literals = match usize::from(piece.shape.alphabet).checked_sub(1) {
        None => piece.payload,
        Some(alphabet) => {
            unpack(piece, alphabet, unpacked)?;
            unpacked
        }
    };
    let mut ops = Ops::new(piece)?;
    if piece.shape.value_bytes > TRUSTED_BYTES {
        // The length is worth its memory only if the ops make that many bytes.
        let mut ahead = ops.clone();
        while ahead.next()?.is_some() {}
    }
    reserve(piece, out)?;
    let (mut rest, mut cursor) = (literals, 0_usize);
    loop {
        let at = ops.position();
        let Some(op) = ops.next()? else { break };
        let taken = rest.split_at_checked(op.insert);
        let start = cursor.checked_add_signed(op.skip);
        let copied = start.and_then(|start| base.get(start..start.checked_add(op.copy)?));
        let (Some((literals, after)), Some(start), Some(copied)) = (taken, start, copied) else {
            return Err(outside(at, taken.is_none(), op, base.len(), rest.len()));
        };
        out.extend_from_slice(literals);
        out.extend_from_slice(copied);
        rest = after;
        cursor = start + op.copy;
    }
    // Of packed literals an odd number leaves the last high bits.
    let padding = piece.payload.last().is_some_and(|byte| byte >> 4 == 0);
    let padded = piece.shape.alphabet != 0 && rest.len() == 1 && padding;
    if !rest.is_empty() && !padded {
        let problem = Problem::Trailing { bytes: rest.len() as u64 };
        return Err(error("payload", piece.payload_at, problem));
    }
    Ok(())
}

/// Empties `out` and makes room for the value of `piece`.
fn reserve(piece: &Piece<'_>, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    let needed = u64::from(piece.shape.value_bytes);
    let bytes = usize::try_from(needed).unwrap_or(usize::MAX);
    let problem = Problem::TooLong { max: 0, found: needed };
    out.try_reserve_exact(bytes).map_err(|_| error("value_bytes", piece.payload_at, problem))
}

/// Packed literals as bytes; with an odd number of them one too many.
fn unpack(piece: &Piece<'_>, alphabet: usize, out: &mut Vec<u8>) -> Result<()> {
    let pairs = PAIRS.get(alphabet).unwrap_or(&PAIRS[0]);
    out.clear();
    let needed = piece.payload.len().saturating_mul(2);
    let problem = Problem::TooLong { max: 0, found: needed as u64 };
    out.try_reserve(needed).map_err(|_| error("payload", piece.payload_at, problem))?;
    out.extend(piece.payload.iter().flat_map(|byte| pairs[usize::from(*byte)]));
    Ok(())
}

/// For each alphabet what each byte unpacks to.
static PAIRS: [[[u8; 2]; 256]; ALPHABETS.len()] = [pairs(&ALPHABETS[0]), pairs(&ALPHABETS[1])];

const fn pairs(alphabet: &[u8; 16]) -> [[u8; 2]; 256] {
    let mut out = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        out[byte] = [alphabet[byte & 15], alphabet[byte >> 4]];
        byte += 1;
    }
    out
}

#[cold]
fn outside(at: usize, insert: bool, op: Op, base: usize, literals: usize) -> DecodeError {
    if insert {
        let problem = Problem::Truncated { needed: op.insert as u64, have: literals as u64 };
        return error("insert", at, problem);
    }
    let problem = Problem::TooLong { max: base as u64, found: op.copy as u64 };
    error("copy", at, problem)
}
