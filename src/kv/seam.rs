//! What this room uses of the engine, in one place.

use crate::error::Result;

use super::eval::reads::{Reads, Records};

pub(super) use super::memory::{
    Engine, Footprint, Outcome, Plan, Record, Snapshot, Step, Ticket, View, Write, WriteKind,
};

impl Reads for View {
    fn revision(&self) -> u64 {
        self.position().revision
    }

    fn compacted(&self) -> u64 {
        self.compacted()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        self.get(key)
    }

    fn seen(&self, key: &[u8]) -> Result<u64> {
        self.seen(key)
    }

    fn scan<'s>(&'s self, start: &[u8], end: &[u8], keys_only: bool) -> Records<'s> {
        Box::new(self.scan(start, end, keys_only).into_iter())
    }

    fn get_at(&self, key: &[u8], revision: u64) -> Result<Option<Record>> {
        self.engine().view(revision)?.get(key)
    }

    fn scan_at<'s>(
        &'s self,
        start: &[u8],
        end: &[u8],
        keys_only: bool,
        revision: u64,
    ) -> Result<Records<'s>> {
        let view = self.engine().view(revision)?;
        Ok(Box::new(view.scan(start, end, keys_only).into_iter()))
    }
}
