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
use std::sync::Arc;
use std::time::Duration;

use annals::Store;

use crate::alarm::Raised;
use crate::auth::{Auth, AuthOptions, AuthSnapshot};
use crate::config::Config;
use crate::member::Member;
use crate::server::{Server, ServerOptions};
use crate::{info, warn};

/// Where an etcd has its files, in its data directory.
const OF_ETCD: &str = "member";

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
    fs::create_dir_all(directory)
        .map_err(|error| told("cannot make the data directory", &error))?;
    let of_users = |error: &dyn Display| told("cannot open the users in", error);
    begin_users(config).map_err(|error| of_users(&error))?;
    let store = Store::open(directory.join("store"))
        .map_err(|error| told("cannot open the store in", &error))?;
    // Now, with the store's lock: until then another server may change them.
    let auth = AuthOptions {
        bcrypt_cost: config.bcrypt_cost,
        token_ttl: Duration::from_secs(config.auth_token_ttl),
        is_new: false,
        max_request_bytes: config.max_request_bytes,
    };
    let auth = Auth::open(directory, auth).map_err(|error| of_users(&error))?;
    let member = Member::open(directory, config.name.clone(), config.advertised());
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

/// Sees to it that a directory that no server has had yet has its users: those of an etcd, or none.
fn begin_users(config: &Config) -> Result<(), String> {
    let (directory, from) = (&config.data_dir, &config.users_from);
    let is_given = !from.as_os_str().is_empty();
    if Member::is_in(directory) {
        if is_given {
            let text = "the data directory has its users already; ignoring --users-from";
            warn!(text, "users-from" = from);
        }
        return Ok(());
    }
    if !is_given {
        return Auth::begin(directory).map_err(|error| error.to_string());
    }
    let rules = AuthSnapshot::of_etcd(from)?;
    rules.write(directory).map_err(|error| error.to_string())?;
    info!(
        "took over the users and roles of an etcd",
        "users-from" = from,
        "users" = rules.users.len(),
        "roles" = rules.roles.len(),
        "auth-enabled" = rules.enabled,
    );
    Ok(())
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
        return Ok(());
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

    use std::path::Path;

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
            path.clone_into(&mut config.users_from);
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
