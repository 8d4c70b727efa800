//! Who comes first: places in a line of keys, which the services Lock and Election are made of, as etcd's own client
//! makes them.
//!
//! A line is all keys below a prefix; whose key was created first is at its head. Whoever wants to get there puts a key of
//! its own, named after its lease, and waits until those before it are gone. Everything is asked of the service KV in the
//! name of the client, so what a user may do is decided there.

pub(crate) mod election;
pub(crate) mod lock;

use std::sync::Arc;

use bytes::Bytes;
use tokio_stream::StreamExt;
use tonic::metadata::MetadataMap;
use tonic::{Code, Extensions, Request, Response, Status};

use crate::errors::status;
use crate::kv::Kv;
use crate::lease::Leases;
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::etcdserverpb::kv_server::Kv as _;
use crate::proto::etcdserverpb::lease_server::Lease as _;
use crate::proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use crate::proto::etcdserverpb::request_op::Request as OpRequest;
use crate::proto::etcdserverpb::response_op::Response as OpResponse;
use crate::proto::mvccpb;
use crate::server::Server;

/// Seconds that the lease of a place lives whose client has brought none.
const LEASE_SECONDS: i64 = 60;

/// Asks in the name of a client.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    server: Arc<Server>,
    metadata: MetadataMap,
    extensions: Extensions,
}

/// A place: a key, when it was created, and what the last answer told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub(crate) key: Bytes,
    pub(crate) revision: i64,
    pub(crate) lease: i64,
    /// What the key held already, if it was there.
    pub(crate) held: Option<Bytes>,
    /// Whether it is at the head.
    pub(crate) is_first: bool,
    pub(crate) header: Option<pb::ResponseHeader>,
}

/// As etcd tells whatever goes wrong here: without a code of its own.
fn unknown(text: impl Into<String>) -> Status {
    Status::new(Code::Unknown, text)
}

fn put(key: &Bytes, value: &Bytes, lease: i64) -> OpRequest {
    let (key, value) = (key.clone(), value.clone());
    OpRequest::RequestPut(pb::PutRequest { key, value, lease, ..Default::default() })
}

fn delete(key: &Bytes) -> OpRequest {
    OpRequest::RequestDeleteRange(pb::DeleteRangeRequest { key: key.clone(), ..Default::default() })
}

fn get(key: &Bytes) -> OpRequest {
    OpRequest::RequestRange(pb::RangeRequest { key: key.clone(), ..Default::default() })
}

/// The key below a prefix that was created first.
fn first(prefix: &Bytes) -> pb::RangeRequest {
    pb::RangeRequest {
        key: prefix.clone(),
        range_end: end_of(prefix),
        limit: 1,
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Create.into(),
        ..Default::default()
    }
}

/// A lease's number as etcd's clients name keys after it: below zero with a sign.
fn in_hex(lease: i64) -> String {
    let sign = if lease < 0 { "-" } else { "" };
    format!("{sign}{:x}", lease.unsigned_abs())
}

/// The end of the keys below a prefix, which ends with a slash.
fn end_of(prefix: &[u8]) -> Bytes {
    let (_, front) = prefix.split_last().unwrap_or((&b'/', &[]));
    [front, b"0"].concat().into()
}

fn create_revision(key: &Bytes, revision: i64) -> pb::Compare {
    pb::Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: key.clone(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
        ..Default::default()
    }
}

/// The keys that an operation of a transaction has read.
fn read(answer: &pb::TxnResponse, index: usize) -> &[mvccpb::KeyValue] {
    match answer.responses.get(index).and_then(|response| response.response.as_ref()) {
        Some(OpResponse::ResponseRange(range)) => &range.kvs,
        _ => &[],
    }
}

impl Line {
    /// Takes a request apart.
    fn of<T>(server: &Arc<Server>, request: Request<T>) -> (Self, T) {
        let (metadata, extensions, message) = request.into_parts();
        (Self { server: Arc::clone(server), metadata, extensions }, message)
    }

    fn ask<T>(&self, message: T) -> Request<T> {
        Request::from_parts(self.metadata.clone(), self.extensions.clone(), message)
    }

    async fn range(&self, request: pb::RangeRequest) -> Result<pb::RangeResponse, Status> {
        let answer = Kv(Arc::clone(&self.server)).range(self.ask(request)).await;
        answer.map(Response::into_inner).map_err(|error| unknown(error.message()))
    }

