//! Frames of the WAL as rows, one for each operation in a table, one for each frame in JSON.

use std::io::{self, Write};

use annals::inspect::{StoreFiles, WalPart};
use annals_format::FileKind;
use annals_format::frame::{Frame, Op};
use annals_format::name::FileName;
use serde::Serialize;
use serde_json::{Value, json};

use super::inspect::frame_facts;
use super::{key_cell, key_json, walk};
use crate::bytes::show;
use crate::exit::{Failure, Outcome};
use crate::output::{Format, Output, Row, Rows};

/// One frame, or one operation of one.
#[derive(Debug)]
struct FrameRow {
    object: Value,
    cells: Vec<String>,
}

impl Serialize for FrameRow {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object.serialize(serializer)
    }
}

impl Row for FrameRow {
    const COLUMNS: &'static [&'static str] =
        &["file", "offset", "bytes", "seq", "revision", "what", "bytes of value", "key"];

    fn cells(&self) -> Vec<String> {
        self.cells.clone()
    }

    fn raw(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.cells.join("\t"))
    }
}

/// Writes the frames of these WAL files. Damage is a row, too, and ends with exit code 3.
pub(super) fn dump(
    files: &StoreFiles,
    names: &[FileName],
    values: bool,
    out: &mut Output,
) -> Outcome {
    let whole = matches!(out.format(), Format::Json | Format::Ndjson);
    let mut rows = out.rows("frames");
    let mut damaged = false;
    for name in names {
        walk(|step| {
            files.wal(name.number, &mut |offset, bytes, part| {
                let done = match part {
                    WalPart::Frame(frame, _) if whole => {
                        rows.push(&whole_frame(*name, offset, bytes, frame, values))
                    }
                    WalPart::Frame(frame, _) => operations(*name, offset, bytes, frame, &mut rows),
                    WalPart::Damage(damage) => {
                        damaged = true;
                        rows.push(&other(*name, offset, bytes, "damage", &damage.to_string()))
                    }
                    WalPart::Torn { .. } => {
                        rows.push(&other(*name, offset, bytes, "torn", "never acknowledged"))
                    }
                    _ => Ok(()),
                };
                step(done).map(|_| ())
            })
        })?;
    }
    rows.finish(&[])?;
    if damaged { Err(Failure::Damaged) } else { Ok(()) }
}

fn other(name: FileName, offset: u64, bytes: u64, what: &str, detail: &str) -> FrameRow {
    let object = json!({
        "file": name.to_string(), "offset": offset, "bytes": bytes, "what": what, "detail": detail
    });
    let mut cells = vec![name.to_string(), offset.to_string(), bytes.to_string()];
    cells.extend([String::new(), String::new(), what.to_owned(), String::new(), detail.to_owned()]);
    FrameRow { object, cells }
}

fn whole_frame(
    name: FileName,
    offset: u64,
    bytes: u64,
    frame: &Frame<'_>,
    values: bool,
) -> FrameRow {
    let mut object = json!({ "file": name.to_string(), "offset": offset, "bytes": bytes });
    if let (Some(object), Value::Object(facts)) = (object.as_object_mut(), frame_facts(frame)) {
        object.extend(facts);
    }
    object["operations"] = frame
        .ops()
        .map(|op| {
            let mut form = match op.op {
                Op::Put { key, value, lease } => {
                    let mut form = json!({ "op": "put", "key": key_json(FileKind::Wal, key),
                        "lease": lease, "value_bytes": value.len() });
                    if values {
                        form["value"] = crate::bytes::json(value);
                    }
                    form
                }
                Op::Delete { key } => {
                    json!({ "op": "delete", "key": key_json(FileKind::Wal, key) })
                }
                Op::Compact { revision } => json!({ "op": "compact", "to": revision }),
            };
            if op.op.is_user() {
                form["sub"] = json!(op.sub);
                form["create_revision"] = json!(op.create_revision);
                form["version"] = json!(op.version);
            }
            form
        })
        .collect();
    FrameRow { object, cells: Vec::new() }
}

fn operations(
    name: FileName,
    offset: u64,
    bytes: u64,
    frame: &Frame<'_>,
    rows: &mut Rows<'_>,
) -> Outcome {
    for op in frame.ops() {
        let (what, value_bytes, key) = match op.op {
            Op::Put { key, value, .. } => {
                ("put", value.len().to_string(), key_cell(FileKind::Wal, key, 100))
            }
            Op::Delete { key } => ("delete", String::new(), key_cell(FileKind::Wal, key, 100)),
            Op::Compact { revision } => ("compact", String::new(), format!("to {revision}")),
        };
        let cells = vec![
            name.to_string(),
            offset.to_string(),
            bytes.to_string(),
            frame.seq.to_string(),
            frame.revision.to_string(),
            what.to_owned(),
            value_bytes,
            key,
        ];
        rows.push(&FrameRow { object: Value::Null, cells })?;
    }
    if frame.op_count() == 0 {
        rows.push(&other(name, offset, bytes, "nothing", &show(frame.metadata, 60)))?;
    }
    Ok(())
}
