//! What the storage asks of the store below it: no more than it has to, and what it makes of its failures.
//!
//! row 12: suggestions_save_reads
//! row 32: suggestions_save_reads, who_loses_goes_on_with_what_the_else_has_read

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use annals::clock::ManualClock;
use annals::object::kv::{Kv, ScanRequest, StoreWatch, WatchRequest};
use annals::object::{
    GroupResource, GuaranteedUpdateOptions, ListOptions, Preconditions, Storage, WatchEventKind,
    WatchOptions,
};
use annals::{Durability, KeyValue, Op, Options, Result, Store, TxnRequest, TxnResponse};
use serde_json::{Value, json};

use super::world::{PATIENCE, number, pod, recursive, status};

const KEY: &str = "/registry/pods/ns/a";

type Meanwhile = Box<dyn FnOnce() + Send>;

/// A store that counts what it is asked, and can be told that what is scanned is compacted meanwhile.
struct Counting {
    store: Store,
    _directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
    gets: AtomicU64,
    scans: AtomicU64,
    counts: AtomicU64,
    transactions: AtomicU64,
    grants: AtomicU64,
    /// Scans fail behind the second key.
    is_compacted: AtomicBool,
    /// So many times a pod is changed after a lease was granted for its change.
    losses: AtomicU64,
    /// Done while the next lease is being granted.
    meanwhile: Mutex<Option<Meanwhile>>,
}

fn world() -> (Arc<Counting>, Storage<Counting>) {
    let directory = tempfile::tempdir().unwrap();
    let clock = super::kit::clock();
    let options = Options::new().durability(Durability::Buffered).value_bytes_max(2_000);
    let store = options.clock(clock.clone()).open(directory.path()).unwrap();
    let kv = Arc::new(Counting {
        store,
        _directory: directory,
        clock: clock.clone(),
        gets: AtomicU64::new(0),
        scans: AtomicU64::new(0),
        counts: AtomicU64::new(0),
        transactions: AtomicU64::new(0),
        grants: AtomicU64::new(0),
        is_compacted: AtomicBool::new(false),
        losses: AtomicU64::new(0),
        meanwhile: Mutex::new(None),
    });
    let pods = Storage::new(kv.clone(), "/registry", GroupResource::new("", "pods"), "/pods");
    (kv, pods.clock(clock))
}

impl Counting {
    /// Gets, scans, counts, transactions and grants since it was last asked.
    fn asked(&self) -> [u64; 5] {
        [&self.gets, &self.scans, &self.counts, &self.transactions, &self.grants]
            .map(|counter| counter.swap(0, Ordering::SeqCst))
    }
}

fn one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::SeqCst);
}

impl Kv for Counting {
    type Scan = Box<dyn Iterator<Item = Result<KeyValue>> + Send>;
    type Watch = StoreWatch;

    fn revision(&self) -> Result<u64> {
        Kv::revision(&self.store)
    }

    fn get(&self, key: &[u8], at: Option<u64>) -> Result<(Option<KeyValue>, u64)> {
        one(&self.gets);
        Kv::get(&self.store, key, at)
    }

    fn scan(&self, request: ScanRequest<'_>) -> Result<(Self::Scan, u64)> {
        one(&self.scans);
        let (kvs, revision) = self.store.scan(request)?;
        if !self.is_compacted.load(Ordering::SeqCst) {
            return Ok((Box::new(kvs), revision));
        }
        let error = self.store.at(1).expect_err("it is compacted");
        Ok((Box::new(kvs.take(2).chain([Err(error)])), revision))
    }

    fn count(&self, request: ScanRequest<'_>) -> Result<u64> {
        one(&self.counts);
        Kv::count(&self.store, request)
    }

    fn transact(&self, request: TxnRequest) -> Result<TxnResponse> {
        one(&self.transactions);
        let is_leased = |op: &Op| matches!(op, Op::Put(put) if put.lease != 0 && put.key == KEY);
        if request.success.iter().any(is_leased)
            && let Some(left) = self.losses.load(Ordering::SeqCst).checked_sub(1)
        {
            self.losses.store(left, Ordering::SeqCst);
            self.store.put(KEY, json!({"left": left}).to_string()).unwrap();
        }
        Kv::transact(&self.store, request)
    }

    fn grant(&self, ttl: i64) -> Result<i64> {
        one(&self.grants);
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        Kv::grant(&self.store, ttl)
    }

    fn watch(&self, request: WatchRequest<'_>) -> Result<StoreWatch> {
        Kv::watch(&self.store, request)
    }
}

