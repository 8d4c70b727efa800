//! Listening, serving and stopping.

pub(crate) mod authority;
pub(crate) mod calls;
pub(crate) mod conn;
pub(crate) mod frames;
pub(crate) mod linger;
pub(crate) mod notify;
pub(crate) mod pace;
pub(crate) mod wire;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::config::{Config, ListenUrl, Place};
use crate::http::{App, Front, Traffic};
use crate::metrics::process;
use crate::serve::conn::{Common, Peer, builder};
use crate::serve::notify::notify;
use crate::tls::Tls;
use crate::{info, warn};

/// Files that are kept for the store where connections could use them up.
const RESERVED_FILES: usize = 150;

/// Connections at once of a listener for metrics.
const MONITORS: usize = 64;

/// After so long without a byte the kernel asks whether the peer is there.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Tells everyone that the server stops.
#[derive(Debug, Clone)]
pub struct Shutdown(Arc<watch::Sender<Phase>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// No new connections, no new streams; calls end.
    Stopping,
    /// What has not ended is cut.
    Cutting,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Phase::Serving)))
    }
}

impl Shutdown {
    /// Begins it.
    pub fn begin(&self) {
        self.advance(Phase::Stopping);
    }

    /// Whether it has begun.
    pub fn is_begun(&self) -> bool {
        *self.0.borrow() >= Phase::Stopping
    }

    /// Waits until it begins.
    pub async fn begun(&self) {
        self.reached(Phase::Stopping).await;
    }

    /// Waits until the time for what was under way is over.
    pub(crate) async fn cut(&self) {
        self.reached(Phase::Cutting).await;
    }

    fn advance(&self, to: Phase) {
        self.0.send_if_modified(|phase| {
            let later = *phase < to;
            *phase = (*phase).max(to);
            later
        });
    }

    async fn reached(&self, phase: Phase) {
        // The sender is ours: the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|now| *now >= phase).await;
    }
}

/// A server that has its addresses, and does not serve yet.
pub struct Server {
    listeners: Vec<Bound>,
    tls: Option<Arc<Tls>>,
    config: Config,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

struct Bound {
    listener: Listener,
    url: ListenUrl,
    traffic: Traffic,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A socket of the file system, removed at the end.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Server {
    /// Reads the certificates and takes the addresses. Within a runtime of tokio.
    ///
    /// # Errors
    /// A certificate cannot be read, or an address not be taken.
    pub fn bind(config: &Config) -> Result<Self, String> {
        let tls = Tls::of(config)?.map(Arc::new);
        let http = config.listen_http()?;
        let client = if http.is_empty() { Traffic::All } else { Traffic::Grpc };
        let mut listeners = Vec::new();
        let metrics = config.listen_metrics()?;
        let groups =
            [(config.listen_client()?, client), (http, Traffic::Http), (metrics, Traffic::Metrics)];
        for (urls, traffic) in groups {
            for url in urls {
                if !url.tls && tls.is_some() {
                    let text = "scheme is http or unix while key and cert files are present; ignoring key and cert files";
                    warn!(text, "client-url" = url.to_string());
                }
                listeners.extend(bind(&url, traffic)?);
            }
        }
        Ok(Self { listeners, tls, config: config.clone() })
    }

    /// The addresses of TCP that were taken, in the order of the flags.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let tcp = self.listeners.iter().filter_map(|bound| match &bound.listener {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(..) => None,
        });
        tcp.collect()
    }

    /// Serves until `shutdown` begins and what was under way has ended, or its time is over.
    ///
    /// # Errors
    /// A listener fails, or a setting cannot be followed.
    pub async fn run(self, app: App, shutdown: Shutdown) -> Result<(), String> {
        let (config, metrics) = (&self.config, Arc::clone(&app.metrics));
        let front = Front::new(config, app, shutdown.clone())?;
        let shutdown_of = shutdown.clone();
        let common = Common {
            front,
            metrics,
            tls: self.tls,
            shutdown: shutdown_of,
            spare: Arc::default(),
            builder: builder(config),
        };
        let permits = Arc::new(Semaphore::new(max_connections(config)));
        let (alive, mut all_ended) = mpsc::channel::<()>(1);
        info!(
            "enabled capabilities for version",
            "cluster-version" = crate::http::cluster_version()
        );
        info!("ready to serve client requests");
        for bound in self.listeners {
            bound.tell();
            // Who looks after the server gets through when there are too many others.
            let monitors = bound.traffic == Traffic::Metrics;
            let permits =
                if monitors { Arc::new(Semaphore::new(MONITORS)) } else { Arc::clone(&permits) };
            let acceptor = Acceptor { bound, common: common.clone(), permits };
            tokio::spawn(acceptor.run(alive.clone()));
        }
        drop((alive, common));
        notify("READY=1");
        shutdown.begun().await;
        notify("STOPPING=1");
        let limit = config.shutdown_timeout;
        // Nothing is ever sent: the channel ends with the last connection.
        if timeout(limit, all_ended.recv()).await.is_err() {
            warn!("cutting connections that did not end in time", "timeout" = format!("{limit:?}"));
            shutdown.advance(Phase::Cutting);
            let _ = timeout(Duration::from_secs(1), all_ended.recv()).await;
        }
        Ok(())
    }
}

