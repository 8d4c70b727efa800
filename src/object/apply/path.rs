//! One step of a path into an object, and its text in managed fields.
//!
//! `f:name` is a field, `k:{"port":80}` the item of a list that has these keys, `v:"a"` the item of a set that
//! is this value, `i:0` the item at an index (nothing here makes those, but older servers have).
//! Facts from `structured-merge-diff/fieldpath/{element,serialize-pe}.go`.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use super::values;

/// One step of a path. They are ordered as in managed fields: fields, keys, values, indexes.
#[derive(Clone, Debug)]
pub(super) enum PathElement {
    Field(String),
    /// By name of the key.
    Key(Vec<(String, Value)>),
    Value(Value),
    Index(i64),
}

impl PathElement {
    pub(super) fn key(mut keys: Vec<(String, Value)>) -> Self {
        keys.sort_by(|one, other| one.0.cmp(&other.0));
        Self::Key(keys)
    }

    /// Of its text; `Ok(None)` for a kind of step that is not known here, which readers skip.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, String> {
        if text.len() < 2 {
            return Err("key must be 2 characters long:".into());
        }
        let Some((kind, rest)) = text.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
            return Err(format!("missing colon: {text}"));
        };
        let json = || serde_json::from_str(rest).map_err(|error| format!("{text}: {error}"));
        Ok(Some(match kind {
            "f" => Self::Field(rest.into()),
            "v" => Self::Value(values::canonical(&json()?)),
            "k" => match json()? {
                Value::Object(keys) => Self::key(
                    keys.iter().map(|(name, key)| (name.clone(), values::canonical(key))).collect(),
                ),
                _ => return Err(format!("{text}: no object of keys")),
            },
            "i" => Self::Index(rest.parse().map_err(|error| format!("{text}: {error}"))?),
            _ => return Ok(None),
        }))
    }

    /// The text in managed fields.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                // Written by hand, because not every map of serde_json keeps the order.
                let pair =
                    |(name, key): &(String, Value)| format!("{}:{key}", Value::from(name.as_str()));
                let pairs: Vec<_> = keys.iter().map(pair).collect();
                format!("k:{{{}}}", pairs.join(","))
            }
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

/// For people: `.name`, `[port=80,protocol="TCP"]`, `[="a"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                f.write_str("[")?;
                for (at, (name, key)) in keys.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(f, "{comma}{name}={key}")?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(one), Self::Field(other)) => one.cmp(other),
            (Self::Key(one), Self::Key(other)) => {
                let pairs = one.iter().zip(other).map(|(one, other)| {
                    one.0.cmp(&other.0).then_with(|| values::compare(&one.1, &other.1))
                });
                values::first_difference(pairs).then(one.len().cmp(&other.len()))
            }
            (Self::Value(one), Self::Value(other)) => values::compare(one, other),
            (Self::Index(one), Self::Index(other)) => one.cmp(other),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PathElement {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}
