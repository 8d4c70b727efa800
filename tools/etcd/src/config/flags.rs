//! etcd's command line and environment: which flags there are, what of them means something here, and the
//! spellings of Go: one dash or two, `-flag=value`, `-flag value`, switches without a value.
//!
//! All of it is turned into `--flag=value` for the parser of `config.rs`. Flags that mean nothing here, because
//! there are no peers and no raft, are dropped with a warning, and so are flags nobody knows, unless they look like
//! a flag with a meaning that was misspelt: a server without `--client-cert-auth` is open.

use std::time::Duration;

/// Flags with a meaning that take a value.
pub(super) const VALUES: &[&str] = &[
    "name",
    "data-dir",
    "listen-client-urls",
    "listen-client-http-urls",
    "advertise-client-urls",
    "initial-advertise-peer-urls",
    "listen-metrics-urls",
    "cert-file",
    "key-file",
    "trusted-ca-file",
    "client-crl-file",
    "client-cert-allowed-hostname",
    "self-signed-cert-validity",
    "cipher-suites",
    "tls-min-version",
    "tls-max-version",
    "quota-backend-bytes",
    "max-txn-ops",
    "max-request-bytes",
    "max-concurrent-streams",
    "auto-compaction-mode",
    "auto-compaction-retention",
    "watch-progress-notify-interval",
    "auth-token",
    "auth-token-ttl",
    "bcrypt-cost",
    "grpc-keepalive-min-time",
    "grpc-keepalive-interval",
    "grpc-keepalive-timeout",
    "log-level",
    "log-outputs",
    "log-format",
    "cors",
    "host-whitelist",
    "config-file",
    "max-connections",
    "tls-handshake-timeout",
    "shutdown-timeout",
    "users-from",
];

/// Flags with a meaning that are switches.
pub(super) const SWITCHES: &[&str] = &[
    "client-cert-auth",
    "auto-tls",
    "enable-grpc-gateway",
    "debug",
    "version",
    "allow-insecure-network",
];

/// Newer or older names of flags with a meaning.
const RENAMED: &[(&str, &str)] =
    &[("experimental-watch-progress-notify-interval", "watch-progress-notify-interval")];

/// Flags of etcd 3.4 to 3.8 without a meaning here that take a value.
const IDLE_VALUES: &[&str] = &[
    "backend-batch-interval",
    "backend-batch-limit",
    "backend-bbolt-freelist-type",
    "bootstrap-defrag-threshold-megabytes",
    "client-cert-file",
    "client-key-file",
    "compact-hash-check-time",
    "compaction-batch-limit",
    "compaction-sleep-interval",
    "corrupt-check-time",
    "discovery",
    "discovery-cacert",
    "discovery-cert",
    "discovery-dial-timeout",
    "discovery-endpoints",
    "discovery-fallback",
    "discovery-keepalive-time",
    "discovery-keepalive-timeout",
    "discovery-key",
    "discovery-password",
    "discovery-proxy",
    "discovery-request-timeout",
    "discovery-srv",
    "discovery-srv-name",
    "discovery-token",
    "discovery-user",
    "distributed-tracing-address",
    "distributed-tracing-instance-id",
    "distributed-tracing-sampling-rate",
    "distributed-tracing-service-name",
    "downgrade-check-time",
    "election-timeout",
    "experimental-backend-bbolt-freelist-type",
    "experimental-bootstrap-defrag-threshold-megabytes",
    "experimental-compact-hash-check-time",
    "experimental-compaction-batch-limit",
    "experimental-compaction-sleep-interval",
    "experimental-corrupt-check-time",
    "experimental-distributed-tracing-address",
    "experimental-distributed-tracing-instance-id",
    "experimental-distributed-tracing-sampling-rate",
    "experimental-distributed-tracing-service-name",
    "experimental-downgrade-check-time",
    "experimental-enable-v2v3",
    "experimental-max-learners",
    "experimental-snapshot-catchup-entries",
    "experimental-wait-cluster-ready-timeout",
    "experimental-warning-apply-duration",
    "experimental-warning-unary-request-duration",
    "feature-gates",
    "heartbeat-interval",
    "initial-cluster",
    "initial-cluster-state",
    "initial-cluster-token",
    "listen-peer-urls",
    "local-address",
    "log-package-levels",
    "log-rotation-config-json",
    "logger",
    "max-learners",
    "max-snapshots",
    "max-wals",
    "metrics",
    "peer-cert-allowed-cn",
    "peer-cert-allowed-hostname",
    "peer-cert-file",
    "peer-client-cert-file",
    "peer-client-key-file",
    "peer-crl-file",
    "peer-key-file",
    "peer-trusted-ca-file",
    "proxy",
    "proxy-dial-timeout",
    "proxy-failure-wait",
    "proxy-read-timeout",
    "proxy-refresh-interval",
    "proxy-write-timeout",
    "raft-read-timeout",
    "raft-write-timeout",
    "snapshot-catchup-entries",
    "snapshot-count",
    "v2-deprecation",
    "wal-dir",
    "warning-apply-duration",
    "warning-unary-request-duration",
];

