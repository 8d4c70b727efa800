//! Versioned objects: what there is of a kind, who has changed it, what happens to it, and what it was before.
//!
//! Run with `cargo run --example objects --features encryption`.

#![allow(clippy::print_stdout, reason = "an example prints what it shows")]
#![allow(
    clippy::default_trait_access,
    reason = "what is not said is the default, whatever it is of"
)]
#![allow(clippy::unwrap_used, reason = "what has to be refused is refused")]

use std::error::Error;
use std::sync::Arc;

use annals::Store;
use annals::object::{
    AesGcm, EncryptionKey, Kind, KindStrategy, ListOptions, ObjectState, Objects, PatchOptions,
    PatchType, Predicate, Reason, Schema, UpdateOptions, WatchEventKind, WatchOptions, meta,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let store = Arc::new(Store::open(directory.path())?);
    // `status` is written apart from the rest, and lists may be selected by how far along a plant is.
    let strategy = KindStrategy::new().with_status().field("status.phase");
    let plants = Objects::new(Arc::clone(&store), Kind::new("garden.io/v1", "Plant", "plants"))
        .strategy(strategy)
        .schema(Schema::from_openapi(&schema())?);

    let first = who_comes_second_is_told(&plants)?;
    as_a_type(&plants)?;
    what_happens(&plants, &first)?;
    who_wants_what(&plants)?;
    as_it_was(&plants, &first)?;
    nothing_is_gone_too_early(&plants)?;
    secrets(&store)
}

/// An object has a version, which changes with each write. Whoever writes says which one he has read.
fn who_comes_second_is_told(plants: &Objects) -> Result<String, Box<dyn Error>> {
    let rose = json!({
        "metadata": {"name": "rose", "labels": {"bed": "south"}},
        "spec": {"water": 1},
    });
    let made = plants.create("garden", rose, &Default::default())?;
    println!("made at version {}: {}", meta::resource_version(&made), made["spec"]);

    let (mut mine, mut other) = (made.clone(), made.clone());
    mine["spec"]["water"] = 2.into();
    other["spec"]["water"] = 3.into();
    plants.update("garden", "rose", mine, &Default::default())?;
    let refused = plants.update("garden", "rose", other, &Default::default()).unwrap_err();
    println!("the other one gets {}: {refused}", refused.code());
    assert_eq!(refused.reason(), Reason::Conflict);

    // Where it does not matter what it was made from: for certain, however many write.
    plants.modify("garden", "rose", &UpdateOptions::default(), |rose| {
        rose["spec"]["water"] = (rose["spec"]["water"].as_u64().unwrap_or(0) + 1).into();
        Ok(())
    })?;
    Ok(meta::resource_version(&made).to_owned())
}

