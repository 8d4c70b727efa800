//! What the schema says of a value, as apply asks for it: how it is merged, and what its parts are.
//!
//! Facts from `structured-merge-diff/typed/helpers.go` and `kube-openapi/pkg/schemaconv`. Where the schema says
//! nothing, types are deduced: objects are merged field by field, lists as a whole.

use std::sync::LazyLock;

use serde_json::Value;

use super::path::PathElement;
use crate::object::schema::{ListType, Schema};
use crate::object::value;

static ANY: LazyLock<Schema> = LazyLock::new(Schema::any);

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub(in crate::object) struct Type<'s> {
    schema: &'s Schema,
    /// Whether it is that of a whole object, which has metadata whatever its schema says.
    is_root: bool,
}

/// How a value is merged, compared and owned.
#[derive(Debug)]
pub(super) enum Form {
    /// As a whole: scalars, atomic lists and maps, and what is not of its type.
    Leaf,
    /// Null takes the form of what it meets.
    Null,
    /// Field by field.
    Map,
    /// Item by item: the steps to the items, in order.
    List(Vec<PathElement>),
}

impl<'s> Type<'s> {
    /// Of objects of a kind.
    pub(in crate::object) fn root(schema: &'s Schema) -> Self {
        Self { schema, is_root: true }
    }

    /// Of a part of them.
    pub(in crate::object) fn part(schema: &'s Schema) -> Self {
        Self { schema, is_root: false }
    }

    pub(super) fn schema(&self) -> &'s Schema {
        self.schema
    }

    /// The type of a field that the schema has by name.
    pub(super) fn named(&self, name: &str) -> Option<Self> {
        if self.is_root {
            let own = self.schema.named_field(name);
            return match name {
                // The API server, too, has its own for kinds that clients define.
                "metadata"
                    if own.is_none_or(|own| own.named_field("ownerReferences").is_none()) =>
                {
                    Some(Self::part(Schema::object_meta()))
                }
                "apiVersion" | "kind" => Some(Self::part(own.unwrap_or(&ANY))),
                _ => own.map(Self::part),
            };
        }
        self.schema.named_field(name).map(Self::part)
    }

    /// The type of a field; `None` for one that there must not be.
    pub(in crate::object) fn declared(&self, name: &str) -> Option<Self> {
        self.named(name)
            .or_else(|| self.schema.field(name).map(Self::part))
            .or_else(|| self.schema.keeps_unknown().then_some(Self::part(&ANY)))
    }

    /// Whether it says which fields there may be.
    pub(in crate::object) fn has_fields(&self) -> bool {
        self.is_root || self.schema.is_object()
    }

    /// The type of a field, whatever it may be.
    pub(super) fn field(&self, name: &str) -> Self {
        self.declared(name).unwrap_or(Self::part(&ANY))
    }

    pub(in crate::object) fn items(&self) -> Self {
        Self::part(self.schema.items().unwrap_or(&ANY))
    }

    /// The type of what a step leads to.
    pub(super) fn step(&self, element: &PathElement) -> Self {
        match element {
            PathElement::Field(name) => self.field(name),
            _ => self.items(),
        }
    }

    /// Whether it is a list or a map that is owned as a whole. What is deduced does not count.
    pub(super) fn is_atomic(&self) -> bool {
        match self.schema.items() {
            Some(_) => *self.schema.list_type() == ListType::Atomic,
            None => self.schema.is_object() && self.schema.is_atomic_map() && !self.is_root,
        }
    }

    pub(super) fn form(&self, value: &Value) -> Form {
        match value {
            Value::Null => Form::Null,
            Value::Object(_) if self.is_root => Form::Map,
            Value::Object(_) if self.schema.is_any() => Form::Map,
            Value::Object(_) if self.schema.is_object() && !self.schema.is_atomic_map() => {
                Form::Map
            }
            Value::Array(items) => self.elements(items).map_or(Form::Leaf, Form::List),
            _ => Form::Leaf,
        }
    }

    /// The steps to the items of a list; `None` where it is owned as a whole or an item has no step.
    fn elements(&self, items: &[Value]) -> Option<Vec<PathElement>> {
        if *self.schema.list_type() == ListType::Atomic || self.schema.items().is_none() {
            return None;
        }
        items.iter().map(|item| self.element(item).ok()).collect()
    }

    /// The step to an item of a list that is not atomic.
    ///
    /// # Errors
    ///
    /// Why there is none, in the words of structured-merge-diff.
    pub(super) fn element(&self, item: &Value) -> Result<PathElement, String> {
        let ListType::Map(keys) = self.schema.list_type() else {
            let why = match item {
                Value::Object(_) => {
                    "associative list without keys has an element that's a map type"
                }
                Value::Array(_) => "not supported: associative list with lists as elements",
                Value::Null => {
                    "associative list without keys has an element that's an explicit null"
                }
                scalar => return Ok(PathElement::Value(value::canonical(scalar))),
            };
            return Err(why.into());
        };
        let item = match item {
            Value::Object(item) => item,
            Value::Null => {
                return Err("associative list with keys may not have a null element".into());
            }
            _ => return Err("associative list with keys may not have non-map elements".into()),
        };
        let default = |key: &str| self.schema.items()?.named_field(key)?.default_value();
        let found = keys.iter().filter_map(|key| {
            let value = item.get(key).or_else(|| default(key))?;
            Some((key.clone(), value::canonical(value)))
        });
        let found: Vec<_> = found.collect();
        if found.is_empty() {
            return Err(format!(
                "associative list with keys has an element that omits all key fields {keys:?} \
                 (and doesn't have default values for any key fields)"
            ));
        }
        Ok(PathElement::key(found))
    }
}
