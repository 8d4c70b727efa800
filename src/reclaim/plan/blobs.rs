//! Which blob files are emptied: what is in use of them goes to new ones, so that they can go.
//!
//! A move writes two things: the values, and every HEAD file that refers to one of them, with all its entries. In a
//! store of a few large values among many small ones the second is most of it. So a move has to make an end of as much
//! as it writes, and small blob files, which cost nobody much, are joined only where there are many.

use std::collections::{BTreeMap, BTreeSet};

use annals_format::FileMeta;

use super::{Limits, cheapest_run};

/// How many bytes of the values in a blob file entries refer to. One may count twice while it is folded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Referenced {
    /// Entries of HEAD.
    pub(crate) by_head: u64,
    /// Entries of L0.
    pub(crate) by_l0: u64,
}

impl Referenced {
    /// Both.
    pub(crate) const fn all(self) -> u64 {
        self.by_head.saturating_add(self.by_l0)
    }
}

/// How much of a blob file is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlobUse {
    /// Its number.
    pub(crate) number: u64,
    /// Its length.
    pub(crate) bytes: u64,
    /// Bytes of its values.
    pub(crate) value_bytes: u64,
    /// Bytes of those that are in use.
    pub(crate) referenced: Referenced,
}

impl BlobUse {
    /// Bytes of the values that no entry refers to.
    pub(crate) const fn dead(&self) -> u64 {
        self.value_bytes.saturating_sub(self.referenced.all())
    }
}

/// Most bytes of values that are moved in one piece of work, in files of the size at which they are cut.
const MOVED_SEGMENTS_MAX: u64 = 4;

/// Small blob files are joined where there are more than so many times [`Limits::history_windows_max`].
const SMALL_TIMES: usize = 4;

/// A blob file is small if it has less than this part of the size at which files are cut.
const SMALL_SHARE: u64 = 4;

/// The blob files (by number) to empty of what HEAD refers to; what L0 refers to waits for its fold.
///
/// Of those with dead values the ones with the greatest part of them, as many as make an end of one byte at least for each
/// `share - 1` that are written: values that move, and HEAD files (`head`) that refer to them. Else a run of small ones,
/// where there are many.
pub(crate) fn blobs_to_move(
    blobs: &[BlobUse],
    head: &[&FileMeta],
    share: u64,
    limits: &Limits,
) -> BTreeSet<u64> {
    let in_head = || blobs.iter().filter(|blob| blob.referenced.by_head > 0);
    let mut dead: Vec<&BlobUse> = in_head().filter(|blob| blob.dead() > 0).collect();
    let moved = if dead.is_empty() { 0 } else { worth_it(&mut dead, head, share, limits) };
    if moved > 0 {
        return dead.iter().take(moved).map(|blob| blob.number).collect();
    }
    let is_small = |blob: &&BlobUse| blob.bytes < limits.segment_bytes / SMALL_SHARE;
    let small: Vec<&BlobUse> = in_head().filter(is_small).collect();
    if small.len() <= limits.history_windows_max.max(1).saturating_mul(SMALL_TIMES) {
        return BTreeSet::new();
    }
    let bytes: Vec<u64> = small.iter().map(|blob| blob.bytes).collect();
    let run = cheapest_run(&bytes).unwrap_or_default();
    small.get(run).unwrap_or_default().iter().map(|blob| blob.number).collect()
}

