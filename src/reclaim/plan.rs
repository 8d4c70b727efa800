//! What background work to do next: pure decisions over sizes and spans.
//!
//! Costs the policy balances: every L0 file is one more place to look at for each read; every
//! HISTORY window one more for a read of an old revision; every rewrite wears the device. So from
//! [`Limits::l0_files_max`] L0 files on all are folded, or, as long as that would rewrite a HEAD more than
//! four times as large, neighbours of them are merged; and windows are merged only when there are more than [`Limits::history_windows_max`], cheapest run of neighbours first, which lets them
//! grow geometrically: old windows are large and rarely touched.
//!
//! A window comes with every flush, of what was superseded within a memtable, and one with every fold, of
//! what was superseded by a later memtable. Where a few keys are written all the time the first kind has
//! nearly everything, where each is written now and then the second; so large and small ones take turns in
//! the list. Merging the likes among neighbours handles both: first the few small ones between two
//! large ones become one, then the large ones with the little between them. How often a version is
//! written again grows with the logarithm of the number of windows there ever were, in either case.
//! Where the writing disturbs nobody, few windows are merged, too ([`windows_worth_merging`]).

use std::ops::Range;

pub(crate) mod blobs;

/// Most neighbours that are merged at once.
///
/// As many as there are by default when a merge is due: among equals, the more are merged at once the
/// less often each is written again.
const RUN_MAX: usize = 16;

/// When work is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// L0 files from which on they are folded or merged.
    pub(crate) l0_files_max: usize,
    /// HISTORY windows (also: EVENTS files) beyond which neighbours are merged; four times as many small blob files.
    pub(crate) history_windows_max: usize,
    /// The size at which files are cut: EVENTS files of half of it, and blob files of a quarter, are left alone.
    pub(crate) segment_bytes: u64,
}

/// What becomes of L0 files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum L0Work {
    /// All of them are folded into HEAD.
    Fold,
    /// These neighbours become one.
    Merge(Range<usize>),
}

/// Once L0 files have this share of the bytes of HEAD they are folded: one part in so many.
///
/// A fold writes the HEAD files again that have a key of L0; where updates are spread evenly these are
/// all of them. With a share of 4 a fold writes 5 bytes at most for each byte of L0, however large HEAD
/// is, and at most about a quarter of HEAD is superseded.
const FOLD_SHARE: u64 = 4;

/// Merging fewer files than these writes the same bytes again too often.
const MERGED_FILES_MIN: usize = 4;

/// An L0 file is one file for all keys, whose filter is made in memory: beyond this many times the size at
/// which files are cut none is made of others.
const L0_SEGMENTS_MAX: u64 = 64;

/// What to do with the L0 files, whose sizes these are in order of age; `None` while there are few
/// enough. `weight` is what of HEAD and of blob files they are worth: more than their own size where they shadow longer
/// values, or delete them. `head` is the size of the HEAD files that a fold would write again.
///
/// As long as they are small beside HEAD, likes are merged with likes, as windows are: so they grow
/// geometrically until a fold pays. Of updates spread evenly over a HEAD of 100 flushed files each is
/// then rewritten 7 times in all; folding every four files would rewrite it 26 times.
pub(crate) fn l0_work(bytes: &[u64], weight: u64, head: u64, limits: &Limits) -> Option<L0Work> {
    if bytes.len() < limits.l0_files_max.max(1) {
        return None;
    }
    if weight.saturating_mul(FOLD_SHARE) >= head {
        return Some(L0Work::Fold);
    }
    // Flushes wait for three times as many files as make work due.
    if bytes.len() < MERGED_FILES_MIN.min(limits.l0_files_max.saturating_mul(3)) {
        return None;
    }
    let Some(run) = cheapest_run(bytes) else { return Some(L0Work::Fold) };
    let merged = bytes.get(run.clone()).unwrap_or_default();
    let merged = merged.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    let too_large = merged > limits.segment_bytes.saturating_mul(L0_SEGMENTS_MAX);
    Some(if too_large { L0Work::Fold } else { L0Work::Merge(run) })
}

