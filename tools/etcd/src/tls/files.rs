//! The files of TLS: certificates, keys, revocations, and what of them rustls is told.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};

use crate::config::Config;

/// The files, and what else the flags say about TLS.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    cert: PathBuf,
    key: PathBuf,
    trusted: Option<PathBuf>,
    revoked: Option<PathBuf>,
    suites: Vec<SupportedCipherSuite>,
    versions: Vec<&'static SupportedProtocolVersion>,
}

/// How the files looked when they were read: a change shows that they have to be read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp(Vec<Option<(SystemTime, u64, u64)>>);

impl Files {
    /// What a configuration names.
    pub(crate) fn of(config: &Config) -> Result<Self, String> {
        let given = |path: &Path| (!path.as_os_str().is_empty()).then(|| path.to_owned());
        let least = config.tls_min_version == "TLS1.3";
        let versions: Vec<_> = match (least, config.tls_max_version == "TLS1.2") {
            (false, false) => vec![&rustls::version::TLS13, &rustls::version::TLS12],
            (false, true) => vec![&rustls::version::TLS12],
            (true, _) => vec![&rustls::version::TLS13],
        };
        Ok(Self {
            cert: config.cert_file.clone(),
            key: config.key_file.clone(),
            trusted: given(&config.trusted_ca_file),
            revoked: given(&config.client_crl_file),
            suites: suites(&config.cipher_suites)?,
            versions,
        })
    }

    /// How the files look now.
    pub(crate) fn stamp(&self) -> Stamp {
        let paths =
            [Some(&self.cert), Some(&self.key), self.trusted.as_ref(), self.revoked.as_ref()];
        let look = |path: &PathBuf| {
            let found = fs::metadata(path).ok()?;
            Some((found.modified().ok()?, found.len(), inode(&found)))
        };
        Stamp(paths.into_iter().flatten().map(look).collect())
    }

    /// Reads them.
    pub(crate) fn load(&self) -> Result<ServerConfig, String> {
        let provider = CryptoProvider {
            cipher_suites: self.suites.clone(),
            ..rustls::crypto::ring::default_provider()
        };
        let provider = Arc::new(provider);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&self.versions)
            .map_err(|error| {
                format!("TLS versions and cipher suites do not fit together: {error}")
            })?;
        let builder = match &self.trusted {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| told("trusted CA", path, &error))?;
                }
                let mut verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                if let Some(path) = &self.revoked {
                    verifier =
                        verifier.with_crls(revocations(path)?).allow_unknown_revocation_status();
                }
                builder.with_client_cert_verifier(
                    verifier.build().map_err(|error| told("trusted CA", path, &error))?,
                )
            }
        };
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| told("key", &self.key, &error))?;
        let chain = certificates(&self.cert)?;
        let made = builder
            .with_single_cert(chain, key)
            .map_err(|error| told("certificate", &self.cert, &error));
        let mut config = made?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn told(what: &str, path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("cannot use the {what} file {}: {error}", path.display())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| told("certificate", path, &error))?;
    if read.is_empty() { Err(told("certificate", path, &"there is none in it")) } else { Ok(read) }
}

/// A list in PEM, or one in DER.
fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let bytes = fs::read(path).map_err(|error| told("revocation", path, &error))?;
    let read = CertificateRevocationListDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let read = read.map_err(|error| told("revocation", path, &error))?;
    let lists = if read.is_empty() { vec![bytes.into()] } else { read };
    for list in &lists {
        // Whoever is told later that one cannot be used does not know which file it is from.
        webpki::OwnedCertRevocationList::from_der(list)
            .map_err(|error| told("revocation", path, &error))?;
    }
    Ok(lists)
}

#[cfg(unix)]
fn inode(found: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(found)
}

#[cfg(not(unix))]
fn inode(_: &fs::Metadata) -> u64 {
    0
}

/// The cipher suites of such names, as Go and IANA give them. Those of TLS 1.3 are always there, as with Go.
fn suites(names: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let all = rustls::crypto::ring::ALL_CIPHER_SUITES;
    let names: Vec<_> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    let mut wanted = Vec::new();
    for name in &names {
        let known = all.iter().find(|suite| {
            let own = format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
            // Go leaves the hash out of these two names.
            own == *name || own.strip_suffix("_SHA256") == Some(name)
        });
        wanted.push(*known.ok_or_else(|| format!("unexpected TLS cipher suite {name:?}"))?);
    }
    wanted.extend(all.iter().filter(|suite| suite.tls13().is_some()));
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::suites;

    #[test]
    fn cipher_suites_by_their_names() {
        let named = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305";
        assert_eq!(suites(named).map(|found| found.len()), Ok(2 + 3));
        assert_eq!(suites("").map(|found| found.len()), Ok(9));
        assert!(suites("TLS_RSA_WITH_RC4_128_SHA").is_err());
    }
}
