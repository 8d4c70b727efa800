//! Field selectors: fields of an object that have to be, or not to be, certain texts.

use std::fmt;

use crate::object::status::{Result, Status};

/// Which objects are meant, by their fields.
///
/// Which fields of a kind can be asked for is the kind's to say; every kind has `metadata.name` and
/// `metadata.namespace`.
///
/// ```
/// use annals::object::FieldSelector;
///
/// let selector = FieldSelector::parse("metadata.name=web,status.phase!=Running")?;
/// let fields = |field: &str| match field {
///     "metadata.name" => Some("web".to_owned()),
///     "status.phase" => Some("Pending".to_owned()),
///     _ => None,
/// };
/// assert!(selector.matches(&fields));
/// assert_eq!(selector.requires_exact("metadata.name"), Some("web"));
/// assert_eq!(selector.requires_exact("status.phase"), None);
/// # Ok::<(), annals::object::Status>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

/// One field that a selector asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldRequirement {
    /// The path of the field, as `metadata.name`.
    pub field: String,
    /// What it has to be, or not to be.
    pub value: String,
    /// Whether it has to be that: `=` and `==`, not `!=`.
    pub is_equal: bool,
}

impl FieldSelector {
    /// The selector that means every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Of its text, as in the parameter `fieldSelector`: terms with commas between them, each
    /// `field=value`, `field==value` or `field!=value`. In values, `\`, `,` and `=` are written with a `\`
    /// before them. Empty terms are passed over.
    ///
    /// Takes time and memory in proportion to the text, and for the order of its terms.
    ///
    /// # Errors
    ///
    /// 400 for what is not such a text.
    pub fn parse(selector: &str) -> Result<Self> {
        let mut terms = split_terms(selector);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let Some((field, is_equal, value)) = split_term(term) else {
                let message = format!("invalid selector: '{selector}'; can't understand '{term}'");
                return Err(Status::bad_request(message));
            };
            let (field, value) = (field.to_owned(), unescape(value)?);
            requirements.push(FieldRequirement { field, value, is_equal });
        }
        Ok(Self { requirements })
    }

    /// Whether an object with these fields is meant. A field that is absent counts as empty.
    pub fn matches(&self, fields: &dyn Fn(&str) -> Option<String>) -> bool {
        self.requirements
            .iter()
            .all(|one| (fields(&one.field).unwrap_or_default() == one.value) == one.is_equal)
    }

    /// Whether it means every object.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// What this field has to be; `None` where that is not said.
    pub fn requires_exact(&self, field: &str) -> Option<&str> {
        let found = self.requirements.iter().find(|one| one.is_equal && one.field == field);
        found.map(|one| one.value.as_str())
    }

    /// What it asks for, in the order of the terms' texts.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }
}

/// The text that [`FieldSelector::parse`] reads.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, one) in self.requirements.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let operator = if one.is_equal { "=" } else { "!=" };
            write!(f, "{comma}{}{operator}{}", one.field, escape(&one.value))?;
        }
        Ok(())
    }
}

/// Splits at commas, except those with a `\` before them.
fn split_terms(selector: &str) -> Vec<&str> {
    let mut is_escaped = false;
    let at_comma = |c: char| {
        let splits = c == ',' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        splits
    };
    selector.split(at_comma).collect()
}

/// Field, whether it is to be equal, and value as written. The first operator splits: fields have no escapes.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let (at, _) = term.char_indices().find(|(at, c)| match c {
        '=' => true,
        '!' => term.as_bytes().get(at + 1) == Some(&b'='),
        _ => false,
    })?;
    let (field, rest) = term.split_at(at);
    let operators = [("!=", false), ("==", true), ("=", true)];
    operators
        .into_iter()
        .find_map(|(operator, is_equal)| Some((field, is_equal, rest.strip_prefix(operator)?)))
}

fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

fn unescape(value: &str) -> Result<String> {
    let bad = |what: String| Err(Status::bad_request(format!("invalid field selector: {what}")));
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                Some(other) => return bad(format!("invalid escape sequence: \\{other}")),
                None => return bad("invalid escape sequence: \\".into()),
            },
            // Go tells the number of the character.
            ',' | '=' => return bad(format!("unescaped character in value: {}", u32::from(c))),
            c => plain.push(c),
        }
    }
    Ok(plain)
}
