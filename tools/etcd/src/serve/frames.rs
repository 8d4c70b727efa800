//! The frames of HTTP/2 on their way in, before h2 reads them: those of headers get an authority that it takes
//! ([`authority`](super::authority)), and each is counted for its client's [`pace`](super::pace).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::serve::authority::rename;
use crate::serve::pace::{HEADERS, Pace};
use crate::serve::wire::Wire;

/// What a client of HTTP/2 says first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a frame's head.
pub(crate) const HEAD: usize = 9;

/// The largest frame that the server allows; nobody needs as much for headers.
const FRAME: usize = 16 * 1024;

/// A connection whose requests have an authority that h2 takes, and whose client keeps its pace.
pub(crate) struct Walked<S> {
    stream: S,
    frames: Frames,
    /// Read, and looked at.
    ready: Vec<u8>,
    /// Read, and not whole yet.
    held: Vec<u8>,
}

impl<S> Walked<S> {
    pub(crate) fn new(stream: S, pace: Pace) -> Self {
        let (ready, held) = (Vec::new(), Vec::new());
        Self { stream, frames: Frames::new(pace), ready, held }
    }
}

impl<S: Wire> AsyncRead for Walked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if !this.ready.is_empty() {
                let length = this.ready.len().min(into.remaining());
                into.put_slice(&this.ready[..length]);
                this.ready.drain(..length);
                return Poll::Ready(Ok(()));
            }
            if this.frames.pace.poll(context).is_pending() {
                // What it left behind is nobody's any more.
                let gone = this.stream.is_gone();
                return if gone {
                    Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
                } else {
                    Poll::Pending
                };
            }
            if this.held.is_empty() {
                // Nearly always: looked at where it is read to, nothing is copied.
                let most = this.frames.bytes();
                let before = into.filled().len();
                if most < into.remaining() {
                    let mut part = ReadBuf::new(into.initialize_unfilled_to(most));
                    ready!(Pin::new(&mut this.stream).poll_read(context, &mut part))?;
                    let length = part.filled().len();
                    into.advance(length);
                } else {
                    ready!(Pin::new(&mut this.stream).poll_read(context, into))?;
                }
                let read = &mut into.filled_mut()[before..];
                let (passed, seen) = this.frames.pass(read);
                let over = read.is_empty();
                this.held = read[seen..].to_vec();
                into.set_filled(before + passed);
                if passed > 0 || over {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            let mut chunk = [0; 4096];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut chunk))?;
            let mut bytes = std::mem::take(&mut this.held);
            if chunk.filled().is_empty() {
                // It ends in the middle of a frame.
                this.ready = bytes;
                continue;
            }
            bytes.extend_from_slice(chunk.filled());
            let (passed, seen) = this.frames.pass(&mut bytes);
            this.held = bytes.split_off(seen);
            bytes.truncate(passed);
            this.ready = bytes;
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Walked<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, from);
        if let Poll::Ready(Ok(bytes)) = wrote {
            self.frames.pace.wrote(bytes);
        }
        wrote
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, from);
        if let Poll::Ready(Ok(bytes)) = wrote {
            self.frames.pace.wrote(bytes);
        }
        wrote
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Where in the stream of frames a connection is.
struct Frames {
    pace: Pace,
    /// Bytes of the preface that have come.
    preface: usize,
    /// It is not HTTP/2.
    other: bool,
    /// Bytes that come next and are nobody's business here.
    skip: usize,
}

impl Frames {
    fn new(pace: Pace) -> Self {
        Self { pace, preface: 0, other: false, skip: 0 }
    }

    /// How many bytes may be read before what has come is looked at.
    fn bytes(&self) -> usize {
        if self.other { usize::MAX } else { self.skip.saturating_add(self.pace.bytes()) }
    }

    /// Looks at what has come. The first bytes, as many as the first number says, may go on; from the second number on
    /// they must be shown again, with more behind them.
    fn pass(&mut self, bytes: &mut [u8]) -> (usize, usize) {
        let (mut passed, mut seen) = (0, 0);
        while self.preface < PREFACE.len() && !self.other && seen < bytes.len() {
            self.other = bytes[seen] != PREFACE[self.preface];
            (self.preface, passed, seen) = (self.preface + 1, passed + 1, seen + 1);
        }
        if self.other {
            return (bytes.len(), bytes.len());
        }
        while seen < bytes.len() {
            let rest = bytes.len() - seen;
            if self.skip > 0 {
                let length = self.skip.min(rest);
                bytes.copy_within(seen..seen + length, passed);
                (self.skip, passed, seen) = (self.skip - length, passed + length, seen + length);
                continue;
            }
            let Some(frame) = bytes[seen..].first_chunk::<HEAD>() else { break };
            let length = HEAD + length_of(frame);
            let (kind, flags) = (frame[3], frame[4]);
            let whole_headers = kind == HEADERS && flags & 0x4 != 0 && length <= HEAD + FRAME;
            if !whole_headers {
                self.pace.read(kind, flags, length - HEAD);
                self.skip = length;
                continue;
            }
            if rest < length {
                break;
            }
            self.pace.read(kind, flags, length - HEAD);
            let renamed = rename(&mut bytes[seen..seen + length]);
            bytes.copy_within(seen..seen + renamed, passed);
            (passed, seen) = (passed + renamed, seen + length);
        }
        (passed, seen)
    }
}

