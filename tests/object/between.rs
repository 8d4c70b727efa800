//! What others do between the steps of a write, and what is too much for the store.

use std::sync::{Arc, Mutex};

use annals::object::kv::{Kv, ScanRequest, WatchRequest};
use annals::object::{
    CreateOptions, DeleteOptions, LabelSelector, ListOptions, PatchOptions, PatchType, Predicate,
    Reason, UpdateOptions,
};
use annals::{KeyValue, Op, Result, TxnRequest, TxnResponse};
use serde_json::{Value, json};

use super::kit::{create, get, pod, pod_kind, refused, store, version};
use super::under::{Objects, Store};

type Meddle = Box<dyn FnOnce() + Send>;

/// A store in which somebody acts before the next transaction, and which takes values up to a size.
pub(super) struct Meddled {
    store: Arc<Store>,
    next: Mutex<Option<Meddle>>,
    value_max: usize,
}

impl Kv for Meddled {
    type Scan = <Store as Kv>::Scan;
    type Watch = <Store as Kv>::Watch;

    fn revision(&self) -> Result<u64> {
        Kv::revision(&*self.store)
    }

    fn get(&self, key: &[u8], at: Option<u64>) -> Result<(Option<KeyValue>, u64)> {
        Kv::get(&*self.store, key, at)
    }

    fn scan(&self, request: ScanRequest<'_>) -> Result<(Self::Scan, u64)> {
        Kv::scan(&*self.store, request)
    }

    fn count(&self, request: ScanRequest<'_>) -> Result<u64> {
        Kv::count(&*self.store, request)
    }

    fn transact(&self, request: TxnRequest) -> Result<TxnResponse> {
        let meddle = self.next.lock().unwrap().take();
        if let Some(meddle) = meddle {
            meddle();
        }
        let is_too_long = |op: &Op| matches!(op, Op::Put(put) if put.value.len() > self.value_max);
        if request.success.iter().any(is_too_long) {
            let too_long = vec![0; 64 << 20];
            return Err(self.store.put("too long", too_long).expect_err("it has a limit, too"));
        }
        Kv::transact(&*self.store, request)
    }

    fn grant(&self, ttl: i64) -> Result<i64> {
        Kv::grant(&*self.store, ttl)
    }

    fn watch(&self, request: WatchRequest<'_>) -> Result<Self::Watch> {
        Kv::watch(&*self.store, request)
    }
}

/// The same pods, for who acts and for whom it happens to.
fn world_of(value_max: usize) -> (Objects, Objects<Meddled>) {
    let store = store();
    let kv = Meddled { store: Arc::clone(&store), next: Mutex::new(None), value_max };
    (Objects::new(store, pod_kind()), Objects::new(Arc::new(kv), pod_kind()))
}

pub(super) fn world() -> (Objects, Objects<Meddled>) {
    world_of(usize::MAX)
}

/// Before the next transaction of `objects`.
fn then(objects: &Objects<Meddled>, meddle: impl FnOnce() + Send + 'static) {
    *objects.storage().kv().next.lock().unwrap() = Some(Box::new(meddle));
}

fn with(name: &str, field: &str, value: Value) -> Value {
    let mut pod = pod(name);
    pod["metadata"][field] = value;
    pod
}

fn set(pods: &Objects, name: &str, field: &'static str, value: Value) {
    let changed = pods.modify("default", name, &UpdateOptions::default(), |pod| {
        pod["metadata"][field] = value.clone();
        Ok(())
    });
    changed.expect("it is changed");
}

fn now() -> DeleteOptions {
    DeleteOptions::default()
}

#[test]
fn a_finalizer_that_comes_in_between_keeps_the_object() {
    let (pods, meddled) = world();
    create(&pods, pod("web"));
    let other = pods.clone();
    then(&meddled, move || set(&other, "web", "finalizers", json!(["example.com/wait"])));
    let deletion = meddled.delete("default", "web", &now()).unwrap();
    assert!(!deletion.is_deleted, "{deletion:?}");
    let there = get(&pods, "web").unwrap();
    assert_eq!(there["metadata"]["finalizers"], json!(["example.com/wait"]));
    assert!(there["metadata"]["deletionTimestamp"].is_string());

    // What does not matter does not keep it.
    create(&pods, pod("api"));
    let other = pods.clone();
    then(&meddled, move || set(&other, "api", "labels", json!({"a": "b"})));
    let deletion = meddled.delete("default", "api", &now()).unwrap();
    assert!(deletion.is_deleted);
    assert_eq!(deletion.object["metadata"]["labels"], json!({"a": "b"}));
    let before: u64 = version(&deletion.object).parse().unwrap();
    assert_eq!(deletion.mod_revision, Some(before - 1));
    assert_eq!(refused(get(&pods, "api")).code(), 404);
}

