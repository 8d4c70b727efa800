//! Selectors: which objects of a list or a watch are meant, by their labels and by their fields.
//!
//! Syntax, checks and messages are those of `k8s.io/apimachinery/pkg/labels` and `pkg/fields`.
//!
//! - `validate`: what may be the key and the value of a label.
//! - `parse`: the text of a label selector, token by token.
//! - `label`: the label selector itself.
//! - `field`: the field selector.

mod field;
mod label;
mod parse;
#[cfg(test)]
mod tests;
pub(crate) mod validate;

pub use field::{FieldRequirement, FieldSelector};
pub use label::{LabelOperator, LabelRequirement, LabelSelector};
