//! The file with users, roles and whether they are asked for, beside the store: two lines of JSON, of which the first
//! has the checksum of the second.
//!
//! It is written anew for each change: under another name, made durable, and then put in the place of the old one. So
//! there is always one that is whole. One that is damaged is never taken for none: without users nobody would be asked.

use std::fmt;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::state::{Role, State, User};
use crate::proto::authpb::Permission;

/// Its name, in the directory of the server.
const NAME: &str = "auth.json";
/// What is being written.
const NEW: &str = "auth.json.new";
const FORMAT: &str = "annals-etcd auth";
const VERSION: u64 = 1;

/// Why the file with the users and roles cannot be had.
#[derive(Debug)]
pub struct AuthFileError {
    path: PathBuf,
    kind: AuthFileErrorKind,
}

/// What is wrong with the file with the users and roles.
#[derive(Debug)]
#[non_exhaustive]
pub enum AuthFileErrorKind {
    /// It cannot be read or written.
    Io(io::Error),
    /// There is none, where there was a server before.
    Missing,
    /// It is not what was written.
    Damaged(String),
    /// A newer version of this program wrote it.
    Newer(u64),
}

impl AuthFileError {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is wrong with it.
    pub fn kind(&self) -> &AuthFileErrorKind {
        &self.kind
    }
}

impl fmt::Display for AuthFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.kind {
            AuthFileErrorKind::Io(error) => write!(f, "{error}"),
            AuthFileErrorKind::Missing => {
                f.write_str(
                    "missing: without it nobody would be asked for a password. Bring it back from a copy of this directory; or, \
                     to begin anew with no users, or with those of --users-from, move the directory's store to NEW/store and \
                     start with --data-dir NEW",
                )
            }
            AuthFileErrorKind::Damaged(what) => write!(f, "damaged: {what}"),
            AuthFileErrorKind::Newer(version) => {
                write!(f, "version {version} of its format, newer than this program")
            }
        }
    }
}

impl std::error::Error for AuthFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            AuthFileErrorKind::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// The file of one server.
#[derive(Debug)]
pub(super) struct AuthFile {
    directory: PathBuf,
}

#[derive(Deserialize, Serialize)]
struct Head {
    format: String,
    version: u64,
    sha256: String,
}

#[derive(Deserialize, Serialize)]
struct Body {
    enabled: bool,
    revision: u64,
    users: Vec<KeptUser>,
    roles: Vec<KeptRole>,
}

#[derive(Deserialize, Serialize)]
struct KeptUser {
    name: String,
    password: String,
    roles: Vec<String>,
    no_password: bool,
}

#[derive(Deserialize, Serialize)]
struct KeptRole {
    name: String,
    permissions: Vec<KeptPermission>,
}

#[derive(Deserialize, Serialize)]
struct KeptPermission {
    r#type: i32,
    key: String,
    range_end: String,
}

impl AuthFile {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_path_buf() }
    }

    fn error(&self, kind: AuthFileErrorKind) -> AuthFileError {
        AuthFileError { path: self.directory.join(NAME), kind }
    }

    pub(super) fn damaged(&self, what: impl Into<String>) -> AuthFileError {
        self.error(AuthFileErrorKind::Damaged(what.into()))
    }

    /// That there is none.
    pub(super) fn missing(&self) -> AuthFileError {
        self.error(AuthFileErrorKind::Missing)
    }

    /// What was kept; `None` where there is no file.
    pub(super) fn read(&self) -> Result<Option<State>, AuthFileError> {
        let bytes = match fs::read(self.directory.join(NAME)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.error(AuthFileErrorKind::Io(error))),
        };
        let split = bytes.iter().position(|byte| *byte == b'\n');
        let split = split.ok_or_else(|| self.damaged("its first line has no end"))?;
        let (head, body) = (&bytes[..split], &bytes[split + 1..]);
        let head: Head = serde_json::from_slice(head)
            .map_err(|error| self.damaged(format!("its first line: {error}")))?;
        if head.format != FORMAT {
            return Err(self.damaged("it is not such a file"));
        }
        if head.version > VERSION {
            return Err(self.error(AuthFileErrorKind::Newer(head.version)));
        }
        if head.version < VERSION {
            return Err(self.damaged("there is no such version of its format"));
        }
        if head.sha256 != checksum(body) {
            return Err(self.damaged("its checksum is another one"));
        }
        let body: Body = serde_json::from_slice(body)
            .map_err(|error| self.damaged(format!("its second line: {error}")))?;
        body.into_state().map(Some).map_err(|error| self.damaged(error.to_string()))
    }

    /// Keeps it: once this has returned it is durable. Where it fails the old file is still the one that counts, unless
    /// only the last step has failed, which makes the directory durable: then either may be found after a crash.
    pub(super) fn write(&self, state: &State) -> Result<(), AuthFileError> {
        self.try_write(state).map_err(|error| self.error(AuthFileErrorKind::Io(error)))
    }

    fn try_write(&self, state: &State) -> io::Result<()> {
        let mut body = serde_json::to_vec(&Body::new(state))?;
        body.push(b'\n');
        let (format, sha256) = (FORMAT.to_owned(), checksum(&body));
        let mut bytes = serde_json::to_vec(&Head { format, version: VERSION, sha256 })?;
        bytes.push(b'\n');
        bytes.append(&mut body);
        let new = self.directory.join(NEW);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, self.directory.join(NAME))?;
        File::open(&self.directory)?.sync_all()
    }
}

