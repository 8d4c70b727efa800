//! What the object layer costs beside the bare operations of the store with the same bytes.
//!
//! ```sh
//! cargo bench --bench object --features object              # all of it, about a minute
//! cargo bench --bench object --features object -- quick     # proves that it works
//! cargo bench --bench object --features object -- calls     # or: list, watch, equal
//! ```
//!
//! Each figure is the median of interleaved rounds, in nanoseconds for one object; behind it is how many times as long
//! that is as for the bare operation. Objects are Pods of about a kibibyte of JSON, the store is `Buffered`.
//!
//! **calls**: create, get, an update that changes something, one that changes nothing, and delete; beside a
//! transaction that puts if the key is free, a get, a get and a transaction that puts if the key is as it was read, a
//! get, and a transaction that deletes if the key is as it was read.
//!
//! **list**: all objects in one list, in pages of 500, and in pages of 500 of which a selector leaves one in ten; beside
//! an iteration over the keys. A page of which the rest were counted each time would show here.
//!
//! **watch**: the changes of all objects from the first version on; beside a watch of the keys.
//!
//! **equal**: a hundred thousand updates that change nothing, and what they have written: revisions and bytes of the
//! log.
#![expect(clippy::expect_used, reason = "a bench that cannot do its work has nothing to measure")]
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::cast_precision_loss, reason = "figures are printed with a few digits")]

mod common;

use std::sync::Arc;
use std::time::Instant;

use annals::object::{
    GetOptions, GroupResource, GuaranteedUpdateOptions, LabelSelector, ListOptions, Preconditions,
    Predicate, Storage, WatchOptions,
};
use annals::{Durability, Options, Store, delete, mod_revision, put, txn};
use serde_json::{Value, json};

const ROUNDS: usize = 5;
const PAGE: u64 = 500;

fn main() {
    let (quick, wanted) = common::asked();
    let count = if quick { 2_000 } else { 100_000 };
    if wanted("calls") {
        calls(if quick { 500 } else { 10_000 });
    }
    if wanted("list") || wanted("watch") || wanted("equal") {
        let bench = Bench::new("object-bench-many");
        for number in 0..count {
            bench.create(number);
        }
        if wanted("list") {
            lists(&bench, count);
        }
        if wanted("watch") {
            watches(&bench, count);
        }
        if wanted("equal") {
            equal(&bench, count);
        }
    }
}

struct Bench {
    store: Arc<Store>,
    pods: Storage<Store>,
    none: Preconditions,
}

impl Bench {
    fn new(name: &str) -> Self {
        let options = Options::new().durability(Durability::Buffered);
        let store = Arc::new(options.open(common::directory(name)).expect("a store"));
        let pods =
            Storage::new(store.clone(), "/registry", GroupResource::new("", "pods"), "/pods");
        Self { store, pods, none: Preconditions::none() }
    }

    fn create(&self, number: u64) {
        self.pods.create(&key(number), pod(number), 0).expect("created");
    }

    fn update(&self, number: u64, change: u64) {
        let mut each = |mut pod: Value, _| {
            pod["status"]["restarts"] = change.into();
            Ok((pod, None))
        };
        let options = GuaranteedUpdateOptions::default();
        let done = self.pods.guaranteed_update(&key(number), options, &self.none, &mut each, None);
        done.expect("updated");
    }

    fn delete(&self, number: u64) {
        self.pods.delete(&key(number), &self.none, &mut |_| Ok(()), None).expect("deleted");
    }
}

fn key(number: u64) -> String {
    format!("/pods/ns{}/pod-{number:07}", number % 10)
}

/// The key of the same length on which the bare operation works.
fn bare_key(number: u64) -> String {
    format!("/registrx{}", key(number))
}

fn pod(number: u64) -> Value {
    let container = |n: u64| {
        json!({
            "name": format!("container-{n}"), "image": format!("registry.example.com/app:{n}"),
            "env": [{"name": "NUMBER", "value": number.to_string()}, {"name": "MODE", "value": "production"}],
            "ports": [{"containerPort": 8080 + n, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}, "requests": {"cpu": "250m", "memory": "64Mi"}},
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("pod-{number:07}"), "namespace": format!("ns{}", number % 10),
            "uid": format!("00000000-0000-4000-8000-{number:012}"), "creationTimestamp": "2024-01-01T00:00:00Z",
            "labels": {"app": format!("app-{}", number % 10), "tier": "web"},
        },
        "spec": {"containers": [container(0), container(1)], "nodeName": "node-1", "restartPolicy": "Always"},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "restarts": 0},
    })
}

