//! Entries brought into the order of their keys, in memory as far as allowed, and on disk.
//!
//! What there is room for is sorted and written out as a run, behind those before it in one file:
//!
//! ```text
//! run := {key_bytes:u32 value_bytes:u32 key value}*
//! ```
//!
//! Then all runs are read side by side, each through a piece of the memory, and at least 4 KiB.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt as _;

use crate::bytes::u32_at;
use crate::{Error, Result};

use super::io_at;

const LENGTHS_BYTES: usize = 8;
const PIECE_BYTES_MIN: usize = 1 << 12;
const PIECE_BYTES_MAX: usize = 1 << 20;

/// Brings entries into the order of their keys, of which no two are the same.
pub struct Sorter {
    scratch: Box<dyn FnMut() -> io::Result<File> + Send>,
    memory: usize,
    /// Entries as a run has them.
    entries: Vec<u8>,
    /// Where they begin, each with the first bytes of its key as a number.
    order: Vec<(u64, usize)>,
    file: Option<File>,
    /// Where the runs end in the file.
    runs: Vec<u64>,
}

impl fmt::Debug for Sorter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, entries, runs, .. } = self;
        let mut sorter = f.debug_struct("Sorter");
        sorter.field("memory", memory).field("bytes", &entries.len()).field("runs", &runs.len());
        sorter.finish_non_exhaustive()
    }
}

/// Key, value and the bytes of the entry that begins there.
fn entry(entries: &[u8], at: usize) -> Option<(&[u8], &[u8], &[u8])> {
    let [key_bytes, value_bytes] = [0, 4].map(|n| u32_at(entries, at + n));
    let (key_bytes, value_bytes) =
        (usize::try_from(key_bytes?).ok()?, usize::try_from(value_bytes?).ok()?);
    let whole = entries.get(at..at + LENGTHS_BYTES + key_bytes + value_bytes)?;
    let (key, value) = whole.get(LENGTHS_BYTES..)?.split_at_checked(key_bytes)?;
    Some((key, value, whole))
}

/// The first eight bytes of a key as a number that sorts as they do.
fn beginning(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(key).for_each(|(byte, of_key)| *byte = *of_key);
    u64::from_be_bytes(bytes)
}

impl Sorter {
    /// One that takes so many bytes of memory, and room in a file that `scratch` makes, which is asked for when
    /// that is needed: best one without a name.
    pub fn new(memory: usize, scratch: impl FnMut() -> io::Result<File> + Send + 'static) -> Self {
        Self {
            scratch: Box::new(scratch),
            memory,
            entries: Vec::new(),
            order: Vec::new(),
            file: None,
            runs: Vec::new(),
        }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// Key or value have 4 GiB or more; what the system answers.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let lengths = [key.len(), value.len()].map(u32::try_from);
        let [Ok(key_bytes), Ok(value_bytes)] = lengths else {
            return Err(Error::refused(0, 0, "an entry that is too long"));
        };
        let more = LENGTHS_BYTES + key.len() + value.len() + size_of::<(u64, usize)>();
        let taken = self.entries.len() + size_of::<(u64, usize)>() * self.order.len();
        if taken + more > self.memory {
            self.spill()?;
        }
        self.order.push((beginning(key), self.entries.len()));
        self.entries.extend(key_bytes.to_le_bytes());
        self.entries.extend(value_bytes.to_le_bytes());
        self.entries.extend_from_slice(key);
        self.entries.extend_from_slice(value);
        Ok(())
    }

