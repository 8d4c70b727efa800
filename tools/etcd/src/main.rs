//! The binary `annals-etcd`.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use annals_etcd::alarm::LOOK_EVERY;
use annals_etcd::config::{Config, Refusal};
use annals_etcd::http::App;
use annals_etcd::log::{self, Format, Level};
use annals_etcd::server::Server;
use annals_etcd::services::Services;
use annals_etcd::tls::own;
use annals_etcd::{compactor, directory};
use annals_etcd::{error, info, serve, warn};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A request takes and gives back dozens of small pieces of memory, on any thread: puts are a tenth to a quarter faster
/// with this one than with glibc's, and less is left lying when the load is over (`benches/RESULTS.md`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let config = match Config::from_process() {
        Ok(config) => config,
        Err(Refusal::Asked(text)) => {
            // Where it cannot be written nobody reads it.
            let _ = std::io::stdout().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(Refusal::Wrong(text)) => return refuse(&text),
    };
    let format = if config.log_format == "console" { Format::Console } else { Format::Json };
    let outputs: Vec<_> =
        config.log_outputs.split(',').map(|name| name.trim().to_owned()).collect();
    if let Err(error) =
        log::init(Level::parse(&config.log_level).unwrap_or(Level::Info), format, &outputs)
    {
        return refuse(&error.to_string());
    }
    for (text, setting) in config.warnings() {
        warn!(text, "setting" = setting);
    }
    match start(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            error!("the server has ended", "error" = reason);
            ExitCode::FAILURE
        }
    }
}

fn refuse(text: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "annals-etcd: {}", text.trim_end());
    ExitCode::from(2)
}

fn start(config: &Config) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start threads: {error}"))?;
    let server = runtime.block_on(run(config))?;
    // Calls that wait on threads of their own may hold on to the store: they get a moment.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    // Whoever has handles still is told that the store is closed.
    let closed = server.store().clone().close();
    closed.map_err(|error| format!("closing the store: {error}"))?;
    info!("closed etcd server", "name" = config.name, "data-dir" = config.data_dir);
    Ok(())
}

async fn run(config: &Config) -> Result<Arc<Server>, String> {
    directory::check(config)?;
    let mut config = config.clone();
    own::ensure(&mut config)?;
    let config = &config;
    let signals = Signals::new().map_err(|error| format!("cannot listen for signals: {error}"))?;
    // Before the store is opened, so that a second server on the same addresses touches nothing.
    let listening = serve::Server::bind(config)?;
    info!(
        "starting an etcd server",
        "etcd-version" = annals_etcd::VERSION,
        "annals-etcd-version" = env!("CARGO_PKG_VERSION"),
        "name" = config.name,
        "data-dir" = config.data_dir,
        "listen-client-urls" = config.listen_client_urls,
        "advertise-client-urls" = config.advertised(),
        "listen-metrics-urls" = config.listen_metrics_urls,
        "quota-backend-bytes" = config.quota_backend_bytes,
        "max-request-bytes" = config.max_request_bytes,
        "auto-compaction-mode" = config.auto_compaction_mode,
        "auto-compaction-retention" = config.auto_compaction_retention,
    );
    let server = directory::open(config)?;
    let shutdown = serve::Shutdown::default();
    tokio::spawn(signals.wait(shutdown.clone()));
    tokio::spawn(look(Arc::downgrade(&server), shutdown.clone()));
    tokio::spawn(compactor::run(Arc::downgrade(&server), config.auto_compaction()?));
    let app = App {
        grpc: Services::new(&server),
        probe: Arc::clone(&server) as _,
        metrics: server.metrics(),
    };
    listening.run(app, shutdown).await?;
    info!("closing etcd server", "name" = config.name, "data-dir" = config.data_dir);
    Ok(server)
}

/// Looks at the store's size from time to time, and makes it smaller where it is too large.
async fn look(server: std::sync::Weak<Server>, shutdown: serve::Shutdown) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = shutdown.begun() => return,
        }
        let Some(server) = server.upgrade() else { return };
        server.alarms().look(server.store());
        if let Err(error) = server.make_room().await {
            warn!("the store cannot be made smaller", "error" = error.to_string());
        }
    }
}

/// What ends the server from outside.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "terminated",
            _ = self.interrupt.recv() => "interrupt",
        }
    }

    /// The first one ends the server in good order, the second at once.
    async fn wait(mut self, shutdown: serve::Shutdown) {
        // Not within the lines that tell of it: those that are not written are not evaluated.
        let first = self.next().await;
        info!("received signal; shutting down", "signal" = first);
        shutdown.begin();
        let second = self.next().await;
        warn!("received a second signal; ending at once", "signal" = second);
        std::process::exit(1);
    }
}
