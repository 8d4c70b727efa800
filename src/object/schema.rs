//! The schema of a kind, as far as patches and apply ask for it: which lists are merged, by which keys.
//!
//! Read from the OpenAPI schema of the kind with the extensions that Kubernetes has put into it:
//! `x-kubernetes-list-type`, `x-kubernetes-list-map-keys`, `x-kubernetes-map-type`,
//! `x-kubernetes-patch-strategy`, `x-kubernetes-patch-merge-key`,
//! `x-kubernetes-preserve-unknown-fields`, `x-kubernetes-int-or-string`,
//! `x-kubernetes-embedded-resource`. Sources: `kube-openapi/pkg/util/proto`,
//! `structured-merge-diff/schema/elements.go`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::status::{Result, Status};

/// How deep schemas may nest.
const DEPTH_MAX: usize = 64;

/// The schema of a kind, or of a part of it, as far as patches and apply ask for it: which lists are merged, by which
/// fields. Objects are neither validated by it nor filled in: for that there are the hooks of a
/// [`Strategy`](super::Strategy), as [`validate`](super::Strategy::validate) and
/// [`apply_defaults`](super::Strategy::apply_defaults). Only what is applied has to be of the types that it says.
///
/// Of a schema of OpenAPI these words are read, and all others (`required`, `enum`, `minimum`, `oneOf`, ..) passed over:
///
/// | word | for |
/// | --- | --- |
/// | `type`, `format` (`int-or-string`), `x-kubernetes-int-or-string` | what may be applied |
/// | `properties`, `additionalProperties`, `items`, `allOf` with one part | the parts |
/// | `default` | [`default_value`](Self::default_value), by which items of a list without their key are known to apply |
/// | `x-kubernetes-list-type`, `-list-map-keys`, `-map-type` | how apply merges |
/// | `x-kubernetes-patch-strategy`, `-patch-merge-key` | how strategic merge patches do; apply, too, of a list without a type |
/// | `x-kubernetes-preserve-unknown-fields`, `-embedded-resource` | whether there may be fields that it does not name |
///
/// Strategic merge patches know nothing of `x-kubernetes-list-type`: a list without `x-kubernetes-patch-strategy: merge` is
/// replaced by them, as it is in Kubernetes.
///
/// ```
/// use annals::object::{ListType, Schema};
///
/// let schema = Schema::from_openapi(&serde_json::json!({
///     "type": "object",
///     "properties": {"ports": {
///         "type": "array",
///         "items": {"type": "object", "properties": {"port": {"type": "integer"}}},
///         "x-kubernetes-list-type": "map",
///         "x-kubernetes-list-map-keys": ["port"],
///     }},
/// }))?;
/// let ports = schema.field("ports").expect("it has ports");
/// assert_eq!(ports.list_type(), &ListType::Map(vec!["port".into()]));
/// # Ok::<(), annals::object::Status>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    shape: Shape,
    list_type: ListType,
    is_atomic_map: bool,
    patch_strategy: Vec<PatchStrategy>,
    patch_merge_key: Option<String>,
    default: Option<Value>,
}

/// What a value may be.
#[derive(Clone, Debug, Default, PartialEq)]
enum Shape {
    /// Anything.
    #[default]
    Any,
    Scalar(Scalar),
    /// With fields of its own, or any fields of one schema.
    Object {
        fields: BTreeMap<String, Schema>,
        others: Option<Box<Schema>>,
        keeps_unknown: bool,
    },
    List(Box<Schema>),
}

/// What a single value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scalar {
    /// A text.
    String,
    /// A number without a fraction.
    Integer,
    /// Any number.
    Number,
    /// True or false.
    Boolean,
    /// A number without a fraction, or a text.
    IntOrString,
}

/// How lists are merged by apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "OpenAPI has these three")]
pub enum ListType {
    /// As a whole.
    #[default]
    Atomic,
    /// Each scalar stands for itself, once.
    Set,
    /// Each item is an object that these fields name.
    Map(Vec<String>),
}

/// What strategic merge patches do with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "strategic merge patch has these three")]
pub enum PatchStrategy {
    /// The items of a list are merged.
    Merge,
    /// The field is replaced.
    Replace,
    /// `$retainKeys` says which keys stay.
    RetainKeys,
}

impl Schema {
    /// A schema that allows everything and merges no list.
    pub fn any() -> Self {
        Self::default()
    }

