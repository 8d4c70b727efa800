//! The end of a connection: the server says that it has ended, and then waits a moment for its peer to do so.
//!
//! A socket that is closed while something is left that its peer has sent is reset, and what the peer has not taken yet
//! of the last answer is lost with it. And a peer of HTTP/2 sends something to the end: how much more it would take.
//! So the rest of it is read and forgotten, for a second and a few bytes.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a peer may take to end.
const TIME: Duration = Duration::from_secs(1);

/// Bytes that are read of it meanwhile.
const BYTES: usize = 1 << 20;

/// What is left once the server has said its last.
pub(crate) struct Ending {
    time: Pin<Box<Sleep>>,
    bytes: usize,
}

impl Ending {
    /// From now on.
    pub(crate) fn new() -> Self {
        Self { time: Box::pin(sleep(TIME)), bytes: 0 }
    }

    /// Ready when the peer has ended, too, or need not be waited for any more.
    pub(crate) fn poll_end(
        &mut self,
        mut stream: impl AsyncRead + Unpin,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let mut space = [0; 4096];
        while self.bytes < BYTES {
            let mut rest = ReadBuf::new(&mut space);
            match Pin::new(&mut stream).poll_read(context, &mut rest) {
                Poll::Ready(Ok(())) if !rest.filled().is_empty() => {
                    self.bytes += rest.filled().len();
                }
                // It has ended, or is gone.
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.time.as_mut().poll(context),
            }
        }
        Poll::Ready(())
    }
}
