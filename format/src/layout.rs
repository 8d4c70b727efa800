//! The byte map of a fixed structure, as data: `SPEC.md` and the golden files are checked against it, so that text
//! and code cannot drift apart.

use std::fmt::Write as _;

/// One field of a fixed structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Where it starts, in bytes from the start of the structure.
    pub offset: usize,
    /// How many bytes it takes.
    pub bytes: usize,
    /// Its name in `SPEC.md` and in errors.
    pub name: &'static str,
}

/// Shorthand for the tables.
pub const fn field(offset: usize, bytes: usize, name: &'static str) -> Field {
    Field { offset, bytes, name }
}

/// The byte map of a fixed structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The structure's name in `SPEC.md`.
    pub structure: &'static str,
    /// Its fields, front to back, without gaps.
    pub fields: &'static [Field],
}

impl Layout {
    /// How many bytes the structure takes, or a compile error if its fields have gaps: use it as
    /// `const _: () = assert!(LAYOUT.bytes() == BYTES);`.
    ///
    /// # Panics
    /// If a field does not start where the one before it ends.
    pub const fn bytes(&self) -> usize {
        let mut end = 0;
        let mut index = 0;
        while index < self.fields.len() {
            assert!(self.fields[index].offset == end, "fields of a layout leave no gap");
            end += self.fields[index].bytes;
            index += 1;
        }
        end
    }

    /// The bytes as annotated hex, one line a field: `0008 +8  2a00000000000000  seq`.
    pub fn annotate(&self, bytes: &[u8]) -> String {
        let mut text = String::new();
        for field in self.fields {
            let end = field.offset.saturating_add(field.bytes).min(bytes.len());
            let value = bytes.get(field.offset..end).unwrap_or_default();
            let mut hex = String::with_capacity(value.len() * 2);
            for byte in value {
                // Writing to a string cannot fail.
                let _ = write!(hex, "{byte:02x}");
            }
            let _ = writeln!(
                text,
                "{:04x} +{:<3} {hex:<32}  {}",
                field.offset, field.bytes, field.name
            );
        }
        text
    }
}
