//! Reading a large range in parts: etcd's `RangeStream` (3.7).
//!
//! All parts are of one revision, which the first one fixes; the head, the count and whether there is more come with
//! the last.

use std::pin::Pin;
use std::sync::Arc;

use annals::{KeyRange, KeyValue, RangeIter, RangeRequest, Store, View};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::proto::etcdserverpb as pb;
use crate::server::Server;
use crate::{answers, requests};

/// A part of an answer ends behind the key with which it reaches so many bytes.
const PART_BYTES: usize = 128 << 10;

/// Parts that wait for a client which reads slowly.
const PARTS: usize = 1;

/// A request, where it is one that can be answered in parts.
///
/// # Errors
/// As of a range; and any order but that of the keys, or a filter.
pub(crate) fn check(request: &pb::RangeRequest) -> Result<RangeRequest, Status> {
    use pb::range_request::{SortOrder, SortTarget};
    let wanted = requests::range(request)?;
    // By what to sort is of no account where nothing is to be sorted.
    let is_key_order = request.sort_order == i32::from(SortOrder::None)
        || request.sort_order == i32::from(SortOrder::Ascend)
            && request.sort_target == i32::from(SortTarget::Key);
    if !is_key_order {
        return Err(Status::unimplemented("RangeStream does not support custom sort orders"));
    }
    let filters = [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ];
    if filters != [0; 4] {
        return Err(Status::unimplemented("RangeStream does not support revision filters"));
    }
    Ok(wanted)
}

type Part = Result<pb::RangeStreamResponse, Status>;

/// Begins to read. No thread waits for the client: a part is read when there is room for it.
pub(crate) fn start(
    server: Arc<Server>,
    request: RangeRequest,
) -> Pin<Box<dyn Stream<Item = Part> + Send>> {
    let (to, parts) = mpsc::channel(PARTS);
    tokio::spawn(async move {
        if let Err(status) = send(&server, request, &to).await {
            // Whoever does not listen any more needs no reason.
            let _ = to.send(Err(status)).await;
        }
    });
    Box::pin(ReceiverStream::new(parts))
}

fn part(range_response: pb::RangeResponse) -> pb::RangeStreamResponse {
    pb::RangeStreamResponse { range_response: Some(range_response) }
}

async fn send(
    server: &Arc<Server>,
    request: RangeRequest,
    to: &mpsc::Sender<Part>,
) -> Result<(), Status> {
    if request.count_only {
        let response = server.blocking(move |store| store.range(request)).await?;
        let head = server.header(response.revision);
        let _ = to.send(Ok(part(answers::range(head, response)))).await;
        return Ok(());
    }
    let mut reading = server.blocking(move |store| Reading::begin(store, &request)).await?;
    while !reading.is_over {
        let Ok(place) = to.reserve().await else { return Ok(()) };
        let of = Arc::clone(server);
        let (read, next) = server
            .blocking(move |_| {
                let next = reading.next(&of)?;
                Ok((reading, next))
            })
            .await?;
        reading = read;
        place.send(Ok(part(next)));
    }
    Ok(())
}

/// How far a range has been read.
struct Reading {
    view: View,
    range: KeyRange,
    iter: RangeIter,
    limit: u64,
    /// The newest revision when it began.
    current: u64,
    sent: u64,
    /// Read, and for the next part.
    next: Option<KeyValue>,
    is_over: bool,
}

impl Reading {
    fn begin(store: &Store, request: &RangeRequest) -> annals::Result<Self> {
        let current = store.revision();
        let view = match request.revision {
            Some(revision) => store.at(revision)?,
            None => store.latest()?,
        };
        let range = KeyRange::from_etcd(&request.key, &request.range_end);
        let mut iter = view.range(range.clone());
        if request.keys_only {
            iter = iter.keys_only();
        }
        let (limit, sent, next) = (request.limit, 0, None);
        Ok(Self { view, range, iter, limit, current, sent, next, is_over: false })
    }

    /// The next part: the last one has the head.
    fn next(&mut self, server: &Server) -> annals::Result<pb::RangeResponse> {
        let (mut kvs, mut bytes) = (Vec::new(), 0);
        let mut more = false;
        while let Some(kv) = self.next.take().map(Ok).or_else(|| self.iter.next()).transpose()? {
            if self.limit > 0 && self.sent + kvs.len() as u64 == self.limit {
                more = true;
                break;
            }
            if bytes >= PART_BYTES {
                self.sent += kvs.len() as u64;
                self.next = Some(kv);
                return Ok(pb::RangeResponse { kvs, ..Default::default() });
            }
            bytes += kv.key.len() + kv.value.len() + 32;
            kvs.push(answers::key_value(kv));
        }
        self.is_over = true;
        let count =
            if more { self.view.count(self.range.clone())? } else { self.sent + kvs.len() as u64 };
        let header = server.header(self.current.max(self.view.revision()));
        Ok(pb::RangeResponse { header, kvs, more, count: answers::signed(count) })
    }
}
