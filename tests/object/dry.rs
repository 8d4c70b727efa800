//! A dry run ends as the call would, and writes nothing: each call of these tables is made dry, then in earnest, on the
//! same store.
//!
//! row 21: dry_runs_end_as_the_calls_do

use std::collections::HashSet;
use std::sync::Arc;

use annals::object::{
    CreateOptions, DeleteOptions, GarbageCollection, GuaranteedUpdateOptions, KindStrategy,
    ListOptions, PatchOptions, PatchType, Preconditions, PropagationPolicy, Result, Storage,
    StorageError, StorageErrorKind as Kind, UpdateOptions,
};
use annals::vfs::MemoryVfs;
use annals::{Durability, Options};
use serde_json::{Map, Value, json};

use super::kit::{clock, create, get, pod, pod_kind};
use super::under::{Objects, Store};
use super::world::{World, status, with};

/// A store that takes neither long keys nor large values, and in it: `web`, which has a manager and is large for that,
/// `kept` with a finalizer, `going`, which is being deleted, `leased` with a time to live, and, in the namespace `other`,
/// `broken`.
fn world(strategy: KindStrategy) -> (Arc<Store>, Objects) {
    let options = Options::new().vfs(Arc::new(MemoryVfs::new())).durability(Durability::Buffered);
    let options = options.key_bytes_max(64).value_bytes_max(2_000);
    let store = Arc::new(Store::from(options.open("store").unwrap()));
    let objects = Objects::new(Arc::clone(&store), pod_kind()).clock(clock()).strategy(strategy);
    let fields: Map<_, _> = (0..40).map(|n| (format!("field-{n}"), n.into())).collect();
    let web = with(pod("web"), &["spec"], Value::Object(fields));
    let by = CreateOptions { field_manager: "maker".into(), ..CreateOptions::default() };
    objects.create("default", web, &by).unwrap();
    for name in ["kept", "going"] {
        create(&objects, with(pod(name), &["metadata", "finalizers"], json!(["example.com/wait"])));
    }
    objects.delete("default", "going", &DeleteOptions::default()).unwrap();
    let lives = CreateOptions { ttl: Some(100), ..CreateOptions::default() };
    objects.create("default", pod("leased"), &lives).unwrap();
    store.put("/registry/pods/other/broken", "no object").unwrap();
    (store, objects)
}

/// All that a write might change.
fn state(store: &Store) -> (u64, u64, usize) {
    (store.revision(), store.hash(), leases(store))
}

fn leases(store: &Store) -> usize {
    store.leases()
}

/// What two calls may differ in: the version, and the UID of what is made.
fn comparable(mut answer: Value, known: &HashSet<String>) -> Value {
    match &mut answer {
        Value::Object(fields) => {
            fields.remove("resourceVersion");
            if fields.get("uid").is_some_and(|uid| !known.contains(uid.as_str().unwrap())) {
                fields.insert("uid".into(), "new".into());
            }
            fields.values_mut().for_each(|field| *field = comparable(field.take(), known));
        }
        Value::Array(items) => {
            for item in items {
                *item = comparable(item.take(), known);
            }
        }
        _ => {}
    }
    answer
}

fn versions(answer: &Value, found: &mut Vec<u64>) {
    let version = answer.get("resourceVersion").and_then(Value::as_str);
    found.extend(version.map(|version| version.parse::<u64>().unwrap()));
    match answer {
        Value::Object(fields) => fields.values().for_each(|field| versions(field, found)),
        Value::Array(items) => items.iter().for_each(|item| versions(item, found)),
        _ => {}
    }
}

/// What is done to the pods, dry or not.
type Call = fn(&Objects, bool) -> Result<Value>;

fn new(pods: &Objects, dry_run: bool, object: Value) -> Result<Value> {
    let options = CreateOptions { dry_run, ..CreateOptions::default() };
    pods.create("default", object, &options)
}

fn living(pods: &Objects, dry_run: bool, ttl: u64) -> Result<Value> {
    let options = CreateOptions { dry_run, ttl: Some(ttl), ..CreateOptions::default() };
    pods.create("default", pod("new"), &options)
}

fn of_version(pods: &Objects, dry_run: bool, version: &str) -> Result<Value> {
    new(pods, dry_run, with(pod("new"), &["metadata", "resourceVersion"], version))
}

