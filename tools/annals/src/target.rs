//! A directory in which a command makes a store: what is left there when it fails.

use std::path::Path;

use annals_format::name::LOADING;

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

    /// Says what making a store there has left, if it is that; answers the failure as it was.
    pub(crate) fn failed(&self, failure: Failure) -> Failure {
        let is_locked = matches!(failure.code(), 4);
        if !is_locked && !self.was_there && is_unfinished(self.path) {
            say(format_args!("{}: {UNFINISHED}", self.path.display()));
        }
        failure
    }
}

fn is_unfinished(path: &Path) -> bool {
    path.join(LOADING).exists()
}
