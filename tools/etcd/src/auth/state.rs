//! Users, roles and what they may: all changes that etcd knows, with its checks in its order.
//!
//! Nothing here asks who wants a change, keeps it, or knows a password: those are hashed already.
//! A change is made to a copy, which is thrown away where it is refused.
//!
//! Source: etcd's `server/auth/store.go`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::ranges;
use super::refusal::{
    INVALID_MANAGEMENT, PERMISSION_NOT_GIVEN, PERMISSION_NOT_GRANTED, ROLE_EMPTY, ROLE_EXISTS,
    ROLE_NOT_FOUND, ROLE_NOT_GRANTED, ROOT_ROLE_MISSING, ROOT_USER_MISSING, Refusal, USER_EMPTY,
    USER_EXISTS, USER_NOT_FOUND,
};
use crate::proto::authpb::{Permission, permission};

/// The user without whom nothing can be turned on, and the role that may do everything.
pub(super) const ROOT: &str = "root";

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) enabled: bool,
    pub(super) revision: u64,
    pub(super) users: BTreeMap<String, Arc<User>>,
    pub(super) roles: BTreeMap<String, Arc<Role>>,
}

/// A user.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct User {
    /// The hash of the password; of one who has none, nothing.
    pub(super) password: Vec<u8>,
    /// In order.
    pub(super) roles: Vec<String>,
    /// Whether there is only a certificate to know the user by.
    pub(super) no_password: bool,
}

/// A role: its permissions in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Role {
    pub(super) permissions: Vec<Permission>,
}

impl Eq for Role {}

/// What became of a change that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing is different.
    None,
    /// Something is, and has to be kept.
    Made,
    /// And the tokens of the user whom it is about are worth nothing any more.
    ForgetTokens,
}

type Changed = Result<Change, Refusal>;

// Without the hash.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("User");
        debug.field("roles", &self.roles).field("no_password", &self.no_password);
        debug.finish_non_exhaustive()
    }
}

impl User {
    pub(super) fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|own| own == role)
    }
}

impl Default for State {
    /// That of a server which is new. The revision 0 is that of a request from nobody.
    fn default() -> Self {
        let (users, roles) = Default::default();
        Self { enabled: false, revision: 1, users, roles }
    }
}

impl State {
    #[allow(clippy::unnecessary_wraps, reason = "the last word of changes that may be refused")]
    fn made(&mut self, change: Change) -> Changed {
        self.revision += 1;
        Ok(change)
    }

    fn user_mut(&mut self, name: &str) -> Result<&mut User, Refusal> {
        self.users.get_mut(name).map(Arc::make_mut).ok_or(USER_NOT_FOUND)
    }

    /// From now on it is asked who asks. That is no new revision.
    pub(super) fn enable(&mut self) -> Changed {
        if self.enabled {
            return Ok(Change::None);
        }
        let root = self.users.get(ROOT).ok_or(ROOT_USER_MISSING)?;
        if !root.has_role(ROOT) {
            return Err(ROOT_ROLE_MISSING);
        }
        self.enabled = true;
        Ok(Change::Made)
    }

    pub(super) fn disable(&mut self) -> Changed {
        if !self.enabled {
            return Ok(Change::None);
        }
        self.enabled = false;
        self.made(Change::Made)
    }

    /// A new user; without a password's hash one who can only show a certificate.
    pub(super) fn add_user(&mut self, name: &str, password: Option<Vec<u8>>) -> Changed {
        if name.is_empty() {
            return Err(USER_EMPTY);
        }
        if self.users.contains_key(name) {
            return Err(USER_EXISTS);
        }
        let no_password = password.is_none();
        let password = password.unwrap_or_default();
        let user = User { password, roles: Vec::new(), no_password };
        self.users.insert(name.to_owned(), Arc::new(user));
        self.made(Change::Made)
    }