/// Puts what is there, or else a new pod, with one field changed.
fn put(
    pods: &Objects,
    dry_run: bool,
    name: &str,
    path: &[&str],
    value: impl Into<Value>,
) -> Result<Value> {
    put_with(pods, name, path, value, &UpdateOptions { dry_run, ..UpdateOptions::default() })
}

fn put_with(
    pods: &Objects,
    name: &str,
    path: &[&str],
    value: impl Into<Value>,
    options: &UpdateOptions,
) -> Result<Value> {
    let object = with(get(pods, name).unwrap_or_else(|_| pod(name)), path, value);
    let (object, is_new) = pods.update("default", name, object, options)?;
    Ok(json!([object, is_new]))
}

fn patched(
    pods: &Objects,
    dry_run: bool,
    name: &str,
    of: PatchType,
    patch: Value,
) -> Result<Value> {
    let options =
        PatchOptions { dry_run, field_manager: "patcher".into(), ..PatchOptions::default() };
    let patch = patch.to_string();
    let (object, is_new) = pods.patch("default", name, of, patch.as_bytes(), &options)?;
    Ok(json!([object, is_new]))
}

fn gone(pods: &Objects, dry_run: bool, name: &str, options: &DeleteOptions) -> Result<Value> {
    let options = DeleteOptions { dry_run, ..options.clone() };
    let deletion = pods.delete("default", name, &options)?;
    let (is_deleted, has_revision) = (deletion.is_deleted, deletion.mod_revision.is_some());
    Ok(json!([is_deleted, has_revision, deletion.object.clone(), deletion.into_answer()]))
}

fn text(characters: usize) -> String {
    "x".repeat(characters)
}

fn deep() -> Value {
    (1..120).fold(json!([]), |inner, _| json!([inner]))
}

fn wants(uid: Option<&str>, version: Option<&str>) -> Preconditions {
    Preconditions { uid: uid.map(Into::into), resource_version: version.map(Into::into) }
}

const SPEC: &[&str] = &["spec", "more"];
const VERSION: &[&str] = &["metadata", "resourceVersion"];

/// Makes each call dry, then in earnest, and compares the ends, which are of this code; 0 for no failure.
fn check(strategy: fn() -> KindStrategy, table: &[(&str, u16, Call)]) {
    for (what, code, call) in table {
        let (store, pods) = world(strategy());
        let listed = pods.list("default", &ListOptions::default()).unwrap().items;
        let uids = listed.iter().map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned());
        let known: HashSet<_> = uids.collect();
        let before = state(&store);
        let dry = call(&pods, true);
        assert_eq!(state(&store), before, "{what} has written");
        let done = call(&pods, false);
        match (dry, done) {
            (Ok(dry), Ok(done)) => {
                assert_eq!(*code, 0, "{what}: {dry}");
                let mut found = Vec::new();
                versions(&dry, &mut found);
                assert!(found.iter().all(|version| *version <= before.0), "{what}: {found:?}");
                assert_eq!(comparable(dry, &known), comparable(done, &known), "{what}");
            }
            (Err(dry), Err(done)) => {
                assert_eq!((dry.code(), &dry), (*code, &done), "{what}");
                assert_eq!(state(&store), before, "{what}: what is refused writes nothing");
            }
            (dry, done) => panic!("{what}: {dry:?}, and then {done:?}"),
        }
    }
}

