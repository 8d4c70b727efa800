//! The service KV: reading, writing, transactions, compaction.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use annals::{ErrorKind, Op, OpResponse, Store, TxnRequest, TxnResponse};
use prost::Message as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::auth::Caller;
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
    /// Commits a request of so many bytes, and waits until it is durable. What looks at many keys is evaluated by another thread, which has the place
    /// that was taken for the answer as long; so is what would have to wait for the disk before it has its place in the
    /// order.
    async fn commit(
        &self,
        caller: &Caller,
        (request, bytes): (TxnRequest, usize),
        place: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<TxnResponse, Status> {
        let pending = self.0.begin_write(bytes)?;
        let options = caller.commit_options();
        // Damage that a reader meets ends no writing.
        let is_write = !only_reads(&request);
        let failed = |error: &annals::Error| {
            self.0.note(error, is_write);
            status(error)
        };
        let at_once = if is_large(&request) {
            None
        } else {
            match self.0.store.try_submit_with(&request, &options) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldWait) => None,
                submitted => Some(submitted.map_err(|error| failed(&error))?),
            }
        };
        let (ticket, _pending) = match at_once {
            Some(ticket) => (ticket, pending),
            None => {
                let taken = place.take();
                let work = move |store: &Store| Ok((store.submit_with(request, options)?, taken));
                let ((ticket, taken), pending) = self.0.writing((pending, is_write), work).await?;
                *place = taken;
                (ticket, pending)
            }
        };
        let response = ticket.await.map_err(|error| failed(&error))?;
        self.0.metrics.transaction(&response);
        Ok(response)
    }

    /// A place for a request that may answer `much`, refused before anything is written.
    async fn begin_answer(&self, much: bool) -> Result<Option<OwnedSemaphorePermit>, Status> {
        if !much {
            return Ok(None);
        }
        let place = self.0.held.begin().await?;
        self.0.held.check_room()?;
        Ok(Some(place))
    }

    /// Commits one operation, and answers with what became of it.
    async fn commit_one(
        &self,
        caller: &Caller,
        (op, bytes): (Op, usize),
        place: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<(u64, Option<OpResponse>), Status> {
        let request = TxnRequest { success: vec![op], ..TxnRequest::default() };
        let mut response = self.commit(caller, (request, bytes), place).await?;
        Ok((response.revision, response.responses.pop()))
    }
}

