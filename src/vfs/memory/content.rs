//! The bytes of a simulated file: shared pages, copied when they are written.
//!
//! Cloning costs one reference count a page, so that crash images are cheap. A page that was never
//! written takes no memory and reads as zeros.

use std::sync::Arc;

const PAGE_BYTES: u64 = 4096;

type Page = [u8; 4096];

/// What a page holds that was never written; comparing with it takes less than looking at byte after byte.
static ZEROS: Page = [0; 4096];

#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pages: Vec<Option<Arc<Page>>>,
    len: u64,
}

impl Content {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        content.write(0, bytes);
        content
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Copies what there is from an offset, and tells how much that was.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let wanted = self.len.saturating_sub(offset).min(out.len() as u64);
        for (page, within, part) in parts(offset, wanted) {
            let target = &mut out[part];
            match self.pages.get(page).and_then(Option::as_ref) {
                Some(page) => target.copy_from_slice(&page[within..within + target.len()]),
                None => target.fill(0),
            }
        }
        to_usize(wanted)
    }

    /// Writes, extending the content if need be.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        if end > self.len {
            self.set_len(end);
        }
        for (page, within, part) in parts(offset, bytes.len() as u64) {
            let source = &bytes[part];
            let slot = &mut self.pages[page];
            if slot.is_none() && *source == ZEROS[..source.len()] {
                continue;
            }
            let page = slot.get_or_insert_with(|| Arc::new([0; 4096]));
            Arc::make_mut(page)[within..within + source.len()].copy_from_slice(source);
        }
    }

    /// Cuts, or extends with zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        self.pages.resize(to_usize(len.div_ceil(PAGE_BYTES)), None);
        // Invariant: bytes of the last page beyond the length are zero.
        let used = to_usize(len % PAGE_BYTES);
        if used > 0
            && len < self.len
            && let Some(Some(page)) = self.pages.last_mut()
        {
            Arc::make_mut(page)[used..].fill(0);
        }
        self.len = len;
    }

    /// A hash of the bytes and of what came before.
    pub(super) fn hash(&self, seed: u64) -> u64 {
        let mut hash = seed ^ self.len;
        for (number, page) in self.pages.iter().enumerate() {
            // A page of zeros is as one that was never written.
            if let Some(page) = page.as_deref().filter(|page| **page != ZEROS) {
                hash = xxhash_rust::xxh3::xxh3_64_with_seed(page, hash ^ number as u64);
            }
        }
        hash
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; to_usize(self.len)];
        self.read(0, &mut bytes);
        bytes
    }
}

/// The parts of a range by page: page number, offset in the page, range in the buffer.
fn parts(offset: u64, count: u64) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == count {
            return None;
        }
        let at = offset + done;
        let within = at % PAGE_BYTES;
        let take = (PAGE_BYTES - within).min(count - done);
        let part = to_usize(done)..to_usize(done + take);
        done += take;
        Some((to_usize(at / PAGE_BYTES), to_usize(within), part))
    })
}

/// Simulated files are in memory, so that their lengths fit.
fn to_usize(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_as_a_vector_of_bytes() {
        let mut model: Vec<u8> = Vec::new();
        let mut content = Content::default();
        let mut random = super::super::Random::new(7);
        for step in 0..3_000_u64 {
            if random.below(4) == 0 {
                let len = random.below(20_000);
                model.resize(to_usize(len), 0);
                content.set_len(len);
            } else {
                let offset = random.below(15_000);
                let bytes =
                    vec![u8::try_from(random.below(3)).unwrap(); to_usize(random.below(9_000))];
                let end = to_usize(offset) + bytes.len();
                if model.len() < end {
                    model.resize(end, 0);
                }
                model[to_usize(offset)..end].copy_from_slice(&bytes);
                content.write(offset, &bytes);
            }
            assert_eq!(content.len(), model.len() as u64, "step {step}");
            if step % 16 == 0 {
                assert!(content.to_vec() == model, "step {step}");
            }
        }
    }
}
