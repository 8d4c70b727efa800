//! The gateway by WebSocket: each message of the client is a JSON object of the request, each of the server one of the
//! answer.
//!
//! As etcd does (`wsproxy` of `github.com/tmc/grpc-websocket-proxy`): every path of the gateway can be asked that way, the
//! method is POST, and who asks is told by a subprotocol (`Bearer, TOKEN`) or the cookie `token`, since pages of browsers
//! can set no header. Unlike etcd, the server says that it has ended (a close frame) before it hangs up.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use http::header::{AUTHORIZATION, CONNECTION, COOKIE, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::debug;
use crate::gateway::{BODY_TIME, Gateway};
use crate::serve::Shutdown;

/// How long a client may take for the last message, and to hang up then.
const LAST: Duration = Duration::from_secs(1);

/// How many pings may come at once, and how long each takes of what was saved up. Each is answered, and who does not read
/// the answers makes them pile up.
const PINGS: u32 = 1000;
const PING: Duration = Duration::from_millis(100);

/// Bytes of a socket's buffers: most of them wait for an event, and for nothing else.
const BUFFER: usize = 4 << 10;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// What is done with a connection once it is no longer one of HTTP.
type Afterwards = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where a request puts what is to be done with its connection after it; the connection looks here when HTTP has ended.
#[derive(Clone, Default)]
pub(crate) struct After(Arc<Mutex<Option<Afterwards>>>);

impl After {
    /// What is to be done, if anything.
    pub(crate) fn take(&self) -> Option<Afterwards> {
        self.0.lock().take()
    }
}

/// Whether a request asks for a WebSocket.
pub(crate) fn is_asked<B>(request: &Request<B>) -> bool {
    let has = |name: HeaderName, wanted: &str| {
        let values = request.headers().get_all(name);
        values
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(wanted)))
    };
    has(CONNECTION, "upgrade") && has(UPGRADE, "websocket")
}

/// Agrees to a WebSocket, over which the gateway then answers for this path.
pub(crate) fn agree(
    gateway: &Arc<Gateway>,
    shutdown: &Shutdown,
    path: String,
    mut request: Request<Body>,
) -> Response<Body> {
    let refuse = |status, text: String| {
        let mut answer = Response::new(Body::from(text));
        *answer.status_mut() = status;
        answer
    };
    let mut answer = match create_response_with_body(&request, Body::empty) {
        Ok(answer) => answer,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, format!("Bad Request\n{error}\n")),
    };
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let after = request.extensions_mut().remove::<After>();
    let (Some(upgrade), Some(After(after))) = (upgrade, after) else {
        // HTTP/2, where a WebSocket would be asked for otherwise.
        return refuse(StatusCode::BAD_REQUEST, "Bad Request\n".to_owned());
    };
    let headers = request.headers();
    if by_subprotocol(headers).is_some() {
        let bearer = HeaderValue::from_static("Bearer");
        answer.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, bearer);
    }
    let asked = Asked {
        gateway: Arc::clone(gateway),
        shutdown: shutdown.clone(),
        path,
        who: by_cookie(headers).or_else(|| by_subprotocol(headers)),
    };
    *after.lock() = Some(Box::pin(async move {
        match upgrade.await {
            Ok(upgraded) => asked.answer(TokioIo::new(upgraded)).await,
            Err(error) => debug!("no WebSocket after all", "error" = error.to_string()),
        }
    }));
    answer
}

/// The token of a subprotocol. Some browsers put no blank before it.
fn by_subprotocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let offered = headers.get(SEC_WEBSOCKET_PROTOCOL)?.to_str().ok()?;
    bearer(offered.strip_prefix("Bearer")?.trim_start().strip_prefix(',')?)
}

fn by_cookie(headers: &HeaderMap) -> Option<HeaderValue> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.split_once('='));
    bearer(pairs.find(|(name, _)| name.trim() == "token")?.1)
}

fn bearer(token: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("Bearer {}", token.trim().trim_matches('"'))).ok()
}

/// What is asked by a WebSocket.
struct Asked {
    gateway: Arc<Gateway>,
    shutdown: Shutdown,
    path: String,
    who: Option<HeaderValue>,
}

