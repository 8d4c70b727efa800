//! Clients of etcd that call a server by no name.
//!
//! The clients of etcd 3.4 (in Maintenance) and 3.5.0 (everywhere) send `http://host:port` or `#initially=[...]` as
//! HTTP/2's `:authority` (etcd's issue 13192), which RFC 3986 does not allow. Go's server takes it, h2 ends the stream
//! with an error and cannot be told not to. Nothing here looks at the authority, so it is replaced on its way in:
//! [`rename`] puts [`NAME`] in the place of an authority that is spelled out and not known to be right.
//!
//! HPACK (RFC 7541) makes that safe without a table of our own: both ends count a table's entries from the newest one,
//! and an entry that got *shorter* can only leave h2's table later than the client's. Whatever index the client uses is
//! in h2's table, too, in the same place. What cannot be read is passed on as it is: h2 says what is wrong with it.

use http::uri::Authority;

use crate::serve::frames::HEAD;

/// A value as HPACK spells it, of one byte: nothing is shorter.
pub(crate) const NAME: [u8; 2] = [1, b'-'];

/// Gives a frame of headers, whole, an authority that h2 takes; its length from now on.
pub(crate) fn rename(frame: &mut [u8]) -> usize {
    let Some(value) = authority(frame) else { return frame.len() };
    let end = value.start + NAME.len();
    frame[value.start..end].copy_from_slice(&NAME);
    let shorter = value.end - end;
    frame.copy_within(value.end.., end);
    let length = frame.len() - shorter;
    let told = u32::try_from(length - HEAD).unwrap_or(0).to_be_bytes();
    frame[..3].copy_from_slice(&told[1..]);
    length
}

/// Where the value of a wrong authority is, its length with it.
fn authority(frame: &[u8]) -> Option<std::ops::Range<usize>> {
    let flags = frame[4];
    let padded = flags & 0x8 != 0;
    let padding = if padded { usize::from(*frame.get(HEAD)?) } else { 0 };
    let priority = if flags & 0x20 != 0 { 5 } else { 0 };
    let mut at = HEAD + usize::from(padded) + priority;
    let block = frame.get(..frame.len().checked_sub(padding)?)?;
    while at < block.len() {
        let first = block[at];
        if first & 0x80 != 0 {
            number(block, &mut at, 7)?;
            continue;
        }
        if first & 0xe0 == 0x20 {
            number(block, &mut at, 5)?;
            continue;
        }
        let name = number(block, &mut at, if first & 0x40 != 0 { 6 } else { 4 })?;
        let spelled = if name == 0 { Some(text(block, &mut at)?) } else { None };
        let start = at;
        let value = text(block, &mut at)?;
        // The first entry of HPACK's static table.
        let is_authority = name == 1 || spelled.is_some_and(|name| name == (false, b":authority"));
        let (packed, value) = value;
        if is_authority {
            let right = !packed && Authority::try_from(value).is_ok();
            return (!right && !value.is_empty()).then_some(start..at);
        }
    }
    None
}

/// A number with a prefix of so many bits (RFC 7541, section 5.1).
fn number(block: &[u8], at: &mut usize, bits: u32) -> Option<usize> {
    let most = (1 << bits) - 1;
    let mut number = usize::from(*block.get(*at)?) & most;
    *at += 1;
    if number < most {
        return Some(number);
    }
    for shift in [0, 7, 14] {
        let byte = *block.get(*at)?;
        *at += 1;
        number += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// A text, and whether it is packed by Huffman's code (section 5.2).
fn text<'a>(block: &'a [u8], at: &mut usize) -> Option<(bool, &'a [u8])> {
    let packed = *block.get(*at)? & 0x80 != 0;
    let length = number(block, at, 7)?;
    let text = block.get(*at..)?.get(..length)?;
    *at += length;
    Some((packed, text))
}
