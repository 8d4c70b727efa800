//! Label selectors: requirements on the labels of an object, all of which it has to meet.

use std::fmt;

use serde_json::Value;

use super::parse::Parser;
use crate::object::meta;
use crate::object::names::{label_key, label_value};
use crate::object::status::{Result, Status};

/// Which objects are meant, by their labels.
///
/// ```
/// use annals::object::LabelSelector;
/// use serde_json::json;
///
/// let selector = LabelSelector::parse("app=web,tier in (front,back),!legacy")?;
/// let pod = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}});
/// assert!(selector.matches(&pod));
/// assert_eq!(selector.to_string(), "app=web,!legacy,tier in (back,front)");
/// # Ok::<(), annals::object::Status>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// In the order of their keys.
    requirements: Vec<LabelRequirement>,
}

/// One thing that a label selector asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    key: String,
    operator: LabelOperator,
    /// In order, each once.
    values: Vec<String>,
}

/// How a label and the values of a requirement have to be to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "label selectors have these nine")]
pub enum LabelOperator {
    /// The label is there and is one of the values.
    In,
    /// The label is absent, or is none of the values.
    NotIn,
    /// The label is there and is the value.
    Equals,
    /// As `Equals`, written `==`.
    DoubleEquals,
    /// The label is absent, or is not the value.
    NotEquals,
    /// The label is a whole number above the value.
    GreaterThan,
    /// The label is a whole number below the value.
    LessThan,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl LabelSelector {
    /// The selector that means every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// The selector that means no object: of a label that is there and is not, `nothing,!nothing`. (In Kubernetes it
    /// has the text of the selector of everything.)
    pub fn nothing() -> Self {
        let requirement = |operator| {
            let key = "nothing".to_owned();
            LabelRequirement { key, operator, values: Vec::new() }
        };
        let operators = [LabelOperator::Exists, LabelOperator::DoesNotExist];
        Self { requirements: operators.map(requirement).into() }
    }

    /// Of its text, as in the parameter `labelSelector`:
    ///
    /// ```text
    /// selector    := "" | requirement *( "," requirement )
    /// requirement := key | "!" key | key "in" values | key "notin" values
    ///              | key ( "=" | "==" | "!=" | ">" | "<" ) [ value ]
    /// values      := "(" [ value ] *( "," [ value ] ) ")"
    /// ```
    ///
    /// Space, tab, carriage return and newline may stand between tokens. `in` and `notin` are operators only behind a key;
    /// elsewhere they are keys and values as any other. Where no value stands, the value is empty. What is behind `>`
    /// and `<` is a whole number. The empty text means every object.
    ///
    /// Takes time and memory in proportion to the text, and for the order of requirements and values.
    ///
    /// # Errors
    ///
    /// 400 for what is not such a text, or has a key or a value that no label can have.
    pub fn parse(selector: &str) -> Result<Self> {
        let mut requirements = Parser::new(selector).parse()?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }

    /// Of the form that objects have in `spec.selector`: `matchLabels` and `matchExpressions`. `null` means
    /// no object, an empty selector every object.
    ///
    /// # Errors
    ///
    /// 400 for what is not such a selector, or has a key or a value that no label can have.
    pub fn from_json(selector: &Value) -> Result<Self> {
        if selector.is_null() {
            return Ok(Self::nothing());
        }
        let bad = |what: &str| Status::bad_request(format!("label selector: {what}"));
        let Some(selector) = selector.as_object() else { return Err(bad("it is not an object")) };
        let mut requirements = Vec::new();
        match selector.get("matchLabels") {
            None | Some(Value::Null) => {}
            Some(Value::Object(labels)) => {
                for (key, value) in labels {
                    let value = value.as_str().ok_or_else(|| bad("a label is not a string"))?;
                    let values = vec![value.to_owned()];
                    requirements.push(LabelRequirement::new(key, LabelOperator::Equals, values)?);
                }
            }
            Some(_) => return Err(bad("matchLabels is not an object")),
        }
        match selector.get("matchExpressions") {
            None | Some(Value::Null) => {}
            Some(Value::Array(expressions)) => {
                for expression in expressions {
                    requirements.push(LabelRequirement::from_json(expression)?);
                }
            }
            Some(_) => return Err(bad("matchExpressions is not a list")),
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }

    /// Whether this object is meant. A label that is not a string counts as absent.
    pub fn matches(&self, object: &Value) -> bool {
        self.requirements.iter().all(|one| one.matches(meta::label(object, &one.key)))
    }

    /// Whether it means every object.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// What it asks for, in the order of the keys.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }
}

/// The text that [`LabelSelector::parse`] reads; requirements in the order of their keys, values in order.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl LabelRequirement {
    /// A requirement; values in any order.
    ///
    /// # Errors
    ///
    /// 400 for a key or a value that no label can have, and for values that do not go with the operator.
    pub fn new(key: &str, operator: LabelOperator, mut values: Vec<String>) -> Result<Self> {
        values.sort();
        values.dedup();
        let mut wrong = Vec::new();
        let why = label_key(key);
        if !why.is_empty() {
            wrong.push(format!("key: Invalid value: {key:?}: {}", why.join("; ")));
        }
        if let Some(why) = operator.what_is_wrong(values.len()) {
            wrong.push(format!("values: Invalid value: {}: {why}", Value::from(values.clone())));
        }
        let is_number = matches!(operator, LabelOperator::GreaterThan | LabelOperator::LessThan);
        for (i, value) in values.iter().enumerate() {
            if is_number && value.parse::<i64>().is_err() {
                wrong.push(format!(
                    "values[{i}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be \
                     an integer"
                ));
            }
            let why = label_value(value);
            if !why.is_empty() {
                wrong.push(format!(
                    "values[{i}][{key}]: Invalid value: {value:?}: {}",
                    why.join("; ")
                ));
            }
        }
        match wrong.as_slice() {
            [] => Ok(Self { key: key.into(), operator, values }),
            [only] => Err(Status::bad_request(only)),
            more => Err(Status::bad_request(format!("[{}]", more.join(", ")))),
        }
    }

    fn from_json(expression: &Value) -> Result<Self> {
        let bad = |what: &str| Status::bad_request(format!("label selector: {what}"));
        let key = expression["key"].as_str().ok_or_else(|| bad("an expression without key"))?;
        let operator = match expression["operator"].as_str().unwrap_or_default() {
            "In" => LabelOperator::In,
            "NotIn" => LabelOperator::NotIn,
            "Exists" => LabelOperator::Exists,
            "DoesNotExist" => LabelOperator::DoesNotExist,
            other => {
                let message = format!("{other:?} is not a valid label selector operator");
                return Err(Status::bad_request(message));
            }
        };
        let mut values = Vec::new();
        match &expression["values"] {
            Value::Null => {}
            Value::Array(all) => {
                for value in all {
                    let value = value.as_str().ok_or_else(|| bad("a value is not a string"))?;
                    values.push(value.to_owned());
                }
            }
            _ => return Err(bad("the values of an expression are not a list")),
        }
        Self::new(key, operator, values)
    }

    /// The label that it is about.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How the label and the values have to be to each other.
    pub fn operator(&self) -> LabelOperator {
        self.operator
    }

    /// The values, in order.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let is_among =
            |label: &str| self.values.binary_search_by(|value| value.as_str().cmp(label)).is_ok();
        let value = self.values.first().map(String::as_str);
        match self.operator {
            LabelOperator::In | LabelOperator::Equals | LabelOperator::DoubleEquals => {
                label.is_some_and(is_among)
            }
            LabelOperator::NotIn | LabelOperator::NotEquals => {
                label.is_none_or(|label| !is_among(label))
            }
            LabelOperator::Exists => label.is_some(),
            LabelOperator::DoesNotExist => label.is_none(),
            LabelOperator::GreaterThan | LabelOperator::LessThan => {
                match (label.and_then(number), value.and_then(number)) {
                    (Some(label), Some(value)) if self.operator == LabelOperator::LessThan => {
                        label < value
                    }
                    (Some(label), Some(value)) => label > value,
                    _ => false,
                }
            }
        }
    }
}

/// As in the text of a selector.
impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            LabelOperator::In => write!(f, "{key} in ({values})"),
            LabelOperator::NotIn => write!(f, "{key} notin ({values})"),
            LabelOperator::Equals => write!(f, "{key}={values}"),
            LabelOperator::DoubleEquals => write!(f, "{key}=={values}"),
            LabelOperator::NotEquals => write!(f, "{key}!={values}"),
            LabelOperator::GreaterThan => write!(f, "{key}>{values}"),
            LabelOperator::LessThan => write!(f, "{key}<{values}"),
            LabelOperator::Exists => f.write_str(key),
            LabelOperator::DoesNotExist => write!(f, "!{key}"),
        }
    }
}

impl LabelOperator {
    /// Why there cannot be so many values.
    fn what_is_wrong(self, values: usize) -> Option<&'static str> {
        match self {
            Self::In | Self::NotIn if values == 0 => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Self::Equals | Self::DoubleEquals | Self::NotEquals if values != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Self::Exists | Self::DoesNotExist if values != 0 => {
                Some("values set must be empty for exists and does not exist")
            }
            Self::GreaterThan | Self::LessThan if values != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        }
    }
}
