//! `--client-crl-file`: clients whose certificates are revoked.
//!
//! What differs from etcd (`client/pkg/transport/listener_tls.go`):
//!
//! - etcd reads the list at each handshake and refuses everybody while it is missing or broken. Here a list that cannot
//!   be read ends the start, and one that breaks later is told in the log, and the one before stays in use.
//! - etcd compares serial numbers alone, whoever signed the list. Here a list counts for those whom the same authority
//!   has signed, and only if its signature is right: one of another authority revokes nobody, and one that bears the
//!   authority's name, but not its signature, lets nobody in.
//! - Neither asks until when a list is good: an expired one still revokes.
//! - etcd 3.6 takes a list in DER, older ones also in PEM. Here both are taken, and several lists in one file of PEM.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use annals_etcd::config::Config;
use annals_etcd::serve;
use rcgen::{CertifiedIssuer, KeyPair, SerialNumber};
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject as _;

use crate::certificates::{Authority, VERSIONS, ask, authority, start};
use crate::child::Spawned;

/// An authority, a server's certificate, and clients `one` (number 1) and `two` (number 2).
fn signed() -> Authority {
    let authority = Authority::new();
    authority.sign("server", "server");
    for (number, name) in [(1_u64, "one"), (2, "two")] {
        authority.sign_as(name, name, |params| {
            params.serial_number = Some(SerialNumber::from(number));
        });
    }
    authority
}

fn flags(authority: &Authority) -> Vec<String> {
    let mut flags = authority.mutual();
    flags.push(format!("--client-crl-file={}", authority.path("revoked").display()));
    flags
}

/// Which of the clients are let in, whatever version of TLS they speak.
fn let_in(authority: &Authority, to: SocketAddr, clients: [&str; 2]) -> [bool; 2] {
    clients.map(|client| {
        let asked = VERSIONS.map(|version| {
            let answer = ask(to, authority.client_of(Some(client), &[version]));
            answer.is_ok_and(|(answer, _)| answer.status == 200)
        });
        assert_eq!(asked[0], asked[1], "{client}");
        asked[0]
    })
}

const CLIENTS: [&str; 2] = ["one", "two"];

#[test]
fn who_is_in_the_list_is_refused() {
    let authority = signed();
    let pem = authority.revoke(&[1, 77], 3000);
    let der = CertificateRevocationListDer::from_pem_slice(pem.as_bytes()).unwrap();
    let expired = authority.revoke(&[1], 2021);
    for list in [pem.as_bytes(), &der[..], expired.as_bytes()] {
        fs::write(authority.path("revoked"), list).unwrap();
        let ours = start(&flags(&authority));
        assert_eq!(let_in(&authority, ours.address(), CLIENTS), [false, true]);
    }
}

#[test]
fn a_list_is_renewed_while_the_server_runs() {
    let authority = signed();
    let list = authority.path("revoked");
    let write = |numbers: &[u64]| fs::write(&list, authority.revoke(numbers, 3000)).unwrap();
    write(&[]);
    let directory = tempfile::tempdir().unwrap();
    let server = Spawned::start(directory.path(), &flags(&authority));
    let who = || let_in(&authority, server.address, CLIENTS);
    assert_eq!(who(), [true, true]);
    // A session that was begun before does not let anybody in afterwards.
    let kept = authority.client(Some("one"));
    assert!(ask(server.address, kept.clone()).is_ok());
    write(&[1]);
    assert_eq!(who(), [false, true]);
    assert!(ask(server.address, kept).is_err());
    server.wait_for("read changed TLS files");
    // By rename.
    fs::write(authority.path("next"), authority.revoke(&[2], 3000)).unwrap();
    fs::rename(authority.path("next"), &list).unwrap();
    assert_eq!(who(), [true, false]);
    server.wait_for("read changed TLS files");
    // Lists that are none, or gone: nobody is let in again by that.
    let good = fs::read(&list).unwrap();
    for broken in [&b"nothing"[..], b"", &good[..good.len() / 2]] {
        fs::write(&list, broken).unwrap();
        assert_eq!(who(), [true, false]);
        let line = server.wait_for("cannot use changed TLS files; those before stay in use");
        assert!(line["error"].to_string().contains("revoked"), "{line}");
    }
    fs::remove_file(&list).unwrap();
    assert_eq!(who(), [true, false]);
    server.wait_for("cannot use changed TLS files; those before stay in use");
    write(&[1, 2]);
    assert_eq!(who(), [false, false]);
    server.wait_for("read changed TLS files");
}

#[test]
fn a_list_of_another_authority_revokes_nobody() {
    let authority = signed();
    let list = authority.path("revoked");
    let other = Authority::named("other").revoke(&[1], 3000);
    fs::write(&list, &other).unwrap();
    let ours = start(&flags(&authority));
    assert_eq!(let_in(&authority, ours.address(), CLIENTS), [true, true]);
    // Both lists in one file.
    fs::write(&list, other + &authority.revoke(&[2], 3000)).unwrap();
    assert_eq!(let_in(&authority, ours.address(), CLIENTS), [true, false]);
    // One that bears the same name.
    fs::write(&list, Authority::new().revoke(&[1], 3000)).unwrap();
    assert_eq!(let_in(&authority, ours.address(), CLIENTS), [false, false]);
}

/// Writes a client's certificate that an authority below this one has signed, with that authority's behind it.
fn sign_below(authority_above: &Authority, file: &str, number: u64) {
    let mut params = authority(&format!("below {number}"));
    params.serial_number = Some(SerialNumber::from(number));
    let key = KeyPair::generate().unwrap();
    let below = CertifiedIssuer::signed_by(params, key, &authority_above.issuer).unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = params.signed_by(&key, &below).unwrap();
    let path = |kind: &str| authority_above.path(&format!("{file}.{kind}"));
    fs::write(path("pem"), leaf.pem() + &below.pem()).unwrap();
    fs::write(path("key"), key.serialize_pem()).unwrap();
}

#[test]
fn an_authority_in_between_can_be_revoked() {
    let authority = signed();
    sign_below(&authority, "by-ten", 10);
    sign_below(&authority, "by-eleven", 11);
    fs::write(authority.path("revoked"), authority.revoke(&[10], 3000)).unwrap();
    let ours = start(&flags(&authority));
    assert_eq!(let_in(&authority, ours.address(), ["by-ten", "by-eleven"]), [false, true]);
}

#[test]
fn a_list_that_cannot_be_read_ends_the_start() {
    let authority = signed();
    let list = authority.path("revoked");
    let refused = |list: &Path| {
        let flags = flags(&authority);
        let config = Config::read(&flags, &[]).unwrap();
        let told = serve::Server::bind(&config).unwrap_err();
        assert!(told.contains(&list.display().to_string()), "{told}");
    };
    refused(&list);
    for broken in [&b""[..], b"nothing", authority.issuer.pem().as_bytes()] {
        fs::write(&list, broken).unwrap();
        refused(&list);
    }
    fs::remove_file(&list).unwrap();
    fs::create_dir(&list).unwrap();
    refused(&list);
}