#[test]
fn dry_runs_end_as_the_calls_do() {
    let create: &[(&str, u16, Call)] = &[
        ("one", 0, |pods, dry| new(pods, dry, pod("new"))),
        ("of version empty", 0, |pods, dry| of_version(pods, dry, "")),
        ("of version 0", 0, |pods, dry| of_version(pods, dry, "0")),
        ("of no version", 0, |pods, dry| of_version(pods, dry, "abc")),
        ("of a version", 400, |pods, dry| of_version(pods, dry, "1")),
        ("that lives", 0, |pods, dry| living(pods, dry, 300)),
        ("that lives too long", 400, |pods, dry| living(pods, dry, 1 << 40)),
        ("taken", 409, |pods, dry| new(pods, dry, pod("web"))),
        ("taken by what goes", 409, |pods, dry| new(pods, dry, pod("going"))),
        ("taken by what nobody can read", 409, |pods, dry| {
            let options = CreateOptions { dry_run: dry, ..CreateOptions::default() };
            pods.create("other", pod("broken"), &options)
        }),
        ("not valid", 422, |pods, dry| new(pods, dry, pod("A"))),
        ("too large", 413, |pods, dry| new(pods, dry, with(pod("new"), SPEC, text(2_000)))),
        ("too deep", 400, |pods, dry| new(pods, dry, with(pod("new"), SPEC, deep()))),
        ("of too long a key", 400, |pods, dry| new(pods, dry, pod(&text(60)))),
    ];
    check(KindStrategy::new, create);
    let update: &[(&str, u16, Call)] = &[
        ("a change", 0, |pods, dry| put(pods, dry, "web", SPEC, 1)),
        ("no change", 0, |pods, dry| put(pods, dry, "kept", &["spec", "nodeName"], "machine")),
        ("of another version", 409, |pods, dry| put(pods, dry, "web", VERSION, "1")),
        ("of no version", 422, |pods, dry| put(pods, dry, "web", VERSION, "abc")),
        ("whatever the version", 0, |pods, dry| put(pods, dry, "web", VERSION, "")),
        ("of another UID", 409, |pods, dry| put(pods, dry, "web", &["metadata", "uid"], "other")),
        ("where the UID is another", 409, |pods, dry| {
            let preconditions = wants(Some("other"), None);
            let options = UpdateOptions { dry_run: dry, preconditions, ..UpdateOptions::default() };
            put_with(pods, "kept", SPEC, 1, &options)
        }),
        ("where the version is another", 409, |pods, dry| {
            let preconditions = wants(None, Some("1"));
            let options = UpdateOptions { dry_run: dry, preconditions, ..UpdateOptions::default() };
            put_with(pods, "kept", SPEC, 1, &options)
        }),
        ("of what is not there", 404, |pods, dry| put(pods, dry, "new", SPEC, 1)),
        ("that makes it", 0, |pods, dry| {
            let options = UpdateOptions {
                dry_run: dry,
                force_allow_create: true,
                ..UpdateOptions::default()
            };
            put_with(pods, "new", SPEC, 1, &options)
        }),
        ("that does not make it again", 409, |pods, dry| {
            let options = UpdateOptions {
                dry_run: dry,
                force_allow_create: true,
                ..UpdateOptions::default()
            };
            put_with(pods, "new", VERSION, "3", &options)
        }),
        ("of what nobody can read", 500, |pods, dry| {
            let options = UpdateOptions { dry_run: dry, ..UpdateOptions::default() };
            Ok(pods.update("other", "broken", pod("broken"), &options)?.0)
        }),
        ("not valid", 422, |pods, dry| {
            put(pods, dry, "web", &["metadata", "labels"], json!({"a b": "c"}))
        }),
        ("too large", 413, |pods, dry| put(pods, dry, "kept", SPEC, text(2_000))),
        ("too deep", 400, |pods, dry| put(pods, dry, "kept", SPEC, deep())),
        ("that lives too long", 400, |pods, dry| {
            let options =
                UpdateOptions { dry_run: dry, ttl: Some(1 << 40), ..UpdateOptions::default() };
            put_with(pods, "kept", SPEC, 1, &options)
        }),
        ("that lives for ever", 0, |pods, dry| {
            let options = UpdateOptions { dry_run: dry, ttl: Some(0), ..UpdateOptions::default() };
            put_with(pods, "leased", &["spec", "nodeName"], "machine", &options)
        }),
        ("of the last finalizer", 0, |pods, dry| {
            put(pods, dry, "going", &["metadata", "finalizers"], json!([]))
        }),
        ("of a status that is none", 404, |pods, dry| {
            let options = UpdateOptions { dry_run: dry, ..UpdateOptions::default() };
            pods.update_status("default", "web", pod("web"), &options)
        }),
    ];
    check(KindStrategy::new, update);
    check(
        || KindStrategy::new().create_on_update().with_status(),
        &[
            ("that makes it", 0, |pods, dry| put(pods, dry, "new", SPEC, 1)),
            ("of the status", 0, |pods, dry| {
                let object = with(get(pods, "web")?, &["status"], json!({"phase": "Running"}));
                let options = UpdateOptions { dry_run: dry, ..UpdateOptions::default() };
                pods.update_status("default", "web", object, &options)
            }),
        ],
    );
}

