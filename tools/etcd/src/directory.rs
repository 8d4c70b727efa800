//! The data directory: what is in it, and how it is begun.
//!
//! ```text
//!   auth.json      users, roles and whether they are asked for
//!   store/         the store
//!   member.json    who this server is
//!   alarms.json    what clients have raised, if they ever have
//! ```
//!
//! They are made in this order, but for the last. A directory with `member.json` is a server's, and must have its users: if somebody has
//! taken them away nobody would be asked any more. One without is begun, with whatever of the other two is there: a first
//! start may have been cut short, and a store may have been put there by `annals import`.

use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals::{ErrorKind, Store};

use crate::alarm::Raised;
use crate::auth::{Auth, AuthOptions, AuthSnapshot};
use crate::config::Config;
use crate::member::Member;
use crate::server::{Server, ServerOptions};
use crate::{info, warn};

/// Where an etcd has its files, in its data directory.
const OF_ETCD: &str = "member";

/// Where a server has its store.
const STORE: &str = "store";

/// What a store has in its own directory.
const OF_STORE: &str = "CURRENT";

/// Opens what the data directory of a configuration holds, or begins it.
///
/// # Errors
/// What cannot be opened or made, and why. A directory of an etcd is refused, and left as it is.
pub fn open(config: &Config) -> Result<Arc<Server>, String> {
    let directory = config.data_dir.as_path();
    let told = |what: &str, error: &dyn Display| format!("{what} {}: {error}", directory.display());
    check(config)?;
    if directory.is_file() {
        return Err(told("cannot use the data directory", &"it is a file"));
    }
    fs::create_dir_all(directory)
        .map_err(|error| told("cannot make the data directory", &error))?;
    let of_users = |error: &dyn Display| told("cannot open the users in", error);
    let is_new = !Member::is_in(directory);
    let taken = match &config.users_from {
        Some(path) if is_new => Some(AuthSnapshot::of_etcd(path).map_err(|e| of_users(&e))?),
        _ => None,
    };
    if is_new {
        Auth::begin(directory).map_err(|error| of_users(&error))?;
    }
    let store = Store::open(directory.join(STORE)).map_err(|error| match error.kind() {
        ErrorKind::Locked { path } => {
            let who = format!("{error}; `annals -C {} readers` names the program", path.display());
            told("cannot open the store in", &who)
        }
        ErrorKind::Corrupt(_) => {
            let path = directory.join(STORE);
            let next = format!(
                "{error}; `annals -C {} verify` lists all damage, and says what to do",
                path.display()
            );
            told("cannot open the store in", &next)
        }
        _ => told("cannot open the store in", &error),
    })?;
    // Now, with the store's lock: until then another server may change them.
    let auth = AuthOptions {
        bcrypt_cost: config.bcrypt_cost,
        token_ttl: Duration::from_secs(config.auth_token_ttl),
        is_new: false,
        max_request_bytes: config.max_request_bytes,
    };
    let open = || Auth::open(directory, auth.clone()).map_err(|error| of_users(&error));
    let mut auth = open()?;
    if let Some(path) = &config.users_from {
        // A server may have been here since.
        let taken = taken.filter(|_| !Member::is_in(directory));
        if let Some(rules) = to_take(taken, &auth.snapshot(), path).map_err(|e| of_users(&e))? {
            rules.write(directory).map_err(|error| of_users(&error))?;
            auth = open()?;
        }
    }
    if is_new && config.users_from.is_none() && store.revision() > 1 && is_bare(&auth.snapshot()) {
        warn!(
            "the store is not new, and no users came with it: everybody may do everything. If it is of another server that \
             has users, end this one, and copy that one's auth.json over this one's",
            "data-dir" = directory,
        );
    }
    let member = Member::open(directory, config.name.clone(), config.peers(), config.advertised());
    let member = member.map_err(|error| told("cannot open the member in", &error))?;
    let options = ServerOptions {
        max_txn_ops: config.max_txn_ops,
        max_request_bytes: config.max_request_bytes,
        // Negative is no limit, which is 0 here.
        quota_bytes: u64::try_from(config.quota_backend_bytes).unwrap_or(0),
        watch_progress_interval: config.watch_progress_notify_interval,
        ..ServerOptions::new(directory)
    };
    let raised = Raised::open(directory);
    let raised = raised.map_err(|error| told("cannot open the alarms in", &error))?;
    Ok(Server::with_raised(store, auth, member, options, raised))
}

/// Whether there are neither users nor roles, and nobody is asked who asks.
fn is_bare(rules: &AuthSnapshot) -> bool {
    !rules.enabled && rules.users.is_empty() && rules.roles.is_empty()
}

