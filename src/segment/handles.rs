//! The open descriptors of segment files: a bounded number, however many files a store has.
//!
//! A descriptor is opened when a file is read with `pread`, and stays in the slot that the file's
//! number leads to, until another file takes the slot or the file is dropped. Numbers of files that
//! are read together are close, so they rarely meet; if they do, a read costs one `open` more.
//!
//! Invariant: a read waits for nobody. It takes a slot only if that is free at once, and goes
//! without it otherwise. Nothing is opened or closed while a slot is taken.

use std::fmt;
use std::sync::Arc;

use crate::sync::plain::{PoisonError, RwLock};
use crate::vfs::File;

/// The most descriptors kept. It leaves most of the 1024 that a process usually may have to others.
pub(crate) const OPEN_FILES_MAX: u64 = 128;

/// The number of a file, and its descriptor.
type Slot = RwLock<Option<(u64, Arc<dyn File>)>>;

/// The descriptors of one store. Cloning is cheap and shares them.
#[derive(Clone)]
pub(super) struct Handles(Arc<[Slot]>);

impl Handles {
    pub(super) fn new() -> Self {
        Self((0..OPEN_FILES_MAX).map(|_| Slot::default()).collect())
    }

    /// The descriptor of file `number`, if it is here.
    pub(super) fn find(&self, number: u64) -> Option<Arc<dyn File>> {
        let slot = self.slot(number)?.try_read().ok()?;
        let (_, file) = slot.as_ref().filter(|(found, _)| *found == number)?;
        Some(Arc::clone(file))
    }

    /// Keeps a descriptor, in the place of another.
    pub(super) fn keep(&self, number: u64, file: &Arc<dyn File>) {
        let mut new = Some((number, Arc::clone(file)));
        if let Some(Ok(mut slot)) = self.slot(number).map(RwLock::try_write) {
            std::mem::swap(&mut *slot, &mut new);
        }
        // The other is closed here, behind the lock.
    }

    /// Closes the descriptor of a file that is not read any more: the space of a removed file returns
    /// with its last descriptor. Waits at most while somebody copies or swaps a pointer.
    pub(super) fn forget(&self, number: u64) {
        let Some(slot) = self.slot(number) else { return };
        let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
        let gone = slot.take_if(|(found, _)| *found == number);
        drop(slot);
        drop(gone);
    }

    fn slot(&self, number: u64) -> Option<&Slot> {
        self.0.get(usize::try_from(number % OPEN_FILES_MAX).ok()?)
    }
}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handles").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::vfs::{MemoryVfs, Vfs as _};

    #[test]
    fn descriptors_are_bounded_and_forgotten() {
        let handles = Handles::new();
        let file = MemoryVfs::new().create(Path::new("file")).unwrap();
        for number in 0..1000 {
            handles.keep(number, &file);
            assert!(handles.find(number).is_some());
        }
        assert_eq!(Arc::strong_count(&file) as u64, OPEN_FILES_MAX + 1);
        assert!(handles.find(0).is_none(), "its slot has been taken");
        handles.forget(0);
        assert_eq!(Arc::strong_count(&file) as u64, OPEN_FILES_MAX + 1);
        handles.forget(999);
        assert!(handles.find(999).is_none());
        assert_eq!(Arc::strong_count(&file) as u64, OPEN_FILES_MAX);
    }
}