#[derive(Deserialize, Serialize)]
struct Plant {
    metadata: Value,
    spec: Spec,
    // What the type does not know stays where it is.
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

#[derive(Deserialize, Serialize)]
struct Spec {
    water: u32,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

/// The same objects as values of a type.
fn as_a_type(plants: &Objects) -> Result<(), Box<dyn Error>> {
    let typed = plants.typed::<Plant>();
    let fern = Plant {
        metadata: json!({"name": "fern", "labels": {"bed": "north"}}),
        spec: Spec { water: 5, rest: Default::default() },
        rest: Default::default(),
    };
    typed.create("garden", &fern, &Default::default())?;

    let predicate = Predicate::parse("bed in (north, west)", "status.phase!=Dead")?;
    let options = ListOptions { predicate, limit: 500, ..Default::default() };
    let wet = typed.list("garden", &options)?;
    println!("{} at version {} in the north and west", wet.items.len(), wet.resource_version);
    assert_eq!(wet.items[0].spec.water, 5);
    Ok(())
}

/// A watch goes on from a version: nothing is told twice, nothing is left out.
fn what_happens(plants: &Objects, from: &str) -> Result<(), Box<dyn Error>> {
    let options = WatchOptions { resource_version: from.to_owned(), ..Default::default() };
    let watch = plants.watch("garden", &options)?; // an iterator, for a thread of its own
    let mut told = Vec::new();
    for event in watch {
        if let WatchEventKind::Error(status) = event.kind {
            return Err(status.into()); // with 410: list anew, and watch from the version of the list
        }
        println!("{:?} {} {}", event.kind, meta::name(&event.object), event.object["spec"]);
        told.push(event.kind);
        if meta::name(&event.object) == "fern" {
            break;
        }
    }
    assert_eq!(told.len(), 3);
    Ok(())
}

/// With server-side apply each says what he wants, and no more; what another owns he gets by force alone.
fn who_wants_what(plants: &Objects) -> Result<(), Box<dyn Error>> {
    let apply = |who: &str, wanted: Value, force: bool| {
        let mut wanted = wanted;
        wanted["apiVersion"] = "garden.io/v1".into();
        wanted["kind"] = "Plant".into();
        wanted["metadata"] = json!({"name": "ivy"});
        let field_manager = who.to_owned();
        let options = PatchOptions { field_manager, force: Some(force), ..Default::default() };
        let patch = wanted.to_string();
        plants.patch("garden", "ivy", PatchType::Apply, patch.as_bytes(), &options)
    };
    apply("gardener", json!({"spec": {"water": 1, "tasks": [{"name": "prune"}]}}), false)?;
    // Items of the list are merged by their names: the schema says so.
    let (ivy, _) = apply("cook", json!({"spec": {"tasks": [{"name": "pick"}]}}), false)?;
    println!("two have applied: {}", ivy["spec"]);
    assert_eq!(ivy["spec"]["tasks"].as_array().map(Vec::len), Some(2));

    let refused = apply("cook", json!({"spec": {"water": 9}}), false).unwrap_err();
    println!("{}: {}", refused.code(), refused.details().causes[0].message);
    apply("cook", json!({"spec": {"water": 9}}), true)?;

    // The other patches say what is to be different.
    let patch = br#"{"metadata": {"labels": {"bed": "west"}}}"#;
    plants.patch("garden", "ivy", PatchType::Merge, patch, &Default::default())?;
    let patch = br#"{"status": {"phase": "Growing"}}"#;
    let status = PatchOptions { subresource: "status".into(), ..Default::default() };
    let (ivy, _) = plants.patch("garden", "ivy", PatchType::Merge, patch, &status)?;
    println!("generation {} is {}", meta::generation(&ivy), ivy["status"]["phase"]);
    Ok(())
}

/// Every version is kept until the store is told to forget it.
fn as_it_was(plants: &Objects, version: &str) -> Result<(), Box<dyn Error>> {
    let then = plants.get_at("garden", "rose", version)?;
    let now = plants.get("garden", "rose", &Default::default())?;
    println!("the rose wanted {} then, and {} now", then["spec"], now["spec"]);
    assert_eq!(then["spec"]["water"], 1);

    for version in plants.history("garden", "rose", &Default::default())? {
        let version = version?; // newest first
        match version.state {
            ObjectState::Created(rose) | ObjectState::Changed(rose) => {
                println!("  from version {} on: {}", version.resource_version, rose["spec"]);
            }
            other => println!("  at version {}: {other:?}", version.resource_version),
        }
    }
    Ok(())
}

/// What has finalizers is marked, and gone with the last of them.
fn nothing_is_gone_too_early(plants: &Objects) -> Result<(), Box<dyn Error>> {
    plants.modify("garden", "fern", &UpdateOptions::default(), |fern| {
        fern["metadata"]["finalizers"] = json!(["garden.io/compost"]);
        Ok(())
    })?;
    let deletion = plants.delete("garden", "fern", &Default::default())?;
    println!(
        "deleted: {}, wanted since {}",
        deletion.is_deleted,
        meta::deletion_timestamp(&deletion.object)
    );
    assert!(!deletion.is_deleted);
    plants.modify("garden", "fern", &UpdateOptions::default(), |fern| {
        fern["metadata"]["finalizers"] = json!([]);
        Ok(())
    })?;
    assert_eq!(plants.get("garden", "fern", &Default::default()).unwrap_err().code(), 404);
    Ok(())
}

/// Objects encrypted at rest, and how the key changes.
fn secrets(store: &Arc<Store>) -> Result<(), Box<dyn Error>> {
    let secrets = |keys: AesGcm| {
        Objects::new(Arc::clone(store), Kind::new("v1", "Secret", "secrets"))
            .transformer(Arc::new(keys))
    };
    // Not these: 32 bytes that nobody can guess.
    let (old, new) =
        (|| EncryptionKey::new("2025", &[1; 32]), || EncryptionKey::new("2026", &[2; 32]));
    let secret = json!({"metadata": {"name": "gate"}, "data": {"code": "MTIzNA=="}});
    secrets(AesGcm::new(old()?)).create("garden", secret, &Default::default())?;

    let both = secrets(AesGcm::new(new()?).or(old()?)?);
    let done = both.rewrite_stale("")?;
    println!("{} of {} written anew with the new key", done.written, done.looked_at);
    // The past still has the old key: as long as it is to be read, so is the key needed.
    store.compact(done.revision)?;
    let secret = secrets(AesGcm::new(new()?)).get("garden", "gate", &Default::default())?;
    assert_eq!(secret["data"]["code"], "MTIzNA==");
    Ok(())
}

/// What a plant is, as far as merging asks for it.
fn schema() -> Value {
    json!({"type": "object", "properties": {
        "metadata": {"type": "object"},
        "spec": {"type": "object", "properties": {
            "water": {"type": "integer"},
            "tasks": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": {"type": "string"}}},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        }},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    }})
}
