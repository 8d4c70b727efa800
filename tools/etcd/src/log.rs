//! Lines of the log.

use serde_json::Value;

/// A line about what went wrong.
pub(crate) fn error(message: &str, fields: &[(&str, Value)]) {
    line("error", message, fields);
}

/// A line about what should be looked at.
pub(crate) fn warn(message: &str, fields: &[(&str, Value)]) {
    line("warn", message, fields);
}

fn line(level: &str, message: &str, fields: &[(&str, Value)]) {
    eprintln!("{level}: {message} {fields:?}");
}
