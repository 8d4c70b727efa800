//! A stream of watches: what its client asks for.

use std::future::poll_fn;
use std::mem::replace;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use annals::{Batch, Error, ErrorKind, Watch};
use tokio::sync::{SemaphorePermit, mpsc};
use tokio_stream::{Stream as _, StreamExt as _};
use tonic::{Request, Streaming};

use crate::answers::signed;
use crate::errors::{COMPACTED, refuse, status};
use crate::metrics::Metrics;
use crate::proto::etcdserverpb as pb;
use crate::server::{PeerCommonName, Server};

use super::Told;
use super::answer::{Answer, EncodedEvents};
use super::outlet::{Goes, NO_WATCH, Outlet};

/// What a watch that is behind puts into one answer at most: revisions, and bytes after which no more are added.
const GATHERED: usize = 1000;
const GATHERED_BYTES: usize = 64 << 10;

/// Bytes that a watch which is behind reads ahead.
const CATCH_UP_BYTES: usize = 32 << 10;

/// Who asks, as the stream's first message told it.
struct Asker {
    metadata: tonic::metadata::MetadataMap,
    common_name: Option<String>,
}

/// Counts a stream while it is open.
struct Open(Arc<Metrics>);

impl Open {
    fn new(server: &Server) -> Self {
        server.metrics.watch_streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&server.metrics))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.watch_streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a stream until its client is gone.
pub(super) async fn run(
    server: Arc<Server>,
    request: Request<Streaming<pb::WatchRequest>>,
    to: mpsc::Sender<Told>,
) {
    let common_name = request.extensions().get::<PeerCommonName>().map(|name| name.0.clone());
    let (metadata, _, mut requests) = request.into_parts();
    let asker = Asker { metadata, common_name };
    let _open = Open::new(&server);
    let outlet = Arc::new(Outlet::new(to, server.header(0).unwrap_or_default()));
    loop {
        let request = tokio::select! {
            request = requests.next() => request,
            () = outlet.to.closed() => break,
        };
        let goes = match request {
            Some(Ok(request)) => serve(&server, &outlet, &asker, request).await,
            // The client asks nothing more, and goes on listening.
            None => {
                outlet.to.closed().await;
                Goes::Over
            }
            Some(Err(_)) => Goes::Over,
        };
        if goes == Goes::Over {
            break;
        }
    }
    outlet.remove_all();
}

async fn serve(
    server: &Arc<Server>,
    outlet: &Arc<Outlet>,
    asker: &Asker,
    request: pb::WatchRequest,
) -> Goes {
    use pb::watch_request::RequestUnion;
    match request.request_union {
        Some(RequestUnion::CreateRequest(request)) => create(server, outlet, asker, request).await,
        Some(RequestUnion::CancelRequest(request)) => {
            let watch_id = request.watch_id;
            if !outlet.remove(watch_id) {
                return Goes::On;
            }
            let header = server.header_now();
            let canceled = true;
            let answer = pb::WatchResponse { header, watch_id, canceled, ..Default::default() };
            if outlet.send(answer).await == Goes::Over {
                return Goes::Over;
            }
            // Nobody waits for what it has to tell any more.
            outlet.offer_progress().await
        }
        Some(RequestUnion::ProgressRequest(_)) => {
            outlet.want_progress(server.store.revision()).await
        }
        None => Goes::On,
    }
}

/// Why a watch could not be made.
async fn refused(server: &Server, outlet: &Outlet, reason: impl Into<String>) -> Goes {
    let answer = pb::WatchResponse {
        header: server.header_now(),
        watch_id: NO_WATCH,
        created: true,
        canceled: true,
        cancel_reason: reason.into(),
        ..Default::default()
    };
    outlet.send(answer).await
}

/// How the store's refusals and etcd's are spelled in an answer.
fn reason(status: &tonic::Status) -> String {
    let code = format!("{:?}", status.code());
    format!("rpc error: code = {code} desc = {}", status.message())
}

async fn create(
    server: &Arc<Server>,
    outlet: &Arc<Outlet>,
    asker: &Asker,
    mut request: pb::WatchCreateRequest,
) -> Goes {
    if request.key.is_empty() {
        request.key = bytes::Bytes::from_static(b"\0");
    }
    let Ok(start) = u64::try_from(request.start_revision) else {
        return refused(server, outlet, refuse(COMPACTED).message()).await;
    };
    let permitted = server
        .auth
        .caller(&asker.metadata, asker.common_name.as_deref())
        .and_then(|caller| caller.may_watch(&request.key, &request.range_end));
    if let Err(status) = permitted {
        return refused(server, outlet, reason(&status)).await;
    }
    if outlet.watches() >= server.options.max_watches_per_stream {
        return refused(server, outlet, "annals-etcd: too many watches on one stream").await;
    }
    let range = annals::KeyRange::from_etcd(&request.key, &request.range_end);
    if range.is_empty() {
        return refused(server, outlet, "mvcc: watcher range is empty").await;
    }
    let Some(watch_id) = outlet.number(request.watch_id) else {
        return refused(server, outlet, "mvcc: duplicate watch ID provided on the WatchStream")
            .await;
    };
    let watch = match begin(server, &request, start) {
        Ok(watch) => watch,
        Err(error) => return refused(server, outlet, status(&error).message()).await,
    };
    let position = if start == 0 { watch.created_at() } else { start - 1 };
    outlet.insert(watch_id, watch.handle(), start, position);
    // A client that begins now takes this for what it knows: it is told all that comes behind it, and nothing else.
    let header = server.header(watch.created_at());
    let created = pb::WatchResponse { header, watch_id, created: true, ..Default::default() };
    let goes = outlet.send(created).await;
    let (server, outlet) = (Arc::clone(server), Arc::clone(outlet));
    tokio::spawn(async move { follow(&server, &outlet, watch_id, watch, &request).await });
    goes
}