fn update(
    pods: &Storage<Counting>,
    cached: Option<&Value>,
    change: &mut dyn FnMut(&mut Value),
) -> Value {
    let mut each = |mut pod: Value, _| {
        change(&mut pod);
        Ok((pod, None))
    };
    let (options, none) = (GuaranteedUpdateOptions::default(), Preconditions::none());
    pods.guaranteed_update("/pods/ns/a", options, &none, &mut each, cached).unwrap()
}

#[test]
fn suggestions_save_reads() {
    let (kv, pods) = world();
    let none = Preconditions::none();
    let made = pods.create("/pods/ns/a", pod("ns", "a"), 0).unwrap();
    assert_eq!(kv.asked(), [0, 0, 0, 1, 0], "a creation is one transaction");
    let mut n = 0;
    let mut change = |pod: &mut Value| {
        n += 1;
        pod["n"] = n.into();
    };
    let first = update(&pods, None, &mut change);
    assert_eq!(kv.asked(), [1, 0, 0, 1, 0]);
    let second = update(&pods, Some(&first), &mut change);
    assert_eq!(kv.asked(), [0, 0, 0, 1, 0], "the suggestion is what is there");
    update(&pods, Some(&first), &mut change);
    assert_eq!(kv.asked(), [0, 0, 0, 2, 0], "it is not: the Else has read what is");
    update(&pods, None, &mut |_| {});
    assert_eq!(kv.asked(), [1, 0, 0, 0, 0], "nothing is written");
    let last = update(&pods, Some(&second), &mut |_| {});
    assert_eq!(kv.asked(), [1, 0, 0, 0, 0], "what somebody believes has to be looked up for that");
    pods.delete("/pods/ns/a", &none, &mut |_| Ok(()), Some(&made)).unwrap();
    assert_eq!(kv.asked(), [0, 0, 0, 2, 0]);
    assert!(pods.delete("/pods/ns/a", &none, &mut |_| Ok(()), Some(&last)).is_err());
    assert_eq!(kv.asked(), [0, 0, 0, 1, 0]);
    assert!(pods.delete("/pods/ns/a", &none, &mut |_| Ok(()), None).is_err());
    assert_eq!(kv.asked(), [1, 0, 0, 0, 0]);
}

#[test]
fn who_loses_goes_on_with_what_the_else_has_read() {
    let (kv, pods) = world();
    pods.create("/pods/ns/a", pod("ns", "a"), 0).unwrap();
    kv.asked();
    let (mut left, mut seen) = (4, Vec::new());
    let last = update(&pods, None, &mut |pod| {
        seen.push(number(pod));
        if left > 0 {
            left -= 1;
            kv.store.put("/registry/pods/ns/a", json!({"n": left}).to_string()).unwrap();
        }
        pod["mine"] = true.into();
    });
    assert_eq!(kv.asked(), [1, 0, 0, 5, 0], "one read, and a transaction for each try");
    assert_eq!((seen, number(&last), &last["n"]), (vec![2, 3, 4, 5, 6], 7, &json!(0)));
}

#[test]
fn a_write_is_granted_one_lease_in_all_its_tries() {
    let (kv, pods) = world();
    pods.create("/pods/ns/a", pod("ns", "a"), 0).unwrap();
    for (ttl, granted) in [(1, 2), (10, 11), (3600, 3660)] {
        kv.losses.store(5, Ordering::SeqCst);
        kv.asked();
        let (mut tries, mut others) = (0, 0);
        let mut change = |mut found: Value, _| {
            // Somebody else has one granted that does not fit.
            tries += 1;
            let name = format!("{ttl}-{tries}");
            pods.create(&format!("/pods/ns/{name}"), pod("ns", &name), 500).unwrap();
            others += kv.asked()[4];
            found["tries"] = tries.into();
            Ok((found, Some(ttl)))
        };
        let (options, none) = (GuaranteedUpdateOptions::default(), Preconditions::none());
        let changed =
            pods.guaranteed_update("/pods/ns/a", options, &none, &mut change, None).unwrap();
        assert_eq!((&changed["tries"], &changed["left"]), (&json!(6), &json!(0)));
        assert!(others <= tries);
        // What has been asked since the last try is that write; the lease was granted in the first one.
        assert_eq!(kv.asked(), [0, 0, 0, 1, 0]);
        let leases = kv.store.lease_list().unwrap();
        assert_eq!(leases.iter().filter(|lease| lease.ttl == granted).count(), 1);
    }
}

