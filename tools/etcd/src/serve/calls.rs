//! Every gRPC call, from outside or from the gateway: counted by method and code, and ended if it is a stream when
//! the server stops.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use prost_reflect::DescriptorPool;
use tonic::{Code, Status};

use crate::held::Share;
use crate::metrics::{Method, Metrics};
use crate::serve::Shutdown;
use crate::services::Services;

/// The descriptors of the protocol.
pub(crate) static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(crate::proto::DESCRIPTORS).unwrap_or_else(|_| DescriptorPool::new())
});

/// The methods by their paths, such as `/etcdserverpb.KV/Put`. They live as long as the process.
static METHODS: LazyLock<HashMap<String, Method>> = LazyLock::new(|| {
    let mut methods = HashMap::new();
    for service in POOL.services() {
        let service_name: &'static str = String::leak(service.full_name().to_owned());
        for method in service.methods() {
            let name: &'static str = String::leak(method.name().to_owned());
            let kind = match (method.is_client_streaming(), method.is_server_streaming()) {
                (false, false) => "unary",
                (true, false) => "client_stream",
                (false, true) => "server_stream",
                (true, true) => "bidi_stream",
            };
            methods.insert(
                format!("/{service_name}/{name}"),
                Method { service: service_name, name, kind },
            );
        }
    }
    methods
});

/// Streams that end by themselves: they have their time when the server stops, as calls have.
const ENDING: [&str; 2] = ["Snapshot", "RangeStream"];

/// The gRPC services.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    services: Services,
    metrics: Arc<Metrics>,
    shutdown: Shutdown,
}

impl Calls {
    pub(crate) fn new(services: Services, metrics: Arc<Metrics>, shutdown: Shutdown) -> Self {
        Self { services, metrics, shutdown }
    }

    /// Does one call.
    pub(crate) async fn call(&self, request: Request<Body>) -> Response<Body> {
        let method = METHODS.get(request.uri().path()).copied();
        let ending = method.map(|method| Ending::begin(Arc::clone(&self.metrics), method));
        let metrics = Arc::clone(&self.metrics);
        let request = request.map(|body| {
            Body::new(body.map_frame(move |frame| {
                if let Some(data) = frame.data_ref() {
                    metrics.received_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
                frame
            }))
        });
        let answer = self.services.call(request).await;
        // It stays with the answer: who makes another one of it keeps it until that is taken.
        let share = answer.extensions().get::<Share>().cloned();
        let Some(mut ending) = ending else { return answer.map(Body::new) };
        if let Some(code) = code(answer.headers()) {
            ending.end(code);
            return answer.map(Body::new);
        }
        let endless = ending.method.kind != "unary" && !ENDING.contains(&ending.method.name);
        let shutdown = self.shutdown.clone();
        let stop = endless.then(|| Box::pin(async move { shutdown.begun().await }) as Stop);
        answer.map(|inner| {
            Body::new(Answer {
                inner,
                rest: Bytes::new(),
                _share: share,
                ending,
                stop,
                over: false,
            })
        })
    }
}

/// A whole body that goes out in pieces, with what counts it.
pub(crate) struct Whole {
    rest: Bytes,
    _share: Option<Share>,
}

impl Whole {
    pub(crate) fn new(body: Vec<u8>, share: Option<Share>) -> Self {
        Self { rest: body.into(), _share: share }
    }
}

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.rest.len() as u64)
    }
}

type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What headers or trailers say about how a call ended.
fn code(headers: &HeaderMap) -> Option<usize> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// Counts the end of a call, once, whatever way it ends.
struct Ending {
    metrics: Arc<Metrics>,
    method: Method,
    ended: bool,
}

impl Ending {
    fn begin(metrics: Arc<Metrics>, method: Method) -> Self {
        metrics.started(method);
        Self { metrics, method, ended: false }
    }

