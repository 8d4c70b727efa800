//! A directory in which a command makes a store: what to do where something is in it, and what is left when it fails.

use std::path::Path;

use annals::ErrorKind;
use annals_format::name::{LOADING, LOCK};

use crate::exit::{Failure, say};

/// What is left of a store that was not finished, in words.
pub(crate) const UNFINISHED: &str =
    "it holds a store that was not finished: remove it before another try";

/// Such a directory.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    path: &'a Path,
    /// What is not finished there is somebody else's.
    was_there: bool,
}

impl<'a> Target<'a> {
    /// Looks what is there, before anything is made.
    pub(crate) fn new(path: &'a Path) -> Self {
        Self { path, was_there: is_unfinished(path) }
    }

    /// Says what making a store there has left, if it is that; the failure, with what to do about it.
    pub(crate) fn failed(&self, failure: Failure) -> Failure {
        let is_locked = matches!(failure.code(), 4);
        if !is_locked && !self.was_there && is_unfinished(self.path) {
            say(format_args!("{}: {UNFINISHED}", self.path.display()));
            return failure;
        }
        match failure {
            Failure::Engine { about: None, error }
                if matches!(error.kind(), ErrorKind::InvalidArgument { .. })
                    && self.is_occupied() =>
            {
                Failure::Occupied(error)
            }
            other => other,
        }
    }

    /// Whether there is something besides the lock.
    fn is_occupied(&self) -> bool {
        let entries = self.path.read_dir().into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name() != LOCK)
    }
}

fn is_unfinished(path: &Path) -> bool {
    path.join(LOADING).exists()
}
