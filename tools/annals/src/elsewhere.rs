//! A state that is not in the store itself: that of a copy of it, or of a backup.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::path::PathBuf;

use annals::{Diff, KeyRange, KeyValue, RangeIter, Store, View};
use clap::Args;
use tempfile::TempDir;

use crate::args::Global;
use crate::backup;
use crate::exit::{Failure, Outcome};

/// Where a state is taken from.
#[derive(Debug, Args)]
pub(crate) struct FromArgs {
    /// The first AT is a point in the history of a copy of the store: the directory of a checkpoint, or a backup, each increment
    /// by one more --from. Backups are unpacked into the directory for temporary files (TMPDIR).
    #[arg(long = "from", value_name = "DIR|BACKUP")]
    from: Vec<PathBuf>,
}

/// Such a copy, open for reading.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    pub(crate) store: Store,
    /// Gone with this.
    _unpacked: Option<TempDir>,
}

impl FromArgs {
    /// Opens what was given.
    pub(crate) fn open(&self, global: &Global) -> Outcome<Option<Elsewhere>> {
        let options = global.engine_options()?;
        match self.from.as_slice() {
            [] => Ok(None),
            [directory] if directory.is_dir() => {
                let store = Store::open_read_only_with(directory, &options)?;
                Ok(Some(Elsewhere { store, _unpacked: None }))
            }
            files => {
                if let Some(directory) = files.iter().find(|file| file.is_dir()) {
                    let directory = directory.display();
                    return Err(Failure::Usage(format!(
                        "{directory}: a directory is a whole store: give it alone, or a backup and its increments"
                    )));
                }
                let failed = |error| Failure::io("a temporary directory", error);
                let unpacked =
                    tempfile::Builder::new().prefix("annals-").tempdir().map_err(failed)?;
                let directory = unpacked.path().join("store");
                backup::unpack(files, &directory, &options)?;
                let store = Store::open_read_only_with(&directory, &options)?;
                Ok(Some(Elsewhere { store, _unpacked: Some(unpacked) }))
            }
        }
    }

    /// What was given, in words.
    pub(crate) fn name(&self) -> Option<String> {
        self.from.last().map(|path| path.display().to_string())
    }
}

/// The differences between a state and another in a range, whatever stores they are of. Cost: both ranges are read.
pub(crate) fn differences(old: &View, new: &View, range: &KeyRange) -> Differences {
    let (old, new) = (old.range(range).peekable(), new.range(range).peekable());
    Differences { old, new, done: false }
}

/// An iterator over differences, in the order of keys.
#[derive(Debug)]
pub(crate) struct Differences {
    old: Peekable<RangeIter>,
    new: Peekable<RangeIter>,
    /// Nothing is told after an error.
    done: bool,
}

impl Differences {
    /// The next key of either, as it is in both.
    fn pair(&mut self) -> annals::Result<(Option<KeyValue>, Option<KeyValue>)> {
        let order = match (self.old.peek(), self.new.peek()) {
            (Some(Ok(old)), Some(Ok(new))) => old.key.cmp(&new.key),
            // A failure is taken from whichever has it.
            (Some(Err(_)), _) | (Some(Ok(_)), None) => Ordering::Less,
            (_, Some(_)) => Ordering::Greater,
            (None, None) => return Ok((None, None)),
        };
        let old = if order.is_le() { self.old.next().transpose()? } else { None };
        let new = if order.is_ge() { self.new.next().transpose()? } else { None };
        Ok((old, new))
    }
}

impl Iterator for Differences {
    type Item = annals::Result<Diff>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            return Some(Ok(match self.pair() {
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
                Ok((None, None)) => return None,
                Ok((Some(old), Some(new))) if old == new => continue,
                Ok((Some(old), Some(new))) => Diff::Changed { old, new },
                Ok((Some(old), None)) => Diff::Removed(old),
                Ok((None, Some(new))) => Diff::Added(new),
            }));
        }
        None
    }
}