/// Whether a transaction can change nothing.
fn only_reads(request: &TxnRequest) -> bool {
    request.success.iter().chain(&request.failure).all(|op| match op {
        Op::Range(_) => true,
        Op::Txn(nested) => only_reads(nested),
        Op::Put(_) | Op::DeleteRange(_) => false,
    })
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

/// Whether an answer may hold more key-values than a few: those of a range, or what was deleted.
fn answers_much(op: &Op) -> bool {
    match op {
        Op::Range(range) => {
            let few = range.count_only || (1..=SMALL_RANGE).contains(&range.limit);
            !range.range_end.is_empty() && !few
        }
        Op::DeleteRange(delete) => delete.prev_kv && !delete.range_end.is_empty(),
        Op::Txn(nested) => nested.success.iter().chain(&nested.failure).any(answers_much),
        Op::Put(_) => false,
    }
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
        let (response, place) = if is_small {
            (self.0.store.range(wanted).map_err(|error| status(&error))?, None)
        } else {
            let place = self.0.held.begin().await?;
            self.0.blocking(move |store| Ok((store.range(wanted)?, Some(place)))).await?
        };
        // What it may read may have changed while it was read.
        caller.is_current()?;
        self.0.metrics.ranges.fetch_add(1, Ordering::Relaxed);
        let answer = answers::range(self.0.header(response.revision), response);
        // Few keys may be much, too.
        let bytes = answer.encoded_len();
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
            let place = self.0.begin_write(bytes)?;
            let by = caller.commit_options().metadata;
            let put = move |store: &Store| store.with_metadata(by)?.put_with(put);
            let (answer, _place) = self.0.writing((place, true), put).await?;
            self.0.metrics.puts.fetch_add(1, Ordering::Relaxed);
            return Ok(Response::new(answers::put(self.0.header(answer.revision), answer)));
        }
        let (revision, answer) = self.commit_one(&caller, (Op::Put(put), bytes), &mut None).await?;
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
        let bytes = request.get_ref().encoded_len();
        self.0.check_size(bytes)?;
        self.0.alarms.check_intact()?;
        let delete = Op::DeleteRange(delete);
        let mut place = self.begin_answer(answers_much(&delete)).await?;
        let (revision, answer) = self.commit_one(&caller, (delete, bytes), &mut place).await?;
        let answer = match answer {
            Some(OpResponse::DeleteRange(deleted)) => deleted,
            _ => annals::DeleteRangeResponse { revision, ..Default::default() },
        };
        let answer = answers::delete_range(self.0.header(revision), answer);
        let bytes = if place.is_some() { answer.encoded_len() } else { 0 };
        Ok(self.0.held.hold_written(answer, bytes))
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Answer<pb::TxnResponse> {
        let caller = self.0.caller(&request)?;
        let txn = requests::txn(request.get_ref(), self.0.options.max_txn_ops)?;
        caller.may_txn(request.get_ref())?;
        let leases = caller.leases_of_txn(request.get_ref());
        caller.may_write_keys(self.0.keys_of(leases).await?)?;
        let request = request.into_inner();
        let bytes = request.encoded_len();
        if !is_read_only(&request) {
            self.0.check_size(bytes)?;
            self.0.alarms.check_intact()?;
            if has_put(&request) {
                self.0.alarms.check_space(bytes)?;
            }
        }
        let only_reads = is_read_only(&request);
        if requests::asks_before_all(&request, self.0.store.compacted_revision()) {
            return Err(refuse(COMPACTED));
        }
        drop(request);
        let reads_much = txn.success.iter().chain(&txn.failure).any(answers_much);
        let mut place = self.begin_answer(reads_much).await?;
        let response = self.commit(&caller, (txn, bytes), &mut place).await?;
        if only_reads {
            caller.is_current()?;
        }
        let answer = answers::txn(self.0.header(response.revision), response);
        // Many keys may be read one by one, too.
        let bytes = answer.encoded_len();
        let answer = if only_reads {
            self.0.held.hold(answer, bytes)
        } else {
            Ok(self.0.held.hold_written(answer, bytes))
        };
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
        let place = self.0.begin_write(0)?;
        let (done, _place) =
            self.0.writing((place, true), move |store| store.compact(revision)).await?;
        Ok(Response::new(pb::CompactionResponse { header: self.0.header(done.revision) }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use pb::kv_server::Kv as _;
    use pb::request_op::Request as Wanted;

    use super::*;
    use crate::auth::{Auth, AuthOptions};
    use crate::held::Share;
    use crate::member::Member;
    use crate::server::ServerOptions;

    fn served(directory: &std::path::Path) -> Kv {
        served_with(directory, ServerOptions::new(directory))
    }

    fn served_with(directory: &std::path::Path, options: ServerOptions) -> Kv {
        let store = Store::open(directory.join("store")).unwrap();
        let auth = Auth::open(directory, AuthOptions::default()).unwrap();
        let member = Member::open(directory, "default".into(), vec![], vec![]).unwrap();
        Kv(Server::new(store, auth, member, options))
    }

    fn put(key: &'static str, value: Vec<u8>) -> pb::PutRequest {
        pb::PutRequest { key: key.into(), value: value.into(), ..Default::default() }
    }

    fn txn(requests: impl IntoIterator<Item = Wanted>) -> Request<pb::TxnRequest> {
        let success = requests.into_iter().map(|request| pb::RequestOp { request: Some(request) });
        Request::new(pb::TxnRequest { success: success.collect(), ..Default::default() })
    }

    #[tokio::test]
    async fn of_what_waits_for_the_disk_there_is_not_too_much() {
        let directory = tempfile::tempdir().unwrap();
        let options =
            ServerOptions { max_pending_bytes: 1000, ..ServerOptions::new(directory.path()) };
        let kv = served_with(directory.path(), options);
        let put = |bytes| kv.put(Request::new(put("key", vec![0; bytes])));
        let waiting = kv.0.begin_write(900).unwrap();
        for _ in 0..3 {
            let refused = put(500).await.map(drop).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        }
        assert_eq!(kv.0.store.revision(), 1, "nothing was written");
        put(50).await.unwrap();
        drop(waiting);
        put(500).await.unwrap();
        // One alone is as large as a request may be.
        put(5000).await.unwrap();
    }

    #[tokio::test]
    async fn what_writes_and_answers_much_is_refused_before_it_writes() {
        let directory = tempfile::tempdir().unwrap();
        let kv = served(directory.path());
        for key in ["a", "b"] {
            kv.put(Request::new(put(key, vec![0; 1 << 20]))).await.unwrap();
        }
        let (key, range_end) = (bytes::Bytes::from("a"), bytes::Bytes::from("c"));
        let all = pb::RangeRequest {
            key: key.clone(),
            range_end: range_end.clone(),
            ..Default::default()
        };
        let both =
            || txn([Wanted::RequestRange(all.clone()), Wanted::RequestPut(put("new", vec![]))]);
        let delete = pb::DeleteRangeRequest { key: key.clone(), range_end, prev_kv: true };
        let nested = || {
            txn([Wanted::RequestTxn(
                txn([Wanted::RequestDeleteRange(delete.clone())]).into_inner(),
            )])
        };
        let full = kv.0.held.fill();
        for refused in [
            kv.txn(both()).await.map(drop),
            kv.txn(nested()).await.map(drop),
            kv.delete_range(Request::new(delete.clone())).await.map(drop),
        ] {
            assert_eq!(refused.unwrap_err().code(), tonic::Code::ResourceExhausted);
        }
        assert_eq!(kv.0.store.revision(), 3, "nothing was written");
        // What answers little is not refused.
        kv.txn(txn([Wanted::RequestPut(put("little", vec![]))])).await.unwrap();
        let one =
            pb::DeleteRangeRequest { key: "little".into(), prev_kv: true, ..Default::default() };
        kv.delete_range(Request::new(one)).await.unwrap();
        drop(full);
        let counts = |share: Option<&Share>| assert!(share.is_some(), "it is counted");
        counts(kv.txn(both()).await.unwrap().extensions().get());
        // One by one is not refused before, but counted.
        let one = pb::RangeRequest { key, ..Default::default() };
        let single = [Wanted::RequestRange(one), Wanted::RequestPut(put("new", vec![]))];
        counts(kv.txn(txn(single)).await.unwrap().extensions().get());
        counts(kv.delete_range(Request::new(delete)).await.unwrap().extensions().get());
    }
}
