//! Every call of objects that are encrypted answers what it answers of objects that are not, also where the key changes
//! between two calls; and nothing of them is seen in the store.

use std::sync::Arc;
use std::time::Duration;

use annals::object::{
    AesGcm, CreateOptions, DeleteOptions, EncryptionKey, GetOptions, HistoryOptions, KindStrategy,
    LabelSelector, ListOptions, ObjectWatch, PatchOptions, PatchType, Predicate, Result, Schema,
    Transformer, UpdateOptions, WatchEvent, WatchOptions,
};
use serde_json::{Value, json};

use super::kit::{clock, get, pod_kind, refused, store, version};
use super::under::{Objects, Store, needs_the_store};

fn key(name: &str, byte: u8) -> EncryptionKey {
    EncryptionKey::new(name, &[byte; 32]).unwrap()
}

/// The first key writes, all of them read.
fn ring(names: &[(&str, u8)]) -> Arc<dyn Transformer> {
    let mut keys = names.iter().map(|(name, byte)| key(name, *byte));
    let first = AesGcm::new(keys.next().unwrap());
    let ring = keys.try_fold(first, AesGcm::or).unwrap();
    Arc::new(ring)
}

const OLD: (&str, u8) = ("old", 1);
const NEW: (&str, u8) = ("new", 2);

fn pods(store: &Arc<Store>) -> Objects {
    let strategy = KindStrategy::new().with_status().field("spec.nodeName").return_deleted_object();
    let schema = Schema::from_openapi(&json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"containers": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "name",
            "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "image": {"type": "string"},
            }},
        }},
    }}}))
    .unwrap();
    Objects::new(store.clone(), pod_kind()).clock(clock()).strategy(strategy).schema(schema)
}

/// Objects that are not encrypted, others that are, and a watch of each.
struct Twins {
    plain: Objects,
    secret: Objects,
    watches: [ObjectWatch<Store>; 2],
}

/// What is different about two objects that are made by the same call.
fn bare(mut answer: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("uid");
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut answer);
    answer
}

impl Twins {
    fn new() -> Self {
        let (plain, secret) = (pods(&store()), pods(&store()).transformer(ring(&[OLD])));
        let options = WatchOptions { resource_version: "1".into(), ..WatchOptions::default() };
        let watches = [&plain, &secret].map(|pods| pods.watch("", &options).unwrap());
        Self { plain, secret, watches }
    }

    /// From now on written by another key, and read by all that there have been.
    fn rotate(&mut self) {
        let pods = self.secret.clone();
        self.secret = pods.transformer(ring(&[NEW, OLD]));
        let options = WatchOptions {
            resource_version: self.list("").0.resource_version,
            ..WatchOptions::default()
        };
        self.watches[1] = self.secret.watch("", &options).unwrap();
        self.watches[0] = self.plain.watch("", &options).unwrap();
    }

    /// The same of both, as it is of the one that is not encrypted.
    #[track_caller]
    fn call(&self, call: impl Fn(&Objects) -> Result<Value>) -> Result<Value> {
        let (plain, secret) = (call(&self.plain), call(&self.secret));
        let of = |answer: &Result<Value>| match answer {
            Ok(object) => bare(object.clone()),
            Err(status) => bare(serde_json::to_value(status).unwrap()),
        };
        assert_eq!(of(&plain), of(&secret));
        secret
    }

    #[track_caller]
    fn done(&self, call: impl Fn(&Objects) -> Result<Value>) -> Value {
        self.call(call).unwrap()
    }

    fn list(&self, label: &str) -> (annals::object::List, Vec<Value>) {
        let label = LabelSelector::parse(label).unwrap();
        let predicate = Predicate { label, ..Predicate::everything() };
        let options = ListOptions { predicate, ..ListOptions::default() };
        let [plain, secret] =
            [&self.plain, &self.secret].map(|pods| pods.list("default", &options).unwrap());
        let items =
            |list: &annals::object::List| list.items.clone().into_iter().map(bare).collect();
        let (of_plain, of_secret): (Vec<Value>, Vec<Value>) = (items(&plain), items(&secret));
        assert_eq!(of_plain, of_secret);
        assert_eq!(plain.resource_version, secret.resource_version);
        (secret, of_secret)
    }

    /// What both watches tell next.
    #[track_caller]
    fn told(&mut self) -> (String, Value) {
        let next = |watch: &mut ObjectWatch<Store>| {
            let event: WatchEvent = watch.next_timeout(Duration::from_secs(60)).expect("an event");
            bare(serde_json::to_value(&event).unwrap())
        };
        let [plain, secret] = self.watches.each_mut().map(next);
        assert_eq!(plain, secret);
        (secret["type"].as_str().unwrap().to_owned(), secret["object"].clone())
    }

