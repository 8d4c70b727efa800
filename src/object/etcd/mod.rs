//! Objects in an etcd cluster: what the object layer needs of a store, asked of etcd.
//!
//! ```text
//!   EtcdKv      the calls of Kv: each waits for what a runtime of its own does
//!      |-- EtcdScan    a range in pages, all of one revision
//!      |-- EtcdWatch   what the watch stream brings to one watch
//!   Hub         one watch stream for all watches: begun anew where it breaks, without a gap
//!   Client      the members: which is asked, tokens, what is tried again
//!   failure     what a failure was     convert, wire    the protocol
//! ```
//!
//! Nothing here runs in a runtime of the caller's, who waits at a channel and so may be anywhere.

mod client;
mod convert;
mod failure;
mod hub;
mod options;
mod scan;
mod stream;
mod watch;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc;

use prost::Message;
use tokio::runtime::{Builder, Runtime};

use crate::error::{Error, ErrorKind, Result};
use crate::kv::{KeyRange, KeyValue, Op, RangeRequest, TxnRequest, TxnResponse};

use super::kv::{Kv, ScanRequest, WatchRequest};
use client::{Client, Failed};
use failure::Asked;

pub use options::EtcdOptions;
pub use scan::EtcdScan;
pub use watch::EtcdWatch;

const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";
const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";

/// Threads that do what calls wait for.
const WORKERS: usize = 2;

/// An etcd cluster as what objects lie in, instead of a [`Store`](crate::Store) of this process.
///
/// A program that is written against [`Objects`](super::Objects) moves to a cluster by this one line:
///
/// ```no_run
/// use std::sync::Arc;
/// use annals::object::{EtcdKv, EtcdOptions, Kind, Objects};
/// use serde_json::json;
///
/// let kv = EtcdKv::connect(["http://127.0.0.1:2379"], EtcdOptions::new())?; // was: annals::Store::open("data")?
/// let pods = Objects::new(Arc::new(kv), Kind::new("v1", "Pod", "pods"));
/// pods.create("default", json!({"metadata": {"name": "web"}}), &Default::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Clones share connections and the watch stream; the last one closes them.
///
/// # What is as with a store, and what is not
///
/// | of the object layer | in a cluster |
/// | --- | --- |
/// | create, get, update, patch, apply, delete, dry runs | the same: each is one transaction of etcd |
/// | lists, pages, counts, lists of an older version, [`get_at`](super::Objects::get_at) | the same, by ranges at a revision |
/// | watches | the same; a connection that breaks is made anew, and the watch goes on behind what it has told |
/// | 410 of what has been compacted | the same; compaction is the cluster's business, and there are no rules of retention |
/// | bookmarks | where etcd tells progress when asked, from 3.4.31 and 3.5.13 on; else as often as the server tells it by itself (`--experimental-watch-progress-notify-interval`), which is ten minutes unless it is set: in older ones an answer may overtake the changes before it |
/// | [`history`](super::Objects::history) | ends where the object was created, and of one that is deleted there is none: etcd cannot be asked for deletions |
/// | times to live | the same, by leases; etcd makes short ones longer, to about two seconds |
/// | what is too large | 413 from 1.5 MiB on, unless the server takes more |
/// | times of versions, metadata of commits, retention, backup, everything else of a [`Store`](crate::Store) | not part of [`Kv`], so there is nothing to refuse |
///
/// # Errors
///
/// | what has happened | error | [`Status`](super::Status) |
/// | --- | --- | --- |
/// | no member can be reached | [`Io`](ErrorKind::Io), of the kind `ConnectionRefused` or `ConnectionAborted` | 500 `ServerTimeout`, to come again |
/// | a member does not answer a read in time | [`Io`](ErrorKind::Io), of the kind `TimedOut` | 504 |
/// | a write was sent, and no answer came | [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) with the revision 0 | 504, [unknown](super::Status::is_unknown) |
/// | the revision has been compacted | [`Compacted`](ErrorKind::Compacted) | 410 |
/// | the revision is still to come | [`FutureRevision`](ErrorKind::FutureRevision) | 504 |
/// | the request is too large | [`TransactionTooLarge`](ErrorKind::TransactionTooLarge) | 413 |
/// | the quota of the cluster is used up | [`NoSpace`](ErrorKind::NoSpace) | 500 |
/// | the user may not, or is none | [`Io`](ErrorKind::Io), of the kind `PermissionDenied` | 500 |
///
/// Reads are tried again, at the other members too, until their [time](EtcdOptions::request_time) is over; grants of leases also, since one that
/// nobody knows of ends by itself. A write is tried again only where it is certain that etcd has not taken it.
///
/// # Threads
///
/// It has a runtime of its own with two threads, and a call waits for it. Calls may be made from inside another runtime of
/// tokio, too; they block the thread that makes them as those of a store do.
#[derive(Clone)]
pub struct EtcdKv {
    core: Arc<Core>,
}