#[test]
fn dry_patches_end_as_the_patches_do() {
    use PatchType::{Apply, Json, Merge, StrategicMerge};
    let table: &[(&str, u16, Call)] = &[
        ("merged", 0, |pods, dry| patched(pods, dry, "kept", Merge, json!({"spec": {"a": 1}}))),
        ("of what is not there", 404, |pods, dry| patched(pods, dry, "new", Merge, json!({}))),
        ("too large", 413, |pods, dry| {
            patched(pods, dry, "web", Merge, json!({"spec": {"a": text(2_000)}}))
        }),
        ("too large with its managers", 0, |pods, dry| {
            let annotations = json!({"a": text(600)});
            patched(pods, dry, "web", Merge, json!({"metadata": {"annotations": annotations}}))
        }),
        ("that cannot be made", 422, |pods, dry| {
            patched(pods, dry, "web", Json, json!([{"op": "remove", "path": "/none"}]))
        }),
        ("of another version", 409, |pods, dry| {
            patched(pods, dry, "web", Merge, json!({"metadata": {"resourceVersion": "1"}}))
        }),
        ("of no type for it", 415, |pods, dry| {
            patched(pods, dry, "web", StrategicMerge, json!({}))
        }),
        ("applied anew", 0, |pods, dry| {
            let object = with(pod("new"), &["apiVersion"], "v1");
            patched(pods, dry, "new", Apply, with(object, &["kind"], "Pod"))
        }),
        ("applied in conflict", 409, |pods, dry| {
            let object = with(pod("web"), &["apiVersion"], "v1");
            let object = with(object, &["spec"], json!({"field-1": 7}));
            patched(pods, dry, "web", Apply, with(object, &["kind"], "Pod"))
        }),
        ("of the last finalizer", 0, |pods, dry| {
            patched(pods, dry, "going", Merge, json!({"metadata": {"finalizers": null}}))
        }),
    ];
    check(KindStrategy::new, table);
}

#[test]
fn dry_deletions_end_as_the_deletions_do() {
    let table: &[(&str, u16, Call)] = &[
        ("at once", 0, |pods, dry| gone(pods, dry, "web", &DeleteOptions::default())),
        ("of what is not there", 404, |pods, dry| {
            gone(pods, dry, "new", &DeleteOptions::default())
        }),
        ("of what is kept", 0, |pods, dry| gone(pods, dry, "kept", &DeleteOptions::default())),
        ("of what goes", 0, |pods, dry| gone(pods, dry, "going", &DeleteOptions::default())),
        ("where the UID is another", 409, |pods, dry| {
            let preconditions = wants(Some("other"), None);
            gone(pods, dry, "web", &DeleteOptions { preconditions, ..DeleteOptions::default() })
        }),
        ("where the version is another", 409, |pods, dry| {
            let preconditions = wants(None, Some("1"));
            gone(pods, dry, "kept", &DeleteOptions { preconditions, ..DeleteOptions::default() })
        }),
        ("of what nobody can read", 500, |pods, dry| {
            let options = DeleteOptions { dry_run: dry, ..DeleteOptions::default() };
            Ok(pods.delete("other", "broken", &options)?.object)
        }),
        ("soon", 0, |pods, dry| {
            let grace_period_seconds = Some(7);
            let options = DeleteOptions { grace_period_seconds, ..DeleteOptions::default() };
            gone(pods, dry, "web", &options)
        }),
        ("now", 0, |pods, dry| {
            let grace_period_seconds = Some(0);
            let options = DeleteOptions { grace_period_seconds, ..DeleteOptions::default() };
            gone(pods, dry, "web", &options)
        }),
        ("without what it owns", 0, |pods, dry| {
            let propagation_policy = Some(PropagationPolicy::Orphan);
            let options = DeleteOptions { propagation_policy, ..DeleteOptions::default() };
            gone(pods, dry, "web", &options)
        }),
        ("by options that contradict each other", 422, |pods, dry| {
            let options = DeleteOptions {
                propagation_policy: Some(PropagationPolicy::Orphan),
                orphan_dependents: Some(true),
                ..DeleteOptions::default()
            };
            gone(pods, dry, "web", &options)
        }),
        ("of all", 0, |pods, dry| {
            let options = DeleteOptions { dry_run: dry, ..DeleteOptions::default() };
            let list = pods.delete_collection("default", &options, &ListOptions::default())?;
            Ok(json!(list.items))
        }),
    ];
    check(KindStrategy::new, table);
    check(|| KindStrategy::new().grace_seconds(30), table);
    check(|| KindStrategy::new().return_deleted_object(), table);
    check(|| KindStrategy::new().garbage_collection(GarbageCollection::Orphan), table);
}