/// The L0 files to merge where none is folded, as HEAD or one of them cannot be read: neighbours that make no file which is too
/// large, those that cannot be read (of `u64::MAX` bytes) not among them; `None` while there are few.
pub(crate) fn l0_merge(bytes: &[u64], limits: &Limits) -> Option<Range<usize>> {
    let most = limits.segment_bytes.saturating_mul(L0_SEGMENTS_MAX);
    // The others are about as large as such a file may become, and stay.
    let small = bytes.iter().filter(|bytes| **bytes <= most / 2).count();
    if small < limits.l0_files_max.max(MERGED_FILES_MIN) {
        return None;
    }
    cheapest(runs(bytes).filter(|run| run.sum <= most.into()))
}

/// The windows to merge, as a range of neighbours; `None` while there are few enough.
///
/// `bytes` are the sizes of the windows, oldest first.
pub(crate) fn windows_to_merge(bytes: &[u64], limits: &Limits) -> Option<Range<usize>> {
    if bytes.len() <= limits.history_windows_max.max(1) {
        return None;
    }
    cheapest_run(bytes)
}

/// Few windows are merged in a store that nobody writes to, if those beside the largest have at least one in
/// so many of its bytes: then a version is written again so once each time what is merged has doubled.
pub(crate) const MERGE_QUIET: u64 = 1;

/// The same, when reads and room are to be as good as they can be and the writing is not minded.
pub(crate) const MERGE_EAGER: u64 = 16;

/// Most bytes of such a run, in a store that nobody writes to, in files of the size at which they are cut: it
/// is one piece of work, and its window goes as a whole or is trimmed when the watermark has come so far.
/// Larger windows gain little: a group is full with 64 versions.
pub(crate) const QUIET_SEGMENTS_MAX: u64 = 4;

/// The windows to merge although there are few, as a range of neighbours: of the runs in which all but the
/// largest have at least one in `share` of its bytes, and all together no more than `most`, the one that has
/// most bytes.
///
/// Versions take less room the more of their key stand together, which the first flushes have not yet brought
/// about, and a read of the past looks at one window in place of two where these overlap: 100 versions of
/// each of 2,000 Pods take 71 bytes a version in twelve windows, 44 in one (`benches/RESULTS.md`).
pub(crate) fn windows_worth_merging(bytes: &[u64], share: u64, most: u64) -> Option<Range<usize>> {
    let is_worth = |run: &Measured| {
        let others = run.sum - run.largest;
        others.saturating_mul(share.into()) >= run.largest && run.sum <= most.into()
    };
    runs(bytes).filter(is_worth).max_by_key(|run| run.sum).map(|run| run.range)
}

/// A window is written again without its dead versions when half of its revisions are dead. Where
/// revisions are about equally large, what compaction leaves behind is then at most as much as what
/// is still needed, and every version is written again at most once on average.
pub(crate) const TRIM_USUAL: u64 = 2;

/// The same in a store that nobody writes to, where the writing disturbs nobody. Then at most a third
/// as much as is still needed is left behind. What is written in all is bounded, too: for every version
/// that such a trim drops at most three are written again, however often the watermark moves.
pub(crate) const TRIM_QUIET: u64 = 4;

/// The same, when space is wanted back and the writing is not minded.
pub(crate) const TRIM_EAGER: u64 = 16;

/// Whether at least one in `share` of the revisions of a window (`after`, `upto`], which `keep` runs
/// through, is below `keep`. Deaths are taken to be spread evenly over the revisions.
///
/// The window that is left begins at `keep`, so it is not trimmed for the same revisions again.
pub(crate) fn trims((after, upto): (u64, u64), keep: u64, share: u64) -> bool {
    let dead = keep.saturating_sub(1).saturating_sub(after);
    dead > 0 && keep <= upto && dead.saturating_mul(share) >= upto - after
}

/// Whether a HEAD file of so many entries is written again without its tombstones, which nobody can
/// ask for any more: when they are a quarter of it. For every one that goes at most three other
/// entries are written again, and no file twice for the same.
pub(crate) fn sweeps(tombstones: u64, entries: u64) -> bool {
    tombstones > 0 && tombstones.saturating_mul(4) >= entries
}