impl Asked {
    /// Answers, until one of both has ended.
    async fn answer(self, io: TokioIo<Upgraded>) {
        let most = self.gateway.max_body;
        let limits = WebSocketConfig::default()
            .max_message_size(Some(most))
            .max_frame_size(Some(most))
            .read_buffer_size(BUFFER)
            .write_buffer_size(BUFFER);
        let socket = Socket::from_raw_socket(io, Role::Server, Some(limits)).await;
        let (mut to, from) = socket.split();
        let mut from = Coming { messages: from, pinged: Instant::now() };
        let first = tokio::select! {
            first = timeout(BODY_TIME, from.message()) => first.ok().flatten(),
            () = self.shutdown.begun() => None,
        };
        if let Some(first) = first {
            let (messages, coming) = mpsc::channel(1);
            let is_stream = self.gateway.is_stream(&self.path);
            let body = if is_stream {
                let first = tokio_stream::iter([first]).chain(ReceiverStream::new(coming));
                let frames = first.map(|text| Ok::<_, axum::Error>(http_body::Frame::data(text)));
                Body::new(StreamBody::new(frames))
            } else {
                Body::from(first)
            };
            let mut request = Request::new(body);
            *request.method_mut() = Method::POST;
            if let Some(who) = self.who {
                request.headers_mut().insert(AUTHORIZATION, who);
            }
            let answered = async {
                let answer = self.gateway.handle(&self.path, request).await;
                send(answer.into_body(), &mut to).await;
            };
            tokio::select! {
                () = answered => {}
                () = from.pass_on(is_stream.then_some(&messages)) => {}
            }
        }
        // It may be gone already, or not read.
        let last = async {
            let _ = to.close().await;
            from.pass_on(None).await;
        };
        let _ = timeout(LAST, last).await;
    }
}

/// What comes from the client.
struct Coming {
    messages: SplitStream<Socket>,
    /// The time by which its pings are paid for.
    pinged: Instant,
}

impl Coming {
    /// The next message, as a line; none when the client has ended, or sends too many pings.
    async fn message(&mut self) -> Option<Bytes> {
        loop {
            let mut text = match self.messages.next().await?.ok()? {
                Message::Text(text) => BytesMut::from(text.as_bytes()),
                Message::Binary(bytes) => bytes.into(),
                Message::Close(_) => return None,
                Message::Ping(_) if self.is_too_much() => return None,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
            };
            text.extend_from_slice(b"\n");
            return Some(text.freeze());
        }
    }

    fn is_too_much(&mut self) -> bool {
        let now = Instant::now();
        self.pinged = self.pinged.max(now) + PING;
        self.pinged.saturating_duration_since(now) > PING * PINGS
    }

    /// Takes messages to the call until the client hangs up. What a stream does not take is not read; what no call takes is
    /// read and forgotten: nothing else tells that the client is gone.
    async fn pass_on(&mut self, mut messages: Option<&mpsc::Sender<Bytes>>) {
        while let Some(text) = self.message().await {
            if let Some(to) = messages
                && to.send(text).await.is_err()
            {
                messages = None;
            }
        }
    }
}

/// Sends each line of an answer as a message.
async fn send(mut body: Body, to: &mut SplitSink<Socket, Message>) {
    let mut text = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Some(piece) = frame.data_ref() else { continue };
        let mut looked = text.len();
        text.extend_from_slice(piece);
        while let Some(length) = text[looked..].iter().position(|byte| *byte == b'\n') {
            let line = text.split_to(looked + length + 1);
            looked = 0;
            if !say(&line[..line.len() - 1], to).await {
                return;
            }
        }
    }
    say(&text, to).await;
}

/// Sends a text, if there is one; whether more can be sent.
async fn say(text: &[u8], to: &mut SplitSink<Socket, Message>) -> bool {
    if text.is_empty() {
        return true;
    }
    let Ok(text) = Utf8Bytes::try_from(Bytes::copy_from_slice(text)) else { return false };
    to.send(Message::Text(text)).await.is_ok()
}
