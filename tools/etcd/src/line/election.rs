//! The service Election: who leads, and what it proclaims.

use std::pin::Pin;
use std::sync::Arc;

use annals::ChangeKind;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use super::{Line, create_revision, end_of, first, put, unknown};
use crate::answers;
use crate::errors::status;
use crate::proto::etcdserverpb::ResponseHeader;
use crate::proto::v3electionpb::election_server::Election;
use crate::proto::v3electionpb::{
    CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, LeaderResponse, ProclaimRequest,
    ProclaimResponse, ResignRequest, ResignResponse,
};
use crate::server::Server;

/// Answers of an observer that wait for a client which reads slowly; what it has missed is read later.
const ANSWERS: usize = 8;

/// The service.
#[derive(Debug)]
pub(crate) struct Elections(pub(crate) Arc<Server>);

type Answer<T> = Result<Response<T>, Status>;

fn prefix_of(name: &[u8]) -> Bytes {
    [name, b"/"].concat().into()
}

fn missing() -> Status {
    unknown("\"leader\" field must be provided")
}

#[tonic::async_trait]
impl Election for Elections {
    /// Answers when the client leads: as long as its key is there.
    async fn campaign(&self, request: Request<CampaignRequest>) -> Answer<CampaignResponse> {
        let (line, wanted) = Line::of(&self.0, request);
        let prefix = prefix_of(&wanted.name);
        let place = line.stand(&prefix, wanted.lease, &wanted.value).await?;
        let leaving = line.leaving(&place);
        if place.held.as_ref().is_some_and(|held| *held != wanted.value) {
            proclaim(&line, &place.key, (place.revision, place.lease), &wanted.value).await?;
        }
        if let Err(status) = line.wait(&prefix, &place).await {
            // It stays in the line until its lease ends.
            leaving.stay();
            return Err(status);
        }
        leaving.stay();
        let (rev, key, lease) = (place.revision, place.key, place.lease);
        let leader = Some(LeaderKey { name: wanted.name, key, rev, lease });
        // The head is that of taking the place, as in etcd, however long it took to get to the head of the line.
        Ok(Response::new(CampaignResponse { header: place.header, leader }))
    }

    async fn proclaim(&self, request: Request<ProclaimRequest>) -> Answer<ProclaimResponse> {
        let (line, wanted) = Line::of(&self.0, request);
        let leader = wanted.leader.ok_or_else(missing)?;
        let lease = line.lease(leader.lease).await?;
        let header = proclaim(&line, &leader.key, (leader.rev, lease), &wanted.value).await?;
        Ok(Response::new(ProclaimResponse { header }))
    }

    async fn leader(&self, request: Request<LeaderRequest>) -> Answer<LeaderResponse> {
        let (line, wanted) = Line::of(&self.0, request);
        let mut found = line.range(first(&prefix_of(&wanted.name))).await?;
        match found.kvs.pop() {
            None => Err(unknown("election: no leader")),
            kv => Ok(Response::new(LeaderResponse { header: found.header, kv })),
        }
    }

    type ObserveStream = Pin<Box<dyn Stream<Item = Result<LeaderResponse, Status>> + Send>>;

    async fn observe(&self, request: Request<LeaderRequest>) -> Answer<Self::ObserveStream> {
        let (line, wanted) = Line::of(&self.0, request);
        let (to, answers) = mpsc::channel(ANSWERS);
        let prefix = prefix_of(&wanted.name);
        tokio::spawn(async move {
            tokio::select! {
                Err(ended) = observe(&line, &prefix, &to) => {
                    // Whoever does not listen any more needs no reason.
                    let _ = to.send(Err(ended)).await;
                }
                () = to.closed() => {}
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn resign(&self, request: Request<ResignRequest>) -> Answer<ResignResponse> {
        let (line, wanted) = Line::of(&self.0, request);
        let leader = wanted.leader.ok_or_else(missing)?;
        line.lease(leader.lease).await?;
        let header = line.leave(&leader.key, leader.rev).await?.header;
        Ok(Response::new(ResignResponse { header }))
    }
}

async fn proclaim(
    line: &Line,
    key: &Bytes,
    (revision, lease): (i64, i64),
    value: &Bytes,
) -> Result<Option<ResponseHeader>, Status> {
    let told =
        line.txn(create_revision(key, revision), vec![put(key, value, lease)], Vec::new()).await?;
    if told.succeeded { Ok(told.header) } else { Err(unknown("election: not leader")) }
}

/// Tells who leads, what it proclaims, and who comes after it.
async fn observe(
    line: &Line,
    prefix: &Bytes,
    to: &mpsc::Sender<Result<LeaderResponse, Status>>,
) -> Result<(), Status> {
    let lost = || unknown("election: observe closed early");
    loop {
        let mut found = line.range(first(prefix)).await?;
        let revision = found.header.as_ref().map_or(0, |header| header.revision);
        let leader = match found.kvs.pop() {
            Some(kv) => LeaderResponse { header: found.header, kv: Some(kv) },
            // Whoever comes first leads.
            None => {
                let mut watch = line.watch(prefix, &end_of(prefix), revision)?;
                loop {
                    let batch = StreamExt::next(&mut watch).await.ok_or_else(lost)?;
                    let batch = batch.map_err(|error| unknown(status(&error).message()))?;
                    let put = batch.events().iter().find(|event| event.kind == ChangeKind::Put);
                    if let Some(event) = put {
                        let kv = answers::event(event).kv;
                        let header = line.server.header(batch.revision());
                        break LeaderResponse { header, kv };
                    }
                }
            }
        };
        let key = leader.kv.as_ref().map(|kv| kv.key.clone()).unwrap_or_default();
        let from = leader.header.as_ref().map_or(0, |header| header.revision) + 1;
        to.send(Ok(leader)).await.map_err(|_| lost())?;
        let mut watch = line.watch(&key, &Bytes::new(), from)?;
        'leads: loop {
            let batch = StreamExt::next(&mut watch).await.ok_or_else(lost)?;
            let batch = batch.map_err(|error| unknown(status(&error).message()))?;
            for event in batch.events() {
                if event.kind == ChangeKind::Delete {
                    break 'leads;
                }
                let header = line.server.header(batch.revision());
                let next = LeaderResponse { header, kv: answers::event(event).kv };
                to.send(Ok(next)).await.map_err(|_| lost())?;
            }
        }
    }
}