/// What clones share.
struct Core {
    client: Arc<Client>,
    hub: hub::Hub,
    runtime: Option<Runtime>,
}

impl Drop for Core {
    /// A runtime that is dropped inside another one would wait, and panic.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Has a runtime do something, and waits for it.
fn wait<T: Send + 'static>(
    runtime: Option<&Runtime>,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    let (done, answer) = mpsc::sync_channel(1);
    let runtime = runtime.ok_or(ErrorKind::Closed)?;
    runtime.spawn(async move {
        let _ = done.send(work.await);
    });
    answer.recv().map_err(|_| ErrorKind::Closed.into())
}

impl EtcdKv {
    /// Connects to a cluster by the URLs of some of its members.
    ///
    /// ```no_run
    /// use annals::object::{EtcdKv, EtcdOptions};
    /// let kv = EtcdKv::connect(["http://127.0.0.1:2379"], EtcdOptions::new())?;
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](ErrorKind::InvalidOption) for an endpoint that is none and for certificates that cannot be read; what a read says
    /// where the cluster cannot be reached, or the user may not read.
    pub fn connect<E: AsRef<str>>(
        endpoints: impl IntoIterator<Item = E>,
        options: EtcdOptions,
    ) -> Result<Self> {
        let endpoints: Vec<String> =
            endpoints.into_iter().map(|endpoint| endpoint.as_ref().to_owned()).collect();
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("annals-etcd")
            .enable_all()
            .build()
            .map_err(|error| Error::io("start the threads of", "etcd", error))?;
        // Connections and the task of watches belong to the runtime in which they are made.
        let made = wait(Some(&runtime), async move {
            let client = Arc::new(Client::new(&endpoints, &options)?);
            let hub = hub::Hub::start(Arc::clone(&client));
            Ok((client, hub))
        });
        let (client, hub) = match made.and_then(|made| made) {
            Ok(made) => made,
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let kv = Self { core: Arc::new(Core { client, hub, runtime: Some(runtime) }) };
        kv.revision()?;
        Ok(kv)
    }

    /// Makes a call, and waits for its answer.
    fn call<Q, A>(&self, path: &'static str, message: Q, asked: &Asked) -> Result<Result<A, Failed>>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let (client, asked) = (Arc::clone(&self.core.client), asked.clone());
        wait(self.core.runtime.as_ref(), async move { client.call(path, message, &asked).await })
    }

    /// A range, with errors that name the revisions.
    fn range(&self, request: RangeRequest) -> Result<crate::kv::RangeResponse> {
        let asked = Asked { key: request.key.clone(), ..Asked::reading("read from") };
        let revision = request.revision;
        if revision == Some(0) {
            return Err(Error::invalid("there is no revision 0"));
        }
        let keys = &self.core.client.keys;
        match self.call(RANGE, keys.range(request), &asked)? {
            Ok(answer) => Ok(keys.ranged(answer)),
            Err(failed) => Err(self.failed(&failed, &asked, revision.unwrap_or_default())),
        }
    }

    /// The error of a call. Which revisions there are instead of the one asked for has to be asked for: errors of etcd do not tell.
    fn failed(&self, failed: &Failed, asked: &Asked, requested: u64) -> Error {
        match failed.status.message() {
            failure::COMPACTED => {
                let client = Arc::clone(&self.core.client);
                let oldest = wait(self.core.runtime.as_ref(), async move {
                    stream::oldest(&client, requested).await
                });
                let compacted = oldest.ok().flatten().unwrap_or(requested.saturating_add(1));
                ErrorKind::Compacted { requested, compacted, prefix: None }.into()
            }
            failure::FUTURE => match self.revision() {
                Ok(current) => ErrorKind::FutureRevision { requested, current }.into(),
                Err(error) => error,
            },
            _ => asked.error(&failed.endpoint, &failed.status),
        }
    }
}

