//! gRPC over TLS: calls and streams, which clients are let in, certificates that change under open connections, and
//! peers that speak something else.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use annals_etcd::proto::authpb::{Permission, permission};
use annals_etcd::proto::etcdserverpb as pb;
use pb::auth_client::AuthClient;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::watch_client::WatchClient;
use pb::watch_request::RequestUnion;
use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
use rcgen::date_time_ymd;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind};
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::certificates::{Authority, VERSIONS, ask, channel, start};
use crate::child::{LONG, Spawned};
use crate::common::{Answer, http, request};

fn put(key: &str, value: &str) -> pb::PutRequest {
    pb::PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), ..<_>::default() }
}

async fn value(kv: &mut KvClient<Channel>, key: &str) -> Result<Option<Vec<u8>>, Status> {
    let asked = pb::RangeRequest { key: key.to_owned().into(), ..<_>::default() };
    let kvs = kv.range(asked).await?.into_inner().kvs;
    Ok(kvs.into_iter().next().map(|kv| kv.value.to_vec()))
}

/// A watch that has begun.
async fn watch(channel: &Channel, key: &str) -> Streaming<pb::WatchResponse> {
    let create = pb::WatchCreateRequest { key: key.to_owned().into(), ..<_>::default() };
    let create = pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let asked = tokio_stream::iter([create]).chain(tokio_stream::pending());
    let mut told = WatchClient::new(channel.clone()).watch(asked).await.unwrap().into_inner();
    assert!(told.message().await.unwrap().unwrap().created);
    told
}

async fn next_value(told: &mut Streaming<pb::WatchResponse>) -> Vec<u8> {
    let answer = tokio::time::timeout(LONG, told.message()).await.unwrap().unwrap().unwrap();
    answer.events[0].kv.as_ref().unwrap().value.to_vec()
}

/// Whether a client may put at all.
async fn is_served(to: SocketAddr, config: ClientConfig) -> bool {
    let Ok(channel) = channel(to, config).await else { return false };
    KvClient::new(channel).put(put("a", "b")).await.is_ok()
}

#[test]
fn calls_and_streams_over_both_versions() {
    let authority = Authority::new();
    authority.sign("server", "server");
    authority.sign("client", "ada");
    for (flags, shown) in [(authority.flags(), None), (authority.mutual(), Some("client"))] {
        let ours = start(&flags);
        for version in VERSIONS {
            let config = authority.client_of(shown, &[version]);
            ours.runtime.block_on(async {
                let channel = channel(ours.address(), config).await.unwrap();
                let mut kv = KvClient::new(channel.clone());
                let mut told = watch(&channel, "k").await;
                kv.put(put("k", "v")).await.unwrap();
                assert_eq!(value(&mut kv, "k").await.unwrap().unwrap(), b"v");
                assert_eq!(next_value(&mut told).await, b"v");
                // Many records of TLS each way.
                let large = "x".repeat(1 << 20);
                kv.put(put("k", &large)).await.unwrap();
                assert_eq!(value(&mut kv, "k").await.unwrap().unwrap(), large.as_bytes());
                assert_eq!(next_value(&mut told).await, large.as_bytes());
            });
        }
    }
}

#[test]
fn only_clients_with_a_good_certificate_are_served() {
    let authority = Authority::new();
    authority.sign("server", "server");
    authority.sign("client", "ada");
    authority.sign_as("both", "ada", |params| {
        params.extended_key_usages = vec![ServerAuth, ClientAuth];
    });
    authority.sign_as("only-server", "ada", |params| params.extended_key_usages = vec![ServerAuth]);
    authority.sign_as("expired", "ada", |params| params.not_after = date_time_ymd(2020, 1, 1));
    authority.sign_as("early", "ada", |params| params.not_before = date_time_ymd(4000, 1, 1));
    // An authority of the same name has another key.
    let stranger = Authority::new();
    stranger.sign("stranger", "ada");
    for kind in ["pem", "key"] {
        let file = format!("stranger.{kind}");
        fs::copy(stranger.path(&file), authority.path(&file)).unwrap();
    }
    let ours = start(&authority.mutual());
    let address = ours.address();
    ours.runtime.block_on(async {
        let config = authority.client(Some("client"));
        let mut open = KvClient::new(channel(address, config).await.unwrap());
        for version in VERSIONS {
            let config = |shown| authority.client_of(shown, &[version]);
            for good in ["client", "both"] {
                assert!(is_served(address, config(Some(good))).await, "{good}");
            }
            for bad in ["only-server", "expired", "early", "stranger"] {
                assert!(!is_served(address, config(Some(bad))).await, "{bad}");
            }
            assert!(!is_served(address, config(None)).await);
            // Those who are refused are nobody else's trouble.
            open.put(put("a", "b")).await.unwrap();
        }
    });
}

