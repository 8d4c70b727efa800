//! Trees of which a part is lost are refused, and none costs more memory or time than is in it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod made;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;

use annals_etcd_files::{Error, Snapshot, Source};
use made::{
    BRANCH, Element, LEAF, PAGE, branch, file, file_with_free, header, leaf, meta, put, revision,
};

/// A file of which most was never written.
#[derive(Default)]
struct Sparse {
    parts: BTreeMap<u64, Vec<u8>>,
    bytes: u64,
    /// What was read: how much, and of that the most at once.
    read: Cell<u64>,
    longest: Cell<u64>,
}

impl Source for Sparse {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let length = buffer.len() as u64;
        self.read.set(self.read.get() + length);
        self.longest.set(self.longest.get().max(length));
        if offset + length > self.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.fill(0);
        for (start, part) in &self.parts {
            let from = offset.max(*start);
            let to = (offset + length).min(start + part.len() as u64);
            if from < to {
                let [at, end] = [from - offset, to - offset].map(|n| usize::try_from(n).unwrap());
                let [from, to] = [from - start, to - start].map(|n| usize::try_from(n).unwrap());
                buffer[at..end].copy_from_slice(&part[from..to]);
            }
        }
        Ok(())
    }
}

/// The bucket `key`, whose root is page 4.
fn names() -> Vec<u8> {
    leaf(3, 1, &[(b"key".to_vec(), [4_u64.to_le_bytes(), [0; 8]].concat())])
}

/// A file whose bucket `key` begins at page 4, with these free pages.
fn with_keys(free: &[u64], pages: &[Vec<u8>]) -> Vec<u8> {
    file_with_free(free, 3, &[vec![names()], pages.to_vec()].concat())
}

fn one(main: u64) -> Element {
    put((main, 0), "a", "", (2, main - 1), 0)
}

fn page(id: u64, revisions: &[u64]) -> Vec<u8> {
    leaf(id, 0, &revisions.iter().map(|main| one(*main)).collect::<Vec<_>>())
}

/// The revisions in a file.
fn read(source: impl Source) -> Result<Vec<u64>, Error> {
    let mut found = Vec::new();
    Snapshot::open(source)?.entries::<Error>(|entry| {
        found.push(entry.main);
        Ok(())
    })?;
    Ok(found)
}