    pub(super) fn delete_user(&mut self, name: &str) -> Changed {
        if self.enabled && name == ROOT {
            return Err(INVALID_MANAGEMENT);
        }
        self.users.remove(name).ok_or(USER_NOT_FOUND)?;
        self.made(Change::ForgetTokens)
    }

    /// Another password. A user who has none gets none.
    pub(super) fn change_password(
        &mut self,
        name: &str,
        password: impl FnOnce() -> Result<Vec<u8>, Refusal>,
    ) -> Changed {
        let user = self.user_mut(name)?;
        user.password = if user.no_password { Vec::new() } else { password()? };
        self.made(Change::ForgetTokens)
    }

    /// One more role. Root's may be granted before there is one.
    pub(super) fn grant_role(&mut self, name: &str, role: &str) -> Changed {
        let user = self.users.get(name).ok_or(USER_NOT_FOUND)?;
        if role != ROOT && !self.roles.contains_key(role) {
            return Err(ROLE_NOT_FOUND);
        }
        if user.has_role(role) {
            return Ok(Change::None);
        }
        let user = self.user_mut(name)?;
        user.roles.push(role.to_owned());
        user.roles.sort_unstable();
        self.made(Change::Made)
    }

    pub(super) fn revoke_role(&mut self, name: &str, role: &str) -> Changed {
        if self.enabled && name == ROOT && role == ROOT {
            return Err(INVALID_MANAGEMENT);
        }
        let user = self.user_mut(name)?;
        if !user.has_role(role) {
            return Err(ROLE_NOT_GRANTED);
        }
        user.roles.retain(|own| own != role);
        self.made(Change::Made)
    }

    pub(super) fn add_role(&mut self, name: &str) -> Changed {
        if name.is_empty() {
            return Err(ROLE_EMPTY);
        }
        if self.roles.contains_key(name) {
            return Err(ROLE_EXISTS);
        }
        self.roles.insert(name.to_owned(), Arc::default());
        self.made(Change::Made)
    }

    /// A role less, for the users who have it too.
    pub(super) fn delete_role(&mut self, name: &str) -> Changed {
        if self.enabled && name == ROOT {
            return Err(INVALID_MANAGEMENT);
        }
        self.roles.remove(name).ok_or(ROLE_NOT_FOUND)?;
        for user in self.users.values_mut().filter(|user| user.has_role(name)) {
            Arc::make_mut(user).roles.retain(|own| own != name);
        }
        self.made(Change::Made)
    }

    /// One more permission, or another type for one. Among those of the same key etcd compares only the first with the
    /// range, and so has a later one twice: which all its tools show, and so have we.
    pub(super) fn grant_permission(
        &mut self,
        name: &str,
        permission: Option<&Permission>,
    ) -> Changed {
        let wanted = permission.ok_or(PERMISSION_NOT_GIVEN)?;
        if !ranges::is_valid(&wanted.key, &wanted.range_end) {
            return Err(INVALID_MANAGEMENT);
        }
        let role = self.roles.get_mut(name).map(Arc::make_mut).ok_or(ROLE_NOT_FOUND)?;
        let permissions = &mut role.permissions;
        let first = permissions.partition_point(|own| own.key < wanted.key);
        match permissions.get_mut(first) {
            Some(own) if own.key == wanted.key && own.range_end == wanted.range_end => {
                own.perm_type = wanted.perm_type;
            }
            _ => {
                permissions.push(wanted.clone());
                permissions.sort_by(|one, other| one.key.cmp(&other.key));
            }
        }
        self.made(Change::Made)
    }

    pub(super) fn revoke_permission(&mut self, name: &str, key: &[u8], end: &[u8]) -> Changed {
        let role = self.roles.get_mut(name).ok_or(ROLE_NOT_FOUND)?;
        let is_meant = |own: &Permission| own.key == key && own.range_end == end;
        if !role.permissions.iter().any(is_meant) {
            return Err(PERMISSION_NOT_GRANTED);
        }
        Arc::make_mut(role).permissions.retain(|own| !is_meant(own));
        self.made(Change::Made)
    }

