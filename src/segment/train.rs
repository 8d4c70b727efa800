//! Decides whether a file gets a dictionary, and trains it.
//!
//! A dictionary helps where a block begins: what repeats *within* a block zstd finds by itself. So
//! the samples are the first bytes of the blocks as they will be compressed, not single values.
//!
//! Every file learns from its own blocks. That is cheap enough not to hand dictionaries on from file
//! to file: of an import of 2.6 GB of Kubernetes manifests the training takes 0.5 % of the
//! processor time, and the trial below less than 4 %.

use annals_format::dictionary::DICTIONARY_BYTES_MAX;

use super::blocks_out::Waiting;
use super::compress::Compressor;

/// Raw bytes of blocks that are held back until the decision.
pub(super) const SAMPLE_BYTES: usize = 4 << 20;

/// A dictionary larger than this no longer pays with blocks of 16 KiB.
const DICTIONARY_BYTES: usize = 110 << 10;
/// Fewer blocks than this teach nothing.
const SAMPLES_MIN: usize = 16;
/// How much of a block is a sample.
const SAMPLE_BYTES_MAX: usize = 4 << 10;
/// The trainer wants many times the dictionary's own size to choose from.
const SAMPLES_PER_DICTIONARY: usize = 8;

const _: () = assert!(DICTIONARY_BYTES <= DICTIONARY_BYTES_MAX);

/// The dictionary for a file that begins with `blocks`, if one pays. `complete` says that these are
/// all the blocks of the file; else at least as many are expected to follow.
pub(super) fn train(blocks: &[Waiting], level: i32, complete: bool) -> Option<Vec<u8>> {
    if blocks.len() < SAMPLES_MIN {
        return None;
    }
    let mut samples = Vec::new();
    let mut sizes = Vec::with_capacity(blocks.len());
    for Waiting { block, .. } in blocks {
        let sample = block.body.get(..SAMPLE_BYTES_MAX).unwrap_or(&block.body);
        samples.extend_from_slice(sample);
        sizes.push(sample.len());
    }
    let bytes = (samples.len() / SAMPLES_PER_DICTIONARY).min(DICTIONARY_BYTES);
    let mut dictionary = Vec::with_capacity(bytes);
    zstd::zstd_safe::train_from_buffer(&mut dictionary, &samples, &sizes).ok()?;
    if dictionary.is_empty() {
        return None;
    }

    let plain = Compressor::new(level, None);
    let trained = Compressor::new(level, Some(&dictionary));
    let total = |compressor: &Compressor| -> usize {
        let stored = |Waiting { block, .. }: &Waiting| {
            compressor.compress(&block.body).map_or(block.body.len(), |bytes| bytes.len())
        };
        blocks.iter().map(stored).sum()
    };
    let saved = total(&plain).checked_sub(total(&trained))?;
    let expected = if complete { saved } else { saved.saturating_mul(2) };
    (expected > dictionary.len()).then_some(dictionary)
}
