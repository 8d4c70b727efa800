//! zstd, one frame a block or a value, with or without the dictionary of the file.
//!
//! zstd over a *base* takes the body of an earlier block as if it stood directly before this one. Two
//! large versions of one key differ in a few lines, and with long-distance matching the second costs
//! little more than those lines.
//!
//! Contexts are costly to make and cheap to use again, so each thread keeps one of each.

use std::cell::RefCell;
use std::fmt;

use bytes::Bytes;
use zstd::zstd_safe::{CCtx, CDict, CParameter, DCtx, DDict, get_frame_content_size};

use crate::sync::plain::OnceLock;

thread_local! {
    static COMPRESS: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECOMPRESS: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// How a writer compresses.
pub(super) struct Compressor {
    level: i32,
    dictionary: Option<CDict<'static>>,
}

impl Compressor {
    pub(super) fn new(level: i32, dictionary: Option<&[u8]>) -> Self {
        let dictionary = dictionary.and_then(|bytes| CDict::try_create(bytes, level));
        Self { level, dictionary }
    }

    /// Whether frames refer to a dictionary.
    pub(super) const fn has_dictionary(&self) -> bool {
        self.dictionary.is_some()
    }

    /// The compressed bytes, if they are fewer than the raw ones.
    pub(super) fn compress(&self, raw: &[u8]) -> Option<Vec<u8>> {
        COMPRESS.with_borrow_mut(|slot| {
            if slot.is_none() {
                *slot = CCtx::try_create();
            }
            let context = slot.as_mut()?;
            // One byte less than the raw bytes: what does not fit is of no use.
            let mut out = Vec::new();
            out.try_reserve_exact(raw.len().saturating_sub(1)).ok()?;
            let result = match &self.dictionary {
                Some(dictionary) => context.compress_using_cdict(&mut out, raw, dictionary),
                None => context.compress(&mut out, raw, self.level),
            };
            result.ok().map(|_| out)
        })
    }
}

/// As [`Compressor::compress`], with `base` as the text before.
pub(super) fn compress_over(raw: &[u8], base: &[u8], level: i32) -> Option<Vec<u8>> {
    // A prefix is borrowed by the context, so the context cannot be kept.
    let mut context = CCtx::try_create()?;
    let window_bits = usize::BITS - raw.len().checked_add(base.len())?.leading_zeros();
    let window_bits = window_bits.max(WINDOW_BITS_MIN);
    context.set_parameter(CParameter::CompressionLevel(level)).ok()?;
    // If the two do not fit the largest window, this fails and there is no such encoding.
    context.set_parameter(CParameter::WindowLog(window_bits)).ok()?;
    // Without it the fast levels lose sight of all but the end of a large base.
    context.set_parameter(CParameter::EnableLongDistanceMatching(true)).ok()?;
    context.ref_prefix(base).ok()?;
    let mut out = Vec::new();
    out.try_reserve_exact(raw.len().saturating_sub(1)).ok()?;
    context.compress2(&mut out, raw).ok()?;
    Some(out)
}

/// The smallest window zstd accepts.
const WINDOW_BITS_MIN: u32 = 10;

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor")
            .field("level", &self.level)
            .field("dictionary", &self.has_dictionary())
            .finish_non_exhaustive()
    }
}

/// The dictionary of a file: its content, and what zstd makes of it when a frame first asks.
pub(super) struct Dictionary {
    content: Bytes,
    zstd: OnceLock<Option<DDict<'static>>>,
}

impl Dictionary {
    pub(super) const fn new(content: Bytes) -> Self {
        Self { content, zstd: OnceLock::new() }
    }

    /// The content as the file has it.
    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

    fn zstd(&self) -> Option<&DDict<'static>> {
        self.zstd.get_or_init(|| DDict::try_create(&self.content)).as_ref()
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.content.len();
        f.debug_struct("Dictionary").field("bytes", &bytes).finish_non_exhaustive()
    }
}

/// What a frame refers to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Over<'a> {
    Nothing,
    Dictionary(&'a Dictionary),
    Base(&'a [u8]),
}

/// Decodes one frame that must give exactly `raw_bytes` bytes, which the caller has bounded.
///
/// `None` if it does not.
pub(super) fn decompress(stored: &[u8], raw_bytes: usize, over: Over<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    decompress_into(&mut out, stored, raw_bytes, over)?;
    Some(out)
}

/// As [`decompress`], in place of what `out` holds.
pub(super) fn decompress_into(
    out: &mut Vec<u8>,
    stored: &[u8],
    raw_bytes: usize,
    over: Over<'_>,
) -> Option<()> {
    out.clear();
    // What the frame says of itself must agree before anything is allocated.
    let claimed = get_frame_content_size(stored).ok()??;
    if usize::try_from(claimed) != Ok(raw_bytes) {
        return None;
    }
    DECOMPRESS.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = DCtx::try_create();
        }
        let context = slot.as_mut()?;
        out.try_reserve_exact(raw_bytes).ok()?;
        let written = match over {
            Over::Nothing => context.decompress(out, stored),
            Over::Dictionary(dictionary) => {
                context.decompress_using_ddict(out, stored, dictionary.zstd()?)
            }
            // A body begins with a zero byte (the first key shares nothing), so zstd never takes it
            // for a dictionary with tables.
            Over::Base(base) => context.decompress_using_dict(out, stored, base),
        };
        (written.ok() == Some(raw_bytes) && out.len() == raw_bytes).then_some(())
    })
}
