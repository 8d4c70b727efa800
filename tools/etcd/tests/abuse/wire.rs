//! HTTP/2 frame by frame, as nobody's library would send it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use prost::Message;

use crate::server::Running;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A text as HPACK spells it: the length, then the text.
pub(crate) fn text(text: &[u8]) -> Vec<u8> {
    let mut spelled = Vec::new();
    if text.len() < 127 {
        spelled.push(u8::try_from(text.len()).unwrap());
    } else {
        spelled.push(127);
        let mut rest = text.len() - 127;
        while rest >= 128 {
            spelled.push(u8::try_from(rest % 128).unwrap() | 128);
            rest /= 128;
        }
        spelled.push(u8::try_from(rest).unwrap());
    }
    spelled.extend_from_slice(text);
    spelled
}

/// The headers of a call, by a way that leaves no entries in the table.
pub(crate) fn call(path: &str) -> Vec<u8> {
    [
        &[0x83, 0x86, 0x04][..],
        &text(path.as_bytes()),
        &[0x01],
        &text(b"localhost"),
        &[0x0f, 0x10],
        &text(b"application/grpc"),
        &[0x00],
        &text(b"te"),
        &text(b"trailers"),
    ]
    .concat()
}

/// A message in gRPC's frame.
pub(crate) fn message(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// A connection that has said hello.
pub(crate) fn connect(to: &Running) -> TcpStream {
    let mut stream = raw(to);
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
    stream
}

/// One that has said nothing.
pub(crate) fn raw(to: &Running) -> TcpStream {
    let stream = TcpStream::connect(to.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Writes on and on; whether the server has taken it all. It may well end the connection.
pub(crate) fn flood(stream: &mut TcpStream, pieces: impl Iterator<Item = Vec<u8>>) -> bool {
    let mut reader = stream.try_clone().unwrap();
    // Who floods and does not read: another matter, and the test would wait for itself.
    let drain = std::thread::spawn(move || {
        let mut piece = [0; 16_384];
        while reader.read(&mut piece).is_ok_and(|length| length > 0) {}
    });
    let mut whole = true;
    let mut buffer = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(&piece);
        if buffer.len() >= 1 << 16 {
            whole = stream.write_all(&buffer).is_ok();
            buffer.clear();
        }
        if !whole {
            break;
        }
    }
    whole = whole && stream.write_all(&buffer).is_ok();
    let _ = stream.shutdown(std::net::Shutdown::Both);
    drain.join().unwrap();
    whole
}

/// Asks for a range, and waits for the first bytes of the answer, never to read on.
pub(crate) fn ask_and_leave(to: &Running, request: &impl Message) -> TcpStream {
    let mut stream = connect(to);
    let call = frame(HEADERS, END_HEADERS, 1, &call("/etcdserverpb.KV/Range"));
    let asked = frame(DATA, END_STREAM, 1, &message(&request.encode_to_vec()));
    stream.write_all(&[call, asked].concat()).unwrap();
    let mut head = [0; 64];
    stream.read_exact(&mut head).unwrap();
    stream
}