#[track_caller]
fn refused(bytes: &[u8], place: (u64, u64), why: &str) {
    match read(bytes).unwrap_err() {
        Error::Refused { page, offset, what } => {
            assert!(what.contains(why), "{what}");
            assert_eq!((page, offset), (place.0, place.0 * PAGE as u64 + place.1), "{what}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_tree_of_which_a_part_is_lost_is_refused() {
    let key = |main| revision(main, 0, "");
    let whole = [branch(4, &[(key(2), 5), (key(4), 6)]), page(5, &[2, 3]), page(6, &[4, 5])];
    assert_eq!(read(&*with_keys(&[], &whole)).unwrap(), [2, 3, 4, 5]);

    // Pages that say that there is nothing in them.
    let mut lost = whole.clone();
    lost[2] = page(6, &[]);
    refused(&with_keys(&[], &lost), (6, 10), "is empty");
    lost[0] = branch(4, &[]);
    refused(&with_keys(&[], &lost), (4, 10), "is empty");
    lost[0] = branch(4, &[(key(2), 5)]);
    lost[1] = branch(5, &[]);
    refused(&with_keys(&[], &lost), (5, 10), "is empty");
    // A bucket without anything is one page, though.
    assert!(read(&*with_keys(&[], &[page(4, &[])])).unwrap().is_empty());

    // Others than those that the branch means, below it or below one more.
    for begins in [3, 5] {
        let wrong = [branch(4, &[(key(2), 5), (key(begins), 6)]), page(5, &[2]), page(6, &[4])];
        refused(&with_keys(&[], &wrong), (6, 16), "another key than the branch");
    }
    let deep = |begins| {
        let first = branch(4, &[(key(begins), 5)]);
        [first, branch(5, &[(key(2), 6), (key(4), 7)]), page(6, &[2, 3]), page(7, &[4])]
    };
    assert_eq!(read(&*with_keys(&[], &deep(2))).unwrap(), [2, 3, 4]);
    refused(&with_keys(&[], &deep(1)), (5, 16), "another key than the branch");

    // An older copy of a page, which is free since.
    let stale = [&whole[..], &[page(7, &[4, 5, 6, 7])]].concat();
    refused(&with_keys(&[6], &stale), (6, 0), "free pages");
    assert_eq!(read(&*with_keys(&[7], &stale)).unwrap(), [2, 3, 4, 5]);
    // Of a page that spans two, the second.
    let mut long = vec![leaf(4, 0, &[put((2, 0), "a", &"v".repeat(PAGE), (2, 1), 0)])];
    assert_eq!(long[0].len(), 2 * PAGE);
    refused(&with_keys(&[5], &long), (4, 0), "free pages");
    long.push(page(6, &[3]));
    assert_eq!(read(&*with_keys(&[6], &long)).unwrap(), [2]);
}

#[test]
fn a_list_of_free_pages_that_cannot_be_is_refused() {
    let pages: Vec<_> = (5..9).map(|id| page(id, &[id])).collect();
    let pages = [vec![page(4, &[2])], pages].concat();
    assert_eq!(read(&*with_keys(&[5, 7, 8], &pages)).unwrap(), [2]);
    for (free, at) in [(&[1][..], 16), (&[5, 9], 24), (&[5, 6, 6], 32), (&[6, 5], 24)] {
        refused(&with_keys(free, &pages), (2, at), "cannot be in this list");
    }
    let mut long = with_keys(&[], &pages);
    // As bbolt says that there are more than fit into 16 bits; and more than fit into the page.
    for (count, number) in [(u16::MAX, 510_u64), (511, 0), (u16::MAX, u64::MAX)] {
        long[2 * PAGE + 10..2 * PAGE + 12].copy_from_slice(&count.to_le_bytes());
        long[2 * PAGE + 16..2 * PAGE + 24].copy_from_slice(&number.to_le_bytes());
        refused(&long, (2, 10), "are not in the page");
    }
    let listed = [2_u64, 5, 7].map(u64::to_le_bytes).concat();
    long[2 * PAGE + 10..2 * PAGE + 12].copy_from_slice(&u16::MAX.to_le_bytes());
    long[2 * PAGE + 16..2 * PAGE + 40].copy_from_slice(&listed);
    assert_eq!(read(&*long).unwrap(), [2]);
    long[2 * PAGE + 8] = 4;
    refused(&long, (2, 8), "no list of pages");
}

#[test]
fn a_page_of_many_keys_is_not_read_again_for_each() {
    let entries: Vec<_> =
        (2..2002).map(|main| put((main, 0), "a", &"v".repeat(500), (2, main - 1), 0)).collect();
    let bytes = file(3, &[names(), leaf(4, 0, &entries)]);
    let length = bytes.len() as u64;
    let source = Sparse { parts: [(0, bytes)].into(), bytes: length, ..Sparse::default() };
    let snapshot = Snapshot::open(source).unwrap();
    let mut places = Vec::new();
    snapshot
        .entries::<Error>(|entry| {
            places.push((entry.main, entry.place));
            Ok(())
        })
        .unwrap();
    assert_eq!(places.len(), entries.len());
    let read = &snapshot.source().read;
    assert!(read.get() < 2 * length, "{} of {length}", read.get());
    read.set(0);
    for (main, place) in places.iter().rev() {
        let found = snapshot.again(*place, |entry| Ok((entry.main, entry.version.is_some())));
        assert_eq!(found.unwrap(), (*main, true));
    }
    assert!(read.get() < length, "{} of {length}", read.get());
}

#[test]
fn what_was_never_written_of_a_file_takes_no_memory() {
    let (page_bytes, span) = (PAGE as u64, 1 << 16);
    // Six branches, one below the other, each of which spans 256 MiB.
    let ids: Vec<u64> = (0..7).map(|depth| 4 + depth * span).collect();
    let sparse = |pages: Vec<Vec<u8>>| {
        let end = ids[6] + 1;
        let pages_in_all = usize::try_from(end).unwrap();
        let start = [0, 1].map(|id| meta(id, PAGE, 3, pages_in_all, 6 + id)).concat();
        let mut free = header(2, 16, 0, 0);
        free.resize(PAGE, 0);
        let mut parts = BTreeMap::from([(0, [start, free, names()].concat())]);
        parts.extend(ids.iter().map(|id| id * page_bytes).zip(pages));
        parts.insert(ids[6] * page_bytes, page(ids[6], &[2]));
        Sparse { parts, bytes: end * page_bytes, ..Sparse::default() }
    };
    let overflow = u32::try_from(span - 1).unwrap().to_le_bytes();
    let wide = |at: usize, key: Vec<u8>| {
        let mut page = branch(ids[at], &[(key, ids[at + 1])]);
        page[12..16].copy_from_slice(&overflow);
        page
    };
    let source = sparse((0..6).map(|at| wide(at, revision(2, 0, ""))).collect());
    let snapshot = Snapshot::open(source).unwrap();
    let wrong = snapshot.entries::<Error>(|_| Ok(())).unwrap_err();
    assert!(wrong.to_string().starts_with("page 4, offset 16396: a branch that spans 65536 pages"));
    assert!(snapshot.source().read.get() < 1 << 18, "{}", snapshot.source().read.get());

    // Branches that need so much, for keys of which only the first was written.
    let full = |at: usize| {
        let (count, key_bytes) = (8191_u32, 1_u32 << 15);
        let mut page = header(ids[at], BRANCH, count as usize, usize::try_from(span - 1).unwrap());
        let first = 16 * count;
        for index in 0..count {
            let pos =
                first - 16 * index + if index == 0 { 0 } else { 17 + (index - 1) * key_bytes };
            let length = if index == 0 { 17 } else { key_bytes };
            page.extend([pos, length].map(u32::to_le_bytes).concat());
            page.extend(ids[at + 1].to_le_bytes());
        }
        page.extend(revision(2, 0, ""));
        page
    };
    let snapshot = Snapshot::open(sparse((0..6).map(full).collect())).unwrap();
    let mut found = Vec::new();
    let wrong = snapshot.entries::<Error>(|entry| {
        found.push(entry.main);
        Ok(())
    });
    let wrong = wrong.unwrap_err().to_string();
    assert!(wrong.contains("begins with another key"), "{wrong}");
    assert_eq!(found, [2]);
    let source = snapshot.source();
    assert!(source.longest.get() <= 1 << 20, "{}", source.longest.get());
    assert!(source.read.get() < 1 << 23, "{}", source.read.get());

    // A leaf of which nothing is used but the beginning.
    let mut leaf = page(ids[0], &[2]);
    assert_eq!(leaf[8..10], LEAF.to_le_bytes());
    leaf[12..16].copy_from_slice(&overflow);
    let snapshot = Snapshot::open(sparse(vec![leaf])).unwrap();
    snapshot.entries::<Error>(|_| Ok(())).unwrap();
    assert!(snapshot.source().read.get() < 1 << 18, "{}", snapshot.source().read.get());
}
