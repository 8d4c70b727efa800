//! What the five documents that describe resource versions show, as they show it.
//!
//! row 4: the_deployment_of_the_document_gets_its_version_at_reading
//! row 24: nothing_that_concurrency_control_prevents_happens
//! row 25: the_pod_of_the_document_is_stored_without_version_and_link
//! row 38: what_etcds_older_interface_called_index_is_the_revision

use std::sync::Arc;

use annals::object::{
    ApiVersioner, GetOptions, GroupResource, GuaranteedUpdateOptions, Preconditions, Reason,
    Storage, Versioner,
};
use annals::{Store, Transaction};
use serde_json::{Value, json};
use tempfile::TempDir;

fn store_at(revision: u64) -> (TempDir, Arc<Store>) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    while store.revision() < revision {
        store.put("before", "").unwrap();
    }
    (directory, Arc::new(store))
}

fn storage(store: &Arc<Store>, resource: &str) -> Storage<Store> {
    let prefix = format!("/{resource}");
    Storage::new(Arc::clone(store), "/registry", GroupResource::new("", resource), &prefix)
}

#[test]
fn the_deployment_of_the_document_gets_its_version_at_reading() {
    let read = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "annotations": {"deployment.kubernetes.io/revision": "6"},
            "creationTimestamp": "2020-08-14T10:23:27Z",
            "generation": 7,
            "labels": {"app": "nginx"},
            "name": "nginx",
            "namespace": "default",
            "resourceVersion": "3313340114",
            "uid": "215f58cf-4be8-472a-8ea5-be6d33b01256",
        },
    });
    let mut stored = read.clone();
    ApiVersioner.prepare_for_storage(&mut stored).unwrap();
    assert_eq!(stored["metadata"].get("resourceVersion"), None);
    assert_eq!(stored["metadata"]["generation"], 7);
    ApiVersioner.update_object(&mut stored, 3_313_340_114).unwrap();
    assert_eq!(stored, read);
    assert_eq!(ApiVersioner.object_resource_version(&read), Ok(3_313_340_114));
}

#[test]
fn the_pod_of_the_document_is_stored_without_version_and_link() {
    let (_directory, store) = store_at(1);
    let pods = storage(&store, "pods");
    let key = "/pods/default/nginx-1zr5x";
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "nginx-1zr5x",
            "selfLink": "/api/v1/namespaces/default/pods/nginx-1zr5x",
            "uid": "9910eaf7-f0f3-11e7-a0b3-0800274a4ec3",
        },
    });
    pods.create(key, pod, 0).unwrap();
    let bytes = store.get(format!("/registry{key}")).unwrap().unwrap().value;
    let stored: Value = serde_json::from_slice(&bytes).unwrap();
    let expected = json!({"name": "nginx-1zr5x", "uid": "9910eaf7-f0f3-11e7-a0b3-0800274a4ec3"});
    assert_eq!(stored["metadata"], expected);
    // The same but for version and link is the same: nothing is written.
    let mut again = |mut pod: Value, _| {
        pod["metadata"]["resourceVersion"] = "879232".into();
        pod["metadata"]["selfLink"] = "/elsewhere".into();
        Ok((pod, None))
    };
    let none = Preconditions::none();
    let kept = pods
        .guaranteed_update(key, GuaranteedUpdateOptions::default(), &none, &mut again, None)
        .unwrap();
    assert_eq!((store.revision(), &kept["metadata"]["resourceVersion"]), (2, &json!("2")));
}

/// `etcdctl -o extended get` of a quota and of the namespace `default`, of a Kubernetes on version 2 of etcd.
#[test]
fn what_etcds_older_interface_called_index_is_the_revision() {
    let (_directory, store) = store_at(12);
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "creationTimestamp": "2017-12-27T16:15:08Z", "name": "default",
            "uid": "1b723730-eb21-11e7-ba17-080027e58fc6",
        },
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    });
    let namespaces = storage(&store, "namespaces");
    namespaces.create("/namespaces/default", namespace, 0).unwrap();
    while store.revision() < 29 {
        store.put("between", "").unwrap();
    }
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {
            "creationTimestamp": "2017-12-27T16:58:32Z", "name": "quota", "namespace": "default",
            "uid": "2b7ba689-eb27-11e7-b9d2-080027e58fc6",
        },
        "spec": {"hard": {"services": "5"}}, "status": {},
    });
    let made = storage(&store, "resourcequotas")
        .create("/resourcequotas/default/quota", quota, 0)
        .unwrap();
    assert_eq!(made["metadata"]["resourceVersion"], "30");
    // Key, Created-Index, Modified-Index, Index.
    let extended = |key: &str| {
        let kv = store.get(key).unwrap().unwrap();
        (kv.create_revision, kv.mod_revision, store.revision())
    };
    assert_eq!(extended("/registry/resourcequotas/default/quota"), (30, 30, 30));
    assert_eq!(extended("/registry/namespaces/default"), (13, 13, 30));
    let read = namespaces.get("/namespaces/default", &GetOptions::default()).unwrap();
    assert_eq!(read["metadata"]["resourceVersion"], "13");
    // PrevNoExist: who comes second is refused.
    let again = namespaces.create("/namespaces/default", json!({"metadata": {}}), 0).unwrap_err();
    let status = again.into_status(namespaces.resource(), "default");
    assert_eq!((status.code(), status.reason()), (409, Reason::AlreadyExists));
}

/// Dirty reads, reads that cannot be repeated, phantoms.
#[test]
fn nothing_that_concurrency_control_prevents_happens() {
    let (_directory, store) = store_at(1);
    let pods = storage(&store, "pods");
    pods.create("/pods/a", json!({"metadata": {"name": "a"}, "spec": 1}), 0).unwrap();
    let view = store.latest().unwrap();
    let read = || {
        let all: Vec<_> = view.range(..).map(|kv| kv.unwrap()).collect();
        (view.get("/registry/pods/a").unwrap(), view.count(..).unwrap(), all)
    };
    let before = read();
    // What is not committed is not read: a transaction that fails as a whole shows none of its parts.
    let both = store.txn().then([annals::put("/registry/pods/x", "1"), annals::put("", "2")]);
    assert!(both.commit().is_err());
    assert_eq!(store.get("/registry/pods/x").unwrap(), None);
    // What is read again is the same, and no key appears or goes.
    pods.create("/pods/b", json!({"metadata": {"name": "b"}}), 0).unwrap();
    pods.delete("/pods/a", &Preconditions::none(), &mut |_| Ok(()), None).unwrap();
    assert_eq!(read(), before);
    let changes: Vec<Transaction> = store.log(3..).map(|change| change.unwrap()).collect();
    assert_eq!(changes.len(), 2);
}
