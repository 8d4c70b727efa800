//! How much room the keys take in the files, by prefix.

use bytes::Bytes;

use crate::engine::{Space, SpaceQuery, Survey, label};
use crate::error::Result;

use super::Store;
use crate::kv::space;

/// What [`Store::space`] tells apart.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceOptions {
    /// Only keys that begin with this; empty for all.
    pub prefix: Bytes,
    /// What ends a part of a key; `/` unless set.
    pub delimiter: u8,
    /// How many parts of the keys behind the prefix are told apart; 1 unless set. 0 gives one sum. A
    /// delimiter right behind the prefix, as in `/pods/a`, ends no part.
    pub depth: usize,
    /// How many prefixes are named, 20 unless set; the others are summed up. The walk remembers no
    /// more than these.
    pub top: usize,
}

impl SpaceOptions {
    /// The first parts of all keys.
    pub fn new() -> Self {
        Self { prefix: Bytes::new(), delimiter: b'/', depth: 1, top: 20 }
    }

    /// Looks only at keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.prefix = Bytes::copy_from_slice(prefix.as_ref());
        self
    }

    /// Sets what ends a part of a key.
    #[must_use]
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.delimiter = delimiter;
        self
    }

    /// Tells so many parts of the keys apart.
    #[must_use]
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }

    /// Names at most so many prefixes.
    #[must_use]
    pub fn top(mut self, top: usize) -> Self {
        self.top = top;
        self
    }

    /// The prefix that a key is told under; `None` for one that is not looked at.
    ///
    /// ```
    /// let options = annals::SpaceOptions::new().depth(2);
    /// assert_eq!(options.label(b"/pods/default/web"), Some(&b"/pods/default/"[..]));
    /// ```
    pub fn label<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        label(&self.prefix, self.delimiter, self.depth, key)
    }
}

impl Default for SpaceOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// A walk that finds out how much room keys take; made by [`Store::survey`]. It can be given up by
/// dropping it.
///
/// It reads the files of the moment it was begun, whatever becomes of them, and does not keep the store
/// open.
#[derive(Debug)]
#[must_use = "a survey does nothing until it is stepped"]
pub struct SpaceSurvey(Survey);

impl SpaceSurvey {
    /// Looks at the index entries of about a thousand blocks. Answers whether there are more.
    ///
    /// # Errors
    ///
    /// [`Corrupt`](crate::ErrorKind::Corrupt) or [`Io`](crate::ErrorKind::Io) from the files.
    pub fn step(&mut self) -> Result<bool> {
        self.0.step()
    }

    /// Goes to the end and answers what was found.
    ///
    /// # Errors
    ///
    /// As [`SpaceSurvey::step`].
    pub fn finish(self) -> Result<Space> {
        let mut space = self.0.finish()?;
        for found in &mut space.prefixes {
            found.prefix = space::strip(std::mem::take(&mut found.prefix));
        }
        Ok(space)
    }
}

impl Store {
    /// Which keys take how much room: the prefixes whose keys take most, with what is alive, what is
    /// history, and what is dead. Works in a store that is open for reading only, too.
    ///
    /// It reads the indexes of the files, of the data the header of each block, and the few blocks that
    /// lie between two prefixes, 2048 at most: so bytes are exact up to how values are compressed
    /// within a block, `keys` and `versions` are exact. Of more prefixes a block between two counts half to
    /// either, and one that has less than a block in a file may be counted to its neighbours or the prefix
    /// above it. Within a file all keys are taken to have the same share of what is alive, history and dead.
    ///
    /// What is still in memory is in no file yet, and not told; so are files of events, which are
    /// in the order of revisions, and the lease table. [`Store::stats`] has these.
    ///
    /// # Errors
    ///
    /// [`Corrupt`](crate::ErrorKind::Corrupt) or [`Io`](crate::ErrorKind::Io) from the files;
    /// [`Closed`](crate::ErrorKind::Closed).
    ///
    /// ```
    /// use annals::SpaceOptions;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    ///
    /// for n in 0..1000 {
    ///     store.put(format!("/logs/{n:04}"), [b'x'; 500])?;
    ///     store.put(format!("/names/{n:04}"), "short")?;
    /// }
    /// # store.reorganise()?;
    /// let space = store.space(SpaceOptions::new().top(1))?;
    /// assert_eq!(space.prefixes[0].prefix, "/logs/");
    /// assert!(space.prefixes[0].live_bytes > 500_000 && space.other.live_bytes < 100_000);
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn space(&self, options: SpaceOptions) -> Result<Space> {
        self.survey(options)?.finish()
    }

    /// As [`Store::space`], step by step, so that it can be given up.
    ///
    /// # Errors
    ///
    /// As [`Store::space`].
    pub fn survey(&self, options: SpaceOptions) -> Result<SpaceSurvey> {
        let SpaceOptions { prefix, delimiter, depth, top } = options;
        let prefix = space::user(&prefix).to_vec();
        self.engine.survey(SpaceQuery { prefix, delimiter, depth, top }).map(SpaceSurvey)
    }
}