    /// Of a schema of OpenAPI, version 2 or 3, in which references have been resolved.
    ///
    /// # Errors
    ///
    /// 400 for a schema that contradicts itself, nests deeper than 64, or has a reference.
    pub fn from_openapi(schema: &Value) -> Result<Self> {
        Self::read(schema, 0)
    }

    fn read(schema: &Value, depth: usize) -> Result<Self> {
        let bad = |what: &str| Status::bad_request(format!("schema: {what}"));
        if depth > DEPTH_MAX {
            return Err(bad("it nests deeper than 64"));
        }
        if schema.get("$ref").is_some() {
            return Err(bad("a reference has not been resolved"));
        }
        // Kubernetes wraps what was a reference in a list of one.
        if let Some([only]) = schema["allOf"].as_array().map(Vec::as_slice) {
            let mut merged = only.clone();
            if let (Some(merged), Some(outer)) = (merged.as_object_mut(), schema.as_object()) {
                let outer = outer.iter().filter(|(name, _)| *name != "allOf");
                merged.extend(outer.map(|(name, value)| (name.clone(), value.clone())));
            }
            return Self::read(&merged, depth + 1);
        }
        let is = |name: &str| schema[name].as_bool() == Some(true);
        let strings = |name: &str| -> Vec<String> {
            let values = schema[name].as_array().into_iter().flatten();
            values.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let kind = schema["type"].as_str();
        let shape = if is("x-kubernetes-int-or-string") || schema["format"] == "int-or-string" {
            Shape::Scalar(Scalar::IntOrString)
        } else {
            match kind {
                Some("string") => Shape::Scalar(Scalar::String),
                Some("integer") => Shape::Scalar(Scalar::Integer),
                Some("number") => Shape::Scalar(Scalar::Number),
                Some("boolean") => Shape::Scalar(Scalar::Boolean),
                Some("array") => {
                    let items = schema.get("items").ok_or_else(|| bad("an array without items"))?;
                    Shape::List(Box::new(Self::read(items, depth + 1)?))
                }
                Some("object") => Self::object(schema, depth)?,
                None if schema.get("properties").is_some() => Self::object(schema, depth)?,
                None => Shape::Any,
                Some(other) => return Err(bad(&format!("no such type: {other:?}"))),
            }
        };
        let mut patch_strategy = Vec::new();
        let named = schema["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
        for name in named.split(',').filter(|name| !name.is_empty()) {
            patch_strategy.push(match name {
                "merge" => PatchStrategy::Merge,
                "replace" => PatchStrategy::Replace,
                "retainKeys" => PatchStrategy::RetainKeys,
                other => return Err(bad(&format!("no such patch strategy: {other:?}"))),
            });
        }
        let patch_merge_key = schema["x-kubernetes-patch-merge-key"].as_str().map(str::to_owned);
        let list_type = match schema["x-kubernetes-list-type"].as_str() {
            None => Self::list_type_of_patches(&shape, &patch_strategy, patch_merge_key.as_deref()),
            Some("atomic") => ListType::Atomic,
            Some("set") => ListType::Set,
            Some("map") => match strings("x-kubernetes-list-map-keys") {
                keys if keys.is_empty() => return Err(bad("a list of type map without its keys")),
                keys => ListType::Map(keys),
            },
            Some(other) => return Err(bad(&format!("no such list type: {other:?}"))),
        };
        if list_type != ListType::Atomic && !matches!(shape, Shape::List(_)) {
            return Err(bad("a list type where there is no list"));
        }
        let is_atomic_map = match schema["x-kubernetes-map-type"].as_str() {
            None | Some("granular") => false,
            Some("atomic") => true,
            Some(other) => return Err(bad(&format!("no such map type: {other:?}"))),
        };
        let default = schema.get("default").cloned();
        Ok(Self { shape, list_type, is_atomic_map, patch_strategy, patch_merge_key, default })
    }

    /// How lists are merged whose type is not said, but how patches merge them: older schemas have no more.
    fn list_type_of_patches(
        shape: &Shape,
        strategy: &[PatchStrategy],
        merge_key: Option<&str>,
    ) -> ListType {
        match (shape, merge_key) {
            (Shape::List(_), _) if !strategy.contains(&PatchStrategy::Merge) => ListType::Atomic,
            (Shape::List(_), Some(key)) => ListType::Map(vec![key.into()]),
            (Shape::List(items), None) if items.scalar().is_some() => ListType::Set,
            _ => ListType::Atomic,
        }
    }

    /// That of `metadata`: `ObjectMeta` of `k8s.io/apimachinery`. Strategic merge patches take it for all kinds, applies for
    /// those whose schema does not say more than that it is there.
    pub(super) fn object_meta() -> &'static Self {
        static OBJECT_META: LazyLock<Schema> = LazyLock::new(|| {
            let text = json!({"type": "string"});
            let texts = json!({"type": "object", "additionalProperties": text});
            let number = json!({"type": "integer"});
            let flag = json!({"type": "boolean"});
            let owner = json!({
                "type": "object",
                "properties": {
                    "apiVersion": text, "kind": text, "name": text, "uid": text,
                    "controller": flag, "blockOwnerDeletion": flag,
                },
                "x-kubernetes-map-type": "atomic",
            });
            let schema = json!({"type": "object", "properties": {
                "name": text, "generateName": text, "namespace": text, "selfLink": text, "uid": text,
                "resourceVersion": text, "generation": number,
                "creationTimestamp": text, "deletionTimestamp": text,
                "deletionGracePeriodSeconds": number,
                "labels": texts, "annotations": texts,
                "finalizers": {
                    "type": "array", "items": text,
                    "x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge",
                },
                "ownerReferences": {
                    "type": "array", "items": owner,
                    "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
                    "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "uid",
                },
                "managedFields": {"type": "array", "items": {"type": "object"}},
            }});
            Schema::from_openapi(&schema).unwrap_or_default()
        });
        &OBJECT_META
    }

    fn object(schema: &Value, depth: usize) -> Result<Shape> {
        let mut fields = BTreeMap::new();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            fields.insert(name.clone(), Self::read(field, depth + 1)?);
        }
        let others = match schema.get("additionalProperties") {
            None | Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(Box::new(Self::any())),
            Some(others) => Some(Box::new(Self::read(others, depth + 1)?)),
        };
        let unknown = &schema["x-kubernetes-preserve-unknown-fields"];
        let embedded = &schema["x-kubernetes-embedded-resource"];
        // What says nothing of its fields allows all, as in the schemas of built-in kinds.
        let keeps_unknown = unknown.as_bool() == Some(true)
            || embedded.as_bool() == Some(true)
            || (fields.is_empty() && others.is_none());
        Ok(Shape::Object { fields, others, keeps_unknown })
    }

