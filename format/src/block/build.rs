//! Builds the body of a block.

use crate::cursor::Writer;
use crate::entry::{self, EntryRef, Neighbour};
use crate::place::FileKind;

/// At most this many entries lie between two restart points.
pub const RESTART_INTERVAL: u32 = 16;
/// In uncompressed blocks a run ends after this many bytes, so that a lookup skips few values.
const RUN_BYTES_MAX: usize = 512;

/// Builds the body of a block entry by entry.
#[derive(Debug)]
pub struct BodyBuilder {
    kind: FileKind,
    out: Vec<u8>,
    restarts: Vec<u32>,
    entry_count: u32,
    key: Vec<u8>,
    neighbour: Neighbour,
    run_start: usize,
    run_entries: u32,
}

/// A finished body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawBlock {
    /// The body, not yet compressed.
    pub body: Vec<u8>,
    /// Entries in it.
    pub entry_count: u32,
}

impl BodyBuilder {
    /// An empty body for a file of this kind.
    pub fn new(kind: FileKind) -> Self {
        Self {
            kind,
            out: Vec::new(),
            restarts: Vec::new(),
            entry_count: 0,
            key: Vec::new(),
            neighbour: Neighbour::default(),
            run_start: 0,
            run_entries: 0,
        }
    }

    /// Appends an entry, which must sort after the one before it. The caller has checked its key
    /// and value against the limits of the format.
    pub fn push(&mut self, entry: &EntryRef<'_>) {
        let run_full = self.run_entries >= RESTART_INTERVAL
            || (self.kind.is_stored_raw() && self.out.len() - self.run_start >= RUN_BYTES_MAX);
        if self.entry_count == 0 || run_full {
            // A body is below 4 GiB, see `limits`.
            self.restarts.push(u32::try_from(self.out.len()).unwrap_or(u32::MAX));
            self.run_start = self.out.len();
            self.run_entries = 0;
            self.neighbour.present = false;
        }
        let previous = self.neighbour.present.then_some((&*self.key, self.neighbour));
        entry::encode(&mut self.out, self.kind, entry, previous);
        self.key.clear();
        self.key.extend_from_slice(entry.key);
        self.neighbour = Neighbour {
            key_bytes: entry.key.len(),
            revision: entry.revision,
            create_revision: entry.create_revision,
            version: entry.version,
            present: true,
        };
        self.entry_count += 1;
        self.run_entries += 1;
    }

    /// Bytes the body would have if it were finished now.
    pub fn raw_bytes(&self) -> usize {
        self.out.len() + 4 * (self.restarts.len() + 1)
    }

    /// Whether nothing has been pushed.
    pub const fn is_empty(&self) -> bool {
        self.entry_count == 0
    }

    /// Ends the body and starts over.
    pub fn finish(&mut self) -> RawBlock {
        for restart in &self.restarts {
            self.out.put_u32(*restart);
        }
        self.out.put_u32(u32::try_from(self.restarts.len()).unwrap_or(u32::MAX));
        let block = RawBlock { body: std::mem::take(&mut self.out), entry_count: self.entry_count };
        self.restarts.clear();
        self.entry_count = 0;
        self.run_start = 0;
        self.run_entries = 0;
        self.neighbour.present = false;
        block
    }
}
