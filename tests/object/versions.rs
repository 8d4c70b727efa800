//! Versions: where they come from, and what may be made of them.
//!
//! row 1: versions_are_revisions_of_the_whole_store
//! row 5: the_versioner_has_five_operations
//! row 8: the_versioner_has_five_operations
//! row 15: a_version_that_cannot_be_set_is_no_obstacle
//! row 16: the_four_versions_of_etcd
//! row 39: versions_are_not_stored
//! row 42: versions_may_look_otherwise

use std::sync::Arc;

use annals::object::{
    ApiVersioner, GetOptions, GroupResource, GuaranteedUpdateOptions, ListOptions, Preconditions,
    Result, Status, Storage, Versioner, WatchOptions,
};
use serde_json::{Value, json};

use super::world::{World, expect, number, pod, recursive, version, with};

#[test]
fn versions_are_revisions_of_the_whole_store() {
    let world = World::new();
    let services = Storage::new(
        world.store.clone(),
        "/registry",
        GroupResource::new("", "services"),
        "/services",
    );
    let mut last = world.store.revision();
    let mut check = |object: &Value| {
        assert_eq!((number(object), world.store.revision()), (last + 1, last + 1));
        last += 1;
    };
    check(&world.make(&pod("ns", "a")).1);
    check(&services.create("/services/a", json!({"metadata": {"name": "a"}}), 0).unwrap());
    check(&world.update("/pods/ns/a", |pod| pod["n"] = 1.into()));
    check(&world.make(&pod("ns", "b")).1);
    check(&world.delete("/pods/ns/a"));
    // The version of an object is the revision of its last change.
    let kv = world.store.get("/registry/pods/ns/b").unwrap().unwrap();
    assert_eq!(kv.mod_revision, number(&world.get("/pods/ns/b").unwrap()));
}

#[test]
fn the_versioner_has_five_operations() {
    let versioner = ApiVersioner;
    let mut object = pod("ns", "a");
    versioner.update_object(&mut object, 7).unwrap();
    assert_eq!((version(&object), versioner.object_resource_version(&object)), ("7", Ok(7)));
    versioner.update_object(&mut object, 0).unwrap();
    assert_eq!((version(&object), versioner.object_resource_version(&object)), ("", Ok(0)));
    assert!(versioner.update_object(&mut json!(1), 7).is_err());

    let mut list = json!({"items": []});
    versioner.update_list(&mut list, 7, "token", Some(3)).unwrap();
    assert_eq!(
        list["metadata"],
        json!({"resourceVersion": "7", "continue": "token", "remainingItemCount": 3})
    );
    versioner.update_list(&mut list, 8, "", None).unwrap();
    assert_eq!(list["metadata"], json!({"resourceVersion": "8"}));
    let zero = versioner.update_list(&mut list, 0, "", None).unwrap_err();
    assert!(zero.message().ends_with("illegal resource version from storage: 0"), "{zero}");

    let mut object = json!({"metadata": {"resourceVersion": "7", "selfLink": "x", "name": "a"}});
    versioner.prepare_for_storage(&mut object).unwrap();
    assert_eq!(object, json!({"metadata": {"name": "a"}}));

    for (text, parsed) in [("", 0), ("0", 0), ("1", 1), ("18446744073709551615", u64::MAX)] {
        assert_eq!(versioner.parse_resource_version(text), Ok(parsed));
    }
    for (text, why) in [
        ("a", "invalid syntax"),
        ("-1", "invalid syntax"),
        ("+1", "invalid syntax"),
        (" 1", "invalid syntax"),
        ("18446744073709551616", "value out of range"),
    ] {
        let bad = versioner.parse_resource_version(text).unwrap_err();
        assert_eq!(bad.code(), 422);
        let message =
            format!("Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: {why}");
        assert_eq!(bad.details().causes[0].message, message);
    }
    for bad in [
        json!({"metadata": {"resourceVersion": 7}}),
        json!({"metadata": {"resourceVersion": "x"}}),
        json!(1),
    ] {
        assert!(versioner.object_resource_version(&bad).is_err(), "{bad}");
    }
}

#[test]
fn versions_are_not_stored() {
    let world = World::new();
    let (key, _) = world.make(&pod("ns", "a"));
    let updated = world.update(&key, |pod| {
        assert_ne!(version(pod), "", "what is read has one");
        pod["n"] = 1.into();
    });
    world.check_stored(&key);
    assert_eq!(number(&updated), world.store.revision());
}

/// Of one key: the revision of the store, and its own three; and its value as of a revision.
#[test]
fn the_four_versions_of_etcd() {
    let world = World::new();
    let (key, first) = world.make(&pod("ns", "a"));
    world.make(&pod("ns", "b"));
    let second = world.update(&key, |pod| pod["n"] = 1.into());
    world.make(&pod("ns", "c"));
    let kv = world.store.get(format!("/registry{key}")).unwrap().unwrap();
    let four = (world.store.revision(), kv.mod_revision, kv.create_revision, kv.version);
    assert_eq!(four, (number(&second) + 1, number(&second), number(&first), 2));
    for (at, object) in
        [(number(&first), &first), (number(&second) - 1, &first), (number(&second), &second)]
    {
        let wanted = Some(annals::object::ResourceVersionMatch::Exact);
        let options = ListOptions {
            resource_version: at.to_string(),
            resource_version_match: wanted,
            ..ListOptions::default()
        };
        assert_eq!(world.pods.list(&key, &options).unwrap().items, std::slice::from_ref(object));
    }
}

