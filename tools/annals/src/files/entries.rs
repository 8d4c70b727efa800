//! Entries of segment files as rows.

use std::io::{self, Write};

use annals::inspect::{EntryRef, StoreFiles};
use annals_format::events::{EventKind, Transaction};
use annals_format::name::FileName;
use annals_format::{FileKind, FileMeta};
use serde::Serialize;
use serde_json::{Value, json};

use super::{key_cell, key_json, name_of, walk};
use crate::at::rfc3339;
use crate::exit::Outcome;
use crate::output::{Output, Row, Rows};

#[derive(Debug)]
struct EntryRow {
    object: Value,
    cells: Vec<String>,
}

impl Serialize for EntryRow {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object.serialize(serializer)
    }
}

impl Row for EntryRow {
    const COLUMNS: &'static [&'static str] = &[
        "file",
        "revision",
        "sub",
        "what",
        "create",
        "version",
        "lease",
        "death",
        "first",
        "bytes of value",
        "key",
    ];

    fn cells(&self) -> Vec<String> {
        self.cells.clone()
    }

    fn raw(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.cells.join("\t"))
    }
}

/// Writes the entries of these segment files, in the order they lie in.
pub(super) fn dump(
    files: &StoreFiles,
    metas: &[&FileMeta],
    values: bool,
    out: &mut Output,
) -> Outcome {
    let mut rows = out.rows("entries");
    for meta in metas {
        let segment = files.segment(meta)?;
        walk(|step| segment.entries(&mut |entry| step(push(meta, entry, values, &mut rows))))?;
    }
    rows.finish(&[])?;
    Ok(())
}

fn push(meta: &FileMeta, entry: &EntryRef<'_>, values: bool, rows: &mut Rows<'_>) -> Outcome {
    let file = name_of(meta).to_string();
    let mut object = json!({ "file": file, "key": key_json(meta.kind, entry.key) });
    if meta.kind == FileKind::Events {
        object["transaction"] = transaction(entry.value);
    } else {
        object["revision"] = json!(entry.revision);
        object["sub"] = json!(entry.sub);
        object["deleted"] = json!(entry.tombstone);
        object["create_revision"] = json!(entry.create_revision);
        object["version"] = json!(entry.version);
        object["lease"] = json!(entry.lease);
        if meta.kind == FileKind::History {
            object["death"] = json!(entry.death);
        }
        if meta.kind == FileKind::L0 {
            object["first"] = json!(entry.first);
            object["lived"] = json!(entry.lived);
        }
        object["value_bytes"] = json!(entry.value.len());
        if let Some(blob) = entry.blob {
            object["blob_file"] = json!(FileName::new(FileKind::Blob, blob.file).to_string());
        }
        if values && !entry.tombstone {
            object["value"] = crate::bytes::json(entry.value);
        }
    }
    let what = match meta.kind {
        FileKind::Events => "events",
        _ if entry.tombstone => "delete",
        _ => "put",
    };
    let cells = vec![
        file,
        entry.revision.to_string(),
        entry.sub.to_string(),
        what.to_owned(),
        entry.create_revision.to_string(),
        entry.version.to_string(),
        entry.lease.to_string(),
        entry.death.to_string(),
        entry.first.to_string(),
        entry.value.len().to_string(),
        key_cell(meta.kind, entry.key, 100),
    ];
    rows.push(&EntryRow { object, cells })
}

/// The value of an entry of EVENTS.
fn transaction(value: &[u8]) -> Value {
    let decoded = match Transaction::decode(value) {
        Ok(decoded) => decoded,
        Err(error) => return json!({ "damage": error.to_string() }),
    };
    let events: Vec<Value> = decoded
        .events()
        .map(|event| match event {
            Ok(event) => json!({
                "what": if event.kind == EventKind::Put { "put" } else { "delete" },
                "key": crate::bytes::json(event.key),
                "sub": event.sub,
                "create_revision": event.create_revision,
                "version": event.version,
                "lease": event.lease,
                "value_bytes": event.value_bytes,
            }),
            Err(error) => json!({ "damage": error.to_string() }),
        })
        .collect();
    json!({
        "time": rfc3339(decoded.time),
        "metadata": crate::reads::stored_metadata(decoded.metadata),
        "events": events,
    })
}
