//! A store that does nothing but answer: what a run costs over it is the bench's own work.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::peer::{Cas, Peer, Result, Visit, VisitKey};

#[derive(Debug, Default)]
pub struct Nothing(AtomicU64);

impl Peer for Nothing {
    fn load(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<u64> {
        let count = pairs.len() as u64;
        Ok(self.0.fetch_add(count, Ordering::Relaxed) + count)
    }

    fn cas(&self, cas: Cas<'_>) -> Result<Option<u64>> {
        std::hint::black_box(cas);
        Ok(Some(self.0.fetch_add(1, Ordering::Relaxed) + 1))
    }

    fn cas_window(&self, window: &[Cas<'_>]) -> Result<Vec<Option<u64>>> {
        window.iter().map(|&cas| self.cas(cas)).collect()
    }

    fn get(&self, _: &[u8], _: Option<u64>, _: Visit<'_>) -> Result<bool> {
        Ok(false)
    }

    fn scan(&self, _: &[u8], _: &[u8], _: usize, _: Option<u64>, _: VisitKey<'_>) -> Result<usize> {
        Ok(0)
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
