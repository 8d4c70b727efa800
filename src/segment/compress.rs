//! zstd, one frame a block, with or without the dictionary of the file.
//!
//! Contexts are costly to make and cheap to use again, so each thread keeps one of each.

use std::cell::RefCell;
use std::fmt;

use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict, get_frame_content_size};

thread_local! {
    static COMPRESS: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECOMPRESS: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// How a writer compresses its blocks.
pub(super) struct Compressor {
    level: i32,
    dictionary: Option<CDict<'static>>,
}

impl Compressor {
    pub(super) fn new(level: i32, dictionary: Option<&[u8]>) -> Self {
        let dictionary = dictionary.and_then(|bytes| CDict::try_create(bytes, level));
        Self { level, dictionary }
    }

    /// Whether blocks refer to a dictionary.
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

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor")
            .field("level", &self.level)
            .field("dictionary", &self.has_dictionary())
            .finish()
    }
}

/// A dictionary made ready for decoding, with the bytes it was made from.
pub(super) struct Dictionary {
    ready: Option<DDict<'static>>,
    content: Vec<u8>,
}

impl Dictionary {
    pub(super) fn new(content: &[u8]) -> Self {
        Self { ready: DDict::try_create(content), content: content.to_vec() }
    }

    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("bytes", &self.content.len()).finish()
    }
}

/// Decodes one frame that must give exactly `raw_bytes` bytes, which the caller has bounded.
///
/// `None` if it does not.
pub(super) fn decompress(
    stored: &[u8],
    raw_bytes: usize,
    dictionary: Option<&Dictionary>,
) -> Option<Vec<u8>> {
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
        let mut out = Vec::new();
        out.try_reserve_exact(raw_bytes).ok()?;
        let written = match dictionary {
            Some(dictionary) => {
                context.decompress_using_ddict(&mut out, stored, dictionary.ready.as_ref()?)
            }
            None => context.decompress(&mut out, stored),
        };
        (written.ok() == Some(raw_bytes) && out.len() == raw_bytes).then_some(out)
    })
}
