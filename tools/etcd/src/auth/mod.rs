//! Who may do what: etcd's users, roles, permissions and tokens.
//!
//! [`Auth`] has the rules, which one immutable value holds: whoever asks takes it along as a [`Caller`], and a change
//! puts another in its place once that is durable. [`service`] is the service `Auth` over it.
//!
//! A change is answered when all requests that were let through under the rules before it are over (or have had
//! [`SETTLE`]): from then on nothing happens that it forbids. etcd does both one after the other. Only when asking who
//! asks begins, the requests of before are not waited for: until then nobody counts them.

mod check;
mod file;
mod import;
mod password;
mod ranges;
mod refusal;
pub mod service;
mod state;
mod token;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;
use tonic::Status;
use tonic::metadata::MetadataMap;

pub use self::check::Caller;
use self::file::AuthFile;
pub use self::file::{AuthFileError, AuthFileErrorKind};
use self::ranges::Ranges;
use self::refusal::{FAILED, INVALID_TOKEN, NO_PASSWORD_USER, NOT_ENABLED, NOT_KEPT, Refusal};
use self::state::{Change, Role, State, User};
use self::token::Tokens;
use crate::proto::authpb;

/// How long a change waits for the requests of before it.
pub const SETTLE: Duration = Duration::from_secs(5);

/// What can be chosen.
#[derive(Clone, Debug)]
pub struct AuthOptions {
    /// How much work a password's hash is: etcd's `--bcrypt-cost`. One that is not from 4 to 31 counts as 10.
    pub bcrypt_cost: u32,
    /// How long a token is good that is not used: etcd's `--auth-token-ttl`.
    pub token_ttl: Duration,
    /// Whether a directory without the file is one of a new server. Where the directory has a store already it is not,
    /// and somebody may have removed the file so that nobody is asked any more.
    pub is_new: bool,
    /// Bytes that a request to the service may have: etcd's `--max-request-bytes`.
    pub max_request_bytes: usize,
}

impl Default for AuthOptions {
    /// Those of an etcd that was told nothing.
    fn default() -> Self {
        Self {
            bcrypt_cost: password::DEFAULT_COST,
            token_ttl: Duration::from_secs(300),
            is_new: true,
            max_request_bytes: 1_572_864,
        }
    }
}

/// All rules as of now, as etcd's files have them.
#[derive(Clone, Debug, PartialEq)]
pub struct AuthSnapshot {
    /// Whether they are asked for.
    pub enabled: bool,
    /// How often they have changed, and one.
    pub revision: u64,
    /// The users in the order of their names, with the hashes of their passwords.
    pub users: Vec<authpb::User>,
    /// The roles in the order of their names.
    pub roles: Vec<authpb::Role>,
}

/// Users, roles and whether they are asked for.
#[derive(Clone, Debug)]
pub struct Auth {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// As in the rules, to be had without them.
    enabled: AtomicBool,
    revision: AtomicU64,
    rules: RwLock<Arc<Rules>>,
    tokens: Tokens,
    file: AuthFile,
    cost: u32,
    max_request_bytes: usize,
    /// Held by who changes something. Tells when nobody has the rules of now any more.
    changing: Mutex<oneshot::Receiver<()>>,
}

/// The rules as of one change.
#[derive(Debug)]
struct Rules {
    state: State,
    /// What each user may do, once that has been asked.
    ranges: BTreeMap<String, OnceLock<Ranges>>,
    /// Dropped with them.
    _over: oneshot::Sender<()>,
}

/// What a request says about who sends it.
#[derive(Clone, Debug, Default)]
struct Credentials {
    token: Option<Token>,
    common_name: Option<String>,
}

// Apart, so that nothing prints it.
#[derive(Clone)]
struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// That the requests under older rules are over.
type Settled = Option<oneshot::Receiver<()>>;

