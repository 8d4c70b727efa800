//! A directory in which a command makes a store: what to do where something is in it, and what is left when it fails.

use std::path::Path;

use annals::ErrorKind;
use annals_format::name::LOADING;

use crate::exit::{Failure, say};

/// What is left of a store that was not finished, in words.
pub(crate) const UNFINISHED: &str =
    "it holds a store that was not finished: remove it before another try";

/// What the engine says of a directory that has something in it.
const OCCUPIED: [&str; 2] = ["is not empty: it holds", "has a store that was not finished"];

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
                    // Of its kind there are others, for which nobody should be told to remove anything.
                    && OCCUPIED.iter().any(|what| error.to_string().contains(what)) =>
            {
                Failure::Occupied(error)
            }
            other => other,
        }
    }
}

fn is_unfinished(path: &Path) -> bool {
    path.join(LOADING).exists()
}
