//! Objects as clients send them: what they say twice, and what their kind does not know.
//!
//! Facts from `sigs.k8s.io/json` and `k8s.io/apiserver/pkg/endpoints/handlers`.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};

use super::apply::Type;
use super::schema::Schema;
use super::status::{Cause, Result, Status};
use super::value;

/// So many problems of one object are told.
const PROBLEMS_MAX: usize = 100;

/// How many characters of a path are shown.
const PATH_CHARS_MAX: usize = 1_000;

/// What becomes of an object with fields that are said twice, or that its schema does not know: `fieldValidation` of a
/// request.
///
/// What is taken is taken whole: of a field that is said twice the last one, and unknown fields as they are.
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_enums, reason = "Kubernetes has these three")]
pub enum FieldValidation {
    /// It is taken.
    #[default]
    Ignore,
    /// It is taken, and its fields are told here.
    Warn(Warnings),
    /// It is refused.
    Strict,
}

/// What a client is told beside the answer, in headers `Warning`; [`FieldValidation::take_warnings`] has them. A clone is
/// another handle on the same.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, warnings: Vec<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = warnings;
    }
}

impl FieldValidation {
    /// What a parameter of a request says: `Ignore`, `Warn` or `Strict`; an API server warns where it says nothing.
    ///
    /// ```
    /// use annals::object::FieldValidation;
    ///
    /// assert!(matches!(FieldValidation::parse("")?, FieldValidation::Warn(_)));
    /// assert_eq!(FieldValidation::parse("strict").unwrap_err().code(), 422);
    /// # Ok::<(), annals::object::Status>(())
    /// ```
    ///
    /// # Errors
    ///
    /// 422 for any other.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "Ignore" => Ok(Self::Ignore),
            "" | "Warn" => Ok(Self::Warn(Warnings::default())),
            "Strict" => Ok(Self::Strict),
            _ => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                let cause = Cause::not_supported("fieldValidation", &name.into(), &supported);
                Err(Status::invalid("meta.k8s.io", "Options", "", vec![cause]))
            }
        }
    }

    /// Takes out what has been found out so far that a client is to be told, in order: nothing is told twice.
    pub fn take_warnings(&self) -> Vec<String> {
        match self {
            Self::Warn(warnings) => warnings.take(),
            Self::Ignore | Self::Strict => Vec::new(),
        }
    }

    /// Whether nobody wants to know.
    pub(super) fn is_ignore(&self) -> bool {
        matches!(self, Self::Ignore)
    }

    /// Warns of problems, or else refuses them with what `refuse` makes of their list. What a loop has found before is not
    /// told any more.
    pub(super) fn judge(
        &self,
        problems: Vec<String>,
        refuse: impl FnOnce(String) -> Status,
    ) -> Result<()> {
        match self {
            Self::Warn(warnings) => warnings.set(problems),
            Self::Strict if !problems.is_empty() => return Err(refuse(problems.join(", "))),
            Self::Strict | Self::Ignore => {}
        }
        Ok(())
    }
}

/// What is wrong with the fields of JSON that is read: nothing for what is no JSON.
pub(super) fn problems_of_text(json: &[u8], schema: &Schema) -> Vec<String> {
    problems(&mut serde_json::Deserializer::from_slice(json), Type::root(schema))
}

/// What is wrong with the fields of an object, and was not with what it was made of.
pub(super) fn new_problems(before: &Value, after: &Value, schema: &Schema) -> Vec<String> {
    let mut known = Problems { keeps_marks: true, ..Problems::default() };
    known.read(before, Type::root(schema));
    let mut found = Problems { known: known.known, ..Problems::default() };
    found.read(after, Type::root(schema));
    found.told
}

/// What a patch says twice, and of the operations of a JSON patch also what they do not know.
pub(super) fn problems_of_patch(patch: &[u8]) -> Vec<String> {
    let input = &mut serde_json::Deserializer::from_slice(patch);
    if patch.trim_ascii_start().first() != Some(&b'[') {
        return problems(input, Type::part(&Schema::any()));
    }
    let text = json!({"type": "string"});
    let operation = json!({
        "type": "object", "properties": {"op": text, "path": text, "from": text, "value": {}},
    });
    let schema = Schema::from_openapi(&json!({"type": "array", "items": operation}));
    let problems = problems(input, Type::part(&schema.unwrap_or_default()));
    problems.into_iter().map(|problem| format!("json patch {problem}")).collect()
}

fn problems<'de>(input: impl Deserializer<'de>, of: Type<'_>) -> Vec<String> {
    let mut found = Problems::default();
    found.read(input, of);
    found.told
}

/// What has been found, and where the reader is.
#[derive(Default)]
struct Problems {
    path: String,
    told: Vec<String>,
    /// The marks of what is not told. There may be as many as an object has fields, of which the texts would take too much.
    known: HashSet<u64>,
    /// Whether all that is found gets a mark, and is not told.
    keeps_marks: bool,
}

impl Problems {
    fn read<'de>(&mut self, input: impl Deserializer<'de>, of: Type<'_>) {
        // What cannot be read has been refused before, or will be.
        let _ = Part { of: Some(of), depth: 0, found: self }.deserialize(input);
    }

    fn tell(&mut self, what: &str) {
        let problem = format!("{what} field \"{}\"", value::shown(&self.path, PATH_CHARS_MAX));
        let mut mark = DefaultHasher::new();
        problem.hash(&mut mark);
        let mark = mark.finish();
        if self.keeps_marks {
            self.known.insert(mark);
            return;
        }
        if self.known.contains(&mark) {
            return;
        }
        if self.told.len() < PROBLEMS_MAX && !self.told.contains(&problem) {
            self.told.push(problem);
        }
    }
}

/// A part of an object that is read: of a type, or of none where nothing can be unknown any more.
struct Part<'a> {
    of: Option<Type<'a>>,
    depth: usize,
    found: &'a mut Problems,
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { of, depth, found } = self;
        let depth = deeper(depth)?;
        let of = of.filter(Type::has_fields);
        let length = found.path.len();
        let mut seen = std::collections::BTreeSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if length > 0 {
                found.path.push('.');
            }
            found.path.push_str(&name);
            let field = of.and_then(|of| of.declared(&name));
            if seen.contains(&name) {
                found.tell("duplicate");
            } else if of.is_some() && field.is_none() {
                found.tell("unknown");
            }
            seen.insert(name);
            map.next_value_seed(Part { of: field, depth, found: &mut *found })?;
            found.path.truncate(length);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self { of, depth, found } = self;
        let depth = deeper(depth)?;
        let of = of.map(|of| of.items());
        let length = found.path.len();
        for at in 0_usize.. {
            // Writing to a text cannot fail.
            let _ = write!(found.path, "[{at}]");
            let item = list.next_element_seed(Part { of, depth, found: &mut *found })?;
            found.path.truncate(length);
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

fn deeper<E: Error>(depth: usize) -> Result<usize, E> {
    if depth >= value::JSON_DEPTH_MAX {
        return Err(E::custom("it nests too deep"));
    }
    Ok(depth + 1)
}

#[cfg(test)]
mod tests;
