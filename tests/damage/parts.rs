//! Which structure lies where in a file: each has a checksum of its own, and damage in it is told by its place.

use std::ops::Range;

use annals::inspect::StoreFiles;
use annals_format::name::FileName;
use annals_format::sector::SECTOR_BYTES;
use annals_format::segment::{FOOTER_BYTES, HEADER_BYTES};

use crate::made::{Made, options};
use crate::support::DIRECTORY;

/// The structures of a file, in order, without gaps.
#[derive(Clone, Debug)]
pub struct Parts(pub Vec<Range<u64>>);

impl Parts {
    /// The structure that a byte belongs to.
    pub fn at(&self, byte: u64) -> Range<u64> {
        self.0[self.0.partition_point(|part| part.end <= byte)].clone()
    }
}

/// The structures of a file of a store.
pub fn parts(made: &Made, path: &str) -> Parts {
    let bytes = made.content(path).len() as u64;
    let name = path.strip_prefix(DIRECTORY).unwrap().trim_start_matches('/');
    let parts = if path.contains("/seg/") {
        of_segment(made, name, bytes)
    } else if path.contains("/wal/") {
        let sector = SECTOR_BYTES as u64;
        (0..bytes.div_ceil(sector)).map(|n| n * sector..((n + 1) * sector).min(bytes)).collect()
    } else {
        // CURRENT and a manifest have one checksum.
        std::iter::once(0..bytes).collect()
    };
    let parts = Parts(parts);
    let ends =
        parts.0.iter().scan(0, |end, part| Some(std::mem::replace(end, part.end) == part.start));
    assert!(ends.into_iter().all(|follows| follows), "{path}: {parts:?}");
    assert_eq!(parts.0.last().unwrap().end, bytes, "{path}");
    parts
}

fn of_segment(made: &Made, name: &str, bytes: u64) -> Vec<Range<u64>> {
    let name = FileName::parse(name).unwrap();
    let files = StoreFiles::open(DIRECTORY, &options(&made.disk)).unwrap();
    let mut metas = files.manifest().files.iter();
    let meta = metas.find(|meta| (meta.kind, meta.number) == (name.kind, name.number)).unwrap();
    let segment = files.segment(meta).unwrap();
    let mut parts: Vec<Range<u64>> = Vec::new();
    parts.push(0..HEADER_BYTES as u64);
    let blocks = &mut |block: annals::inspect::BlockInfo| {
        parts.push(block.offset..block.offset + u64::from(block.bytes));
        Ok(true)
    };
    segment.blocks(blocks).unwrap();
    let pages = &mut |page: annals::inspect::PageInfo| {
        parts.push(page.offset..page.offset + u64::from(page.bytes));
        Ok(true)
    };
    segment.pages(pages).unwrap();
    let footer = segment.footer().unwrap();
    let filter_end = footer.filter_offset + footer.filter_bytes;
    parts.push(footer.filter_offset..filter_end);
    parts.push(filter_end..filter_end + footer.dictionary_bytes);
    parts.push(bytes - FOOTER_BYTES as u64..bytes);
    parts.retain(|part| !part.is_empty());
    parts.sort_unstable_by_key(|part| part.start);
    parts
}
