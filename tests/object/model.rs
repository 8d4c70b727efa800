//! Random histories of objects, held against a model that keeps every state there ever was. Some have a time to live, and
//! time passes; some calls are made dry before they are made.
//!
//! row 6: the_storage_does_what_the_model_does
//! row 24: the_storage_does_what_the_model_does

use std::collections::BTreeMap;
use std::sync::Arc;

use annals::clock::ManualClock;
use annals::object::WatchEventKind::{Added, Deleted, Error, Modified};
use annals::object::{
    GetOptions, GroupResource, GuaranteedUpdateOptions, ListOptions, Preconditions, Predicate,
    ResourceVersionMatch, Status, Storage, StorageError, StorageErrorKind as Kind, WatchEventKind,
    WatchOptions,
};
use annals::{Durability, Options, Store};
use serde_json::{Value, json};

use super::random::Random;
use super::world::{PATIENCE, key_of, number, pod, selecting, version, with};

type State = BTreeMap<String, Value>;

/// When an object was written, and for how many seconds it lives from then on.
type Life = (i64, u64);

struct Model {
    random: Random,
    directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
    store: Arc<Store>,
    pods: Storage<Store>,
    /// The state of each revision; of the revision of an index.
    states: Vec<State>,
    compacted: usize,
    /// Objects as they once were: suggestions.
    seen: Vec<(String, Value)>,
    /// What there is that does not live for ever.
    lives: BTreeMap<String, Life>,
    seconds: i64,
    /// How many objects have come to their end.
    ended: usize,
}

fn open(directory: &tempfile::TempDir, clock: &Arc<ManualClock>) -> (Arc<Store>, Storage<Store>) {
    // Small, so that what is read lies in files of all kinds.
    let options = Options::new().durability(Durability::Buffered).memtable_bytes(64 << 10);
    let options = options.clock(clock.clone()).background(false);
    let store = Arc::new(options.open(directory.path()).unwrap());
    let pods = Storage::new(store.clone(), "registry", GroupResource::new("", "pods"), "/pods");
    (store, pods.clock(clock.clone()))
}

/// What is answered but for the version.
fn unversioned(answer: &Result<Value, StorageError>) -> Result<Value, StorageError> {
    let mut object = answer.clone()?;
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    Ok(object)
}

impl Model {
    fn new(seed: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = super::kit::clock();
        let (store, pods) = open(&directory, &clock);
        Self {
            random: Random::new(seed),
            directory,
            clock,
            store,
            pods,
            states: vec![State::new(), State::new()],
            compacted: 0,
            seen: Vec::new(),
            lives: BTreeMap::new(),
            seconds: 0,
            ended: 0,
        }
    }

    fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    fn revision(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    /// The next revision, in which one object becomes this.
    fn commit(&mut self, key: &str, object: Option<Value>) {
        let mut state = self.now().clone();
        match object {
            Some(object) => {
                self.seen.push((key.into(), object.clone()));
                state.insert(key.into(), object);
            }
            None => {
                state.remove(key);
                self.lives.remove(key);
            }
        }
        self.states.push(state);
        assert_eq!(self.store.revision(), self.revision(), "it wrote once");
    }

    fn key(&mut self) -> String {
        let (namespace, name) = (self.random.below(3), self.random.below(10));
        format!("/pods/ns{namespace}/{name}")
    }

    fn preconditions(&mut self, key: &str) -> Preconditions {
        let version = self.now().get(key).map_or("1".into(), |object| version(object).to_owned());
        match self.random.below(6) {
            0 => Preconditions::uid("other"),
            1 => Preconditions::uid(key),
            2 => Preconditions { resource_version: Some(version), ..Preconditions::none() },
            3 => Preconditions { resource_version: Some("1".into()), ..Preconditions::none() },
            _ => Preconditions::none(),
        }
    }

    fn meets(wanted: &Preconditions, object: &Value) -> bool {
        let is = |wanted: &Option<String>, field: &str| {
            let found = object["metadata"][field].as_str().unwrap_or_default();
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        is(&wanted.uid, "uid") && is(&wanted.resource_version, "resourceVersion")
    }

    /// Nothing, what is there, or what once was.
    fn suggestion(&mut self, key: &str) -> Option<Value> {
        if self.random.one_in(2) {
            return None;
        }
        let of_key: Vec<_> = self.seen.iter().filter(|(seen, _)| seen == key).collect();
        let recent = &of_key[of_key.len().saturating_sub(4)..];
        if recent.is_empty() { None } else { Some(self.random.pick(recent).1.clone()) }
    }

    fn live(&mut self, key: &str, ttl: u64) {
        match ttl {
            0 => self.lives.remove(key),
            _ => self.lives.insert(key.into(), (self.seconds, ttl)),
        };
    }

    /// Makes a call, now and then dry before.
    fn call(
        &mut self,
        call: &mut dyn FnMut(&Storage<Store>) -> Result<Value, StorageError>,
    ) -> Result<Value, StorageError> {
        if !self.random.one_in(4) {
            return call(&self.pods);
        }
        let leases = self.store.lease_list().unwrap();
        let dry = call(&self.pods.clone().dry_run());
        assert_eq!(self.store.revision(), self.revision());
        let ids = |leases: &[annals::Lease]| leases.iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!(ids(&self.store.lease_list().unwrap()), ids(&leases));
        let answer = call(&self.pods);
        assert_eq!(unversioned(&dry), unversioned(&answer));
        answer
    }

    fn create(&mut self) {
        let key = self.key();
        let ttl = *self.random.pick(&[0, 0, 10, 100]);
        let answer = self.call(&mut |pods| pods.create(&key, fresh(&key), ttl));
        if self.now().contains_key(&key) {
            assert_eq!(answer.unwrap_err().kind(), Kind::KeyExists);
        } else {
            let object = answer.unwrap();
            assert_eq!(number(&object), self.revision() + 1);
            self.commit(&key, Some(object));
            self.live(&key, ttl);
        }
    }

    fn update(&mut self) {
        let key = self.key();
        let (wanted, cached) = (self.preconditions(&key), self.suggestion(&key));
        let (n, ignore_not_found) = (self.random.below(4), self.random.one_in(2));
        let ttl = *self.random.pick(&[None, None, None, None, Some(0), Some(10), Some(100)]);
        let mut each = |object: Value, _| {
            let object = if object.get("spec").is_some() { object } else { fresh(&key) };
            let labels = json!({"even": (n % 2 == 0).to_string()});
            Ok((with(with(object, &["spec", "n"], n), &["metadata", "labels"], labels), ttl))
        };
        let options = GuaranteedUpdateOptions { ignore_not_found };
        let answer = self.call(&mut |pods| {
            pods.guaranteed_update(&key, options, &wanted, &mut each, cached.as_ref())
        });
        let before = self.now().get(&key);
        let kind = match before {
            None if !ignore_not_found => Some(Kind::KeyNotFound),
            None => (!Self::meets(&wanted, &json!({}))).then_some(Kind::InvalidObject),
            Some(before) => (!Self::meets(&wanted, before)).then_some(Kind::InvalidObject),
        };
        if let Some(kind) = kind {
            assert_eq!(answer.unwrap_err().kind(), kind, "{key} {wanted:?} {cached:?}");
            assert_eq!(self.store.revision(), self.revision());
            return;
        }
        let object = answer.unwrap();
        // Of what lives for ever already no end can be taken away.
        let keeps = ttl.is_none_or(|ttl| ttl == 0 && !self.lives.contains_key(&key));
        if keeps && before.is_some_and(|before| before["spec"]["n"] == n) {
            assert_eq!(Some(&object), before, "nothing to be written");
            assert_eq!(self.store.revision(), self.revision());
        } else {
            assert_eq!((&object["spec"]["n"], number(&object)), (&json!(n), self.revision() + 1));
            self.commit(&key, Some(object));
            if let Some(ttl) = ttl {
                self.live(&key, ttl);
            }
        }
    }

    fn delete(&mut self) {
        let key = self.key();
        let (wanted, cached) = (self.preconditions(&key), self.suggestion(&key));
        let is_refused = self.random.one_in(8);
        let mut validate = |_: &Value| -> Result<(), StorageError> {
            if is_refused { Err(Status::bad_request("no").into()) } else { Ok(()) }
        };
        let mut mod_revision = 0;
        let answer = self.call(&mut |pods| {
            let deleted = pods.delete(&key, &wanted, &mut validate, cached.as_ref())?;
            mod_revision = deleted.mod_revision;
            Ok(deleted.object)
        });
        let kind = match self.now().get(&key) {
            None => Some(Kind::KeyNotFound),
            Some(before) if !Self::meets(&wanted, before) => Some(Kind::InvalidObject),
            Some(_) => is_refused.then_some(Kind::Refused),
        };
        let Some(kind) = kind else {
            let deleted = answer.unwrap();
            let mut before = self.now()[&key].clone();
            assert_eq!(mod_revision, number(&before));
            before["metadata"]["resourceVersion"] = (self.revision() + 1).to_string().into();
            assert_eq!(deleted, before);
            return self.commit(&key, None);
        };
        assert_eq!(answer.unwrap_err().kind(), kind, "{key} {wanted:?} {cached:?}");
        assert_eq!(self.store.revision(), self.revision());
    }

    /// All pages of a list are of one revision, whatever is written between them.
    fn list(&mut self) {
        let oldest = self.compacted.max(1) as u64;
        let at = self.random.between(oldest, self.revision() + 1);
        let (resource_version, resource_version_match, at) = match self.random.below(3) {
            0 => (String::new(), None, self.revision()),
            1 => (at.to_string(), Some(ResourceVersionMatch::NotOlderThan), self.revision()),
            _ => (at.to_string(), Some(ResourceVersionMatch::Exact), at),
        };
        let predicate = self.predicate();
        let prefix = ["/pods", "/pods/ns1", "/pods/ns2/"][self.random.index(3)];
        let limit = self.random.below(8);
        let continue_token = String::new();
        let mut options = ListOptions {
            resource_version,
            resource_version_match,
            limit,
            continue_token,
            predicate,
            recursive: true,
        };
        let below = format!("{}/", prefix.trim_end_matches('/'));
        let state = self.states[usize::try_from(at).unwrap()].clone();
        let there: Vec<_> = state.into_iter().filter(|(key, _)| key.starts_with(&below)).collect();
        let (mut items, mut examined) = (Vec::new(), 0);
        loop {
            let page = self.pods.list(prefix, &options).unwrap();
            assert_eq!(page.resource_version, at.to_string());
            assert!(limit == 0 || page.items.len() as u64 <= limit);
            let has_more = !page.continue_token.is_empty();
            if options.predicate.is_empty() {
                examined += page.items.len();
                let left = (there.len() - examined) as u64;
                assert_eq!(page.remaining_item_count, has_more.then_some(left));
            } else {
                assert_eq!(page.remaining_item_count, None);
            }
            items.extend(page.items);
            if !has_more {
                break;
            }
            assert!(limit > 0 && (items.len() as u64).is_multiple_of(limit), "pages are full");
            options.resource_version.clear();
            options.resource_version_match = None;
            options.continue_token = page.continue_token;
            self.change();
        }
        let wanted =
            there.into_iter().map(|(_, object)| object).filter(|o| options.predicate.matches(o));
        assert_eq!(items, wanted.collect::<Vec<_>>());
        // What is too old says so.
        if self.compacted > 2 {
            let resource_version = self.random.between(1, self.compacted as u64).to_string();
            let wanted = Some(ResourceVersionMatch::Exact);
            let options =
                ListOptions { resource_version, resource_version_match: wanted, ..recursive() };
            let gone = self.pods.list("/pods", &options).unwrap_err();
            assert_eq!(gone.status().unwrap().code(), 410);
        }
    }

    fn predicate(&mut self) -> Predicate {
        match self.random.below(4) {
            0 => selecting("even=true", ""),
            1 => selecting("even!=true", "metadata.name!=3"),
            _ => Predicate::everything(),
        }
    }

    /// What a watch tells is what the states differ in.
    fn watch(&mut self) {
        let from = usize::try_from(self.random.between(1, self.revision() + 1)).unwrap();
        let predicate = self.predicate();
        let resource_version = from.to_string();
        let options =
            WatchOptions { resource_version, predicate, recursive: true, ..Default::default() };
        let mut watch = self.pods.watch("/pods", &options).unwrap();
        // Of the compacted revision itself all is there.
        if from + 1 < self.compacted {
            let event = watch.next_timeout(PATIENCE).unwrap();
            let Error(status) = event.kind else { panic!("{event:?}") };
            assert_eq!(status.code(), 410);
            return;
        }
        for at in from + 1..self.states.len() {
            for (kind, object) in
                differences(&self.states[at - 1], &self.states[at], at, &options.predicate)
            {
                let event = watch.next_timeout(PATIENCE).expect("it has happened");
                assert_eq!((event.kind, event.object), (kind, object), "of revision {at}");
            }
        }
        assert_eq!(watch.next_timeout(std::time::Duration::ZERO), None);
    }

    fn change(&mut self) {
        match self.random.below(5) {
            0 => self.create(),
            1 => self.delete(),
            _ => self.update(),
        }
    }

    fn compact(&mut self) {
        let low = self.compacted.max(1) as u64 + 1;
        if low > self.revision() {
            return;
        }
        let at = self.random.between(low, self.revision() + 1);
        self.store.compact(at).unwrap();
        self.compacted = usize::try_from(at).unwrap();
    }

    /// Time passes: what has lived as long as it was to goes, and with it all that shares its lease, in one revision.
    fn pass(&mut self) {
        let lease = |key: &String| {
            let kv = self.store.get(format!("/registry{key}")).unwrap().unwrap();
            (key.clone(), kv.lease)
        };
        let leases: BTreeMap<_, _> = self.now().keys().map(lease).collect();
        let seconds = self.random.between(1, 12);
        self.clock.advance(i64::try_from(seconds).unwrap() * 1_000_000);
        self.seconds += i64::try_from(seconds).unwrap();
        while self.store.run_background().unwrap() {}
        for at in self.revision() + 1..=self.store.revision() {
            let options = ListOptions {
                resource_version: at.to_string(),
                resource_version_match: Some(ResourceVersionMatch::Exact),
                ..recursive()
            };
            let left: Vec<_> =
                self.pods.list("/pods", &options).unwrap().items.iter().map(key_of).collect();
            let (state, gone): (State, State) =
                self.now().clone().into_iter().partition(|(key, _)| left.contains(key));
            let ended = leases[gone.keys().next().expect("something has ended")];
            assert!(ended != 0 && gone.keys().all(|key| leases[key] == ended));
            assert!(state.keys().all(|key| leases[key] != ended));
            for key in gone.keys() {
                let (from, ttl) = self.lives.remove(key).expect("it does not live for ever");
                assert!(from + i64::try_from(ttl).unwrap() <= self.seconds, "{key} ends too early");
            }
            self.ended += gone.len();
            self.states.push(state);
        }
        for (key, (from, ttl)) in &self.lives {
            let longest = i64::try_from(ttl + (ttl / 20).max(1)).unwrap();
            assert!(self.seconds < from + longest, "{key} lives too long");
        }
    }

    fn reopen(self) -> Self {
        let Self { directory, clock, store, pods, .. } = self;
        drop((pods, store));
        let (store, pods) = open(&directory, &clock);
        assert_eq!(store.revision() + 1, self.states.len() as u64);
        Self { directory, clock, store, pods, ..self }
    }

    fn check(&self) {
        for (key, object) in self.now() {
            assert_eq!(&self.pods.get(key, &GetOptions::default()).unwrap(), object);
        }
        assert_eq!(self.pods.count("/pods").unwrap(), self.now().len() as u64);
    }
}

fn recursive() -> ListOptions {
    super::world::recursive()
}

fn fresh(key: &str) -> Value {
    let mut parts = key.split('/').skip(2);
    let pod = pod(parts.next().unwrap(), parts.next().unwrap());
    with(with(pod, &["metadata", "uid"], key), &["spec"], json!({"n": 9, "key": key}))
}

fn differences(
    old: &State,
    new: &State,
    at: usize,
    wanted: &Predicate,
) -> Vec<(WatchEventKind, Value)> {
    let keys = old.keys().chain(new.keys()).collect::<std::collections::BTreeSet<_>>();
    let changed = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
    let told = |key: &String| {
        let (old, new) = (old.get(key), new.get(key));
        let wants = |object: &&Value| wanted.matches(object);
        let gone =
            |old: &Value| with(old.clone(), &["metadata", "resourceVersion"], at.to_string());
        match (old.filter(wants), new.filter(wants)) {
            (None, Some(new)) => Some((Added, new.clone())),
            (Some(_), Some(new)) => Some((Modified, new.clone())),
            (Some(old), None) => Some((Deleted, gone(old))),
            (None, None) => None,
        }
    };
    changed.filter_map(told).collect()
}

#[test]
fn the_storage_does_what_the_model_does() {
    for seed in 0..6 {
        let mut model = Model::new(seed);
        for step in 0..1200 {
            match model.random.below(40) {
                0..4 => model.list(),
                4..7 => model.watch(),
                7 if model.random.one_in(4) => model.compact(),
                8 if model.random.one_in(12) => model = model.reopen(),
                9 => model.check(),
                10 | 11 => model.pass(),
                _ => model.change(),
            }
            assert_eq!(model.store.revision(), model.revision(), "seed {seed}, step {step}");
        }
        model.check();
        assert!(model.compacted > 0 && model.revision() > 400, "something has happened");
        assert!(model.ended > 10, "{} have come to their end", model.ended);
    }
}
