//! Selectors: which objects of a list or a watch are meant, by their labels and by their fields.
//!
//! Syntax, checks and messages are those of `k8s.io/apimachinery/pkg/labels` and `pkg/fields`.
//!
//! - `parse`: the text of a label selector, token by token.
//! - `label`: the label selector itself.
//! - `field`: the field selector.

mod field;
mod label;
mod parse;
#[cfg(test)]
mod tests;

pub use field::{FieldRequirement, FieldSelector};
pub use label::{LabelOperator, LabelRequirement, LabelSelector};
