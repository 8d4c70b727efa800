//! Single objects: the cases of `k8s.io/apiserver/pkg/storage/testing/store_tests.go` for create, get and delete.
//!
//! row 9: the_operations_of_the_interface_are_there
//! row 11: objects_are_got
//! row 14: objects_are_got, keys_lead_nowhere_else, keys_belong_to_their_resource
//! row 23: what_is_deleted_and_made_again_is_another
//! row 26: objects_are_got
//! row 28: objects_are_created
//! row 37: deletions_answer_with_their_revision, deletions_go_on_with_what_is_there
//! row 44: objects_are_got

use annals::Options;
use annals::object::{
    GetOptions, GroupResource, GuaranteedUpdateOptions, ListOptions, Preconditions, Reason, Status,
    Storage, StorageError, StorageErrorKind as Kind, WatchOptions,
};
use serde_json::{Value, json};

use super::under::Store;
use super::world::{World, ignoring, number, pod, recursive, status, version, with};

fn refuse(_: &Value) -> Result<(), StorageError> {
    Err(Status::bad_request("validation error").into())
}

/// Lets go only those whose node is this.
fn only_on(node: &'static str, calls: &mut u32) -> impl FnMut(&Value) -> Result<(), StorageError> {
    move |pod| {
        *calls += 1;
        if pod["spec"]["nodeName"] == node { Ok(()) } else { refuse(pod) }
    }
}

#[test]
fn storage_can_be_shared_between_threads() {
    fn check<T: Send + Sync + std::fmt::Debug>(_: &T) {}
    let world = World::new();
    check(&world.pods);
    assert_eq!(format!("{:?}", world.pods), "Storage(pods at /registry/pods)");
}

/// `RunTestCreate`, `RunTestCreateWithKeyExist`.
#[test]
fn objects_are_created() {
    let world = World::new();
    let key = "/pods/ns/foo";
    assert_eq!(world.get(key).unwrap_err().kind(), Kind::KeyNotFound);
    let linked = with(pod("ns", "foo"), &["metadata", "selfLink"], "/api/v1/pods/foo");
    let made = world.pods.create(key, linked, 0).unwrap();
    assert_eq!(number(&made), world.store.revision(), "the revision of the write");
    assert_eq!(world.get(key).unwrap(), made);
    world.check_stored(key);

    let refused = world.pods.create(
        "/pods/ns/bar",
        with(pod("ns", "bar"), &["metadata", "resourceVersion"], "1"),
        0,
    );
    let refused = status(refused);
    assert_eq!(
        (refused.code(), refused.message()),
        (400, "resourceVersion should not be set on objects to be created")
    );
    // One that is none is no obstacle, and is not stored.
    for none in [json!("0"), json!(""), json!("abc"), Value::Null] {
        let made = world.pods.create(
            "/pods/ns/bar",
            with(pod("ns", "bar"), &["metadata", "resourceVersion"], none),
            0,
        );
        assert_eq!(number(&made.unwrap()), world.store.revision());
        world.check_stored("/pods/ns/bar");
        world.delete("/pods/ns/bar");
    }
    let before = world.store.revision();
    let exists = world.pods.create(key, pod("ns", "foo"), 0).unwrap_err();
    assert_eq!(exists.kind(), Kind::KeyExists);
    assert_eq!(
        exists.to_string(),
        "StorageError: key exists, Code: 2, Key: /registry/pods/ns/foo, ResourceVersion: 0, AdditionalErrorMsg: "
    );
    let exists = status::<Value>(Err(exists));
    assert_eq!((exists.code(), exists.message()), (409, "pods \"a\" already exists"));
    for nothing in [json!(5), json!("a"), json!([]), Value::Null] {
        assert!(world.pods.create("/pods/ns/none", nothing, 0).is_err());
    }
    assert_eq!(world.store.revision(), before, "nothing was written");
}

/// `RunTestGet`.
#[test]
fn objects_are_got() {
    let world = World::new();
    let (key, made) = world.make(&pod("ns", "foo"));
    let stored = world.update(&key, |pod| pod["metadata"]["annotations"] = json!({"a": "1"}));
    let last = world.make(&pod("ns", "bar")).1;
    let get = |key: &str, resource_version: &str, ignore_not_found| {
        world
            .pods
            .get(key, &GetOptions { resource_version: resource_version.into(), ignore_not_found })
    };
    for at_least in ["", "0", version(&made), version(&stored), version(&last)] {
        assert_eq!(get(&key, at_least, false).unwrap(), stored, "{at_least}");
    }
    let future = status(get(&key, &i64::MAX.to_string(), false));
    assert_eq!((future.code(), future.reason()), (504, Reason::Timeout));
    assert_eq!(
        future.message(),
        format!("Timeout: Too large resource version: {}, current: {}", i64::MAX, last_of(&world))
    );
    assert_eq!(
        status(get("/pods/none", &i64::MAX.to_string(), true)).code(),
        504,
        "it may be there then"
    );
    let bad = status(get(&key, "abc", false));
    assert_eq!(
        (bad.code(), bad.message()),
        (
            400,
            "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax"
        )
    );
    let none = get("/pods/none", "", false).unwrap_err();
    assert_eq!((none.kind(), none.key()), (Kind::KeyNotFound, "/registry/pods/none"));
    assert_eq!(status::<Value>(Err(none)).message(), "pods \"a\" not found");
    assert_eq!(get("/pods/none", "", true).unwrap(), Value::Null);
}

