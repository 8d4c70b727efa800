//! Objects encrypted in the store: nobody reads them there, moves them, or loses them when keys change.

use std::sync::Arc;
use std::time::Duration;

use annals::Store;
use annals::object::WatchEventKind::{Added, Deleted, Modified};
use annals::object::{
    AesGcm, EncryptionKey, GetOptions, GroupResource, GuaranteedUpdateOptions, Identity,
    ListOptions, Preconditions, Prefixed, Storage, Transformer, WatchOptions,
};
use serde_json::{Value, json};
use tempfile::TempDir;

fn store() -> (TempDir, Arc<Store>) {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(directory.path()).unwrap());
    (directory, store)
}

fn secrets(store: &Arc<Store>) -> Storage<Store> {
    Storage::new(Arc::clone(store), "/registry", GroupResource::new("", "secrets"), "/secrets")
}

fn encrypted(store: &Arc<Store>, transformer: impl Transformer) -> Storage<Store> {
    secrets(store).transformer(Arc::new(transformer))
}

fn key(name: &str, byte: u8) -> EncryptionKey {
    EncryptionKey::new(name, &[byte; 32]).unwrap()
}

/// With the key "old" alone.
fn old() -> Prefixed {
    Prefixed::new(AesGcm::PREFIX, AesGcm::new(key("old", 1)))
}

/// "new" writes, "old" reads.
fn rotating() -> Prefixed {
    Prefixed::new(AesGcm::PREFIX, AesGcm::new(key("new", 2)).or(key("old", 1)).unwrap())
}

/// With the key "new" alone.
fn new() -> Prefixed {
    Prefixed::new(AesGcm::PREFIX, AesGcm::new(key("new", 2)))
}

const KEY: &str = "/secrets/default/db";

fn secret() -> Value {
    json!({"metadata": {"name": "db", "namespace": "default"}, "data": {"password": "hunter2-hunter2"}})
}

fn bytes(store: &Store, key: &str) -> Vec<u8> {
    store.get(format!("/registry{key}")).unwrap().unwrap().value.to_vec()
}

/// Updates without changing anything; answers the version.
fn touch(storage: &Storage<Store>, key: &str) -> Value {
    let updated = storage.guaranteed_update(
        key,
        GuaranteedUpdateOptions::default(),
        &Preconditions::none(),
        &mut |object, _| Ok((object, None)),
        None,
    );
    updated.unwrap()["metadata"]["resourceVersion"].clone()
}

#[test]
fn nothing_of_an_object_is_seen_in_the_store() {
    let (directory, store) = store();
    let storage = encrypted(&store, old());
    let made = storage.create(KEY, secret(), 0).unwrap();
    assert_eq!(storage.get(KEY, &GetOptions::default()).unwrap(), made);
    assert_eq!(made["data"], secret()["data"]);
    assert!(bytes(&store, KEY).starts_with(b"k8s:enc:aesgcm:v1:old:"));

    drop((storage, store));
    let mut files = vec![directory.path().to_path_buf()];
    let mut looked_at = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let content = std::fs::read(&path).unwrap();
        let has = |text: &[u8]| content.windows(text.len()).any(|window| window == text);
        assert!(!has(b"hunter2") && !has(b"password"), "{}", path.display());
        looked_at += usize::from(has(b"k8s:enc:aesgcm:v1:old:"));
    }
    assert!(looked_at > 0, "the object lies in a file");
}

#[test]
fn a_value_that_is_moved_to_another_key_fails_to_open() {
    let (_directory, store) = store();
    let storage = encrypted(&store, old());
    storage.create(KEY, secret(), 0).unwrap();
    store.put("/registry/secrets/default/stolen", bytes(&store, KEY)).unwrap();
    let error = storage.get("/secrets/default/stolen", &GetOptions::default()).unwrap_err();
    let status = error.into_status(storage.resource(), "stolen");
    assert_eq!(status.code(), 500);
    assert!(status.message().contains("message authentication failed"), "{status}");
    assert!(storage.get(KEY, &GetOptions::default()).is_ok(), "where it belongs it opens");
}

#[test]
fn keys_change_and_objects_follow() {
    let (_directory, store) = store();
    encrypted(&store, old()).create(KEY, secret(), 0).unwrap();

    // Without the old key nothing can be read; with both it can, and nothing is written by reading.
    assert!(encrypted(&store, new()).get(KEY, &GetOptions::default()).is_err());
    let storage = encrypted(&store, rotating());
    let read = storage.get(KEY, &GetOptions::default()).unwrap();
    assert_eq!(read["metadata"]["resourceVersion"], "2");
    assert_eq!(store.revision(), 2);

    // An update that changes nothing writes anew what is stale, once.
    assert_eq!(touch(&storage, KEY), "3");
    assert!(bytes(&store, KEY).starts_with(b"k8s:enc:aesgcm:v1:new:"));
    assert_eq!(touch(&storage, KEY), "3");
    assert_eq!(store.revision(), 3);

    // So the old key can go.
    let read = encrypted(&store, new()).get(KEY, &GetOptions::default()).unwrap();
    assert_eq!(read["data"], secret()["data"]);
}

#[test]
fn what_was_stored_before_encryption_is_read_where_that_is_allowed() {
    let (_directory, store) = store();
    secrets(&store).create(KEY, secret(), 0).unwrap();
    assert!(encrypted(&store, old()).get(KEY, &GetOptions::default()).is_err());

    let storage = encrypted(&store, old().or("", Identity));
    assert_eq!(storage.get(KEY, &GetOptions::default()).unwrap()["data"], secret()["data"]);
    assert_eq!(touch(&storage, KEY), "3");
    assert!(bytes(&store, KEY).starts_with(b"k8s:enc:aesgcm:v1:old:"));

    // And the way back.
    let back = Prefixed::new("", Identity).or(AesGcm::PREFIX, AesGcm::new(key("old", 1)));
    assert_eq!(touch(&encrypted(&store, back), KEY), "4");
    assert_eq!(secrets(&store).get(KEY, &GetOptions::default()).unwrap()["data"], secret()["data"]);
}

#[test]
fn lists_watches_and_deletions_see_what_was_written_with_any_key() {
    let (_directory, store) = store();
    let name = |n: u8| format!("/secrets/default/{n}");
    encrypted(&store, old()).create(&name(0), secret(), 0).unwrap();
    let storage = encrypted(&store, rotating());
    storage.create(&name(1), secret(), 0).unwrap();

    let options = ListOptions { recursive: true, ..ListOptions::default() };
    let list = storage.list("/secrets", &options).unwrap();
    assert_eq!(list.items.len(), 2);
    assert!(list.items.iter().all(|item| item["data"] == secret()["data"]));
    assert!(encrypted(&store, new()).list("/secrets", &options).is_err(), "one cannot be read");

    let options =
        WatchOptions { resource_version: "1".into(), recursive: true, ..WatchOptions::default() };
    let mut watch = storage.watch("/secrets", &options).unwrap();
    touch(&storage, &name(0));
    let none = Preconditions::none();
    let gone = storage.delete(&name(1), &none, &mut |_| Ok(()), None).unwrap();
    let expected = [(Added, "2"), (Added, "3"), (Modified, "4"), (Deleted, "5")];
    for (kind, version) in expected {
        let event = watch.next_timeout(Duration::from_secs(60)).expect("it has happened");
        assert_eq!(event.kind, kind);
        assert_eq!(event.object["metadata"]["resourceVersion"], version);
        assert_eq!(event.object["data"], secret()["data"]);
    }
    assert!(format!("{gone:?}").contains("hunter2"), "what is deleted is answered as it was");
}
