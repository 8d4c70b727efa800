//! How a fuzzer changes an input, for libFuzzer's `LLVMFuzzerCustomMutator`.
//!
//! Changed anywhere, most inputs would no longer be what they claim to be: a byte more in an archive moves
//! every file behind it, and a checksum fails before anything else is looked at. So a change is made *inside*
//! one part - a file, a page of a log, the payload of a block - and the input is put together again around it.
//! The checksums are made right by the target itself, before it decodes, where [`FIX`] is set, and it is set
//! here nearly always. Now and then, and where an input cannot be taken apart, libFuzzer changes it as it likes.

use annals_format::backup::{BLOCK_BYTES, HEADER_BYTES};

use crate::archive::{self, Files};
use crate::{FIX, wal};

/// libFuzzer's own way to change the first bytes of a buffer (their count, and how many there may be); answers
/// how many there are then.
pub type Plain<'a> = &'a mut dyn FnMut(&mut [u8], usize, usize) -> usize;

/// Largest part that is changed at once: a change behind it may still be far from the start.
const WINDOW_BYTES_MAX: usize = 512;

/// How inputs of a target are put together.
#[derive(Clone, Copy)]
enum Shape {
    /// So many bytes of flags, then bytes with checksums.
    Flags(usize),
    /// An archive of files.
    Archive,
    /// Pages of a log.
    Pages,
    /// Blocks of backups.
    Stream,
    /// Anything; no checksums.
    Loose,
}

fn shape(target: &str) -> Shape {
    match target {
        "wal_frame" | "manifest" | "current" | "bbolt" => Shape::Flags(1),
        "block" | "page" => Shape::Flags(2),
        "segment" => Shape::Flags(3),
        "open_dir" => Shape::Archive,
        "wal_file" => Shape::Pages,
        "backup" => Shape::Stream,
        _ => Shape::Loose,
    }
}

/// Numbers out of a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let bound = bound.max(1) as u64;
        usize::try_from((self.0 >> 11) % bound).unwrap_or(0)
    }
}

