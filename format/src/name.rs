//! The names of a store's files; printing and parsing are exact inverses.
//!
//! ```text
//! DIR/LOCK  CURRENT  MANIFEST-NNNNNNNN  wal/NNNNNNNN.wal  seg/NNNNNNNN.{l0,head,hist,events,blob}
//! ```
//!
//! Numbers are decimal, padded to eight digits, and simply grow longer above that, up to
//! [`NUMBER_MAX`]: a larger one is not a name. A file that is
//! still being made carries the suffix `.tmp`, whatever it will be. A directory with `LOADING` is a store that
//! is being put together from what another one has, and is none until that is done.

use std::fmt;

use crate::limits::NUMBER_MAX;
use crate::place::FileKind;

/// The file that names the manifest in force.
pub const CURRENT: &str = "CURRENT";
/// The file whose lock a writer holds.
pub const LOCK: &str = "LOCK";
/// Says that a directory, also one with [`CURRENT`], is no store yet: one is being put together in it.
pub const LOADING: &str = "LOADING";
/// Names a damaged file, so that nothing is forgotten after the next opening, either: see `SPEC.md`.
pub const DAMAGED: &str = "DAMAGED";
/// Figures of a store that is open, for people and tools; the store itself never reads it.
pub const LIVE: &str = "live.json";
/// The directory of the WAL files.
pub const WAL_DIR: &str = "wal";
/// The directory of the segment files.
pub const SEGMENT_DIR: &str = "seg";
/// The suffix of a file that is still being made.
pub const UNFINISHED: &str = ".tmp";

const MANIFEST_PREFIX: &str = "MANIFEST-";

/// A numbered file of a store.
///
/// ```
/// use annals_format::{FileKind, name::FileName};
/// let name = FileName::new(FileKind::Wal, 7);
/// assert_eq!(name.to_string(), "wal/00000007.wal");
/// assert_eq!(FileName::parse("wal/00000007.wal"), Some(name));
/// assert_eq!(FileName::parse("wal/7.wal"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName {
    /// What the file is.
    pub kind: FileKind,
    /// Its number; zero for `CURRENT`, which has none.
    pub number: u64,
}

impl FileName {
    /// The name of file `number` of this kind.
    pub const fn new(kind: FileKind, number: u64) -> Self {
        Self { kind, number }
    }

    /// The directory within the store, or "" for its top.
    pub const fn directory(self) -> &'static str {
        match self.kind {
            FileKind::Current | FileKind::Manifest => "",
            FileKind::Wal => WAL_DIR,
            FileKind::L0
            | FileKind::Head
            | FileKind::History
            | FileKind::Events
            | FileKind::Blob => SEGMENT_DIR,
        }
    }

    /// The file's name within its directory.
    pub fn base(self) -> String {
        let number = self.number;
        match extension(self.kind) {
            Some(extension) => format!("{number:08}.{extension}"),
            None if self.kind == FileKind::Manifest => format!("{MANIFEST_PREFIX}{number:08}"),
            None => CURRENT.to_owned(),
        }
    }

    /// The path within the store of a file that is still being made.
    pub fn unfinished(self) -> String {
        format!("{self}{UNFINISHED}")
    }

    /// Reads a path within the store, as printed; anything else, even an equivalent form, is not a
    /// name.
    pub fn parse(path: &str) -> Option<Self> {
        let name = Self::parse_loosely(path)?;
        (name.number <= NUMBER_MAX && name.to_string() == path).then_some(name)
    }

    fn parse_loosely(path: &str) -> Option<Self> {
        if path == CURRENT {
            return Some(Self::new(FileKind::Current, 0));
        }
        if let Some(number) = path.strip_prefix(MANIFEST_PREFIX) {
            return Some(Self::new(FileKind::Manifest, number.parse().ok()?));
        }
        let (_, base) = path.split_once('/')?;
        let (number, found) = base.split_once('.')?;
        let kind = FileKind::ALL.into_iter().find(|kind| extension(*kind) == Some(found))?;
        Some(Self::new(kind, number.parse().ok()?))
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.directory() {
            "" => f.write_str(&self.base()),
            directory => write!(f, "{directory}/{}", self.base()),
        }
    }
}

const fn extension(kind: FileKind) -> Option<&'static str> {
    match kind {
        FileKind::Current | FileKind::Manifest => None,
        FileKind::Wal => Some("wal"),
        FileKind::L0 => Some("l0"),
        FileKind::Head => Some("head"),
        FileKind::History => Some("hist"),
        FileKind::Events => Some("events"),
        FileKind::Blob => Some("blob"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for kind in FileKind::ALL {
            for number in [0, 1, 99_999_999, 100_000_000, NUMBER_MAX] {
                let number = if kind == FileKind::Current { 0 } else { number };
                let name = FileName::new(kind, number);
                assert_eq!(FileName::parse(&name.to_string()), Some(name));
                assert_eq!(FileName::parse(&name.unfinished()), None);
            }
        }
    }

    #[test]
    fn other_spellings_are_not_names() {
        for other in [
            "",
            "LOCK",
            "current",
            "MANIFEST-",
            "MANIFEST-1",
            "MANIFEST-000000001",
            "wal",
            "wal/",
            "wal/.wal",
            "wal/+0000001.wal",
            "wal/00000001",
            "wal/00000001.l0",
            "seg/00000001.wal",
            "seg/00000001.seg",
            "wal/00000001.wal ",
            "00000001.wal",
            "wal/00000001.wal.tmp",
            "wal/99999999999999999999999.wal",
            "wal/18446744073709551615.wal",
            "seg/18446744073709551615.l0",
            "MANIFEST-4611686018427387905",
            "seg//00000001.l0",
        ] {
            assert_eq!(FileName::parse(other), None, "{other:?}");
        }
    }
}