/// Flags of etcd 3.4 to 3.8 without a meaning here that are switches.
const IDLE_SWITCHES: &[&str] = &[
    "discovery-insecure-skip-tls-verify",
    "discovery-insecure-transport",
    "enable-distributed-tracing",
    "enable-log-rotation",
    "enable-pprof",
    "enable-v2",
    "experimental-compact-hash-check-enabled",
    "experimental-enable-distributed-tracing",
    "experimental-enable-lease-checkpoint",
    "experimental-enable-lease-checkpoint-persist",
    "experimental-initial-corrupt-check",
    "experimental-memory-mlock",
    "experimental-peer-skip-client-san-verification",
    "experimental-set-member-localaddr",
    "experimental-stop-grpc-service-on-defrag",
    "experimental-txn-mode-write-with-shared-buffer",
    "force-new-cluster",
    "initial-election-tick-advance",
    "memory-mlock",
    "peer-auto-tls",
    "peer-client-cert-auth",
    "peer-skip-client-san-verification",
    "pre-vote",
    "socket-reuse-address",
    "socket-reuse-port",
    "strict-reconfig-check",
    "unsafe-no-fsync",
];

/// What there is to tell about the flags, before the log is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// A flag of etcd that has no meaning here.
    Idle(String),
    /// A flag that nobody knows.
    Unknown(String),
    /// An `ETCD_` variable that is no flag's.
    UnknownVariable(String),
    /// A variable of a flag that was given as well.
    Shadowed(String),
}

/// What kind of flag a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Value(&'static str),
    Switch(&'static str),
    IdleValue,
    IdleSwitch,
    Unknown,
}

fn kind(name: &str) -> Kind {
    let find = |names: &[&'static str]| names.iter().copied().find(|known| *known == name);
    if let Some((_, new)) = RENAMED.iter().find(|(old, _)| *old == name) {
        Kind::Value(new)
    } else if let Some(name) = find(VALUES) {
        Kind::Value(name)
    } else if let Some(name) = find(SWITCHES) {
        Kind::Switch(name)
    } else if find(IDLE_VALUES).is_some() {
        Kind::IdleValue
    } else if find(IDLE_SWITCHES).is_some() {
        Kind::IdleSwitch
    } else {
        Kind::Unknown
    }
}

/// The flag with a meaning that an unknown flag or variable was most likely meant to be.
pub(super) fn meant(unknown: &str) -> Option<&'static str> {
    let name = unknown.strip_prefix("ETCD_").unwrap_or(unknown);
    let name = name.to_ascii_lowercase().replace('_', "-");
    let known = VALUES.iter().chain(SWITCHES).copied();
    let near = known.map(|known| (strsim::damerau_levenshtein(&name, known), known));
    // Two slips, or one in a short name.
    near.filter(|(slips, known)| *slips <= 1 + known.len() / 8 && *slips <= 2)
        .min()
        .map(|(_, known)| known)
}

/// Flags in one spelling, and what there is to tell.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// Each as `--flag=value`.
    pub(crate) given: Vec<String>,
    /// What there is to tell.
    pub(crate) notes: Vec<Note>,
    /// Words that are no flags.
    pub(crate) words: Vec<String>,
    /// The settings that name other members, by their flags and as they were given: those would not be asked, and this one
    /// begin empty.
    pub(crate) other_members: Vec<(String, String)>,
    /// Whether the cluster is said to be there already.
    pub(crate) existing_cluster: bool,
    /// Flags without a meaning that the command line has.
    idle: Vec<String>,
}

impl Flags {
    fn give(&mut self, name: &str, value: &str) {
        self.given.push(format!("--{name}={value}"));
    }

    /// Takes a flag without a meaning: a note, unless this server alone would be something else than what it asks for.
    fn leave(&mut self, name: &str, value: &str, as_given: &str) {
        let joins = match name {
            "initial-cluster" => names_several(value),
            "discovery" | "discovery-srv" | "discovery-endpoints" => !value.is_empty(),
            _ => false,
        };
        // The last of several values counts, as with etcd.
        self.other_members.retain(|(of, _)| of != name);
        if joins {
            self.other_members.push((name.to_owned(), as_given.to_owned()));
        }
        if name == "initial-cluster-state" {
            self.existing_cluster = value == "existing";
        }
        self.idle.push(name.to_owned());
        self.notes.push(Note::Idle(as_given.to_owned()));
    }