fn begin(server: &Server, request: &pb::WatchCreateRequest, start: u64) -> annals::Result<Watch> {
    use pb::watch_create_request::FilterType;
    let mut builder = server.store.watch(&request.key).range_end(&request.range_end);
    builder = builder.catch_up_bytes(CATCH_UP_BYTES);
    if start > 0 {
        builder = builder.from(start);
    }
    if request.prev_kv {
        builder = builder.prev_kv();
    }
    for filter in &request.filters {
        builder = match FilterType::try_from(*filter) {
            Ok(FilterType::Noput) => builder.no_puts(),
            Ok(FilterType::Nodelete) => builder.no_deletes(),
            Err(_) => builder,
        };
    }
    if request.progress_notify {
        let interval = server.options.watch_progress_interval;
        // A tenth more or less, so that watches which were made together are not told together.
        builder = builder.progress_every(interval + interval.mul_f64(rand::random::<f64>() / 10.0));
    }
    if request.fragment {
        builder = builder.fragment(server.options.max_request_bytes + (512 << 10));
    }
    builder.start()
}

/// The next of a watch, and a turn to send it. A watch has no turn while it waits for something to happen, and reads
/// nothing while it waits for a turn.
async fn next<'o>(
    outlet: &'o Outlet,
    watch: &mut Watch,
) -> (Option<annals::Result<Batch>>, Option<SemaphorePermit<'o>>) {
    loop {
        let turn = tokio::select! {
            turn = outlet.turns.acquire() => turn.ok(),
            () = outlet.to.closed() => return (None, None),
        };
        let item = poll_fn(|context| Poll::Ready(Pin::new(&mut *watch).poll_next(context))).await;
        if let Poll::Ready(item) = item {
            return (item, turn);
        }
        drop(turn);
        // The watch wakes this task.
        let mut slept = false;
        poll_fn(|_| if replace(&mut slept, true) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

/// Tells what a watch sees, until it ends.
async fn follow(
    server: &Server,
    outlet: &Outlet,
    id: i64,
    mut watch: Watch,
    request: &pb::WatchCreateRequest,
) {
    let mut waiting = None;
    loop {
        let (item, _turn) = match waiting.take() {
            Some(item) => (Some(item), None),
            None => next(outlet, &mut watch).await,
        };
        let goes = match item {
            None => Goes::Over,
            Some(Err(error)) => {
                let answer = ended(server, id, &error);
                if outlet.end(id) && outlet.send(answer).await == Goes::On {
                    outlet.offer_progress().await;
                }
                Goes::Over
            }
            Some(Ok(batch)) if batch.is_progress() => {
                let own = || {
                    let header = server.header(batch.revision());
                    let answer = pb::WatchResponse { header, watch_id: id, ..Default::default() };
                    request.progress_notify.then_some(answer)
                };
                outlet.progress_of(id, batch.revision(), own).await
            }
            Some(Ok(batch)) => {
                let whole = batch.is_last_fragment();
                let mut answer = Answer::default();
                let mut revision = batch.revision();
                answer.events.push(EncodedEvents::of(&batch));
                if !request.fragment {
                    revision = gather(&mut watch, revision, &mut answer, &mut waiting);
                }
                let told = answer.events.iter().map(|events| events.count).sum();
                server.metrics.events.fetch_add(told, Ordering::Relaxed);
                let (header, watch_id, fragment) = (server.header(revision), id, !whole);
                answer.head =
                    pb::WatchResponse { header, watch_id, fragment, ..Default::default() };
                outlet.send_events(id, (revision, whole), answer).await
            }
        };
        if goes == Goes::Over {
            return;
        }
    }
}

/// Adds what is there already, and answers up to which revision. What does not belong to it waits.
fn gather(
    watch: &mut Watch,
    mut revision: u64,
    answer: &mut Answer,
    waiting: &mut Option<annals::Result<Batch>>,
) -> u64 {
    let mut bytes = answer.bytes();
    for _ in 1..GATHERED {
        if bytes >= GATHERED_BYTES {
            break;
        }
        match watch.try_next() {
            None => break,
            Some(Ok(batch)) if !batch.is_progress() => {
                revision = batch.revision();
                let events = EncodedEvents::of(&batch);
                bytes += events.bytes();
                answer.events.push(events);
            }
            Some(other) => {
                *waiting = Some(other);
                break;
            }
        }
    }
    revision
}

/// The last answer of a watch that the store has ended.
fn ended(server: &Server, id: i64, error: &Error) -> pb::WatchResponse {
    let mut answer =
        pb::WatchResponse { watch_id: id, canceled: true, ..pb::WatchResponse::default() };
    match error.kind() {
        ErrorKind::Compacted { compacted, .. } => {
            // As in etcd: the head tells no revision.
            answer.header = server.header(0);
            answer.compact_revision = signed(*compacted);
        }
        _ => {
            answer.header = server.header_now();
            status(error).message().clone_into(&mut answer.cancel_reason);
        }
    }
    answer
}