fn length_of(frame: &[u8; HEAD]) -> usize {
    usize::from(frame[0]) << 16 | usize::from(frame[1]) << 8 | usize::from(frame[2])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::serve::authority::NAME;

    /// A frame.
    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("small").to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// `:method POST`, an authority, `te: trailers` spelled out.
    fn block(authority: &[u8]) -> Vec<u8> {
        let (before, after) = (&[0x83, 0x3f, 0xe1, 0x1f][..], b"\x40\x02te\x08trailers");
        [before, &[0x41], authority, &after[..]].concat()
    }

    fn raw(value: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        match u8::try_from(value.len()) {
            Ok(length) if length < 127 => text.push(length),
            _ => text.extend([127, u8::try_from(value.len() - 127).expect("below 128 more")]),
        }
        text.extend(value);
        text
    }

    /// What comes out if `sent` comes in pieces that are cut there.
    fn passed(sent: &[u8], cuts: &[usize]) -> Vec<u8> {
        let (mut frames, mut held, mut out) =
            (Frames::new(Pace::new(Arc::default(), || ())), Vec::new(), Vec::new());
        let ends = cuts.iter().copied().chain([sent.len()]);
        let mut begin = 0;
        for end in ends {
            held.extend(&sent[begin..end]);
            begin = end;
            let (passed, seen) = frames.pass(&mut held);
            out.extend(&held[..passed]);
            held.drain(..seen);
        }
        out.extend(held);
        out
    }

    fn stream(frames: &[Vec<u8>]) -> Vec<u8> {
        [PREFACE.to_vec(), frames.concat()].concat()
    }

    #[test]
    fn what_is_no_name_is_replaced_wherever_the_stream_is_cut() {
        let wrong = [
            raw(b"#initially=[http://127.0.0.1:2379]"),
            raw(b"http://127.0.0.1:2379"),
            raw(&[b'/'; 200]),
            // Packed: it may be right, or not.
            vec![0x84, 0xff, 0xff, 0xfe, 0x2f],
        ];
        for wrong in wrong {
            let (before, after) = (frame(4, 0, &[0; 12]), frame(0, 0, b"payload\x01\x04"));
            let sent = stream(&[before.clone(), frame(1, 4, &block(&wrong)), after.clone()]);
            let wanted = stream(&[before, frame(1, 4, &block(&NAME)), after]);
            assert_eq!(passed(&sent, &[]), wanted);
            for cut in 0..sent.len() {
                assert_eq!(passed(&sent, &[cut]), wanted, "cut at {cut}");
            }
            let all: Vec<usize> = (0..sent.len()).collect();
            assert_eq!(passed(&sent, &all), wanted);
        }
    }

    #[test]
    fn padding_and_priority_stay() {
        let wrong = block(&raw(b"unix:///run/annals"));
        let sent = [&[3, 0, 0, 0, 0, 9][..], &wrong, &[0; 3]].concat();
        let wanted = [&[3, 0, 0, 0, 0, 9][..], &block(&NAME), &[0; 3]].concat();
        let (sent, wanted) = (frame(1, 0x2c, &sent), frame(1, 0x2c, &wanted));
        assert_eq!(passed(&stream(&[sent]), &[]), stream(&[wanted]));
    }

    #[test]
    fn all_else_goes_on_as_it_is() {
        let spelled = [&b"\x00\x0a:authority"[..], &raw(b"localhost:2379")].concat();
        let cases = [
            // Names.
            frame(1, 4, &block(&raw(b"localhost:2379"))),
            frame(1, 4, &block(&[0])),
            frame(1, 4, &spelled),
            // No authority, an index alone.
            frame(1, 4, &[0x83, 0x86, 0xbe]),
            // Headers that go on in another frame, a frame as large as none may be.
            frame(1, 0, &block(&raw(b"/"))),
            frame(1, 4, &vec![0x83; FRAME + 1]),
            // Not to be read: cut numbers, cut texts, more padding than there is.
            frame(1, 4, &[0x41, 0x7f]),
            frame(1, 4, &[0x41, 0x05, b'/']),
            frame(1, 4, &[0x7f, 0xff, 0xff, 0xff, 0xff, 0x7f]),
            frame(1, 4, &[]),
            frame(1, 0xc, &[]),
            frame(1, 0xc, &[200, 0x41]),
            frame(1, 0x24, &[0]),
        ];
        for case in cases {
            let sent = stream(&[case, frame(6, 0, &[1; 8])]);
            for cut in [0, 5, 24, 30, 33, 40] {
                assert_eq!(passed(&sent, &[cut.min(sent.len())]), sent);
            }
        }
        let cut = stream(&[frame(1, 4, &block(&raw(b"/")))[..12].to_vec()]);
        assert_eq!(passed(&cut, &[30]), cut);
        let other = b"GET /health HTTP/1.1\r\n\r\n\x00\x00\x00\x01\x04".to_vec();
        assert_eq!(passed(&other, &[7]), other);
        assert_eq!(passed(b"PRI * HTTP/1.1", &[2]), b"PRI * HTTP/1.1");
    }

    #[test]
    fn large_requests_are_read_at_once() {
        let mut frames = Frames::new(Pace::new(Arc::default(), || ()));
        let few = frames.bytes();
        let mut sent = stream(&[frame(0, 1, &[7; 10_000])[..20].to_vec()]);
        frames.pass(&mut sent);
        assert_eq!(frames.bytes(), few + 10_000 - 11);
        let mut frames = Frames::new(Pace::new(Arc::default(), || ()));
        frames.pass(&mut b"POST /v3/kv/put HTTP/1.1\r\n".to_vec());
        assert_eq!(frames.bytes(), usize::MAX);
    }

    #[test]
    fn an_authority_spelled_with_its_name_is_replaced() {
        let named = |value: &[u8]| [&b"\x10\x0a:authority"[..], value].concat();
        let sent = stream(&[frame(1, 5, &named(&raw(b"a b")))]);
        assert_eq!(passed(&sent, &[]), stream(&[frame(1, 5, &named(&NAME))]));
    }
}
