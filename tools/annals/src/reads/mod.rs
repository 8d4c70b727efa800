//! The commands that read keys: get, range, history, diff, log.

mod delta;
mod diff;
mod history;
mod log;
mod metadata;
mod range;
mod rows;

use std::ffi::OsString;

use annals::{ErrorKind, KeyValue, Store};
use clap::Args;
use serde_json::json;

use crate::args::{Global, ReadAt};
use crate::bytes;
use crate::exit::{Failure, Outcome};
use crate::output::{Format, Output};

pub(crate) use diff::{DiffArgs, diff};
pub(crate) use history::{HistoryArgs, history};
pub(crate) use log::{LogArgs, log};
pub(crate) use metadata::{metadata_cell, metadata_json, stored_metadata};
pub(crate) use range::{RangeArgs, range};
pub(crate) use rows::kv_json;

/// Arguments of `get`.
#[derive(Debug, Args)]
#[command(after_help = "With -o raw exactly the value's bytes are written, nothing added.\n\
    In a table the value is cut and escaped.

Examples:
  $ annals -C store get /pods/a
  $ annals -C store get /pods/a --at 3 -o raw          # its bytes at revision 3, nothing added
  $ annals -C store get /pods/z                        # exits 5")]
pub(crate) struct GetArgs {
    /// The key.
    key: OsString,
    #[command(flatten)]
    at: ReadAt,
}

/// `get`: one key.
pub(crate) fn get(global: &Global, args: &GetArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let key = bytes::of_arg(&args.key);
    let view = args.at.at.view(&store)?;
    let Some(kv) = view.get(&key)? else {
        return Err(Failure::NotFound(format!(
            "{}: no such key at revision {}",
            if key.is_empty() { "''".to_owned() } else { bytes::show(&key, 200) },
            view.revision()
        )));
    };
    if out.format() == Format::Raw {
        return out.bytes(&kv.value);
    }
    let mut object = kv_json(&kv, true);
    let time = written(&store, &kv, out)?;
    if let Some(members) = object.as_object_mut() {
        members.insert("time".into(), json!(time));
        if out.format() == Format::Table {
            let value = members.shift_remove("value").unwrap_or_default();
            members.insert("value_bytes".into(), json!(kv.value.len()));
            members.insert("value".into(), value);
        }
    }
    out.object(&object)
}

/// When a key was written; `None` where that is forgotten, or cannot be read, which is said then.
fn written(store: &Store, kv: &KeyValue, out: &mut Output) -> Outcome<Option<String>> {
    match store.time_of(kv.mod_revision) {
        Ok(time) => Ok(Some(crate::at::rfc3339(time))),
        Err(error) if matches!(error.kind(), ErrorKind::Compacted { .. }) => Ok(None),
        Err(error) if error.corruption().is_some() => {
            out.note(format_args!("when it was written cannot be read: {error}"))?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