impl AuthSnapshot {
    /// Writes it as the file of a server's directory, as when a snapshot of etcd becomes one. No server may run in it.
    ///
    /// # Errors
    /// Where it cannot be written, or a name in it is not text.
    pub fn write(&self, directory: &Path) -> Result<(), AuthFileError> {
        let file = AuthFile::new(directory);
        let text = |name: &[u8]| {
            let name = String::from_utf8(name.to_vec());
            name.map_err(|_| file.damaged("a name of a user or role is not text"))
        };
        let (enabled, revision) = (self.enabled, self.revision.max(1));
        let mut state = State { enabled, revision, ..State::default() };
        for user in &self.users {
            let mut kept = User { password: user.password.to_vec(), ..User::default() };
            kept.roles.clone_from(&user.roles);
            kept.roles.sort_unstable();
            kept.no_password = user.options.is_some_and(|options| options.no_password);
            state.users.insert(text(&user.name)?, Arc::new(kept));
        }
        for role in &self.roles {
            let kept = Role { permissions: role.key_permission.clone() };
            state.roles.insert(text(&role.name)?, Arc::new(kept));
        }
        file.write(&state)
    }
}

impl Rules {
    fn new(state: State) -> (Arc<Self>, oneshot::Receiver<()>) {
        let ranges = state.users.keys().map(|name| (name.clone(), OnceLock::new())).collect();
        let (over, receiver) = oneshot::channel();
        (Arc::new(Self { state, ranges, _over: over }), receiver)
    }

    /// What a user may do. The roles are looked at once.
    fn ranges(&self, name: &str) -> &Ranges {
        static NOTHING: OnceLock<Ranges> = OnceLock::new();
        let Some(ranges) = self.ranges.get(name) else {
            return NOTHING.get_or_init(Ranges::default);
        };
        ranges.get_or_init(|| {
            let roles = self.state.users.get(name).into_iter().flat_map(|user| &user.roles);
            let roles = roles.filter_map(|role| self.state.roles.get(role));
            Ranges::new(roles.flat_map(|role| &role.permissions))
        })
    }
}

impl Credentials {
    /// Those of a request. etcd's gateway shows its own certificate, so that one says nothing about who asks.
    fn new(metadata: &MetadataMap, common_name: Option<&str>) -> Self {
        let token = metadata.get("token").or_else(|| metadata.get("authorization"));
        let token = token.map(|token| {
            // What is not text is no token.
            let token = token.to_str().unwrap_or_default();
            Token(token.strip_prefix("Bearer ").unwrap_or(token).to_owned())
        });
        let by_gateway = metadata.contains_key("grpcgateway-accept");
        let common_name = common_name.filter(|_| !by_gateway).map(str::to_owned);
        Self { token, common_name }
    }
}

impl Auth {
    /// Keeps in a directory that there are no users, unless it says something about them already.
    ///
    /// # Errors
    /// Where the file cannot be read or written, or is damaged.
    pub fn begin(directory: &Path) -> Result<(), AuthFileError> {
        let file = AuthFile::new(directory);
        if file.read()?.is_none() { file.write(&State::default()) } else { Ok(()) }
    }

