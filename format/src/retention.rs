//! A rule of retention: how long the versions of the keys with a prefix are kept.
//!
//! It is the value of a system key ([`space::Key::Retention`](crate::space::Key::Retention)). The
//! revision it has come to stands in it too, so that what a store has refused once is refused for
//! ever, also where nobody knows any more why.

use crate::cursor::{Reader, Writer};
use crate::error::{Problem, Result};
use crate::layout::{Layout, field};

/// The value of a rule of retention.
pub const VALUE_LAYOUT: Layout = Layout {
    structure: "retention value",
    fields: &[
        field(0, 1, "flags"),
        field(1, 8, "revisions"),
        field(9, 8, "age"),
        field(17, 8, "floor"),
    ],
};

/// The last `revisions` revisions are kept.
pub const FLAG_REVISIONS: u8 = 1;
/// What is younger than `age` is kept.
pub const FLAG_AGE: u8 = 2;
/// The rule was taken back, but the keys have a floor of their own yet.
pub const FLAG_REMOVED: u8 = 4;

const _: () = assert!(VALUE_LAYOUT.bytes() == 25);

/// How long the keys with a prefix are kept, and what is gone already. Neither `revisions` nor `age`:
/// for ever; both: as long as either says.
///
/// ```
/// use annals_format::retention::Rule;
///
/// let hour = Rule { age: Some(3_600_000_000), ..Rule::default() };
/// assert_eq!(Rule::decode(&hour.encode()), Ok(hour));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "another field is another format version")]
pub struct Rule {
    /// How many revisions before the newest are kept.
    pub revisions: Option<u64>,
    /// How old a state can be and still be kept, in microseconds.
    pub age: Option<u64>,
    /// Taken back: the keys are kept as if there was no such rule, from the floor on.
    pub removed: bool,
    /// The oldest revision at which the keys can be read; 0 if no rule has come to one.
    pub floor: u64,
}

impl Rule {
    /// The value of the record.
    pub fn encode(&self) -> Vec<u8> {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let mut bytes = Vec::with_capacity(VALUE_LAYOUT.bytes());
        bytes.put_u8(
            flag(self.revisions.is_some(), FLAG_REVISIONS)
                | flag(self.age.is_some(), FLAG_AGE)
                | flag(self.removed, FLAG_REMOVED),
        );
        for number in [self.revisions.unwrap_or(0), self.age.unwrap_or(0), self.floor] {
            bytes.put_bytes(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(value: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(VALUE_LAYOUT.structure, value);
        let flags = reader.u8("flags")?;
        if flags & !(FLAG_REVISIONS | FLAG_AGE | FLAG_REMOVED) != 0 {
            let found = u64::from(flags);
            return Err(reader.error_at("flags", 0, Problem::Invalid { found }));
        }
        let mut number = |field: &'static str, flag: u8| -> Result<Option<u64>> {
            let at = reader.position();
            let number = reader.array(field).map(u64::from_le_bytes)?;
            if flags & flag == 0 && number != 0 {
                return Err(reader.error_at(field, at, Problem::Invalid { found: number }));
            }
            Ok((flags & flag != 0).then_some(number))
        };
        let revisions = number("revisions", FLAG_REVISIONS)?;
        let age = number("age", FLAG_AGE)?;
        let floor_at = reader.position();
        let floor = reader.array("floor").map(u64::from_le_bytes)?;
        if floor > crate::limits::NUMBER_MAX {
            return Err(reader.error_at("floor", floor_at, Problem::Invalid { found: floor }));
        }
        reader.finish()?;
        Ok(Self { revisions, age, removed: flags & FLAG_REMOVED != 0, floor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_round_trips() {
        let both = Rule { revisions: Some(0), age: Some(u64::MAX), removed: false, floor: 1 << 62 };
        for rule in [Rule::default(), both, Rule { removed: true, floor: 7, ..Rule::default() }] {
            let bytes = rule.encode();
            assert_eq!(Rule::decode(&bytes), Ok(rule));
            for cut in 0..bytes.len() {
                Rule::decode(&bytes[..cut]).unwrap_err();
            }
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        let problem = |bytes: &[u8]| Rule::decode(bytes).unwrap_err().problem;
        let mut bytes = Rule::default().encode();
        bytes[0] = 8;
        assert_eq!(problem(&bytes), Problem::Invalid { found: 8 });
        // A number that no flag announces would be lost when it is written again.
        bytes[0] = FLAG_AGE;
        bytes[1] = 5;
        assert_eq!(problem(&bytes), Problem::Invalid { found: 5 });
        let above = Rule { floor: (1 << 62) + 1, ..Rule::default() }.encode();
        assert_eq!(problem(&above), Problem::Invalid { found: (1 << 62) + 1 });
        let long = [&Rule::default().encode()[..], b"x"].concat();
        assert_eq!(problem(&long), Problem::Trailing { bytes: 1 });
    }
}
