//! JSON as a message, as the gateway of etcd 3.6 reads it: by the rules of Go's protojson.
//!
//! What the crate of descriptors reads by itself is more (fields that are given twice, numbers such as `"+5"`) and less
//! (`"1e2"`). Unknown fields and names of enumerations are passed over, and `null` is a field that is not given.

use std::fmt;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, Value,
};
use serde::de::{
    self, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use tonic::Status;

use crate::errors::{TOO_MANY_OPS, refuse};

/// Reads the first JSON value of a text as a message. A text without one is the empty message.
pub(crate) fn read(kind: &MessageDescriptor, text: &[u8]) -> Result<DynamicMessage, Status> {
    let blank = text.iter().all(u8::is_ascii_whitespace);
    if blank || text.trim_ascii_start().starts_with(b"null") {
        return Ok(DynamicMessage::new(kind.clone()));
    }
    let mut text = serde_json::Deserializer::from_slice(text);
    Message(kind).deserialize(&mut text).map_err(|error| {
        let text = error.to_string();
        if error.is_eof() {
            Status::invalid_argument("unexpected EOF")
        } else if text.starts_with("recursion limit exceeded") && kind.name() == "TxnRequest" {
            // Each of the transactions in it counts as an operation at least.
            refuse(TOO_MANY_OPS)
        } else {
            Status::invalid_argument(text)
        }
    })
}

struct Message<'a>(&'a MessageDescriptor);

impl<'de> DeserializeSeed<'de> for Message<'_> {
    type Value = DynamicMessage;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Message<'_> {
    type Value = DynamicMessage;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DynamicMessage, A::Error> {
        let mut message = DynamicMessage::new(self.0.clone());
        let mut seen = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let field = self.0.get_field_by_json_name(&name);
            let Some(field) = field.or_else(|| self.0.get_field_by_name(&name)) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if seen.contains(&field.number()) {
                return Err(Error::custom(format!("duplicate field {name:?}")));
            }
            seen.push(field.number());
            let Some(value) = map.next_value_seed(Field(&field))? else { continue };
            if let Some(oneof) = field.containing_oneof()
                && oneof.fields().any(|other| message.has_field(&other))
            {
                let name = oneof.full_name();
                return Err(Error::custom(format!("oneof {name} is already set")));
            }
            message.set_field(&field, value);
        }
        Ok(message)
    }
}

/// The value of a field; none for `null` and what is passed over.
struct Field<'a>(&'a FieldDescriptor);

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        if self.0.is_list() {
            from.deserialize_seq(List(self.0)).map(|list| Some(Value::List(list)))
        } else {
            One(self.0).deserialize(from)
        }
    }
}

struct List<'a>(&'a FieldDescriptor);

impl<'de> Visitor<'de> for List<'_> {
    type Value = Vec<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Value>, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = seq.next_element_seed(One(self.0))? {
            list.extend(value);
        }
        Ok(list)
    }
}

/// One value of a field, or of its list.
struct One<'a>(&'a FieldDescriptor);

impl<'de> DeserializeSeed<'de> for One<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        match self.0.kind() {
            Kind::Message(kind) => {
                Message(&kind).deserialize(from).map(|m| Some(Value::Message(m)))
            }
            _ => from.deserialize_any(self),
        }
    }
}

impl One<'_> {
    fn integer<E: Error>(&self, number: i128, told: &dyn fmt::Display) -> Result<Option<Value>, E> {
        let value = match self.0.kind() {
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => number.try_into().map(Value::I32),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => number.try_into().map(Value::I64),
            Kind::Uint32 | Kind::Fixed32 => number.try_into().map(Value::U32),
            Kind::Uint64 | Kind::Fixed64 => number.try_into().map(Value::U64),
            Kind::Enum(_) => number.try_into().map(Value::EnumNumber),
            _ => return Err(self.wrong(told)),
        };
        value.map(Some).map_err(|_| self.wrong(told))
    }

    fn wrong<E: Error>(&self, told: &dyn fmt::Display) -> E {
        let (kind, name) = (self.0.kind(), self.0.name());
        E::custom(format!("invalid value for {kind:?} field {name}: {told}"))
    }
}

impl Visitor<'_> for One<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of the field {}", self.0.name())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        match self.0.kind() {
            Kind::Bool => Ok(Some(Value::Bool(value))),
            _ => Err(self.wrong(&value)),
        }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        self.integer(value.into(), &value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        self.integer(value.into(), &value)
    }

    /// A number with a fraction or an exponent: it may be whole all the same.
    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        const BEYOND: f64 = 18_446_744_073_709_551_616.0;
        if value.fract() != 0.0 || value.abs() >= BEYOND {
            return Err(self.wrong(&value));
        }
        #[expect(clippy::cast_possible_truncation, reason = "it is whole, and not so large")]
        self.integer(value as i128, &value)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        match self.0.kind() {
            Kind::String => Ok(Some(Value::String(text.to_owned()))),
            Kind::Bytes => match bytes(text) {
                Some(bytes) => Ok(Some(Value::Bytes(bytes.into()))),
                None => Err(self.wrong(&"it is not base64")),
            },
            Kind::Enum(kind) => Ok(by_name(&kind, text)),
            Kind::Bool => Err(self.wrong(&format_args!("{text:?}"))),
            _ => match whole(text) {
                Some(number) => self.integer(number, &format_args!("{text:?}")),
                None => Err(self.wrong(&format_args!("{text:?}"))),
            },
        }
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Err(E::invalid_type(de::Unexpected::Unit, &self))
    }
}

