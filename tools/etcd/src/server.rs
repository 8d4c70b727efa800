//! The server: a store, and what its services share.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use annals::Store;
use bytes::Bytes;
use tokio::sync::{Mutex, Semaphore};
use tonic::{Request, Status};

use crate::alarm::{Alarms, Raised};
use crate::answers::signed;
use crate::auth::{Auth, Caller};
use crate::errors::{TOO_LARGE, TOO_MANY_REQUESTS, refuse, status};
use crate::held::Held;
use crate::member::Member;
use crate::metrics::Metrics;
use crate::proto::etcdserverpb as pb;

/// Writes that wait for the disk in threads of their own, at once; of the 512 that a runtime has.
const WRITERS: usize = 128;

/// Snapshots at once: each has a file as large as the store, and a processor while it is made.
const SNAPSHOTS: usize = 4;

/// What can be chosen of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Operations a transaction may have: etcd's `--max-txn-ops`.
    pub max_txn_ops: usize,
    /// Bytes a request may have: etcd's `--max-request-bytes`.
    pub max_request_bytes: usize,
    /// Bytes the store may have before writes are refused: etcd's `--quota-backend-bytes`; 0 for no limit.
    pub quota_bytes: u64,
    /// How often a watch that asks for it is told that nothing has happened.
    pub watch_progress_interval: Duration,
    /// Writes that wait for the disk before more are refused.
    pub max_pending_writes: usize,
    /// Bytes of the writes that wait for the disk before more are refused: a client that has gone leaves its own behind.
    pub max_pending_bytes: u64,
    /// Watches that one stream may have.
    pub max_watches_per_stream: usize,
    /// Where large answers are put together.
    pub temporary_dir: std::path::PathBuf,
}

impl ServerOptions {
    /// Those of an etcd that was told nothing, for a server with this directory.
    pub fn new(directory: &Path) -> Self {
        Self {
            max_txn_ops: 128,
            max_request_bytes: 1_572_864,
            quota_bytes: 2 << 30,
            watch_progress_interval: Duration::from_secs(600),
            max_pending_writes: 5000,
            max_pending_bytes: 256 << 20,
            max_watches_per_stream: 100_000,
            temporary_dir: directory.to_path_buf(),
        }
    }
}

/// What all services share.
#[derive(Debug)]
pub struct Server {
    pub(crate) store: Store,
    pub(crate) auth: Arc<Auth>,
    pub(crate) member: Member,
    pub(crate) alarms: Alarms,
    pub(crate) options: ServerOptions,
    pub(crate) metrics: Arc<Metrics>,
    /// Places of snapshots that are under way.
    pub(crate) snapshots: Arc<Semaphore>,
    pub(crate) held: Held,
    /// Held by who writes the store anew: its newest and its compacted revision when that was last done.
    shrunk: Mutex<(u64, u64)>,
    pending: AtomicUsize,
    pending_bytes: AtomicU64,
    /// Threads that writes may wait in: some of those that a runtime has.
    writers: Arc<Semaphore>,
}

impl Server {
    /// A server over a store that is open.
    pub fn new(store: Store, auth: Auth, member: Member, options: ServerOptions) -> Arc<Self> {
        Self::with_raised(store, auth, member, options, Raised::default())
    }

    /// The same, with alarms that clients have raised before.
    pub fn with_raised(
        store: Store,
        auth: Auth,
        member: Member,
        options: ServerOptions,
        raised: Raised,
    ) -> Arc<Self> {
        let alarms = Alarms::new(&store, options.quota_bytes)
            .on_disk_of(&options.temporary_dir)
            .with_raised(raised);
        let auth = Arc::new(auth);
        let metrics = Arc::default();
        let snapshots = Arc::new(Semaphore::new(SNAPSHOTS));
        let (held, shrunk) = (Held::new(), Mutex::default());
        Arc::new(Self {
            store,
            auth,
            member,
            alarms,
            options,
            metrics,
            snapshots,
            held,
            shrunk,
            pending: AtomicUsize::new(0),
            pending_bytes: AtomicU64::new(0),
            writers: Arc::new(Semaphore::new(WRITERS)),
        })
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What its services have done.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Its alarms.
    pub fn alarms(&self) -> &Alarms {
        &self.alarms
    }

    /// Gives back what a store holds that wants for space and nobody can ask for any more, and looks at its size anew.
    /// One at a time, and only if something has changed since the last time: deletions and compactions make room.
    ///
    /// # Errors
    /// That of the store.
    pub async fn make_room(self: &Arc<Self>) -> annals::Result<()> {
        let mut shrunk = self.shrunk.lock().await;
        let stats = self.store.stats();
        let now = (stats.revision, stats.compacted_revision);
        if now == *shrunk || !self.alarms.could_shrink() {
            return Ok(());
        }
        let server = Arc::clone(self);
        let work = move || {
            server.store.reorganise()?;
            server.alarms.look(&server.store);
            Ok(())
        };
        let done = tokio::task::spawn_blocking(work).await;
        *shrunk = now;
        // The server stops, and with it this.
        done.unwrap_or(Ok(()))
    }

    /// The head of an answer as of a revision.
    #[expect(clippy::unnecessary_wraps, reason = "every answer of the protocol takes it so")]
    pub(crate) fn header(&self, revision: u64) -> Option<pb::ResponseHeader> {
        Some(pb::ResponseHeader {
            cluster_id: self.member.cluster_id,
            member_id: self.member.id,
            revision: signed(revision),
            raft_term: self.member.term,
        })
    }

    /// The head of an answer as of now.
    pub(crate) fn header_now(&self) -> Option<pb::ResponseHeader> {
        self.header(self.store.revision())
    }

    /// Who sends a request.
    pub(crate) fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        let name = request.extensions().get::<PeerCommonName>().map(|name| name.0.as_str());
        self.auth.caller(request.metadata(), name)
    }