    /// The roles of a user.
    pub(super) fn user_roles(&self, name: &str) -> Result<Vec<String>, Refusal> {
        self.users.get(name).map(|user| user.roles.clone()).ok_or(USER_NOT_FOUND)
    }

    /// The permissions of a role. Root's are those that it has without being granted any.
    pub(super) fn role_permissions(&self, name: &str) -> Result<Vec<Permission>, Refusal> {
        let role = self.roles.get(name).ok_or(ROLE_NOT_FOUND)?;
        if name != ROOT {
            return Ok(role.permissions.clone());
        }
        let perm_type = permission::Type::Readwrite.into();
        Ok(vec![Permission { perm_type, key: "".into(), range_end: "\0".into() }])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn permission(key: &'static str, range_end: &'static str, perm_type: i32) -> Permission {
        Permission { perm_type, key: key.into(), range_end: range_end.into() }
    }

    fn with_root() -> State {
        let mut state = State::default();
        state.add_user(ROOT, Some(vec![1])).unwrap();
        state.grant_role(ROOT, ROOT).unwrap();
        state
    }

    #[test]
    fn enabling_needs_root_with_its_role_and_is_no_new_revision() {
        let mut state = State::default();
        assert_eq!(state.enable(), Err(ROOT_USER_MISSING));
        state.add_user(ROOT, Some(vec![])).unwrap();
        assert_eq!(state.enable(), Err(ROOT_ROLE_MISSING));
        state.grant_role(ROOT, ROOT).unwrap();
        assert_eq!((state.enable(), state.revision), (Ok(Change::Made), 3));
        assert_eq!((state.enable(), state.revision), (Ok(Change::None), 3));
        assert_eq!((state.disable(), state.revision), (Ok(Change::Made), 4));
        assert_eq!((state.disable(), state.revision), (Ok(Change::None), 4));
    }

    #[test]
    fn root_stays_root_while_it_is_enabled() {
        let mut state = with_root();
        state.add_role(ROOT).unwrap();
        state.enable().unwrap();
        let before = state.clone();
        assert_eq!(state.delete_user(ROOT), Err(INVALID_MANAGEMENT));
        assert_eq!(state.delete_role(ROOT), Err(INVALID_MANAGEMENT));
        assert_eq!(state.revoke_role(ROOT, ROOT), Err(INVALID_MANAGEMENT));
        assert_eq!(state, before);
        state.disable().unwrap();
        assert_eq!(state.revoke_role(ROOT, ROOT), Ok(Change::Made));
        assert_eq!(state.delete_role(ROOT), Ok(Change::Made));
        assert_eq!(state.delete_user(ROOT), Ok(Change::ForgetTokens));
    }

    #[test]
    fn names_that_are_empty_taken_or_nobodys() {
        let mut state = State::default();
        assert_eq!(state.add_user("", None), Err(USER_EMPTY));
        assert_eq!(state.add_role(""), Err(ROLE_EMPTY));
        assert_eq!(state.delete_user("u"), Err(USER_NOT_FOUND));
        assert_eq!(state.delete_role("r"), Err(ROLE_NOT_FOUND));
        assert_eq!(state.grant_role("u", "r"), Err(USER_NOT_FOUND));
        assert_eq!(state.revoke_role("u", "r"), Err(USER_NOT_FOUND));
        assert_eq!(state.change_password("u", || unreachable!()), Err(USER_NOT_FOUND));
        assert_eq!(state.user_roles("u"), Err(USER_NOT_FOUND));
        assert_eq!(state.role_permissions("r"), Err(ROLE_NOT_FOUND));
        assert_eq!(state.revoke_permission("r", b"", b""), Err(ROLE_NOT_FOUND));
        state.add_user("u", None).unwrap();
        state.add_role("r").unwrap();
        assert_eq!(state.add_user("u", None), Err(USER_EXISTS));
        assert_eq!(state.add_role("r"), Err(ROLE_EXISTS));
        assert_eq!(state.grant_role("u", "s"), Err(ROLE_NOT_FOUND));
        assert_eq!(state.revoke_role("u", "r"), Err(ROLE_NOT_GRANTED));
        assert_eq!(state.revoke_permission("r", b"a", b""), Err(PERMISSION_NOT_GRANTED));
        assert_eq!(state.revision, 3);
    }

    #[test]
    fn roles_are_in_order_and_go_with_what_they_are_of() {
        let mut state = State::default();
        state.add_user("u", None).unwrap();
        for role in ["s", "r", "t"] {
            state.add_role(role).unwrap();
            state.grant_role("u", role).unwrap();
        }
        let revision = state.revision;
        assert_eq!(state.grant_role("u", "r"), Ok(Change::None));
        assert_eq!(state.revision, revision);
        assert_eq!(state.user_roles("u").unwrap(), ["r", "s", "t"]);
        state.delete_role("s").unwrap();
        assert_eq!(state.user_roles("u").unwrap(), ["r", "t"]);
    }

    #[test]
    fn permissions_are_in_order_and_one_of_them_is_changed_not_doubled() {
        let mut state = State::default();
        state.add_role("r").unwrap();
        let mut grant =
            |key, end, kind| state.grant_permission("r", Some(&permission(key, end, kind)));
        for (key, end, kind) in [("b", "c", 0), ("a", "", 1), ("b", "", 0), ("b", "c", 2)] {
            assert_eq!(grant(key, end, kind), Ok(Change::Made));
        }
        let (first, second) = (permission("a", "", 1), permission("b", "c", 2));
        let all = [first, second, permission("b", "", 0)];
        assert_eq!(state.role_permissions("r").unwrap(), all);
        // Not the first of its key: etcd does not see that it is there, and has it twice. Both go together.
        state.grant_permission("r", Some(&permission("b", "", 1))).unwrap();
        assert_eq!(state.role_permissions("r").unwrap().len(), 4);
        state.revoke_permission("r", b"b", b"").unwrap();
        assert_eq!(state.role_permissions("r").unwrap(), all[..2]);
    }

    #[test]
    fn permissions_that_are_none_are_refused_before_the_role_is_looked_for() {
        let mut state = State::default();
        assert_eq!(state.grant_permission("r", None), Err(PERMISSION_NOT_GIVEN));
        for (key, end) in [("", ""), ("", "a"), ("", "\0"), ("b", "a"), ("b", "b")] {
            let wrong = permission(key, end, 0);
            assert_eq!(state.grant_permission("r", Some(&wrong)), Err(INVALID_MANAGEMENT));
        }
        let wrong = permission("a", "b", 0);
        assert_eq!(state.grant_permission("r", Some(&wrong)), Err(ROLE_NOT_FOUND));
    }

    #[test]
    fn the_role_root_has_everything_whatever_it_was_granted() {
        let mut state = State::default();
        state.add_role(ROOT).unwrap();
        state.grant_permission(ROOT, Some(&permission("a", "", 0))).unwrap();
        assert_eq!(state.role_permissions(ROOT).unwrap(), [permission("", "\0", 2)]);
    }

    #[test]
    fn a_user_without_a_password_gets_none() {
        let mut state = State::default();
        state.add_user("c", None).unwrap();
        assert_eq!(state.change_password("c", || unreachable!()), Ok(Change::ForgetTokens));
        assert!(state.users["c"].no_password && state.users["c"].password.is_empty());
        state.add_user("u", Some(vec![1])).unwrap();
        assert_eq!(state.change_password("u", || Ok(vec![2])), Ok(Change::ForgetTokens));
        assert_eq!(state.users["u"].password, [2]);
    }
}
