//! What the server is told by flags, environment and `--config-file`: etcd's names and defaults.

mod compaction;
pub(crate) mod file;
pub(crate) mod flags;
pub(crate) mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

pub use crate::config::compaction::AutoCompaction;
use crate::config::flags::{Flags, Note, parse_duration, parse_switch};
pub use crate::config::url::{ListenUrl, Place};

/// Bytes a request may have by default.
pub const DEFAULT_MAX_REQUEST_BYTES: usize = 3 * 1024 * 1024 / 2;

/// The default of `--quota-backend-bytes`: 2 GiB.
pub const DEFAULT_QUOTA_BYTES: i64 = 2 * 1024 * 1024 * 1024;

/// The default of `--auth-token-ttl`, in seconds.
const DEFAULT_TOKEN_TTL: u64 = 300;

/// The default of `--watch-progress-notify-interval`, and the shortest, as of etcd's `api/v3rpc/watch.go`: less is
/// raised to it.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(600);
const SHORTEST_PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// What the server is told.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "annals-etcd",
    about = "A server of etcd's version 3 protocol over an annals store."
)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct Config {
    /// Human-readable name for this member
    #[arg(long, default_value = "default")]
    pub name: String,
    /// Path to the data directory [default: ${name}.etcd]
    #[arg(long, default_value = "", hide_default_value = true, value_parser = parse_path)]
    pub data_dir: PathBuf,
    /// URLs to listen on for client traffic: http, https, unix, unixs
    #[arg(long, default_value = "http://localhost:2379")]
    pub listen_client_urls: String,
    /// URLs to listen on for client traffic that is not gRPC; the others then take gRPC alone
    #[arg(long, default_value = "", hide_default_value = true)]
    pub listen_client_http_urls: String,
    /// This member's client URLs, told to clients that ask for them [default: those it listens on]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub advertise_client_urls: String,
    /// This member's peer URLs, told to clients that list the members: there are no peers
    #[arg(long, default_value = "http://localhost:2380")]
    pub initial_advertise_peer_urls: String,
    /// URLs to listen on for /metrics and /health alone
    #[arg(long, default_value = "", hide_default_value = true)]
    pub listen_metrics_urls: String,
    /// Listen without TLS on addresses that other machines reach
    #[arg(long, default_value = "false", value_parser = parse_switch, num_args = 1, value_name = "BOOL")]
    pub allow_insecure_network: bool,
    /// The server's certificate, in PEM
    #[arg(long, default_value = "", hide_default_value = true, value_parser = parse_path)]
    pub cert_file: PathBuf,
    /// The key of the server's certificate, in PEM
    #[arg(long, default_value = "", hide_default_value = true, value_parser = parse_path)]
    pub key_file: PathBuf,
    /// Ask clients for a certificate
    #[arg(long, default_value = "false", value_parser = parse_switch, num_args = 1, value_name = "BOOL")]
    pub client_cert_auth: bool,
    /// Who has to have signed the certificates of clients, in PEM
    #[arg(long, default_value = "", hide_default_value = true, value_parser = parse_path)]
    pub trusted_ca_file: PathBuf,
    /// Revoked certificates of clients and of those who signed them, in PEM or DER
    #[arg(long, default_value = "", hide_default_value = true, value_parser = parse_path)]
    pub client_crl_file: PathBuf,
    /// Hosts, with commas: a client's certificate has to be valid for one of them
    #[arg(long, default_value = "", hide_default_value = true)]
    pub client_cert_allowed_hostname: String,
    /// Make a certificate that the server signs itself, and keep it in the data directory
    #[arg(long, default_value = "false", value_parser = parse_switch, num_args = 1, value_name = "BOOL")]
    pub auto_tls: bool,
    /// Years for which such a certificate is valid
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub self_signed_cert_validity: u16,
    /// TLS cipher suites with commas, by Go's names [default: all that are safe]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub cipher_suites: String,
    /// TLS1.2 or TLS1.3
    #[arg(long, default_value = "TLS1.2")]
    pub tls_min_version: String,
    /// TLS1.2 or TLS1.3 [default: TLS1.3]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub tls_max_version: String,
    /// How long a TLS handshake may take
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub tls_handshake_timeout: Duration,
    /// Raise an alarm when the store is larger; 0 for 2 GiB, negative for no limit
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub quota_backend_bytes: i64,
    /// Operations in a transaction
    #[arg(long, default_value_t = 128)]
    pub max_txn_ops: usize,
    /// Bytes of a request
    #[arg(long, default_value_t = DEFAULT_MAX_REQUEST_BYTES)]
    pub max_request_bytes: usize,
    /// Streams that a client can have open on one connection; more wait. etcd has no limit unless told
    #[arg(long, default_value_t = 16_384)]
    pub max_concurrent_streams: u32,
    /// Connections at once [default: what the limit of open files allows]
    #[arg(long, default_value_t = 0)]
    pub max_connections: usize,
    /// How auto-compaction-retention is meant: periodic or revision
    #[arg(long, default_value = "periodic")]
    pub auto_compaction_mode: String,
    /// Hours, a duration (5m) or a number of revisions to keep; 0 to keep everything
    #[arg(long, default_value = "0")]
    pub auto_compaction_retention: String,
    /// How often watches that asked for it are told of progress: 100ms or more; 0 for 10m
    #[arg(long, default_value = "10m", value_parser = parse_duration)]
    pub watch_progress_notify_interval: Duration,
    /// The kind of tokens: simple
    #[arg(long, default_value = "simple")]
    pub auth_token: String,
    /// Seconds a simple token lives that is not used; 0 for 300
    #[arg(long, default_value_t = DEFAULT_TOKEN_TTL)]
    pub auth_token_ttl: u64,
    /// A snapshot of an etcd (or its database, stopped in good order): a new data directory begins with its users and roles
    #[arg(long)]
    pub users_from: Option<PathBuf>,
    /// Cost of the hashes of passwords, 4 to 31
    #[arg(long, default_value_t = 10)]
    pub bcrypt_cost: u32,
    /// Accepted for etcd's sake: no connection is ended for its pings, but of many each waits for the one before
    #[arg(long, default_value = "5s", value_parser = parse_duration)]
    pub grpc_keepalive_min_time: Duration,
    /// How often clients are asked whether they are there; 0 for never
    #[arg(long, default_value = "2h", value_parser = parse_duration)]
    pub grpc_keepalive_interval: Duration,
    /// How long they may take to answer; 0 for never asking
    #[arg(long, default_value = "20s", value_parser = parse_duration)]
    pub grpc_keepalive_timeout: Duration,
    /// How long what is under way may take when the server ends
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub shutdown_timeout: Duration,
    /// Serve JSON over HTTP under /v3/
    #[arg(long, default_value = "true", value_parser = parse_switch, num_args = 1, value_name = "BOOL")]
    pub enable_grpc_gateway: bool,
    /// Origins whose pages may ask, with commas; * for all
    #[arg(long, default_value = "*")]
    pub cors: String,
    /// Hosts by whose names HTTP requests may come, with commas; * for all
    #[arg(long, default_value = "*")]
    pub host_whitelist: String,
    /// debug, info, warn, error, panic or fatal
    #[arg(long, default_value = "info")]
    pub log_level: String,
    /// stdout, stderr or files, with commas
    #[arg(long, default_value = "default")]
    pub log_outputs: String,
    /// json or console
    #[arg(long, default_value = "json")]
    pub log_format: String,
    /// The same as --log-level=debug
    #[arg(long, default_value = "false", value_parser = parse_switch, num_args = 1, value_name = "BOOL")]
    pub debug: bool,
    /// A file of settings in YAML; flags and environment are ignored then
    #[arg(long, default_value = "", hide_default_value = true, value_parser = parse_path)]
    pub config_file: PathBuf,
    /// Say which version this is, and end
    #[arg(long, default_value = "false", value_parser = parse_switch, num_args = 1, value_name = "BOOL")]
    pub version: bool,
    /// Whether the cluster is said to be there already.
    #[arg(skip)]
    pub(crate) existing_cluster: bool,
    /// What there is to tell about the flags.
    #[arg(skip)]
    notes: Vec<Note>,
}