/// As many connections as were asked for, or as files can be open beside those of the store.
fn max_connections(config: &Config) -> usize {
    let by_files =
        || process::max_open_files().map(|most| most.saturating_sub(RESERVED_FILES).max(16));
    let asked = Some(config.max_connections).filter(|asked| *asked > 0);
    asked.or_else(by_files).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS)
}

fn bind(url: &ListenUrl, traffic: Traffic) -> Result<Vec<Bound>, String> {
    let wrong = |error: io::Error| format!("cannot listen on {url}: {error}");
    let bound = |listener| Bound { listener, url: url.clone(), traffic };
    if let Place::Unix(path) = &url.place {
        return Ok(vec![bound(bind_unix(path).map_err(wrong)?)]);
    }
    let mut listeners = Vec::new();
    for address in url.addresses()? {
        let mut taken = bind_tcp(address);
        if taken.is_err() && address.ip().is_unspecified() && address.is_ipv6() {
            // A machine without IPv6.
            taken = bind_tcp(SocketAddr::from(([0, 0, 0, 0], address.port()))).or(taken);
        }
        listeners.push(bound(Listener::Tcp(taken.map_err(wrong)?)));
    }
    Ok(listeners)
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket =
        socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

/// Takes a socket of the file system. One that a server left behind is replaced.
fn bind_unix(path: &Path) -> io::Result<Listener> {
    use std::os::unix::fs::FileTypeExt as _;
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    Ok(Listener::Unix(listener, SocketFile(path.to_owned())))
}

impl Bound {
    /// Says what is served where, in etcd's words.
    fn tell(&self) {
        let address = match &self.listener {
            Listener::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| self.url.to_string(), |a| a.to_string())
            }
            Listener::Unix(_, file) => file.0.display().to_string(),
        };
        let traffic = match self.traffic {
            Traffic::All => "grpc+http",
            Traffic::Grpc => "grpc",
            Traffic::Http => "http",
            Traffic::Metrics => {
                info!("serving metrics", "address" = address);
                return;
            }
        };
        if self.url.tls {
            info!("serving client traffic securely", "traffic" = traffic, "address" = address);
        } else {
            let text = "serving client traffic insecurely; this is strongly discouraged!";
            info!(text, "traffic" = traffic, "address" = address);
        }
    }
}

/// Takes connections of one listener.
struct Acceptor {
    bound: Bound,
    common: Common,
    permits: Arc<Semaphore>,
}

impl Acceptor {
    async fn run(self, alive: mpsc::Sender<()>) {
        let shutdown = self.common.shutdown.clone();
        tokio::select! {
            () = self.accept_all(&alive) => {}
            () = shutdown.begun() => {}
        }
        // The end of the server is told by `alive`, and the process may be gone right after it:
        // the socket of the file system is removed before. (Arguments are dropped last first.)
        drop(self);
        drop(alive);
    }

    async fn accept_all(&self, alive: &mpsc::Sender<()>) {
        loop {
            let (common, traffic, secure) =
                (self.common.clone(), self.bound.traffic, self.bound.url.tls);
            let alive = alive.clone();
            let accepted = match &self.bound.listener {
                Listener::Tcp(listener) => listener.accept().await.map(|(stream, remote)| {
                    tune(&stream);
                    let peer = Peer { remote: Some(remote), ..Peer::default() };
                    Box::pin(common.serve(stream, traffic, secure, peer)) as Serving
                }),
                Listener::Unix(listener, _) => listener.accept().await.map(|(stream, _)| {
                    Box::pin(common.serve(stream, traffic, secure, Peer::default())) as Serving
                }),
            };
            let serving = match accepted {
                Ok(serving) => serving,
                Err(error) => {
                    pause(&error).await;
                    continue;
                }
            };
            // While there are too many, this one waits here and those behind it in the kernel.
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else { return };
            tokio::spawn(async move {
                serving.await;
                drop((alive, permit));
            });
        }
    }
}

/// A connection until its end.
type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What the kernel is told about a connection. Where it refuses, the connection is as good as without.
fn tune(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let alive = socket2::TcpKeepalive::new().with_time(TCP_KEEPALIVE).with_interval(TCP_KEEPALIVE);
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&alive);
}

/// Waits after a failed accept, lest the same failure comes at once: when no file can be opened, as a rule.
async fn pause(error: &io::Error) {
    warn!("cannot accept a connection", "error" = error.to_string());
    sleep(Duration::from_millis(200)).await;
}