/// A new file that only its owner may read.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn checksum(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl Body {
    fn new(state: &State) -> Self {
        let kept = |own: &Permission| KeptPermission {
            r#type: own.perm_type,
            key: STANDARD.encode(&own.key),
            range_end: STANDARD.encode(&own.range_end),
        };
        let users = state.users.iter().map(|(name, user)| KeptUser {
            name: name.clone(),
            password: STANDARD.encode(&user.password),
            roles: user.roles.clone(),
            no_password: user.no_password,
        });
        let roles = state.roles.iter().map(|(name, role)| KeptRole {
            name: name.clone(),
            permissions: role.permissions.iter().map(kept).collect(),
        });
        let (users, roles) = (users.collect(), roles.collect());
        Self { enabled: state.enabled, revision: state.revision, users, roles }
    }

    fn into_state(self) -> Result<State, base64::DecodeError> {
        let (enabled, revision) = (self.enabled, self.revision.max(1));
        let mut state = State { enabled, revision, ..State::default() };
        for kept in self.users {
            let (password, no_password) = (STANDARD.decode(kept.password)?, kept.no_password);
            let user = User { password, roles: kept.roles, no_password };
            state.users.insert(kept.name, Arc::new(user));
        }
        for kept in self.roles {
            let mut role = Role::default();
            for own in kept.permissions {
                role.permissions.push(Permission {
                    perm_type: own.r#type,
                    key: STANDARD.decode(own.key)?.into(),
                    range_end: STANDARD.decode(own.range_end)?.into(),
                });
            }
            state.roles.insert(kept.name, Arc::new(role));
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn sample() -> State {
        let mut state = State::default();
        state.add_user("root", Some(b"$2a$04$hash".to_vec())).unwrap();
        state.add_user("only a certificate", None).unwrap();
        state.add_role("r").unwrap();
        let permission =
            Permission { perm_type: 7, key: vec![0, 255].into(), range_end: "\0".into() };
        state.grant_permission("r", Some(&permission)).unwrap();
        state.grant_role("root", "root").unwrap();
        state.grant_role("root", "r").unwrap();
        state.enable().unwrap();
        state
    }

    #[test]
    fn what_was_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = AuthFile::new(directory.path());
        assert!(file.read().unwrap().is_none());
        for state in [State::default(), sample()] {
            file.write(&state).unwrap();
            assert_eq!(file.read().unwrap(), Some(state));
        }
        let names: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(names.len(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_may_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        // What a crash has left, and what somebody has put there.
        fs::write(directory.path().join(NEW), b"half").unwrap();
        AuthFile::new(directory.path()).write(&sample()).unwrap();
        let mode = fs::metadata(directory.path().join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn any_byte_that_is_another_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let (file, path) = (AuthFile::new(directory.path()), directory.path().join(NAME));
        file.write(&sample()).unwrap();
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, &bad).unwrap();
            match file.read() {
                Err(error) => assert!(error.to_string().contains("auth.json")),
                Ok(state) => panic!("byte {at}: {state:?}"),
            }
        }
        for bytes in 0..good.len() {
            fs::write(&path, &good[..bytes]).unwrap();
            assert!(file.read().is_err(), "{bytes} bytes");
        }
        fs::write(&path, [&good[..], b"\n"].concat()).unwrap();
        assert!(file.read().is_err());
    }

    #[test]
    fn a_newer_format_is_told_as_such() {
        let directory = tempfile::tempdir().unwrap();
        let text = format!("{{\"format\":\"{FORMAT}\",\"version\":2,\"sha256\":\"\"}}\n");
        fs::write(directory.path().join(NAME), text).unwrap();
        let error = AuthFile::new(directory.path()).read().unwrap_err();
        assert!(matches!(error.kind(), AuthFileErrorKind::Newer(2)), "{error}");
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was_there() {
        let directory = tempfile::tempdir().unwrap();
        let file = AuthFile::new(directory.path());
        file.write(&sample()).unwrap();
        fs::create_dir(directory.path().join(NEW)).unwrap();
        let error = file.write(&State::default()).unwrap_err();
        assert!(matches!(error.kind(), AuthFileErrorKind::Io(_)), "{error}");
        assert_eq!(file.read().unwrap(), Some(sample()));
    }
}
