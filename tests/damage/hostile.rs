//! Files that were made to harm: lengths, counts and places that are not true, trees that lead back to themselves, under checksums
//! that hold up to CURRENT.
//!
//! Whatever they say: an answer or an error, soon, in bounded memory. Who can write such files can write any answer, so
//! what is answered is not compared.

use std::ops::Range;
use std::path::Path;

use annals::Store;
use annals::vfs::MemoryVfs;
use annals_format::checksum::{ContentHash, FileSeed};
use annals_format::current::{Current, CurrentFile};
use annals_format::name::FileName;
use annals_format::{Manifest, Place};

use crate::heap;
use crate::made::{Made, made, options};
use crate::parts::{Parts, parts};
use crate::run::{HEAP_BYTES, bounded};
use crate::support::DIRECTORY;

/// What a structure of a segment is, by the bytes it begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Block,
    Page,
    /// Header, footer: the checksum stands last.
    End,
    Filter,
    Dictionary,
}

fn what(bytes: &[u8]) -> What {
    match bytes {
        [b'a', b'B', ..] => What::Block,
        [b'a', b'P', ..] => What::Page,
        [b'a', b'S', b'E', b'G', ..] | [b'a', b'E', b'N', b'D', ..] => What::End,
        [b'a', b'D', b'I', b'C', ..] => What::Dictionary,
        _ => What::Filter,
    }
}