    /// That of a server's directory.
    ///
    /// # Errors
    /// Where the file cannot be read or written, is damaged, or is missing and should not.
    pub fn open(directory: &Path, options: AuthOptions) -> Result<Self, AuthFileError> {
        let file = AuthFile::new(directory);
        let state = match file.read()? {
            Some(state) => state,
            None if options.is_new => {
                let state = State::default();
                file.write(&state)?;
                state
            }
            None => return Err(file.missing()),
        };
        let tokens = Tokens::new(options.token_ttl);
        if state.enabled {
            tokens.enable();
        }
        let (enabled, revision) = (state.enabled.into(), state.revision.into());
        let (rules, over) = Rules::new(state);
        let shared = Shared {
            enabled,
            revision,
            rules: RwLock::new(rules),
            tokens,
            file,
            cost: password::allowed_cost(options.bcrypt_cost),
            max_request_bytes: options.max_request_bytes,
            changing: Mutex::new(over),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Who sends a request: by its token, or, where it has none, by the name in the certificate that the client has
    /// shown. That name must be given only where certificates are asked for and were checked.
    ///
    /// While nobody is asked, it is someone who may do everything.
    ///
    /// # Errors
    /// Where there is a token that is good for nothing.
    pub fn caller(
        &self,
        metadata: &MetadataMap,
        common_name: Option<&str>,
    ) -> Result<Caller, Status> {
        if !self.is_enabled() {
            return Ok(Caller::anyone());
        }
        Ok(self.caller_with(&Credentials::new(metadata, common_name))?)
    }

    fn caller_with(&self, credentials: &Credentials) -> Result<Caller, Refusal> {
        // Before the token: one that has been forgotten since goes with rules that are old.
        let rules = self.rules();
        if !rules.state.enabled {
            return Ok(Caller::anyone());
        }
        let user = match &credentials.token {
            Some(Token(token)) => Some(self.shared.tokens.user(token).ok_or(INVALID_TOKEN)?),
            None => credentials.common_name.clone(),
        };
        Ok(Caller::asked(user, rules, Arc::clone(&self.shared)))
    }

    /// Whether it is asked who asks.
    pub fn is_enabled(&self) -> bool {
        self.shared.enabled.load(Ordering::Acquire)
    }

    /// How often users, roles and so on have changed, and one.
    pub fn revision(&self) -> u64 {
        self.shared.revision.load(Ordering::Acquire)
    }

    /// All rules as of now.
    pub fn snapshot(&self) -> AuthSnapshot {
        let rules = self.rules();
        let users = rules.state.users.iter().map(|(name, user)| authpb::User {
            name: name.clone().into(),
            password: user.password.clone().into(),
            roles: user.roles.clone(),
            options: Some(authpb::UserAddOptions { no_password: user.no_password }),
        });
        let roles = rules.state.roles.iter().map(|(name, role)| authpb::Role {
            name: name.clone().into(),
            key_permission: role.permissions.clone(),
        });
        AuthSnapshot {
            enabled: rules.state.enabled,
            revision: rules.state.revision,
            users: users.collect(),
            roles: roles.collect(),
        }
    }

    fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.shared.rules.read())
    }

    /// Changes something for a caller who may: on the disk, and then here. It blocks.
    fn change(
        &self,
        credentials: &Credentials,
        user: &str,
        edit: impl FnOnce(&mut State) -> Result<Change, Refusal>,
    ) -> Result<Settled, Status> {
        let shared = &*self.shared;
        let mut over = shared.changing.lock();
        self.caller_with(credentials)?.must_be_admin()?;
        let mut state = self.rules().state.clone();
        let was_enabled = state.enabled;
        let change = edit(&mut state)?;
        if change == Change::None {
            return Ok(None);
        }
        if let Err(error) = shared.file.write(&state) {
            let what = [("error", error.to_string().into())];
            crate::log::error("users and roles are not kept, and not changed", &what);
            return Err(NOT_KEPT.into());
        }
        let (enabled, revision) = (state.enabled, state.revision);
        let (rules, next_over) = Rules::new(state);
        if enabled && !was_enabled {
            shared.tokens.enable();
        }
        *shared.rules.write() = rules;
        // After the rules: who sees the new numbers must not find the old rules.
        shared.revision.store(revision, Ordering::Release);
        shared.enabled.store(enabled, Ordering::Release);
        if was_enabled && !enabled {
            shared.tokens.disable();
        } else if change == Change::ForgetTokens {
            shared.tokens.forget(user);
        }
        let over = std::mem::replace(&mut *over, next_over);
        Ok(was_enabled.then_some(over))
    }

    /// A token for who knows the password. It blocks, for a tenth of a second or so.
    fn authenticate(&self, name: &str, password: &str) -> Result<String, Refusal> {
        loop {
            let rules = self.rules();
            if !rules.state.enabled {
                return Err(NOT_ENABLED);
            }
            let user = rules.state.users.get(name).ok_or(FAILED)?;
            if user.no_password {
                return Err(NO_PASSWORD_USER);
            }
            let (user, revision) = (Arc::clone(user), rules.state.revision);
            drop(rules);
            if !password::is_right(password, &user.password) {
                return Err(FAILED);
            }
            // The password may be another one since.
            let _changing = self.shared.changing.lock();
            if self.revision() == revision && self.is_enabled() {
                return Ok(self.shared.tokens.assign(name));
            }
        }
    }
}

/// Waits until the requests that were let through under older rules are over.
async fn settle(settled: Settled) {
    if let Some(over) = settled
        && tokio::time::timeout(SETTLE, over).await.is_err()
    {
        crate::log::warn("requests of before a change of users or roles go on", &[]);
    }
}

#[cfg(test)]
mod tests;