    /// Hands out all entries in their order.
    ///
    /// # Errors
    /// What the system answers; what `see` answers.
    pub fn finish<E: From<Error>>(
        mut self,
        mut see: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.runs.is_empty() {
            self.sort();
            for (_, at) in &self.order {
                if let Some((key, value, _)) = entry(&self.entries, *at) {
                    see(key, value)?;
                }
            }
            return Ok(());
        }
        self.spill()?;
        let Self { memory, file, runs, entries, order, .. } = self;
        drop((entries, order));
        let Some(file) = file else { return Ok(()) };
        let piece = (memory / runs.len()).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
        let mut begin = 0;
        let mut next = BinaryHeap::with_capacity(runs.len());
        let mut readers = Vec::with_capacity(runs.len());
        for end in runs {
            let mut run = Run { file: &file, at: begin, end, bytes: Vec::new(), from: 0, piece };
            if let Some((key, _)) = run.first()? {
                next.push(Reverse((key.to_vec(), readers.len())));
            }
            readers.push(run);
            begin = end;
        }
        while let Some(mut least) = next.peek_mut() {
            let Reverse((key, index)) = &mut *least;
            let Some(run) = readers.get_mut(*index) else { break };
            if let Some((key, value)) = run.first()? {
                see(key, value)?;
            }
            run.step();
            match run.first()? {
                Some((following, _)) => {
                    key.clear();
                    key.extend_from_slice(following);
                }
                None => drop(std::collections::binary_heap::PeekMut::pop(least)),
            }
        }
        Ok(())
    }

    fn sort(&mut self) {
        let entries = &self.entries;
        let key = |at| entry(entries, at).map(|(key, ..)| key);
        self.order.sort_unstable_by(|(a, a_at), (b, b_at)| {
            a.cmp(b).then_with(|| key(*a_at).cmp(&key(*b_at)))
        });
    }

    /// Writes what is in memory as a run.
    fn spill(&mut self) -> Result<()> {
        if self.order.is_empty() {
            return Ok(());
        }
        self.sort();
        let mut offset = self.runs.last().copied().unwrap_or_default();
        let file = match self.file.take() {
            Some(file) => file,
            None => (self.scratch)().map_err(io_at(0))?,
        };
        let file = self.file.insert(file);
        let mut out = BufWriter::with_capacity(PIECE_BYTES_MAX, &*file);
        for (_, at) in &self.order {
            if let Some((.., whole)) = entry(&self.entries, *at) {
                out.write_all(whole).map_err(io_at(offset))?;
                offset += whole.len() as u64;
            }
        }
        out.flush().map_err(io_at(offset))?;
        drop(out);
        self.runs.push(offset);
        self.entries.clear();
        // One entry may be longer than all that is allowed.
        self.entries.shrink_to(self.memory);
        self.order.clear();
        Ok(())
    }
}

/// A run that is being read.
struct Run<'f> {
    file: &'f File,
    /// What of the file is still to be read.
    at: u64,
    end: u64,
    /// What was read, of which all before `from` has been handed out.
    bytes: Vec<u8>,
    from: usize,
    piece: usize,
}

impl Run<'_> {
    /// The entry that comes, if there is one.
    fn first(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        while entry(&self.bytes, self.from).is_none() {
            if self.at == self.end {
                if self.bytes.len() == self.from {
                    return Ok(None);
                }
                return Err(io_at(self.end)(io::ErrorKind::UnexpectedEof.into()));
            }
            self.read()?;
        }
        Ok(entry(&self.bytes, self.from).map(|(key, value, _)| (key, value)))
    }

    fn step(&mut self) {
        let bytes = entry(&self.bytes, self.from).map_or(0, |(.., whole)| whole.len());
        self.from += bytes;
    }

    /// Reads a piece more.
    fn read(&mut self) -> Result<()> {
        self.bytes.drain(..self.from);
        self.from = 0;
        if self.bytes.len() < self.piece {
            self.bytes.shrink_to(2 * self.piece);
        }
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        // An entry that is longer takes pieces that grow.
        let more = self.piece.max(self.bytes.len()).min(left);
        let kept = self.bytes.len();
        self.bytes.resize(kept + more, 0);
        let place = self.bytes.get_mut(kept..).unwrap_or_default();
        self.file.read_exact_at(place, self.at).map_err(io_at(self.at))?;
        self.at += more as u64;
        Ok(())
    }
}
