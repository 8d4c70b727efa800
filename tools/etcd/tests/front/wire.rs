//! What is on the wire itself: the end of streams, and HTTP/2 as etcd's older clients speak it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::common::{Running, request};

fn connect(to: &Running) -> TcpStream {
    let stream = TcpStream::connect(to.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

#[test]
fn a_snapshot_has_an_end() {
    let ours = Running::start(&[]);
    let mut stream = connect(&ours);
    stream.write_all(&request("POST /v3/maintenance/snapshot", &[], "{}")).unwrap();
    let mut all = Vec::new();
    // An answer that does not end is a timeout here.
    stream.read_to_end(&mut all).unwrap();
    assert!(all.ends_with(b"\r\n0\r\n\r\n"), "{}", String::from_utf8_lossy(&all));
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// A call of Status with such an authority; the frames of its stream that come back.
fn status(authority: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let ours = Running::start(&[]);
    let mut stream = connect(&ours);
    let text = |text: &[u8]| [&[u8::try_from(text.len()).unwrap()][..], text].concat();
    let headers = [
        // `:method POST`, `:scheme http`, then `:path`, `:authority`, `content-type` and `te`.
        vec![0x83, 0x86, 0x44],
        text(b"/etcdserverpb.Maintenance/Status"),
        vec![0x41],
        text(authority),
        vec![0x5f],
        text(b"application/grpc"),
        vec![0x40],
        text(b"te"),
        text(b"trailers"),
    ];
    // The second call names the authority by its place in the table.
    let path = text(b"/etcdserverpb.Cluster/MemberList");
    let again = [&[0x83, 0x86, 0x04][..], &path, &[0xc0, 0xbf, 0xbe]].concat();
    let sent = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, &[]),
        frame(1, 4, 1, &headers.concat()),
        frame(0, 1, 1, &[0; 5]),
        frame(1, 4, 3, &again),
        frame(0, 1, 3, &[0; 5]),
    ];
    stream.write_all(&sent.concat()).unwrap();
    let mut frames = Vec::new();
    let mut ended = 0;
    while ended < 2 {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).unwrap();
        let (kind, flags) = (head[3], head[4]);
        if head[8] != 0 {
            frames.push((kind, payload));
            // The end of a stream, whether it is its own or forced.
            ended += usize::from(kind == 3 || (kind <= 1 && flags & 1 != 0));
        }
        if kind == 7 {
            break;
        }
    }
    frames
}

#[test]
fn clients_that_call_a_server_by_no_name_are_answered() {
    for authority in [
        &b"localhost:2379"[..],
        b"#initially=[http://127.0.0.1:2379]",
        b"http://127.0.0.1:2379",
        b"unix:///run/etcd.sock",
    ] {
        let frames = status(authority);
        let kinds: Vec<_> = frames.iter().map(|(kind, _)| *kind).collect();
        let data = frames.iter().filter(|(kind, _)| *kind == 0).count();
        assert!(!kinds.contains(&3), "{}: {kinds:?}", String::from_utf8_lossy(authority));
        assert!(data >= 2, "{kinds:?}");
    }
}
