//! A controller, as Kubernetes knows them: it watches what users want, makes it so, and says how far it has come.
//! Users write `spec`, the controller `status`; each write says what it was made from, and who comes second
//! tries again. After a restart it goes on where it was.
//!
//! Run with `cargo run --example controller --features object`.

#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::error::Error;
use std::sync::{Arc, mpsc};
use std::thread;

use annals::Store;
use annals::object::{
    CreateOptions, DeleteOptions, GetOptions, Kind, KindStrategy, LabelSelector, ListOptions,
    ObjectWatch, Objects, Predicate, Reason, Result, Status, UpdateOptions, WatchEventKind,
    WatchHandle, WatchOptions, meta,
};
use serde_json::{Value, json};

pub(crate) fn main() -> std::result::Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let mut seen = Seen::default();

    let store = Arc::new(Store::open(directory.path())?);
    let controller = Controller::new(&store);
    let wanted = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3}});
    controller.sets.create("shop", wanted, &CreateOptions::default())?;
    controller.run(&mut seen, |set| set["status"]["replicas"] == 3)?;

    println!("somebody deletes a pod, and wants five:");
    let pods = controller.pods.list("shop", &ListOptions::default())?;
    let unlucky = meta::name(&pods.items[0]);
    controller.pods.delete("shop", unlucky, &DeleteOptions::default())?;
    controller.sets.modify("shop", "web", &UpdateOptions::default(), |set| {
        set["spec"]["replicas"] = 5.into();
        Ok(())
    })?;
    controller.run(&mut seen, |set| set["status"]["replicas"] == 5)?;

    println!("nobody is there; meanwhile two are enough. Then a restart:");
    controller.sets.modify("shop", "web", &UpdateOptions::default(), |set| {
        set["spec"]["replicas"] = 2.into();
        Ok(())
    })?;
    store.put(SEEN, serde_json::to_vec(&seen)?)?;
    drop((controller, store));

    let store = Arc::new(Store::open(directory.path())?);
    let kept = store.get(SEEN)?.ok_or("it has been kept")?;
    let mut seen: Seen = serde_json::from_slice(&kept.value)?;
    println!("  it goes on at {seen:?}");
    assert!(seen.iter().all(|version| !version.is_empty()), "nothing is listed anew");
    let controller = Controller::new(&store);
    controller.run(&mut seen, |set| set["status"]["replicas"] == 2)?;

    let set = controller.sets.get("shop", "web", &GetOptions::default())?;
    println!("generation {}, status {}", meta::generation(&set), set["status"]);
    assert_eq!(controller.pods.count("shop")?, 2);
    assert_eq!(set["status"], json!({"observedGeneration": 3, "replicas": 2}));
    Ok(())
}

/// How far the controller has seen to what happened to sets, and to pods: the resource versions to go on from.
/// Empty before the first time.
type Seen = [String; 2];

/// Where that is kept while nobody is there.
const SEEN: &str = "/controller/seen";

/// What the watches tell, each by its number.
enum Told {
    /// Something has happened to an object, or it has been there from the beginning.
    Object(Value),
    /// Everything up to this version has been told.
    Upto(usize, String),
    /// The watch has ended, and why.
    Ended(usize, Status),
}

struct Controller {
    sets: Objects,
    pods: Objects,
}

impl Controller {
    fn new(store: &Arc<Store>) -> Self {
        let sets = Kind::new("example.com/v1", "Set", "sets");
        let pods = Kind::new("v1", "Pod", "pods");
        Self {
            sets: Objects::new(Arc::clone(store), sets).strategy(KindStrategy::new().with_status()),
            pods: Objects::new(Arc::clone(store), pods),
        }
    }

    /// Makes all sets as they are wanted, and again whenever something happens, until one is as the caller waits for it.
    fn run(&self, seen: &mut Seen, is_done: impl Fn(&Value) -> bool) -> Result<()> {
        loop {
            // What an earlier watch has told late is not to be taken for news.
            let (queue, told) = mpsc::channel();
            let sets = begin(&self.sets, 0, seen, &queue)?;
            let pods = begin(&self.pods, 1, seen, &queue)?;
            let handles = [sets.handle(), pods.handle()];
            let has_expired = thread::scope(|scope| {
                scope.spawn(|| follow(sets, 0, &queue));
                scope.spawn(|| follow(pods, 1, &queue));
                let ended = self.work(&told, seen, &is_done);
                handles.iter().for_each(WatchHandle::cancel);
                ended
            })?;
            if !has_expired {
                return Ok(());
            }
        }
    }

