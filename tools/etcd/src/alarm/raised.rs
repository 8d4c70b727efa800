//! The alarms that clients have raised, in a file beside the store: they stay until a client takes them back, also over a
//! restart, as in etcd.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::proto::etcdserverpb::AlarmType;

/// The file, in the directory of the server. There is none as long as nobody has raised an alarm.
const FILE: &str = "alarms.json";

/// Alarms of clients that are kept.
const RAISED_MAX: usize = 64;

/// Alarms, each with the member that it was raised for: any number, as in etcd.
#[derive(Debug, Default)]
pub struct Raised {
    all: Vec<(u64, AlarmType)>,
    /// Where they are kept, if they are.
    directory: Option<PathBuf>,
}

/// One of them in the file.
#[derive(Deserialize, Serialize)]
struct Kept {
    member: u64,
    alarm: String,
}

impl Raised {
    /// Those of a directory, which are kept there from now on.
    ///
    /// # Errors
    /// The file cannot be read, or is not one: what was to be refused must not be taken.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(FILE);
        let wrong = |what: &str| {
            let text = format!("{}: not what this server writes: {what}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let kept: Vec<Kept> = match fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| wrong(&error.to_string()))?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let known = |kept: &Kept| {
            let alarm = AlarmType::from_str_name(&kept.alarm);
            Ok((kept.member, alarm.ok_or_else(|| wrong("an unknown alarm"))?))
        };
        let all = kept.iter().map(known).collect::<io::Result<_>>()?;
        Ok(Self { all, directory: Some(directory.to_path_buf()) })
    }

    pub(super) fn all(&self) -> &[(u64, AlarmType)] {
        &self.all
    }

    /// Raises one. Answers whether it is raised: of members that are not there, there is an end.
    pub(super) fn raise(&mut self, member: u64, alarm: AlarmType) -> bool {
        let is_there = self.all.contains(&(member, alarm));
        if is_there || self.all.len() >= RAISED_MAX {
            return is_there;
        }
        self.all.push((member, alarm));
        self.keep();
        true
    }

    /// Takes one back. Answers whether it was raised.
    pub(super) fn disarm(&mut self, member: u64, alarm: AlarmType) -> bool {
        let before = self.all.len();
        self.all.retain(|raised| *raised != (member, alarm));
        let was = self.all.len() < before;
        if was {
            self.keep();
        }
        was
    }

    /// On a disk that takes nothing they count until the server ends.
    fn keep(&self) {
        if let Err(error) = self.try_keep() {
            crate::warn!("alarms are not kept over a restart", "error" = error.to_string());
        }
    }

    fn try_keep(&self) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let kept = self.all.iter().map(|&(member, alarm)| {
            let alarm = alarm.as_str_name().to_owned();
            Kept { member, alarm }
        });
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(&serde_json::to_vec(&kept.collect::<Vec<_>>())?)?;
        file.as_file().sync_all()?;
        file.persist(directory.join(FILE)).map_err(|error| error.error)?;
        File::open(directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn what_is_raised_stays_until_it_is_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Raised::open(directory.path()).unwrap();
        let mut raised = open();
        assert!(raised.raise(1, AlarmType::Nospace) && raised.raise(u64::MAX, AlarmType::Corrupt));
        let all = [(1, AlarmType::Nospace), (u64::MAX, AlarmType::Corrupt)];
        assert_eq!(open().all(), all);
        assert!(raised.raise(1, AlarmType::Nospace) && !raised.disarm(2, AlarmType::Nospace));
        assert!(raised.disarm(1, AlarmType::Nospace));
        assert_eq!(open().all(), &all[1..]);
        let mut again = open();
        assert!(again.disarm(u64::MAX, AlarmType::Corrupt));
        assert!(open().all().is_empty());
    }

    #[test]
    fn a_file_that_is_none_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["", "[", "{}", r#"[{"member":1,"alarm":"FIRE"}]"#] {
            fs::write(directory.path().join(FILE), text).unwrap();
            let error = Raised::open(directory.path()).unwrap_err();
            assert!(error.to_string().contains(FILE), "{error}");
        }
    }

    #[test]
    fn there_is_an_end_of_them() {
        let mut raised = Raised::default();
        let taken = (0..100).filter(|member| raised.raise(*member, AlarmType::Corrupt)).count();
        assert_eq!(taken, RAISED_MAX);
        assert!(raised.raise(0, AlarmType::Corrupt), "it is raised already");
    }
}