/// The EVENTS files to join, as a range of neighbours; `None` while there are few small ones.
///
/// Files near the size of a segment are left as they are, so that compaction can drop them whole.
pub(crate) fn events_to_join(bytes: &[u64], limits: &Limits) -> Option<Range<usize>> {
    let small = |bytes: &u64| *bytes < limits.segment_bytes / 2;
    let mut best: Option<(u64, Range<usize>)> = None;
    let mut start = 0;
    while start < bytes.len() {
        let rest = bytes.get(start..).unwrap_or_default();
        let len = rest.iter().take_while(|bytes| small(bytes)).count();
        if len > limits.history_windows_max.max(1)
            && let Some(run) = cheapest_run(rest.get(..len).unwrap_or_default())
        {
            let run = start + run.start..start + run.end;
            let cost = bytes.get(run.clone()).unwrap_or_default().iter().sum();
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, run));
            }
        }
        start += len.max(1);
    }
    best.map(|(_, run)| run)
}

/// The run of two to [`RUN_MAX`] neighbours whose largest has the smallest share in the sum; of
/// equals the smallest, then the newest.
///
/// So likes are merged with likes, as many as possible at once, and a large one is not written again
/// for the sake of a few small ones. Of 2,000 windows of one size in 12 places each is rewritten 3.5
/// times with runs of up to 8; taking the run with the fewest bytes for each one that goes away made it
/// 16 times.
fn cheapest_run(bytes: &[u64]) -> Option<Range<usize>> {
    cheapest(runs(bytes))
}

fn cheapest(runs: impl Iterator<Item = Measured>) -> Option<Range<usize>> {
    let best = runs.min_by(|a, b| {
        let shares = a.largest.saturating_mul(b.sum).cmp(&b.largest.saturating_mul(a.sum));
        shares.then(a.sum.cmp(&b.sum)).then(b.range.start.cmp(&a.range.start))
    });
    best.map(|run| run.range)
}

/// A run of neighbours.
struct Measured {
    range: Range<usize>,
    /// Bytes of the largest, and of all together, one more for each: neither is 0.
    largest: u128,
    sum: u128,
}

/// All runs of two to [`RUN_MAX`] neighbours.
fn runs(bytes: &[u64]) -> impl Iterator<Item = Measured> {
    let ranges = (0..bytes.len()).flat_map(|start| {
        (start + 2..=bytes.len().min(start + RUN_MAX)).map(move |end| start..end)
    });
    ranges.map(|range| {
        let members =
            || bytes.get(range.clone()).unwrap_or_default().iter().map(|b| u128::from(*b) + 1);
        let (largest, sum) = (members().max().unwrap_or(1), members().sum::<u128>().max(1));
        Measured { range, largest, sum }
    })
}

