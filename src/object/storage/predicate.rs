//! Which objects of a list or a watch are wanted: `SelectionPredicate` of `k8s.io/apiserver/pkg/storage`.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::object::meta;
use crate::object::selector::{FieldSelector, LabelSelector};
use crate::object::status::Result;

/// Reads a field of an object, by the name that field selectors have for it; `None` is as good as empty.
pub type FieldsOf = Arc<dyn Fn(&Value, &str) -> Option<String> + Send + Sync>;

/// Which objects are wanted: those that both selectors mean.
///
/// ```
/// use annals::object::{FieldSelector, LabelSelector, Predicate};
/// use serde_json::json;
///
/// let wanted = Predicate {
///     label: LabelSelector::parse("app in (web, api)")?,
///     field: FieldSelector::parse("metadata.namespace=shop")?,
///     ..Predicate::everything()
/// };
/// assert!(wanted.matches(&json!({"metadata": {"namespace": "shop", "labels": {"app": "web"}}})));
/// assert!(!wanted.matches(&json!({"metadata": {"namespace": "test", "labels": {"app": "web"}}})));
/// # Ok::<(), annals::object::Status>(())
/// ```
#[derive(Clone, Default)]
#[expect(clippy::exhaustive_structs, reason = "to be made with what is wanted of it")]
pub struct Predicate {
    /// By labels.
    pub label: LabelSelector,
    /// By fields.
    pub field: FieldSelector,
    /// How the fields are read; `Objects` knows it. Without it an object has `metadata.name` and `metadata.namespace`.
    pub fields: Option<FieldsOf>,
}

impl Predicate {
    /// Every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Of the texts of both, as in the parameters `labelSelector` and `fieldSelector` of a request; empty for any.
    ///
    /// ```
    /// # use annals::object::{ListOptions, Predicate};
    /// let predicate = Predicate::parse("app in (web, api)", "metadata.namespace=shop")?;
    /// let options = ListOptions { predicate, limit: 500, ..ListOptions::default() };
    /// # Ok::<(), annals::object::Status>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`LabelSelector::parse`] and [`FieldSelector::parse`].
    pub fn parse(labels: &str, fields: &str) -> Result<Self> {
        let (label, field) = (LabelSelector::parse(labels)?, FieldSelector::parse(fields)?);
        Ok(Self { label, field, fields: None })
    }

    /// Whether it means every object.
    pub fn is_empty(&self) -> bool {
        self.label.is_empty() && self.field.is_empty()
    }

    /// Whether it means this one.
    pub fn matches(&self, object: &Value) -> bool {
        if !self.label.matches(object) {
            return false;
        }
        self.field.is_empty()
            || self.field.matches(&|field| match &self.fields {
                Some(read) => read(object, field),
                None => metadata(object, field),
            })
    }
}

fn metadata(object: &Value, field: &str) -> Option<String> {
    match field {
        "metadata.name" => Some(meta::name(object).into()),
        "metadata.namespace" => Some(meta::namespace(object).into()),
        _ => None,
    }
}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, field, .. } = self;
        f.debug_struct("Predicate").field("label", label).field("field", field).finish()
    }
}
