//! The protocol as JSON over HTTP, under `/v3/`: what etcd's gateway does, without a connection of its own.
//!
//! A request becomes the gRPC call it stands for, which is made within the process. Streams are answered by a line
//! for each message. Answers follow the gateway of etcd 3.6; errors also carry the field `error` of that of 3.5.

pub(crate) mod json;
pub(crate) mod paths;
mod read;
pub(crate) mod socket;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Version};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use prost_reflect::{MessageDescriptor, MethodDescriptor};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::{Code, Status};

use crate::debug;
use crate::gateway::json::{Splitter, error, frame, http_status, stream_error, unframe, write};
use crate::gateway::paths::PATHS;
use crate::gateway::read::read;
use crate::held::Share;
use crate::http::json_answer;
use crate::serve::calls::{Calls, POOL, Whole};

/// Bytes that a message may be larger than the limit of requests, as etcd allows for what is around them.
const OVERHEAD: usize = 512 * 1024;

/// As many times the length that is taken of a request is read of one that is too long.
const READ_OFF: usize = 8;

/// How long that may take.
const READ_OFF_TIME: Duration = Duration::from_secs(5);

/// How long a client may take for the body of a call, or for the first message of a stream.
pub(crate) const BODY_TIME: Duration = Duration::from_secs(120);

/// The gateway.
pub(crate) struct Gateway {
    calls: Calls,
    methods: HashMap<&'static str, (&'static str, MethodDescriptor)>,
    max_body: usize,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").finish_non_exhaustive()
    }
}

impl Gateway {
    pub(crate) fn new(calls: Calls, max_request_bytes: usize) -> Result<Self, String> {
        let mut methods = HashMap::new();
        for (path, target) in PATHS {
            let method = target
                .strip_prefix('/')
                .and_then(|target| target.split_once('/'))
                .and_then(|(service, name)| {
                    let service = POOL.get_service_by_name(service)?;
                    service.methods().find(|method| method.name() == name)
                });
            let method = method.ok_or_else(|| format!("the protocol has no method {target}"))?;
            methods.insert(*path, (*target, method));
        }
        // Bytes are a third longer in JSON, and short fields have long names.
        let max_body = max_request_bytes.saturating_add(OVERHEAD).saturating_mul(2);
        Ok(Self { calls, methods, max_body })
    }

    /// Answers a request for a path under `/v3/`.
    pub(crate) async fn handle(&self, path: &str, request: Request<Body>) -> Response<Body> {
        let Some((target, method)) = self.methods.get(path) else {
            return refuse(&Status::not_found("Not Found"));
        };
        if request.method() != Method::POST {
            return refuse(&Status::unimplemented("Method Not Allowed"));
        }
        let headers = forwarded(request.headers());
        let input = method.input();
        let asked = async {
            if method.is_client_streaming() {
                let begun = Requests::begin(request.into_body(), input, self.max_body).await;
                begun.map(|(requests, gone)| (Body::new(requests), Some(gone)))
            } else {
                self.one(request.into_body(), &input).await.map(|body| (Body::from(body), None))
            }
        };
        let (body, gone) = match timeout(BODY_TIME, asked).await {
            Ok(Ok(body)) => body,
            Ok(Err(status)) => return refuse(&status),
            Err(_) => {
                return refuse(&Status::deadline_exceeded("the request did not come in time"));
            }
        };
        let mut call = Request::new(body);
        *call.method_mut() = Method::POST;
        *call.version_mut() = Version::HTTP_2;
        *call.uri_mut() = http::Uri::from_static(target);
        *call.headers_mut() = headers;
        let answer = self.calls.call(call).await;
        if method.is_server_streaming() {
            return Lines::answer(answer, method.output(), gone).await;
        }
        let share = answer.extensions().get::<Share>().cloned();
        match whole(answer, &method.output()).await {
            Ok(body) => {
                let body = Body::new(Whole::new(body, share));
                with_metadata(json_answer(http::StatusCode::OK, body))
            }
            Err(status) => refuse(&status),
        }
    }

    /// Whether a call of this path takes more than one message.
    fn is_stream(&self, path: &str) -> bool {
        self.methods.get(path).is_some_and(|(_, method)| method.is_client_streaming())
    }

    async fn one(&self, mut body: Body, kind: &MessageDescriptor) -> Result<Bytes, Status> {
        let mut text = BytesMut::new();
        while let Some(piece) = body.frame().await {
            let piece = piece.map_err(|error| Status::cancelled(error.to_string()))?;
            let Some(piece) = piece.data_ref() else { continue };
            if text.len() + piece.len() > self.max_body {
                drop(text);
                read_off(body, self.max_body).await;
                return Err(too_large());
            }
            text.extend_from_slice(piece);
        }
        Ok(frame(&read(kind, &text)?))
    }
}

