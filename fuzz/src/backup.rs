//! A backup: read, and made a store of.
//!
//! Whatever the bytes are, the answer is a typed error, and no store; or a store that can be opened.

use std::time::Duration;

use annals::vfs::MemoryVfs;
use annals::{ErrorKind, RestoreOptions, Store, inspect_backup, restore};
use annals_format::backup::{
    BLOCK_BYTES, Block, Chain, Codec, END_BYTES, End, HEADER_BYTES, Header, Part,
};
use annals_format::{ContentHash, StoreId, checksum};

use crate::input::Input;
use crate::{FIX, dir, fix};

/// Flag: raise the revision, too.
const BUMP: u8 = 2;

/// A stream of backups. True if a store could be made of it.
pub(crate) fn backup(data: &[u8]) -> bool {
    let mut input = Input(data);
    let flags = input.byte();
    let mut stream = input.0.to_vec();
    if flags & FIX != 0 {
        let _ = fix_streams(&mut stream);
    }
    let inspected = inspect_backup(&stream[..]);
    let disk = MemoryVfs::new();
    let options = dir::options(&disk);
    let mut how = RestoreOptions::new().options(options.clone());
    if flags & BUMP != 0 {
        how = how.bump_revision(3);
    }
    let restored = restore(&stream[..], dir::DIR, &how);
    let opened = Store::open_with(dir::DIR, &options.create(false));
    match (&restored, &opened) {
        (Ok(report), Ok(store)) => {
            let parts = inspected.expect("what was restored can be read");
            assert_eq!(parts.len() as u64, report.increments + 1);
            assert_eq!(store.revision(), report.revision);
            true
        }
        (Ok(_), Err(error)) => panic!("restored, and cannot be opened: {error}"),
        (Err(error), Ok(_)) => panic!("not restored ({error}), and can be opened"),
        (Err(_), Err(error)) => {
            let kind = error.kind();
            let none = matches!(kind, ErrorKind::NoStore { .. } | ErrorKind::NotAStore { .. });
            assert!(none, "{error}");
            false
        }
    }
}

/// Makes the checksums of all backups right, as far as blocks can be found, and those of what is in blocks that
/// are not compressed.
fn fix_streams(bytes: &mut [u8]) -> Option<()> {
    let mut start = 0;
    while start < bytes.len() {
        start += fix_stream(bytes.get_mut(start..)?)?;
    }
    Some(())
}

/// Answers where the backup ends.
fn fix_stream(bytes: &mut [u8]) -> Option<usize> {
    let store = StoreId(*bytes.get(8..)?.first_chunk()?);
    let crc = checksum::crc_unplaced(&store, b'k', bytes.get(..HEADER_BYTES - 4)?);
    bytes.get_mut(HEADER_BYTES - 4..HEADER_BYTES)?.copy_from_slice(&crc.to_le_bytes());
    let (mut previous, mut at, mut blocks) = (crc, HEADER_BYTES, 0);
    loop {
        let header = bytes.get(at..at + BLOCK_BYTES)?;
        let stored = u32::from_le_bytes(*header.get(4..)?.first_chunk()?);
        let end = at.checked_add(BLOCK_BYTES)?.checked_add(usize::try_from(stored).ok()?)?;
        let (part, codec) = (header[0], header[1]);
        let (before, block) = bytes.get_mut(..end)?.split_at_mut(at);
        let (header, payload) = block.split_at_mut(BLOCK_BYTES);
        if part == Part::End as u8 {
            let said = payload.get(32..44)?.to_vec();
            let end = End {
                blocks,
                bytes: before.len() as u64,
                hash: ContentHash::of(before),
                kv_compacted: u64::from_le_bytes(*said.first_chunk()?),
                kv_hash: u32::from_le_bytes(*said.last_chunk()?),
            };
            payload.get_mut(..END_BYTES)?.copy_from_slice(&end.encode());
        } else if codec == Codec::Raw as u8 {
            match part {
                part if part == Part::Manifest as u8 => drop(fix::manifest(payload)),
                part if part == Part::Frames as u8 => {
                    let mut from = 0;
                    while let Some(length) =
                        payload.get_mut(from..).and_then(|rest| fix::frame(rest, &store))
                    {
                        from += length.max(1);
                    }
                }
                _ => {}
            }
        }
        let covered = [&previous.to_le_bytes()[..], &header[..BLOCK_BYTES - 4], payload].concat();
        previous = checksum::crc_unplaced(&store, b'b', &covered);
        header[BLOCK_BYTES - 4..].copy_from_slice(&previous.to_le_bytes());
        if part == Part::End as u8 {
            return Some(end);
        }
        (at, blocks) = (end, blocks + 1);
    }
}

/// Streams of small stores: as they are written, and with nothing compressed.
pub(crate) fn seeds() -> Vec<(&'static str, u8, Vec<u8>)> {
    let (mut full, mut increment) = (Vec::new(), Vec::new());
    let (mut files, mut rest) = (Vec::new(), Vec::new());
    for (writes, first, second) in [(4, &mut full, &mut increment), (150, &mut files, &mut rest)] {
        let disk = MemoryVfs::new();
        let store = Store::open_with(dir::DIR, &dir::options(&disk)).expect("a new store");
        store.lease_grant(9, Duration::from_secs(60)).expect("a lease");
        for number in 0..writes {
            store.put(format!("/pods/{}", number % 7), "value ".repeat(9)).expect("a put");
            while store.run_background().expect("background work") {}
        }
        let made = store.backup(first).expect("a backup");
        store.put("/pods/1", "later").expect("a put");
        store.delete("/pods/2").expect("a delete");
        store.lease_revoke(9).expect("the lease");
        store.backup_from(made.revision, second).expect("an increment");
    }
    let both = [&full[..], &increment].concat();
    vec![
        ("full", 0, raw(&full)),
        ("full_as_is", 0, full),
        ("with_increment", FIX, raw(&both)),
        ("with_increment_as_is", BUMP, both),
        ("files", FIX | BUMP, files),
    ]
}

/// The same streams with nothing compressed.
fn raw(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let start = out.len();
        let (header, mut chain) = Header::decode(bytes).expect("a header");
        let (_, mut again): (_, Chain) = header.encode();
        out.extend_from_slice(&bytes[..HEADER_BYTES]);
        bytes = &bytes[HEADER_BYTES..];
        let mut blocks = 0;
        loop {
            let (head, rest) = bytes.split_at(BLOCK_BYTES);
            let length = annals_format::backup::payload_bytes(head).expect("a length");
            let (payload, rest) = rest.split_at(length);
            bytes = rest;
            let block = chain.decode(head, payload).expect("a block");
            let mut piece = match block.codec {
                Codec::Raw => payload.to_vec(),
                Codec::Zstd => {
                    zstd::bulk::decompress(payload, block.raw_bytes as usize).expect("zstd")
                }
            };
            if block.part == Part::End {
                let before = &out[start..];
                let (length, hash) = (before.len() as u64, ContentHash::of(before));
                let end = End::decode(&piece).expect("an end");
                piece = End { blocks, bytes: length, hash, ..end }.encode().to_vec();
            }
            let stored_bytes = u32::try_from(piece.len()).expect("a piece");
            let block = Block { codec: Codec::Raw, stored_bytes, raw_bytes: stored_bytes, ..block };
            out.extend_from_slice(&again.encode(&block, &piece));
            out.extend_from_slice(&piece);
            blocks += 1;
            if block.part == Part::End {
                break;
            }
        }
    }
    out
}
