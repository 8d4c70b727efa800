//! Key-values as rows and JSON objects, the same in every command.

use std::io::{self, Write};

use annals::KeyValue;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::Value;

use crate::bytes::{Spelled, show};
use crate::output::Row;

/// A key-value, with or without its value.
#[derive(Debug)]
pub(crate) struct KvRow<'a> {
    pub(crate) kv: &'a KeyValue,
    pub(crate) with_value: bool,
}

impl Serialize for KvRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("key", &Spelled(&self.kv.key))?;
        if self.with_value {
            map.serialize_entry("value", &Spelled(&self.kv.value))?;
        }
        map.serialize_entry("create_revision", &self.kv.create_revision)?;
        map.serialize_entry("mod_revision", &self.kv.mod_revision)?;
        map.serialize_entry("version", &self.kv.version)?;
        map.serialize_entry("lease", &self.kv.lease)?;
        map.end()
    }
}

impl Row for KvRow<'_> {
    const COLUMNS: &'static [&'static str] =
        &["key", "create", "mod", "version", "lease", "bytes", "value"];

    fn cells(&self) -> Vec<String> {
        let kv = self.kv;
        let (bytes, value) = if self.with_value {
            (kv.value.len().to_string(), show(&kv.value, 60))
        } else {
            (String::new(), String::new())
        };
        vec![
            show(&kv.key, 120),
            kv.create_revision.to_string(),
            kv.mod_revision.to_string(),
            kv.version.to_string(),
            kv.lease.to_string(),
            bytes,
            value,
        ]
    }

    fn raw(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.kv.key)?;
        out.write_all(b"\n")?;
        if self.with_value {
            out.write_all(&self.kv.value)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// A key-value as a JSON object.
pub(crate) fn kv_json(kv: &KeyValue, with_value: bool) -> Value {
    serde_json::to_value(KvRow { kv, with_value }).unwrap_or_default()
}