/// The rules of an etcd, if they are to be those of a data directory that has others; `taken` is none where the directory is a
/// server's already.
fn to_take(
    taken: Option<AuthSnapshot>,
    kept: &AuthSnapshot,
    from: &Path,
) -> Result<Option<AuthSnapshot>, String> {
    let is_bare = is_bare(kept);
    let Some(rules) = taken else {
        if is_bare {
            return Err(format!(
                "it is a server's already, which has no users: --users-from {} is for its first start. Move its store to \
                 NEW/store and start annals-etcd with --data-dir NEW, or make users by etcdctl and leave the flag out",
                from.display()
            ));
        }
        let text = "the data directory has its users already; ignoring --users-from";
        warn!(text, "users-from" = from);
        return Ok(None);
    };
    if *kept == rules {
        return Ok(None);
    }
    if !is_bare {
        let from = from.display();
        return Err(format!("it has users already, which are not those of --users-from {from}"));
    }
    info!(
        "taking over the users and roles of an etcd",
        "users-from" = from,
        "users" = rules.users.len(),
        "roles" = rules.roles.len(),
        "auth-enabled" = rules.enabled,
    );
    if !rules.enabled {
        warn!(
            "this etcd did not ask who asks: everybody may do everything until `etcdctl auth enable` is said"
        );
    }
    Ok(Some(rules))
}

