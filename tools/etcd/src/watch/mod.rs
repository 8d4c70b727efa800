//! The service Watch: many watches on one stream.
//!
//! A task reads what the client asks; each watch has a task of its own, asleep until it has something to tell. They
//! meet in the [`Outlet`], which puts their answers into one order.

mod answer;
mod outlet;
mod session;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::OwnedSemaphorePermit;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};

use crate::proto::etcdserverpb::{self as pb, watch_server};
use crate::server::Server;

use answer::{Answer, WatchCodec};

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
    answer: Answer,
    _bytes: Option<OwnedSemaphorePermit>,
}

type Answers = Pin<Box<dyn Stream<Item = Result<Answer, Status>> + Send>>;

/// The service. It is not the generated one, whose answers are made of events one by one.
#[derive(Clone, Debug)]
pub(crate) struct Watches {
    server: Arc<Server>,
    /// Longest request, in bytes.
    max_request: usize,
}

impl Watches {
    pub(crate) fn new(server: Arc<Server>, max_request: usize) -> Self {
        Self { server, max_request }
    }
}

impl NamedService for Watches {
    const NAME: &'static str = watch_server::SERVICE_NAME;
}

impl<B> Service<http::Request<B>> for Watches
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<tonic::codegen::StdError> + Send,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let Self { server, max_request } = self.clone();
        Box::pin(async move {
            let of_service = request.uri().path().strip_prefix('/');
            if of_service.and_then(|path| path.strip_prefix(Self::NAME)) != Some("/Watch") {
                return Ok(Status::unimplemented("").into_http());
            }
            let grpc = Grpc::new(WatchCodec::default());
            let mut grpc = grpc.max_decoding_message_size(max_request);
            Ok(grpc.streaming(Opened(server), request).await)
        })
    }
}

/// What is done with a stream.
struct Opened(Arc<Server>);

impl StreamingService<pb::WatchRequest> for Opened {
    type Response = Answer;
    type ResponseStream = Answers;
    type Future = Ready<Result<Response<Answers>, Status>>;

    fn call(&mut self, request: Request<Streaming<pb::WatchRequest>>) -> Self::Future {
        let (to, answers) = tokio::sync::mpsc::channel(ANSWERS);
        tokio::spawn(session::run(Arc::clone(&self.0), request, to));
        let answers = ReceiverStream::new(answers).map(|told: Told| Ok(told.answer));
        ready(Ok(Response::new(Box::pin(answers))))
    }
}
