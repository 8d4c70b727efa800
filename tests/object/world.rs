//! What the tests of the storage share: a store of pods whose transformer can be made to misbehave.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::under::Store;
use annals::clock::ManualClock;
use annals::object::{
    GetOptions, GroupResource, GuaranteedUpdateOptions, List, ListOptions, ObjectWatch,
    Preconditions, Predicate, Reason, Result as StatusResult, Status, Storage, StorageError,
    Transformer, WatchEvent, WatchEventKind, WatchOptions,
};
use annals::{Durability, Options};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Long enough for anything that happens at all.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Puts a prefix before what is stored, as that of the tests of Kubernetes.
#[derive(Debug)]
pub struct Prefix {
    pub bytes: Mutex<Vec<u8>>,
    pub is_stale: AtomicBool,
    pub is_failing: AtomicBool,
}

impl Prefix {
    fn new() -> Arc<Self> {
        let (is_stale, is_failing) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { bytes: Mutex::new(b"test!".to_vec()), is_stale, is_failing })
    }

    pub fn set(&self, prefix: &str) {
        *self.bytes.lock().unwrap() = prefix.into();
    }

    pub fn set_stale(&self, is_stale: bool) {
        self.is_stale.store(is_stale, Ordering::SeqCst);
    }

    pub fn set_failing(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::SeqCst);
    }
}

impl Transformer for Prefix {
    fn from_storage(&self, data: &[u8], key: &[u8]) -> StatusResult<(Vec<u8>, bool)> {
        assert!(key.starts_with(b"/registry/pods/"), "the whole key is told");
        let prefix = self.bytes.lock().unwrap();
        let is_failing = self.is_failing.load(Ordering::SeqCst);
        match data.strip_prefix(&prefix[..]) {
            Some(data) if !is_failing => Ok((data.to_vec(), self.is_stale.load(Ordering::SeqCst))),
            _ => Err(Status::new(Reason::InternalError, "value does not match expected prefix")),
        }
    }

    fn to_storage(&self, data: &[u8], _: &[u8]) -> StatusResult<Vec<u8>> {
        Ok([&self.bytes.lock().unwrap()[..], data].concat())
    }
}

/// A store of pods.
pub struct World {
    _directory: TempDir,
    pub clock: Arc<ManualClock>,
    pub store: Arc<Store>,
    pub pods: Storage<Store>,
    pub transformer: Arc<Prefix>,
}

impl World {
    pub fn new() -> Self {
        Self::with(Options::new())
    }

    pub fn with(options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_700_000_000_000_000));
        let options = options.durability(Durability::Buffered).clock(clock.clone());
        let store = Arc::new(Store::or(|| options.open(directory.path()).unwrap()));
        let transformer = Prefix::new();
        let pods =
            Storage::new(store.clone(), "/registry", GroupResource::new("", "pods"), "/pods")
                .transformer(transformer.clone())
                .clock(clock.clone());
        Self { _directory: directory, clock, store, pods, transformer }
    }

    /// Stores a pod, whatever was there before; answers its key and the pod.
    pub fn make(&self, pod: &Value) -> (String, Value) {
        let key = key_of(pod);
        let before = self.pods.get(&key, &ignoring()).unwrap();
        if !before.is_null() {
            self.delete(&key);
        }
        let made = self.pods.create(&key, pod.clone(), 0).unwrap();
        (key, made)
    }

    pub fn get(&self, key: &str) -> Result<Value, StorageError> {
        self.pods.get(key, &GetOptions::default())
    }

    /// Makes or changes an object.
    pub fn update(&self, key: &str, change: impl Fn(&mut Value)) -> Value {
        let options = GuaranteedUpdateOptions { ignore_not_found: true };
        let mut each = |mut pod: Value, _| {
            change(&mut pod);
            Ok((pod, None))
        };
        self.pods.guaranteed_update(key, options, &Preconditions::none(), &mut each, None).unwrap()
    }

    pub fn delete(&self, key: &str) -> Value {
        self.pods.delete(key, &Preconditions::none(), &mut |_| Ok(()), None).unwrap().object
    }

    /// All pods below a key.
    pub fn list(&self, key: &str) -> List {
        self.pods.list(key, &recursive()).unwrap()
    }

    pub fn watch(&self, key: &str, options: &WatchOptions) -> ObjectWatch<Store> {
        self.pods.watch(key, options).unwrap()
    }

    /// Bytes as they lie in the store.
    pub fn raw(&self, key: &str) -> Vec<u8> {
        let kv = self.store.get(format!("/registry{key}")).unwrap().unwrap();
        kv.value.to_vec()
    }

    /// What is stored is JSON without a version, and read again it is what is answered.
    pub fn check_stored(&self, key: &str) {
        let raw = self.raw(key);
        let json: Value = serde_json::from_slice(raw.strip_prefix(b"test!").unwrap()).unwrap();
        assert!(json["metadata"].get("resourceVersion").is_none(), "{json}");
        assert!(json["metadata"].get("selfLink").is_none(), "{json}");
        let mut read = self.get(key).unwrap();
        read["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        assert_eq!(read, json);
    }
}

