//! Blocks, pages and filters made out of arbitrary entries, and read back.

use std::collections::BTreeMap;

use annals_format::FileKind;
use annals_format::block::{Body, BodyBuilder};
use annals_format::checksum::FileSeed;
use annals_format::entry::{BlobRef, EntryRef};
use annals_format::filter::{self, Filter, FilterKind};
use annals_format::page::{Child, Handle, Page, PageBuilder, Separator};

use crate::decoders::{FILE, OFFSET, kind_of};
use crate::input::Input;
use crate::place;

/// Entries of one input.
const ENTRIES_MAX: usize = 300;

/// What is written of an entry beside its key.
struct Entry {
    revision: u64,
    what: u8,
    value: Vec<u8>,
}

/// A byte that says which kind of file, and entries. What is written is read back, and nothing else is found.
pub(crate) fn built(data: &[u8]) -> bool {
    let mut input = Input(data);
    let kind = kind_of(input.byte());
    let one_version = kind != FileKind::History;
    let mut entries: BTreeMap<(Vec<u8>, u64), Entry> = BTreeMap::new();
    let mut key = vec![annals_format::space::USER];
    for _ in 0..ENTRIES_MAX {
        if input.is_empty() {
            break;
        }
        let what = input.byte();
        // Keys share beginnings with each other, and are now and then those of the one before.
        key.truncate(1 + usize::from(input.byte()) % (key.len() + 1));
        key.truncate(200);
        let more = usize::from(what >> 5);
        key.extend_from_slice(input.bytes(more));
        if key.is_empty() {
            key.push(1);
        }
        let revision = 1 + u64::from(input.u16()) * if what & 4 != 0 { 1 << 30 } else { 1 };
        let mut value = input.bytes(usize::from(what & 3) * 11).to_vec();
        if what & 0x1f == 0x1f {
            value.resize(5000, what);
        }
        if kind == FileKind::Events {
            key = revision.to_be_bytes().to_vec();
        }
        if one_version && entries.keys().any(|(known, _)| *known == key) {
            continue;
        }
        // Newest first.
        entries.insert((key.clone(), u64::MAX - revision), Entry { revision, what, value });
    }
    if entries.is_empty() {
        return false;
    }
    let mut builder = BodyBuilder::new(kind);
    for ((key, _), entry) in &entries {
        builder.push(&entry_of(kind, key, entry));
    }
    let raw = builder.finish();
    let body = Body::parse(&raw.body, kind).expect("what was written");
    let mut written = entries.iter().map(|((key, _), entry)| entry_of(kind, key, entry));
    body.check(raw.entry_count, |found, key| {
        let entry = written.next().expect("no more than was written");
        assert_eq!((EntryRef { key, ..*found }, key), (entry, entry.key));
    })
    .expect("what was written is sound");
    assert!(written.next().is_none(), "no less than was written");
    for ((key, _), entry) in &entries {
        for at in [entry.revision, entry.revision - 1] {
            let found = body.find(key, at).expect("sound").map(|item| item.fields.revision);
            let newest = entries.range((key.clone(), u64::MAX - at)..).next();
            let newest = newest.filter(|((known, _), _)| known == key);
            assert_eq!(found, newest.map(|(_, entry)| entry.revision), "{key:?} at {at}");
        }
    }
    page(kind, &entries);
    filters(kind, entries.keys().map(|(key, _)| key));
    true
}

fn entry_of<'a>(kind: FileKind, key: &'a [u8], entry: &'a Entry) -> EntryRef<'a> {
    let Entry { revision, what, ref value } = *entry;
    let tombstone = what & 0x18 == 0x18 && kind != FileKind::Events;
    let l0 = kind == FileKind::L0;
    let blob = BlobRef { file: 1 + revision % 9, bytes: 1 + value.len() as u64 };
    let blob = Some(blob).filter(|_| kind.may_refer() && !tombstone && what & 7 == 6);
    EntryRef {
        key,
        revision,
        sub: u32::from(what >> 4),
        tombstone,
        create_revision: if tombstone { 0 } else { 1 + u64::from(what & 1) },
        version: if tombstone { 0 } else { 1 + revision % 1000 },
        lease: if what & 8 != 0 && !tombstone { i64::from(what) - 128 } else { 0 },
        death: if kind == FileKind::History { revision + 1 + u64::from(what & 7) } else { 0 },
        first: if l0 { revision.saturating_sub(u64::from(what & 3)).max(1) } else { 0 },
        lived: l0 && what & 0x10 != 0,
        value: if tombstone || blob.is_some() { b"" } else { value },
        blob,
    }
}

/// A page with a child for each entry; every entry is found in its own.
fn page(kind: FileKind, entries: &BTreeMap<(Vec<u8>, u64), Entry>) {
    let seed = FileSeed::new(&place(kind, FILE));
    let mut builder = PageBuilder::new(0);
    let mut before: Option<(&[u8], u64)> = None;
    let mut children = Vec::new();
    for (number, ((key, _), entry)) in (0_u32..).zip(entries) {
        let separator =
            before.map_or_else(Separator::first, |before| Separator::between(before, key));
        before = Some((key, entry.revision));
        let handle = Handle { offset: OFFSET + u64::from(number) * 700, bytes: 700, number };
        builder.push(Child { separator, handle, rank: i32::from(entry.what) });
        children.push((key, entry.revision, handle));
        if builder.is_full() {
            break;
        }
    }
    let mut bytes = Vec::new();
    builder.finish(&mut bytes, seed, OFFSET);
    Page::check_crc(&bytes, seed, OFFSET).expect("its checksum");
    let page = Page::decode(&bytes).expect("what was written");
    page.check(|_, _| ()).expect("what was written is sound");
    for (index, (key, revision, handle)) in children.into_iter().enumerate() {
        assert_eq!(page.search(key, revision), Ok(index), "{key:?} at {revision}");
        let child = page.item(index).expect("it is there").child;
        assert_eq!(child, handle);
    }
}

/// Filters of both kinds hold all keys.
fn filters<'a>(kind: FileKind, keys: impl Iterator<Item = &'a Vec<u8>>) {
    let seed = FileSeed::new(&place(kind, FILE));
    let mut hashes: Vec<u64> = keys.map(|key| filter::hash_key(key)).collect();
    hashes.sort_unstable();
    hashes.dedup();
    for wanted in [FilterKind::Bloom, FilterKind::Fuse] {
        let mut bytes = Vec::new();
        filter::encode(&mut bytes, wanted, &hashes, seed, OFFSET);
        Filter::check_crc(&bytes, seed, OFFSET).expect("its checksum");
        let filter = Filter::decode(&bytes).expect("what was written");
        assert!(hashes.iter().all(|hash| filter.may_contain(*hash)));
    }
}