#[test]
fn only_clients_of_named_hosts_are_served() {
    let authority = Authority::new();
    authority.sign("server", "server");
    authority.sign("client", "ada");
    authority.sign_as("elsewhere", "ada", |params| {
        params.subject_alt_names =
            vec![rcgen::SanType::DnsName("elsewhere.example".try_into().unwrap())];
    });
    // The common name is no host's.
    authority.sign_as("nowhere", "localhost", |params| params.subject_alt_names.clear());
    let flags = [
        &authority.mutual()[..],
        &["--client-cert-allowed-hostname=localhost, b.example".to_owned()],
    ];
    let ours = start(&flags.concat());
    ours.runtime.block_on(async {
        for version in VERSIONS {
            let config = |shown| authority.client_of(Some(shown), &[version]);
            assert!(is_served(ours.address(), config("client")).await);
            assert!(!is_served(ours.address(), config("elsewhere")).await);
            assert!(!is_served(ours.address(), config("nowhere")).await);
        }
    });
}

/// Puts one file in the place of another, as those do who make certificates anew.
fn replace(authority: &Authority, from: &str, to: &str) {
    for kind in ["key", "pem"] {
        let (from, to) = (format!("{from}.{kind}"), format!("{to}.{kind}"));
        fs::rename(authority.path(&from), authority.path(&to)).unwrap();
    }
}

#[test]
fn certificates_change_under_open_connections() {
    let authority = Authority::new();
    authority.sign("server", "one");
    authority.sign("client", "ada");
    let directory = tempfile::tempdir().unwrap();
    let server = Spawned::start(directory.path(), &authority.mutual());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config = || authority.client(Some("client"));
    let shown = || ask(server.address, config()).unwrap().1;
    let (mut kv, mut told) = runtime.block_on(async {
        let channel = channel(server.address, config()).await.unwrap();
        (KvClient::new(channel.clone()), watch(&channel, "k").await)
    });
    let mut still_open = |value: &str| {
        runtime.block_on(async {
            kv.put(put("k", value)).await.unwrap();
            assert_eq!(next_value(&mut told).await, value.as_bytes());
        });
    };
    let first = shown();
    // By rename.
    authority.sign("next", "two");
    replace(&authority, "next", "server");
    let second = shown();
    assert_ne!(first, second);
    server.wait_for("read changed TLS files");
    still_open("renamed");
    // In place.
    authority.sign("server", "three");
    let third = shown();
    assert_ne!(second, third);
    server.wait_for("read changed TLS files");
    still_open("written");
    // No certificate any more, a key of another one, nothing at all: each is told, and the last good one stays.
    let good = fs::read(authority.path("server.pem")).unwrap();
    fs::write(authority.path("server.pem"), &good[..good.len() / 2]).unwrap();
    assert_eq!(shown(), third);
    let told_text = "cannot use changed TLS files; those before stay in use";
    let line = server.wait_for(told_text);
    assert!(line["error"].to_string().contains("server.pem"), "{line}");
    authority.sign("other", "four");
    fs::rename(authority.path("other.pem"), authority.path("server.pem")).unwrap();
    assert_eq!(shown(), third);
    server.wait_for(told_text);
    fs::remove_file(authority.path("server.key")).unwrap();
    assert_eq!(shown(), third);
    server.wait_for(told_text);
    still_open("broken");
    // The key that belongs to it makes it good.
    fs::rename(authority.path("other.key"), authority.path("server.key")).unwrap();
    let fourth = shown();
    assert_ne!(third, fourth);
    server.wait_for("read changed TLS files");
    still_open("whole");
}

/// What comes until the server ends the connection, which it does before any limit of time could be over.
fn until_end(to: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(sent).unwrap();
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return all,
            Ok(length) => all.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return all,
            Err(error) => panic!("the connection stays open: {error}, {all:?}"),
        }
    }
}

#[test]
fn who_speaks_something_else_is_sent_away_at_once() {
    let authority = Authority::new();
    authority.sign("server", "server");
    let mut flags = authority.flags();
    flags[0] += ",http://127.0.0.1:0";
    flags.push("--tls-handshake-timeout=10m".to_owned());
    let ours = start(&flags);
    let (secure, plain) = (ours.addresses[0], ours.addresses[1]);
    let mut open = ours
        .runtime
        .block_on(async { KvClient::new(channel(secure, authority.client(None)).await.unwrap()) });
    let hello = {
        let config = std::sync::Arc::new(authority.client(None));
        let name = ServerName::try_from("localhost").unwrap();
        let mut connection = ClientConnection::new(config, name).unwrap();
        let mut hello = Vec::new();
        connection.write_tls(&mut hello).unwrap();
        hello
    };
    let get = request("GET /health", &[], "");
    for text in [&get[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", &[0; 100]] {
        let answer = until_end(secure, text);
        // An alert of TLS at most.
        assert!(answer.is_empty() || answer[0] == 0x15, "{answer:?}");
    }
    let answer = until_end(plain, &hello);
    let text = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.is_empty() || text.starts_with("HTTP/1.1 400 "), "{text:?}");
    // Nobody else has noticed.
    ours.runtime.block_on(open.put(put("a", "b"))).unwrap();
    assert_eq!(ask(secure, authority.client(None)).unwrap().0.status, 200);
    assert_eq!(http(plain, "GET /health", &[], "").status, 200);
}