/// Changes the first `size` bytes of `data` into another input of `max` bytes at most; answers how long it is.
pub fn mutate(
    target: &str,
    data: &mut [u8],
    size: usize,
    max: usize,
    seed: u32,
    plain: Plain<'_>,
) -> usize {
    let mut dice = Dice((u64::from(seed) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let shape = shape(target);
    let head = match shape {
        Shape::Flags(head) => head,
        Shape::Pages => 2,
        _ => 1,
    };
    if matches!(shape, Shape::Loose) || size <= head || dice.below(16) == 0 {
        return plain(data, size, max);
    }
    let input: Vec<u8> = data.iter().take(size).copied().collect();
    let (flags, body) = input.split_at(head);
    let changed = match shape {
        Shape::Archive => in_archive(body, &mut dice, plain),
        Shape::Pages => in_pages(body, &mut dice, plain),
        Shape::Stream => in_stream(body, &mut dice, plain),
        _ => None,
    };
    let changed = changed.filter(|changed| changed.len() <= max.saturating_sub(head));
    let body_bytes = match changed {
        Some(changed) => {
            for (to, from) in data.iter_mut().skip(head).zip(&changed) {
                *to = *from;
            }
            changed.len()
        }
        None => match data.get_mut(head..) {
            Some(rest) if max > head => plain(rest, size - head, max - head),
            _ => return plain(data, size, max),
        },
    };
    for (to, from) in data.iter_mut().zip(flags) {
        *to = *from;
    }
    if let Some(first) = data.first_mut()
        && dice.below(16) != 0
    {
        *first |= FIX;
    }
    head + body_bytes
}

/// Changes a few bytes somewhere in `bytes`, which stay as many.
fn in_place(bytes: &mut [u8], dice: &mut Dice, plain: Plain<'_>) -> Option<()> {
    let window = (1 << dice.below(10)).min(WINDOW_BYTES_MAX).min(bytes.len());
    let start = dice.below(bytes.len() - window + 1);
    let window = bytes.get_mut(start..start + window).filter(|window| !window.is_empty())?;
    let before = window.to_vec();
    let kept = plain(window, before.len(), before.len());
    // What libFuzzer has taken out at the end is as it was.
    window.get_mut(kept..)?.copy_from_slice(before.get(kept..)?);
    Some(())
}

/// Changes one file of an archive, or which files there are.
fn in_archive(body: &[u8], dice: &mut Dice, plain: Plain<'_>) -> Option<Vec<u8>> {
    let mut files: Files = archive::unpack(body);
    let count = files.len();
    let which = dice.below(count);
    match dice.below(20) {
        0 => drop((count > 1).then(|| files.remove(which))),
        1 => {
            let other = files.get(dice.below(count))?.1.clone();
            files.get_mut(which)?.1 = other;
        }
        2 => {
            let bytes = &mut files.get_mut(which)?.1;
            let length = dice.below(bytes.len() + 1);
            bytes.truncate(length);
        }
        3 => {
            let bytes = &mut files.get_mut(which)?.1;
            bytes.resize(bytes.len() + (1 << dice.below(14)), 0);
        }
        _ => in_place(&mut files.get_mut(which)?.1, dice, plain)?,
    }
    archive::try_pack(&files)
}

/// Changes one page of a log.
fn in_pages(body: &[u8], dice: &mut Dice, plain: Plain<'_>) -> Option<Vec<u8>> {
    let mut pages = wal::runs(body);
    let which = dice.below(pages.len());
    match dice.below(12) {
        0 => {
            let (_, bytes) = pages.get(which)?.clone();
            pages.push((u8::try_from(dice.below(18)).ok()?, bytes));
        }
        1 => drop((pages.len() > 1).then(|| pages.remove(which))),
        _ => in_place(&mut pages.get_mut(which)?.1, dice, plain)?,
    }
    let mut out = Vec::with_capacity(body.len() + 64);
    for (page, bytes) in pages {
        out.push(page);
        out.extend_from_slice(&u16::try_from(bytes.len()).ok()?.to_le_bytes());
        out.extend_from_slice(&bytes);
    }
    Some(out)
}

/// Changes the payload of one block, which may become longer or shorter, or a header, or which blocks there are.
fn in_stream(body: &[u8], dice: &mut Dice, plain: Plain<'_>) -> Option<Vec<u8>> {
    /// What a payload may grow by.
    const GROWS: usize = 64;
    let mut parts = parts_of(body)?;
    let which = dice.below(parts.len());
    match dice.below(16) {
        0 => drop((parts.len() > 1).then(|| parts.remove(which))),
        1 => {
            let again = parts.get(which)?.clone();
            parts.insert(dice.below(parts.len() + 1), again);
        }
        2 | 3 => {
            let part = parts.get_mut(which)?;
            let head = part.len().min(BLOCK_BYTES);
            in_place(part.get_mut(..head)?, dice, plain)?;
        }
        _ => {
            let part = parts.get_mut(which)?;
            if part.len() == HEADER_BYTES || part.len() <= BLOCK_BYTES {
                in_place(part, dice, plain)?;
            } else if dice.below(2) == 0 {
                in_place(part.get_mut(BLOCK_BYTES..)?, dice, plain)?;
            } else {
                let before = part.len() - BLOCK_BYTES;
                part.resize(part.len() + GROWS, 0);
                let after = plain(part.get_mut(BLOCK_BYTES..)?, before, before + GROWS);
                part.truncate(BLOCK_BYTES + after);
                let stored = u32::try_from(after).ok()?.to_le_bytes();
                let raw = part.get(1) == Some(&0);
                part.get_mut(4..8)?.copy_from_slice(&stored);
                if raw {
                    part.get_mut(8..12)?.copy_from_slice(&stored);
                }
            }
        }
    }
    Some(parts.concat())
}

/// The headers of the backups in a stream, and its blocks; what is no block any more is the last part.
fn parts_of(mut body: &[u8]) -> Option<Vec<Vec<u8>>> {
    const END: u8 = annals_format::backup::Part::End as u8;
    let mut parts = Vec::new();
    let mut starts = true;
    while !body.is_empty() {
        let length = if starts {
            HEADER_BYTES
        } else {
            let stored = body.get(4..).and_then(|rest| rest.first_chunk());
            let stored = stored.map_or(0, |stored| u32::from_le_bytes(*stored));
            BLOCK_BYTES.saturating_add(usize::try_from(stored).ok()?)
        };
        let (part, rest) = body.split_at(length.min(body.len()));
        starts = !starts && part.first() == Some(&END);
        parts.push(part.to_vec());
        body = rest;
    }
    (!parts.is_empty()).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;

    #[test]
    fn an_input_that_is_not_changed_stays_what_it_is() {
        let nothing: Plain<'_> = &mut |_, size, _| size;
        for (target, name, bytes) in seeds::all() {
            let dice = &mut Dice(7);
            let again = match shape(target) {
                Shape::Archive => archive::try_pack(&archive::unpack(&bytes[1..])),
                Shape::Pages => in_pages(&bytes[2..], &mut Dice(3), nothing),
                Shape::Stream => parts_of(&bytes[1..]).map(|parts| parts.concat()),
                _ => continue,
            };
            let head = if matches!(shape(target), Shape::Pages) { 2 } else { 1 };
            assert_eq!(again.as_deref(), Some(&bytes[head..]), "{target}/{name}");
            let mut place = bytes.clone();
            in_place(&mut place, dice, nothing);
            assert_eq!(place, bytes);
        }
    }
}