    /// What is stored of a pod is of this key, and shows nothing.
    #[track_caller]
    fn check_stored(&self, name: &str, with: &str) {
        let stored = self.secret.storage().kv().get(format!("/registry/pods/default/{name}"));
        let value = stored.unwrap().expect("it is there").value;
        assert!(value.starts_with(format!("k8s:enc:aesgcm:v1:{with}:").as_bytes()), "{name}");
        let shows = |text: &[u8]| value.windows(text.len()).any(|part| part == text);
        assert!(!shows(b"hunter2") && !shows(b"metadata"));
    }
}

fn container(name: &str, image: &str) -> Value {
    json!({"name": name, "image": image})
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"tier": "front"}},
        "spec": {"nodeName": "one", "password": "hunter2", "containers": [container("web", "web:1")]},
    })
}

fn patch(pods: &Objects, name: &str, patch_type: PatchType, patch: &Value) -> Result<Value> {
    let options = match patch_type {
        PatchType::Apply => {
            PatchOptions { field_manager: "applier".into(), ..PatchOptions::default() }
        }
        _ => PatchOptions::default(),
    };
    let patch = patch.to_string();
    Ok(pods.patch("default", name, patch_type, patch.as_bytes(), &options)?.0)
}

fn update(pods: &Objects, name: &str, change: impl Fn(&mut Value)) -> Result<Value> {
    let mut object = get(pods, name)?;
    change(&mut object);
    Ok(pods.update("default", name, object, &UpdateOptions::default())?.0)
}

/// Makes, reads, changes and deletes, in every way there is.
fn exercise(twins: &mut Twins, name: &str, key: &str) {
    let default = CreateOptions::default();
    let make = |pods: &Objects| pods.create("default", pod(name), &default);
    let dry = CreateOptions { dry_run: true, ..CreateOptions::default() };
    twins.done(|pods| pods.create("default", pod(name), &dry));
    let made = twins.done(make);
    twins.check_stored(name, key);
    assert_eq!(refused(twins.call(make)).code(), 409);
    assert_eq!(twins.done(|pods| get(pods, name)), made);

    let of_node = |node: &'static str| move |pod: &mut Value| pod["spec"]["nodeName"] = node.into();
    twins.done(|pods| update(pods, name, of_node("two")));
    let late = |pods: &Objects| {
        let mut late = get(pods, name)?;
        late["metadata"]["resourceVersion"] = "1".into();
        Ok(pods.update("default", name, late, &UpdateOptions::default())?.0)
    };
    assert_eq!(refused(twins.call(late)).code(), 409);
    let same = twins.done(|pods| update(pods, name, of_node("two")));
    assert_eq!(same, twins.done(|pods| get(pods, name)), "nothing has changed");
    twins.done(|pods| {
        let mut running = get(pods, name)?;
        running["status"] = json!({"phase": "Running"});
        pods.update_status("default", name, running, &UpdateOptions::default())
    });
    twins.check_stored(name, key);

    let second = json!({"spec": {"containers": [container("log", "log:1")]}});
    let patched = twins.done(|pods| patch(pods, name, PatchType::StrategicMerge, &second));
    assert_eq!(patched["spec"]["containers"].as_array().map(Vec::len), Some(2));
    let label = json!({"metadata": {"labels": {"tier": "back"}}});
    twins.done(|pods| patch(pods, name, PatchType::Merge, &label));
    let test = json!([{"op": "test", "path": "/spec/password", "value": "hunter2"}]);
    twins.done(|pods| patch(pods, name, PatchType::Json, &test));
    let wrong = json!([{"op": "test", "path": "/spec/password", "value": "hunter3"}]);
    assert_eq!(refused(twins.call(|pods| patch(pods, name, PatchType::Json, &wrong))).code(), 422);
    let applied = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [container("side", "side:1")]},
    });
    let all = twins.done(|pods| patch(pods, name, PatchType::Apply, &applied));
    assert_eq!(all["spec"]["containers"].as_array().map(Vec::len), Some(3));
    twins.check_stored(name, key);

    let finalizer = |finalizers: Value| {
        move |pods: &Objects| {
            pods.modify("default", name, &UpdateOptions::default(), |pod| {
                pod["metadata"]["finalizers"] = finalizers.clone();
                Ok(())
            })
        }
    };
    twins.done(finalizer(json!(["a/b"])));
    let delete =
        |pods: &Objects| Ok(pods.delete("default", name, &DeleteOptions::default())?.into_answer());
    twins.done(delete);
    twins.check_stored(name, key);
    twins.done(finalizer(json!([])));
    assert_eq!(refused(twins.call(|pods| get(pods, name))).code(), 404);
    assert_eq!(refused(twins.call(delete)).code(), 404);

    let then = twins.done(|pods| pods.get_at("default", name, version(&made)));
    assert_eq!(then, made);
    let told = twins.done(|pods| {
        let history = pods.history("default", name, &HistoryOptions::default())?;
        history.map(|each| each.map(|each| json!([each.resource_version, each.object()]))).collect()
    });
    let told = told.as_array().unwrap();
    // What bore the name before it is told, too, whatever key it is of.
    assert_eq!((told.len() % 9, &told[0][1], &told[8][1]), (0, &Value::Null, &made));
    assert!(told.iter().all(|told| told[1].is_null() || told[1]["spec"]["password"] == "hunter2"));
    assert_eq!(told.iter().filter(|told| told[1].is_null()).count(), told.len() / 9);

    let kinds = ["ADDED"].into_iter().chain([&"MODIFIED"; 7].map(|kind| *kind)).chain(["DELETED"]);
    for expected in kinds {
        let (kind, object) = twins.told();
        assert_eq!((kind.as_str(), &object["metadata"]["name"]), (expected, &json!(name)));
        assert_eq!(object["spec"]["password"], "hunter2");
    }
}

