//! What rooms above this one keep with a store, which need not know them.

use std::any::Any;
use std::fmt::Debug;

use bytes::Bytes;

use crate::engine::Stats;
use crate::error::{Error, Result};
use crate::sync::plain::OnceLock;

/// What a room above this one keeps with a store, as long as any handle of it is there, closed or not.
///
/// It must not hold a store, nor an engine: the store would never be dropped, and so never closed.
pub(crate) trait Extension: Any + Send + Sync + Debug {
    /// One unit of the room's background work, for `Store::run_background`. Answers whether there was any.
    ///
    /// # Errors
    /// What the work answers.
    fn turn(&self) -> Result<bool>;

    /// Adds the room's figures.
    fn count(&self, _stats: &mut Stats) {}

    /// The watches that are furthest behind, the furthest first.
    fn lagging(&self, _most: usize) -> Vec<Lagging> {
        Vec::new()
    }
}

/// A watch that is behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lagging {
    /// The first revision that it has not looked at.
    pub(crate) due: u64,
    /// Where its range begins.
    pub(crate) start: Bytes,
    /// Where it ends; `None` for the end of the keys.
    pub(crate) end: Option<Bytes>,
}

/// The place of one room's extension, empty until the room first has something to keep.
#[derive(Debug, Default)]
pub(crate) struct ExtensionCell(OnceLock<Box<dyn Extension>>);

impl ExtensionCell {
    /// What is kept here, if there is anything yet. Costs a load or two, and no lock.
    pub(crate) fn get<T: Extension>(&self) -> Option<&T> {
        let kept: &dyn Any = &**self.0.get()?;
        kept.downcast_ref()
    }

    /// What is kept here; made if there is nothing yet. Of two threads that come at once one waits.
    ///
    /// # Errors
    /// Another room has its extension here: that is a mistake in this crate.
    pub(crate) fn get_or_init<T: Extension>(&self, make: impl FnOnce() -> T) -> Result<&T> {
        let kept: &dyn Any = &**self.0.get_or_init(|| Box::new(make()));
        kept.downcast_ref().ok_or_else(|| Error::invalid("an extension in another's place"))
    }

    /// The figures of the room.
    pub(super) fn count(&self, stats: &mut Stats) {
        if let Some(extension) = self.0.get() {
            extension.count(stats);
        }
    }

    /// The watches that are furthest behind.
    pub(super) fn lagging(&self, most: usize) -> Vec<Lagging> {
        self.0.get().map_or(Vec::new(), |extension| extension.lagging(most))
    }

    /// A unit of the room's work. Answers whether there was any.
    pub(super) fn turn(&self) -> Result<bool> {
        self.0.get().map_or(Ok(false), |extension| extension.turn())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::kv::Store;
    use crate::options::{Durability, Options};
    use crate::sync::plain::{AtomicU64, Ordering};
    use crate::vfs::MemoryVfs;

    /// Has something to do three times, and then fails once.
    #[derive(Debug, Default)]
    struct Worker(AtomicU64);

    impl Extension for Worker {
        fn turn(&self) -> Result<bool> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                3 => Err(Error::invalid("the worker's")),
                turn => Ok(turn < 3),
            }
        }
    }

    #[derive(Debug)]
    struct Other;

    impl Extension for Other {
        fn turn(&self) -> Result<bool> {
            Ok(false)
        }
    }

    fn store() -> Store {
        let options = Options::new().vfs(Arc::new(MemoryVfs::new())).background(false);
        let options = options.durability(Durability::Buffered);
        // Without the rooms above.
        Store::open_alone(Path::new("store"), &options).unwrap()
    }

    #[test]
    fn an_extension_is_made_once_and_has_its_turns() {
        let store = store();
        assert!(store.watch_room().get::<Worker>().is_none());
        let made = store.watch_room().get_or_init(Worker::default).unwrap();
        let other = store.clone();
        assert!(std::ptr::eq(made, other.watch_room().get_or_init(Worker::default).unwrap()));
        assert!(store.lease_room().get::<Worker>().is_none());
        store.lease_room().get_or_init(|| Other).unwrap();
        for _ in 0..3 {
            assert!(store.run_background().unwrap());
        }
    }

    #[test]
    fn what_an_extension_cannot_do_keeps_the_store_from_nothing() {
        let store = store();
        store.watch_room().get_or_init(|| Worker(3.into())).unwrap();
        store.put("a", "").unwrap();
        assert!(store.stats().durable_revision < 2);
        assert!(store.run_background().unwrap_err().to_string().contains("the worker's"));
        assert_eq!(store.stats().durable_revision, 2, "the log was written all the same");
    }

    #[test]
    fn an_extension_is_told_from_another() {
        let cell = ExtensionCell::default();
        cell.get_or_init(|| Other).unwrap();
        assert!(cell.get::<Worker>().is_none() && cell.get::<Other>().is_some());
        let error = cell.get_or_init(Worker::default).unwrap_err();
        assert!(error.to_string().contains("another's place"), "{error}");
    }
}
