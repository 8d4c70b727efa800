//! JSON values: equality and order where numbers count by what they are worth (1 is 1.0), how deep values may nest,
//! and how they are shown.
//!
//! Keys of list items come from objects (where 80 is an integer), from the defaults of schemas (where it may
//! be 80.0) and from managed fields (where Kubernetes reads every number as a float); they must meet.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};

use serde_json::{Number, Value};

/// How deep JSON may nest that is to be read again: `serde_json` reads no deeper.
pub(super) const JSON_DEPTH_MAX: usize = 127;

/// How deep objects may nest, apart from their managed fields: those nest deeper than what they tell of, and no
/// deeper than JSON may.
pub(super) const DEPTH_MAX: usize = 120;

/// Whether two values are worth the same.
pub(super) fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(name, one)| other.get(name).is_some_and(|other| equal(one, other)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Number(one), Value::Number(other)) => compare_numbers(one, other).is_eq(),
        _ => one == other,
    }
}

/// A total order that agrees with [`equal`]: numbers, texts, booleans, lists, objects, null.
pub(super) fn compare(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => compare_numbers(one, other),
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Array(one), Value::Array(other)) => {
            let pairs = one.iter().zip(other).map(|(one, other)| compare(one, other));
            first_difference(pairs).then(one.len().cmp(&other.len()))
        }
        (Value::Object(one), Value::Object(other)) => {
            // Not every map of JSON is in order: it depends on a feature of serde_json.
            let mut one: Vec<_> = one.iter().collect();
            let mut other: Vec<_> = other.iter().collect();
            one.sort_unstable_by_key(|(name, _)| *name);
            other.sort_unstable_by_key(|(name, _)| *name);
            let pairs = one
                .iter()
                .zip(&other)
                .map(|(one, other)| one.0.cmp(other.0).then_with(|| compare(one.1, other.1)));
            first_difference(pairs).then(one.len().cmp(&other.len()))
        }
        _ => rank(one).cmp(&rank(other)),
    }
}

/// The order of two lists whose parts have these.
pub(super) fn first_difference(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Exact, also where a float stands against an integer that no float can be: otherwise the order would not
/// be transitive.
fn compare_numbers(one: &Number, other: &Number) -> Ordering {
    match (integer(one), integer(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(one), None) => compare_with_float(one, float(other)),
        (None, Some(other)) => compare_with_float(other, float(one)).reverse(),
        (None, None) => float(one).total_cmp(&float(other)),
    }
}

/// The integer that a number is; floats without a fraction are integers, too.
fn integer(number: &Number) -> Option<i128> {
    if let Some(integer) = number.as_i64() {
        return Some(integer.into());
    }
    if let Some(integer) = number.as_u64() {
        return Some(integer.into());
    }
    let float = float(number);
    // 2 to the 100th fits i128 and is far above what the other integers can be.
    let is_integer = float.trunc().total_cmp(&float).is_eq() && float.abs() < 2f64.powi(100);
    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction and is in range")]
    is_integer.then_some(float as i128)
}

fn float(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::MAX)
}

/// `float` has a fraction or is beyond every integer here.
fn compare_with_float(integer: i128, float: f64) -> Ordering {
    if float >= 2f64.powi(100) {
        return Ordering::Less;
    }
    if float <= -2f64.powi(100) {
        return Ordering::Greater;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is in range, and floor takes the fraction"
    )]
    let floor = float.floor() as i128;
    // What has a fraction lies above its floor.
    if integer <= floor { Ordering::Less } else { Ordering::Greater }
}

/// The number as it is written in keys: 2.0 as 2, as Go writes it.
pub(super) fn canonical(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let written = integer(number).and_then(|integer| i64::try_from(integer).ok());
            written.map_or_else(|| value.clone(), Value::from)
        }
        _ => value.clone(),
    }
}

/// Whether a value nests at most so deep; a scalar nests 0 deep.
pub(super) fn is_within_depth(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => {
            depth > 0 && items.iter().all(|item| is_within_depth(item, depth - 1))
        }
        Value::Object(fields) => {
            depth > 0 && fields.values().all(|field| is_within_depth(field, depth - 1))
        }
        _ => true,
    }
}

/// Whether an object nests no deeper than it may: its managed fields as deep as JSON can be read, all else
/// [`DEPTH_MAX`] deep.
pub(super) fn is_object_within_depth(object: &Value) -> bool {
    let is_within = |name: &str, field: &Value| match field {
        Value::Object(metadata) if name == "metadata" => metadata.iter().all(|(name, field)| {
            let above = 2;
            let depth = if name == "managedFields" { JSON_DEPTH_MAX } else { DEPTH_MAX };
            is_within_depth(field, depth - above)
        }),
        field => is_within_depth(field, DEPTH_MAX - 1),
    };
    match object {
        Value::Object(fields) => fields.iter().all(|(name, field)| is_within(name, field)),
        other => is_within_depth(other, DEPTH_MAX),
    }
}

