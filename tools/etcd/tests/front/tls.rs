//! TLS: certificates of both sides, and files that change.

use std::fs;
use std::sync::Arc;

use annals_etcd::config::Config;
use annals_etcd::tls::Tls;
use rustls::pki_types::ServerName;

use crate::certificates::{Authority, VERSIONS, ask, ask_slowly, start};

#[test]
fn certificates_are_read_again_when_they_change() {
    let authority = Authority::new();
    authority.sign("server", "one");
    let ours = start(&authority.flags());
    let (answer, first) = ask(ours.address(), authority.client(None)).unwrap();
    assert_eq!(answer.status, 200);
    // Half of a change: those before stay in use.
    fs::write(authority.path("server.pem"), "nothing").unwrap();
    assert_eq!(ask(ours.address(), authority.client(None)).unwrap().1, first);
    authority.sign("server", "another");
    let (answer, second) = ask(ours.address(), authority.client(None)).unwrap();
    assert_eq!(answer.status, 200);
    assert_ne!(first, second);
    // Who does not trust the authority, or speaks without TLS, gets nothing.
    assert!(ask(ours.address(), Authority::new().client(None)).is_err());
    assert!(
        crate::common::http_for(
            ours.address(),
            "GET /health",
            &[],
            "",
            std::time::Duration::from_secs(5)
        )
        .is_err()
    );
}

#[test]
fn clients_have_to_show_a_certificate_of_the_authority() {
    let authority = Authority::new();
    authority.sign("server", "server");
    authority.sign("client", "ada");
    let ours = start(&authority.mutual());
    assert_eq!(ask(ours.address(), authority.client(Some("client"))).unwrap().0.status, 200);
    // Who has none learns why it is sent away, though it has asked for something already.
    for version in VERSIONS {
        let anonymous = authority.client_of(None, &[version]);
        let told = ask_slowly(ours.address(), anonymous).unwrap_err().to_string();
        assert!(told.contains("alert"), "{version:?}: {told}");
    }
    // One that another authority has signed.
    let stranger = Authority::new();
    stranger.sign("client", "eve");
    fs::copy(stranger.path("client.pem"), authority.path("eve.pem")).unwrap();
    fs::copy(stranger.path("client.key"), authority.path("eve.key")).unwrap();
    assert!(ask(ours.address(), authority.client(Some("eve"))).is_err());
    // Until that authority is trusted as well.
    let both = authority.issuer.pem() + &stranger.issuer.pem();
    fs::write(authority.path("ca.pem"), both).unwrap();
    assert_eq!(ask(ours.address(), authority.client(Some("eve"))).unwrap().0.status, 200);
}

#[test]
fn hosts_of_clients_can_be_named() {
    let authority = Authority::new();
    authority.sign("server", "server");
    let mut flags = authority.flags();
    flags.push(format!("--trusted-ca-file={}", authority.path("ca.pem").display()));
    let known = start(
        &[&flags[..], &["--client-cert-allowed-hostname=no.such,localhost".to_owned()]].concat(),
    );
    assert_eq!(ask(known.address(), authority.client(Some("server"))).unwrap().0.status, 200);
    let other =
        start(&[&flags[..], &["--client-cert-allowed-hostname=no.such".to_owned()]].concat());
    assert!(ask(other.address(), authority.client(Some("server"))).is_err());
}

#[test]
fn versions_can_be_chosen() {
    let authority = Authority::new();
    authority.sign("server", "server");
    let ours = start(&[&authority.flags()[..], &["--tls-min-version=TLS1.3".to_owned()]].concat());
    let old = authority.client_of(None, &[&rustls::version::TLS12]);
    assert!(ask(ours.address(), old).is_err());
    assert!(ask(ours.address(), authority.client(None)).is_ok());
}

/// As in etcd: a certificate that need not be shown says nothing about who asks.
#[test]
fn a_name_counts_only_where_certificates_are_asked_for() {
    let authority = Authority::new();
    authority.sign("server", "server");
    authority.sign("client", "ada");
    let trusted = format!("--trusted-ca-file={}", authority.path("ca.pem").display());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (asked, expected) in [(true, Some("ada")), (false, None)] {
        let mut flags = authority.flags();
        flags.extend([trusted.clone(), format!("--client-cert-auth={asked}")]);
        let config = Config::read(&flags, &[]).unwrap();
        let tls = Tls::of(&config).unwrap().unwrap();
        let connector =
            tokio_rustls::TlsConnector::from(Arc::new(authority.client(Some("client"))));
        let accepted = runtime.block_on(async {
            let (near, far) = tokio::io::duplex(1 << 16);
            let name = ServerName::try_from("localhost").unwrap();
            let (accepted, connected) =
                tokio::join!(tls.accept(near), connector.connect(name, far));
            connected.unwrap();
            accepted.unwrap()
        });
        assert_eq!(accepted.common_name.as_ref().map(|name| name.0.as_str()), expected);
    }
}
