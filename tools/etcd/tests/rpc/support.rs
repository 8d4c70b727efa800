//! Servers for tests: ours in this process, and a real etcd where one is installed.

use std::process::{Command, Stdio};

use annals_etcd::auth::{Auth, AuthOptions};
use annals_etcd::member::Member;
use annals_etcd::proto::etcdserverpb as pb;
use annals_etcd::server::{Server, ServerOptions};
use annals_etcd::services::Services;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};
use tonic::transport::Channel;

use crate::etcd_process::{EtcdProcess, Ports};

/// Clients of a server.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub(crate) channel: Channel,
    pub(crate) kv: KvClient<Channel>,
    pub(crate) watch: WatchClient<Channel>,
    pub(crate) lease: LeaseClient<Channel>,
    pub(crate) maintenance: MaintenanceClient<Channel>,
}

impl Clients {
    pub(crate) async fn connect(address: &str) -> Self {
        let channel = Channel::from_shared(format!("http://{address}"))
            .expect("an address")
            .connect()
            .await
            .expect("it listens");
        Self {
            kv: KvClient::new(channel.clone()).max_decoding_message_size(usize::MAX),
            watch: WatchClient::new(channel.clone()).max_decoding_message_size(usize::MAX),
            lease: LeaseClient::new(channel.clone()),
            maintenance: MaintenanceClient::new(channel.clone()),
            channel,
        }
    }
}

/// A server of ours, in this process.
pub(crate) struct Ours {
    pub(crate) clients: Clients,
    task: tokio::task::JoinHandle<()>,
    _directory: TempDir,
}

impl Ours {
    pub(crate) async fn start() -> Self {
        Self::with(annals::Options::new().durability(annals::Durability::Buffered), |_| {}).await
    }

    /// With options of the store and of the server. Nothing here is about crashes, so a store may be `Buffered`.
    pub(crate) async fn with(
        store: annals::Options,
        change: impl FnOnce(&mut ServerOptions),
    ) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let store = store.open(directory.path().join("store")).expect("a store");
        let auth = AuthOptions { bcrypt_cost: 4, ..AuthOptions::default() };
        let auth = Auth::open(directory.path(), auth).expect("no users yet");
        let member =
            Member::open(directory.path(), "default".into(), vec![], vec![]).expect("a member");
        let mut options = ServerOptions::new(directory.path());
        change(&mut options);
        let server = Server::new(store, auth, member, options);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let services = Services::new(&server);
        let service = axum::Router::new()
            .fallback(move |request| async move { services.call(request).await });
        let task = tokio::spawn(async move {
            axum::serve(listener, service).await.expect("it serves");
        });
        let clients = Clients::connect(&address).await;
        Self { clients, task, _directory: directory }
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Only one at a time has this: two processors are enough for one real etcd, and for one test that wants its answers soon.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::const_new(());
    ONE.lock().await
}

/// A real etcd, on ports of its own, and the only one meanwhile.
pub(crate) struct Real {
    pub(crate) clients: Clients,
    _process: EtcdProcess,
    _directory: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Real {
    /// `None`, with a message, where etcd is not installed.
    pub(crate) async fn start() -> Option<Self> {
        // Another one than that in the path, such as of another version.
        let etcd = std::env::var_os("ETCD").unwrap_or_else(|| "etcd".into());
        if Command::new(&etcd).arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("skipped: no etcd here (Debian: apt-get install etcd-server)");
            return None;
        }
        // Since 3.6 it is no experiment.
        let help = Command::new(&etcd).arg("--help").output().expect("etcd starts");
        let help = [help.stdout, help.stderr].concat();
        let progress = "--watch-progress-notify-interval";
        let progress = if String::from_utf8_lossy(&help).contains(progress) {
            progress
        } else {
            "--experimental-watch-progress-notify-interval"
        };
        let alone = alone().await;
        let directory = tempfile::tempdir().expect("a directory");
        let command = |ports: Ports| {
            let mut command = Command::new(&etcd);
            command.arg("--data-dir").arg(directory.path()).args(ports.flags());
            command.args(["--unsafe-no-fsync", "--bcrypt-cost", "4"]).args([progress, "100ms"]);
            command
        };
        let process = EtcdProcess::start(command, Ports::are_healthy);
        let address = format!("127.0.0.1:{}", process.ports.client);
        let clients = Clients::connect(&address).await;
        Some(Self { clients, _process: process, _directory: directory, _alone: alone })
    }
}