/// Users `root` and `ada`, who may read and write what begins with `ada/`; then only users are served.
async fn enable(channel: Channel) {
    let mut auth = AuthClient::new(channel);
    for user in ["root", "ada"] {
        let name = user.to_owned();
        let password = format!("{user}'s");
        auth.user_add(pb::AuthUserAddRequest { name, password, ..<_>::default() }).await.unwrap();
        auth.role_add(pb::AuthRoleAddRequest { name: user.to_owned() }).await.unwrap();
        let (user, role) = (user.to_owned(), user.to_owned());
        auth.user_grant_role(pb::AuthUserGrantRoleRequest { user, role }).await.unwrap();
    }
    let perm = Permission {
        perm_type: permission::Type::Readwrite.into(),
        key: "ada/".into(),
        range_end: "ada0".into(),
    };
    let granted = pb::AuthRoleGrantPermissionRequest { name: "ada".into(), perm: Some(perm) };
    auth.role_grant_permission(granted).await.unwrap();
    auth.auth_enable(pb::AuthEnableRequest {}).await.unwrap();
}

#[test]
fn a_common_name_is_a_user() {
    let authority = Authority::new();
    authority.sign("server", "server");
    for name in ["root", "ada", "eve"] {
        authority.sign(name, name);
    }
    authority.sign_as("nobody", "", |params| {
        params.distinguished_name = rcgen::DistinguishedName::new();
    });
    let mut flags = authority.mutual();
    flags[0] += ",http://127.0.0.1:0";
    let ours = start(&flags);
    let address = ours.address();
    ours.runtime.block_on(async {
        let client = async |name| channel(address, authority.client(Some(name))).await.unwrap();
        enable(client("root").await).await;
        let mut ada = KvClient::new(client("ada").await);
        ada.put(put("ada/k", "v")).await.unwrap();
        assert_eq!(value(&mut ada, "ada/k").await.unwrap().unwrap(), b"v");
        let refused = ada.put(put("k", "v")).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        KvClient::new(client("root").await).put(put("k", "v")).await.unwrap();
        // Who is no user may nothing, nor who has no name.
        for name in ["eve", "nobody"] {
            let mut kv = KvClient::new(client(name).await);
            assert!(kv.put(put("ada/k", "w")).await.is_err(), "{name}");
            assert!(value(&mut kv, "ada/k").await.is_err(), "{name}");
        }
        // Without TLS there is no certificate: a name is not kept from another connection.
        let plain = format!("http://{}", ours.addresses[1]);
        let mut kv = KvClient::connect(plain).await.unwrap();
        assert!(kv.put(put("ada/k", "w")).await.is_err());
        // A token comes before a name.
        let mut auth = AuthClient::new(client("ada").await);
        let (name, password) = ("root".to_owned(), "root's".to_owned());
        let asked = pb::AuthenticateRequest { name, password };
        let token = auth.authenticate(asked).await.unwrap().into_inner().token;
        let mut request = tonic::Request::new(put("k", "by root"));
        request.metadata_mut().insert("token", token.parse().unwrap());
        ada.put(request).await.unwrap();
        assert_eq!(value(&mut ada, "ada/k").await.unwrap().unwrap(), b"v");
        // The history has the names, in each way of writing: of a restricted user, too.
        let mut lease = LeaseClient::new(client("ada").await);
        lease.lease_grant(pb::LeaseGrantRequest { ttl: 60, id: 7 }).await.unwrap();
        let attached = pb::PutRequest { lease: 7, ignore_value: true, ..put("ada/k", "") };
        ada.put(attached).await.unwrap();
        lease.lease_revoke(pb::LeaseRevokeRequest { id: 7 }).await.unwrap();
        let delete = pb::DeleteRangeRequest {
            key: "ada/".into(),
            range_end: "ada0".into(),
            ..Default::default()
        };
        ada.put(put("ada/l", "v")).await.unwrap();
        ada.delete_range(delete).await.unwrap();
    });
    assert_eq!(ours.told(), ["ada", "root", "root", "ada", "ada", "ada", "ada"]);
    // The gateway says that it asks for no names. It has them of a session that goes on without a certificate, too.
    let config = std::sync::Arc::new(authority.client(Some("ada")));
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(std::sync::Arc::clone(&config), name).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, TcpStream::connect(address).unwrap());
        stream.write_all(&request("POST /v3/kv/range", &[], r#"{"key":"YWRhL2s="}"#)).unwrap();
        let answer = Answer::read(&mut stream).unwrap();
        assert_eq!(stream.conn.handshake_kind(), Some(kind));
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.body.starts_with("CommonName of client"), "{answer:?}");
    }
}