    fn end(&mut self, code: usize) {
        if !self.ended {
            self.ended = true;
            self.metrics.handled(self.method, code);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Nobody waits for the rest: the client has gone.
        self.end(Code::Cancelled as usize);
    }
}

/// What HTTP/2 is given at once. It asks for more when the client takes more.
const PIECE: usize = 64 << 10;

/// The body of an answer, on its way out.
struct Answer {
    inner: tonic::body::Body,
    /// What of a large piece is still to come.
    rest: Bytes,
    /// Counted until the last of it is on its way.
    _share: Option<Share>,
    ending: Ending,
    stop: Option<Stop>,
    over: bool,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if !this.rest.is_empty() {
            let length = this.rest.len().min(PIECE);
            return Poll::Ready(Some(Ok(Frame::data(this.rest.split_to(length)))));
        }
        if this.over {
            return Poll::Ready(None);
        }
        match Pin::new(&mut this.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    this.ending.metrics.sent_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
                if let Some(trailers) = frame.trailers_ref() {
                    this.ending.end(code(trailers).unwrap_or(Code::Unknown as usize));
                }
                let frame = match frame.into_data() {
                    Ok(mut data) => {
                        this.rest = data.split_off(data.len().min(PIECE));
                        Frame::data(data)
                    }
                    Err(frame) => frame,
                };
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(Some(Err(error))) => {
                this.ending.end(Code::Internal as usize);
                return Poll::Ready(Some(Err(error)));
            }
            Poll::Ready(None) => {
                this.ending.end(Code::Unknown as usize);
                return Poll::Ready(None);
            }
            Poll::Pending => {}
        }
        // What is ready has gone out: only a stream that waits is told.
        let stopped = this.stop.as_mut().is_some_and(|stop| stop.as_mut().poll(context).is_ready());
        if !stopped {
            return Poll::Pending;
        }
        (this.over, this.stop) = (true, None);
        this.ending.end(Code::Unavailable as usize);
        let mut trailers = HeaderMap::new();
        let told = Status::unavailable("etcdserver: server stopped").add_header(&mut trailers);
        if told.is_err() {
            trailers.insert("grpc-status", HeaderValue::from_static("14"));
        }
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use tonic::codegen::BoxFuture;
    use tonic::server::NamedService;

    use super::*;
    use crate::held::Held;

    #[tokio::test]
    async fn a_whole_body_is_counted_until_its_last_piece_is_gone() {
        let held = Held::new();
        let share = held.fill().extensions().get::<Share>().cloned();
        let mut body = Whole::new(vec![7; 2 * PIECE + 1], share);
        for length in [PIECE, PIECE, 1] {
            assert!(held.check_room().is_err(), "the rest is still here");
            let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(piece.len(), length);
        }
        assert!(body.frame().await.is_none());
        drop(body);
        assert!(held.check_room().is_ok());
    }

    /// A service whose answers are as large as they may be.
    #[derive(Clone)]
    struct Filling(Arc<Held>);

    impl NamedService for Filling {
        const NAME: &str = "etcdserverpb.KV";
    }

    impl tonic::codegen::Service<Request<Body>> for Filling {
        type Response = Response<tonic::body::Body>;
        type Error = Infallible;
        type Future = BoxFuture<Self::Response, Infallible>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            let share = self.0.fill().extensions().get::<Share>().cloned().unwrap();
            let mut answer = Response::new(tonic::body::Body::empty());
            answer.extensions_mut().insert(share);
            Box::pin(async move { Ok(answer) })
        }
    }

    /// The gateway makes JSON of what a call has answered, and that goes out later.
    #[tokio::test]
    async fn what_counts_an_answer_stays_with_it() {
        let held = Arc::new(Held::new());
        let services = Services::of(Filling(Arc::clone(&held)));
        let calls = Calls::new(services, Arc::default(), Shutdown::default());
        let request = Request::post("/etcdserverpb.KV/Range").body(Body::empty()).unwrap();
        let answer = calls.call(request).await;
        let share = answer.extensions().get::<Share>().cloned();
        drop(answer.into_body().collect().await);
        assert!(share.is_some() && held.check_room().is_err());
        drop(share);
        assert!(held.check_room().is_ok());
    }
}
