//! Users and their permissions, and certificates.

use annals::ErrorKind;
use annals::object::kv::{Kv, KvWatch, WatchRequest};
use annals::object::{EtcdKv, EtcdOptions};
use annals::{Op, PutRequest, TxnRequest};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::etcd::{Etcd, Tls, etcdctl};
use super::{PATIENCE, start};

fn put(kv: &EtcdKv, key: &str) -> annals::Result<u64> {
    let success = vec![Op::Put(PutRequest::new(key, "v"))];
    Ok(kv.transact(TxnRequest { success, ..TxnRequest::default() })?.revision)
}

/// With a user who may do what he likes below `web/`.
fn guard(etcd: &Etcd) {
    let endpoint = etcd.endpoint();
    for arguments in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "web:hunter2"],
        &["role", "add", "web"],
        &["role", "grant-permission", "web", "readwrite", "--prefix", "web/"],
        &["user", "grant-role", "web", "web"],
        &["auth", "enable"],
    ] {
        etcdctl(&endpoint, arguments);
    }
}

#[test]
fn a_user_has_a_password_and_permissions() {
    let Some(mut etcd) = start() else { return };
    etcdctl(&etcd.endpoint(), &["role", "add", "root"]);
    guard(&etcd);
    let endpoint = etcd.endpoint();
    let connect = |options: EtcdOptions| EtcdKv::connect([&endpoint], options);
    for refused in [
        EtcdOptions::new(),
        EtcdOptions::new().user("web", "wrong").key_prefix("web/"),
        EtcdOptions::new().user("web", "hunter2"),
    ] {
        let error = connect(refused).unwrap_err();
        let ErrorKind::Io { source, .. } = error.kind() else { panic!("{error}") };
        assert!(
            matches!(
                source.kind(),
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::InvalidInput
            ),
            "{error}"
        );
    }
    let kv = connect(EtcdOptions::new().user("web", "hunter2").key_prefix("web/")).unwrap();
    let first = put(&kv, "a").unwrap();
    let watch = |key: &'static [u8]| {
        let request = WatchRequest { key, is_prefix: true, from: first, progress_every: None };
        kv.watch(request).unwrap()
    };
    let mut mine = watch(b"");
    assert_eq!(mine.next_timeout(PATIENCE).unwrap().unwrap().revision, first);
    // The tokens of a member are gone with it.
    etcd.restart();
    let second = put(&kv, "a").unwrap();
    assert_eq!(mine.next_timeout(PATIENCE).unwrap().unwrap().revision, second);
    let root = EtcdOptions::new().user("root", "secret");
    let root = EtcdKv::connect([etcd.endpoint()], root).unwrap();
    assert_eq!(root.get(b"web/a", None).unwrap().0.unwrap().mod_revision, second);
}

/// A certificate and its key, in PEM.
fn certificate(issuer: &Issuer<'_, KeyPair>, names: &[&str]) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, issuer).unwrap();
    (certificate.pem(), key.serialize_pem())
}

#[test]
fn both_sides_have_certificates() {
    if !super::etcd::is_installed() {
        println!("etcd is not installed: not run");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let server = certificate(&issuer, &["etcd.example"]);
    let client = certificate(&issuer, &["client.example"]);
    let file = |name: &str, pem: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let flag = |flag: &str, name: &str, pem: &str| format!("--{flag}={}", file(name, pem));
    let arguments = vec![
        flag("cert-file", "server.pem", &server.0),
        flag("key-file", "server-key.pem", &server.1),
        flag("trusted-ca-file", "ca.pem", &ca),
        "--client-cert-auth".to_owned(),
    ];
    let trusting = EtcdOptions::new().ca_certificate(&*ca);
    let options =
        trusting.clone().domain_name("etcd.example").client_certificate(client.0, client.1);
    let etcd = Etcd::start_with(Some(Tls { arguments, options: options.clone() }));
    let kv = EtcdKv::connect([etcd.endpoint()], options.clone()).unwrap();
    assert_eq!(put(&kv, "k").unwrap(), 2);
    // Without a scheme it is https where there are certificates.
    let endpoint = etcd.endpoint();
    assert!(EtcdKv::connect([endpoint.trim_start_matches("https://")], options.clone()).is_ok());
    let short = |options: EtcdOptions| options.request_time(std::time::Duration::from_secs(1));
    let nobody = trusting.domain_name("etcd.example");
    for refused in [nobody, options.domain_name("other.example"), EtcdOptions::new()] {
        let error = EtcdKv::connect([etcd.endpoint()], short(refused)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}");
    }
    let error = EtcdKv::connect([etcd.endpoint()], EtcdOptions::new().ca_certificate("no PEM"));
    assert!(error.is_err());
}
