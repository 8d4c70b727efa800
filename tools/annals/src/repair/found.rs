//! A manifest made of what lies in a store's directory, where none is whole.
//!
//! What only the manifest knows is lost: the watermark of compaction, and of a file in L0 how far it has been folded. So such
//! a manifest is good for reading newest versions alone; the newer of two versions of a key is told by its revision.

use std::fs;
use std::path::Path;

use annals_format::checksum::ContentHash;
use annals_format::entry::BlobRef;
use annals_format::name::{FileName, SEGMENT_DIR, WAL_DIR};
use annals_format::segment::{FOOTER_BYTES, Footer};
use annals_format::wal_file::{self, WalFileHeader};
use annals_format::{FileKind, FileMeta, Manifest, Place, StoreId, WalFile};

/// Where a segment's header, and a log's, have the store's id.
const SEGMENT_STORE_AT: usize = 16;
const WAL_STORE_AT: usize = 8;

/// The highest key that a manifest can name.
const LAST_KEY: &[u8] = &[0xff; 16];

/// Makes it; `None` where no file says which store it is of.
pub(super) fn manifest(data: &Path) -> Option<Manifest> {
    let names = names(data);
    let store = names.iter().find_map(|name| store_of(data, *name))?;
    let mut manifest = Manifest::new(store);
    manifest.number = 1;
    for name in &names {
        let Ok(content) = fs::read(data.join(name.to_string())) else { continue };
        match name.kind {
            FileKind::Wal => {
                let header = content.get(..wal_file::BYTES).map(WalFileHeader::decode);
                let made = header.and_then(Result::ok);
                let made = made.map(|header| (header.file_bytes, header.incarnation));
                let (file_bytes, incarnation) = made.unwrap_or((content.len() as u64, 1));
                // Anything else cannot be listed.
                let is_next = manifest.wal.last().is_none_or(|last| last.number + 1 == name.number);
                if is_next && wal_file::is_file_bytes(file_bytes) {
                    let number = name.number;
                    manifest.incarnation = manifest.incarnation.max(incarnation);
                    manifest.wal.push(WalFile { number, incarnation, file_bytes, end: None });
                }
            }
            _ => {
                let meta = segment(store, *name, &content);
                manifest.next_file = manifest.next_file.max(name.number + 1);
                manifest.incarnation = manifest.incarnation.max(meta.incarnation);
                if meta.kind == FileKind::Events {
                    let newest = manifest.flushed_revision.max(meta.max_revision);
                    manifest.flushed_revision = newest;
                }
                manifest.files.push(meta);
            }
        }
    }
    // A file does not say which blob files it refers to, so all are listed for each.
    let blobs = manifest.files.iter().filter(|meta| meta.kind == FileKind::Blob);
    let mut blobs: Vec<BlobRef> =
        blobs.map(|meta| BlobRef { file: meta.number, bytes: meta.value_bytes.max(1) }).collect();
    blobs.sort_unstable_by_key(|blob| blob.file);
    for meta in manifest.files.iter_mut().filter(|meta| meta.kind.may_refer()) {
        meta.blobs.clone_from(&blobs);
    }
    // What cannot be read back is of no use.
    Manifest::decode(&manifest.encode().0).is_ok().then_some(manifest)
}

/// The files of the log and the segments, in order.
fn names(data: &Path) -> Vec<FileName> {
    let mut names = Vec::new();
    for directory in [WAL_DIR, SEGMENT_DIR] {
        let Ok(entries) = fs::read_dir(data.join(directory)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_str().map(|name| format!("{directory}/{name}"));
            names.extend(name.as_deref().and_then(FileName::parse));
        }
    }
    names.sort_unstable();
    names
}

/// The store that a file says it is of, if its checksum holds.
fn store_of(data: &Path, name: FileName) -> Option<StoreId> {
    let content = fs::read(data.join(name.to_string())).ok()?;
    let at = |offset: usize| Some(StoreId(*content.get(offset..)?.first_chunk()?));
    if name.kind == FileKind::Wal {
        let header = WalFileHeader::decode(content.get(..wal_file::BYTES)?).ok()?;
        return (at(WAL_STORE_AT) == Some(header.store)).then_some(header.store);
    }
    let store = at(SEGMENT_STORE_AT)?;
    footer(store, name, &content).map(|_| store)
}

fn footer(store: StoreId, name: FileName, content: &[u8]) -> Option<Footer> {
    let offset = content.len().checked_sub(FOOTER_BYTES)?;
    let place = Place::start_of(store, name.kind, name.number).at(offset as u64);
    Footer::decode(content.get(offset..)?, &place).ok()
}

/// What a manifest would say of a segment, as far as the file itself does.
fn segment(store: StoreId, name: FileName, content: &[u8]) -> FileMeta {
    let footer = footer(store, name, content);
    let is_l0 = name.kind == FileKind::L0;
    FileMeta {
        number: name.number,
        kind: name.kind,
        class: footer.as_ref().map_or(0, |footer| footer.class),
        incarnation: footer.as_ref().map_or(1, |footer| footer.incarnation),
        bytes: content.len() as u64,
        hash: ContentHash::of(content),
        entries: footer.as_ref().map_or(0, |footer| footer.entries),
        value_bytes: footer.as_ref().map_or(0, |footer| footer.value_bytes),
        first_key: Vec::new(),
        last_key: LAST_KEY.to_vec(),
        min_revision: footer.as_ref().map_or(0, |footer| footer.min_revision),
        max_revision: footer.as_ref().map_or(0, |footer| footer.max_revision),
        death_after: footer.as_ref().map_or(0, |footer| footer.death_after),
        death_upto: footer.as_ref().map_or(0, |footer| footer.death_upto),
        last_seq: if is_l0 { name.number } else { 0 },
        folded_to: Vec::new(),
        blobs: Vec::new(),
    }
}