/// Which HEAD files a fold rewrites.
///
/// HEAD files split the key space: file i owns the keys from its first key (the first file: from
/// the beginning) up to the first key of the next. `touched[i]` says whether the fold has a key
/// there. A small file (less than a quarter of the size at which it would be cut) beside a touched
/// one is taken along, so that HEAD does not crumble. Returned are runs of neighbours; each is
/// replaced by new files of the same key range.
pub(crate) fn head_runs(touched: &[bool], small: &[bool]) -> Vec<Range<usize>> {
    let small = |i: usize| small.get(i).copied().unwrap_or(false);
    let is_touched = |i: usize| touched.get(i).copied().unwrap_or(false);
    let taken = |i: usize| {
        is_touched(i) || small(i) && (is_touched(i + 1) || i.checked_sub(1).is_some_and(is_touched))
    };
    let mut runs: Vec<Range<usize>> = Vec::new();
    for i in (0..touched.len()).filter(|i| taken(*i)) {
        match runs.last_mut() {
            Some(run) if run.end == i => run.end = i + 1,
            _ => runs.push(i..i + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { l0_files_max: 4, history_windows_max: 4, segment_bytes: 1000 };

    #[test]
    fn flushed_files_are_folded_once_they_are_worth_it() {
        assert_eq!(l0_work(&[1, 1, 1], 3, 0, &LIMITS), None);
        assert_eq!(l0_work(&[1, 1, 1, 1], 4, 16, &LIMITS), Some(L0Work::Fold));
        assert_eq!(l0_work(&[1, 1, 1, 1], 4, 17, &LIMITS), Some(L0Work::Merge(0..4)));
        assert_eq!(l0_work(&[1, 1, 1, 1], 5, 17, &LIMITS), Some(L0Work::Fold), "they delete much");
        assert_eq!(l0_work(&[1, 1, 9, 1], 12, 100, &LIMITS), Some(L0Work::Merge(0..2)));
        assert_eq!(l0_work(&[u64::MAX; 4], u64::MAX, u64::MAX, &LIMITS), Some(L0Work::Fold));
        let quarter = LIMITS.segment_bytes * L0_SEGMENTS_MAX / 4;
        let merge = |last| l0_work(&[quarter, quarter, quarter, last], 1, u64::MAX, &LIMITS);
        assert_eq!(merge(quarter), Some(L0Work::Merge(0..4)), "as large as such a file may become");
        assert_eq!(merge(quarter + 1), Some(L0Work::Fold));
        assert_eq!(l0_work(&[20_000; 4], 1, 10, &LIMITS), Some(L0Work::Fold), "one file too large");
        let limits = |l0_files_max| Limits { l0_files_max, ..LIMITS };
        assert_eq!(l0_work(&[], 0, 0, &limits(0)), None);
        // Fewer are not worth it, but there must be work where flushes wait.
        assert_eq!(l0_work(&[1], 1, 1000, &limits(1)), None);
        assert_eq!(l0_work(&[1; 3], 3, 1000, &limits(1)), Some(L0Work::Merge(0..3)));
        assert_eq!(l0_work(&[1; 3], 3, 1000, &limits(2)), None);
        assert_eq!(l0_work(&[1; 4], 4, 1000, &limits(2)), Some(L0Work::Merge(0..4)));
    }

    #[test]
    fn where_nothing_is_folded_there_are_few_files_that_are_not_large() {
        let most = LIMITS.segment_bytes * L0_SEGMENTS_MAX;
        for (flushed, damaged) in [(1_000, 0), (1, 0), (900, 3), (1_000, 20)] {
            // Newest first.
            let (mut l0, mut written) = (vec![u64::MAX; damaged], 0);
            for n in 0..3_000 {
                l0.insert(0, flushed - n % 7 % flushed);
                while let Some(run) = l0_merge(&l0, &LIMITS) {
                    let total: u64 = l0[run.clone()].iter().sum();
                    written += total;
                    assert!(run.len() > 1 && total <= most, "{run:?}");
                    l0.splice(run, [total]);
                }
            }
            let sound: Vec<u64> = l0.iter().copied().filter(|bytes| *bytes < u64::MAX).collect();
            let all: u64 = sound.iter().sum();
            assert_eq!(l0.len(), sound.len() + damaged);
            assert!(sound.len() as u64 <= all / (most / 2) + 10, "{} of {all}", sound.len());
            assert!(written < 25 * all, "{written} for {all}");
        }
    }

    #[test]
    fn what_a_flushed_byte_costs_hardly_grows_with_head() {
        for (head, tenths) in [(3, 20), (30, 55), (100, 75), (1000, 130)] {
            let (mut l0, mut written, mut put) = (Vec::new(), 0, 0);
            while put < 20 * head {
                l0.push(1);
                put += 1;
                while let Some(work) = l0_work(&l0, l0.iter().sum(), head, &LIMITS) {
                    match work {
                        L0Work::Fold => written += head + l0.drain(..).sum::<u64>(),
                        L0Work::Merge(run) => {
                            let total = l0[run.clone()].iter().sum();
                            written += total;
                            l0.splice(run, [total]);
                        }
                    }
                }
            }
            assert!(written * 10 < put * tenths, "a HEAD of {head} files: {written} for {put}");
        }
    }

    #[test]
    fn few_windows_are_left_alone() {
        assert_eq!(windows_to_merge(&[9, 9, 9, 9], &LIMITS), None);
        assert_eq!(windows_to_merge(&[], &LIMITS), None);
    }

    #[test]
    fn few_windows_are_merged_where_it_pays() {
        let quiet = |bytes: &[u64]| windows_worth_merging(bytes, MERGE_QUIET, 1_000_000);
        let eager = |bytes: &[u64]| windows_worth_merging(bytes, MERGE_EAGER, u64::MAX);
        assert_eq!((quiet(&[]), quiet(&[7])), (None, None));
        assert_eq!(quiet(&[9, 9]), Some(0..2));
        assert_eq!(quiet(&[100, 50, 40]), None, "much would be written for little");
        assert_eq!(quiet(&[100, 40, 40]), Some(1..3));
        assert_eq!(quiet(&[100, 50, 50]), Some(0..3));
        assert_eq!(quiet(&[1000, 10, 1]), None);
        assert_eq!(eager(&[1000, 10, 1]), Some(1..3));
        assert_eq!(eager(&[1000, 60, 10]), Some(0..3));
        assert_eq!(quiet(&[400_000; 4]), Some(2..4), "no more at once");
        assert_eq!(quiet(&[600_000; 3]), None);
        assert_eq!(eager(&[u64::MAX / 8; 3]), Some(0..3));
        assert_eq!(eager(&[1; 40]).map(|run| run.len()), Some(RUN_MAX));
    }

    /// One window after the other comes, and after each the store is quiet.
    #[test]
    fn in_a_quiet_store_windows_are_rewritten_a_logarithmic_number_of_times() {
        for share in [MERGE_QUIET, MERGE_EAGER] {
            let (mut windows, mut written): (Vec<u64>, u64) = (Vec::new(), 0);
            for round in 0..1_000 {
                windows.push(999 + round % 3);
                while let Some(run) = windows_worth_merging(&windows, share, u64::MAX) {
                    let total: u64 = windows[run.clone()].iter().sum();
                    written += total;
                    windows.splice(run, [total]);
                }
            }
            let times = written / 1_000_000;
            let most = if share == MERGE_QUIET { 10 } else { 60 };
            assert!(times <= most && windows.len() <= 10, "{times} times, {} left", windows.len());
        }
    }

    #[test]
    fn young_windows_are_merged_before_old_ones() {
        assert_eq!(windows_to_merge(&[100_000, 900, 10, 10, 10], &LIMITS), Some(2..5));
        assert_eq!(windows_to_merge(&[0, 0, 0, 0, 0], &LIMITS), Some(0..5));
        assert_eq!(windows_to_merge(&[u64::MAX; 5], &LIMITS).map(|run| run.len() > 1), Some(true));
    }

    #[test]
    fn windows_grow_geometrically() {
        let limits = Limits { history_windows_max: 12, ..LIMITS };
        let mut windows: Vec<u64> = Vec::new();
        let mut written = 0;
        while windows.iter().sum::<u64>() < 2_000 {
            windows.push(1);
            while let Some(run) = windows_to_merge(&windows, &limits) {
                let total: u64 = windows[run.clone()].iter().sum();
                written += total;
                windows.splice(run, [total]);
            }
        }
        assert_eq!(windows.iter().sum::<u64>(), 2_000);
        assert!(written < 4 * 2_000, "each window is rewritten {} times", written / 2_000);
    }

    /// How many times each byte is written again when `folds` folds come, of `fold` bytes each, every one
    /// after four flushes of `flush` bytes each.
    fn rewritten(folds: u64, fold: u64, flush: u64) -> f64 {
        let limits = Limits { history_windows_max: 12, ..LIMITS };
        let mut windows: Vec<u64> = Vec::new();
        let mut written = 0;
        for n in 0..5 * folds {
            // A fold ends where its last flush does, and begins before: it comes before that in the list.
            if n % 5 < 4 {
                windows.push(flush);
            } else {
                windows.insert(windows.len() - 1, fold);
            }
            while let Some(run) = windows_to_merge(&windows, &limits) {
                assert!(run.len() >= 2 && run.end <= windows.len());
                let total: u64 = windows[run.clone()].iter().sum();
                written += total;
                windows.splice(run, [total]);
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "numbers of a test")]
        let times = written as f64 / windows.iter().sum::<u64>() as f64;
        times
    }

    #[test]
    fn windows_of_flushes_and_folds_are_rewritten_a_logarithmic_number_of_times() {
        for (fold, flush) in [(1, 100), (100, 100), (400, 10), (400, 1), (2_000, 100)] {
            let few = rewritten(40, fold, flush);
            let many = rewritten(1_000, fold, flush);
            assert!(few < 2.5 && many < 6.0, "{fold} and {flush}: {few} and {many} times");
        }
    }

    #[test]
    fn a_window_is_trimmed_once_for_the_same_watermark() {
        let (window, keep) = ((100, 200), 160);
        assert!(trims(window, keep, TRIM_USUAL));
        assert!(!trims((keep - 1, 200), keep, TRIM_EAGER), "nothing dead is left");
        assert!(!trims(window, 150, TRIM_USUAL) && trims(window, 150, TRIM_EAGER));
        assert!(!trims(window, 101, u64::MAX), "a death at the watermark is kept");
        assert!(!trims(window, 90, u64::MAX) && !trims(window, 0, u64::MAX));
        assert!(!trims(window, 201, TRIM_USUAL), "such a window is dropped whole");
        assert!(!trims((100, 100), 100, TRIM_EAGER), "nothing is in it");
        assert!(trims((0, u64::MAX), u64::MAX, u64::MAX), "no overflow");
    }

    #[test]
    fn a_file_is_swept_when_a_quarter_of_it_is_tombstones() {
        assert!(sweeps(1, 1) && sweeps(25, 100) && sweeps(u64::MAX, u64::MAX));
        assert!(!sweeps(0, 0) && !sweeps(0, 1) && !sweeps(24, 100) && !sweeps(1, u64::MAX));
    }

    #[test]
    fn only_small_events_files_are_joined() {
        assert_eq!(events_to_join(&[900, 800, 700, 600, 900, 800], &LIMITS), None);
        assert_eq!(events_to_join(&[900, 1, 1, 900, 1, 1, 1, 1, 1], &LIMITS), Some(4..9));
        assert_eq!(events_to_join(&[499; 5], &LIMITS), Some(0..5));
        assert_eq!(events_to_join(&[500; 5], &LIMITS), None, "half a segment is not small");
        assert_eq!(events_to_join(&[1; 4], &LIMITS), None, "they are few");
    }

    #[test]
    fn of_several_runs_of_small_events_files_the_one_with_the_fewest_bytes_is_joined() {
        let join = |sizes: [u64; 3]| {
            let bytes: Vec<u64> =
                sizes.iter().flat_map(|size| [*size, *size, *size, *size, *size, 900]).collect();
            events_to_join(&bytes, &LIMITS)
        };
        assert_eq!(join([3, 2, 4]), Some(6..11));
        assert_eq!(join([2, 3, 4]), Some(0..5));
        assert_eq!(join([4, 3, 2]), Some(12..17));
        assert_eq!(
            join([2, 2, 2]),
            Some(0..5),
            "of equals the oldest, which compaction drops first"
        );
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "a list of one run is meant")]
    fn a_fold_rewrites_what_it_touches_and_small_neighbours() {
        let big = [false; 5];
        assert!(head_runs(&[false; 5], &big).is_empty());
        assert_eq!(head_runs(&[false, true, true, false, true], &big), [1..3, 4..5]);
        let small = [false, false, true, true, false];
        assert_eq!(head_runs(&[false, true, false, false, false], &small), [1..3]);
        assert_eq!(head_runs(&[false, false, false, false, true], &small), [3..5]);
        assert!(head_runs(&[], &[]).is_empty());
    }
}
