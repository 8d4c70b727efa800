//! Decides whether a file gets a dictionary, and trains it.
//!
//! A dictionary helps where a block begins: what repeats *within* a block zstd finds by itself. So
//! the samples are the first bytes of the blocks as they will be compressed, not single values. Groups
//! store single values; there the samples are those that are stored in full.
//!
//! Every file learns from its own blocks, or from some of them: eight times as much as the dictionary may
//! take, chosen evenly. The trainer's time grows with what it is given, and what it learns hardly does;
//! nothing else is done in the background meanwhile. Of 4 MiB of short values it took more than a second,
//! half of all background work of a store with many writes, and made the flush late.

use annals_format::dictionary::DICTIONARY_BYTES_MAX;

use super::compress::Compressor;

/// Raw bytes that are held back until the decision.
pub(super) const WAITING_BYTES: usize = 4 << 20;
/// Where it is to be quick, this much of samples is enough.
const QUICK_SAMPLE_BYTES: usize = 128 << 10;
/// Values that are shorter on average get no dictionary where it is to be quick: without one they are
/// stored as they are, or made from those of another key, and so read as quickly.
const QUICK_VALUE_BYTES_MIN: usize = 512;

/// A dictionary larger than this no longer pays with blocks of 16 KiB.
pub(super) const BLOCK_DICTIONARY_BYTES: usize = 110 << 10;
/// Groups are made from the dictionary's content in place, so it should stay in the processor's cache.
pub(super) const VALUE_DICTIONARY_BYTES: usize = 64 << 10;
/// Fewer samples than this teach nothing.
const SAMPLES_MIN: usize = 16;
/// Shorter texts are no samples. The trainer looks at eight bytes at a time, and reads outside its
/// memory where the first three quarters of the samples are not that long together.
const SAMPLE_BYTES_MIN: usize = 8;
/// How much of a block or a value is a sample.
const SAMPLE_BYTES_MAX: usize = 4 << 10;
/// The trainer wants many times the dictionary's own size to choose from, and gets no more.
const SAMPLES_PER_DICTIONARY: usize = 8;
/// With how much of the texts it is tried whether a dictionary pays.
const TRIED_BYTES: usize = 256 << 10;
/// The upper half of a product with it depends on all bits of the other factor that matter here.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

const _: () = assert!(BLOCK_DICTIONARY_BYTES <= DICTIONARY_BYTES_MAX);

/// How the dictionary of a HISTORY file is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Training {
    /// As makes the best one.
    Thorough,
    /// From little, if at all: commits may wait for the file, and it is soon merged with others.
    Quick,
}

impl Training {
    /// Bytes of samples with which the decision is made at once.
    pub(super) const fn sample_bytes(self) -> usize {
        match self {
            Self::Thorough => usize::MAX,
            Self::Quick => QUICK_SAMPLE_BYTES,
        }
    }

    /// Whether such values are worth it.
    pub(super) fn pays<'t>(self, values: impl Iterator<Item = &'t [u8]>) -> bool {
        let (mut count, mut bytes) = (0_usize, 0_usize);
        values.for_each(|value| (count, bytes) = (count + 1, bytes + value.len()));
        self == Self::Thorough || bytes / count.max(1) >= QUICK_VALUE_BYTES_MIN
    }
}

/// The dictionary for a file that begins with these texts, blocks or values, if one of at most
/// `bytes_max` bytes pays. `complete` says that these are all of the file; else at least as many are
/// expected to follow.
pub(super) fn train<'t>(
    texts: impl Iterator<Item = &'t [u8]> + Clone,
    bytes_max: usize,
    level: i32,
    complete: bool,
) -> Option<Vec<u8>> {
    let dictionary = learn(texts.clone(), bytes_max)?;
    pays(texts, level, complete, &dictionary).then_some(dictionary)
}

/// What is a sample of a block or a value.
pub(super) fn sample(text: &[u8]) -> &[u8] {
    text.get(..SAMPLE_BYTES_MAX).unwrap_or(text)
}

fn learn<'t>(texts: impl Iterator<Item = &'t [u8]> + Clone, bytes_max: usize) -> Option<Vec<u8>> {
    let samples = texts.map(sample).filter(|sample| sample.len() >= SAMPLE_BYTES_MIN);
    let mut bytes = Vec::new();
    let mut sizes = Vec::new();
    for sample in some(samples, bytes_max * SAMPLES_PER_DICTIONARY) {
        bytes.extend_from_slice(sample);
        sizes.push(sample.len());
    }
    if sizes.len() < SAMPLES_MIN {
        return None;
    }
    let mut dictionary = Vec::with_capacity((bytes.len() / SAMPLES_PER_DICTIONARY).min(bytes_max));
    zstd::zstd_safe::train_from_buffer(&mut dictionary, &bytes, &sizes).ok()?;
    (!dictionary.is_empty()).then_some(dictionary)
}