/// What a transaction is about, and how much it is.
fn asked_of(request: &TxnRequest) -> Asked {
    let mut asked = Asked { is_write: !request.is_read_only(), ..Asked::reading("write to") };
    for op in request.success.iter().chain(&request.failure) {
        match op {
            Op::Put(put) if asked.key.is_empty() || put.lease != 0 => {
                (asked.key, asked.lease) = (put.key.clone(), put.lease);
            }
            _ => {}
        }
    }
    let most = request.success.len().max(request.failure.len()).max(request.compare.len());
    asked.operations = u64::try_from(most).unwrap_or(u64::MAX);
    asked
}

impl Kv for EtcdKv {
    type Scan = EtcdScan;
    type Watch = EtcdWatch;

    fn revision(&self) -> Result<u64> {
        let request = RangeRequest { count_only: true, ..RangeRequest::new(b"\0") };
        Ok(self.range(request)?.revision)
    }

    fn get(&self, key: &[u8], at: Option<u64>) -> Result<(Option<KeyValue>, u64)> {
        let mut answer = self.range(RangeRequest { revision: at, ..RangeRequest::new(key) })?;
        Ok((answer.kvs.pop(), answer.revision))
    }

    fn scan(&self, request: ScanRequest<'_>) -> Result<(EtcdScan, u64)> {
        EtcdScan::start(self.clone(), request)
    }

    fn count(&self, request: ScanRequest<'_>) -> Result<u64> {
        let (key, range_end) = bounds(&request.range());
        let range = RangeRequest::new(key).range_end(range_end).count_only();
        Ok(self.range(RangeRequest { revision: request.at, ..range })?.count)
    }

    fn transact(&self, request: TxnRequest) -> Result<TxnResponse> {
        let mut asked = asked_of(&request);
        let keys = &self.core.client.keys;
        let message = keys.txn(request);
        asked.bytes = u64::try_from(message.encoded_len()).unwrap_or(u64::MAX);
        match self.call(TXN, message, &asked)? {
            Ok(answer) => Ok(keys.done(answer)),
            Err(failed) => Err(self.failed(&failed, &asked, 0)),
        }
    }

    fn grant(&self, ttl: i64) -> Result<i64> {
        let asked = Asked { ttl, ..Asked::reading("get a lease of") };
        let message = wire::LeaseGrantRequest { ttl, id: 0 };
        match self.call::<_, wire::LeaseGrantResponse>(LEASE_GRANT, message, &asked)? {
            Ok(answer) => Ok(answer.id),
            Err(failed) => Err(asked.error(&failed.endpoint, &failed.status)),
        }
    }

    fn watch(&self, request: WatchRequest<'_>) -> Result<EtcdWatch> {
        Ok(self.core.hub.watch(self.clone(), &request))
    }
}

/// A range as etcd has it: the first key, and the end, which is a zero where there is none.
fn bounds(range: &KeyRange) -> (Vec<u8>, Vec<u8>) {
    let key = range.start().to_vec();
    // There is no empty key, but etcd takes none either.
    let key = if key.is_empty() { vec![0] } else { key };
    (key, range.end().map_or_else(|| vec![0], |end| end.to_vec()))
}

impl fmt::Debug for EtcdKv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kv = f.debug_struct("EtcdKv");
        kv.field("endpoint", &self.core.client.member().1).finish_non_exhaustive()
    }
}
