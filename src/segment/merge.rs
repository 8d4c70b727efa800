//! Several sorted sources as one.

use annals_format::block::compare;
use annals_format::entry::EntryRef;
use bytes::Bytes;

use crate::error::Result;

/// Anything that walks entries forward in the order of segments.
pub(crate) trait EntryCursor {
    /// The entry it is at; `None` at the end.
    fn entry(&self) -> Option<EntryRef<'_>>;

    /// The value of the entry it is at, also if it lies in another file.
    fn value(&self) -> Result<Bytes>;

    /// Goes to the next entry.
    fn next(&mut self) -> Result<()>;
}

/// Merges sources into one sequence: key ascending, revision descending within a key. Where two
/// sources have the same (key, revision), both come, the earlier source of the list first; list the
/// newest source first.
///
/// Sources are few, so the next entry is found by looking at all of them.
pub(crate) struct MergeCursor {
    sources: Vec<Box<dyn EntryCursor>>,
    /// The source that the next entry comes from.
    current: Option<usize>,
}

impl MergeCursor {
    /// Merges sources that have been put at their first entries.
    pub(crate) fn new(sources: Vec<Box<dyn EntryCursor>>) -> Self {
        let mut merge = Self { sources, current: None };
        merge.choose();
        merge
    }

    fn choose(&mut self) {
        let mut best: Option<(usize, EntryRef<'_>)> = None;
        for (index, source) in self.sources.iter().enumerate() {
            let Some(entry) = source.entry() else { continue };
            let wins = best.as_ref().is_none_or(|(_, least)| {
                compare(entry.key, entry.revision, least.key, least.revision).is_lt()
            });
            if wins {
                best = Some((index, entry));
            }
        }
        self.current = best.map(|(index, _)| index);
    }

    fn source_at(&self) -> Option<&dyn EntryCursor> {
        self.current.and_then(|index| self.sources.get(index)).map(|source| &**source)
    }
}

impl EntryCursor for MergeCursor {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.source_at()?.entry()
    }

    fn value(&self) -> Result<Bytes> {
        self.source_at().map_or_else(|| Ok(Bytes::new()), EntryCursor::value)
    }

    fn next(&mut self) -> Result<()> {
        if let Some(source) = self.current.take().and_then(|index| self.sources.get_mut(index)) {
            source.next()?;
            self.choose();
        }
        Ok(())
    }
}

impl std::fmt::Debug for MergeCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MergeCursor")
            .field("sources", &self.sources.len())
            .field("current", &self.current)
            .finish()
    }
}
