//! TLS: certificates of both sides, and files that change.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_etcd::config::Config;
use annals_etcd::tls::Tls;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::common::{Answer, Running, request};

/// Who signs, and where the files are.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let this = Self { issuer, directory: tempfile::tempdir().unwrap() };
        fs::write(this.path("ca.pem"), this.issuer.pem()).unwrap();
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a certificate for this machine, with such a common name.
    fn sign(&self, file: &str, name: &str) {
        let mut params =
            CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path(&format!("{file}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).unwrap();
    }

    fn flags(&self) -> Vec<String> {
        let path = |name: &str| self.path(name).display().to_string();
        vec![
            "--listen-client-urls=https://127.0.0.1:0".to_owned(),
            format!("--cert-file={}", path("server.pem")),
            format!("--key-file={}", path("server.key")),
        ]
    }

    fn client(&self, shown: Option<&str>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = builder.with_root_certificates(roots);
        let Some(shown) = shown else { return builder.with_no_client_auth() };
        let (chain, key) =
            files(&self.path(&format!("{shown}.pem")), &self.path(&format!("{shown}.key")));
        builder.with_client_auth_cert(chain, key).unwrap()
    }
}

fn files(certificate: &Path, key: &Path) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
    (chain, PrivateKeyDer::from_pem_file(key).unwrap())
}

/// Asks for health. Answers with the certificate that the server showed.
fn ask(to: SocketAddr, config: ClientConfig) -> std::io::Result<(Answer, Vec<u8>)> {
    use std::io::Write as _;
    let name = ServerName::try_from("localhost").unwrap();
    let connection =
        ClientConnection::new(Arc::new(config), name).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, std::net::TcpStream::connect(to)?);
    stream.write_all(&request("GET /health", &[], ""))?;
    let answer = Answer::read(&mut stream)?;
    let shown =
        stream.conn.peer_certificates().and_then(|chain| chain.first()).map(|leaf| leaf.to_vec());
    Ok((answer, shown.unwrap_or_default()))
}

fn start(flags: &[String]) -> Running {
    Running::start(&flags.iter().map(String::as_str).collect::<Vec<_>>())
}

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
    let mut flags = authority.flags();
    flags.push("--client-cert-auth".to_owned());
    flags.push(format!("--trusted-ca-file={}", authority.path("ca.pem").display()));
    let ours = start(&flags);
    assert_eq!(ask(ours.address(), authority.client(Some("client"))).unwrap().0.status, 200);
    assert!(ask(ours.address(), authority.client(None)).is_err());
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
    let mut roots = RootCertStore::empty();
    roots.add(authority.issuer.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let old = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap();
    let old = old.with_root_certificates(roots).with_no_client_auth();
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
