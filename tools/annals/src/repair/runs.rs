//! What is found of each key, in the order of the keys, in bounded memory: a store may be larger than that.
//!
//! Findings come in any order. As many as fit are kept in a map, where the newer one of a key takes the place of the older;
//! when it is full it is written to a file in order, as a *run*, and the runs are merged in the end. The file has no name, so
//! nothing is left of it however this stops. Each record has a hash: what comes back is what was written.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use annals::KeyValue;
use bytes::{Buf as _, BufMut as _, Bytes};
use xxhash_rust::xxh3::xxh3_64;

use crate::exit::{Failure, Outcome};

/// What the findings in memory may take.
const BYTES: usize = 32 << 20;

/// What one takes beside its key and its value: about.
const OVERHEAD: usize = 256;

/// Runs that are merged at once.
const MERGED: usize = 128;

/// The length and the hash of a record.
const HEAD_BYTES: usize = 12;

/// What is read of a run at once.
const READ_BYTES: usize = 64 << 10;

/// The newest version of a key, or that it was deleted.
#[derive(Debug)]
pub(super) struct Newest {
    pub(super) revision: u64,
    pub(super) sub: u32,
    /// Only EVENTS say so: there may be a later version, which is lost.
    pub(super) by_event: bool,
    pub(super) alive: Option<KeyValue>,
}

/// What is known of a key.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) newest: Option<Newest>,
    /// The newest revision at which it was written by what EVENTS say: the value is elsewhere, if anywhere.
    pub(super) written: u64,
}

impl Found {
    /// The revision that was lost, if something newer was written than what was found; and what is there instead.
    pub(super) fn lost(&self) -> Option<(u64, Option<u64>)> {
        let newest = self.newest.as_ref();
        if newest.is_some_and(|newest| newest.revision >= self.written) {
            return None;
        }
        let kept = newest.filter(|newest| newest.alive.is_some());
        Some((self.written, kept.map(|kept| kept.revision)))
    }

    /// Takes in what was found later. Of findings of one revision the first counts: EVENTS are read last.
    fn add(&mut self, later: Self) {
        self.written = self.written.max(later.written);
        let revision = |found: &Option<Newest>| found.as_ref().map_or(0, |newest| newest.revision);
        if later.newest.is_some() && revision(&later.newest) > revision(&self.newest) {
            self.newest = later.newest;
        }
    }

    fn value_bytes(&self) -> usize {
        let alive = self.newest.as_ref().and_then(|newest| newest.alive.as_ref());
        alive.map_or(0, |alive| alive.value.len())
    }
}

/// The findings.
#[derive(Debug)]
pub(super) struct Runs {
    keys: BTreeMap<Bytes, Found>,
    /// What these take.
    bytes: usize,
    /// What they may.
    limit: usize,
    /// How many runs may be merged at once.
    merged: usize,
    file: File,
    /// Where the file ends.
    end: u64,
    /// Where in it each run is, the oldest first.
    written: Vec<Range<u64>>,
    /// The longest record there.
    longest: usize,
}

impl Runs {
    /// None yet; what does not fit into memory goes to a file in this directory.
    pub(super) fn new(directory: &Path) -> Outcome<Self> {
        let made = tempfile::tempfile_in(directory);
        let file = made.map_err(|e| Failure::io(directory.display().to_string(), e))?;
        Ok(Self {
            keys: BTreeMap::new(),
            bytes: 0,
            limit: BYTES,
            merged: MERGED,
            file,
            end: 0,
            written: Vec::new(),
            longest: 0,
        })
    }

    /// Takes in what was found of a key.
    pub(super) fn add(&mut self, key: Bytes, found: Found) -> Outcome {
        if let Some(known) = self.keys.get_mut(&key) {
            let before = known.value_bytes();
            known.add(found);
            self.bytes = self.bytes - before + known.value_bytes();
        } else {
            self.bytes += key.len() + found.value_bytes() + OVERHEAD;
            self.keys.insert(key, found);
        }
        if self.bytes > self.limit { self.spill().map_err(failed) } else { Ok(()) }
    }

    /// Writes what is in memory as a run.
    fn spill(&mut self) -> io::Result<()> {
        let keys = std::mem::take(&mut self.keys);
        self.bytes = 0;
        let mut run = RunWriter::begin(&self.file, self.end);
        for (key, found) in &keys {
            run.write(key, found)?;
            self.longest = self.longest.max(run.record.len());
        }
        self.end = run.end()?;
        self.written.push(run.start..self.end);
        Ok(())
    }

