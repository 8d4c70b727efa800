//! What rooms above this one keep with a store, which need not know them.

use std::any::Any;
use std::fmt::Debug;

use crate::engine::Stats;
use crate::error::{Error, Result};
use crate::sync::plain::OnceLock;

use super::Store;

/// What a room above this one keeps with a store, as long as any handle of it is there, closed or not.
///
/// It must not hold a [`Store`], nor an engine: the store would never be dropped, and so never closed.
pub(crate) trait Extension: Any + Send + Sync + Debug {
    /// One unit of the room's background work, for [`Store::run_background`]. Answers whether there was any.
    ///
    /// # Errors
    /// What the work answers.
    fn turn(&self, store: &Store) -> Result<bool>;

    /// The store is about to be closed, or has been: a room that has no thread does what that would do when
    /// it is dismissed.
    fn leave(&self) {}

    /// Adds the room's figures.
    fn count(&self, _stats: &mut Stats) {}
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

    /// The end of the session.
    pub(super) fn leave(&self) {
        if let Some(extension) = self.0.get() {
            extension.leave();
        }
    }

    /// The figures of the room.
    pub(super) fn count(&self, stats: &mut Stats) {
        if let Some(extension) = self.0.get() {
            extension.count(stats);
        }
    }

    /// A unit of the room's work. Answers whether there was any.
    pub(super) fn turn(&self, store: &Store) -> Result<bool> {
        self.0.get().map_or(Ok(false), |extension| extension.turn(store))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::options::Options;
    use crate::sync::plain::{AtomicU64, Ordering};
    use crate::vfs::MemoryVfs;

    /// Writes a key at each turn, until it has done so three times.
    #[derive(Debug, Default)]
    struct Writer(AtomicU64);

    impl Extension for Writer {
        fn turn(&self, store: &Store) -> Result<bool> {
            let turn = self.0.fetch_add(1, Ordering::Relaxed);
            if turn < 3 {
                store.put(format!("{turn}"), "")?;
            }
            Ok(turn < 3)
        }
    }

    #[derive(Debug)]
    struct Other;

    impl Extension for Other {
        fn turn(&self, _: &Store) -> Result<bool> {
            Ok(false)
        }
    }

    #[test]
    fn an_extension_is_made_once_and_has_its_turns() {
        let options = Options::new().vfs(Arc::new(MemoryVfs::new())).background(false);
        // Without the rooms above.
        let store = Store::open_alone(Path::new("store"), &options).unwrap();
        assert!(store.watch_room().get::<Writer>().is_none());
        let made = store.watch_room().get_or_init(Writer::default).unwrap();
        let other = store.clone();
        assert!(std::ptr::eq(made, other.watch_room().get_or_init(Writer::default).unwrap()));
        assert!(store.lease_room().get::<Writer>().is_none());
        store.lease_room().get_or_init(|| Other).unwrap();
        while store.run_background().unwrap() {}
        assert_eq!(store.revision(), 4);
        assert_eq!(store.engine().revision(), 4);
    }

    #[test]
    fn an_extension_is_told_from_another() {
        let cell = ExtensionCell::default();
        cell.get_or_init(|| Other).unwrap();
        assert!(cell.get::<Writer>().is_none() && cell.get::<Other>().is_some());
        let error = cell.get_or_init(Writer::default).unwrap_err();
        assert!(error.to_string().contains("another's place"), "{error}");
    }
}
