//! The service KV: reading, writing, transactions, compaction.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use annals::{Op, OpResponse, TxnRequest, TxnResponse};
use prost::Message as _;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::errors::{COMPACTED, FUTURE, refuse, status};
use crate::proto::etcdserverpb as pb;
use crate::server::Server;
use crate::{answers, range_stream, requests};

/// A range of at most so many keys is read where the request is, without another thread.
const SMALL_RANGE: u64 = 64;

/// The service.
#[derive(Debug)]
pub(crate) struct Kv(pub(crate) Arc<Server>);

type Answer<T> = Result<Response<T>, Status>;

impl Kv {
    /// Commits, and waits until it is durable. What looks at many keys is evaluated by another thread.
    async fn commit(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        let _place = self.0.begin_write()?;
        let ticket = if is_large(&request) {
            self.0.blocking(move |store| store.submit(request)).await?
        } else {
            self.0.store.submit(request).map_err(|error| status(&error))?
        };
        let response = ticket.await.map_err(|error| {
            self.0.alarms.note(&error);
            status(&error)
        })?;
        self.0.metrics.transaction(&response);
        Ok(response)
    }

    /// Commits one operation, and answers with what became of it.
    async fn commit_one(&self, op: Op) -> Result<(u64, Option<OpResponse>), Status> {
        let request = TxnRequest { success: vec![op], ..TxnRequest::default() };
        let mut response = self.commit(request).await?;
        Ok((response.revision, response.responses.pop()))
    }
}

/// Whether a transaction may look at more keys than a few.
fn is_large(request: &TxnRequest) -> bool {
    request.compare.iter().any(|compare| !compare.range_end.is_empty())
        || request.success.iter().chain(&request.failure).any(|op| match op {
            Op::Range(range) => !range.range_end.is_empty(),
            Op::DeleteRange(delete) => !delete.range_end.is_empty(),
            Op::Txn(nested) => is_large(nested),
            Op::Put(_) => false,
        })
}

/// Whether a transaction holds a put in either branch: those are refused when there is no space.
fn has_put(request: &pb::TxnRequest) -> bool {
    use pb::request_op::Request;
    request.success.iter().chain(&request.failure).any(|op| match &op.request {
        Some(Request::RequestPut(_)) => true,
        Some(Request::RequestTxn(nested)) => has_put(nested),
        _ => false,
    })
}

/// Whether a transaction only reads, as etcd decides it: one in another is no reading.
fn is_read_only(request: &pb::TxnRequest) -> bool {
    let reads =
        |op: &pb::RequestOp| matches!(op.request, Some(pb::request_op::Request::RequestRange(_)));
    request.success.iter().chain(&request.failure).all(reads)
}

#[tonic::async_trait]
impl pb::kv_server::Kv for Kv {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Answer<pb::RangeResponse> {
        let caller = self.0.caller(&request)?;
        let wanted = requests::range(request.get_ref())?;
        caller.may_range(&wanted.key, &wanted.range_end)?;
        let is_small = wanted.range_end.is_empty()
            || (1..=SMALL_RANGE).contains(&wanted.limit) && wanted.revision.is_some();
        let place = if is_small { None } else { Some(self.0.held.begin().await?) };
        let response = if is_small {
            self.0.store.range(wanted).map_err(|error| status(&error))?
        } else {
            self.0.blocking(move |store| store.range(wanted)).await?
        };
        // What it may read may have changed while it was read.
        caller.is_current()?;
        self.0.metrics.ranges.fetch_add(1, Ordering::Relaxed);
        let answer = answers::range(self.0.header(response.revision), response);
        let bytes = if is_small { 0 } else { answer.encoded_len() };
        let answer = self.0.held.hold(answer, bytes);
        drop(place);
        answer
    }

    type RangeStreamStream =
        Pin<Box<dyn Stream<Item = Result<pb::RangeStreamResponse, Status>> + Send>>;