    /// Hands out each key once, in order, with all that was found of it.
    pub(super) fn each(&mut self, each: &mut dyn FnMut(&Bytes, &Found) -> Outcome) -> Outcome {
        if self.written.is_empty() {
            return self.keys.iter().try_for_each(|(key, found)| each(key, found));
        }
        if !self.keys.is_empty() {
            self.spill().map_err(failed)?;
        }
        // As many at once as have room with their longest record each.
        let most = (2 * BYTES).checked_div(self.longest).unwrap_or(self.merged);
        let most = most.clamp(2, self.merged.max(2));
        while self.written.len() > most {
            // In their order: of findings of one revision the first one counts.
            let mut runs = Vec::new();
            for group in self.written.chunks(most) {
                let mut run = RunWriter::begin(&self.file, self.end);
                merge(&self.file, group, &mut |key, found| run.write(key, found).map_err(failed))?;
                self.end = run.end().map_err(failed)?;
                runs.push(run.start..self.end);
            }
            self.written = runs;
        }
        merge(&self.file, &self.written, each)
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::io("a temporary file in the new directory", error)
}

/// Writes a run behind the others.
struct RunWriter<'f> {
    file: BufWriter<&'f File>,
    start: u64,
    bytes: u64,
    record: Vec<u8>,
}

impl<'f> RunWriter<'f> {
    fn begin(file: &'f File, start: u64) -> Self {
        let file = BufWriter::with_capacity(READ_BYTES, file);
        Self { file, start, bytes: 0, record: Vec::new() }
    }

    fn write(&mut self, key: &[u8], found: &Found) -> io::Result<()> {
        encode(key, found, &mut self.record)?;
        self.bytes += self.record.len() as u64;
        self.file.write_all(&self.record)
    }

    /// Where it ends.
    fn end(&mut self) -> io::Result<u64> {
        self.file.flush()?;
        Ok(self.start + self.bytes)
    }
}

/// A record: its length and its hash, then the key and what was found.
fn encode(key: &[u8], found: &Found, record: &mut Vec<u8>) -> io::Result<()> {
    let length = |bytes: usize| u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidData);
    record.clear();
    record.put_bytes(0, HEAD_BYTES);
    record.put_u32(length(key.len())?);
    record.put_slice(key);
    record.put_u64(found.written);
    if let Some(newest) = &found.newest {
        record.put_u64(newest.revision);
        record.put_u32(newest.sub);
        record.put_u8(u8::from(newest.by_event));
        if let Some(alive) = &newest.alive {
            record.put_u64(alive.create_revision);
            record.put_u64(alive.version);
            record.put_i64(alive.lease);
            record.put_slice(&alive.value);
        }
    }
    let body = record.get(HEAD_BYTES..).unwrap_or_default();
    let (bytes, hash) = (length(body.len())?, xxh3_64(body));
    if let Some(mut head) = record.get_mut(..HEAD_BYTES) {
        head.put_u32(bytes);
        head.put_u64(hash);
    }
    Ok(())
}

/// The other way; `None` where it is none.
fn decode(mut body: Bytes) -> Option<(Bytes, Found)> {
    let key_bytes = usize::try_from(body.try_get_u32().ok()?).ok()?;
    if key_bytes > body.len() {
        return None;
    }
    let key = body.split_to(key_bytes);
    let written = body.try_get_u64().ok()?;
    if body.is_empty() {
        return Some((key, Found { newest: None, written }));
    }
    let (revision, sub) = (body.try_get_u64().ok()?, body.try_get_u32().ok()?);
    let by_event = body.try_get_u8().ok()? != 0;
    let mut newest = Newest { revision, sub, by_event, alive: None };
    if !body.is_empty() {
        newest.alive = Some(KeyValue {
            key: key.clone(),
            create_revision: body.try_get_u64().ok()?,
            mod_revision: revision,
            version: body.try_get_u64().ok()?,
            lease: body.try_get_i64().ok()?,
            value: body,
        });
    }
    Some((key, Found { newest: Some(newest), written }))
}

/// A part of a file, from its start.
struct Part<'f> {
    file: &'f File,
    at: Range<u64>,
}

impl Read for Part<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.at.end - self.at.start).unwrap_or(usize::MAX);
        let most = into.len().min(left);
        let read = self.file.read_at(into.get_mut(..most).unwrap_or_default(), self.at.start)?;
        self.at.start += read as u64;
        Ok(read)
    }
}

/// Reads a run from its start.
struct RunReader<'f> {
    file: BufReader<Part<'f>>,
    /// Bytes that are still to come.
    left: u64,
}

