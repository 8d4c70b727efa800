//! What large values cost that lie among small ones: in blob files, and in the entries of HEAD.

use std::hint::black_box;
use std::time::Instant;

use annals::{Durability, Store};

use crate::load::{self, Dir, Rng};
use crate::options::Options;
use crate::shapes::Row;

const LARGE_BYTES: usize = 256 << 10;
const LARGE: u64 = 1_000;

fn large(number: u64) -> Vec<u8> {
    // Beside the small ones.
    [load::key(number), b"/large".to_vec()].concat()
}

fn noise(rng: &mut Rng) -> Vec<u8> {
    let mut value = Vec::with_capacity(LARGE_BYTES);
    while value.len() < LARGE_BYTES {
        value.extend_from_slice(&rng.number().to_le_bytes());
    }
    value
}

/// Bytes written by flushes, folds and merges for each byte put, and what a get of a large value takes.
pub(crate) fn measure(options: &Options) -> Vec<Row> {
    let placed = [("in blob files", "65536"), ("in HEAD", "4294967296")];
    let rows = placed.map(|(name, blob_value_bytes)| {
        let dir = Dir::new(&options.dir, "large");
        let store = load::open_with(dir.path(), Durability::Buffered, |options| {
            options.set("blob_value_bytes", blob_value_bytes).expect("an option");
        });
        one(&store, options.scale, name)
    });
    rows.into_iter().flatten().collect()
}

fn one(store: &Store, scale: u64, name: &str) -> Vec<Row> {
    let mut rng = Rng(7);
    let keys = 100_000 * scale;
    load::write(store, 0..keys, 0);
    for number in 0..LARGE {
        store.put(large(number), noise(&mut rng)).expect("a commit");
    }
    store.reorganise().expect("background work");
    let mut rows = Vec::new();
    let mut row = |what: String, reached: f64| {
        rows.push((
            format!("{what}, {LARGE} values of 256 KiB {name}"),
            format!("{reached:.2}"),
            String::new(),
        ));
    };
    let updates = 5 * keys;
    let before = store.stats().background_bytes;
    for nonce in 1..=5 {
        // A step without a common factor: each key once.
        load::write(store, (0..keys).map(|n| n * 7_919 % keys), nonce);
    }
    load::settle(store);
    let written = store.stats().background_bytes - before;
    let put = updates * load::version_bytes();
    row(
        format!("bytes in the background for a byte put, {updates} small updates"),
        written as f64 / put as f64,
    );

    let before = store.stats().background_bytes;
    for _ in 0..2 * LARGE {
        store.put(large(rng.below(LARGE)), noise(&mut rng)).expect("a commit");
    }
    load::settle(store);
    let written = store.stats().background_bytes - before;
    let put = 2 * LARGE * LARGE_BYTES as u64;
    row(format!("the same, {} updates of the large ones", 2 * LARGE), written as f64 / put as f64);

    store.reorganise().expect("background work");
    let best = (0..7).map(|_| {
        let begun = Instant::now();
        for _ in 0..10_000 {
            let key = large(rng.below(LARGE));
            black_box(store.get(key).expect("a get").expect("a value"));
        }
        begun.elapsed().as_secs_f64() * 1e9 / 10_000.0
    });
    let best = best.fold(f64::MAX, f64::min);
    row(
        "get of a large one that is not looked at, ns, the best of 7 times 10,000".to_owned(),
        best,
    );
    rows
}
