//! The service Lock: one at a time, by a name.

use std::sync::Arc;

use bytes::Bytes;
use tonic::{Request, Response, Status};

use super::{Line, unknown};
use crate::proto::etcdserverpb as pb;
use crate::proto::v3lockpb::lock_server::Lock;
use crate::proto::v3lockpb::{LockRequest, LockResponse, UnlockRequest, UnlockResponse};
use crate::server::Server;

/// The service.
#[derive(Debug)]
pub(crate) struct Locks(pub(crate) Arc<Server>);

#[tonic::async_trait]
impl Lock for Locks {
    /// Answers when the lock is held: as long as its key is there.
    async fn lock(&self, request: Request<LockRequest>) -> Result<Response<LockResponse>, Status> {
        let (line, wanted) = Line::of(&self.0, request);
        let prefix = Bytes::from([&wanted.name[..], b"/"].concat());
        let place = line.stand(&prefix, wanted.lease, &Bytes::new()).await?;
        if place.is_first {
            return Ok(Response::new(LockResponse { header: place.header, key: place.key }));
        }
        let leaving = line.leaving(&place);
        line.wait(&prefix, &place).await?;
        let key = place.key;
        let answer =
            line.range(pb::RangeRequest { key: key.clone(), ..Default::default() }).await?;
        leaving.stay();
        if answer.kvs.is_empty() {
            return Err(unknown("mutex: session is expired"));
        }
        Ok(Response::new(LockResponse { header: answer.header, key }))
    }

    async fn unlock(
        &self,
        request: Request<UnlockRequest>,
    ) -> Result<Response<UnlockResponse>, Status> {
        let (line, wanted) = Line::of(&self.0, request);
        let header = line.delete(wanted.key).await?;
        Ok(Response::new(UnlockResponse { header }))
    }
}
