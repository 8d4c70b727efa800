//! Mapped files, guarded against the signal that a mapping can raise.
//!
//! Touching a mapped page that the system cannot provide (the file was cut, the device failed)
//! kills the process with SIGBUS. So the first time a range is asked for, its pages are populated
//! through a call that answers with an error instead (`MADV_POPULATE_READ`, Linux 5.14); where that
//! is missing, the pages are read with `pread`, which fails in the same cases. Only there a map keeps
//! the descriptor of its file; elsewhere it needs none.
//!
//! Invariants:
//! 1. No page is handed out before it has been populated once.
//! 2. A range beyond the mapping is an error, never a panic.
//! 3. Only sealed files are mapped: nobody writes to them, they are only ever unlinked. A file cut
//!    by somebody else *after* its pages were populated can still raise the signal; a store that
//!    must survive even that is opened with `ReadMode::Pread`.

#![expect(
    unsafe_code,
    reason = "mapping a file is unsafe by nature; this is the only place for it"
)]

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::Mmap;

#[cfg(target_os = "linux")]
use crate::sync::plain::OnceLock;
use crate::sync::plain::{AtomicU64, Ordering};

/// Granularity of the guard. Larger pages of the system are populated in several calls, which is
/// correct and only matters the first time.
const PAGE_BYTES: usize = 4096;

/// The bytes of a mapped file. Cloning is cheap; the mapping lives as long as any clone, and as long
/// as any [`Bytes`] taken from it.
#[derive(Clone, Debug)]
pub struct Map {
    whole: Bytes,
    guard: Option<Arc<Mapping>>,
}

#[derive(Debug)]
struct Mapping {
    map: Mmap,
    /// For [`Mapping::read_through`], where the system cannot populate pages.
    file: Option<Arc<fs::File>>,
    /// One bit a page: whether it has been populated.
    populated: Box<[AtomicU64]>,
}

/// Keeps the mapping alive for the [`Bytes`] taken from it.
struct Owner(Arc<Mapping>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0.map
    }
}

impl Map {
    /// A map of bytes that are in memory anyhow.
    pub fn of_bytes(bytes: Bytes) -> Self {
        Self { whole: bytes, guard: None }
    }

    pub(super) fn of_file(file: &Arc<fs::File>, bytes: u64) -> io::Result<Self> {
        Self::with(file, bytes, !can_populate())
    }

    fn with(file: &Arc<fs::File>, bytes: u64, keep_file: bool) -> io::Result<Self> {
        if file.metadata()?.len() < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let count =
            usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        if count == 0 {
            return Ok(Self::of_bytes(Bytes::new()));
        }
        // SAFETY: the mapping is read-only and private to this process, and only sealed files are
        // mapped, which the store never writes to again (invariant 3). Another process that
        // changes the bytes under us is outside of what any program that maps files can exclude;
        // every structure read from a map is checked against its checksum.
        let map = unsafe { memmap2::MmapOptions::new().len(count).map(&**file)? };
        let words = count.div_ceil(PAGE_BYTES).div_ceil(64);
        let populated = (0..words).map(|_| AtomicU64::new(0)).collect();
        let file = keep_file.then(|| Arc::clone(file));
        let mapping = Arc::new(Mapping { map, file, populated });
        Ok(Self { whole: Bytes::from_owner(Owner(Arc::clone(&mapping))), guard: Some(mapping) })
    }