#[test]
fn what_is_refused_is_granted_no_lease() {
    let (kv, pods) = world();
    let made = pods.create("/pods/ns/a", pod("ns", "a"), 0).unwrap();
    let large = json!({"metadata": {"name": "b"}, "spec": "x".repeat(2_000)});
    let update = |wanted: &Preconditions, object: &Value, cached: Option<&Value>| {
        let mut change = |_, _| Ok((object.clone(), Some(5)));
        pods.guaranteed_update(
            "/pods/ns/a",
            GuaranteedUpdateOptions::default(),
            wanted,
            &mut change,
            cached,
        )
    };
    for _ in 0..3 {
        assert!(pods.create("/pods/ns/a", pod("ns", "a"), 5).is_err());
        assert!(pods.create("/pods/ns/b", large.clone(), 5).is_err());
        assert!(pods.clone().dry_run().create("/pods/ns/b", pod("ns", "b"), 5).is_ok());
        assert!(update(&Preconditions::none(), &large, None).is_err());
        assert!(update(&Preconditions::uid("other"), &made, Some(&made)).is_err());
    }
    assert_eq!(kv.asked()[4], 0);
    assert_eq!(kv.store.lease_list().unwrap(), []);

    // Also what lives for a short time only shares its lease.
    for n in 0..20 {
        pods.create(&format!("/pods/ns/short-{n}"), pod("ns", "short"), 1).unwrap();
    }
    assert_eq!(kv.asked()[4], 1);
    kv.clock.advance(1_000_000);
    pods.create("/pods/ns/late", pod("ns", "late"), 1).unwrap();
    assert_eq!(kv.asked()[4], 1, "the other one would end too early");
}

#[test]
fn nobody_waits_while_another_is_granted_a_lease() {
    let (kv, pods) = world();
    let other = pods.clone();
    let (done, is_done) = std::sync::mpsc::channel();
    *kv.meanwhile.lock().unwrap() = Some(Box::new(move || {
        std::thread::spawn(move || {
            let made = other.create("/pods/ns/b", pod("ns", "b"), 5);
            done.send(made.map(drop)).unwrap();
        });
        is_done.recv_timeout(PATIENCE).expect("it does not wait").unwrap();
    }));
    pods.create("/pods/ns/a", pod("ns", "a"), 5).unwrap();
    assert_eq!(pods.count("/pods").unwrap(), 2);
}

#[test]
fn the_rest_of_a_list_is_counted_once() {
    let (kv, pods) = world();
    for n in 0..50 {
        pods.create(&format!("/pods/ns/{n:02}"), pod("ns", &n.to_string()), 1000).unwrap();
    }
    assert_eq!(kv.asked(), [0, 0, 0, 51, 1], "and one lease is enough for all");
    let mut options = ListOptions { limit: 5, ..recursive() };
    for page in 1..=10 {
        let list = pods.list("/pods", &options).unwrap();
        assert_eq!(list.remaining_item_count, (page < 10).then_some(50 - page * 5));
        assert_eq!(kv.asked(), [0, 1, u64::from(page == 1), 0, 0], "page {page}");
        options.continue_token = list.continue_token;
    }
    // Nobody counts what is not told, or is all there.
    options.predicate.label = annals::object::LabelSelector::parse("!none").unwrap();
    pods.list("/pods", &options).unwrap();
    pods.list("/pods", &recursive()).unwrap();
    assert_eq!(kv.asked(), [0, 2, 0, 0, 0]);
    pods.list("/pods/ns/07", &ListOptions::default()).unwrap();
    assert_eq!(kv.asked(), [1, 0, 0, 0, 0]);
}

/// A store that cannot keep what is being scanned says so in the midst of it.
#[test]
fn a_scan_that_is_overtaken_says_so() {
    let (kv, pods) = world();
    for n in 0..9 {
        pods.create(&format!("/pods/ns/{n}"), pod("ns", &n.to_string()), 0).unwrap();
    }
    let mut options = ListOptions { limit: 2, ..recursive() };
    options.continue_token = pods.list("/pods", &options).unwrap().continue_token;
    kv.store.compact(5).unwrap();
    kv.is_compacted.store(true, Ordering::SeqCst);
    let gone = status(pods.list("/pods", &recursive()));
    assert_eq!((gone.code(), gone.continue_token()), (410, None));
    options.limit = 5;
    let gone = status(pods.list("/pods", &options));
    assert!(gone.code() == 410 && gone.continue_token().is_some());
    let options = WatchOptions { recursive: true, ..WatchOptions::default() };
    let told: Vec<_> = pods.watch("/pods", &options).unwrap().map(|event| event.kind).collect();
    let [WatchEventKind::Added, WatchEventKind::Added, WatchEventKind::Error(gone)] = &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!(gone.code(), 410);
}
