//! The manifest as an object: what `dump --manifest` and `inspect` show.

use annals::inspect::StoreFiles;
use annals_format::entry::BlobRef;
use annals_format::name::FileName;
use annals_format::{FileKind, FileMeta, Manifest};
use serde_json::{Map, Value, json};

use super::{key_json, name_of};
use crate::at::rfc3339;

/// The facts of the manifest that are not lists.
pub(super) fn facts(manifest: &Manifest) -> Map<String, Value> {
    let mut facts = Map::new();
    let flushed_time = (manifest.flushed_time != i64::MIN).then(|| rfc3339(manifest.flushed_time));
    for (name, value) in [
        ("store", json!(manifest.store.to_string())),
        ("manifest", json!(manifest.number)),
        ("incarnation", json!(manifest.incarnation)),
        ("closed", json!(manifest.closed)),
        ("compacted_revision", json!(manifest.compacted)),
        ("revision_floor", json!(manifest.revision_floor)),
        ("flushed_seq", json!(manifest.flushed_seq)),
        ("flushed_revision", json!(manifest.flushed_revision)),
        ("flushed_time", json!(flushed_time)),
        ("next_file", json!(manifest.next_file)),
    ] {
        facts.insert(name.into(), value);
    }
    facts
}

/// The WAL files as the manifest lists them, with the lengths they have: none where one is missing.
pub(super) fn wal(files: &StoreFiles) -> Value {
    let mut list = Vec::new();
    for name in super::logs(files) {
        let listed = files.manifest().wal.iter().find(|file| file.number == name.number);
        list.push(json!({
            "file": name.to_string(),
            "bytes": files.file_bytes(name),
            "made_bytes": listed.map(|file| file.file_bytes),
            "end": listed.and_then(|file| file.end),
            "listed": listed.is_some(),
        }));
    }
    Value::Array(list)
}

/// The segment files as the manifest lists them.
pub(super) fn segments(manifest: &Manifest) -> Value {
    manifest.files.iter().map(segment).collect()
}

pub(super) fn segment(meta: &FileMeta) -> Value {
    let mut object = json!({
        "file": name_of(meta).to_string(),
        "kind": meta.kind.label(),
        "class": meta.class,
        "incarnation": meta.incarnation,
        "bytes": meta.bytes,
        "entries": meta.entries,
        "value_bytes": meta.value_bytes,
        "min_revision": meta.min_revision,
        "max_revision": meta.max_revision,
    });
    if meta.kind == FileKind::History {
        object["death_after"] = json!(meta.death_after);
        object["death_upto"] = json!(meta.death_upto);
    }
    if meta.kind == FileKind::L0 {
        object["last_seq"] = json!(meta.last_seq);
        if !meta.folded_to.is_empty() {
            object["folded_to"] = key_json(meta.kind, &meta.folded_to);
        }
    }
    if !meta.blobs.is_empty() {
        let blob = |blob: &BlobRef| {
            let file = FileName::new(FileKind::Blob, blob.file).to_string();
            json!({ "file": file, "value_bytes": blob.bytes })
        };
        object["blobs"] = meta.blobs.iter().map(blob).collect();
    }
    object["first_key"] = key_json(meta.kind, &meta.first_key);
    object["last_key"] = key_json(meta.kind, &meta.last_key);
    object["hash"] = json!(meta.hash.to_string());
    object
}

/// The whole manifest.
pub(super) fn whole(manifest: &Manifest) -> Value {
    let mut object = facts(manifest);
    let wal = manifest.wal.iter().map(|file| {
        json!({ "number": file.number, "incarnation": file.incarnation,
                       "file_bytes": file.file_bytes, "end": file.end })
    });
    object.insert("wal".into(), wal.collect());
    object.insert("files".into(), segments(manifest));
    let floor = |(prefix, floor): &(Vec<u8>, u64)| {
        let prefix = crate::bytes::json(prefix);
        json!({ "prefix": prefix, "floor": floor })
    };
    object.insert("floors".into(), manifest.floors.iter().map(floor).collect());
    Value::Object(object)
}
