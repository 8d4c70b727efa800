//! Tokens from which a list goes on: `k8s.io/apiserver/pkg/storage/continue.go`.
//!
//! A token is the JSON `{"v":"meta.k8s.io/v1","rv":7,"start":"default/web\0"}` in the base64 of URLs. Those made here
//! also tell how many objects there still are, so that these are counted once for a list, and not with every
//! page; Kubernetes passes over what it does not know.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};

const VERSION: &str = "meta.k8s.io/v1";
const INVALID: &str = "continue key is not valid";

/// As Go reads it: without padding, and whatever the bits behind the last byte are.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// From where a list goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The revision of the list; `None` for the newest, with which the list is inconsistent.
    pub(super) revision: Option<u64>,
    /// The first key that may be in it.
    pub(super) start: String,
    /// How many keys there are from there on.
    pub(super) remaining: Option<u64>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Json {
    v: String,
    rv: i64,
    start: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
}

impl Token {
    /// As a client gets it; `None` where the key does not lie below the prefix.
    pub(super) fn encode(&self, prefix: &str) -> Option<String> {
        let start = self.start.strip_prefix(prefix).filter(|_| !prefix.is_empty())?;
        let rv = self.revision.map_or(Some(-1), |revision| i64::try_from(revision).ok())?;
        let json = Json { v: VERSION.into(), rv, start: start.into(), remaining: self.remaining };
        Some(BASE64.encode(serde_json::to_vec(&json).ok()?))
    }

    /// Of what a client gives; the error is what is to be told.
    pub(super) fn decode(token: &str, prefix: &str) -> Result<Self, String> {
        // Go passes over ends of lines.
        let token: String = token.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        let data = BASE64.decode(&token).map_err(|_| {
            let foreign = |byte: u8| !(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
            let place = token.bytes().position(foreign).unwrap_or(token.len().saturating_sub(1));
            format!("{INVALID}: illegal base64 data at input byte {place}")
        })?;
        let json: Json =
            serde_json::from_slice(&data).map_err(|bad| format!("{INVALID}: {bad}"))?;
        if json.v != VERSION {
            return Err(format!(
                "{INVALID}: server does not recognize this encoded version {}",
                json.v
            ));
        }
        if json.rv == 0 {
            return Err(format!(
                "{INVALID}: incorrect encoded start resourceVersion (version {VERSION})"
            ));
        }
        if json.start.is_empty() {
            return Err(format!("{INVALID}: encoded start key empty (version {VERSION})"));
        }
        let path = json.start.strip_prefix('/').unwrap_or(&json.start);
        // Nothing that leads elsewhere: the path has to be as Go's `path.Clean` would leave it.
        let leads = |part: &str| part.is_empty() || part == "." || part == "..";
        if !path.is_empty() && path.split('/').any(leads) {
            return Err(format!("{INVALID}: {}", json.start));
        }
        let revision = u64::try_from(json.rv).ok();
        let remaining = json.remaining.filter(|_| revision.is_some());
        Ok(Self { revision, start: format!("{prefix}{path}"), remaining })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(json: &str) -> String {
        BASE64.encode(json)
    }

    /// `TestDecodeContinue` and `Test_decodeContinue` of `k8s.io/apiserver/pkg/storage`.
    #[test]
    fn tokens_are_read() {
        let read = |json: &str| Token::decode(&token(json), "/test/");
        let good =
            |start: &str, revision| Ok(Token { revision, start: start.into(), remaining: None });
        let of = |start: &str| format!(r#"{{"v":"meta.k8s.io/v1","rv":1,"start":"{start}"}}"#);
        assert_eq!(read(&of("key")), good("/test/key", Some(1)));
        assert_eq!(read(&of("/key")), good("/test/key", Some(1)));
        assert_eq!(read(&of("a/b\\u0000")), good("/test/a/b\0", Some(1)));
        assert_eq!(read(&of("/")), good("/test/", Some(1)));
        assert_eq!(
            read(r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"k","remaining":3}"#),
            good("/test/k", None)
        );

        for bad in ["../key", "/../key", "/some/../key", "key/..", "key/.", "./key", "a//b", "a/"] {
            let told = read(&of(bad)).unwrap_err();
            assert_eq!(told, format!("continue key is not valid: {bad}"));
        }
        let table = [
            (
                r#"{"v":"meta.k8s.io/v1","rv":0,"start":"k"}"#,
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","start":"k"}"#,
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":1}"#,
                "encoded start key empty (version meta.k8s.io/v1)",
            ),
            (
                r#"{"v":"v2","rv":1,"start":"k"}"#,
                "server does not recognize this encoded version v2",
            ),
            ("{}", "server does not recognize this encoded version "),
        ];
        for (json, told) in table {
            assert_eq!(read(json).unwrap_err(), format!("continue key is not valid: {told}"));
        }
        assert!(read("[").unwrap_err().starts_with("continue key is not valid: "));
        assert!(read(r#"{"rv":"1"}"#).unwrap_err().starts_with("continue key is not valid: "));
        for (text, place) in [("*", 0), ("ab*d", 2), ("abcde", 4), ("ab==", 2)] {
            assert_eq!(
                Token::decode(text, "/test/").unwrap_err(),
                format!("continue key is not valid: illegal base64 data at input byte {place}")
            );
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for (revision, remaining) in [(Some(7), Some(3)), (Some(7), None), (None, None)] {
            let token = Token { revision, start: "/r/pods/a/b\0".into(), remaining };
            let text = token.encode("/r/pods/").unwrap();
            assert_eq!(Token::decode(&text, "/r/pods/"), Ok(token.clone()));
            let broken = format!("{}\r\n{}", &text[..5], &text[5..]);
            assert_eq!(Token::decode(&broken, "/r/pods/"), Ok(token));
        }
        let token = Token { revision: Some(7), start: "/r/pods/a\0".into(), remaining: None };
        let json = BASE64.decode(token.encode("/r/pods/").unwrap()).unwrap();
        assert_eq!(json, br#"{"v":"meta.k8s.io/v1","rv":7,"start":"a\u0000"}"#);
        assert_eq!(token.encode("/other/"), None);
    }
}