/// Looks whether a data directory can be that of this server, and changes nothing.
///
/// # Errors
/// It is an etcd's, or a store's own.
pub fn check(config: &Config) -> Result<(), String> {
    let directory = &config.data_dir;
    let shown = directory.display();
    if directory.join(OF_STORE).exists() {
        return Err(format!(
            "{shown} is itself a store of annals, where annals-etcd has one within its data directory: move it to \
             NEW/store (mkdir NEW; mv {shown} NEW/store) and start annals-etcd with --data-dir NEW"
        ));
    }
    if !directory.join(OF_ETCD).exists() {
        let is_there = Member::is_in(directory) || directory.join(STORE).exists();
        if config.existing_cluster && !is_there {
            return Err(format!(
                "--initial-cluster-state is existing, and nothing is in {shown}: annals-etcd would begin empty, and ask no \
                 other member. For a new one leave it out, or say new"
            ));
        }
        return Ok(());
    }
    if directory.join(STORE).exists() {
        return Err(format!(
            "{shown} has a store of annals-etcd, and an etcd was started in it, too: its files are in {shown}/{OF_ETCD}. \
             To go on with the store, move that away; what the etcd was told meanwhile is in it alone"
        ));
    }
    Err(format!(
        "{shown} is the data directory of an etcd, whose files annals-etcd does not read: take a snapshot of it \
         (etcdctl snapshot save snapshot.db), make a store of that in another directory (annals -C NEW/store import etcd \
         snapshot.db) and start annals-etcd with --data-dir NEW --users-from snapshot.db"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use annals_etcd_files::write::{Bucket, DatabaseWriter, Meta};
    use prost::Message as _;

    use super::*;
    use crate::proto::authpb::User;

    fn config(directory: &Path) -> Config {
        Config::read(&[format!("--data-dir={}", directory.display())], &[]).unwrap()
    }

    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy(&entry.path(), &target);
            } else {
                fs::copy(entry.path(), target).unwrap();
            }
        }
    }

    #[test]
    fn a_first_start_that_was_cut_short_begins_again() {
        let whole = tempfile::tempdir().unwrap();
        drop(open(&config(whole.path())).unwrap());
        for made in [&[][..], &["auth.json"], &["auth.json", "store"]] {
            let cut = tempfile::tempdir().unwrap();
            for name in made {
                let (from, to) = (whole.path().join(name), cut.path().join(name));
                if from.is_dir() { copy(&from, &to) } else { fs::copy(from, to).map(drop).unwrap() }
            }
            // What a write leaves that was cut short.
            fs::write(cut.path().join("auth.json.new"), "{").unwrap();
            for _ in 0..2 {
                let server = open(&config(cut.path())).unwrap();
                server.store().put("k", "v").unwrap();
            }
        }
    }

    #[test]
    fn a_store_that_was_put_there_is_served() {
        let directory = tempfile::tempdir().unwrap();
        Store::open(directory.path().join("store")).unwrap().put("k", "v").unwrap();
        for _ in 0..2 {
            let server = open(&config(directory.path())).unwrap();
            assert_eq!(server.store().get("k").unwrap().unwrap().value, "v");
        }
    }

    #[test]
    fn a_cluster_that_is_said_to_be_there_is_not_begun() {
        let directory = tempfile::tempdir().unwrap();
        let existing = |directory: &Path| {
            let mut config = config(directory);
            config.existing_cluster = true;
            config
        };
        let refusal = open(&existing(directory.path())).unwrap_err();
        assert!(refusal.contains("--initial-cluster-state"), "{refusal}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        drop(open(&config(directory.path())).unwrap());
        drop(open(&existing(directory.path())).unwrap());
        // A store that was made of a snapshot.
        let directory = tempfile::tempdir().unwrap();
        Store::open(directory.path().join("store")).unwrap().put("k", "v").unwrap();
        drop(open(&existing(directory.path())).unwrap());
    }

    #[test]
    fn an_etcd_that_was_started_over_a_store_is_told_from_one() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("member")).unwrap();
        assert!(open(&config(directory.path())).unwrap_err().contains("take a snapshot"));
        fs::create_dir(directory.path().join("store")).unwrap();
        let refusal = open(&config(directory.path())).unwrap_err();
        assert!(refusal.contains("move that away") && !refusal.contains("snapshot"), "{refusal}");
    }

    #[test]
    fn a_server_that_has_lost_its_users_does_not_start() {
        let directory = tempfile::tempdir().unwrap();
        drop(open(&config(directory.path())).unwrap());
        fs::remove_file(directory.path().join("auth.json")).unwrap();
        let refusal = open(&config(directory.path())).unwrap_err();
        assert!(refusal.contains("auth.json"), "{refusal}");
        assert!(!directory.path().join("auth.json").exists());
    }

    /// A database of an etcd that asks who asks, with a user under a name.
    fn of_etcd(user: &'static str, name: &[u8], path: &Path) {
        let mut database = DatabaseWriter::create(fs::File::create(path).unwrap()).unwrap();
        database.bucket(Bucket::Auth).unwrap();
        database.put(b"authEnabled", &[1]).unwrap();
        database.put(b"authRevision", &7_u64.to_be_bytes()).unwrap();
        database.bucket(Bucket::AuthUsers).unwrap();
        let user = User { name: user.into(), password: "hash".into(), ..User::default() };
        database.put(name, &user.encode_to_vec()).unwrap();
        database.finish(&Meta::default()).unwrap();
    }

    #[test]
    fn a_new_directory_begins_with_the_users_of_an_etcd() {
        let directory = tempfile::tempdir().unwrap();
        let (path, data) = (directory.path().join("db"), directory.path().join("data"));
        let from = |path: &Path| {
            let mut config = config(&data);
            config.users_from = Some(path.to_owned());
            config
        };
        let users = |server: &Server| {
            let rules = server.auth.snapshot();
            assert!(rules.enabled && rules.revision == 7);
            rules.users.iter().map(|user| user.name.clone()).collect::<Vec<_>>()
        };
        // What cannot be taken over is no server without users.
        for (name, told) in [(&b"root"[..], "under the name of another"), (b"\xff", "name")] {
            of_etcd("ada", name, &path);
            let refusal = open(&from(&path)).unwrap_err();
            assert!(refusal.contains(told) && refusal.contains("page"), "{refusal}");
            assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
        }
        assert!(open(&from(&data)).is_err() && open(&from(&data.join("no"))).is_err());
        of_etcd("ada", b"ada", &path);
        assert_eq!(users(&open(&from(&path)).unwrap()), ["ada"]);
        // Later starts keep them, whether told or not.
        of_etcd("eve", b"eve", &path);
        for config in [config(&data), from(&path), from(&data.join("no"))] {
            assert_eq!(users(&open(&config).unwrap()), ["ada"]);
        }
        // A first start that was cut short goes on with the same users, and with no others.
        fs::remove_file(data.join("member.json")).unwrap();
        assert!(open(&from(&path)).unwrap_err().contains("has users already"));
        of_etcd("ada", b"ada", &path);
        assert_eq!(users(&open(&from(&path)).unwrap()), ["ada"]);
        // Who forgot it at the first start is told, and serves nobody who is not asked.
        let other = directory.path().join("other");
        drop(open(&config(&other)).unwrap());
        let mut late = config(&other);
        late.users_from = Some(path);
        assert!(open(&late).unwrap_err().contains("is a server's already"));
        assert!(open(&config(&other)).is_ok());
        assert!(Config::read(&["--users-from=".to_owned()], &[]).is_err());
    }

    #[test]
    fn a_store_is_not_taken_for_a_data_directory() {
        let directory = tempfile::tempdir().unwrap();
        Store::open(directory.path()).unwrap().put("k", "v").unwrap();
        let before = fs::read_dir(directory.path()).unwrap().count();
        let refusal = open(&config(directory.path())).unwrap_err();
        assert!(refusal.contains("NEW/store"), "{refusal}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), before);
    }

    #[test]
    fn an_etcds_directory_is_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("member/snap")).unwrap();
        let refusal = open(&config(directory.path())).unwrap_err();
        assert!(refusal.contains("etcdctl snapshot save"), "{refusal}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