/// Fails wherever it is asked to set a version.
struct Failing;

impl Versioner for Failing {
    fn update_object(&self, _: &mut Value, _: u64) -> Result<()> {
        Err(Status::internal("never"))
    }

    fn update_list(&self, list: &mut Value, at: u64, token: &str, left: Option<u64>) -> Result<()> {
        ApiVersioner.update_list(list, at, token, left)
    }

    fn prepare_for_storage(&self, object: &mut Value) -> Result<()> {
        ApiVersioner.prepare_for_storage(object)
    }

    fn object_resource_version(&self, object: &Value) -> Result<u64> {
        ApiVersioner.object_resource_version(object)
    }

    fn parse_resource_version(&self, text: &str) -> Result<u64> {
        ApiVersioner.parse_resource_version(text)
    }
}

#[test]
fn a_version_that_cannot_be_set_is_no_obstacle() {
    let world = World::new();
    let (key, _) = world.make(&pod("ns", "a"));
    let World { pods, store, transformer, .. } = world;
    drop(pods);
    let pods = Storage::new(store, "/registry", GroupResource::new("", "pods"), "/pods")
        .transformer(transformer)
        .versioner(Arc::new(Failing));
    assert_eq!(pods.get(&key, &GetOptions::default()).unwrap(), pod("ns", "a"));
    assert_eq!(pods.list("/pods", &recursive()).unwrap().items, [pod("ns", "a")]);
}

/// Versions that are not numbers: clients hand them back as they are, and only the versioner reads them.
struct Tagged;

impl Versioner for Tagged {
    fn update_object(&self, object: &mut Value, at: u64) -> Result<()> {
        ApiVersioner.update_object(object, at)?;
        if at != 0 {
            object["metadata"]["resourceVersion"] = format!("v{at}").into();
        }
        Ok(())
    }

    fn update_list(&self, list: &mut Value, at: u64, token: &str, left: Option<u64>) -> Result<()> {
        ApiVersioner.update_list(list, at, token, left)?;
        self.update_object(list, at)
    }

    fn prepare_for_storage(&self, object: &mut Value) -> Result<()> {
        ApiVersioner.prepare_for_storage(object)
    }

    fn object_resource_version(&self, object: &Value) -> Result<u64> {
        self.parse_resource_version(version(object))
    }

    fn parse_resource_version(&self, text: &str) -> Result<u64> {
        match text {
            "" | "0" => Ok(0),
            _ => ApiVersioner.parse_resource_version(text.strip_prefix('v').unwrap_or("none")),
        }
    }
}

#[test]
fn versions_may_look_otherwise() {
    let world = World::new();
    let World { pods, store, .. } = world;
    drop(pods);
    let things = Storage::new(store, "/registry", GroupResource::new("", "things"), "/things")
        .versioner(Arc::new(Tagged));
    let made = things.create("/things/a", json!({"metadata": {"name": "a"}}), 0).unwrap();
    assert_eq!(version(&made), "v2");
    let list = things.list("/things", &recursive()).unwrap();
    assert_eq!((&list.resource_version[..], &list.items), ("v2", &vec![made.clone()]));
    let options = WatchOptions {
        resource_version: list.resource_version.clone(),
        recursive: true,
        ..Default::default()
    };
    let mut watch = things.watch("/things", &options).unwrap();
    let dry = things.clone().dry_run();
    let thing = |version: &str| json!({"metadata": {"name": "b", "resourceVersion": version}});
    assert!(dry.create("/things/b", thing("v1"), 0).is_err());
    assert_eq!(version(&dry.create("/things/b", thing("1"), 0).unwrap()), "");
    let mut change = |thing, _| Ok((with(thing, &["n"], 1), None));
    let (options, none) = (GuaranteedUpdateOptions::default(), Preconditions::none());
    let would = dry.guaranteed_update("/things/a", options, &none, &mut change, None).unwrap();
    assert_eq!((version(&would), &would["n"]), ("v2", &json!(1)));
    let wanted = Preconditions { resource_version: Some("v2".into()), ..Preconditions::none() };
    let gone = things.delete("/things/a", &wanted, &mut |_| Ok(()), Some(&made)).unwrap().object;
    assert_eq!(version(&gone), "v3");
    expect(&mut watch, annals::object::WatchEventKind::Deleted, &gone);
    let limit = ListOptions { limit: 1, resource_version: list.resource_version, ..recursive() };
    assert_eq!(things.list("/things", &limit).unwrap().items, [made]);
    assert!(
        things
            .list("/things", &ListOptions { resource_version: "2".into(), ..recursive() })
            .is_err()
    );
}