/// Null where there is none.
pub fn ignoring() -> GetOptions {
    GetOptions { ignore_not_found: true, ..GetOptions::default() }
}

pub fn recursive() -> ListOptions {
    ListOptions { recursive: true, ..ListOptions::default() }
}

pub fn pod(namespace: &str, name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace}})
}

/// With a field set, by its path of JSON.
pub fn with(mut pod: Value, path: &[&str], value: impl Into<Value>) -> Value {
    let mut at = &mut pod;
    for part in path {
        at = &mut at[*part];
    }
    *at = value.into();
    pod
}

pub fn key_of(pod: &Value) -> String {
    let metadata = &pod["metadata"];
    let (namespace, name) = (metadata["namespace"].as_str(), metadata["name"].as_str());
    format!("/pods/{}/{}", namespace.unwrap_or_default(), name.unwrap())
}

pub fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

pub fn number(object: &Value) -> u64 {
    version(object).parse().unwrap()
}

/// The fields that selectors of pods may ask for.
pub fn fields_of_pods(pod: &Value, field: &str) -> Option<String> {
    let found = match field {
        "metadata.name" => &pod["metadata"]["name"],
        "spec.nodeName" => &pod["spec"]["nodeName"],
        _ => return None,
    };
    found.as_str().map(Into::into)
}

/// A predicate of two selectors.
pub fn selecting(label: &str, field: &str) -> Predicate {
    Predicate {
        label: annals::object::LabelSelector::parse(label).unwrap(),
        field: annals::object::FieldSelector::parse(field).unwrap(),
        fields: Some(Arc::new(fields_of_pods)),
    }
}

/// The status that a call has failed with.
pub fn status<T: std::fmt::Debug>(answer: Result<T, StorageError>) -> Status {
    answer.unwrap_err().into_status(&GroupResource::new("", "pods"), "a")
}

/// The next event, which must come.
pub fn next(watch: &mut ObjectWatch<Store>) -> WatchEvent {
    watch.next_timeout(PATIENCE).expect("an event")
}

/// The next event is this.
pub fn expect(watch: &mut ObjectWatch<Store>, kind: WatchEventKind, object: &Value) {
    let event = next(watch);
    assert_eq!((&event.kind, &event.object), (&kind, object));
}

/// The next event is an error, and there is none behind it.
pub fn expect_error(mut watch: ObjectWatch<Store>) -> Status {
    let event = next(&mut watch);
    let WatchEventKind::Error(status) = event.kind else { panic!("{event:?}") };
    assert_eq!(event.object, serde_json::to_value(&status).unwrap());
    assert_eq!(watch.next(), None);
    assert!(watch.handle().is_ended());
    status
}
