//! What an error is about, for work that may go on in spite of it.

use std::io;
use std::path::Path;

use super::{Error, ErrorKind};

impl Error {
    /// Whether all that is lacking is space.
    pub(crate) fn is_no_space(&self) -> bool {
        matches!(self.kind(), ErrorKind::NoSpace { .. })
    }

    /// Whether the system has nothing left of what others may give back: space, or descriptors of files. (Of memory it is
    /// another matter: who is refused some is as a rule at an end.)
    pub(crate) fn is_shortage(&self) -> bool {
        let of_descriptors =
            |source: &io::Error| matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
        match self.kind() {
            ErrorKind::NoSpace { .. } => true,
            ErrorKind::Io { source, .. } => of_descriptors(source),
            _ => false,
        }
    }

    /// Whether it is about a file in which something is not as it should be, or which the device cannot read: not an
    /// error of the system that says nothing of the file.
    pub(crate) fn is_damage(&self) -> bool {
        match self.kind() {
            ErrorKind::Corrupt(_) => true,
            ErrorKind::Io { source, .. } => {
                source.kind() == io::ErrorKind::UnexpectedEof
                    || source.raw_os_error() == Some(libc::EIO)
            }
            _ => false,
        }
    }

    /// The file that is damaged, or about which the system has answered an error.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self.kind() {
            ErrorKind::Corrupt(corruption) => Some(&corruption.file),
            ErrorKind::Io { path, .. } => Some(path),
            _ => None,
        }
    }
}
