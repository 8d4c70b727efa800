//! Where bytes live: which store, which file, at which offset.
//!
//! A [`Place`] is mixed into every checksum, so a block of another store, an older file of the
//! same name, or a sector that landed at the wrong offset fails its check although its own bytes
//! are intact.

use std::fmt;

/// The identity of a store: 16 random bytes, chosen when it is created and never changed.
///
/// ```
/// use annals_format::StoreId;
/// let id = StoreId([0xab; 16]);
/// assert_eq!(id.to_string(), "abababab-abab-abab-abab-abababababab");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreId(pub [u8; 16]);

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreId({self})")
    }
}

/// What a file is. The numbers are on disk: never change one, zero is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FileKind {
    /// `CURRENT`: names the manifest in force.
    Current = 1,
    /// `MANIFEST-n`: which files make up the store.
    Manifest = 2,
    /// `wal/n.wal`: the write-ahead log.
    Wal = 3,
    /// `seg/n.l0`: a flushed memtable.
    L0 = 4,
    /// `seg/n.head`: the newest version of every key.
    Head = 5,
    /// `seg/n.hist`: superseded versions.
    History = 6,
    /// `seg/n.events`: what changed, in revision order.
    Events = 7,
    /// `seg/n.blob`: large values of newest versions.
    Blob = 8,
}

impl FileKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Current,
        Self::Manifest,
        Self::Wal,
        Self::L0,
        Self::Head,
        Self::History,
        Self::Events,
        Self::Blob,
    ];

    /// The number that stands on disk.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The kind with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Whether this is one of the five kinds of segment.
    pub const fn is_segment(self) -> bool {
        matches!(self, Self::L0 | Self::Head | Self::History | Self::Events | Self::Blob)
    }

    /// Whether a file of this kind has one version of a key.
    pub const fn has_one_version(self) -> bool {
        matches!(self, Self::L0 | Self::Head | Self::Blob)
    }

    /// Whether entries of this kind may have their value in a blob file.
    pub const fn may_refer(self) -> bool {
        matches!(self, Self::L0 | Self::Head)
    }

    /// Whether blocks of this kind are never compressed, so that they are read in place.
    pub const fn is_stored_raw(self) -> bool {
        matches!(self, Self::L0 | Self::Head | Self::Blob)
    }

    /// Whether a file of this kind has a filter: it is asked for keys that it may lack.
    pub const fn has_filter(self) -> bool {
        matches!(self, Self::L0 | Self::Head | Self::History)
    }

    /// The kind's name as it is printed by tools.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Manifest => "manifest",
            Self::Wal => "wal",
            Self::L0 => "l0",
            Self::Head => "head",
            Self::History => "history",
            Self::Events => "events",
            Self::Blob => "blob",
        }
    }
}

/// Where bytes live; mixed into every CRC, so that stale, foreign or misplaced bytes fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The store the file belongs to.
    pub store: StoreId,
    /// What the file is.
    pub kind: FileKind,
    /// The file's number.
    pub file: u64,
    /// Where the bytes start in the file.
    pub offset: u64,
}

impl Place {
    /// The start of a file.
    pub const fn start_of(store: StoreId, kind: FileKind, file: u64) -> Self {
        Self { store, kind, file, offset: 0 }
    }

    /// Another offset of the same file.
    #[must_use]
    pub const fn at(self, offset: u64) -> Self {
        Self { offset, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_their_numbers_are_inverses() {
        for kind in FileKind::ALL {
            assert_eq!(FileKind::from_number(kind.number()), Some(kind));
        }
        assert_eq!(FileKind::from_number(0), None);
        assert_eq!(FileKind::from_number(9), None);
    }
}