impl RunReader<'_> {
    /// The next record; `None` at the end.
    fn next(&mut self) -> io::Result<Option<(Bytes, Found)>> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut head = [0; HEAD_BYTES];
        self.file.read_exact(&mut head)?;
        let (mut fields, head_bytes) = (&head[..], HEAD_BYTES as u64);
        let (bytes, hash) = (fields.get_u32(), fields.get_u64());
        let changed = || io::Error::new(io::ErrorKind::InvalidData, "it has changed");
        self.left = self.left.checked_sub(head_bytes + u64::from(bytes)).ok_or_else(changed)?;
        let mut body = vec![0; usize::try_from(bytes).map_err(|_| changed())?];
        self.file.read_exact(&mut body)?;
        if xxh3_64(&body) != hash {
            return Err(changed());
        }
        decode(body.into()).map(Some).ok_or_else(changed)
    }
}

/// Hands out what several runs have, in order, each key once.
fn merge(
    file: &File,
    runs: &[Range<u64>],
    each: &mut dyn FnMut(&Bytes, &Found) -> Outcome,
) -> Outcome {
    let mut readers = Vec::new();
    // The next key of each run, the oldest run first; what was found is beside it.
    let mut order = BinaryHeap::new();
    let mut next = Vec::new();
    for at in runs {
        let left = at.end - at.start;
        let file = BufReader::with_capacity(READ_BYTES, Part { file, at: at.clone() });
        let mut reader = RunReader { file, left };
        let first = reader.next().map_err(failed)?;
        next.push(first.map(|(key, found)| {
            order.push(Reverse((key, readers.len())));
            found
        }));
        readers.push(reader);
    }
    let mut last: Option<(Bytes, Found)> = None;
    while let Some(Reverse((key, run))) = order.pop() {
        let found = next.get_mut(run).and_then(Option::take).unwrap_or_default();
        match &mut last {
            Some((known, sum)) if *known == key => sum.add(found),
            _ => {
                if let Some((key, sum)) = last.replace((key, found)) {
                    each(&key, &sum)?;
                }
            }
        }
        let Some(reader) = readers.get_mut(run) else { continue };
        if let Some((key, found)) = reader.next().map_err(failed)? {
            order.push(Reverse((key, run)));
            if let Some(place) = next.get_mut(run) {
                *place = Some(found);
            }
        }
    }
    last.map_or(Ok(()), |(key, sum)| each(&key, &sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(key: &Bytes, revision: u64, value: Vec<u8>) -> Newest {
        let alive = (!revision.is_multiple_of(5)).then(|| KeyValue {
            key: key.clone(),
            value: value.into(),
            create_revision: revision / 2 + 1,
            mod_revision: revision,
            version: 1 + revision % 3,
            lease: -7,
        });
        Newest { revision, sub: 3, by_event: revision.is_multiple_of(2), alive }
    }

    /// The same findings in memory, in runs, and in runs that are merged more than once.
    #[test]
    fn however_little_fits_the_same_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        let told = |limit, merged| {
            let mut runs = Runs::new(directory.path()).unwrap();
            (runs.limit, runs.merged) = (limit, merged);
            let mut random = 9_u64;
            let mut next = |bound: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % bound
            };
            for _ in 0..4000 {
                let key = Bytes::from(format!("{}", next(300)));
                let revision = next(1000);
                let found = match next(3) {
                    0 => Found { newest: None, written: revision },
                    _ => {
                        let value = vec![b'v'; usize::try_from(revision).unwrap()];
                        Found { newest: Some(version(&key, revision, value)), written: 0 }
                    }
                };
                runs.add(key, found).unwrap();
            }
            let count = runs.written.len();
            let mut all = Vec::new();
            runs.each(&mut |key, found| {
                all.push(format!("{key:?} {found:?}"));
                Ok(())
            })
            .unwrap();
            assert!(all.is_sorted_by_key(|told| told.split(' ').next().map(str::to_owned)));
            (count, all)
        };
        let (none, whole) = told(usize::MAX, 2);
        assert_eq!((none, whole.len()), (0, 300));
        for (limit, merged, least) in [(100_000, 100, 1), (20_000, 100, 50), (1000, 3, 1000)] {
            let (count, all) = told(limit, merged);
            assert!(count >= least, "{count}");
            assert_eq!(all, whole, "{limit} {merged}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_has_changed_on_the_disk_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for at in 0..120 {
            let mut runs = Runs::new(directory.path()).unwrap();
            runs.limit = 100;
            for key in ["a", "b"] {
                let key = Bytes::from(key);
                let newest = version(&key, 8, b"value".to_vec());
                runs.add(key, Found { newest: Some(newest), written: 9 }).unwrap();
            }
            assert_eq!(runs.written.len(), 2);
            let mut byte = [0];
            if runs.file.read_at(&mut byte, at).unwrap() == 0 {
                continue;
            }
            runs.file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            let refused = runs.each(&mut |_, _| Ok(()));
            assert!(matches!(refused, Err(Failure::Io { .. })), "{at}: {refused:?}");
        }
    }
}