    /// Number of bytes mapped.
    pub fn len(&self) -> usize {
        self.whole.len()
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// The bytes of a range, in place. The first call for a page may read it from the device.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if the range is not within the map, and what the system says
    /// if it cannot provide the pages.
    pub fn slice(&self, range: Range<usize>) -> io::Result<&[u8]> {
        self.check(&range)?;
        self.whole.get(range).ok_or_else(outside)
    }

    /// The bytes of a range, in place, as an owner that keeps the map alive.
    ///
    /// # Errors
    ///
    /// As [`Map::slice`].
    pub fn bytes(&self, range: Range<usize>) -> io::Result<Bytes> {
        self.check(&range)?;
        Ok(self.whole.slice(range))
    }

    /// Checks the bounds and populates the pages.
    #[inline]
    fn check(&self, range: &Range<usize>) -> io::Result<()> {
        if range.start > range.end || range.end > self.whole.len() {
            return Err(outside());
        }
        match &self.guard {
            Some(mapping) if !range.is_empty() => mapping.populate(range),
            _ => Ok(()),
        }
    }
}

impl Mapping {
    /// Populates the pages of a non-empty range within the map, unless that was done before.
    #[inline]
    fn populate(&self, range: &Range<usize>) -> io::Result<()> {
        let (first, last) = (range.start / PAGE_BYTES, (range.end - 1) / PAGE_BYTES);
        // What is asked for again and again is short: all its pages are in one word.
        if first / 64 == last / 64 {
            let mask = (u64::MAX >> (63 - (last - first))) << (first % 64);
            if self.word(first / 64) & mask == mask {
                return Ok(());
            }
        }
        self.populate_pages(first..last + 1)
    }

