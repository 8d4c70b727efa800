//! Objects encrypted in the store: nobody reads them there, moves them, or loses them when keys change.

use std::sync::Arc;
use std::time::Duration;

use super::under::{Objects, Store, needs_the_store};
use annals::object::WatchEventKind::{Added, Deleted, Error, Modified};
use annals::object::{
    AesGcm, CreateOptions, DeleteOptions, EncryptionKey, GetOptions, GroupResource,
    GuaranteedUpdateOptions, Identity, Kind, ListOptions, Preconditions, Prefixed, Reason, Storage,
    Transformer, UpdateOptions, WatchOptions,
};
use serde_json::{Value, json};
use tempfile::TempDir;

fn store() -> (TempDir, Arc<Store>) {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::or(|| annals::Store::open(directory.path()).unwrap()));
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
fn old() -> AesGcm {
    AesGcm::new(key("old", 1))
}

/// "new" writes, "old" reads.
fn rotating() -> AesGcm {
    AesGcm::new(key("new", 2)).or(key("old", 1)).unwrap()
}

/// With the key "new" alone.
fn new() -> AesGcm {
    AesGcm::new(key("new", 2))
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
    needs_the_store!();
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

    let storage = encrypted(&store, old().or_unencrypted());
    assert_eq!(storage.get(KEY, &GetOptions::default()).unwrap()["data"], secret()["data"]);
    assert_eq!(touch(&storage, KEY), "3");
    assert!(bytes(&store, KEY).starts_with(b"k8s:enc:aesgcm:v1:old:"));

    // And the way back.
    let back = Prefixed::new("", Identity).or("", old());
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

fn kind(store: &Arc<Store>, transformer: impl Transformer) -> Objects<Store> {
    let kind = Kind::new("v1", "Secret", "secrets");
    Objects::new(Arc::clone(store), kind).transformer(Arc::new(transformer))
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"password": "hunter2-hunter2"}})
}

