//! TLS on a connection: the handshake, certificates that are read again when their files change, and the name in a
//! client's certificate.

pub(crate) mod files;
pub mod own;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::config::Config;
use crate::server::PeerCommonName;
use crate::tls::files::{Files, Stamp};
use crate::{info, warn};

/// TLS as the flags say, with the certificates as they are now.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    hosts: Vec<ServerName<'static>>,
    /// Whether the name in a client's certificate tells who asks.
    names: bool,
    time_limit: Duration,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    stamp: Stamp,
    config: Arc<ServerConfig>,
}

/// A connection whose handshake is done.
#[derive(Debug)]
pub struct Accepted<S> {
    /// The connection.
    pub stream: TlsStream<S>,
    /// The name in the client's certificate, which a trusted authority has signed; none if it showed no certificate,
    /// or that has no name, or without `--client-cert-auth`, as in etcd. It is an extension of every gRPC request of the connection.
    pub common_name: Option<PeerCommonName>,
}

impl Tls {
    /// Reads the files which a configuration names; none if it names no certificate.
    ///
    /// # Errors
    /// A file cannot be read, or they do not belong together.
    pub fn of(config: &Config) -> Result<Option<Self>, String> {
        if config.cert_file.as_os_str().is_empty() {
            return Ok(None);
        }
        let files = Files::of(config)?;
        let stamp = files.stamp();
        let current = Current { config: Arc::new(files.load()?), stamp };
        let mut hosts = Vec::new();
        for host in config
            .client_cert_allowed_hostname
            .split(',')
            .map(str::trim)
            .filter(|host| !host.is_empty())
        {
            let name = ServerName::try_from(host.to_owned());
            hosts.push(name.map_err(|_| {
                format!("--client-cert-allowed-hostname: {host:?} is no host's name")
            })?);
        }
        let time_limit = config.tls_handshake_timeout;
        let names = config.client_cert_auth;
        Ok(Some(Self { files, hosts, names, time_limit, current: Mutex::new(current) }))
    }

    /// What rustls is told now. Files that have changed are read again; while they cannot be used, those before
    /// stay in use.
    pub fn current(&self) -> Arc<ServerConfig> {
        let stamp = self.files.stamp();
        let mut current = self.current.lock();
        if stamp != current.stamp {
            match self.files.load() {
                Ok(config) => {
                    info!("read changed TLS files");
                    current.config = Arc::new(config);
                }
                Err(error) => {
                    warn!(
                        "cannot use changed TLS files; those before stay in use",
                        "error" = error
                    );
                }
            }
            // Files that are no good are not read again for each connection, but when they change.
            current.stamp = stamp;
        }
        Arc::clone(&current.config)
    }

    /// Does the server's part of a handshake.
    ///
    /// # Errors
    /// The handshake fails, or takes too long.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> Result<Accepted<S>, String> {
        let handshake = TlsAcceptor::from(self.current()).accept(stream);
        let stream = match tokio::time::timeout(self.time_limit, handshake).await {
            Err(_) => return Err("the TLS handshake took too long".to_owned()),
            Ok(Err(error)) => return Err(explained(&error)),
            Ok(Ok(stream)) => stream,
        };
        let leaf = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        if !self.hosts.is_empty() && !leaf.is_some_and(|leaf| self.is_allowed(leaf)) {
            return Err("client certificate authentication failed".to_owned());
        }
        let common_name = leaf.filter(|_| self.names).and_then(common_name).map(PeerCommonName);
        Ok(Accepted { stream, common_name })
    }

    fn is_allowed(&self, leaf: &CertificateDer<'_>) -> bool {
        let Ok(leaf) = webpki::EndEntityCert::try_from(leaf) else { return false };
        self.hosts.iter().any(|host| leaf.verify_is_valid_for_subject_name(host).is_ok())
    }
}

/// The last common name of a certificate's subject, as Go gives it; none if it is empty or not text.
fn common_name(leaf: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(leaf).ok()?;
    let last = parsed.subject().iter_common_name().last()?;
    let name = last.as_str().ok()?.to_owned();
    (!name.is_empty()).then_some(name)
}

/// Why a handshake failed, with what can be done about it where that is not plain.
fn explained(error: &std::io::Error) -> String {
    let mut text = error.to_string();
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    // What checks certificates has this error behind one of "others".
    if let Some(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(_))) = inner
        && text.contains("UnsupportedCertVersion")
    {
        text += ": the certificate is of X.509 version 1, which is not taken; with any extension it is one of version 3 \
                 (openssl x509 -req -extfile)";
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_certificate_without_extensions_is_explained() {
        /// As webpki spells it.
        #[derive(Debug)]
        struct UnsupportedCertVersion;
        impl std::fmt::Display for UnsupportedCertVersion {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("UnsupportedCertVersion")
            }
        }
        impl std::error::Error for UnsupportedCertVersion {}
        let other = rustls::OtherError(Arc::new(UnsupportedCertVersion));
        let refused = rustls::CertificateError::Other(other);
        let told = explained(&io::Error::other(rustls::Error::InvalidCertificate(refused)));
        assert!(told.contains("X.509 version 1"), "{told}");
        let told = explained(&io::Error::other("UnsupportedCertVersion"));
        assert_eq!(told, "UnsupportedCertVersion");
    }
}
