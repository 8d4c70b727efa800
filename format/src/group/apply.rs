//! Makes a value from literals and copies of a base.

use super::head::{GROUP, error};
use super::shape::Piece;
use super::{ALPHABETS, OPS_MAX};
use crate::cursor::Reader;
use crate::error::{DecodeError, Problem, Result};
use crate::varint;

/// One step from a base to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Op {
    /// Literals taken first.
    pub(super) insert: usize,
    /// Bytes then copied from the base.
    pub(super) copy: usize,
    /// How far the cursor in the base moves before the copy. It stays behind what was copied.
    pub(super) skip: isize,
}

impl Op {
    /// The skip as it is stored: small numbers of either sign are small.
    pub(super) const fn zigzag(self) -> u64 {
        let skip = self.skip as i64;
        ((skip << 1) ^ (skip >> 63)).cast_unsigned()
    }

    /// Bytes it takes on disk.
    pub(super) const fn stored_bytes(self) -> usize {
        varint::len(self.insert as u64) + varint::len(self.copy as u64) + varint::len(self.zigzag())
    }
}

/// The ops of a shape, in place, up to where they have made its value.
///
/// This is the inner loop of every read, so it answers no error but stops, and
/// [`finish`](Self::finish) looks at the op it stopped at once more to say why.
#[derive(Clone, Debug)]
pub(super) struct Ops<'a> {
    /// The stored bytes up to the end of the group's ops.
    bytes: &'a [u8],
    /// The ops not taken yet.
    rest: &'a [u8],
    /// Bytes still to be made.
    bytes_left: usize,
    allowed: usize,
}

impl<'a> Ops<'a> {
    pub(super) fn new(piece: &Piece<'a>) -> Self {
        let rest = piece.ops.get(piece.ops_at..).unwrap_or_default();
        let bytes_left = usize::try_from(piece.shape.value_bytes).unwrap_or(usize::MAX);
        Self { bytes: piece.ops, rest, bytes_left, allowed: OPS_MAX }
    }

    /// Where the next op begins.
    pub(super) const fn position(&self) -> usize {
        self.bytes.len() - self.rest.len()
    }

    /// Hands out the ops in turn, until the value is made, an op is bad or `take` refuses one.
    #[inline]
    pub(super) fn each(&mut self, mut take: impl FnMut(Op) -> bool) {
        while let Some((op, after)) = self.step() {
            if !take(op) {
                break;
            }
            *self = after;
        }
    }

    /// The next op, and what comes after it.
    #[expect(
        clippy::inline_always,
        reason = "else each op passes through memory, at twice the cost"
    )]
    #[inline(always)]
    fn step(&self) -> Option<(Op, Self)> {
        if self.bytes_left == 0 {
            return None;
        }
        let mut rest = self.rest;
        let (insert, copy, skip) = (short(&mut rest)?, short(&mut rest)?, short(&mut rest)?);
        let insert = usize::try_from(insert).ok()?;
        let copy = usize::try_from(copy).ok()?;
        let bytes_left = self.bytes_left.checked_sub(insert.checked_add(copy)?)?;
        // An op makes something, and one without a copy is the last and skips nothing.
        if copy == 0 && (insert == 0 || skip != 0 || bytes_left != 0) {
            return None;
        }
        let allowed = self.allowed.checked_sub(1)?;
        // Zigzag: the sign is the lowest bit.
        let skip = (skip >> 1).cast_signed() ^ -(skip & 1).cast_signed();
        let op = Op { insert, copy, skip: isize::try_from(skip).ok()? };
        Some((op, Self { bytes: self.bytes, rest, bytes_left, allowed }))
    }

    /// Whether all ops were handed out: if not, what is wrong with the next one.
    pub(super) fn finish(&self) -> Result<()> {
        if self.bytes_left == 0 { Ok(()) } else { Err(self.error()) }
    }

    #[cold]
    fn error(&self) -> DecodeError {
        let at = self.position();
        let mut reader = Reader::new(GROUP, self.bytes);
        let mut fields = || {
            reader.bytes("ops", at)?;
            Ok((reader.varint("insert")?, reader.varint("copy")?, reader.varint("skip")?))
        };
        let (insert, copy, skip) = match fields() {
            Ok(fields) => fields,
            Err(error) => return error,
        };
        let (made, max) = (insert.saturating_add(copy), self.bytes_left as u64);
        if made == 0 {
            return error("insert", at, Problem::Invalid { found: 0 });
        }
        if made > max {
            return error("value_bytes", at, Problem::TooLong { max, found: made });
        }
        if copy == 0 {
            return error("copy", at, Problem::Invalid { found: 0 });
        }
        if self.allowed == 0 {
            let max = OPS_MAX as u64;
            return error("ops", at, Problem::TooLong { max, found: max + 1 });
        }
        error("skip", at, Problem::Invalid { found: skip })
    }
}

/// A varint, most likely of one to three bytes.
#[expect(
    clippy::inline_always,
    reason = "three of each op: as a call, as which it sometimes ended up, a quarter more instructions a read"
)]
#[inline(always)]
pub(super) fn short(rest: &mut &[u8]) -> Option<u64> {
    match **rest {
        [low @ ..0x80, ref after @ ..] => {
            *rest = after;
            Some(low.into())
        }
        [low, high @ 1..0x80, ref after @ ..] => {
            *rest = after;
            Some(u64::from(low & 0x7f) | u64::from(high) << 7)
        }
        [low, middle @ 0x80..=0xff, high @ 1..0x80, ref after @ ..] => {
            *rest = after;
            let value = u64::from(low & 0x7f) | u64::from(middle & 0x7f) << 7;
            Some(value | u64::from(high) << 14)
        }
        _ => {
            let (value, used) = varint::decode(rest)?;
            *rest = rest.get(used..)?;
            Some(value)
        }
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
    let mut ops = Ops::new(piece);
    if piece.shape.value_bytes > TRUSTED_BYTES {
        // The length is worth its memory only if the ops make that many bytes.
        let mut ahead = ops.clone();
        ahead.each(|_| true);
        ahead.finish()?;
    }
    reserve(piece, out)?;
    let (mut rest, mut cursor, mut reaches) = (literals, 0_usize, true);
    ops.each(|op| {
        let taken = rest.split_at_checked(op.insert);
        let start = cursor.checked_add_signed(op.skip);
        let copied = start.and_then(|start| base.get(start..start.checked_add(op.copy)?));
        let (Some((literals, after)), Some(start), Some(copied)) = (taken, start, copied) else {
            reaches = false;
            return false;
        };
        // The call of an empty copy costs as much as that of a short one.
        if !literals.is_empty() {
            out.extend_from_slice(literals);
        }
        out.extend_from_slice(copied);
        rest = after;
        cursor = start + op.copy;
        true
    });
    if !reaches {
        return Err(outside(&ops, base.len(), rest.len()));
    }
    ops.finish()?;
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

/// The next op reaches beyond its base or the literals that are left.
#[cold]
fn outside(ops: &Ops<'_>, base: usize, literals: usize) -> DecodeError {
    let (insert, copy) = ops.step().map_or((0, 0), |(op, _)| (op.insert, op.copy));
    if insert > literals {
        let problem = Problem::Truncated { needed: insert as u64, have: literals as u64 };
        return error("insert", ops.position(), problem);
    }
    error("copy", ops.position(), Problem::TooLong { max: base as u64, found: copy as u64 })
}