#[test]
fn every_call_answers_as_if_nothing_were_encrypted() {
    needs_the_store!();
    let mut twins = Twins::new();
    exercise(&mut twins, "web", "old");
    let before =
        twins.done(|pods| pods.create("default", pod("before"), &CreateOptions::default()));
    twins.rotate();
    exercise(&mut twins, "web", "new");

    // What the old key has written is read, listed and selected; reading writes nothing.
    assert_eq!(twins.done(|pods| get(pods, "before")), before);
    twins.done(|pods| pods.create("default", pod("after"), &CreateOptions::default()));
    let (list, items) = twins.list("tier=front");
    assert_eq!(items.len(), 2);
    twins.check_stored("before", "old");
    twins.check_stored("after", "new");
    // A page of one revision, though what is there is written by another key by then.
    let limit = ListOptions { limit: 1, ..ListOptions::default() };
    let first = twins.secret.list("default", &limit).unwrap();
    let label = json!({"metadata": {"labels": {"tier": "back"}}});
    twins.done(|pods| patch(pods, "before", PatchType::Merge, &label));
    twins.check_stored("before", "new");
    let rest = ListOptions { continue_token: first.continue_token, ..limit };
    let rest = twins.secret.list("default", &rest).unwrap();
    assert_eq!(rest.resource_version, list.resource_version);
    assert_eq!(rest.items[0]["metadata"]["labels"]["tier"], "front", "as it was then");
    assert_eq!(twins.list("tier=front").1.len(), 1);
    assert_eq!(twins.list("tier=back").1.len(), 1);

    let all = ListOptions::default();
    for pods in [&twins.plain, &twins.secret] {
        assert_eq!(pods.count("default").unwrap(), 2);
        let options = DeleteOptions::default();
        assert_eq!(pods.delete_collection("default", &options, &all).unwrap().items.len(), 2);
        assert_eq!(pods.count("default").unwrap(), 0);
    }
}

#[test]
fn what_an_old_key_has_written_is_written_anew_once_by_an_update_that_changes_nothing() {
    let store = store();
    let of = |keys: &[(&str, u8)]| pods(&store).transformer(ring(keys));
    let made = of(&[OLD]).create("default", pod("web"), &CreateOptions::default()).unwrap();
    let same = |pods: &Objects| update(pods, "web", |_| ()).unwrap();
    assert_eq!(version(&same(&of(&[OLD]))), version(&made));
    let rotated = of(&[NEW, OLD]);
    for _ in 0..2 {
        let written = same(&rotated);
        assert_eq!((version(&written), &written["metadata"]["generation"]), ("3", &json!(1)));
    }
    // Dry runs write nothing anew.
    let third = of(&[("third", 3), NEW]);
    let dry = UpdateOptions { dry_run: true, ..UpdateOptions::default() };
    third.update("default", "web", pod("web"), &dry).unwrap();
    assert_eq!(version(&get(&of(&[NEW]), "web").unwrap()), "3");

    // Who has the old key alone reads no more, nor deletes or overwrites what he cannot read.
    let old = of(&[OLD]);
    assert_eq!(refused(get(&old, "web")).code(), 500);
    assert_eq!(refused(old.list("default", &ListOptions::default())).code(), 500);
    let overwrite = old.update("default", "web", pod("web"), &UpdateOptions::default());
    assert_eq!(refused(overwrite).code(), 500);
    assert_eq!(refused(old.delete("default", "web", &DeleteOptions::default())).code(), 500);
    let none = GetOptions { ignore_not_found: true, ..GetOptions::default() };
    assert_eq!(refused(old.get("default", "web", &none)).code(), 500);
    assert_eq!(get(&of(&[NEW]), "web").unwrap()["spec"], made["spec"]);
}
