//! Users and their permissions.

use annals::ErrorKind;
use annals::object::kv::{Kv, KvWatch, WatchRequest};
use annals::object::{EtcdKv, EtcdOptions};
use annals::{Op, PutRequest, TxnRequest};

use super::etcd::{Etcd, etcdctl};
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
