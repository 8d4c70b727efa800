//! The end of a connection: the server says that it has ended, and then waits a moment for its peer to do so.
//!
//! A socket that is closed while something is left that its peer has sent is reset, and what the peer has not taken yet
//! of the last answer is lost with it. And a peer of HTTP/2 sends something to the end: how much more it would take.
//! So the rest of it is read and forgotten, for a second and a few bytes.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::serve::wire::Wire;

/// How long a peer may take to end.
const TIME: Duration = Duration::from_secs(1);

/// Bytes that are read of it meanwhile.
const BYTES: usize = 1 << 20;

/// A connection that is ended in two steps.
pub(crate) struct Lingering<S> {
    stream: S,
    ending: Option<Ending>,
}

/// What is left once the server has said its last.
struct Ending {
    time: Pin<Box<Sleep>>,
    bytes: usize,
}

impl<S> Lingering<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, ending: None }
    }
}

impl<S: Wire> Wire for Lingering<S> {
    fn is_gone(&self) -> bool {
        self.stream.is_gone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
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
        let Self { stream, ending } = self.get_mut();
        if ending.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
        }
        let ending = ending.get_or_insert_with(|| Ending { time: Box::pin(sleep(TIME)), bytes: 0 });
        let mut space = [0; 4096];
        while ending.bytes < BYTES {
            let mut rest = ReadBuf::new(&mut space);
            match Pin::new(&mut *stream).poll_read(context, &mut rest) {
                Poll::Ready(Ok(())) if !rest.filled().is_empty() => {
                    ending.bytes += rest.filled().len();
                }
                // It has ended, too, or is gone.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return ending.time.as_mut().poll(context).map(Ok),
            }
        }
        Poll::Ready(Ok(()))
    }
}