#[test]
fn the_last_finalizer_takes_no_other_object_with_it() {
    let (pods, meddled) = world();
    create(&pods, with("web", "finalizers", json!(["example.com/wait"])));
    pods.delete("default", "web", &now()).unwrap();
    let other = pods.clone();
    then(&meddled, move || {
        set(&other, "web", "finalizers", json!([]));
        create(&other, with("web", "finalizers", json!(["example.com/other"])));
    });
    let change = br#"{"metadata": {"finalizers": null}}"#;
    let options = PatchOptions::default();
    meddled.patch("default", "web", PatchType::Merge, change, &options).unwrap();
    let there = get(&pods, "web").expect("nobody has asked for this one to go");
    assert_eq!(there["metadata"]["finalizers"], json!(["example.com/other"]));

    // The same object, changed: it goes, with the change.
    pods.delete("default", "web", &now()).unwrap();
    let other = pods.clone();
    then(&meddled, move || set(&other, "web", "labels", json!({"a": "b"})));
    let (last, _) = meddled.patch("default", "web", PatchType::Merge, change, &options).unwrap();
    assert_eq!(last["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(refused(get(&pods, "web")).code(), 404);
}

#[test]
fn a_collection_is_deleted_as_far_as_it_is_still_selected() {
    let (pods, meddled) = world();
    for name in ["a", "b", "c", "d"] {
        create(&pods, with(name, "labels", json!({"tier": "front"})));
    }
    let other = pods.clone();
    then(&meddled, move || {
        set(&other, "b", "labels", json!({"tier": "back"}));
        other.delete("default", "c", &now()).unwrap();
        create(&other, with("c", "labels", json!({"tier": "front"})));
    });
    let predicate =
        Predicate { label: LabelSelector::parse("tier=front").unwrap(), ..Predicate::everything() };
    let options = ListOptions { predicate, ..ListOptions::default() };
    let list = meddled.delete_collection("default", &now(), &options).unwrap();
    assert_eq!(list.items.len(), 4);
    let left = pods.list("default", &ListOptions::default()).unwrap();
    let names: Vec<_> = left.items.iter().map(|pod| &pod["metadata"]["name"]).collect();
    assert_eq!(names, ["b", "c"]);
}

#[test]
fn a_patch_does_not_fail_for_managed_fields_alone() {
    let (pods, meddled) = world_of(2_000);
    let fields: serde_json::Map<_, _> = (0..40).map(|n| (format!("field-{n}"), n.into())).collect();
    let mut large = pod("web");
    large["spec"] = fields.into();
    let options = CreateOptions { field_manager: "maker".into(), ..CreateOptions::default() };
    pods.create("default", large, &options).unwrap();
    let by = PatchOptions { field_manager: "patcher".into(), ..PatchOptions::default() };
    let text = "x".repeat(600);
    let change = json!({"metadata": {"annotations": {"a": text}}}).to_string();
    let (patched, _) =
        meddled.patch("default", "web", PatchType::Merge, change.as_bytes(), &by).unwrap();
    assert_eq!(patched["metadata"].get("managedFields"), None);
    assert_eq!(patched["metadata"]["annotations"]["a"].as_str(), Some(&*text));

    let text = "x".repeat(6_000);
    let change = json!({"metadata": {"annotations": {"a": text}}}).to_string();
    let refused =
        refused(meddled.patch("default", "web", PatchType::Merge, change.as_bytes(), &by));
    assert_eq!(refused.reason(), Reason::RequestEntityTooLarge);
    assert_eq!(get(&pods, "web").unwrap(), patched);
}

#[test]
fn dry_runs_go_on_with_what_comes_in_between() {
    let (pods, meddled) = world();
    create(&pods, pod("web"));
    let dry = UpdateOptions { dry_run: true, ..UpdateOptions::default() };
    let other = pods.clone();
    then(&meddled, move || set(&other, "web", "labels", json!({"a": "b"})));
    let mut tries = 0;
    let change = |pod: &mut Value| {
        tries += 1;
        pod["spec"]["n"] = 1.into();
        Ok(())
    };
    let would = meddled.modify("default", "web", &dry, change).unwrap();
    assert_eq!((&would["metadata"]["labels"]["a"], &would["spec"]["n"]), (&json!("b"), &json!(1)));
    assert_eq!((version(&would), tries), (version(&get(&pods, "web").unwrap()), 2));

    let other = pods.clone();
    then(&meddled, move || drop(create(&other, pod("api"))));
    let dry = CreateOptions { dry_run: true, ..CreateOptions::default() };
    assert_eq!(refused(meddled.create("default", pod("api"), &dry)).code(), 409);

    let other = pods.clone();
    then(&meddled, move || set(&other, "web", "finalizers", json!(["example.com/wait"])));
    let dry = DeleteOptions { dry_run: true, ..now() };
    assert!(!meddled.delete("default", "web", &dry).unwrap().is_deleted);
    let revision = pods.storage().kv().revision();
    assert_eq!(revision, 5, "others have written, and nobody else");
}