    /// Sees to one after the other, also to what has been told by the time that it is done; answers whether a watch has
    /// come too late, so that all there is has to be listed again. Any other error is not for trying again at once.
    fn work(
        &self,
        told: &mpsc::Receiver<Told>,
        seen: &mut Seen,
        is_done: impl Fn(&Value) -> bool,
    ) -> Result<bool> {
        let mut has_done = false;
        loop {
            let next = if has_done { told.try_recv().ok() } else { told.recv().ok() };
            let Some(told) = next else { return Ok(false) };
            match told {
                Told::Upto(source, version) => seen[source] = version,
                Told::Ended(source, status) if status.code() == 410 => {
                    seen[source].clear();
                    return Ok(true);
                }
                Told::Ended(_, status) => return Err(status),
                Told::Object(object) => {
                    let name = meta::label(&object, "set").unwrap_or(meta::name(&object));
                    let set = self.reconcile(meta::namespace(&object), name)?;
                    has_done |= set.is_some_and(|set| is_done(&set));
                }
            }
        }
    }

    /// Makes one set as it is wanted, whatever has happened to it: so it does not matter how often it is called.
    fn reconcile(&self, namespace: &str, name: &str) -> Result<Option<Value>> {
        let there = GetOptions { ignore_not_found: true, ..GetOptions::default() };
        let set = self.sets.get(namespace, name, &there)?;
        let label = LabelSelector::parse(&format!("set={name}"))?;
        let predicate = Predicate { label, ..Predicate::everything() };
        let pods =
            self.pods.list(namespace, &ListOptions { predicate, ..ListOptions::default() })?;
        // Of a set that is gone, nothing is wanted.
        let wanted = set["spec"]["replicas"].as_u64().unwrap_or(0);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        for _ in pods.items.len()..wanted {
            let pod = json!({"metadata": {
                "generateName": format!("{name}-"),
                "labels": {"set": name},
                "ownerReferences": [{
                    "apiVersion": "example.com/v1", "kind": "Set", "name": name,
                    "uid": meta::uid(&set), "controller": true,
                }],
            }});
            let pod = self.pods.create(namespace, pod, &CreateOptions::default())?;
            println!("  + {}", meta::name(&pod));
        }
        for pod in pods.items.iter().skip(wanted) {
            println!("  - {}", meta::name(pod));
            match self.pods.delete(namespace, meta::name(pod), &DeleteOptions::default()) {
                Err(status) if status.reason() != Reason::NotFound => return Err(status),
                _ => {}
            }
        }
        if set.is_null() {
            return Ok(None);
        }
        self.tell(set, namespace, name, wanted)
    }

    /// Says how far it has come. Where somebody has written meanwhile, his version is read, and it is said again.
    fn tell(
        &self,
        mut set: Value,
        namespace: &str,
        name: &str,
        replicas: usize,
    ) -> Result<Option<Value>> {
        let status = json!({"observedGeneration": meta::generation(&set), "replicas": replicas});
        loop {
            set["status"] = status.clone();
            match self.sets.update_status(namespace, name, set, &UpdateOptions::default()) {
                Ok((set, _)) => return Ok(Some(set)),
                Err(refused) if refused.reason() == Reason::Conflict => {
                    set = self.sets.get(namespace, name, &GetOptions::default())?;
                }
                Err(refused) if refused.reason() == Reason::NotFound => return Ok(None),
                Err(refused) => return Err(refused),
            }
        }
    }
}

/// Watches from where it was; the first time, tells of everything there is, and watches from there.
fn begin(
    objects: &Objects,
    source: usize,
    seen: &Seen,
    queue: &mpsc::Sender<Told>,
) -> Result<ObjectWatch<Store>> {
    let mut resource_version = seen[source].clone();
    if resource_version.is_empty() {
        let list = objects.list("", &ListOptions::default())?;
        resource_version = list.resource_version;
        let told = list.items.into_iter().map(Told::Object);
        // The receiver lives as long as the sender: nothing that is sent here is lost.
        for told in told.chain([Told::Upto(source, resource_version.clone())]) {
            let _ = queue.send(told);
        }
    }
    objects.watch("", &WatchOptions { resource_version, ..WatchOptions::default() })
}

/// Tells what happens until the watch is ended.
fn follow(watch: ObjectWatch<Store>, source: usize, queue: &mpsc::Sender<Told>) {
    for event in watch {
        if let WatchEventKind::Error(status) = event.kind {
            let _ = queue.send(Told::Ended(source, status));
            return;
        }
        let version = meta::resource_version(&event.object).to_owned();
        let _ = queue.send(Told::Object(event.object));
        let _ = queue.send(Told::Upto(source, version));
    }
}
