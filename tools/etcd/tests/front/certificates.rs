//! Certificates for tests: who signs them, what is wrong with them, and clients that show them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use crate::common::{Answer, Running, request};

/// A version of TLS.
pub(crate) type Version = &'static SupportedProtocolVersion;

/// Both that there are.
pub(crate) const VERSIONS: [Version; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

/// Who signs, and where the files are.
pub(crate) struct Authority {
    pub(crate) issuer: CertifiedIssuer<'static, KeyPair>,
    directory: tempfile::TempDir,
}

/// What an authority says of itself.
pub(crate) fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("authority")
    }

    pub(crate) fn named(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(authority(name), key).unwrap();
        let this = Self { issuer, directory: tempfile::tempdir().unwrap() };
        fs::write(this.path("ca.pem"), this.issuer.pem()).unwrap();
        this
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a certificate for this machine, with such a common name.
    pub(crate) fn sign(&self, file: &str, name: &str) {
        self.sign_as(file, name, |_| {});
    }

    /// The same with something else in it.
    pub(crate) fn sign_as(
        &self,
        file: &str,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let mut params =
            CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path(&format!("{file}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).unwrap();
    }

    /// A list of revoked certificates by their numbers, good until such a year.
    pub(crate) fn revoke(&self, numbers: &[u64], until: i32) -> String {
        let revoked = numbers.iter().map(|number| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(until, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// Flags of a server with TLS.
    pub(crate) fn flags(&self) -> Vec<String> {
        let path = |name: &str| self.path(name).display().to_string();
        vec![
            "--listen-client-urls=https://127.0.0.1:0".to_owned(),
            format!("--cert-file={}", path("server.pem")),
            format!("--key-file={}", path("server.key")),
        ]
    }

    /// Flags of a server that asks clients for a certificate.
    pub(crate) fn mutual(&self) -> Vec<String> {
        let mut flags = self.flags();
        flags.push("--client-cert-auth".to_owned());
        flags.push(format!("--trusted-ca-file={}", self.path("ca.pem").display()));
        flags
    }

    /// A client that trusts this authority, and shows such a certificate.
    pub(crate) fn client(&self, shown: Option<&str>) -> ClientConfig {
        self.client_of(shown, &VERSIONS)
    }

    /// The same with such versions of TLS.
    pub(crate) fn client_of(&self, shown: Option<&str>, versions: &[Version]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let builder = builder.with_root_certificates(roots);
        let Some(shown) = shown else { return builder.with_no_client_auth() };
        let (chain, key) =
            files(&self.path(&format!("{shown}.pem")), &self.path(&format!("{shown}.key")));
        builder.with_client_auth_cert(chain, key).unwrap()
    }
}

fn files(certificate: &Path, key: &Path) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_file_iter(certificate).unwrap();
    (chain.collect::<Result<_, _>>().unwrap(), PrivateKeyDer::from_pem_file(key).unwrap())
}

/// Asks for health. Answers with the certificate that the server showed.
pub(crate) fn ask(to: SocketAddr, config: ClientConfig) -> std::io::Result<(Answer, Vec<u8>)> {
    ask_in(Duration::ZERO, to, config)
}

/// The same, by a client that takes the answer a while after it has come.
pub(crate) fn ask_slowly(
    to: SocketAddr,
    config: ClientConfig,
) -> std::io::Result<(Answer, Vec<u8>)> {
    ask_in(Duration::from_millis(200), to, config)
}

fn ask_in(
    time: Duration,
    to: SocketAddr,
    config: ClientConfig,
) -> std::io::Result<(Answer, Vec<u8>)> {
    use std::io::Write as _;
    let name = ServerName::try_from("localhost").unwrap();
    let connection =
        ClientConnection::new(Arc::new(config), name).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, std::net::TcpStream::connect(to)?);
    stream.write_all(&request("GET /health", &[], ""))?;
    std::thread::sleep(time);
    let answer = Answer::read(&mut stream)?;
    let shown =
        stream.conn.peer_certificates().and_then(|chain| chain.first()).map(|leaf| leaf.to_vec());
    Ok((answer, shown.unwrap_or_default()))
}

pub(crate) fn start(flags: &[String]) -> Running {
    Running::start(&flags.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A connection of gRPC over TLS. With TLS 1.3 a client hears only later that its certificate is refused.
pub(crate) async fn channel(
    to: SocketAddr,
    mut config: ClientConfig,
) -> Result<Channel, tonic::transport::Error> {
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let connect = tower::service_fn(move |_: http::Uri| {
        let connector = connector.clone();
        async move {
            let stream = tokio::net::TcpStream::connect(to).await?;
            let name = ServerName::try_from("localhost").map_err(std::io::Error::other)?;
            connector.connect(name, stream).await.map(TokioIo::new)
        }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    endpoint.connect_with_connector(connect).await
}
