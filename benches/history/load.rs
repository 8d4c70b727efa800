//! Keys, values, and the stores that are measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use annals::{Durability, Options, Store, put};

/// Bytes of a value of which half is noise.
const VALUE_BYTES: usize = 256;

/// Puts in one transaction while a store is filled.
const PUTS: usize = 100;

/// A sequence of numbers without order, the same in every run (`SplitMix64`: Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    /// The next number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }
}

/// The key of this number: 31 bytes.
pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("/registry/pods/ns-{:03}/pod-{number:08}", number % 1000).into_bytes()
}

/// What the stores hold, and how they are opened; set once, before anything else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// Values like the manifests of Kubernetes' pods, instead of half noise.
    pub(crate) pods: bool,
    /// The options that are not as usual.
    pub(crate) engine: Options,
}

static SETUP: OnceLock<Setup> = OnceLock::new();

/// Sets what the stores hold. The first call counts.
pub(crate) fn set_up(setup: Setup) {
    SETUP.get_or_init(|| setup);
}

fn setup() -> &'static Setup {
    SETUP.get_or_init(Setup::default)
}

/// Of version `version` of the key of number `number`.
pub(crate) fn value(number: u64, version: u64) -> Vec<u8> {
    if setup().pods { pod(number, version) } else { half_noise(number ^ version << 40) }
}

/// Some 2 KB of which a version changes only small parts: a status, a counter, a few times.
fn pod(number: u64, version: u64) -> Vec<u8> {
    let uid = Rng(number).number();
    let label = |n| format!("\"label-{n}\":\"{:x}\",", Rng(number * 16 + n).number());
    let labels = (0..12).map(label).collect::<Vec<_>>().concat();
    let condition = |name: &str, every: u64| {
        let time = 1_700_000_000 + version / every * every * 60;
        let status = if version / every % 5 == 3 { "False" } else { "True" };
        format!(
            "{{\"type\":\"{name}\",\"status\":\"{status}\",\"lastProbeTime\":null,\
             \"lastTransitionTime\":\"{time}\",\"reason\":\"Kubelet\"}}"
        )
    };
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled", "Disrupted"];
    let conditions: Vec<String> = conditions
        .iter()
        .zip([100, 1, 3, 50, 20])
        .map(|(name, every)| condition(name, every))
        .collect();
    format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"pod-{number}\",\"uid\":\"{uid:x}\",\
         \"resourceVersion\":\"{}\",\"labels\":{{{labels}\"app\":\"web\"}}}},\"spec\":{{\"containers\":[{{\"image\":\
         \"registry.example/web:{}\",\"args\":[{}]}}]}},\"status\":{{\"phase\":\"Running\",\"restarts\":{},\
         \"conditions\":[{}]}}}}",
        1_000_000 + version * 997,
        uid % 30,
        "\"--verbose=false --listen=0.0.0.0:8080 --timeout=30s\",".repeat(8),
        version / 9,
        conditions.join(","),
    )
    .into_bytes()
}

/// A value of which half is noise.
fn half_noise(seed: u64) -> Vec<u8> {
    let mut rng = Rng(seed);
    let mut out: Vec<u8> = (0..VALUE_BYTES / 16).flat_map(|_| rng.number().to_le_bytes()).collect();
    out.resize(VALUE_BYTES, b'.');
    out
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Bytes of a version as the user counts them.
pub(crate) fn version_bytes() -> u64 {
    (key(0).len() + value(0, 0).len()) as u64
}

/// A directory that is removed when dropped.
#[derive(Debug)]
pub(crate) struct Dir(PathBuf);

impl Dir {
    /// A fresh one below `parent`.
    pub(crate) fn new(parent: &Path, name: &str) -> Self {
        let dir = parent.join(format!("bench-history-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a directory");
        Self(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The store of a directory, as an application would open it.
pub(crate) fn open(dir: &Path, durability: Durability) -> Store {
    open_with(dir, durability, |_| ())
}

/// The same with other options.
pub(crate) fn open_with(
    dir: &Path,
    durability: Durability,
    change: impl FnOnce(&mut Options),
) -> Store {
    let mut options = setup().engine.clone().durability(durability);
    change(&mut options);
    options.open(dir).expect("a store")
}

/// Writes the keys of these numbers, many in a transaction.
pub(crate) fn write(store: &Store, numbers: impl Iterator<Item = u64>, nonce: u64) {
    let mut numbers = numbers.peekable();
    while numbers.peek().is_some() {
        let puts = numbers.by_ref().take(PUTS);
        let puts: Vec<_> = puts.map(|n| put(key(n), value(n, nonce))).collect();
        store.txn().then(puts).commit().expect("a commit");
    }
}

/// Writes `versions` versions of each of `keys` keys: version by version, so that those of a key are
/// spread over the whole time.
pub(crate) fn fill(store: &Store, keys: u64, versions: u64) {
    for version in 0..versions {
        write(store, 0..keys, version);
    }
}

/// Waits until the background threads have nothing to do: nothing has changed for a second.
pub(crate) fn settle(store: &Store) {
    store.flush().expect("a flush");
    let mut seen = (0, 0);
    loop {
        let stats = store.stats();
        let now = (stats.background_bytes, stats.manifests);
        if now == seen {
            return;
        }
        seen = now;
        std::thread::sleep(Duration::from_secs(1));
    }
}
