//! Batches as data. With the feature `serde`.

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::Batch;

impl Serialize for Batch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut batch = serializer.serialize_struct("Batch", 6)?;
        batch.serialize_field("revision", &self.revision())?;
        batch.serialize_field("time", &self.time())?;
        batch.serialize_field("metadata", self.metadata())?;
        batch.serialize_field("events", self.events())?;
        batch.serialize_field("is_progress", &self.is_progress())?;
        batch.serialize_field("is_last_fragment", &self.is_last_fragment())?;
        batch.end()
    }
}
