//! `--auto-tls`: a certificate that the server signs itself. Who connects cannot know by it whom it talks to, but nobody
//! on the way can read along.
//!
//! As in etcd it is kept under `fixtures/client` in the data directory, and made anew only when it is not there; here
//! also when its time is over.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::config::{Config, Place};
use crate::{info, warn};

const FOLDER: &str = "fixtures/client";
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Gives a configuration with `--auto-tls` the files of such a certificate, and makes them if they are not there.
///
/// # Errors
/// They cannot be written.
pub fn ensure(config: &mut Config) -> Result<(), String> {
    if !config.auto_tls {
        return Ok(());
    }
    if !config.cert_file.as_os_str().is_empty() {
        warn!("ignoring client auto TLS since certs given");
        return Ok(());
    }
    let folder = config.data_dir.join(FOLDER);
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    if !is_good(&cert) || !key.exists() {
        let years = u32::from(config.self_signed_cert_validity);
        make(&cert, &key, hosts(config)?, YEAR * years).map_err(|error| {
            format!("cannot make a certificate in {}: {error}", folder.display())
        })?;
        info!("made a certificate", "cert-file" = cert, "years" = years);
    }
    (config.cert_file, config.key_file) = (cert, key);
    Ok(())
}

/// What clients call this server, as far as it is known here.
fn hosts(config: &Config) -> Result<Vec<String>, String> {
    let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    for url in config.listen_client()? {
        if let Place::Tcp { host, .. } = url.place
            && !hosts.contains(&host)
            && !host.is_empty()
        {
            hosts.push(host);
        }
    }
    Ok(hosts)
}

/// Whether there is a certificate whose time is not over.
fn is_good(path: &Path) -> bool {
    let Ok(der) = CertificateDer::from_pem_file(path) else { return false };
    X509Certificate::from_der(&der).is_ok_and(|(_, parsed)| parsed.validity().is_valid())
}

fn make(cert: &Path, key: &Path, hosts: Vec<String>, time: Duration) -> io::Result<()> {
    let mut params = CertificateParams::new(hosts).map_err(io::Error::other)?;
    params.distinguished_name.push(DnType::OrganizationName, "annals-etcd");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let now = SystemTime::now();
    (params.not_before, params.not_after) = (now.into(), (now + time).into());
    let pair = KeyPair::generate().map_err(io::Error::other)?;
    let made = params.self_signed(&pair).map_err(io::Error::other)?;
    if let Some(folder) = cert.parent() {
        fs::create_dir_all(folder)?;
    }
    // The certificate last: with it they are there.
    write(key, &pair.serialize_pem())?;
    write(cert, &made.pem())
}

/// Writes a file that only its owner may read.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn ensured(directory: &Path, flags: &[&str]) -> Config {
        let mut words: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        words.push(format!("--data-dir={}", directory.display()));
        let mut config = Config::read(&words, &[]).unwrap();
        ensure(&mut config).unwrap();
        config
    }

    #[test]
    fn a_certificate_is_made_once_and_again_when_its_time_is_over() {
        let directory = tempfile::tempdir().unwrap();
        let line = ["--auto-tls", "--listen-client-urls=https://127.0.0.1:0"];
        let config = ensured(directory.path(), &line);
        assert!(crate::tls::Tls::of(&config).unwrap().is_some());
        let first = fs::read(&config.cert_file).unwrap();
        assert_eq!(ensured(directory.path(), &line).cert_file, config.cert_file);
        assert_eq!(fs::read(&config.cert_file).unwrap(), first);
        make(&config.cert_file, &config.key_file, vec![], Duration::ZERO).unwrap();
        assert!(!is_good(&config.cert_file));
        ensured(directory.path(), &line);
        assert!(is_good(&config.cert_file));
        fs::remove_file(&config.key_file).unwrap();
        assert!(ensured(directory.path(), &line).key_file.exists());
    }

    #[test]
    fn only_its_owner_may_read_the_key() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let config = ensured(directory.path(), &["--auto-tls"]);
        let mode = fs::metadata(&config.key_file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn files_that_are_given_stay() {
        let directory = tempfile::tempdir().unwrap();
        let config = ensured(directory.path(), &["--auto-tls", "--cert-file=a", "--key-file=b"]);
        assert_eq!(config.cert_file, Path::new("a"));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