    /// The schema of a field of an object: its own, or that of all others. `None` where the schema does not
    /// know the field.
    pub fn field(&self, name: &str) -> Option<&Self> {
        let Shape::Object { fields, others, .. } = &self.shape else { return None };
        fields.get(name).or(others.as_deref())
    }

    /// The schema of a field that the object has by name.
    pub fn named_field(&self, name: &str) -> Option<&Self> {
        match &self.shape {
            Shape::Object { fields, .. } => fields.get(name),
            _ => None,
        }
    }

    /// The schema of the items of a list.
    pub fn items(&self) -> Option<&Self> {
        match &self.shape {
            Shape::List(items) => Some(items),
            _ => None,
        }
    }

    /// Whether it says nothing of what there may be.
    pub fn is_any(&self) -> bool {
        self.shape == Shape::Any
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        matches!(self.shape, Shape::Object { .. })
    }

    /// What single value it is; `None` for objects, lists and anything.
    pub fn scalar(&self) -> Option<Scalar> {
        match self.shape {
            Shape::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// Whether an object may have fields that the schema does not know.
    pub fn keeps_unknown(&self) -> bool {
        match &self.shape {
            Shape::Any => true,
            Shape::Object { keeps_unknown, .. } => *keeps_unknown,
            _ => false,
        }
    }

    /// How the list is merged by apply: as its type says, or else as patches merge it.
    pub fn list_type(&self) -> &ListType {
        &self.list_type
    }

    /// Whether the object is replaced as a whole.
    pub fn is_atomic_map(&self) -> bool {
        self.is_atomic_map
    }

    /// What strategic merge patches do with it; empty for what they do with anything.
    pub fn patch_strategy(&self) -> &[PatchStrategy] {
        &self.patch_strategy
    }

    /// The field by which strategic merge patches know the items of a list.
    pub fn patch_merge_key(&self) -> Option<&str> {
        self.patch_merge_key.as_deref()
    }

    /// What it is where nothing is said.
    pub fn default_value(&self) -> Option<&Value> {
        self.default.as_ref()
    }
}

#[cfg(test)]
mod tests;
