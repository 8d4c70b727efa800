//! The service Watch: many watches on one stream.
//!
//! A task reads what the client asks; each watch has a task of its own, asleep until it has something to tell. They
//! meet in the [`Outlet`], which puts their answers into one order.

mod outlet;
mod session;

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use crate::proto::etcdserverpb as pb;
use crate::server::Server;

/// Answers of a stream that wait for a client which reads slowly. A watch that waits reads what it has missed from the
/// store later: nothing else is kept for it.
const ANSWERS: usize = 32;

/// Bytes of events in them, as long as there is more than one with events.
const ANSWER_BYTES: u32 = 128 << 10;

/// Watches of a stream that hold what they have read until it is sent; the others read nothing meanwhile.
const TURNS: usize = 4;

/// An answer on its way to the client, and its share of [`ANSWER_BYTES`].
#[derive(Debug)]
struct Told {
    answer: Result<pb::WatchResponse, Status>,
    _bytes: Option<OwnedSemaphorePermit>,
}

/// The service.
#[derive(Debug)]
pub(crate) struct Watches(pub(crate) Arc<Server>);

#[tonic::async_trait]
impl pb::watch_server::Watch for Watches {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (to, answers) = tokio::sync::mpsc::channel(ANSWERS);
        tokio::spawn(session::run(Arc::clone(&self.0), request, to));
        let answers = ReceiverStream::new(answers).map(|told: Told| told.answer);
        Ok(Response::new(Box::pin(answers)))
    }
}