/// Nanoseconds for each of `count`.
fn time(count: u64, work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_nanos() as f64 / count as f64
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Prints the medians of two ways that have been measured in turn, and of their ratio in each round.
fn report(what: &str, rounds: &[(f64, f64)]) {
    let object = median(rounds.iter().map(|round| round.0).collect());
    let bare = median(rounds.iter().map(|round| round.1).collect());
    let ratio = median(rounds.iter().map(|(object, bare)| object / bare).collect());
    let rate = 1e9 / object;
    println!("{what:<28} {object:>12.0} {bare:>12.0} {ratio:>9.2}x {rate:>12.0}");
}

fn head() {
    println!("{:<28} {:>12} {:>12} {:>10} {:>12}", "", "object (ns)", "bare (ns)", "", "objects/s");
}

fn calls(count: u64) {
    head();
    let mut rounds: [Vec<(f64, f64)>; 5] = Default::default();
    let bench = Bench::new("object-bench-calls");
    let Bench { store, .. } = &bench;
    let bytes = |number: u64| pod(number).to_string().into_bytes();
    let all = |each: &dyn Fn(u64)| time(count, || (0..count).for_each(each));
    for round in 1..=ROUNDS as u64 {
        let values: Vec<_> = (0..count).map(bytes).collect();
        let value = |number: u64| values[usize::try_from(number).expect("a small number")].clone();
        let read = |number: u64| store.get(bare_key(number)).expect("read").expect("there");
        let object = all(&|number| bench.create(number));
        let bare = all(&|number| {
            let key = bare_key(number);
            let free = txn().when([mod_revision(&key).eq(0)]).then([put(&key, value(number))]);
            store.submit(free).expect("submitted").wait().expect("put");
        });
        rounds[0].push((object, bare));
        let got = |number: u64| bench.pods.get(&key(number), &GetOptions::default());
        let object = all(&|number| drop(got(number).expect("read")));
        rounds[1].push((object, all(&|number| drop(read(number)))));
        let object = all(&|number| bench.update(number, round));
        let bare = all(&|number| {
            let (key, there) = (bare_key(number), read(number));
            let same = mod_revision(&key).eq(there.mod_revision);
            let change = txn().when([same]).then([put(&key, there.value)]);
            store.submit(change).expect("submitted").wait().expect("put");
        });
        rounds[2].push((object, bare));
        let object = all(&|number| bench.update(number, round));
        rounds[3].push((object, all(&|number| drop(read(number)))));
        let object = all(&|number| bench.delete(number));
        let bare = all(&|number| {
            let (key, there) = (bare_key(number), read(number));
            let same = mod_revision(&key).eq(there.mod_revision);
            let change = txn().when([same]).then([delete(&key)]);
            store.submit(change).expect("submitted").wait().expect("deleted");
        });
        rounds[4].push((object, bare));
    }
    let names = ["create", "get", "update", "update, the same", "delete"];
    for (name, rounds) in names.iter().zip(&rounds) {
        report(name, rounds);
    }
}

/// Lists all objects in pages; answers how many there were.
fn list(bench: &Bench, limit: u64, label: &str) -> u64 {
    let label = LabelSelector::parse(label).expect("a selector");
    let predicate = Predicate { label, ..Predicate::everything() };
    let mut options = ListOptions { limit, predicate, recursive: true, ..ListOptions::default() };
    let mut listed = 0;
    loop {
        let page = bench.pods.list("/pods", &options).expect("a list");
        listed += page.items.len() as u64;
        options.continue_token = page.continue_token;
        if options.continue_token.is_empty() {
            return listed;
        }
    }
}

fn lists(bench: &Bench, count: u64) {
    head();
    let ways = [
        ("list", 0, ""),
        ("list, pages of 500", PAGE, ""),
        ("list, one in ten", PAGE, "app=app-3"),
    ];
    let mut rounds: [Vec<(f64, f64)>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for ((_, limit, label), rounds) in ways.iter().zip(&mut rounds) {
            let wanted = if label.is_empty() { count } else { count / 10 };
            let object = time(count, || assert_eq!(list(bench, *limit, label), wanted));
            let bare = time(count, || {
                let view = bench.store.latest().expect("a view");
                let found = view
                    .prefix("/registry/pods/")
                    .filter(|kv| kv.as_ref().expect("read").value.len() > 100);
                assert_eq!(found.count() as u64, count);
            });
            rounds.push((object, bare));
        }
    }
    for ((name, ..), rounds) in ways.iter().zip(&rounds) {
        report(name, rounds);
    }
    let count_of = time(1, || assert_eq!(bench.pods.count("/pods").expect("counted"), count));
    println!("{:<28} {count_of:>12.0} (one call)", "count");
}

fn watches(bench: &Bench, count: u64) {
    head();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let options = WatchOptions {
            resource_version: "1".into(),
            recursive: true,
            ..WatchOptions::default()
        };
        let object = time(count, || {
            let watch = bench.pods.watch("/pods", &options).expect("a watch");
            assert_eq!(watch.take(usize::try_from(count).expect("a number")).count() as u64, count);
        });
        let bare = time(count, || {
            let watch = bench.store.watch("/registry/pods/").prefix().from(2).prev_kv();
            let mut told = 0;
            for batch in watch.start().expect("a watch") {
                told += batch.expect("a batch").events().len() as u64;
                if told >= count {
                    break;
                }
            }
        });
        rounds.push((object, bare));
    }
    report("watch", &rounds);
}

fn equal(bench: &Bench, count: u64) {
    let figures = || (bench.store.revision(), bench.store.stats().wal_bytes);
    // So that nothing of what was before is written meanwhile.
    bench.store.flush().expect("flushed");
    let before = figures();
    let took = time(count, || (0..count).for_each(|number| bench.update(number, 0)));
    bench.store.flush().expect("flushed");
    let after = figures();
    println!("{count} updates that change nothing, {took:.0} ns each");
    println!("revision before and after: {} {}", before.0, after.0);
    println!("bytes of the log before and after: {} {}", before.1, after.1);
    assert_eq!(before.0, after.0, "they write nothing");
}