/// The beginning of a text, for a message: what is beyond is not even made.
pub(super) fn shown(what: &impl fmt::Display, chars_max: usize) -> String {
    struct Beginning {
        text: String,
        left: usize,
    }
    impl fmt::Write for Beginning {
        fn write_str(&mut self, more: &str) -> fmt::Result {
            let Some((end, _)) = more.char_indices().nth(self.left) else {
                self.left -= more.chars().count();
                self.text.push_str(more);
                return Ok(());
            };
            self.text.push_str(&more[..end]);
            self.text.push_str("...");
            self.left = 0;
            Err(fmt::Error)
        }
    }
    let mut beginning = Beginning { text: String::new(), left: chars_max };
    // It ends where there is enough.
    let _ = write!(beginning, "{what}");
    beginning.text
}

/// What type of JSON a value is: for messages that must not tell what is stored.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "map",
    }
}

/// Why a value is none of a type, without the texts that stand in it: they may be secrets, and of any length.
pub(super) fn without_texts(bad: &serde_json::Error) -> String {
    const SHOWN_MAX: usize = 500;
    let mut why = bad.to_string();
    for (begin, end, left) in
        [(" string \"", "\", expected ", 7), (" variant `", "`, expected ", 8)]
    {
        if let Some(from) = why.find(begin)
            && let Some(to) = why.rfind(end)
            && from < to
        {
            why.replace_range(from + left..=to, "");
        }
    }
    shown(&why, SHOWN_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn scalar() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            (-3i8..3).prop_map(|n| Value::from(f64::from(n) / 2.0)),
            (0u32..70).prop_map(|n| Value::from(2f64.powi(n.cast_signed()))),
            (0u32..64).prop_map(|n| Value::from((1u64 << n) + 1)),
            any::<bool>().prop_map(Value::from),
            "[ab]{0,2}".prop_map(Value::from),
            Just(Value::Null),
        ]
    }

    #[test]
    fn numbers_count_by_what_they_are_worth() {
        for (one, other, order) in [
            (json!(1), json!(1.0), Ordering::Equal),
            (json!(0), json!(-0.0), Ordering::Equal),
            (json!(1), json!(1.5), Ordering::Less),
            (json!(-1), json!(-1.5), Ordering::Greater),
            (json!(u64::MAX), json!(18_446_744_073_709_552_000.0), Ordering::Less),
            (json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992.0), Ordering::Greater),
            (json!(1e300), json!(u64::MAX), Ordering::Greater),
            (json!(-1e300), json!(i64::MIN), Ordering::Less),
        ] {
            assert_eq!(compare(&one, &other), order, "{one} {other}");
            assert_eq!(equal(&one, &other), order.is_eq(), "{one} {other}");
        }
        assert_eq!(canonical(&json!(2.0)).to_string(), "2");
        assert_eq!(canonical(&json!(2.5)).to_string(), "2.5");
    }

    #[test]
    fn the_beginning_of_a_text_is_shown() {
        for (text, chars, expected) in [
            ("", 0, ""),
            ("abc", 3, "abc"),
            ("abcd", 3, "abc..."),
            ("\u{e4}\u{e4}", 1, "\u{e4}..."),
        ] {
            assert_eq!(shown(&text, chars), expected);
        }
        assert_eq!(shown(&json!({"a": [1, 2]}), 6), "{\"a\":[...");
    }

    #[test]
    fn managed_fields_nest_deeper_than_the_rest() {
        let deep = |depth: usize| (0..depth).fold(json!(1), |of, _| json!([of]));
        for (metadata, managed, other) in
            [(DEPTH_MAX, 0, 0), (0, JSON_DEPTH_MAX, 0), (0, 0, DEPTH_MAX), (0, 0, 0)]
        {
            let object = |more: usize| {
                json!({"spec": deep((other + more).saturating_sub(1)), "metadata": {
                    "managedFields": deep((managed + more).saturating_sub(2)),
                    "labels": deep((metadata + more).saturating_sub(2)),
                }})
            };
            assert!(is_object_within_depth(&object(0)));
            assert_eq!(is_object_within_depth(&object(1)), metadata + managed + other == 0);
        }
        assert!(!is_object_within_depth(&deep(DEPTH_MAX + 1)));
    }

    proptest! {
        #[test]
        fn the_order_is_total(a in scalar(), b in scalar(), c in scalar()) {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            prop_assert_eq!(equal(&a, &b), compare(&a, &b).is_eq());
            if compare(&a, &b).is_le() && compare(&b, &c).is_le() {
                prop_assert!(compare(&a, &c).is_le());
            }
            prop_assert!(equal(&a, &canonical(&a)));
        }
    }
}