#[test]
fn what_is_stale_is_written_anew_and_the_old_key_can_go() {
    needs_the_store!();
    let (_directory, store) = store();
    let plain = Objects::new(Arc::clone(&store), Kind::new("v1", "Secret", "secrets"));
    plain.create("a", named("plain"), &CreateOptions::default()).unwrap();
    let with_old = kind(&store, old().or_unencrypted());
    let lives = CreateOptions { ttl: Some(3600), ..CreateOptions::default() };
    let made = with_old.create("a", named("lives"), &lives).unwrap();
    // More than are read at a time.
    for n in 0..600 {
        with_old.create("b", named(&format!("n{n}")), &CreateOptions::default()).unwrap();
    }
    let with_both = kind(&store, rotating().or_unencrypted());
    with_both.create("a", named("new"), &CreateOptions::default()).unwrap();

    let done = with_both.rewrite_stale("a").unwrap();
    assert_eq!((done.looked_at, done.written, done.revision), (3, 2, store.revision()));
    let done = with_both.rewrite_stale("").unwrap();
    assert_eq!((done.looked_at, done.written, done.revision), (603, 600, store.revision()));
    let again = with_both.rewrite_stale("").unwrap();
    assert_eq!((again.looked_at, again.written, again.revision), (603, 0, done.revision));

    let with_new = kind(&store, new());
    let list = with_new.list("", &ListOptions::default()).unwrap();
    assert_eq!(list.items.len(), 603);
    assert!(list.items.iter().all(|item| item["data"] == named("")["data"]));
    // The same object, of another version, with its lease.
    let now = with_new.get("a", "lives", &GetOptions::default()).unwrap();
    assert_eq!(
        (&now["metadata"]["uid"], &now["metadata"]["generation"]),
        (&made["metadata"]["uid"], &json!(1))
    );
    assert_ne!(now["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    let kv = store.get("/registry/secrets/a/lives").unwrap().unwrap();
    assert!(kv.lease != 0 && kv.value.starts_with(b"k8s:enc:aesgcm:v1:new:"));

    // The past is as it was, until it is compacted.
    let past = || store.history("/registry/secrets/a/plain").filter_map(Result::ok).count();
    let oldest = store.history("/registry/secrets/a/plain").last().unwrap().unwrap();
    assert!(oldest.value.starts_with(b"{") && past() == 2);
    let late = WatchOptions { resource_version: "1".into(), ..WatchOptions::default() };
    let expect_expired = |what: &str| {
        let event = with_new.watch("", &late).unwrap().next().unwrap();
        let Error(status) = event.kind else { panic!("{event:?}") };
        assert_eq!((status.code(), status.reason()), (410, Reason::Expired), "{status}");
        assert!(status.message().contains(what), "{status}");
    };
    expect_expired("the stored object is not encrypted");
    store.compact(done.revision).unwrap();
    assert_eq!(past(), 1);
    expect_expired("The resourceVersion for the provided watch is too old.");
}

#[test]
fn what_no_key_opens_is_told_and_all_else_is_written_anew() {
    let (_directory, store) = store();
    let lost = kind(&store, AesGcm::new(key("lost", 3)));
    lost.create("a", named("lost"), &CreateOptions::default()).unwrap();
    kind(&store, old()).create("a", named("old"), &CreateOptions::default()).unwrap();
    let with_both = kind(&store, rotating());
    let failed = with_both.rewrite_stale("").unwrap_err();
    assert_eq!((failed.code(), failed.reason()), (500, Reason::StoreReadError));
    let [cause] = failed.details().causes.as_slice() else { panic!("{failed:?}") };
    assert_eq!(cause.field, "/registry/secrets/a/lost");
    assert!(failed.message().contains("k8s:enc:aesgcm:v1:lost:"), "{failed}");
    assert!(kind(&store, new()).get("a", "old", &GetOptions::default()).is_ok());

    // Without any transformer it says so, too.
    let plain = Objects::new(Arc::clone(&store), Kind::new("v1", "Secret", "secrets"));
    let failed = plain.get("a", "lost", &GetOptions::default()).unwrap_err();
    assert!(failed.message().contains("k8s:enc:aesgcm:v1:lost:"), "{failed}");
}

/// An object may be too large once it is encrypted, or with a key of a longer name.
#[test]
fn what_the_store_refuses_is_told_and_all_else_is_written_anew() {
    let directory = tempfile::tempdir().unwrap();
    let options = annals::Options::new().value_bytes_max(2_000);
    let store = Arc::new(Store::from(options.open(directory.path()).unwrap()));
    let plain = Objects::new(Arc::clone(&store), Kind::new("v1", "Secret", "secrets"));
    let mut large = named("a-large");
    large["data"]["password"] = "x".repeat(1_700).into();
    let made = plain.create("a", large, &CreateOptions::default()).unwrap();
    plain.create("a", named("b-small"), &CreateOptions::default()).unwrap();
    let left = 2_000 - bytes(&store, "/secrets/a/a-large").len();
    assert!(left < 300, "{left}");
    let name = "n".repeat(300);
    let long = kind(&store, AesGcm::new(key(&name, 4)).or_unencrypted());
    let failed = long.rewrite_stale("").unwrap_err();
    assert_eq!(failed.code(), 500);
    let [cause] = failed.details().causes.as_slice() else { panic!("{failed:?}") };
    assert_eq!(cause.field, "/registry/secrets/a/a-large");
    assert!(failed.message().starts_with("failed to rewrite one or more secrets"), "{failed}");
    assert!(bytes(&store, "/secrets/a/b-small").starts_with(b"k8s:enc:"));
    assert_eq!(long.get("a", "a-large", &GetOptions::default()).unwrap(), made);
}

/// Who watches one object from its beginning, and would begin again after 410, would do so for ever.
#[test]
fn what_no_key_opens_is_no_expired_version_where_a_watch_begins() {
    let (_directory, store) = store();
    encrypted(&store, old()).create(KEY, secret(), 0).unwrap();
    for (key, recursive) in [(KEY, false), ("/secrets", true)] {
        let options = WatchOptions { recursive, ..WatchOptions::default() };
        let event = encrypted(&store, new()).watch(key, &options).unwrap().next().unwrap();
        let Error(status) = event.kind else { panic!("{event:?}") };
        assert_eq!((status.code(), status.reason()), (500, Reason::InternalError), "{status}");
    }
    // What has changed since can be read where it is listed anew, or is told there not to be.
    let options = WatchOptions { resource_version: "1".into(), ..WatchOptions::default() };
    let event = encrypted(&store, new()).watch(KEY, &options).unwrap().next().unwrap();
    let Error(status) = event.kind else { panic!("{event:?}") };
    assert_eq!((status.code(), status.reason()), (410, Reason::Expired), "{status}");
}

/// Others delete, change and make objects meanwhile: nothing of theirs is lost, and nothing stays stale.
#[test]
fn objects_are_written_anew_while_others_write() {
    let (_directory, store) = store();
    let (with_old, with_both) = (kind(&store, old()), kind(&store, rotating()));
    for n in 0..60 {
        with_old.create("a", named(&format!("n{n}")), &CreateOptions::default()).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..60 {
                let name = format!("n{n}");
                match n % 3 {
                    0 => drop(with_both.delete("a", &name, &DeleteOptions::default()).unwrap()),
                    1 => {
                        let change = |secret: &mut Value| {
                            secret["data"]["n"] = n.into();
                            Ok(())
                        };
                        with_both.modify("a", &name, &UpdateOptions::default(), change).unwrap();
                    }
                    _ => {
                        let more = named(&format!("m{n}"));
                        with_both.create("a", more, &CreateOptions::default()).unwrap();
                    }
                }
            }
        });
        with_both.rewrite_stale("").unwrap();
    });
    let list = kind(&store, new()).list("", &ListOptions::default()).unwrap();
    assert_eq!(list.items.len(), 60);
    let changed = list.items.iter().filter(|secret| secret["data"]["n"].is_number()).count();
    assert_eq!(changed, 20);
}