fn last_of(world: &World) -> u64 {
    world.store.revision()
}

/// `TestInvalidKeys`.
#[test]
fn keys_lead_nowhere_else() {
    let world = World::new();
    let none = Preconditions::none();
    let keep = &mut |pod: Value, _| Ok((pod, None));
    for key in ["", "/", "..", "/pods/../secrets/a", "/pods/./a", "/pods/..", "/secrets/a"] {
        let refused = [
            status(world.get(key)),
            status(world.pods.create(key, pod("ns", "a"), 0)),
            status(world.pods.delete(key, &none, &mut |_| Ok(()), None)),
            status(world.pods.guaranteed_update(
                key,
                GuaranteedUpdateOptions::default(),
                &none,
                keep,
                None,
            )),
            status(world.pods.list(key, &recursive())),
            status(world.pods.watch(key, &WatchOptions::default()).map(drop)),
            status(world.pods.count(key)),
        ];
        assert!(refused.iter().all(|status| status.code() == 400), "{refused:?}");
    }
    assert_eq!(world.store.revision(), 1);
}

/// `RunTestKeySchema`: which keys belong to a resource.
#[test]
fn keys_belong_to_their_resource() {
    let world = World::new();
    let resource = GroupResource::new("", "pods");
    let pods = Storage::new(world.store.clone(), "registry/", resource, "/pods/");
    let (empty, invalid, lacks) = ("empty key", "invalid key", "lacks resource prefix");
    let table = [
        ("", empty, empty),
        ("/", empty, empty),
        (".", invalid, invalid),
        ("..", invalid, invalid),
        ("pods", lacks, lacks),
        ("/pods", lacks, ""),
        ("/pods.apps", lacks, lacks),
        ("/foo/", lacks, lacks),
        ("/pods/", "", ""),
        ("/pods/name", "", ""),
        ("/pods/namespace", "", ""),
        ("/pods/namespace/name", "", ""),
    ];
    let check = |key: &str, refusal: &str, answer: Result<(), StorageError>| match answer {
        Ok(()) => assert_eq!(refusal, "", "{key}"),
        Err(error) => {
            assert!(!refusal.is_empty() && error.to_string().contains(refusal), "{key}: {error}");
            assert_eq!(status::<()>(Err(error)).code(), 400);
        }
    };
    let none = &Preconditions::none();
    for (key, one, all) in table {
        let keep = &mut |pod: Value, _| Ok((pod, None));
        let options = GuaranteedUpdateOptions::default();
        check(key, one, pods.create(key, pod("ns", "a"), 0).map(drop));
        check(key, one, pods.get(key, &GetOptions::default()).map(drop));
        check(key, one, pods.guaranteed_update(key, options, none, keep, None).map(drop));
        check(key, one, pods.list(key, &ListOptions::default()).map(drop));
        check(key, one, pods.watch(key, &WatchOptions::default()).map(drop));
        check(key, all, pods.list(key, &recursive()).map(drop));
        check(key, all, pods.count(key).map(drop));
        let whole = WatchOptions { recursive: true, ..WatchOptions::default() };
        check(key, all, pods.watch(key, &whole).map(drop));
    }
    assert_eq!(pods.list("/pods", &recursive()).unwrap().items.len(), 4);
    assert_eq!(pods.list("/pods/namespace", &recursive()).unwrap().items.len(), 1);
    for (key, one, _) in table {
        check(key, one, pods.delete(key, none, &mut |_| Ok(()), None).map(drop));
    }
    assert_eq!(pods.count("/pods").unwrap(), 0);
}

