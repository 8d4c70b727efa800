//! Errors as data: their text. With the feature `serde`.

use serde::{Serialize, Serializer};

use super::Error;

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
