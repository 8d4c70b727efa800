//! Opening a store: the one place that knows all rooms.

use std::path::Path;

use crate::error::Result;
use crate::kv::Store;
use crate::lease;
use crate::observe::{self, Span, Task};
use crate::options::Options;

impl Store {
    /// Opens the store in `directory` with `options`.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn open_with(directory: impl AsRef<Path>, options: &Options) -> Result<Self> {
        observe::describe();
        let span = Span::of(Task::Open);
        let _within = span.enter();
        let store = Self::open_alone(directory.as_ref(), options)?;
        lease::open(&store)?;
        span.revision(store.revision());
        Ok(store)
    }
}
