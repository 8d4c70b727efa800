//! Files of bbolt that are made by hand, as an etcd would write them, and otherwise.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "tests use what they need of it"
)]

use annals_etcd_files::bolt::meta_checksum;

pub const PAGE: usize = 4096;

pub const BRANCH: u16 = 1;
pub const LEAF: u16 = 2;

/// A key and a value.
pub type Element = (Vec<u8>, Vec<u8>);

/// A page header.
pub fn header(id: u64, flags: u16, count: usize, overflow: usize) -> Vec<u8> {
    let mut page = id.to_le_bytes().to_vec();
    page.extend(flags.to_le_bytes());
    page.extend(u16::try_from(count).unwrap().to_le_bytes());
    page.extend(u32::try_from(overflow).unwrap().to_le_bytes());
    page
}

/// A leaf, padded to whole pages.
pub fn leaf(id: u64, flags: u32, elements: &[Element]) -> Vec<u8> {
    let mut content = Vec::new();
    let mut data = Vec::new();
    for (index, (key, value)) in elements.iter().enumerate() {
        let pos = 16 * (elements.len() - index) + data.len();
        let lengths = [pos, key.len(), value.len()].map(|n| u32::try_from(n).unwrap());
        content.extend(flags.to_le_bytes());
        content.extend(lengths.iter().flat_map(|n| n.to_le_bytes()));
        data.extend_from_slice(key);
        data.extend_from_slice(value);
    }
    let pages = (16 + content.len() + data.len()).div_ceil(PAGE);
    let mut page = [header(id, LEAF, elements.len(), pages - 1), content, data].concat();
    page.resize(pages * PAGE, 0);
    page
}

/// A branch to others, each with its first key.
pub fn branch(id: u64, children: &[(Vec<u8>, u64)]) -> Vec<u8> {
    let mut content = Vec::new();
    let mut data = Vec::new();
    for (index, (key, child)) in children.iter().enumerate() {
        let pos = 16 * (children.len() - index) + data.len();
        let lengths = [pos, key.len()].map(|n| u32::try_from(n).unwrap());
        content.extend(lengths.iter().flat_map(|n| n.to_le_bytes()));
        content.extend(child.to_le_bytes());
        data.extend_from_slice(key);
    }
    let pages = (16 + content.len() + data.len()).div_ceil(PAGE);
    let mut page = [header(id, BRANCH, children.len(), pages - 1), content, data].concat();
    page.resize(pages * PAGE, 0);
    page
}

/// A meta page.
pub fn meta(id: u64, page_bytes: usize, root: u64, pages: usize, transaction: u64) -> Vec<u8> {
    let mut meta = Vec::new();
    for number in [0xED0C_DAED, 2, u32::try_from(page_bytes).unwrap(), 0] {
        meta.extend(number.to_le_bytes());
    }
    for number in [root, 0, 2, pages as u64, transaction] {
        meta.extend(number.to_le_bytes());
    }
    let sum = meta_checksum(&meta);
    meta.extend(sum.to_le_bytes());
    let mut page = [header(id, 4, 0, 0), meta].concat();
    page.resize(page_bytes, 0);
    page
}

/// A file with these pages from page 3 on.
pub fn file(root: u64, data: &[Vec<u8>]) -> Vec<u8> {
    file_with_free(&[], root, data)
}

/// Such a file that has a list of free pages.
pub fn file_with_free(free: &[u64], root: u64, data: &[Vec<u8>]) -> Vec<u8> {
    let pages = 3 + data.concat().len() / PAGE;
    let mut freelist = header(2, 16, free.len(), 0);
    freelist.extend(free.iter().flat_map(|id| id.to_le_bytes()));
    freelist.resize(PAGE, 0);
    let metas = [meta(0, PAGE, root, pages, 6), meta(1, PAGE, root, pages, 7)];
    [metas.concat(), freelist, data.concat()].concat()
}

/// A file with buckets, each in a page of its own.
pub fn buckets(buckets: &[(&str, Vec<Element>)]) -> Vec<u8> {
    let mut next = 4;
    let (mut names, mut pages) = (Vec::new(), Vec::new());
    for (name, elements) in buckets {
        let page = leaf(next, 0, elements);
        let value = [next.to_le_bytes(), [0; 8]].concat();
        names.push((name.as_bytes().to_vec(), value));
        next += (page.len() / PAGE) as u64;
        pages.push(page);
    }
    file(3, &[vec![leaf(3, 1, &names)], pages].concat())
}

/// The key of a version.
pub fn revision(main: u64, sub: u64, mark: &str) -> Vec<u8> {
    [&main.to_be_bytes()[..], b"_", &sub.to_be_bytes(), mark.as_bytes()].concat()
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap());
}

/// A message of fields.
pub fn message(bytes: &[(u8, &[u8])], numbers: &[(u8, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (field, bytes) in bytes {
        out.push(field << 3 | 2);
        varint(&mut out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
    for (field, number) in numbers {
        out.push(field << 3);
        varint(&mut out, *number);
    }
    out
}

/// A put: place, key, value, numbers of creation and version, and a lease.
pub fn put(
    (main, sub): (u64, u64),
    key: &str,
    value: &str,
    (created, version): (u64, u64),
    lease: i64,
) -> Element {
    let numbers = [(2, created), (3, main), (4, version), (6, lease.cast_unsigned())];
    let kv = message(&[(1, key.as_bytes()), (5, value.as_bytes())], &numbers);
    (revision(main, sub, ""), kv)
}

/// A delete.
pub fn delete((main, sub): (u64, u64), key: &str) -> Element {
    (revision(main, sub, "t"), message(&[(1, key.as_bytes())], &[]))
}

/// A lease.
pub fn lease(id: i64, ttl: u64, remaining: u64) -> Element {
    let numbers = [(1, id.cast_unsigned()), (2, ttl), (3, remaining)];
    (id.to_be_bytes().to_vec(), message(&[], &numbers))
}

/// The bucket `meta` of an etcd that was compacted.
pub fn compacted(scheduled: u64, finished: u64) -> Vec<Element> {
    vec![
        (b"consistent_index".to_vec(), vec![0; 8]),
        (b"finishedCompactRev".to_vec(), revision(finished, 0, "")),
        (b"scheduledCompactRev".to_vec(), revision(scheduled, 0, "")),
    ]
}