    #[cold]
    #[inline(never)]
    fn populate_pages(&self, pages: Range<usize>) -> io::Result<()> {
        let words = pages.start / 64..(pages.end - 1) / 64 + 1;
        let missing = words.clone().any(|word| {
            let mask = mask_of(&pages, word);
            self.word(word) & mask != mask
        });
        if !missing {
            return Ok(());
        }
        self.fault_in(&pages)?;
        for word in words {
            if let Some(cell) = self.populated.get(word) {
                cell.fetch_or(mask_of(&pages, word), Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Relaxed: the bit only says that the page has been in memory once; the bytes themselves are
    /// the system's and need no ordering.
    fn word(&self, word: usize) -> u64 {
        self.populated.get(word).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    fn fault_in(&self, pages: &Range<usize>) -> io::Result<()> {
        let start = pages.start * PAGE_BYTES;
        let end = (pages.end * PAGE_BYTES).min(self.map.len());
        #[cfg(target_os = "linux")]
        match self.map.advise_range(memmap2::Advice::PopulateRead, start, end - start) {
            Ok(()) => return Ok(()),
            // The kernel or the file system does not know the call.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {}
            // The page cannot be provided.
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the mapped file has been cut or cannot be read",
                ));
            }
            Err(error) => return Err(error),
        }
        self.read_through(start, end)
    }

    /// Reads the pages with `pread`, so that an error comes as an error.
    fn read_through(&self, start: usize, end: usize) -> io::Result<()> {
        let Some(file) = &self.file else {
            let what = "this file system cannot populate pages: read without maps";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        };
        let mut scratch = [0; PAGE_BYTES];
        let mut at = start;
        while at < end {
            let wanted = PAGE_BYTES.min(end - at);
            match file.read_at(&mut scratch[..wanted], at as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => at += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether the system can populate pages. That is taken to be the same for all files; of one where
/// it is not, reading a page answers `Unsupported`.
fn can_populate() -> bool {
    #[cfg(target_os = "linux")]
    {
        static CAN: OnceLock<bool> = OnceLock::new();
        *CAN.get_or_init(|| {
            let page = memmap2::MmapMut::map_anon(PAGE_BYTES);
            page.is_ok_and(|page| page.advise(memmap2::Advice::PopulateRead).is_ok())
        })
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// The bits of the pages that word number `word` holds.
fn mask_of(pages: &Range<usize>, word: usize) -> u64 {
    let first = pages.start.max(word * 64) - word * 64;
    let end = pages.end.min(word * 64 + 64) - word * 64;
    debug_assert!(first < end && end <= 64);
    (u64::MAX >> (64 - (end - first))) << first
}

fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the range is not within the map")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(bytes: &[u8]) -> (tempfile::NamedTempFile, Map) {
        let named = tempfile::NamedTempFile::new().unwrap();
        fs::write(named.path(), bytes).unwrap();
        let file = Arc::new(fs::File::open(named.path()).unwrap());
        let map = Map::of_file(&file, bytes.len() as u64).unwrap();
        (named, map)
    }

    fn pattern(count: usize) -> Vec<u8> {
        (0..count).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect()
    }

    #[test]
    fn every_range_reads_what_was_written() {
        let content = pattern(70 * PAGE_BYTES + 123);
        let (_file, map) = mapped(&content);
        for start in (0..content.len()).step_by(9_973) {
            for len in [0, 1, 4096, 4097, 9000, 66 * PAGE_BYTES] {
                let end = (start + len).min(content.len());
                assert_eq!(map.slice(start..end).unwrap(), &content[start..end]);
                assert_eq!(map.bytes(start..end).unwrap(), &content[start..end]);
            }
        }
    }

    #[test]
    fn bytes_outlive_the_map_and_the_name() {
        let content = pattern(10_000);
        let (file, map) = mapped(&content);
        let bytes = map.bytes(5_000..9_000).unwrap();
        drop(map);
        drop(file);
        assert_eq!(bytes, &content[5_000..9_000]);
    }

    #[test]
    fn a_range_outside_is_an_error() {
        let (_file, map) = mapped(&pattern(100));
        #[expect(clippy::reversed_empty_ranges, reason = "such ranges must be refused")]
        let ranges = [0..101, 100..101, 5..4, usize::MAX..usize::MAX];
        for range in ranges {
            assert_eq!(map.slice(range.clone()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert_eq!(map.bytes(range).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!(map.slice(100..100).unwrap(), b"");
    }

    #[test]
    fn a_file_that_is_too_short_is_not_mapped() {
        let named = tempfile::NamedTempFile::new().unwrap();
        fs::write(named.path(), b"short").unwrap();
        let file = Arc::new(fs::File::open(named.path()).unwrap());
        let error = Map::of_file(&file, 6).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(Map::of_file(&file, 0).unwrap().is_empty());
    }

    /// The point of the guard: this test would die of SIGBUS without it.
    #[test]
    fn a_file_cut_after_mapping_is_an_error_on_first_touch() {
        let (named, map) = mapped(&pattern(8 * PAGE_BYTES));
        assert!(map.slice(0..10).is_ok());
        fs::OpenOptions::new().write(true).open(named.path()).unwrap().set_len(4096).unwrap();
        assert!(map.slice(5 * PAGE_BYTES..5 * PAGE_BYTES + 1).is_err());
        assert!(map.bytes(PAGE_BYTES..8 * PAGE_BYTES).is_err());
        assert!(map.slice(0..4096).is_ok());
    }

    #[test]
    fn reading_through_finds_the_cut_too() {
        let named = tempfile::NamedTempFile::new().unwrap();
        fs::write(named.path(), pattern(3 * PAGE_BYTES)).unwrap();
        let file = Arc::new(fs::File::open(named.path()).unwrap());
        let map = Map::with(&file, 3 * PAGE_BYTES as u64, true).unwrap();
        let mapping = map.guard.as_ref().unwrap();
        mapping.read_through(0, 3 * PAGE_BYTES).unwrap();
        fs::OpenOptions::new().write(true).open(named.path()).unwrap().set_len(4096).unwrap();
        assert!(mapping.read_through(PAGE_BYTES, 2 * PAGE_BYTES).is_err());
    }

    #[test]
    fn masks_cover_exactly_the_pages() {
        for start in 0..130 {
            for end in start + 1..132 {
                let pages = start..end;
                let mut found = Vec::new();
                for word in start / 64..=(end - 1) / 64 {
                    let mask = mask_of(&pages, word);
                    found.extend((0..64).filter(|bit| mask >> bit & 1 == 1).map(|b| word * 64 + b));
                }
                assert_eq!(found, (start..end).collect::<Vec<_>>());
            }
        }
    }
}