fn by_name(kind: &EnumDescriptor, name: &str) -> Option<Value> {
    kind.get_value_by_name(name).map(|value| Value::EnumNumber(value.number()))
}

/// A number of JSON that is whole, however it is written: digits, then a fraction, then an exponent.
fn whole(text: &str) -> Option<i128> {
    /// More digits than any number of the protocol has.
    const DIGITS_MAX: usize = 20;
    let (is_negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (number, exponent) = match rest.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent_of(exponent)?),
        None => (rest, 0),
    };
    let (before, after) = match number.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (number, ""),
    };
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let leads = before.len() > 1 && before.starts_with('0');
    if before.is_empty() || leads || !all_digits(before) || !all_digits(after) {
        return None;
    }
    let digits = format!("{before}{after}");
    let (short, digits) = (digits.trim_end_matches('0'), &digits);
    if short.is_empty() {
        return Some(0);
    }
    let zeros = i64::try_from(digits.len() - short.len()).ok()?;
    let zeros = exponent + zeros - i64::try_from(after.len()).ok()?;
    let zeros = usize::try_from(zeros).ok()?;
    let short = short.trim_start_matches('0');
    if short.len().saturating_add(zeros) > DIGITS_MAX {
        return None;
    }
    let number: i128 = format!("{short}{}", "0".repeat(zeros)).parse().ok()?;
    Some(if is_negative { -number } else { number })
}

fn exponent_of(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    // So long that it cannot be meant, and short enough for what is counted above.
    let is_one =
        (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_one { text.parse().ok() } else { None }
}

/// Base64 in either alphabet; with its padding, or without any.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let alphabet = if text.contains(['-', '_']) { URL_SAFE } else { STANDARD };
    let padding = if text.len().is_multiple_of(4) {
        DecodePaddingMode::RequireCanonical
    } else {
        DecodePaddingMode::RequireNone
    };
    let config = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(padding);
    let engine = GeneralPurpose::new(&alphabet, config);
    if text.contains(['\r', '\n']) {
        // Go reads over the ends of lines.
        return engine.decode(text.replace(['\r', '\n'], "")).ok();
    }
    engine.decode(text).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use super::{bytes, read, whole};
    use crate::serve::calls::POOL;

    #[test]
    fn numbers_are_whole_or_none() {
        for (text, number) in [
            ("0", 0),
            ("-0", 0),
            ("0.000", 0),
            ("0e99", 0),
            ("5", 5),
            ("-5", -5),
            ("100", 100),
            ("1e2", 100),
            ("1E+2", 100),
            ("150e-1", 15),
            ("1.50e1", 15),
            ("0.05e2", 5),
            ("18446744073709551615", u64::MAX.into()),
            ("-9223372036854775808", i64::MIN.into()),
        ] {
            assert_eq!(whole(text), Some(number), "{text}");
        }
        for text in [
            "",
            "-",
            "+5",
            "05",
            " 5",
            "5 ",
            "1.",
            ".5",
            "1.5",
            "15e-1",
            "1e",
            "1e+",
            "1e-",
            "0x10",
            "e5",
            "1e2e3",
            "1e+-2",
            "1e999",
            "1e99999999999999999999",
            "100000000000000000000000",
            "NaN",
            "Infinity",
            "null",
        ] {
            assert_eq!(whole(text), None, "{text}");
        }
    }

    #[test]
    fn base64_of_both_kinds() {
        for (text, is_one) in [
            ("", true),
            ("YQ==", true),
            ("YQ", true),
            ("YR==", true),
            ("/+8=", true),
            ("_-8=", true),
            ("_-8", true),
            ("Y\nQ==", false),
            ("YQ\r\n==\r\n", true),
            ("YQ=", false),
            ("Y Q=", false),
            ("_+8=", false),
            ("Y", false),
        ] {
            assert_eq!(bytes(text).is_some(), is_one, "{text:?}");
        }
    }

    #[test]
    fn what_is_said_twice_is_refused() {
        let refused = |name: &str, text: &str| {
            let kind = POOL.get_message_by_name(&format!("etcdserverpb.{name}")).unwrap();
            let status = read(&kind, text.as_bytes()).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{text}");
            status.message().to_owned()
        };
        for text in [r#"{"key":"YQ==","key":"YQ=="}"#, r#"{"key":null,"key":"YQ=="}"#] {
            assert!(refused("RangeRequest", text).starts_with("duplicate field \"key\""), "{text}");
        }
        let text = r#"{"range_end":"YQ==","rangeEnd":"YQ=="}"#;
        assert!(refused("RangeRequest", text).starts_with("duplicate field \"rangeEnd\""));
        let text = r#"{"compare":[{"version":"0","mod_revision":"2"}]}"#;
        assert!(refused("TxnRequest", text).contains("target_union is already set"));
        let deep = r#"{"success":[{"request_txn":"#.repeat(3000);
        assert_eq!(refused("TxnRequest", &deep), "etcdserver: too many operations in txn request");
        let deep = r#"{"success":[{"nope":"#.repeat(3000);
        refused("TxnRequest", &deep);
    }
}
