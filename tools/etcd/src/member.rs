//! Who this server is: numbers and names that a client may see, kept beside the store.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The file, in the directory of the server.
const FILE: &str = "member.json";

/// One member, the only one of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The number of the cluster.
    pub cluster_id: u64,
    /// Its own number.
    pub id: u64,
    /// How often the server was started: etcd's term, which an election makes anew at each start.
    pub term: u64,
    /// Its name.
    #[serde(skip)]
    pub name: String,
    /// Where other members would find it.
    #[serde(skip)]
    pub peer_urls: Vec<String>,
    /// Where clients find it.
    #[serde(skip)]
    pub client_urls: Vec<String>,
}

impl Member {
    /// Whether a directory has one.
    pub fn is_in(directory: &Path) -> bool {
        directory.join(FILE).exists()
    }

    /// That of a directory; made up and kept if there is none. Each call is a start, with a term of its own.
    ///
    /// # Errors
    /// Where the file cannot be read or written, or is not one.
    pub fn open(
        directory: &Path,
        name: String,
        peer_urls: Vec<String>,
        client_urls: Vec<String>,
    ) -> io::Result<Self> {
        let path = directory.join(FILE);
        let mut member = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice::<Self>(&bytes).map_err(|error| {
                let text = format!("{}: not what this server writes: {error}", path.display());
                io::Error::new(io::ErrorKind::InvalidData, text)
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self {
                // Not 0, which means "none" in the protocol.
                cluster_id: rand::random::<u64>() | 1,
                id: rand::random::<u64>() | 1,
                term: 1,
                ..Self::default()
            },
            Err(error) => return Err(error),
        };
        member.term = member.term.saturating_add(1);
        member.keep(directory, &path)?;
        member.name = name;
        member.peer_urls = peer_urls;
        member.client_urls = client_urls;
        Ok(member)
    }

    fn keep(&self, directory: &Path, path: &Path) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(&serde_json::to_vec(self).map_err(io::Error::other)?)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        File::open(directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn a_member_stays_who_it_is_and_its_term_grows() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Member::open(directory.path(), "default".into(), vec![], vec![]);
        let (first, second) = (open().unwrap(), open().unwrap());
        assert_eq!((first.cluster_id, first.id), (second.cluster_id, second.id));
        assert_eq!((first.term, second.term), (2, 3));
        fs::write(directory.path().join(FILE), b"{").unwrap();
        assert!(open().unwrap_err().to_string().contains("member.json"));
    }
}