/// What is done to a storage, dry or not.
type Stored = fn(&Storage<Store>, &Value) -> std::result::Result<Value, StorageError>;

#[test]
fn dry_storages_end_as_storages_do() {
    fn changed(
        pods: &Storage<Store>,
        name: &str,
        wanted: &Preconditions,
        cached: Option<&Value>,
    ) -> std::result::Result<Value, StorageError> {
        let options = GuaranteedUpdateOptions { ignore_not_found: name == "new" };
        let mut change = |pod, _| Ok((with(pod, &["spec"], json!({"n": 7})), Some(100)));
        let key = format!("/pods/ns/{name}");
        pods.guaranteed_update(&key, options, wanted, &mut change, cached)
    }
    let table: &[(&str, Option<Kind>, Stored)] = &[
        ("create", None, |pods, _| pods.create("/pods/ns/new", json!({"metadata": {}}), 7)),
        ("taken", Some(Kind::KeyExists), |pods, _| {
            pods.create("/pods/ns/a", json!({"metadata": {}}), 7)
        }),
        ("versioned", Some(Kind::Refused), |pods, old| pods.create("/pods/ns/c", old.clone(), 0)),
        ("no object", Some(Kind::Refused), |pods, _| pods.create("/pods/ns/c", json!(7), 0)),
        ("change", None, |pods, _| changed(pods, "a", &Preconditions::none(), None)),
        ("change of what was", None, |pods, old| {
            changed(pods, "a", &Preconditions::none(), Some(old))
        }),
        ("change of nothing", None, |pods, _| changed(pods, "new", &Preconditions::none(), None)),
        ("not there", Some(Kind::KeyNotFound), |pods, _| {
            changed(pods, "c", &Preconditions::none(), None)
        }),
        ("unmet", Some(Kind::InvalidObject), |pods, old| {
            changed(pods, "a", &Preconditions::uid("other"), Some(old))
        }),
        ("what was", Some(Kind::InvalidObject), |pods, old| {
            let wanted = wants(None, old["metadata"]["resourceVersion"].as_str());
            changed(pods, "a", &wanted, Some(old))
        }),
        ("unreadable", Some(Kind::Internal), |pods, _| {
            changed(pods, "broken", &Preconditions::none(), None)
        }),
        ("delete", None, |pods, old| {
            let none = Preconditions::none();
            Ok(pods.delete("/pods/ns/a", &none, &mut |_| Ok(()), Some(old))?.object)
        }),
        ("delete of nothing", Some(Kind::KeyNotFound), |pods, _| {
            let none = Preconditions::none();
            Ok(pods.delete("/pods/ns/c", &none, &mut |_| Ok(()), None)?.object)
        }),
        ("not allowed", Some(Kind::Refused), |pods, old| {
            let refuse = &mut |_: &Value| Err(annals::object::Status::bad_request("no").into());
            Ok(pods.delete("/pods/ns/a", &Preconditions::none(), refuse, Some(old))?.object)
        }),
    ];
    for (what, kind, call) in table {
        for is_stale in [false, true] {
            let world = World::new();
            let (key, old) = world.make(&super::world::pod("ns", "a"));
            world.update(&key, |pod| pod["spec"] = json!({"n": 1}));
            world.store.put("/registry/pods/ns/broken", "no prefix").unwrap();
            world.transformer.set_stale(is_stale);
            let before = state(&world.store);
            let dry = call(&world.pods.clone().dry_run(), &old);
            assert_eq!(state(&world.store), before, "{what} has written");
            let done = call(&world.pods, &old);
            match (dry, done) {
                (Ok(dry), Ok(done)) => {
                    assert_eq!(*kind, None, "{what}");
                    let known = HashSet::new();
                    assert_eq!(comparable(dry, &known), comparable(done, &known), "{what}");
                }
                (Err(dry), Err(done)) => {
                    assert_eq!((Some(dry.kind()), &dry), (*kind, &done), "{what}");
                    let told = (status::<()>(Err(dry)), status::<()>(Err(done)));
                    assert_eq!(told.0, told.1, "{what}");
                }
                (dry, done) => panic!("{what}: {dry:?}, and then {done:?}"),
            }
        }
    }
}
