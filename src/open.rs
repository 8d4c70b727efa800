//! Opening a store: the one place that knows all rooms.

use std::path::Path;

use crate::error::Result;
use crate::kv::{Loading, Store, live};
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
        live::begin(&store)?;
        span.revision(store.revision());
        Ok(store)
    }
}

impl Loading {
    /// Makes everything durable, and the directory a store, which is open then. Takes a walk over all keys if
    /// there are leases.
    ///
    /// # Errors
    ///
    /// [`Io`](crate::ErrorKind::Io), [`NoSpace`](crate::ErrorKind::NoSpace),
    /// [`Corrupt`](crate::ErrorKind::Corrupt), or what kept the log from being written. The directory may be a
    /// store, which is complete then, or none, and is to be removed.
    pub fn finish(self) -> Result<Store> {
        let store = self.finish_alone()?;
        lease::open(&store)?;
        Ok(store)
    }
}
