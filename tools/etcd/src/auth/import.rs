//! The users and roles of an etcd, from a snapshot of it or its database.

use std::fs::File;
use std::path::Path;

use annals_etcd_files::{Error, Rule, RuleKind, Snapshot};
use prost::Message;

use super::AuthSnapshot;
use crate::proto::authpb;
use crate::warn;

impl AuthSnapshot {
    /// Reads those of an etcd: what `etcdctl snapshot save` writes, or a copy of its `member/snap/db`. Passwords and
    /// certificates go on to be good.
    ///
    /// # Errors
    /// The file cannot be read, is damaged (with page and offset), or none of etcd's.
    pub fn of_etcd(path: &Path) -> Result<Self, String> {
        let told =
            |error: &dyn std::fmt::Display| format!("--users-from {}: {error}", path.display());
        let file = File::open(path).map_err(|error| told(&error))?;
        let read = Snapshot::open(file).and_then(|snapshot| {
            if !snapshot.is_checked() {
                let text = "a database without a checksum: what its etcd acknowledged last may be in member/wal alone";
                warn!(text, "file" = path);
            }
            let counted = snapshot.users()?;
            let (enabled, revision) = (counted.enabled, counted.revision.max(1));
            let mut found = Self { enabled, revision, users: Vec::new(), roles: Vec::new() };
            snapshot.rules::<Error>(|rule| {
                match rule.kind {
                    RuleKind::User => found.users.push(user(rule)?),
                    RuleKind::Role => found.roles.push(role(rule)?),
                }
                Ok(())
            })?;
            Ok(found)
        });
        read.map_err(|error| told(&error))
    }
}

fn user(rule: &Rule<'_>) -> Result<authpb::User, Error> {
    let mut user = authpb::User::decode(rule.message).map_err(|_| rule.refused("no user"))?;
    check_name(rule, &user.name)?;
    // As they are kept here.
    user.roles.sort_unstable();
    user.options.get_or_insert_default();
    Ok(user)
}

fn role(rule: &Rule<'_>) -> Result<authpb::Role, Error> {
    let role = authpb::Role::decode(rule.message).map_err(|_| rule.refused("no role"))?;
    check_name(rule, &role.name)?;
    Ok(role)
}

fn check_name(rule: &Rule<'_>, name: &[u8]) -> Result<(), Error> {
    if rule.name != name {
        return Err(rule.refused("a user or role under the name of another"));
    }
    if std::str::from_utf8(name).is_err() {
        return Err(rule.refused("a name of a user or role is not text"));
    }
    Ok(())
}