    fn has(&self, name: &str) -> bool {
        self.given.iter().any(|flag| {
            flag.strip_prefix("--")
                .and_then(|flag| flag.split_once('='))
                .is_some_and(|(of, _)| of == name)
        })
    }
}

/// Whether a list such as `a=http://1:2380,b=http://2:2380` names more than one member, each of which may have several URLs.
fn names_several(members: &str) -> bool {
    let mut names = members.split(',').map(|one| one.split_once('=').map_or(one, |(name, _)| name));
    let first = names.next();
    names.any(|name| Some(name) != first)
}

/// Reads a command line, without the name of the program, and the environment.
pub(crate) fn read(
    arguments: &[String],
    environment: &[(String, String)],
) -> Result<Flags, String> {
    let mut flags = Flags::default();
    let mut rest = arguments.iter().peekable();
    while let Some(word) = rest.next() {
        let Some(body) = word
            .strip_prefix("--")
            .or_else(|| word.strip_prefix('-'))
            .filter(|body| !body.is_empty())
        else {
            flags.words.push(word.clone());
            continue;
        };
        let (name, inline) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        };
        if name == "h" || name == "help" {
            flags.given.push("--help".to_owned());
            continue;
        }
        let mut value = || {
            let next = inline.map(ToOwned::to_owned).or_else(|| rest.next().cloned());
            next.ok_or_else(|| format!("flag needs an argument: -{name}"))
        };
        match kind(name) {
            Kind::Value(as_named) => {
                let value = value()?;
                flags.give(as_named, &value);
            }
            Kind::IdleValue => {
                let value = value()?;
                flags.leave(name, &value, name);
            }
            Kind::Switch(as_named) => flags.give(as_named, inline.unwrap_or("true")),
            Kind::IdleSwitch => flags.notes.push(Note::Idle(name.to_owned())),
            Kind::Unknown => {
                // Whether it takes a value nobody can know. A word that is no flag is taken to be one.
                if inline.is_none() && rest.peek().is_some_and(|next| !next.starts_with('-')) {
                    rest.next();
                }
                flags.notes.push(Note::Unknown(name.to_owned()));
            }
        }
    }
    read_environment(&mut flags, environment);
    Ok(flags)
}

/// Takes what the environment says and no flag has said.
fn read_environment(flags: &mut Flags, environment: &[(String, String)]) {
    for (variable, value) in environment {
        let Some(name) = variable.strip_prefix("ETCD_") else { continue };
        if value.is_empty() {
            continue;
        }
        let name = name.to_ascii_lowercase().replace('_', "-");
        match kind(&name) {
            Kind::Value(as_named) | Kind::Switch(as_named) if flags.has(as_named) => {
                flags.notes.push(Note::Shadowed(variable.clone()));
            }
            Kind::Value(as_named) | Kind::Switch(as_named) => flags.give(as_named, value),
            Kind::IdleValue | Kind::IdleSwitch if flags.idle.contains(&name) => {
                flags.notes.push(Note::Shadowed(variable.clone()));
            }
            Kind::IdleValue | Kind::IdleSwitch => flags.leave(&name, value, variable),
            Kind::Unknown => flags.notes.push(Note::UnknownVariable(variable.clone())),
        }
    }
}

/// One flag of a configuration file.
pub(crate) fn give_one(flags: &mut Flags, name: &str, value: &str) {
    match kind(name) {
        Kind::Value(as_named) | Kind::Switch(as_named) => flags.give(as_named, value),
        Kind::IdleValue | Kind::IdleSwitch => flags.leave(name, value, name),
        Kind::Unknown => flags.notes.push(Note::Unknown(name.to_owned())),
    }
}

/// A switch's value, as Go spells it.
pub(crate) fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("neither true nor false".to_owned()),
    }
}

/// A duration, as Go spells it: `1h30m`, `300ms`, `1.5s`, `0`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration such as 300ms, 5s or 1h30m");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut nanos = 0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let number: f64 =
            rest.get(..digits).and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
        rest = rest.get(digits..).unwrap_or_default();
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let factor = match rest.get(..unit).unwrap_or_default() {
            "ns" => 1.0,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return Err(wrong()),
        };
        nanos += number * factor;
        rest = rest.get(unit..).unwrap_or_default();
    }
    Duration::try_from_secs_f64(nanos / 1e9).map_err(|_| wrong())
}

#[cfg(test)]
mod tests;
