//! The structures of segments, the manifest, `CURRENT` and events.

use annals_format::block::{BlockHeader, Body, Encoding};
use annals_format::checksum::FileSeed;
use annals_format::current::CurrentFile;
use annals_format::events::{Transaction, TransactionBuilder};
use annals_format::filter::Filter;
use annals_format::page::Page;
use annals_format::segment::{self, Footer, Header};
use annals_format::{FileKind, Manifest, dictionary};

use crate::input::Input;
use crate::{FIX, fix, place};

/// Where blocks, pages and sections are said to lie.
pub(crate) const OFFSET: u64 = 64;
/// The number of the segment.
pub(crate) const FILE: u64 = 3;
/// Blocks that claim to become larger are left alone here; the reader bounds them by the file.
const RAW_BYTES_MAX: u32 = 1 << 20;

/// The kinds of segment, as an input names them.
pub(crate) const KINDS: [FileKind; 5] =
    [FileKind::L0, FileKind::Head, FileKind::History, FileKind::Events, FileKind::Blob];

/// The kind that a byte names.
pub(crate) fn kind_of(byte: u8) -> FileKind {
    KINDS[usize::from(byte) % KINDS.len()]
}

/// Flags and the kind of segment, and the rest.
fn parts(data: &[u8]) -> (u8, FileKind, Vec<u8>) {
    let mut input = Input(data);
    let flags = input.byte();
    let kind = kind_of(input.byte());
    (flags, kind, input.0.to_vec())
}

/// A block: header, stored bytes, and the entries in it. What a whole walk finds, a search finds.
pub(crate) fn block(data: &[u8]) -> bool {
    let (flags, kind, mut bytes) = parts(data);
    let seed = FileSeed::new(&place(kind, FILE));
    if flags & FIX != 0 {
        let _ = fix::block(&mut bytes, seed, OFFSET);
    }
    let checked = BlockHeader::check_crc(&bytes, seed, OFFSET).is_ok();
    let Ok((header, stored)) = BlockHeader::decode(&bytes, kind) else { return false };
    if checked {
        let mut again = Vec::new();
        header.encode(&mut again, seed, OFFSET, stored);
        assert_eq!(again, bytes);
    }
    let raw = match header.encoding {
        Encoding::Raw => stored.to_vec(),
        Encoding::Zstd if header.raw_bytes <= RAW_BYTES_MAX => {
            match zstd::bulk::decompress(stored, header.raw_bytes as usize) {
                Ok(raw) => raw,
                Err(_) => return false,
            }
        }
        // The other encodings need a dictionary or another block: `open_dir` has those.
        _ => return false,
    };
    body(&raw, kind, header.entry_count) && checked
}

fn body(raw: &[u8], kind: FileKind, entry_count: u32) -> bool {
    let Ok(body) = Body::parse(raw, kind) else { return false };
    let mut entries = Vec::new();
    let sound = body
        .check(entry_count, |entry, key| {
            entries.push((key.to_vec(), entry.revision, entry.value.to_vec()));
        })
        .is_ok();
    for run in 0..body.run_count() {
        // Whatever the bytes are, walking and searching end.
        let Ok(run) = body.run(run) else { continue };
        let _ = run.count();
    }
    for (key, revision, value) in &entries {
        let found = body.find(key, *revision);
        if sound {
            let item = found.expect("a sound block").expect("the entry is there");
            assert_eq!((item.fields.revision, item.fields.value), (*revision, value.as_slice()));
        }
    }
    let _ = (body.find(b"", u64::MAX), body.find(&[0xff; 40], 0), body.seek(b"\x01k", 1));
    sound
}

/// A page: what a whole walk finds, a search finds.
pub(crate) fn page(data: &[u8]) -> bool {
    let (flags, kind, mut bytes) = parts(data);
    let seed = FileSeed::new(&place(kind, FILE));
    if flags & FIX != 0 {
        let _ = fix::page(&mut bytes, seed, OFFSET);
    }
    let checked = Page::check_crc(&bytes, seed, OFFSET).is_ok();
    let Ok(page) = Page::decode(&bytes) else { return false };
    let mut items = Vec::new();
    let sound = page.check(|key, item| items.push((key.to_vec(), item.revision))).is_ok();
    for (index, (key, revision)) in items.iter().enumerate() {
        let found = page.search(key, *revision);
        if sound {
            assert_eq!(found, Ok(index));
        }
    }
    for index in 0..page.count().min(1000) {
        let _ = page.item(index);
    }
    let _ = (page.search(b"", 0), page.search(&[0xff; 40], u64::MAX), page.search(b"\x01k", 1));
    sound && checked
}

