//! JSON as the gateway gives it, messages in a stream, and gRPC's frames around messages.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::StatusCode;
use prost::Message as _;
use prost_reflect::{DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::{Map, Value};
use tonic::{Code, Status};

/// Writes a message as JSON, as etcd does: names as in the protocol, no defaults, long numbers as text.
pub(crate) fn write(message: &DynamicMessage, into: &mut Vec<u8>) -> Result<(), Status> {
    let options = SerializeOptions::new().use_proto_field_name(true);
    let mut serializer = serde_json::Serializer::new(into);
    message
        .serialize_with_options(&mut serializer, &options)
        .map_err(|error| Status::internal(error.to_string()))
}

/// Puts gRPC's frame around a message.
pub(crate) fn frame(message: &DynamicMessage) -> Bytes {
    let length = message.encoded_len();
    let mut framed = BytesMut::with_capacity(5 + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    framed.put_slice(&message.encode_to_vec());
    framed.freeze()
}

/// Takes the next whole message out of frames, if there is one.
pub(crate) fn unframe(
    kind: &MessageDescriptor,
    frames: &mut BytesMut,
) -> Result<Option<DynamicMessage>, Status> {
    let Some(head) = frames.first_chunk::<5>() else { return Ok(None) };
    let [packed, length @ ..] = *head;
    if packed != 0 {
        return Err(Status::internal("a compressed message"));
    }
    let length = usize::try_from(u32::from_be_bytes(length))
        .map_err(|_| Status::internal("a message too long"))?;
    if frames.len() - 5 < length {
        return Ok(None);
    }
    frames.advance(5);
    let message = frames.split_to(length).freeze();
    let message = DynamicMessage::decode(kind.clone(), message);
    message.map(Some).map_err(|error| Status::internal(error.to_string()))
}

/// The HTTP status of a code, by the mapping of grpc-gateway.
pub(crate) fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::Cancelled => StatusCode::from_u16(499).unwrap_or(StatusCode::REQUEST_TIMEOUT),
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
            StatusCode::BAD_REQUEST
        }
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// An error as JSON. `error` was dropped by newer etcds, and clients of older ones read it.
pub(crate) fn error(status: &Status) -> Map<String, Value> {
    let mut error = Map::new();
    error.insert("error".to_owned(), status.message().into());
    error.insert("code".to_owned(), (status.code() as i32).into());
    error.insert("message".to_owned(), status.message().into());
    error
}

/// An error within a stream, as JSON: the fields of older and of newer etcds.
pub(crate) fn stream_error(status: &Status) -> Value {
    let http = http_status(status.code());
    let mut error = Map::new();
    error.insert("grpc_code".to_owned(), (status.code() as i32).into());
    error.insert("http_code".to_owned(), http.as_u16().into());
    error.insert("code".to_owned(), (status.code() as i32).into());
    error.insert("message".to_owned(), status.message().into());
    error.insert("http_status".to_owned(), http.canonical_reason().unwrap_or_default().into());
    Value::Object(Map::from_iter([("error".to_owned(), Value::Object(error))]))
}

/// Finds JSON objects in a text that comes in pieces, without a second look at any byte.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    text: BytesMut,
    seen: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Splitter {
    /// Adds a piece.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.text.extend_from_slice(piece);
    }

    /// How many bytes wait for the end of their object.
    pub(crate) fn waiting(&self) -> usize {
        self.text.len()
    }

    /// The rest, when there is no more: blank unless an object was cut off.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.text.split().freeze()
    }

    /// The next whole object, with what was before it.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        while let Some(byte) = self.text.get(self.seen) {
            self.seen += 1;
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        let whole = self.text.split_to(std::mem::take(&mut self.seen));
                        return Some(whole.freeze());
                    }
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use bytes::{Bytes, BytesMut};
    use prost_reflect::MessageDescriptor;

    use super::{Splitter, frame, unframe, write};
    use crate::gateway::read::read;
    use crate::serve::calls::POOL;

    fn kind(name: &str) -> MessageDescriptor {
        POOL.get_message_by_name(&format!("etcdserverpb.{name}")).unwrap()
    }

    fn again(name: &str, text: &str) -> Result<String, String> {
        let message =
            read(&kind(name), text.as_bytes()).map_err(|status| status.message().to_owned())?;
        let mut frames = BytesMut::from(&*frame(&message));
        let message = unframe(&kind(name), &mut frames).unwrap().unwrap();
        assert!(frames.is_empty());
        let mut text = Vec::new();
        write(&message, &mut text).unwrap();
        Ok(String::from_utf8(text).unwrap())
    }

    #[test]
    fn names_numbers_bytes_and_enums() {
        let cases = [
            (r#"{"key":"Zm9v","range_end":"AA=="}"#, r#"{"key":"Zm9v","range_end":"AA=="}"#),
            (r#"{"rangeEnd":"AA==","nope":{"a":[1]}}"#, r#"{"range_end":"AA=="}"#),
            (r#"{"limit":5,"revision":"-1"}"#, r#"{"limit":"5","revision":"-1"}"#),
            (r#"{"limit":1e2,"revision":"1.0"}"#, r#"{"limit":"100","revision":"1"}"#),
            (
                r#"{"limit":null,"sort_order":"NOPE","sort_target":2.0}"#,
                r#"{"sort_target":"CREATE"}"#,
            ),
            (
                r#"{"sort_order":"DESCEND","sort_target":3}"#,
                r#"{"sort_order":"DESCEND","sort_target":"MOD"}"#,
            ),
            (r#"{"keys_only":false,"limit":"0"}"#, "{}"),
            (r#"{"key":null} {"key":"x"}"#, "{}"),
            ("null", "{}"),
            ("  ", "{}"),
            ("", "{}"),
        ];
        for (text, expected) in cases {
            assert_eq!(again("RangeRequest", text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(
            again("LeaseGrantRequest", r#"{"TTL":"7","ID":1}"#).as_deref(),
            Ok(r#"{"TTL":"7","ID":"1"}"#)
        );
        let txn = r#"{"compare":[{"target":"VALUE","key":"YQ==","value":"Yg=="}],"success":[{"request_put":{"key":"YQ=="}}]}"#;
        assert_eq!(again("TxnRequest", txn).as_deref(), Ok(txn));
        for bad in [
            "[]",
            "5",
            r#"{"key":5}"#,
            r#"{"key":"!!"}"#,
            r#"{"limit":1.5}"#,
            r#"{"limit":" 5"}"#,
            r#"{"limit":1e19}"#,
            r#"{"limit":"9223372036854775808"}"#,
            r#"{"keys_only":1}"#,
            r#"{"sort_order":true}"#,
        ] {
            assert!(again("RangeRequest", bad).is_err(), "{bad}");
        }
        assert_eq!(again("RangeRequest", r#"{"key":"Zm9"#), Err("unexpected EOF".to_owned()));
        let deep = r#"{"success":[{"request_txn":"#.repeat(3000);
        assert!(again("TxnRequest", &deep).is_err());
    }

    #[test]
    fn objects_in_pieces() {
        let text = br#" {"a":"}\"{"} {"b":{"c":[]}}{} {"d":"#;
        for size in [1, 3, 7, 100] {
            let mut splitter = Splitter::default();
            let mut found: Vec<Bytes> = Vec::new();
            for piece in text.chunks(size) {
                splitter.push(piece);
                found.extend(std::iter::from_fn(|| splitter.next()));
            }
            let expected: [&[u8]; 3] = [br#" {"a":"}\"{"}"#, br#" {"b":{"c":[]}}"#, b"{}"];
            assert_eq!(found, expected, "{size}");
            assert_eq!(&splitter.rest()[..], br#" {"d":"#);
        }
    }
}
