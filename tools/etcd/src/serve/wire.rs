//! What a connection goes over, and whether its peer is still there.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

/// A stream of bytes from and to a peer.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Whether the peer has hung up, which reading tells no sooner than after all that it sent before. Costs a call of
    /// the kernel. False where that is not known.
    fn is_gone(&self) -> bool {
        false
    }
}

impl Wire for TcpStream {
    fn is_gone(&self) -> bool {
        has_hung_up(self)
    }
}

impl Wire for UnixStream {
    fn is_gone(&self) -> bool {
        has_hung_up(self)
    }
}

impl<S: Wire> Wire for TlsStream<S> {
    fn is_gone(&self) -> bool {
        self.get_ref().0.is_gone()
    }
}

#[cfg(test)]
impl Wire for tokio::io::DuplexStream {}

#[cfg(target_os = "linux")]
fn has_hung_up(stream: &impl std::os::fd::AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut asked = [PollFd::new(stream, PollFlags::RDHUP)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let told = poll(&mut asked, Some(&at_once));
    let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    told.is_ok() && asked[0].revents().intersects(ended)
}

#[cfg(not(target_os = "linux"))]
fn has_hung_up<S>(_: &S) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn who_hung_up_is_gone_whatever_is_still_to_be_read() -> std::io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut client = TcpStream::connect(listener.local_addr()?).await?;
        let (server, _) = listener.accept().await?;
        client.write_all(&[7; 10_000]).await?;
        assert!(!server.is_gone());
        client.shutdown().await?;
        while cfg!(target_os = "linux") && !server.is_gone() {
            tokio::task::yield_now().await;
        }
        let (ours, theirs) = UnixStream::pair()?;
        assert!(!ours.is_gone());
        drop(theirs);
        assert_eq!(ours.is_gone(), cfg!(target_os = "linux"));
        Ok(())
    }
}