/// The other parts of a segment, chosen by the third byte: header, footer, filter, dictionary.
pub(crate) fn segment(data: &[u8]) -> bool {
    let (flags, kind, bytes) = parts(data);
    let Some((part, bytes)) = bytes.split_first() else { return false };
    let mut bytes = bytes.to_vec();
    let fixes = flags & FIX != 0;
    let at = place(kind, FILE);
    let seed = FileSeed::new(&at);
    match part % 4 {
        0 => {
            if fixes {
                let _ = fix::segment_end(&mut bytes, seed, 0);
            }
            let Ok(header) = Header::decode(&bytes, &at) else { return false };
            let mut again = Vec::new();
            header.encode(&mut again);
            assert_eq!(again, bytes);
        }
        1 => {
            // A footer tells where it stands itself.
            let file_bytes = bytes.get(168..).and_then(|rest| rest.first_chunk());
            let file_bytes = file_bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let at = at.at(file_bytes.saturating_sub(segment::FOOTER_BYTES as u64));
            if fixes {
                let _ = fix::segment_end(&mut bytes, seed, at.offset);
            }
            let Ok(footer) = Footer::decode(&bytes, &at) else { return false };
            let mut again = Vec::new();
            footer.encode(&mut again);
            assert_eq!(again, bytes);
        }
        2 => {
            if fixes {
                let _ = fix::crc_in_header(&mut bytes, 28, seed, OFFSET);
            }
            let checked = Filter::check_crc(&bytes, seed, OFFSET).is_ok();
            let Ok(filter) = Filter::decode(&bytes) else { return false };
            for hash in [0, 1, u64::MAX, 1 << 63, 0x1234_5678_9abc_def0] {
                let _ = filter.may_contain(hash);
            }
            return checked;
        }
        _ => {
            if fixes {
                let _ = fix::crc_in_header(&mut bytes, 12, seed, OFFSET);
            }
            let Ok(content) = dictionary::decode(&bytes, seed, OFFSET) else { return false };
            let mut again = Vec::new();
            dictionary::encode(&mut again, content, seed, OFFSET);
            assert_eq!(again, bytes);
        }
    }
    true
}

/// A manifest: what is accepted has one encoding.
pub(crate) fn manifest(data: &[u8]) -> bool {
    let mut input = Input(data);
    let flags = input.byte();
    let mut bytes = input.0.to_vec();
    if flags & FIX != 0 {
        let _ = fix::manifest(&mut bytes);
    }
    let Ok(manifest) = Manifest::decode(&bytes) else { return false };
    let (again, stamp) = manifest.encode();
    assert_eq!(again, bytes);
    assert_eq!((stamp.number, stamp.bytes), (manifest.number, bytes.len() as u64));
    true
}

/// `CURRENT`.
pub(crate) fn current(data: &[u8]) -> bool {
    let mut input = Input(data);
    let flags = input.byte();
    let mut bytes = input.0.to_vec();
    if flags & FIX != 0 {
        let _ = fix::current(&mut bytes);
    }
    let Ok(file) = CurrentFile::decode(&bytes) else { return false };
    let encoded = file.current.encode();
    assert!(bytes.starts_with(&encoded) || bytes.ends_with(&encoded));
    let copied = file.manifest();
    if let Ok(Some(manifest)) = &copied {
        assert_eq!(manifest.stamp(), file.current.manifest);
    }
    if file.damage.is_some() {
        return false;
    }
    let whole = file.copy.map(|copy| CurrentFile::encode(&file.current, copy));
    assert_eq!(whole.as_deref().unwrap_or(&encoded), bytes);
    copied.is_ok()
}

/// The value of an EVENTS entry; it has no checksum of its own.
pub(crate) fn events(data: &[u8]) -> bool {
    let mut input = Input(data);
    input.byte();
    let bytes = input.0;
    let Ok(transaction) = Transaction::decode(bytes) else { return false };
    let mut builder = TransactionBuilder::new();
    for event in transaction.events() {
        let Ok(event) = event else { return false };
        builder.push(&event);
    }
    let mut again = Vec::new();
    builder.finish(transaction.flags, transaction.time, transaction.metadata, &mut again);
    assert_eq!(again, bytes, "a transaction has one encoding");
    true
}
