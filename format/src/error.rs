//! What a decoder answers when bytes are not what they should be.

use std::fmt;

/// The answer of a decoder of this crate.
pub type Result<T, E = DecodeError> = std::result::Result<T, E>;

/// Bytes that are not a valid encoding: which structure, which field, where, and what is wrong.
///
/// The crate does no I/O, so the error names no file: whoever read the bytes adds the path and
/// the position of the slice in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// The structure being decoded, as it is called in `SPEC.md`.
    pub structure: &'static str,
    /// The field at fault, as it is called in `SPEC.md`.
    pub field: &'static str,
    /// Where the field starts, in bytes within the slice given to the decoder.
    pub offset: u64,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The slice ends before the field does.
    Truncated {
        /// Bytes the field needs.
        needed: u64,
        /// Bytes that are left.
        have: u64,
    },
    /// The checksum stored is not the checksum of the bytes at this place.
    Checksum {
        /// The checksum stored in the file.
        expected: u32,
        /// The checksum of the bytes found.
        found: u32,
    },
    /// The structure does not start with its magic number.
    Magic {
        /// The magic number of the structure.
        expected: u32,
        /// What stands there instead.
        found: u32,
    },
    /// A format version this build cannot read.
    Version {
        /// The newest version this build reads.
        supported: u32,
        /// The version found.
        found: u32,
    },
    /// A value that is not allowed here.
    Invalid {
        /// The value found.
        found: u64,
    },
    /// A field that has to repeat a value known from elsewhere, and does not.
    Mismatch {
        /// The value known.
        expected: u64,
        /// The value found.
        found: u64,
    },
    /// Bytes that must be zero are not.
    NotZero,
    /// A length or count above its limit.
    TooLong {
        /// The limit.
        max: u64,
        /// The length or count found.
        found: u64,
    },
    /// A varint that is over-long, too large for its field, or unfinished.
    Varint,
    /// Items that are not in their order, or a duplicate.
    Order,
    /// Bytes left over after the end of the structure.
    Trailing {
        /// How many.
        bytes: u64,
    },
}

impl DecodeError {
    /// The same of bytes that lie behind so many others.
    pub(crate) fn behind(self, bytes: u64) -> Self {
        Self { offset: self.offset.saturating_add(bytes), ..self }
    }

    /// Whether the structure is whole, and of a format that this build cannot read.
    pub(crate) fn is_newer_version(&self) -> bool {
        matches!(self.problem, Problem::Version { .. })
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { structure, field, offset, problem } = self;
        write!(f, "{structure}: {field} at byte {offset}: {problem}")
    }
}

impl std::error::Error for DecodeError {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, have } => {
                write!(f, "truncated: needs {needed} bytes, has {have}")
            }
            Self::Checksum { expected, found } => {
                write!(f, "checksum mismatch: expected {expected:#010x}, found {found:#010x}")
            }
            Self::Magic { expected, found } => {
                write!(f, "wrong magic number: expected {expected:#010x}, found {found:#010x}")
            }
            Self::Version { supported, found } => {
                write!(f, "format version {found}; this build reads up to {supported}")
            }
            Self::Invalid { found } => write!(f, "invalid value {found}"),
            Self::Mismatch { expected, found } => {
                write!(f, "expected {expected}, found {found}")
            }
            Self::NotZero => f.write_str("bytes that must be zero are not"),
            Self::TooLong { max, found } => write!(f, "{found} is over the limit of {max}"),
            Self::Varint => f.write_str("malformed varint"),
            Self::Order => f.write_str("out of order"),
            Self::Trailing { bytes } => write!(f, "{bytes} bytes left over"),
        }
    }
}

impl Problem {
    /// What should have stood there, in words, for reports that show expected and found apart.
    pub fn expected(&self) -> String {
        match self {
            Self::Truncated { needed, .. } => format!("{needed} bytes"),
            Self::Checksum { expected, .. } => format!("checksum {expected:#010x}"),
            Self::Magic { expected, .. } => format!("magic number {expected:#010x}"),
            Self::Version { supported, .. } => format!("format version up to {supported}"),
            Self::Invalid { .. } => "a valid value".to_owned(),
            Self::Mismatch { expected, .. } => expected.to_string(),
            Self::NotZero => "zero bytes".to_owned(),
            Self::TooLong { max, .. } => format!("at most {max}"),
            Self::Varint => "a canonical varint".to_owned(),
            Self::Order => "ascending order".to_owned(),
            Self::Trailing { .. } => "the end of the structure".to_owned(),
        }
    }

    /// What stands there instead, in words.
    pub fn found(&self) -> String {
        match self {
            Self::Truncated { have, .. } => format!("{have} bytes"),
            Self::Checksum { found, .. } => format!("checksum {found:#010x}"),
            Self::Magic { found, .. } => format!("{found:#010x}"),
            Self::Version { found, .. } => format!("format version {found}"),
            Self::Invalid { found }
            | Self::Mismatch { found, .. }
            | Self::TooLong { found, .. } => found.to_string(),
            Self::NotZero => "other bytes".to_owned(),
            Self::Varint => "a malformed one".to_owned(),
            Self::Order => "an item out of order".to_owned(),
            Self::Trailing { bytes } => format!("{bytes} more bytes"),
        }
    }
}
