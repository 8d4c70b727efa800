//! Objects as bytes, and back.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::object::status::Status;
use crate::object::transform::Transformer;
use crate::object::versioner::Versioner;

use super::convert::Conversions;

/// What makes objects of values, and values of objects. Cloning is cheap.
#[derive(Clone)]
pub(super) struct Codec {
    pub(super) versioner: Arc<dyn Versioner>,
    pub(super) transformer: Arc<dyn Transformer>,
    pub(super) conversions: Conversions,
}

/// What a value stands for.
pub(super) struct Decoded {
    /// With its version.
    pub(super) object: Value,
    /// Its JSON, without the version.
    pub(super) data: Vec<u8>,
    /// Whether it is to be written anew.
    pub(super) is_stale: bool,
}

/// Why a value stands for no object.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// The transformer refuses it.
    Transform(Status),
    /// It is no JSON of an object, or cannot be converted to the version of its kind.
    Decode(String),
}

impl Codec {
    /// The object in a value, of which the last change was at `revision`.
    pub(super) fn decode(
        &self,
        key: &[u8],
        value: &[u8],
        revision: u64,
    ) -> Result<Decoded, Unreadable> {
        let (mut data, mut is_stale) =
            self.transformer.from_storage(value, key).map_err(Unreadable::Transform)?;
        let mut object: Value = match serde_json::from_slice(&data) {
            Ok(object @ Value::Object(_)) => object,
            Ok(_) => return Err(Unreadable::Decode("it is not a JSON object".into())),
            Err(bad) => return Err(Unreadable::Decode(bad.to_string())),
        };
        if self.conversions.convert(&mut object).map_err(Unreadable::Decode)? {
            // As it is to be stored.
            object.sort_all_objects();
            data =
                serde_json::to_vec(&object).map_err(|bad| Unreadable::Decode(bad.to_string()))?;
            is_stale = true;
        }
        self.attach(&mut object, revision);
        Ok(Decoded { object, data, is_stale })
    }

    /// Attaches a version. What it cannot be attached to can be used all the same.
    pub(super) fn attach(&self, object: &mut Value, revision: u64) {
        let _ = self.versioner.update_object(object, revision);
    }
}

/// The reason alone.
impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transform(bad) => write!(f, "{bad}"),
            Self::Decode(bad) => f.write_str(bad),
        }
    }
}

impl Unreadable {
    /// The text of `corruptObjectError` in `k8s.io/apiserver/pkg/storage/etcd3/corrupt_obj_deleter.go`.
    pub(super) fn at(&self, revision: u64) -> String {
        let what = match self {
            Self::Transform(_) => "data from the storage is not transformable",
            Self::Decode(_) => "object not decodable",
        };
        format!("{what} revision={revision}: {self}")
    }
}