/// Whether a dictionary saves more than it takes.
fn pays<'t>(
    texts: impl Iterator<Item = &'t [u8]> + Clone,
    level: i32,
    complete: bool,
    dictionary: &[u8],
) -> bool {
    let plain = Compressor::new(level, None);
    let trained = Compressor::new(level, Some(dictionary));
    let tried = some(texts.clone(), TRIED_BYTES);
    let total = |compressor: &Compressor| -> usize {
        let stored =
            |text: &[u8]| compressor.compress(text).map_or(text.len(), |bytes| bytes.len());
        tried.clone().map(stored).sum()
    };
    let saved = total(&plain).saturating_sub(total(&trained));
    // As of those that were tried, so of all; and where that is not the end, of as many again.
    let saved = saved.saturating_mul(bytes_of(texts)) / bytes_of(tried).max(1);
    let expected = if complete { saved } else { saved.saturating_mul(2) };
    expected > dictionary.len()
}

/// Some of the texts, about `bytes` of them if there are more, from everywhere.
fn some<'t>(
    texts: impl Iterator<Item = &'t [u8]> + Clone,
    bytes: usize,
) -> impl Iterator<Item = &'t [u8]> + Clone {
    let share = bytes_of(texts.clone()).div_ceil(bytes.max(1)).max(1) as u64;
    // By a hash of the place and not each so many: what takes turns would not be seen.
    let is_one = move |nth: u64| (nth.wrapping_mul(SPREAD) >> 32).is_multiple_of(share);
    (0..).zip(texts).filter(move |(nth, _)| is_one(*nth)).map(|(_, text)| text)
}

fn bytes_of<'t>(texts: impl Iterator<Item = &'t [u8]>) -> usize {
    texts.map(<[u8]>::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_values_among_few_long_ones_train_nothing() {
        let mut values = vec![Vec::new(); 100];
        values.extend((0..10_u8).map(|nth| vec![nth; 4000]));
        let values = values.iter().map(Vec::as_slice);
        assert_eq!(train(values, VALUE_DICTIONARY_BYTES, 1, true), None);
    }

    #[test]
    fn like_values_train_a_dictionary_whatever_lies_between_them() {
        let text = |nth: u32| format!("a value that says {nth} and is much like the others {nth}");
        let values: Vec<Vec<u8>> =
            (0..2000).flat_map(|nth| [text(nth).into_bytes(), Vec::new(), vec![b'x'; 7]]).collect();
        let values = values.iter().map(Vec::as_slice);
        let trained = train(values, VALUE_DICTIONARY_BYTES, 1, true);
        assert!(trained.is_some_and(|dictionary| dictionary.len() <= VALUE_DICTIONARY_BYTES));
    }

    #[test]
    fn some_texts_are_about_as_many_as_wanted_from_everywhere() {
        let texts: Vec<Vec<u8>> = (0..10_000_u32).map(|nth| nth.to_le_bytes().to_vec()).collect();
        let numbers = |bytes| -> Vec<u32> {
            let some = some(texts.iter().map(Vec::as_slice), bytes);
            some.map(|text| u32::from_le_bytes(text.try_into().unwrap())).collect()
        };
        assert_eq!(
            numbers(40_000),
            (0..10_000).collect::<Vec<_>>(),
            "all, where there are no more"
        );
        for bytes in [400, 4_000, 13_000] {
            let chosen = numbers(bytes);
            let wanted = bytes / 4;
            assert!((wanted / 2..=wanted * 3 / 2).contains(&chosen.len()), "{}", chosen.len());
            for part in 0..4 {
                let here = chosen.iter().filter(|nth| **nth / 2_500 == part).count();
                assert!(here >= wanted / 16, "{here} of {wanted} in part {part}");
            }
            // What takes turns is seen.
            for turns in [2, 3, 4, 8] {
                assert!((0..turns).all(|turn| chosen.iter().any(|nth| nth % turns == turn)));
            }
        }
    }

    #[test]
    fn what_is_to_be_quick_trains_on_long_values_only() {
        let (short, long) = ([&b"short"[..]; 9], [&[b'x'; 512][..]; 9]);
        assert!(!Training::Quick.pays(short.into_iter()));
        assert!(!Training::Quick.pays(std::iter::empty()));
        assert!(Training::Quick.pays(long.into_iter()));
        assert!(Training::Thorough.pays(short.into_iter()));
    }
}
