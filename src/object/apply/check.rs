//! Whether what is applied is of its type: strictly, in contrast to what is stored already.
//!
//! Facts from `structured-merge-diff/typed/validate.go`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::types::Type;
use crate::object::schema::{ListType, Scalar};

/// How many errors are told.
const ERRORS_MAX: usize = 16;

/// Finds out what is wrong with what is applied; nothing for what is right.
pub(super) fn check(of: Type<'_>, value: &Value) -> Option<String> {
    let mut check = Check { path: String::new(), errors: Vec::new() };
    check.value(of, value);
    match check.errors.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        many => Some(format!("errors:\n  {}", many.join("\n  "))),
    }
}

struct Check {
    path: String,
    errors: Vec<String>,
}

impl Check {
    fn error(&mut self, what: &str) {
        if self.errors.len() < ERRORS_MAX {
            let colon = if self.path.is_empty() { "" } else { ": " };
            self.errors.push(format!("{}{colon}{what}", self.path));
        }
    }

    fn expected(&mut self, what: &str, value: &Value) {
        let got: String = value.to_string().chars().take(100).collect();
        self.error(&format!("expected {what}, got {got}"));
    }

    fn value(&mut self, of: Type<'_>, value: &Value) {
        let schema = of.schema();
        if value.is_null() {
            return;
        }
        match schema.scalar() {
            Some(Scalar::String) if !value.is_string() => self.expected("string", value),
            Some(Scalar::Integer | Scalar::Number) if !value.is_number() => {
                self.expected("numeric (int or float)", value);
            }
            Some(Scalar::Boolean) if !value.is_boolean() => self.expected("boolean", value),
            Some(_) if value.is_object() || value.is_array() => self.expected("any scalar", value),
            Some(_) => {}
            None => match (schema.items(), value) {
                (Some(_), Value::Array(items)) => self.items(of, items),
                (Some(_), _) => self.expected("list", value),
                (None, Value::Object(fields)) => {
                    for (name, field) in fields {
                        self.field(of, name, field);
                    }
                }
                (None, _) if schema.is_object() => self.expected("map", value),
                (None, _) => {}
            },
        }
    }

    fn field(&mut self, of: Type<'_>, name: &str, field: &Value) {
        let length = self.path.len();
        self.path.push('.');
        self.path.push_str(name);
        match of.declared(name) {
            Some(of) => self.value(of, field),
            None => self.error("field not declared in schema"),
        }
        self.path.truncate(length);
    }

    fn items(&mut self, of: Type<'_>, items: &[Value]) {
        let length = self.path.len();
        let is_atomic = *of.schema().list_type() == ListType::Atomic;
        let mut seen = BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            if is_atomic {
                // Writing to a text cannot fail.
                let _ = write!(self.path, "[{at}]");
            } else {
                match of.element(item) {
                    Ok(element) => {
                        if seen.contains(&element) {
                            self.error(&format!("duplicate entries for key {element}"));
                        }
                        let _ = write!(self.path, "{element}");
                        seen.insert(element);
                    }
                    Err(why) => return self.error(&format!("element {at}: {why}")),
                }
            }
            self.value(of.items(), item);
            self.path.truncate(length);
        }
    }
}