    async fn range_stream(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Answer<Self::RangeStreamStream> {
        let caller = self.0.caller(&request)?;
        let wanted = range_stream::check(request.get_ref())?;
        caller.may_range(&wanted.key, &wanted.range_end)?;
        Ok(Response::new(range_stream::start(Arc::clone(&self.0), wanted)))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Answer<pb::PutResponse> {
        let caller = self.0.caller(&request)?;
        let put = requests::put(request.get_ref())?;
        caller.may_put(request.get_ref())?;
        let leases = caller.leases_of_put(request.get_ref());
        caller.may_write_keys(self.0.keys_of(leases).await?)?;
        let bytes = request.get_ref().encoded_len();
        self.0.check_size(bytes)?;
        self.0.alarms.check_intact()?;
        self.0.alarms.check_space(bytes)?;
        if put.ignore_value && put.lease != 0 {
            // Alone, a put is refused for its lease before it is for its key; in a transaction it is the other way round.
            let _place = self.0.begin_write()?;
            let answer = self.0.blocking(move |store| store.put_with(put)).await?;
            self.0.metrics.puts.fetch_add(1, Ordering::Relaxed);
            return Ok(Response::new(answers::put(self.0.header(answer.revision), answer)));
        }
        let (revision, answer) = self.commit_one(Op::Put(put)).await?;
        let answer = match answer {
            Some(OpResponse::Put(put)) => put,
            _ => annals::PutResponse { revision, prev_kv: None },
        };
        Ok(Response::new(answers::put(self.0.header(revision), answer)))
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Answer<pb::DeleteRangeResponse> {
        let caller = self.0.caller(&request)?;
        let delete = requests::delete_range(request.get_ref())?;
        caller.may_delete(request.get_ref())?;
        self.0.check_size(request.get_ref().encoded_len())?;
        self.0.alarms.check_intact()?;
        let (revision, answer) = self.commit_one(Op::DeleteRange(delete)).await?;
        let answer = match answer {
            Some(OpResponse::DeleteRange(deleted)) => deleted,
            _ => annals::DeleteRangeResponse { revision, ..Default::default() },
        };
        Ok(Response::new(answers::delete_range(self.0.header(revision), answer)))
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Answer<pb::TxnResponse> {
        let caller = self.0.caller(&request)?;
        let txn = requests::txn(request.get_ref(), self.0.options.max_txn_ops)?;
        caller.may_txn(request.get_ref())?;
        let leases = caller.leases_of_txn(request.get_ref());
        caller.may_write_keys(self.0.keys_of(leases).await?)?;
        let request = request.into_inner();
        if !is_read_only(&request) {
            let bytes = request.encoded_len();
            self.0.check_size(bytes)?;
            self.0.alarms.check_intact()?;
            if has_put(&request) {
                self.0.alarms.check_space(bytes)?;
            }
        }
        let only_reads = is_read_only(&request);
        drop(request);
        let reads_much = only_reads && is_large(&txn);
        let place = if reads_much { Some(self.0.held.begin().await?) } else { None };
        let response = self.commit(txn).await?;
        if only_reads {
            caller.is_current()?;
        }
        let answer = answers::txn(self.0.header(response.revision), response);
        let bytes = if reads_much { answer.encoded_len() } else { 0 };
        let answer = self.0.held.hold(answer, bytes);
        drop(place);
        answer
    }

    /// The request's `physical` changes nothing: what nobody can read any more is forgotten at once, and the room it took
    /// on the disk is given back by background work, which nobody has to wait for.
    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Answer<pb::CompactionResponse> {
        let caller = self.0.caller(&request)?;
        caller.must_be_admin()?;
        let revision = request.get_ref().revision;
        let Ok(revision) = u64::try_from(revision) else { return Err(refuse(COMPACTED)) };
        if revision > self.0.store.revision() {
            return Err(refuse(FUTURE));
        }
        self.0.alarms.check_intact()?;
        let done = self.0.blocking(move |store| store.compact(revision)).await?;
        Ok(Response::new(pb::CompactionResponse { header: self.0.header(done.revision) }))
    }
}