    /// The keys of leases, for who must be allowed to change them. A lease that is not there has none.
    pub(crate) async fn keys_of(self: &Arc<Self>, leases: Vec<i64>) -> Result<Vec<Bytes>, Status> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        self.blocking(move |store| {
            let mut keys = Vec::new();
            for id in leases {
                keys.extend(store.lease_time_to_live(id, true)?.into_iter().flat_map(|l| l.keys));
            }
            Ok(keys)
        })
        .await
    }

    /// Refuses what is larger than a request may be, as etcd counts it: encoded, in the envelope in which a leader would
    /// send it to its followers.
    pub(crate) fn check_size(&self, encoded: usize) -> Result<(), Status> {
        /// The envelope's head with a number of ten bytes, the field's tag, and the length's first byte.
        const ENVELOPE: usize = 16;
        let whole = encoded + ENVELOPE + prost::length_delimiter_len(encoded);
        if whole > self.options.max_request_bytes { Err(refuse(TOO_LARGE)) } else { Ok(()) }
    }

    /// A place among the writes that wait for the disk, for one of so many bytes.
    ///
    /// # Errors
    /// Too many wait, or too much; one alone is never too much.
    pub(crate) fn begin_write(self: &Arc<Self>, bytes: usize) -> Result<Pending, Status> {
        let bytes = bytes as u64;
        // Relaxed: they count, and order nothing.
        let others = self.pending.fetch_add(1, Ordering::Relaxed);
        let waiting = self.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
        let place = Pending { server: Arc::clone(self), bytes };
        let is_much = waiting > 0 && waiting.saturating_add(bytes) > self.options.max_pending_bytes;
        if others >= self.options.max_pending_writes || is_much {
            return Err(refuse(TOO_MANY_REQUESTS));
        }
        Ok(place)
    }

    /// Raises the alarm that belongs to an error of a write. Damage that a reader meets raises none: that would end all
    /// writing.
    pub(crate) fn note(&self, error: &annals::Error, is_write: bool) {
        if is_write {
            self.alarms.note(error);
        }
    }

    /// Runs what may wait for the disk before it has its place in the order, by one of the threads that there are for
    /// it: those for reads stay free. The place among the writes is held as long as it runs, also where its caller has
    /// gone. Of one that only reads (not `is_write`) no error raises an alarm.
    ///
    /// # Errors
    /// That of the work; or that the server is stopping.
    pub(crate) async fn writing<T: Send + 'static>(
        self: &Arc<Self>,
        (place, is_write): (Pending, bool),
        work: impl FnOnce(&Store) -> annals::Result<T> + Send + 'static,
    ) -> Result<(T, Pending), Status> {
        let stopping = |_| Status::unavailable("annals: the server is stopping");
        let thread = Arc::clone(&self.writers).acquire_owned().await.map_err(stopping)?;
        let server = Arc::clone(self);
        let work = move |store: &Store| {
            let _thread = thread;
            let done = work(store).inspect_err(|error| server.note(error, is_write));
            Ok((done?, place))
        };
        self.blocking(work).await
    }

    /// Runs what may read files or wait for them.
    ///
    /// # Errors
    /// That of the work; or that the server is stopping.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Store) -> annals::Result<T> + Send + 'static,
    ) -> Result<T, Status> {
        let server = Arc::clone(self);
        tokio::task::spawn_blocking(move || work(&server.store))
            .await
            .map_err(|error| Status::unavailable(format!("annals: {error}")))?
            .map_err(|error| status(&error))
    }
}

/// The name in the certificate that a client has shown.
#[derive(Clone, Debug)]
pub struct PeerCommonName(pub String);

/// A place among the writes that wait.
#[derive(Debug)]
pub(crate) struct Pending {
    server: Arc<Server>,
    bytes: u64,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.server.pending.fetch_sub(1, Ordering::Relaxed);
        self.server.pending_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