/// `RunTestUnconditionalDelete`, `RunTestConditionalDelete`.
#[test]
fn deletions_answer_with_their_revision() {
    let world = World::new();
    let uid = |pod| with(pod, &["metadata", "uid"], "A");
    let (key, made) = world.make(&uid(pod("ns", "foo")));
    let delete =
        |key: &str, wanted: &Preconditions| world.pods.delete(key, wanted, &mut |_| Ok(()), None);
    let version_is = |version: &str| Preconditions {
        resource_version: Some(version.into()),
        ..Preconditions::none()
    };
    for (wanted, told) in [
        (Preconditions::uid("B"), "UID in precondition: B, UID in object meta: A".to_owned()),
        (
            version_is("1"),
            format!(
                "ResourceVersion in precondition: 1, ResourceVersion in object meta: {}",
                version(&made)
            ),
        ),
    ] {
        let refused = delete(&key, &wanted).unwrap_err();
        assert_eq!(refused.kind(), Kind::InvalidObject);
        let refused = status::<Value>(Err(refused));
        assert_eq!((refused.code(), refused.reason()), (409, Reason::Conflict));
        assert!(
            refused
                .message()
                .ends_with(&format!("AdditionalErrorMsg: Precondition failed: {told}")),
            "{refused}"
        );
    }
    for wanted in [Preconditions::uid("A"), Preconditions::none(), version_is("current")] {
        let (key, made) = world.make(&uid(pod("ns", "foo")));
        let wanted =
            if wanted.resource_version.is_some() { version_is(version(&made)) } else { wanted };
        let deleted = delete(&key, &wanted).unwrap();
        assert_eq!(deleted.mod_revision, number(&made));
        assert_eq!(number(&deleted.object), number(&made) + 1);
        assert_eq!(with(deleted.object, &["metadata", "resourceVersion"], version(&made)), made);
        assert_eq!(delete(&key, &wanted).unwrap_err().kind(), Kind::KeyNotFound);
        assert_eq!(world.store.revision(), number(&made) + 1, "and that wrote nothing");
    }
}

/// The tests of upstream from `RunTestDeleteWithSuggestion` to `RunTestPreconditionalDeleteWithOnlySuggestionPass`.
#[test]
fn deletions_go_on_with_what_is_there() {
    let none = &Preconditions::none();
    let on = |node: &'static str| move |pod: &mut Value| pod["spec"] = json!({"nodeName": node});
    let renamed = |uid: &'static str| move |pod: &mut Value| pod["metadata"]["uid"] = uid.into();
    let fresh = || {
        let world = World::new();
        let (key, made) = world.make(&with(pod("ns", "name"), &["metadata", "uid"], "myUID"));
        (world, key, made)
    };
    // What is suggested is what is there.
    let (world, key, made) = fresh();
    world.pods.delete(&key, none, &mut |_| Ok(()), Some(&made)).unwrap();
    // It is long gone.
    let gone = world.pods.delete(&key, none, &mut |_| Ok(()), Some(&made));
    assert_eq!(gone.unwrap_err().kind(), Kind::KeyNotFound);
    let absent = with(made, &["metadata", "resourceVersion"], "0");
    let gone = world.pods.delete(&key, none, &mut |_| Ok(()), Some(&absent));
    assert_eq!(gone.unwrap_err().kind(), Kind::KeyNotFound);
    // It has changed: what is there is deleted.
    let (world, key, made) = fresh();
    let updated = world.update(&key, on("a"));
    let deleted = world.pods.delete(&key, none, &mut |_| Ok(()), Some(&made)).unwrap();
    assert_eq!(
        (deleted.mod_revision, &deleted.object["spec"]),
        (number(&updated), &updated["spec"])
    );
    // It changes between the check and the deletion: it is checked again.
    let (world, key, _) = fresh();
    let mut calls = 0;
    let mut validate = |_: &Value| {
        calls += 1;
        if calls == 1 {
            world.update(&key, on("a"));
        }
        Ok(())
    };
    let deleted = world.pods.delete(&key, none, &mut validate, None).unwrap();
    assert_eq!((calls, &deleted.object["spec"]["nodeName"]), (2, &json!("a")));
    // It is refused, and is what is there: once is enough.
    let (world, key, made) = fresh();
    let mut calls = 0;
    let refused = world.pods.delete(&key, none, &mut only_on("a", &mut calls), Some(&made));
    assert_eq!(status(refused).message(), "validation error");
    assert_eq!(calls, 1);
    // It is refused, and what is there is not.
    world.update(&key, on("a"));
    let mut calls = 0;
    world.pods.delete(&key, none, &mut only_on("a", &mut calls), Some(&made)).unwrap();
    assert_eq!(calls, 2);
    // It is allowed, and what is there is not.
    let (world, key, _) = fresh();
    let old = world.update(&key, on("a"));
    let new = world.update(&key, on("b"));
    let mut calls = 0;
    let refused = world.pods.delete(&key, none, &mut only_on("a", &mut calls), Some(&old));
    assert_eq!((status(refused).message(), calls), ("validation error", 2));
    assert_eq!(world.get(&key).unwrap(), new);
    // The same with preconditions.
    let (world, key, made) = fresh();
    let other = world.update(&key, renamed("otherUID"));
    let refused =
        world.pods.delete(&key, &Preconditions::uid("myUID"), &mut |_| Ok(()), Some(&made));
    assert_eq!(refused.unwrap_err().kind(), Kind::InvalidObject);
    assert_eq!(world.get(&key).unwrap(), other);
    world.pods.delete(&key, &Preconditions::uid("otherUID"), &mut |_| Ok(()), Some(&made)).unwrap();
    assert_eq!(world.get(&key).unwrap_err().kind(), Kind::KeyNotFound);
}