/// Sorts the files, and answers how many from the first one on are worth moving.
fn worth_it(dead: &mut [&BlobUse], head: &[&FileMeta], share: u64, limits: &Limits) -> usize {
    let mut referring: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, meta) in head.iter().enumerate() {
        for blob in &meta.blobs {
            referring.entry(blob.file).or_default().push(at);
        }
    }
    dead.sort_by_key(|blob| {
        let live = u128::from(blob.referenced.all());
        // A fraction with as many bits as there is room for.
        (live << 64) / u128::from(blob.value_bytes.max(1))
    });
    let most = limits.segment_bytes.saturating_mul(MOVED_SEGMENTS_MAX);
    let mut written = vec![false; head.len()];
    let (mut ends, mut values, mut files, mut worth) = (0_u64, 0_u64, 0_u64, 0);
    for (count, blob) in (1..).zip(dead.iter()) {
        values = values.saturating_add(blob.referenced.by_head);
        // One at least, however large it is.
        if values > most && count > 1 {
            break;
        }
        ends = ends.saturating_add(blob.dead());
        for at in referring.get(&blob.number).into_iter().flatten() {
            if let (Some(written @ false), Some(meta)) = (written.get_mut(*at), head.get(*at)) {
                *written = true;
                files = files.saturating_add(meta.bytes);
            }
        }
        if ends.saturating_mul(share.saturating_sub(1)) >= values.saturating_add(files) {
            worth = count;
        }
    }
    worth
}

#[cfg(test)]
mod tests {
    use annals_format::entry::BlobRef;
    use annals_format::{ContentHash, FileKind};

    use super::*;

    const LIMITS: Limits = Limits { l0_files_max: 4, history_windows_max: 1, segment_bytes: 1000 };

    fn used(number: u64, value_bytes: u64, by_head: u64, by_l0: u64) -> BlobUse {
        let referenced = Referenced { by_head, by_l0 };
        BlobUse { number, bytes: value_bytes + 100, value_bytes, referenced }
    }

    fn head(bytes: u64, blobs: &[u64]) -> FileMeta {
        FileMeta {
            number: 1,
            kind: FileKind::Head,
            class: 0,
            incarnation: 1,
            bytes,
            hash: ContentHash::default(),
            entries: 10,
            value_bytes: 0,
            first_key: vec![1],
            last_key: vec![1, 2],
            min_revision: 1,
            max_revision: 2,
            death_after: 0,
            death_upto: 0,
            last_seq: 0,
            folded_to: Vec::new(),
            blobs: blobs.iter().map(|&file| BlobRef { file, bytes: 1 }).collect(),
        }
    }

    fn chosen(blobs: &[BlobUse], head: &[FileMeta], share: u64) -> Vec<u64> {
        let head: Vec<&FileMeta> = head.iter().collect();
        blobs_to_move(blobs, &head, share, &LIMITS).into_iter().collect()
    }

    #[test]
    fn a_move_ends_as_much_as_it_writes() {
        let of = |by_head, head_bytes, share| {
            chosen(&[used(7, 900, by_head, 0)], &[head(head_bytes, &[7])], share)
        };
        assert_eq!(of(400, 100, 2), [7]);
        assert_eq!(of(401, 100, 2), [0; 0]);
        assert_eq!(of(400, 101, 2), [0; 0], "the file of HEAD counts, too");
        assert_eq!(of(400, 1100, 4), [7]);
        assert_eq!(of(900, 0, 16), [0; 0], "all of it is in use");
        assert_eq!(chosen(&[used(7, 900, 0, 10)], &[], 16), [0; 0], "a fold comes first");
    }

    #[test]
    fn files_of_head_are_written_once_for_several() {
        let blobs = [used(3, 600, 300, 0), used(5, 600, 100, 0), used(6, 600, 599, 0)];
        let head = [head(300, &[3, 5, 6])];
        assert_eq!(chosen(&blobs, &head, 2), [3, 5]);
        assert_eq!(chosen(&blobs[..1], &head, 2), [0; 0]);
        assert_eq!(chosen(&blobs, &head, 16), [3, 5, 6]);
    }

    #[test]
    fn many_small_ones_are_joined() {
        let small = |count| (1..=count).map(|number| used(number, 10, 10, 0)).collect::<Vec<_>>();
        assert_eq!(chosen(&small(4), &[], 2), [0; 0]);
        assert_eq!(chosen(&small(5), &[], 2), [1, 2, 3, 4, 5]);
        // Values of few bytes in files that are full of keys are not small.
        let full: Vec<BlobUse> =
            small(9).into_iter().map(|blob| BlobUse { bytes: 1000, ..blob }).collect();
        assert_eq!(chosen(&full, &[], 2), [0; 0]);
    }
}