/// Reads what is not wanted, up to some length: who is refused while still sending may see the connection break and not
/// the answer.
async fn read_off(mut body: Body, max: usize) {
    let mut left = max.saturating_mul(READ_OFF);
    let read = async {
        while let Some(Ok(piece)) = body.frame().await {
            left = left.saturating_sub(piece.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    // Whatever has come by then: nobody waits for more.
    let _ = timeout(READ_OFF_TIME, read).await;
}

fn too_large() -> Status {
    Status::resource_exhausted("the request is larger than any that is accepted")
}

fn refuse(status: &Status) -> Response<Body> {
    json_answer(http_status(status.code()), Value::Object(error(status)).to_string())
}

fn with_metadata(mut answer: Response<Body>) -> Response<Body> {
    answer
        .headers_mut()
        .insert("grpc-metadata-content-type", HeaderValue::from_static("application/grpc"));
    answer
}

/// The headers of the call: who asks, and what is meant for the service.
fn forwarded(from: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in from {
        let Some(name) = name.as_str().strip_prefix("grpc-metadata-") else { continue };
        // What frames and routes the call is not the client's to say.
        let reserved =
            name.starts_with("grpc-") || name == "content-type" || name == "te" || name == "host";
        if !reserved && let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            headers.append(name, value.clone());
        }
    }
    for value in from.get_all(AUTHORIZATION) {
        headers.append(AUTHORIZATION, value.clone());
        headers.append("grpcgateway-authorization", value.clone());
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("te", HeaderValue::from_static("trailers"));
    headers
}

/// The one message of an answer, as JSON.
async fn whole(answer: Response<Body>, kind: &MessageDescriptor) -> Result<Vec<u8>, Status> {
    let (head, body) = answer.into_parts();
    if let Some(status) = Status::from_header_map(&head.headers) {
        ok(status)?;
    }
    let all = body.collect().await.map_err(|error| Status::unavailable(error.to_string()))?;
    if let Some(status) = all.trailers().and_then(Status::from_header_map) {
        ok(status)?;
    }
    let message = unframe(kind, &mut BytesMut::from(all.to_bytes()))?;
    let message = message.ok_or_else(|| Status::internal("the call ended without an answer"))?;
    let mut text = Vec::new();
    write(&message, &mut text)?;
    Ok(text)
}

fn ok(status: Status) -> Result<(), Status> {
    if status.code() == Code::Ok { Ok(()) } else { Err(status) }
}

/// Messages of a client's stream: JSON objects, one after the other.
struct Requests {
    body: Body,
    kind: MessageDescriptor,
    splitter: Splitter,
    ready: VecDeque<Bytes>,
    max: usize,
    over: bool,
    /// Who answers is told that the client is gone, which nobody else notices while its stream has not ended.
    gone: Option<oneshot::Sender<()>>,
}

impl Requests {
    /// Waits for the first message, so that one that is wrong is refused. Tells, too, when the client is gone.
    async fn begin(
        body: Body,
        kind: MessageDescriptor,
        max: usize,
    ) -> Result<(Self, oneshot::Receiver<()>), Status> {
        let (gone, is_gone) = oneshot::channel();
        let mut this = Self {
            body,
            kind,
            splitter: Splitter::default(),
            ready: VecDeque::new(),
            max,
            over: false,
            gone: Some(gone),
        };
        while this.ready.is_empty() && !this.over {
            let frame = this.body.frame().await;
            if let Err(status) = this.take(frame) {
                if status.code() == Code::ResourceExhausted {
                    read_off(this.body, max).await;
                }
                return Err(status);
            }
        }
        Ok((this, is_gone))
    }

    /// No more is asked. What still comes is read and forgotten, to notice when the client is gone.
    fn break_off(&mut self) {
        self.over = true;
        let mut body = std::mem::take(&mut self.body);
        let Some(gone) = self.gone.take() else { return };
        tokio::spawn(async move {
            while let Some(piece) = body.frame().await {
                if piece.is_err() {
                    let _ = gone.send(());
                    return;
                }
            }
        });
    }

    fn take(&mut self, piece: Option<Result<Frame<Bytes>, axum::Error>>) -> Result<(), Status> {
        match piece {
            Some(Ok(piece)) => {
                if let Some(piece) = piece.data_ref() {
                    self.splitter.push(piece);
                }
            }
            Some(Err(error)) => return Err(Status::cancelled(error.to_string())),
            None => self.over = true,
        }
        while let Some(text) = self.splitter.next() {
            self.ready.push_back(frame(&read(&self.kind, &text)?));
        }
        if self.over {
            let rest = self.splitter.rest();
            if !rest.iter().all(u8::is_ascii_whitespace) {
                self.ready.push_back(frame(&read(&self.kind, &rest)?));
            }
        }
        if self.splitter.waiting() > self.max { Err(too_large()) } else { Ok(()) }
    }
}

impl http_body::Body for Requests {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(ready))));
            }
            if self.over {
                return Poll::Ready(None);
            }
            let Poll::Ready(piece) = Pin::new(&mut self.body).poll_frame(context) else {
                return Poll::Pending;
            };
            if matches!(piece, Some(Err(_))) {
                self.over = true;
                if let Some(gone) = self.gone.take() {
                    let _ = gone.send(());
                }
            } else if let Err(status) = self.take(piece) {
                // The answers go on, as etcd's do: only no more is asked.
                debug!("a stream of requests over HTTP is broken", "error" = status.message());
                self.break_off();
            }
        }
    }
}