/// `RunTestTransformationFailure`, and values that are no objects.
#[test]
fn what_cannot_be_read_is_neither_changed_nor_deleted() {
    let world = World::new();
    let none = &Preconditions::none();
    world.make(&pod("first", "bar"));
    world.transformer.set("otherprefix!");
    let (key, made) = world.make(&pod("second", "baz"));
    world.transformer.set("test!");
    world.store.put("/registry/pods/third/x", "test![1]").unwrap();
    for (key, kind) in [(&key[..], Kind::Internal), ("/pods/third/x", Kind::CorruptObject)] {
        let keep = &mut |pod: Value, _| Ok((pod, None));
        assert_eq!(world.get(key).unwrap_err().kind(), kind);
        let options = GuaranteedUpdateOptions { ignore_not_found: true };
        let update = world.pods.guaranteed_update(key, options, none, keep, None);
        assert_eq!(update.unwrap_err().kind(), kind);
        let update = world.pods.guaranteed_update(key, options, none, keep, Some(&made));
        assert_eq!(update.unwrap_err().kind(), kind);
        let before = world.store.revision();
        let deleted = world.pods.delete(key, none, &mut |_| Ok(()), None);
        assert_eq!(deleted.unwrap_err().kind(), kind);
        assert_eq!(world.store.revision(), before);
        assert_eq!(status(world.get(key)).code(), 500);
    }
    assert_eq!(status(world.pods.list("/pods", &recursive())).reason(), Reason::StoreReadError);
    assert_eq!(world.pods.count("/pods").unwrap(), 3);
}

/// The same bytes under the same key are another object, as its version says.
#[test]
fn what_is_deleted_and_made_again_is_another() {
    let world = World::new();
    let (key, made) = world.make(&pod("ns", "foo"));
    let bytes = world.raw(&key);
    world.delete(&key);
    let again = world.make(&pod("ns", "foo")).1;
    assert_eq!(world.raw(&key), bytes);
    let wanted =
        Preconditions { resource_version: Some(version(&made).into()), ..Preconditions::none() };
    let refused = world.pods.delete(&key, &wanted, &mut |_| Ok(()), None);
    assert_eq!(refused.unwrap_err().kind(), Kind::InvalidObject);
    // Between a read and its write, too.
    let mut seen = Vec::new();
    let mut update = |mut pod: Value, _| {
        seen.push(number(&pod));
        if seen.len() == 1 {
            world.delete(&key);
            world.make(&super::world::pod("ns", "foo"));
        }
        pod["spec"] = json!({"n": 1});
        Ok((pod, None))
    };
    let options = GuaranteedUpdateOptions::default();
    world.pods.guaranteed_update(&key, options, &Preconditions::none(), &mut update, None).unwrap();
    assert_eq!(seen, [number(&again), number(&again) + 2]);
}

#[test]
fn the_operations_of_the_interface_are_there() {
    let world = World::with(Options::new());
    let pods: &Storage<Store> = &world.pods;
    let none = Preconditions::none();
    let made = pods.create("/pods/ns/a", pod("ns", "a"), 0).unwrap();
    assert_eq!(pods.get("/pods/ns/a", &ignoring()).unwrap(), made);
    let mut count = |mut pod: Value, _| {
        pod["spec"] = json!({"n": 1});
        Ok((pod, None))
    };
    pods.guaranteed_update(
        "/pods/ns/a",
        GuaranteedUpdateOptions::default(),
        &none,
        &mut count,
        None,
    )
    .unwrap();
    assert_eq!(pods.list("/pods", &recursive()).unwrap().items.len(), 1);
    assert_eq!(pods.count("/pods").unwrap(), 1);
    let mut watch = pods.watch("/pods/ns/a", &WatchOptions::default()).unwrap();
    assert!(watch.next().is_some());
    pods.delete("/pods/ns/a", &none, &mut |_| Ok(()), None).unwrap();
    assert_eq!(pods.count("/pods").unwrap(), 0);
}
