//! Objects that are stored under another version of their kind, and become those of this one when they are read.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::Value;

use crate::object::kv::Kv;
use crate::object::status::Result as StatusResult;
use crate::object::value::{DEPTH_MAX, is_object_within_depth};

use super::Storage;

/// Makes an object of one version one of another.
pub(in crate::object) type Convert = dyn Fn(&mut Value) -> StatusResult<()> + Send + Sync;

/// From which versions objects are converted, and how.
#[derive(Clone, Default)]
pub(super) struct Conversions(Vec<Conversion>);

#[derive(Clone)]
struct Conversion {
    from: Arc<str>,
    to: Arc<str>,
    convert: Arc<Convert>,
}

impl Conversions {
    /// Converts an object that is of another version; answers whether it was.
    ///
    /// # Errors
    ///
    /// Why it cannot be converted.
    pub(super) fn convert(&self, object: &mut Value) -> Result<bool, String> {
        let Some(stored) = object.get("apiVersion").and_then(Value::as_str) else {
            return Ok(false);
        };
        let Some(Conversion { from, to, convert }) = self.0.iter().find(|one| *one.from == *stored)
        else {
            return Ok(false);
        };
        // One object that it was not written for is no reason that the others cannot be read, nor that one be deleted.
        let converted = catch_unwind(AssertUnwindSafe(|| convert(object)))
            .map_err(|_| "the conversion panicked".to_owned())
            .and_then(|converted| converted.map_err(|why| why.to_string()));
        converted.map_err(|why| format!("it cannot be converted from {from} to {to}: {why}"))?;
        if !is_object_within_depth(object) {
            // Once it was stored nobody could read it again.
            return Err(format!(
                "what was converted from {from} to {to} nests deeper than {DEPTH_MAX}"
            ));
        }
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".into(), Value::from(&**to));
            return Ok(true);
        }
        Err(format!("what was converted from {from} to {to} is no object"))
    }
}

impl<K: Kv> Storage<K> {
    /// With objects converted that are stored as `from`.
    pub(in crate::object) fn converting(
        mut self,
        from: &str,
        to: &str,
        convert: Arc<Convert>,
    ) -> Self {
        self.codec.conversions.0.push(Conversion { from: from.into(), to: to.into(), convert });
        self
    }
}
