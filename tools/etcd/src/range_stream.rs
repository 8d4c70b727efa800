//! Reading a large range in parts: etcd's `RangeStream` (3.7).
//!
//! All parts are of one revision, which the first one fixes; the head, the count and whether there is more come with
//! the last.

use std::pin::Pin;
use std::sync::Arc;

use annals::{KeyRange, KeyValue, RangeRequest, Store};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::errors::status;
use crate::proto::etcdserverpb as pb;
use crate::server::Server;
use crate::{answers, requests};

/// A part of an answer ends behind the key with which it reaches so many bytes.
const PART_BYTES: usize = 256 << 10;

/// Parts that wait for a client which reads slowly.
const PARTS: usize = 2;

/// A request, where it is one that can be answered in parts.
///
/// # Errors
/// As of a range; and any order or filter.
pub(crate) fn check(request: &pb::RangeRequest) -> Result<RangeRequest, Status> {
    use pb::range_request::{SortOrder, SortTarget};
    let wanted = requests::range(request)?;
    let by_key = request.sort_target == i32::from(SortTarget::Key);
    if !by_key || request.sort_order == i32::from(SortOrder::Descend) {
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

/// Begins to read, in a thread that waits for the client.
pub(crate) fn start(
    server: Arc<Server>,
    request: RangeRequest,
) -> Pin<Box<dyn Stream<Item = Part> + Send>> {
    let (to, parts) = mpsc::channel(PARTS);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = read(&server, &request, &to) {
            // Whoever does not listen any more needs no reason.
            let _ = to.blocking_send(Err(status(&error)));
        }
    });
    Box::pin(ReceiverStream::new(parts))
}

fn part(range_response: pb::RangeResponse) -> pb::RangeStreamResponse {
    pb::RangeStreamResponse { range_response: Some(range_response) }
}

fn read(server: &Server, request: &RangeRequest, to: &mpsc::Sender<Part>) -> annals::Result<()> {
    let store: &Store = &server.store;
    let current = store.revision();
    if request.count_only {
        let response = store.range(request.clone())?;
        let head = server.header(response.revision);
        let _ = to.blocking_send(Ok(part(answers::range(head, response))));
        return Ok(());
    }
    let view = match request.revision {
        Some(revision) => store.at(revision)?,
        None => store.latest()?,
    };
    let range = KeyRange::from_etcd(&request.key, &request.range_end);
    let mut iter = view.range(range.clone());
    if request.keys_only {
        iter = iter.keys_only();
    }
    let (mut kvs, mut bytes, mut sent) = (Vec::new(), 0, 0u64);
    let mut more = false;
    for kv in iter {
        let kv: KeyValue = kv?;
        if request.limit > 0 && sent + kvs.len() as u64 == request.limit {
            more = true;
            break;
        }
        if bytes >= PART_BYTES {
            sent += kvs.len() as u64;
            let kvs = std::mem::take(&mut kvs);
            let next = pb::RangeResponse { kvs, ..Default::default() };
            if to.blocking_send(Ok(part(next))).is_err() {
                return Ok(());
            }
            bytes = 0;
        }
        bytes += kv.key.len() + kv.value.len() + 32;
        kvs.push(answers::key_value(kv));
    }
    let count = if more { view.count(range)? } else { sent + kvs.len() as u64 };
    let header = server.header(current.max(view.revision()));
    let last = pb::RangeResponse { header, kvs, more, count: answers::signed(count) };
    let _ = to.blocking_send(Ok(part(last)));
    Ok(())
}
