//! A client's side of gRPC, as little of it as a load needs: so that what is measured is the servers.
//!
//! A client that does everything takes as much processor time for a call as the faster server does, on a machine that
//! both share. This one sends headers that are made once, reads no headers at all, and writes all that it has to ask on
//! a connection at once. An answer without a message is an error.

use std::collections::HashMap;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// Of HEADERS and DATA; of SETTINGS and PING it is ACK.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

const FRAME_HEAD: usize = 9;
const INITIAL_WINDOW_SIZE: u16 = 4;
const WINDOW_MAX: u32 = (1 << 31) - 1;

/// What a connection may send before it is told that it was taken. What is asked at a time is far below the 64 KiB that
/// the servers allow, so that is not counted.
const RENEW: u32 = 1 << 29;

/// One connection.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    authority: String,
    out: BytesMut,
    read: BytesMut,
    next_stream: u32,
    /// The messages of answers that have not ended, with their heads.
    open: HashMap<u32, BytesMut>,
    taken: u32,
}

fn frame(out: &mut BytesMut, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.put_uint(payload.len() as u64, 3);
    out.put_u8(kind);
    out.put_u8(flags);
    out.put_u32(stream);
    out.put_slice(payload);
}

/// A string of HPACK, not compressed.
fn string(block: &mut BytesMut, text: &str) {
    block.put_u8(u8::try_from(text.len()).expect("a short string"));
    block.put_slice(text.as_bytes());
}

impl Wire {
    pub(crate) async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("an option of sockets");
        let mut out = BytesMut::from(PREFACE);
        let mut settings = BytesMut::new();
        settings.put_u16(INITIAL_WINDOW_SIZE);
        settings.put_u32(WINDOW_MAX);
        frame(&mut out, SETTINGS, 0, 0, &settings);
        frame(&mut out, WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
        Self {
            stream,
            authority: address.to_owned(),
            out,
            read: BytesMut::with_capacity(64 << 10),
            next_stream: 1,
            open: HashMap::new(),
            taken: 0,
        }
    }

    /// Puts a call in line, and answers its number. Sent by [`Wire::flush`].
    pub(crate) fn ask(&mut self, path: &str, message: &impl Message) -> u32 {
        let mut block = BytesMut::new();
        // Of the static table: POST, http.
        block.put_slice(&[0x83, 0x86]);
        // Not indexed, with the names of the static table: :path, :authority, content-type; and one that is not in it.
        block.put_u8(0x04);
        string(&mut block, path);
        block.put_u8(0x01);
        string(&mut block, &self.authority);
        block.put_slice(&[0x0f, 0x10]);
        string(&mut block, "application/grpc");
        block.put_u8(0x00);
        string(&mut block, "te");
        string(&mut block, "trailers");
        let mut data = BytesMut::new();
        data.put_u8(0);
        data.put_u32(u32::try_from(message.encoded_len()).expect("a small message"));
        message.encode(&mut data).expect("there is room");
        let stream = self.next_stream;
        self.next_stream += 2;
        frame(&mut self.out, HEADERS, END_HEADERS, stream, &block);
        frame(&mut self.out, DATA, END_STREAM, stream, &data);
        stream
    }

    pub(crate) async fn flush(&mut self) {
        if !self.out.is_empty() {
            self.stream.write_all(&self.out).await.expect("the server reads");
            self.out.clear();
        }
    }

    /// Waits until there are answers, and adds their numbers and messages.
    pub(crate) async fn answers(&mut self, done: &mut Vec<(u32, Bytes)>) {
        let before = done.len();
        while done.len() == before {
            let count = self.stream.read_buf(&mut self.read).await.expect("the server answers");
            assert_ne!(count, 0, "the server stays");
            while let Some((kind, flags, stream, payload)) = self.next_frame() {
                self.take(kind, flags, stream, payload, done);
            }
            // Its PINGs and SETTINGS are answered even if nothing is asked.
            self.flush().await;
        }
    }

    fn next_frame(&mut self) -> Option<(u8, u8, u32, BytesMut)> {
        let length = self.read.get(..3)?;
        let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        if self.read.len() < FRAME_HEAD + length {
            return None;
        }
        self.read.advance(3);
        let (kind, flags, stream) = (self.read.get_u8(), self.read.get_u8(), self.read.get_u32());
        Some((kind, flags, stream, self.read.split_to(length)))
    }

    fn take(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: BytesMut,
        done: &mut Vec<(u32, Bytes)>,
    ) {
        match kind {
            DATA => {
                assert_eq!(flags & PADDED, 0, "no padding");
                self.taken += u32::try_from(payload.len()).expect("a small frame");
                match self.open.entry(stream) {
                    std::collections::hash_map::Entry::Occupied(mut held) => {
                        held.get_mut().unsplit(payload);
                    }
                    std::collections::hash_map::Entry::Vacant(free) => {
                        free.insert(payload);
                    }
                }
                if self.taken > RENEW {
                    frame(&mut self.out, WINDOW_UPDATE, 0, 0, &self.taken.to_be_bytes());
                    self.taken = 0;
                }
            }
            HEADERS if flags & END_STREAM != 0 => {
                let mut message = self.open.remove(&stream).expect("an answer that is no error");
                assert_eq!(message.get_u8(), 0, "not compressed");
                assert_eq!(message.get_u32() as usize, message.len(), "one message");
                done.push((stream, message.freeze()));
            }
            SETTINGS | PING if flags & END_STREAM == 0 => {
                let payload = if kind == PING { &payload[..] } else { &[] };
                frame(&mut self.out, kind, END_STREAM, 0, payload);
            }
            RST_STREAM | GOAWAY => panic!("the server ends it: frame {kind}, {payload:?}"),
            _ => {}
        }
    }
}