    async fn txn(
        &self,
        compare: pb::Compare,
        success: Vec<OpRequest>,
        failure: Vec<OpRequest>,
    ) -> Result<pb::TxnResponse, Status> {
        let ops = |ops: Vec<OpRequest>| {
            ops.into_iter().map(|request| pb::RequestOp { request: Some(request) }).collect()
        };
        let request =
            pb::TxnRequest { compare: vec![compare], success: ops(success), failure: ops(failure) };
        let answer = Kv(Arc::clone(&self.server)).txn(self.ask(request)).await;
        answer.map(Response::into_inner).map_err(|error| unknown(error.message()))
    }

    async fn delete(&self, key: Bytes) -> Result<Option<pb::ResponseHeader>, Status> {
        let request = pb::DeleteRangeRequest { key, ..Default::default() };
        let answer = Kv(Arc::clone(&self.server)).delete_range(self.ask(request)).await;
        answer.map(|answer| answer.into_inner().header).map_err(|error| unknown(error.message()))
    }

    /// The lease that a client has brought, or a new one.
    async fn lease(&self, id: i64) -> Result<i64, Status> {
        if id != 0 {
            return Ok(id);
        }
        let request = pb::LeaseGrantRequest { ttl: LEASE_SECONDS, id: 0 };
        let answer = Leases(Arc::clone(&self.server)).lease_grant(self.ask(request)).await;
        answer.map(|answer| answer.into_inner().id).map_err(|error| unknown(error.message()))
    }

    /// Takes a place, or finds the one that this lease has already.
    async fn stand(&self, prefix: &Bytes, lease: i64, value: &Bytes) -> Result<Place, Status> {
        let lease = self.lease(lease).await?;
        let key = Bytes::from([prefix, in_hex(lease).as_bytes()].concat());
        let owner = || OpRequest::RequestRange(first(prefix));
        let (success, failure) = (vec![put(&key, value, lease), owner()], vec![get(&key), owner()]);
        let answer = self.txn(create_revision(&key, 0), success, failure).await?;
        let header_revision = answer.header.as_ref().map_or(0, |header| header.revision);
        let found = if answer.succeeded { None } else { read(&answer, 0).first() };
        let revision = found.map_or(header_revision, |kv| kv.create_revision);
        let held = found.map(|kv| kv.value.clone());
        let is_first = read(&answer, 1).first().is_none_or(|kv| kv.create_revision == revision);
        Ok(Place { key, revision, lease, held, is_first, header: answer.header })
    }

    /// Waits until nobody is before a place any more.
    async fn wait(&self, prefix: &Bytes, place: &Place) -> Result<(), Status> {
        loop {
            let before = pb::RangeRequest {
                sort_order: SortOrder::Descend.into(),
                max_create_revision: place.revision - 1,
                ..first(prefix)
            };
            // 0 would be no limit: before the first revision there is nobody.
            if before.max_create_revision <= 0 {
                return Ok(());
            }
            let answer = self.range(before).await?;
            let Some(kv) = answer.kvs.first() else { return Ok(()) };
            let revision = answer.header.as_ref().map_or(0, |header| header.revision);
            self.wait_deleted(&kv.key, revision).await?;
        }
    }

    async fn wait_deleted(&self, key: &Bytes, revision: i64) -> Result<(), Status> {
        let mut watch = self.watch(key, &Bytes::new(), revision)?;
        while let Some(batch) = StreamExt::next(&mut watch).await {
            let batch = batch.map_err(|error| unknown(status(&error).message()))?;
            if batch.events().iter().any(|event| event.kind == annals::ChangeKind::Delete) {
                return Ok(());
            }
        }
        Err(unknown("lost watcher waiting for delete"))
    }

    fn watch(&self, key: &Bytes, end: &Bytes, from: i64) -> Result<annals::Watch, Status> {
        let from = u64::try_from(from).unwrap_or(0);
        let watch = self.server.store().watch(key).range_end(end).from(from).start();
        watch.map_err(|error| unknown(status(&error).message()))
    }

    /// Gives a place up, if it is still the same.
    async fn leave(&self, key: &Bytes, revision: i64) -> Result<pb::TxnResponse, Status> {
        self.txn(create_revision(key, revision), vec![delete(key)], Vec::new()).await
    }

    /// The place is given up if what waits for it is dropped, as it is when its client is gone.
    fn leaving(&self, place: &Place) -> Leaving {
        Leaving(Some((self.clone(), place.key.clone(), place.revision)))
    }
}

/// Gives a place up when it is dropped.
struct Leaving(Option<(Line, Bytes, i64)>);

impl Leaving {
    fn stay(mut self) {
        self.0 = None;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some((line, key, revision)) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // If it fails the lease ends it.
            runtime.spawn(async move { drop(line.leave(&key, revision).await) });
        }
    }
}
