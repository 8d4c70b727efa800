//! One connection: TLS, HTTP/1.1 or HTTP/2, and the limits that keep a peer from holding it for nothing.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::config::Config;
use crate::gateway::socket::After;
use crate::http::{Front, Traffic};
use crate::metrics::Metrics;
use crate::serve::Shutdown;
use crate::serve::frames::Walked;
use crate::serve::linger::Ending;
use crate::serve::pace::{Pace, Spare};
use crate::serve::wire::Wire;
use crate::server::PeerCommonName;
use crate::tls::Tls;
use crate::{debug, warn};

/// How long a client may take for its first request's beginning, and for the headers of each request by HTTP/1.1.
const HEADER_TIME: Duration = Duration::from_secs(30);

/// Bytes of the headers of a request.
const HEADER_BYTES: u32 = 64 * 1024;

/// So many requests of a connection that are under way begin at once. Further ones begin a moment later: what has been
/// cancelled by then costs no more, and requests of others come in between.
const AT_ONCE: usize = 16;

/// After so many bytes of a connection others have their turn: what its peer has sent may take long to read, though it
/// asks for nothing.
const TURN_BYTES: usize = 8 << 10;

/// So many bytes tell a client that speaks: the preface of HTTP/2, and the head of the frame that has to follow.
const SPOKEN: usize = 24 + 9;

/// What all connections have in common.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) front: Front,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) shutdown: Shutdown,
    pub(crate) builder: auto::Builder<TokioExecutor>,
    pub(crate) spare: Arc<Spare>,
}

/// What is known of the peer of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    pub(crate) tls: bool,
    pub(crate) common_name: Option<PeerCommonName>,
    pub(crate) remote: Option<SocketAddr>,
}

/// The protocol's limits as the flags set them.
pub(crate) fn builder(config: &Config) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES as usize);
    let asks =
        !config.grpc_keepalive_interval.is_zero() && !config.grpc_keepalive_timeout.is_zero();
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(config.max_concurrent_streams)
        .max_header_list_size(HEADER_BYTES)
        // No server of gRPC tells the time with each answer.
        .auto_date_header(false)
        // Clients of etcd cancel many calls at once. What they cancelled costs as much as what they did not.
        .max_pending_accept_reset_streams(1024)
        // Nor do they make the server end streams by breaking the rules.
        .max_local_error_reset_streams(64)
        .keep_alive_interval(asks.then_some(config.grpc_keepalive_interval))
        .keep_alive_timeout(config.grpc_keepalive_timeout);
    builder
}

impl Common {
    /// Serves a connection until its end.
    pub(crate) async fn serve<S>(self, stream: S, traffic: Traffic, secure: bool, mut peer: Peer)
    where
        S: Wire,
    {
        let _open = Open::new(Arc::clone(&self.metrics));
        let tls = self.tls.clone().filter(|_| secure);
        let Some(tls) = tls else { return self.http(stream, traffic, peer).await };
        let accepted = tokio::select! {
            accepted = tls.accept(stream) => accepted,
            () = self.shutdown.begun() => return,
        };
        match accepted {
            Err(error) => {
                self.metrics.failed_handshakes.fetch_add(1, Ordering::Relaxed);
                let remote = peer.remote.map(|remote| remote.to_string());
                warn!(
                    "rejected connection on client endpoint",
                    "remote-addr" = remote,
                    "error" = error
                );
            }
            Ok(accepted) => {
                (peer.tls, peer.common_name) = (true, accepted.common_name);
                self.http(accepted.stream, traffic, peer).await;
            }
        }
    }

    async fn http<S>(self, stream: S, traffic: Traffic, peer: Peer)
    where
        S: Wire,
    {
        let Self { front, metrics, shutdown, builder, spare, .. } = self;
        let remote = peer.remote.map(|remote| remote.to_string());
        let pace = Pace::new(spare, {
            let remote = remote.clone();
            move || {
                metrics.slowed_connections.fetch_add(1, Ordering::Relaxed);
                let text = "slowing a client down that sends too many frames which ask for nothing";
                debug!(text, "remote-addr" = remote);
            }
        });
        let peer = Arc::new(peer);
        let under_way = Arc::new(());
        let after = After::default();
        let then = after.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (front, peer, under_way) =
                (front.clone(), Arc::clone(&peer), Arc::clone(&under_way));
            let after = after.clone();
            // Each has one, and so has the service.
            let is_crowded = Arc::strong_count(&under_way) > AT_ONCE + 1;
            async move {
                if is_crowded {
                    tokio::task::yield_now().await;
                }
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(after);
                if let Some(name) = &peer.common_name {
                    request.extensions_mut().insert(name.clone());
                }
                let answer = front.handle(traffic, &peer, request).await;
                drop(under_way);
                Ok::<_, Infallible>(answer)
            }
        });
        let limit = Some(Box::pin(sleep(HEADER_TIME)));
        let stream = Spoken { stream, read: 0, turn: 0, limit, ending: None };
        let io = TokioIo::new(Walked::new(stream, pace));
        let connection = builder.serve_connection_with_upgrades(io, service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = shutdown.begun() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection.as_mut() => ended,
                    () = shutdown.cut() => Ok(()),
                }
            }
        };
        if let Err(error) = ended {
            debug!(
                "a connection ended with an error",
                "remote-addr" = remote,
                "error" = error.to_string()
            );
        }
        if let Some(afterwards) = then.take() {
            tokio::select! {
                () = afterwards => {}
                () = shutdown.cut() => {}
            }
        }
    }
}

/// Counts a connection as long as it is there.
struct Open(Arc<Metrics>);

impl Open {
    fn new(metrics: Arc<Metrics>) -> Self {
        metrics.connections.fetch_add(1, Ordering::Relaxed);
        Self(metrics)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that fails if its peer says nothing for long at its beginning: nothing else notices that. And one that
/// leaves its thread to others before all is read that has come, and waits for its peer in the end.
struct Spoken<S> {
    stream: S,
    read: usize,
    /// Bytes that were read since others had their turn.
    turn: usize,
    limit: Option<Pin<Box<Sleep>>>,
    /// Once the server has said its last.
    ending: Option<Ending>,
}

impl<S: Wire> Wire for Spoken<S> {
    fn is_gone(&self) -> bool {
        self.stream.is_gone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Spoken<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.turn >= TURN_BYTES {
            self.turn = 0;
            // Behind whoever waits.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        self.turn = if read.is_pending() { 0 } else { self.turn + into.filled().len() - before };
        let Some(limit) = &mut self.limit else { return read };
        if read.is_pending() && limit.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.read += into.filled().len() - before;
        if self.read >= SPOKEN {
            self.limit = None;
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Spoken<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, ending, .. } = self.get_mut();
        if ending.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
        }
        ending.get_or_insert_with(Ending::new).poll_end(stream, context).map(Ok)
    }
}

#[cfg(test)]
mod tests;