/// Makes the checksum of a structure at an offset right.
fn seal(bytes: &mut [u8], seed: FileSeed, offset: u64) {
    let at = match what(bytes) {
        What::Block | What::Page => 20,
        What::Dictionary => 12,
        What::Filter => 28,
        What::End => bytes.len() - 4,
    };
    let crc = seed.crc(offset, &[&bytes[..at], &bytes[at + 4..]]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// A store with another content of a segment, which its manifest, and CURRENT, say is right.
fn forged(made: &Made, path: &str, content: &[u8]) -> MemoryVfs {
    let disk = made.with(path, content);
    let name = FileName::parse(path.strip_prefix("store/").unwrap()).unwrap();
    let of_manifest = made.paths.iter().find(|path| path.contains("MANIFEST")).unwrap();
    let mut manifest = Manifest::decode(&made.content(of_manifest)).unwrap();
    for meta in &mut manifest.files {
        if (meta.kind, meta.number) == (name.kind, name.number) {
            meta.bytes = content.len() as u64;
            meta.hash = ContentHash::of(content);
        }
    }
    in_force(&disk, of_manifest, &manifest);
    disk
}

fn in_force(disk: &MemoryVfs, path: &str, manifest: &Manifest) {
    let (bytes, stamp) = manifest.encode();
    disk.overwrite(Path::new(path), &bytes);
    let current = Current { store: manifest.store, manifest: stamp };
    disk.overwrite(Path::new("store/CURRENT"), &CurrentFile::encode(&current, &bytes));
}

fn seed_of(made: &Made, path: &str) -> FileSeed {
    let of_manifest = made.paths.iter().find(|path| path.contains("MANIFEST")).unwrap();
    let store = Manifest::decode(&made.content(of_manifest)).unwrap().store;
    let name = FileName::parse(path.strip_prefix("store/").unwrap()).unwrap();
    FileSeed::new(&Place::start_of(store, name.kind, name.number))
}

/// A segment with one structure changed, and everything sealed again.
fn edited(made: &Made, path: &str, part: &Range<u64>, edit: impl FnOnce(&mut [u8])) -> MemoryVfs {
    let mut content = made.content(path);
    let part = usize::try_from(part.start).unwrap()..usize::try_from(part.end).unwrap();
    edit(&mut content[part.clone()]);
    seal(&mut content[part.clone()], seed_of(made, path), part.start as u64);
    forged(made, path, &content)
}

/// Looks at a store from all sides, whatever it says.
fn look(disk: &MemoryVfs) {
    let _ = annals::check(Path::new(DIRECTORY), &options(disk), &mut |_, _| {});
    let Ok(store) = options(disk).open(Path::new(DIRECTORY)) else { return };
    read(&store);
    while matches!(store.run_background(), Ok(true)) {}
    read(&store);
}

fn read(store: &Store) {
    let (oldest, newest) = (store.compacted_revision().max(1), store.revision());
    let mut keys = Vec::new();
    for revision in [oldest, newest] {
        let Ok(view) = store.at(revision) else { continue };
        keys.extend(view.range(..).take(500).flatten().map(|kv| kv.key));
        let _ = view.range(..).rev().take(500).count();
        let _ = view.count(..);
    }
    for key in keys.iter().take(60) {
        let _ = store.get(key);
        let _ = store.history(key).take(500).count();
    }
    let _ = store.log(..).with_values().take(500).count();
    let _ = store.lease_list();
}

/// The structures of the first segment of a kind that has one.
fn structures(made: &Made, kind: &str, wanted: What) -> Vec<(String, Range<u64>)> {
    let mut found = Vec::new();
    for path in made.paths.iter().filter(|path| path.contains(kind)) {
        let content = made.content(path);
        let Parts(all) = parts(made, path);
        for part in all {
            let start = usize::try_from(part.start).unwrap();
            if what(&content[start..]) == wanted {
                found.push((path.clone(), part));
            }
        }
    }
    found
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Numbers that do harm.
const EXTREMES: [u64; 7] = [0, 1, 0x7fff_ffff, 0xffff_ffff, 1 << 62, u64::MAX - 1, u64::MAX];

#[test]
fn extremes_in_every_field_of_every_structure() {
    let made = made(false);
    let mut cases: Vec<(String, Range<u64>, usize, u64)> = Vec::new();
    for path in made.paths.iter().filter(|path| path.contains("/seg/")) {
        let content = made.content(path);
        let mut seen: Vec<(What, u8)> = Vec::new();
        for part in parts(&made, path).0 {
            let bytes = &content[usize::try_from(part.start).unwrap()..];
            // Of the like structures of a file one; a block's fourth byte is its encoding.
            let like = (what(bytes), if what(bytes) == What::Block { bytes[3] } else { bytes[2] });
            if seen.contains(&like) && like.0 != What::End {
                continue;
            }
            seen.push(like);
            let len = usize::try_from(part.end - part.start).unwrap();
            for at in (0..len.min(200) - 4).step_by(2) {
                cases.extend(EXTREMES.map(|value| (path.clone(), part.clone(), at, value)));
            }
        }
    }
    bounded(
        "extremes",
        &made,
        cases.len() as u64,
        HEAP_BYTES,
        |number| {
            // A step that no length here divides: a sample of all.
            let number = number.wrapping_mul(7919) % cases.len() as u64;
            let (path, part, at, value) = &cases[usize::try_from(number).unwrap()];
            let disk = edited(&made, path, part, |bytes| match *value {
                value if u32::try_from(value).is_ok() || at + 8 > bytes.len() => {
                    put_u32(bytes, *at, u32::try_from(value & 0xffff_ffff).unwrap());
                }
                value => put_u64(bytes, *at, value),
            });
            (format!("{path}: {value:#x} at {at} of {part:?}"), disk)
        },
        look,
    );
}

/// Runs one hostile store.
fn one(name: &str, made: &Made, disk: MemoryVfs) {
    bounded(name, made, 1, HEAP_BYTES, |_| (name.to_owned(), disk.clone()), look);
}

/// Where the first item of a page has the place of its child, from the start of the page.
fn child_at(page: &[u8]) -> usize {
    let count = u32::from_le_bytes(*page[4..].first_chunk().unwrap());
    let offsets = 24 + 8 * usize::try_from(count).unwrap();
    let item = u32::from_le_bytes(*page[offsets..].first_chunk().unwrap());
    usize::try_from(item).unwrap() + 8
}

#[test]
fn a_page_that_is_its_own_child() {
    let made = made(false);
    for kind in [".head", ".l0", ".hist", ".events", ".blob"] {
        let (path, part) = structures(&made, kind, What::Page).remove(0);
        let disk = edited(&made, &path, &part, |page| {
            let at = child_at(page);
            put_u64(page, at, part.start);
        });
        one("a leaf of which a block is the leaf itself", &made, disk);
        // As a branch, in a tree that says that it is as high as a tree can be.
        for height in [2, 24, 255] {
            let mut content = made.content(&path);
            let page = usize::try_from(part.start).unwrap()..usize::try_from(part.end).unwrap();
            let at = child_at(&content[page.clone()]);
            content[page.start + 2] = height - 1;
            put_u64(&mut content[page.clone()], at, part.start);
            seal(&mut content[page], seed_of(&made, &path), part.start);
            let end = content.len() - 192;
            content[end + 9] = height;
            seal(&mut content[end..], seed_of(&made, &path), end as u64);
            one("a branch that is its own child", &made, forged(&made, &path, &content));
        }
    }
}

#[test]
fn blocks_that_overlap() {
    let made = made(false);
    for kind in [".head", ".hist", ".events", ".blob"] {
        for (path, part) in structures(&made, kind, What::Page) {
            let disk = edited(&made, &path, &part, |page| {
                let at = child_at(page);
                // The first block, as long as all.
                put_u32(page, at + 8, u32::try_from(part.start - 64).unwrap());
            });
            one("a block as long as all", &made, disk);
        }
    }
}

#[test]
fn a_base_that_is_the_block_itself_or_far_away() {
    let made = made(false);
    let based = structures(&made, ".hist", What::Block).into_iter();
    let based = based
        .filter(|(path, part)| made.content(path)[usize::try_from(part.start).unwrap() + 3] == 4);
    let mut count = 0;
    for (path, part) in based {
        for distance in [0, 1, 24, u32::MAX] {
            let disk = edited(&made, &path, &part, |block| put_u32(block, 16, distance));
            one("a block with a base that is none", &made, disk);
            count += 1;
        }
    }
    assert!(count > 0);
}

#[test]
fn a_block_that_says_it_is_two_gigabytes() {
    let made = made(false);
    for (path, part) in structures(&made, ".hist", What::Block) {
        let disk = edited(&made, &path, &part, |block| put_u32(block, 4, 0x7fff_ffff));
        one("a body of 2 GiB that is none", &made, disk);
    }
}

/// A body of zeros under zstd is a thousandth as long. It is made, one at a time, before it can be seen that it
/// is no body.
#[test]
fn a_decompression_bomb() {
    const BODY: usize = 8 << 20;
    let made = made(false);
    let bomb = zstd::bulk::compress(&vec![0; BODY], 19).unwrap();
    let blocks = structures(&made, ".hist", What::Block).into_iter();
    let (path, part) = blocks.max_by_key(|(_, part)| part.end - part.start).unwrap();
    let disk = edited(&made, &path, &part, |block| {
        // The rest of the room is a frame that is skipped.
        let rest = block.len() - 24 - bomb.len() - 8;
        block[3] = 1;
        put_u32(block, 4, u32::try_from(BODY).unwrap());
        block[24..24 + bomb.len()].copy_from_slice(&bomb);
        put_u32(block, 24 + bomb.len(), 0x184d_2a50);
        put_u32(block, 28 + bomb.len(), u32::try_from(rest).unwrap());
    });
    let peak = std::cell::Cell::new(0);
    bounded(
        "a bomb",
        &made,
        1,
        HEAP_BYTES,
        |_| ("a bomb".into(), disk.clone()),
        |disk| {
            look(disk);
            peak.set(heap::peak());
        },
    );
    assert!(peak.get() > BODY, "it was not made: {} bytes", peak.get());
}

/// A change of a manifest.
type Edit = fn(&mut Manifest);

/// A manifest that lists one file twice, or files that are not segments, or itself in the place of one.
#[test]
fn a_manifest_that_lists_what_is_none() {
    let made = made(false);
    let path = made.paths.iter().find(|path| path.contains("MANIFEST")).unwrap();
    let sound = Manifest::decode(&made.content(path)).unwrap();
    let edits: [(&str, Edit); 6] = [
        ("a file twice", |manifest| manifest.files.push(manifest.files[0].clone())),
        ("its own number", |manifest| manifest.files[0].number = manifest.number),
        ("a log twice", |manifest| manifest.wal.push(manifest.wal[0])),
        ("a log that ends before it begins", |manifest| manifest.wal[0].end = Some(0)),
        ("all flushed", |manifest| manifest.flushed_seq = 1 << 61),
        ("huge files", |manifest| manifest.files.iter_mut().for_each(|meta| meta.bytes = 1 << 55)),
    ];
    for (name, edit) in edits {
        let mut manifest = sound.clone();
        edit(&mut manifest);
        let disk = made.copy();
        in_force(&disk, path, &manifest);
        one(name, &made, disk);
    }
}
