//! `import etcd`: a snapshot of an etcd, at the same revisions.
//!
//! The file has every version by revision. What is not above the revision compacted to makes up the base: a
//! first walk notes where the newest version of each key lies, and the versions are then read again in the
//! order of the keys. Memory: about 100 bytes and the key for each key that lived there, and one transaction.

mod making;
mod survey;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

use annals_etcd_files::Snapshot;
use bytes::Bytes;
use clap::Args;
use serde_json::Value;

use crate::args::Global;
use crate::at::{At, rfc3339};
use crate::exit::{Failure, Outcome, say};
use crate::output::Output;
use crate::target::Target;

use making::Import;

/// Arguments of `import etcd`.
#[derive(Debug, Args)]
#[command(
    after_help = "FILE is what `etcdctl snapshot save` writes, or a copy of member/snap/db of an etcd that is not
running. Take a snapshot where you can: it has a checksum, and all that was acknowledged. The file
of an etcd that was killed, or lost power, has not: what was acknowledged last is in member/wal
alone. Start etcd once, and stop it or take a snapshot.

The store is new; it has every revision, version and lease that the file has, and what was
compacted there is compacted here. Users and roles are left out (annals-etcd --users-from takes
them), and alarms. The store is made only if all of it was read and written: until then the
directory is no store, and to be removed after a failure. Exits 3 where FILE is damaged or cut.

With --hash, the hash has to be that of the store, or there is none: what etcd answers to
`etcdctl endpoint hashkv` (with the same newest revision).

etcd does not keep times: all transactions get that of the file's last change, or --time. Neither
can be later than now, as times in a store never go back.

Revisions can be missing, where an etcd was restored with --bump-revision. --gaps raise forgets
what was before the last that is missing; --gaps fill=KEY puts an empty value of KEY at each
instead, which is a key that the file does not have. Where anything was left out or put in, no
hash is that of etcd.

Keys of up to 1 MiB are taken, and values of up to 512 MiB. To change those that are longer than a
store takes without options, programs need the options that the import tells.

Examples:
  $ annals -C moved import etcd snapshot.db
  $ annals -C again import etcd snapshot.db --hash 3572163927 --time 2024-11-22T05:00:00Z
  $ annals -C data/store import etcd snapshot.db    # for annals-etcd --data-dir data"
)]
pub(crate) struct EtcdArgs {
    /// The snapshot, or database file.
    file: PathBuf,
    /// The hash that the store must have at its newest revision.
    #[arg(long, value_name = "HASH")]
    hash: Option<u32>,
    /// The time of all transactions, as RFC 3339.
    #[arg(long, value_name = "TIME")]
    time: Option<At>,
    /// What to do about revisions that are missing: refuse, raise or fill=KEY.
    #[arg(long, value_name = "refuse|raise|fill=KEY", default_value = "refuse")]
    gaps: Gaps,
}

/// What becomes of revisions that are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Gaps {
    Refuse,
    Raise,
    Fill(Bytes),
}

impl FromStr for Gaps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("fill=")) {
            ("refuse", _) => Ok(Self::Refuse),
            ("raise", _) => Ok(Self::Raise),
            (_, Some(key)) if !key.is_empty() => {
                Ok(Self::Fill(Bytes::copy_from_slice(key.as_bytes())))
            }
            _ => Err("expected refuse, raise or fill=KEY".into()),
        }
    }
}

/// Why an import stops.
#[derive(Debug)]
enum Stop {
    File(annals_etcd_files::Error),
    /// It is as it should be, but a store does not take it.
    NotTaken(annals_etcd_files::Error),
    Failure(Failure),
}

impl From<annals_etcd_files::Error> for Stop {
    fn from(error: annals_etcd_files::Error) -> Self {
        Self::File(error)
    }
}

impl From<annals::Error> for Stop {
    fn from(error: annals::Error) -> Self {
        Self::Failure(error.into())
    }
}

impl Stop {
    /// With the name of the file, where it is about that.
    fn about(self, file: &str) -> Failure {
        match self {
            Self::File(annals_etcd_files::Error::Io { error, .. }) => Failure::io(file, error),
            Self::File(error) => Failure::DamagedFile(format!("{file}: {error}")),
            Self::NotTaken(error) => Failure::Other(format!("{file}: {error}")),
            Self::Failure(failure) => failure,
        }
    }
}

fn refused<T>(what: String) -> Result<T, Stop> {
    Err(Stop::Failure(Failure::Other(what)))
}

/// `import etcd`: a store out of a snapshot.
pub(super) fn import(global: &Global, args: &EtcdArgs, out: &mut Output) -> Outcome {
    let name = args.file.display().to_string();
    let io = |error| Failure::io(&*name, error);
    let file = File::open(&args.file).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if metadata.is_dir() {
        let text = "a directory: what is read is a snapshot (etcdctl snapshot save), or member/snap/db in the directory of an \
                    etcd that is not running";
        return Err(Failure::Other(format!("{name}: {text}")));
    }
    let changed = metadata.modified().map_err(io)?;
    let time = time(args.time, &args.file, changed)?;
    // Leases do not end before the store is in use.
    let options = super::options(global)?.lease_expiry(false);
    let snapshot = Snapshot::open(file).map_err(|error| Stop::from(error).about(&name))?;
    if !snapshot.is_checked() {
        let index = snapshot.consistent_index();
        let index = index.map_or(String::new(), |index| format!(" up to index {index} of its log"));
        say(format!("{name} has no checksum: it is taken as the database file of a server{index}"));
        say("what that server acknowledged last may be in its member/wal alone: see --help");
    }
    let import = Import::new(&snapshot, args, global, (options, time));
    let mut import = import.map_err(|stop| stop.about(&name))?;
    let target = Target::new(global.data()?);
    let (store, summary) = import.run().map_err(|stop| target.failed(stop.about(&name)))?;
    import.tell();
    let users = snapshot.users().map_err(|error| Stop::from(error).about(&name))?;
    if users.enabled || users.users > 0 {
        let asked = if users.enabled { ", which asks for them" } else { "" };
        say(format!(
            "{} user(s) and {} role(s) of this etcd{asked}: left out, as a store has none. annals-etcd over it takes them when \
             it is started for the first time with --users-from {name}, or lets everybody do everything",
            users.users, users.roles
        ));
    }
    super::close(store)?;
    out.object(&Value::Object(summary))
}

/// The time of all transactions: what was given, or when the file was last changed.
pub(super) fn time(given: Option<At>, file: &Path, changed: SystemTime) -> Outcome<i64> {
    let micros = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    };
    let now = micros(SystemTime::now());
    match given {
        // It would be that of all that is written until then, too.
        Some(At::Time(time)) if time > now => {
            Err(Failure::Usage(format!("--time {} is yet to come", rfc3339(time))))
        }
        Some(At::Time(time)) => Ok(time),
        Some(_) => Err(Failure::Usage("--time takes a time".into())),
        None => {
            let changed = micros(changed);
            if changed > now {
                say(format!(
                    "{} was last changed at a time that is yet to come: all transactions get the time now, \
                     unless --time gives one",
                    file.display()
                ));
            }
            Ok(changed.min(now))
        }
    }
}
