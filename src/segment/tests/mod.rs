//! Segments against a model, and segments with damage.

mod blobs;
mod damage;
mod groups;
mod model;
mod order;
mod rank;
mod regain;
mod removed;
mod replay;
mod rules;

use std::path::Path;
use std::sync::Arc;

use annals_format::{FileKind, FileMeta, StoreId};
use bytes::Bytes;

use super::{BlockInfo, Entry, NewSegment, Segment, SegmentContext, SegmentWriter, Version, Want};
use crate::options::{HistoryCodec, Options, ReadMode};
use crate::vfs::{MemoryVfs, Vfs as _};

const STORE: StoreId = StoreId([7; 16]);
const DIR: &str = "store";

/// Every way in which a segment can be stored.
const STORED: [(FileKind, HistoryCodec); 7] = [
    (FileKind::L0, HistoryCodec::ZstdBlocks),
    (FileKind::Head, HistoryCodec::ZstdBlocks),
    (FileKind::Events, HistoryCodec::ZstdBlocks),
    (FileKind::History, HistoryCodec::ZstdBlocks),
    (FileKind::History, HistoryCodec::Raw),
    (FileKind::History, HistoryCodec::Fast),
    (FileKind::History, HistoryCodec::Small),
];

/// An empty simulated disk, and the context of a store of small blocks on it.
fn context(read_mode: ReadMode, codec: HistoryCodec) -> (Arc<MemoryVfs>, SegmentContext) {
    let disk = Arc::new(MemoryVfs::new());
    let options = Options::new()
        .vfs(disk.clone())
        .block_bytes(512)
        .history_block_bytes(1024)
        .read_mode(read_mode)
        .history_codec(codec);
    disk.create_dir_all(&Path::new(DIR).join("seg")).unwrap();
    (disk, SegmentContext::new(Path::new(DIR), STORE, 1, &options))
}

fn write(context: &SegmentContext, new: NewSegment, entries: &[Entry]) -> FileMeta {
    let mut writer = SegmentWriter::create(context, new).unwrap();
    for entry in entries {
        writer.add(&entry.as_ref()).unwrap();
    }
    writer.finish().unwrap()
}

fn open(context: &SegmentContext, meta: &FileMeta) -> Arc<Segment> {
    Arc::new(Segment::open(context, meta, &Arc::default()).unwrap())
}

fn problems(segment: &Segment) -> Vec<String> {
    let mut found = Vec::new();
    segment.verify(&mut |corruption| found.push(corruption.to_string())).unwrap();
    found
}

/// Entries that use every form a kind has, deterministic.
fn sample(kind: FileKind, keys: u64, value_bytes: usize) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut random = 1_u64;
    for index in 0..keys {
        let key = format!("/registry/pods/default/pod-{index:04}");
        let versions = if kind == FileKind::History { 5 } else { 1 };
        for nth in (0..versions).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let revision = 10 + index * 3 + nth * 1000;
            let tombstone = kind != FileKind::Events && random >> 60 == 0;
            let text =
                format!("{{\"pod\":{index},\"phase\":\"Running\",\"nth\":{nth},\"x\":{random}}}");
            let value: Vec<u8> =
                text.bytes().cycle().take(value_bytes + (random >> 59) as usize).collect();
            let death = if kind == FileKind::History { revision + 1000 } else { 0 };
            entries.push(Entry {
                key: match kind {
                    FileKind::Events => Bytes::from(revision.to_be_bytes().to_vec()),
                    _ => Bytes::from(key.clone()),
                },
                version: Version {
                    revision,
                    sub: u32::try_from(index % 3).unwrap(),
                    tombstone,
                    create_revision: if tombstone { 0 } else { 10 + index * 3 },
                    version: if tombstone { 0 } else { nth + 1 },
                    lease: if index % 4 == 0 { -i64::try_from(index).unwrap() } else { 0 },
                    death,
                    first: if kind == FileKind::L0 { revision - index % 3 } else { 0 },
                    lived: kind == FileKind::L0 && index % 2 == 1,
                    value: if tombstone { Bytes::new() } else { Bytes::from(value) },
                },
            });
        }
    }
    entries
}

/// The blocks of a segment.
fn blocks(segment: &Arc<Segment>) -> Vec<BlockInfo> {
    let mut blocks = Vec::new();
    segment
        .blocks(&mut |block| {
            blocks.push(block);
            Ok(true)
        })
        .unwrap();
    blocks
}

/// Versions of one key, newest first, each incompressible and different from the others in a byte.
fn near_copies(count: u8, bytes: usize) -> Vec<Entry> {
    let mut random = 7_u64;
    let mut noise = Vec::new();
    while noise.len() < bytes {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        noise.push(random.to_be_bytes()[0]);
    }
    let version = |nth: u8| {
        let mut value = noise.clone();
        value[usize::from(nth) * bytes / 256] ^= 1;
        let revision = 10 + u64::from(nth);
        Version {
            revision,
            create_revision: 10,
            version: u64::from(nth) + 1,
            death: revision + 1,
            value: value.into(),
            ..Version::default()
        }
    };
    let key = Bytes::from_static(b"/one");
    (0..count).rev().map(|nth| Entry { key: key.clone(), version: version(nth) }).collect()
}
