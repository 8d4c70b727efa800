//! Where versions are found: the memtable generations and the files, as of one moment.
//!
//! Invariants:
//!
//! 1. [`Tables`] and everything below it is immutable; a change publishes a new value.
//! 2. Every version that a view can ask for is in exactly one of: a generation, an L0 file, HEAD, a
//!    HISTORY window. (Its value may lie in a blob file, which the file with the entry keeps readable.) So
//!    whoever reads takes one `Tables`; [`read`](super::read) says where it looks.
//! 3. A reader learns its revision before it loads the tables, or while they are in force. What it must see was then already in
//!    them: a generation is published before the first version in it becomes visible.

use std::collections::BTreeMap;

use crate::index::Generation;
use crate::reclaim::plan::blobs::Referenced;
use crate::sync::Arc;
use annals_format::FileKind;

pub(super) use crate::segment::SealedFile;

/// So many changes for each key, and most keys have changed: of those that are changed at random seven
/// of eight.
const DEATHS_A_KEY: u64 = 2;

/// The generations and files of one moment.
#[derive(Clone)]
pub(super) struct Tables {
    /// Newest first; the first takes the writes, the others are frozen. In a store open for reading
    /// only, recovery has filled as many as the log needs, and they stay.
    pub(super) generations: Arc<[Arc<Generation>]>,
    /// The sealed files.
    pub(super) files: Arc<FileSet>,
}

/// The sealed segment files that make up the store.
#[derive(Debug, Default)]
pub(super) struct FileSet {
    /// The newest version of every key of each flushed generation, or of several that were merged, newest
    /// generation first.
    pub(super) l0: Vec<Arc<SealedFile>>,
    /// The newest folded version of every key, by key; the files' key ranges do not overlap.
    pub(super) head: Vec<Arc<SealedFile>>,
    /// Superseded versions by the revision that superseded them, by (`upto`, `after`). The windows of a
    /// fold and of the flushes before it overlap: a version is in one of them.
    pub(super) windows: Vec<Window>,
    /// What changed, by revision, oldest first.
    pub(super) events: Vec<Arc<SealedFile>>,
    /// Large values of what L0 and HEAD have, by number.
    pub(super) blobs: Vec<Arc<SealedFile>>,
    /// What entries refer to of each blob file, by its number.
    referenced: BTreeMap<u64, Referenced>,
    /// Reads as of earlier revisions most likely find their answer in HISTORY.
    pub(super) history_before: u64,
}

/// The versions that died in (`after`, `upto`].
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// No death of the window is at or before this.
    pub(super) after: u64,
    /// The last death of the window is at or before this.
    pub(super) upto: u64,
    /// By key: each begins where the one before ends, or later. A key's versions of this window can
    /// lie in several neighbours.
    pub(super) files: Vec<Arc<SealedFile>>,
}

/// As [`Core`](super::core::Core).
impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables")
            .field("generations", &self.generations.len())
            .finish_non_exhaustive()
    }
}

impl Tables {
    /// Whether these are the tables of the same moment as others.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.generations, &other.generations) && Arc::ptr_eq(&self.files, &other.files)
    }

    /// The same generations with other files.
    pub(super) fn with_files(&self, files: Arc<FileSet>) -> Self {
        Self { generations: Arc::clone(&self.generations), files }
    }

    /// The frozen generations, oldest first: the order in which they are flushed.
    pub(super) fn frozen(&self) -> impl DoubleEndedIterator<Item = &Arc<Generation>> {
        self.generations.iter().skip(1).rev()
    }
}

impl FileSet {
    /// Sorts the files a manifest lists into their places.
    pub(super) fn new(files: impl IntoIterator<Item = Arc<SealedFile>>) -> Self {
        let mut set = Self::default();
        let mut history = Vec::new();
        for file in files {
            match file.meta().kind {
                FileKind::L0 => set.l0.push(file),
                FileKind::Head => set.head.push(file),
                FileKind::History => history.push(file),
                FileKind::Events => set.events.push(file),
                FileKind::Blob => set.blobs.push(file),
                FileKind::Current | FileKind::Manifest | FileKind::Wal => {}
            }
        }
        set.l0.sort_by_key(|file| std::cmp::Reverse(file.meta().last_seq));
        set.head.sort_by(|a, b| a.meta().first_key.cmp(&b.meta().first_key));
        set.events.sort_by_key(|file| (file.meta().min_revision, file.meta().number));
        set.blobs.sort_by_key(|file| file.meta().number);
        for file in set.l0.iter().chain(&set.head) {
            for blob in &file.meta().blobs {
                let of = set.referenced.entry(blob.file).or_default();
                let by =
                    if file.meta().kind == FileKind::L0 { &mut of.by_l0 } else { &mut of.by_head };
                *by = by.saturating_add(blob.bytes);
            }
        }
        set.windows = windows_of(history);
        set.history_before = set.changed_since();
        set
    }

