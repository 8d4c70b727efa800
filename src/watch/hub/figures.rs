//! Figures about the watches of a store.

use crate::engine::Stats;
use crate::kv::Lagging;
use crate::sync::Ordering;
use crate::sync::plain::lock;

use super::Hub;

impl Hub {
    /// A watch has told a batch.
    pub(in crate::watch) fn has_told(&self) {
        self.told.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the figures of all watches. The hub waits meanwhile, and nobody else.
    pub(super) fn count(&self, stats: &mut Stats) {
        stats.watch_batches = self.told.load(Ordering::Relaxed);
        let registry = lock(&self.registry);
        for slot in registry.interest.slots().filter(|slot| !slot.is_over()) {
            stats.watches += 1;
            let Some(due) = slot.oldest_due() else { continue };
            let oldest = &mut stats.watch_oldest_revision;
            *oldest = if *oldest == 0 { due } else { due.min(*oldest) };
            stats.watches_behind += 1;
        }
    }

    /// The watches that are furthest behind.
    pub(super) fn lagging(&self, most: usize) -> Vec<Lagging> {
        let registry = lock(&self.registry);
        let alive = registry.interest.slots().filter(|slot| !slot.is_over());
        let mut behind: Vec<_> =
            alive.filter_map(|slot| Some((slot.oldest_due()?, slot))).collect();
        behind.sort_by_key(|(due, _)| *due);
        let told = behind.into_iter().take(most).map(|(due, slot)| {
            let (start, end) = (slot.range.start().clone(), slot.range.end().cloned());
            Lagging { due, start, end }
        });
        told.collect()
    }
}