const AFTER_HELP: &str = "\
All flags can be given with one dash or two, and as variables: ETCD_DATA_DIR is --data-dir. Those of etcd about peers, \
raft and its files are ignored with a warning; those that name other members are refused, and so is \
--initial-cluster-state existing where the data directory is empty.

Writes are refused, with the alarm NOSPACE, while the store has come to its quota or the disk has little room left; deletions \
and compactions are taken. This alarm ends by itself within seconds of there being room again; one that a client has raised does not.";

/// Why a command line is not followed.
#[derive(Debug)]
pub enum Refusal {
    /// Something is wrong with it.
    Wrong(String),
    /// It asks for a text: the version, or help.
    Asked(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(text) | Self::Asked(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Refusal {}

impl Config {
    /// Reads the command line of this process, its environment and the file they name.
    ///
    /// # Errors
    /// [`Refusal`]: what a flag, a variable or the file asks for cannot be; or help or the version was asked for.
    pub fn from_process() -> Result<Self, Refusal> {
        let arguments: Vec<_> =
            std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        let variables = std::env::vars_os()
            .filter_map(|(a, b)| Some((a.into_string().ok()?, b.into_string().ok()?)));
        Self::read(&arguments, &variables.collect::<Vec<_>>())
    }

    /// Reads a command line, without the name of the program, and an environment.
    ///
    /// # Errors
    /// As [`Config::from_process`].
    pub fn read(arguments: &[String], environment: &[(String, String)]) -> Result<Self, Refusal> {
        let flags = flags::read(arguments, environment).map_err(Refusal::Wrong)?;
        if let Some(word) = flags.words.first() {
            return Err(Refusal::Wrong(format!("'{word}' is not a valid flag")));
        }
        let config = Self::of(flags)?;
        if config.version {
            return Err(Refusal::Asked(version()));
        }
        let config =
            if config.config_file.as_os_str().is_empty() { config } else { config.read_file()? };
        config.checked()
    }

    fn of(flags: Flags) -> Result<Self, Refusal> {
        for note in &flags.notes {
            if let Note::Unknown(name) | Note::UnknownVariable(name) = note
                && let Some(known) = flags::meant(name)
            {
                let text = format!("'{name}' is not a known setting: did you mean --{known}?");
                return Err(Refusal::Wrong(text));
            }
        }
        if let Some((_, setting)) = flags.other_members.first() {
            return Err(Refusal::Wrong(format!(
                "'{setting}' names other members, which annals-etcd would not ask: it is a cluster of one, and would begin \
                 empty. To take over what they have, take a snapshot of one (etcdctl snapshot save snapshot.db), \
                 make a store of it (annals -C DIR/store import etcd snapshot.db) and start annals-etcd without this setting \
                 and with --data-dir DIR --users-from snapshot.db"
            )));
        }
        // The last of several values counts, as with etcd.
        let mut last: Vec<String> = Vec::new();
        for flag in flags.given {
            let name =
                flag.split_once('=').map_or(flag.as_str(), |(name, _)| name).to_owned() + "=";
            last.retain(|earlier| !earlier.starts_with(&name));
            last.push(flag);
        }
        let words = std::iter::once("annals-etcd".to_owned()).chain(last);
        let mut config = Self::try_parse_from(words).map_err(|error| match error.kind() {
            clap::error::ErrorKind::DisplayHelp => Refusal::Asked(error.to_string()),
            _ => Refusal::Wrong(error.to_string()),
        })?;
        (config.existing_cluster, config.notes) = (flags.existing_cluster, flags.notes);
        Ok(config)
    }

    fn read_file(&self) -> Result<Self, Refusal> {
        let path = self.config_file.display();
        let text = std::fs::read_to_string(&self.config_file).map_err(|error| {
            Refusal::Wrong(format!("cannot read --config-file {path}: {error}"))
        })?;
        let flags = file::read(&text)
            .map_err(|error| Refusal::Wrong(format!("--config-file {path} is wrong: {error}")))?;
        let mut config = Self::of(flags)?;
        config.config_file.clone_from(&self.config_file);
        Ok(config)
    }

    /// Refuses what is wrong, and fills in what follows from the rest.
    fn checked(mut self) -> Result<Self, Refusal> {
        self.check().map_err(Refusal::Wrong)?;
        if self.data_dir.as_os_str().is_empty() {
            self.data_dir = format!("{}.etcd", self.name).into();
        }
        if self.quota_backend_bytes == 0 {
            self.quota_backend_bytes = DEFAULT_QUOTA_BYTES;
        }
        if self.auth_token_ttl == 0 {
            self.auth_token_ttl = DEFAULT_TOKEN_TTL;
        }
        self.watch_progress_notify_interval = match self.watch_progress_notify_interval {
            Duration::ZERO => PROGRESS_INTERVAL,
            interval => interval.max(SHORTEST_PROGRESS_INTERVAL),
        };
        if self.debug {
            "debug".clone_into(&mut self.log_level);
        }
        Ok(self)
    }

    fn check(&self) -> Result<(), String> {
        if self.listen_client()?.is_empty() {
            return Err("--listen-client-urls names no address".to_owned());
        }
        if self.cert_file.as_os_str().is_empty() != self.key_file.as_os_str().is_empty() {
            return Err("--cert-file and --key-file are needed together".to_owned());
        }
        ListenUrl::parse_list(&self.initial_advertise_peer_urls)
            .map_err(|error| format!("--initial-advertise-peer-urls: {error}"))?;
        for url in self.listen_all()? {
            if url.tls && !self.auto_tls && self.cert_file.as_os_str().is_empty() {
                return Err(format!(
                    "TLS key/cert must be provided for client url {url} with HTTPS scheme"
                ));
            }
        }
        for (urls, could) in [
            (self.listen_client()?, "read and write everything"),
            (self.listen_http()?, "read and write everything"),
            (self.listen_metrics()?, "read its metrics"),
        ] {
            for url in urls {
                if !url.tls && !self.allow_insecure_network && url.is_network()? {
                    return Err(format!(
                        "{url} is open to other machines without TLS: everybody there could {could}; \
                         use https with --cert-file and --key-file, or say --allow-insecure-network"
                    ));
                }
            }
        }
        if self.client_cert_auth && self.trusted_ca_file.as_os_str().is_empty() {
            return Err("--client-cert-auth needs --trusted-ca-file".to_owned());
        }
        let known = |name: &str, value: &str, of: &[&str]| {
            let ok = of.contains(&value);
            if ok {
                Ok(())
            } else {
                Err(format!("--{name} {value:?} is unknown: one of {}", of.join(", ")))
            }
        };
        known("log-format", &self.log_format, &["json", "console"])?;
        for (name, value) in
            [("tls-min-version", &self.tls_min_version), ("tls-max-version", &self.tls_max_version)]
        {
            if !value.is_empty() {
                known(name, value, &["TLS1.2", "TLS1.3"])?;
            }
        }
        if self.tls_min_version == "TLS1.3" && self.tls_max_version == "TLS1.2" {
            return Err("--tls-min-version is above --tls-max-version".to_owned());
        }
        if crate::log::Level::parse(&self.log_level).is_none() {
            return Err(format!("unknown log level ({:?})", self.log_level));
        }
        if self.auth_token.split(',').next() != Some("simple") {
            let text = "only simple tokens are there, none that other servers could check";
            return Err(format!("--auth-token {:?}: {text}", self.auth_token));
        }
        if !(4..=31).contains(&self.bcrypt_cost) {
            return Err(format!("--bcrypt-cost {} is not between 4 and 31", self.bcrypt_cost));
        }
        self.auto_compaction().map(drop)
    }

    /// Where clients are listened to.
    ///
    /// # Errors
    /// One is not a URL to listen on.
    pub fn listen_client(&self) -> Result<Vec<ListenUrl>, String> {
        ListenUrl::parse_list(&self.listen_client_urls)
    }

    /// Where clients without gRPC are listened to, if elsewhere.
    ///
    /// # Errors
    /// One is not a URL to listen on.
    pub fn listen_http(&self) -> Result<Vec<ListenUrl>, String> {
        ListenUrl::parse_list(&self.listen_client_http_urls)
    }

    /// Where metrics and health are told, beside the other places.
    ///
    /// # Errors
    /// One is not a URL to listen on.
    pub fn listen_metrics(&self) -> Result<Vec<ListenUrl>, String> {
        ListenUrl::parse_list(&self.listen_metrics_urls)
    }

    fn listen_all(&self) -> Result<Vec<ListenUrl>, String> {
        let mut all = self.listen_client()?;
        all.extend(self.listen_http()?);
        all.extend(self.listen_metrics()?);
        Ok(all)
    }

    /// The URLs told to clients that ask where the members are.
    pub fn advertised(&self) -> Vec<String> {
        let told = match self.advertise_client_urls.trim() {
            "" => &self.listen_client_urls,
            given => given,
        };
        list(told)
    }

    /// The peer URLs that the server tells clients.
    pub fn peers(&self) -> Vec<String> {
        list(&self.initial_advertise_peer_urls)
    }

    /// The lines of the log that tell about flags and variables which are not followed: a text, and the flag.
    pub fn warnings(&self) -> Vec<(&'static str, String)> {
        let mut told = Vec::new();
        for note in &self.notes {
            let warning = match note {
                Note::Idle(name) => {
                    ("this setting has no meaning here and is ignored", name.clone())
                }
                Note::Unknown(name) => ("this setting is unknown and is ignored", name.clone()),
                Note::UnknownVariable(name) => ("unrecognized environment variable", name.clone()),
                Note::Shadowed(name) => {
                    ("environment variable is shadowed by a flag", name.clone())
                }
            };
            if !told.contains(&warning) {
                told.push(warning);
            }
        }
        told
    }
}

/// The parts of a text with commas.
fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(Into::into).collect()
}

/// A path, which may be empty: none.
#[expect(clippy::unnecessary_wraps, reason = "what clap asks for")]
fn parse_path(text: &str) -> Result<PathBuf, String> {
    Ok(text.into())
}

/// What `--version` says.
pub fn version() -> String {
    format!(
        "etcd Version: {}\nGit SHA: Not provided\nannals-etcd Version: {}\nOS/Arch: {}/{}\n",
        crate::VERSION,
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
    )
}

#[cfg(test)]
mod tests;