    /// The revision since which there have been [`DEATHS_A_KEY`] as many changes as there are keys, if
    /// deaths are spread evenly over the revisions of a window.
    fn changed_since(&self) -> u64 {
        let newest = self.l0.iter().chain(&self.head);
        let keys: u64 = newest.map(|file| file.meta().entries).sum();
        let wanted = u128::from(keys.saturating_mul(DEATHS_A_KEY));
        let deaths_since = |revision: u64| -> u128 {
            let of_window = |window: &Window| {
                let entries: u64 = window.files.iter().map(|file| file.meta().entries).sum();
                let span = window.upto.saturating_sub(window.after).max(1);
                let since = window.upto.saturating_sub(revision).min(span);
                u128::from(entries) * u128::from(since) / u128::from(span)
            };
            self.windows.iter().map(of_window).sum()
        };
        // The last revision with so many after it: there are fewer, the later it is.
        let (mut enough, mut few) = (0, self.windows.last().map_or(0, |window| window.upto));
        while enough + 1 < few {
            let middle = enough + (few - enough) / 2;
            let half = if deaths_since(middle) >= wanted { &mut enough } else { &mut few };
            *half = middle;
        }
        enough
    }

    /// What entries refer to of a file, if it is a blob file.
    pub(super) fn referenced(&self, file: &SealedFile) -> Referenced {
        self.referenced.get(&file.meta().number).copied().unwrap_or_default()
    }

    /// Every file.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<SealedFile>> {
        let windows = self.windows.iter().flat_map(|window| &window.files);
        self.l0.iter().chain(&self.head).chain(windows).chain(&self.events).chain(&self.blobs)
    }

    /// The set without the files `removed` names and with those of `added`.
    pub(super) fn edited(&self, removed: &[u64], added: &[Arc<SealedFile>]) -> Self {
        let kept = self.all().filter(|file| !removed.contains(&file.meta().number));
        Self::new(kept.chain(added).cloned())
    }

    /// The HEAD file that has the key if any has.
    pub(super) fn head_of(&self, key: &[u8]) -> Option<&Arc<SealedFile>> {
        let after = self.head.partition_point(|file| file.meta().first_key.as_slice() <= key);
        let file = self.head.get(after.checked_sub(1)?)?;
        (key <= file.meta().last_key.as_slice()).then_some(file)
    }
}

/// The windows that HISTORY files make up, by (`upto`, `after`).
///
/// Two pieces of work may have made windows of the same span: a fold of one generation, and its flush.
/// Their files are told apart by their keys, as well as that can be done: those that overlap belong to
/// different windows. Where they do not it makes no difference.
pub(super) fn windows_of(mut files: Vec<Arc<SealedFile>>) -> Vec<Window> {
    files.sort_by(|a, b| {
        let order = |f: &SealedFile| (f.meta().death_upto, f.meta().death_after);
        order(a).cmp(&order(b)).then_with(|| {
            (&a.meta().first_key, a.meta().number).cmp(&(&b.meta().first_key, b.meta().number))
        })
    });
    let mut windows: Vec<Window> = Vec::new();
    for file in files {
        let (after, upto) = (file.meta().death_after, file.meta().death_upto);
        let fits = |window: &&mut Window| {
            window.files.last().is_none_or(|last| {
                let (last, next) = (last.meta(), file.meta());
                // Work that cuts a file within a key goes on with the key in its next file.
                let goes_on = last.last_key == next.first_key && last.number < next.number;
                last.last_key < next.first_key || goes_on
            })
        };
        let of_span = |window: &&mut Window| (window.after, window.upto) == (after, upto);
        match windows.iter_mut().rev().take_while(of_span).find(fits) {
            Some(window) => window.files.push(file),
            None => windows.push(Window { after, upto, files: vec![file] }),
        }
    }
    windows
}

impl Window {
    /// The files of the window that may have the key.
    pub(super) fn files_of(&self, key: &[u8]) -> impl DoubleEndedIterator<Item = &Arc<SealedFile>> {
        let from = self.files.partition_point(|file| file.meta().last_key.as_slice() < key);
        // One as a rule, so those that come next are looked at in turn.
        let files = self.files.get(from..).unwrap_or_default();
        let has = |file: &&Arc<SealedFile>| file.meta().first_key.as_slice() <= key;
        let count = files.iter().take_while(has).count();
        files.get(..count).unwrap_or_default().iter()
    }
}