/// The messages of a server's stream, each as a line of JSON.
struct Lines {
    body: Body,
    kind: MessageDescriptor,
    frames: BytesMut,
    over: bool,
    /// Comes when the client is gone.
    gone: Option<oneshot::Receiver<()>>,
}

/// A step of a stream.
enum Step {
    Line(Bytes),
    End,
    Failed(Status),
}

impl Lines {
    /// Waits for the first message: before it, an error is an answer of its own.
    async fn answer(
        answer: Response<Body>,
        kind: MessageDescriptor,
        gone: Option<oneshot::Receiver<()>>,
    ) -> Response<Body> {
        let (head, body) = answer.into_parts();
        if let Some(status) =
            Status::from_header_map(&head.headers).filter(|status| status.code() != Code::Ok)
        {
            return json_answer(http_status(status.code()), stream_error(&status).to_string());
        }
        let mut lines = Self { body, kind, frames: BytesMut::new(), over: false, gone };
        let first = std::future::poll_fn(|context| lines.poll_step(context)).await;
        let body = match first {
            Step::Failed(status) => {
                return json_answer(http_status(status.code()), stream_error(&status).to_string());
            }
            Step::End => Body::empty(),
            Step::Line(line) => Body::new(First { line: Some(line), rest: lines }),
        };
        with_metadata(json_answer(http::StatusCode::OK, body))
    }

    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        loop {
            if self.over {
                return Poll::Ready(Step::End);
            }
            match self.gone.as_mut().map(|gone| Pin::new(gone).poll(context)) {
                Some(Poll::Ready(Ok(()))) => {
                    self.over = true;
                    continue;
                }
                Some(Poll::Ready(Err(_))) => self.gone = None,
                Some(Poll::Pending) | None => {}
            }
            match unframe(&self.kind, &mut self.frames) {
                Ok(Some(message)) => {
                    let mut line = b"{\"result\":".to_vec();
                    return Poll::Ready(match write(&message, &mut line) {
                        Ok(()) => {
                            line.extend_from_slice(b"}\n");
                            Step::Line(line.into())
                        }
                        Err(status) => self.fail(status),
                    });
                }
                Ok(None) => {}
                Err(status) => return Poll::Ready(self.fail(status)),
            }
            let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(context) else {
                return Poll::Pending;
            };
            let frame = match next {
                None => {
                    return Poll::Ready(
                        self.fail(Status::unknown("the stream ended without a status")),
                    );
                }
                Some(Err(error)) => {
                    return Poll::Ready(self.fail(Status::unavailable(error.to_string())));
                }
                Some(Ok(frame)) => frame,
            };
            if let Some(data) = frame.data_ref() {
                self.frames.extend_from_slice(data);
            } else if let Some(trailers) = frame.trailers_ref() {
                let status = Status::from_header_map(trailers);
                let status =
                    status.unwrap_or_else(|| Status::unknown("the stream ended without a status"));
                if status.code() != Code::Ok {
                    return Poll::Ready(self.fail(status));
                }
                self.over = true;
            }
        }
    }

    fn fail(&mut self, status: Status) -> Step {
        self.over = true;
        Step::Failed(status)
    }
}

/// Lines of which the first is there already.
struct First {
    line: Option<Bytes>,
    rest: Lines,
}

impl http_body::Body for First {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(line) = self.line.take() {
            return Poll::Ready(Some(Ok(Frame::data(line))));
        }
        let Poll::Ready(step) = self.rest.poll_step(context) else { return Poll::Pending };
        Poll::Ready(match step {
            Step::Line(line) => Some(Ok(Frame::data(line))),
            Step::End => None,
            Step::Failed(status) => {
                Some(Ok(Frame::data((stream_error(&status).to_string() + "\n").into())))
            }
        })
    }
}