/// `ignoreStoreReadErrorWithClusterBreakingPotential` of Kubernetes.
#[test]
fn what_no_key_opens_can_be_deleted_and_nothing_else_that_way() {
    let (_directory, store) = store();
    let lost = kind(&store, AesGcm::new(key("lost", 3)));
    let mut guarded = named("lost");
    guarded["metadata"]["finalizers"] = json!(["acme.io/guard"]);
    lost.create("a", guarded, &CreateOptions::default()).unwrap();
    let secrets = kind(&store, new());
    secrets.create("a", named("good"), &CreateOptions::default()).unwrap();
    let deletion = DeleteOptions::default();
    assert_eq!(secrets.delete("a", "lost", &deletion).unwrap_err().code(), 500);

    let unsafely = DeleteOptions { ignore_store_read_error: true, ..DeleteOptions::default() };
    let good = secrets.delete("a", "good", &unsafely).unwrap_err();
    assert_eq!(good.code(), 409);
    assert!(good.message().contains("the object is decodable from storage"), "{good}");
    assert_eq!(secrets.delete("a", "none", &unsafely).unwrap_err().code(), 404);
    let with = |options: DeleteOptions| {
        let refused = secrets.delete("a", "lost", &options).unwrap_err();
        assert_eq!(refused.code(), 422);
        assert!(refused.message().contains("cannot be set together with ."), "{refused}");
    };
    with(DeleteOptions { grace_period_seconds: Some(0), ..unsafely.clone() });
    with(DeleteOptions { orphan_dependents: Some(false), ..unsafely.clone() });
    with(DeleteOptions { preconditions: Preconditions::uid("x"), ..unsafely.clone() });
    let many = secrets.delete_collection("a", &unsafely, &ListOptions::default()).unwrap_err();
    assert!(many.code() == 422 && many.message().contains("DELETECOLLECTION"), "{many}");

    let before = store.revision();
    let dry = DeleteOptions { dry_run: true, ..unsafely.clone() };
    assert!(secrets.delete("a", "lost", &dry).unwrap().is_deleted);
    assert_eq!(store.revision(), before);
    let deletion = secrets.delete("a", "lost", &unsafely).unwrap();
    assert!(deletion.is_deleted && deletion.object.is_null());
    assert_eq!(deletion.mod_revision, Some(2));
    assert_eq!(deletion.into_answer()["status"], "Success");
    let list = secrets.list("", &ListOptions::default()).unwrap();
    assert_eq!(list.items.len(), 1, "the rest can be listed again");
}
