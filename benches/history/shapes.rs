//! Costs that depend on what a store is like, each as a ratio to the same without it.

use std::fs;
use std::hint::black_box;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use annals::{Durability, Store, View};

use crate::load::{self, Dir, Rng, key, median, value, version_bytes};
use crate::options::Options;

/// Commits outstanding at a time.
const WINDOW: u64 = 64;

/// One row: what, how much, and what is asked for.
pub(crate) type Row = (String, String, String);

/// Keys a second of a scan of everything.
fn scan(view: &View) -> f64 {
    let (begun, mut keys) = (Instant::now(), 0);
    for kv in view.range(..) {
        black_box(kv.expect("a key"));
        keys += 1;
    }
    f64::from(keys) / begun.elapsed().as_secs_f64()
}

/// Scans of two views in turns: the median of the ratio of the second to the first.
fn scans(rounds: usize, first: &View, second: &View) -> f64 {
    median((0..rounds * 3).map(|_| scan(second) / scan(first)).collect())
}

/// Many versions a key beside one: as writing leaves the stores, where the one version of each key still lies
/// in memory and the thousand do not, and with both in files, where only the number of versions differs.
pub(crate) fn versions(options: &Options) -> Vec<Row> {
    let keys = 2_000 * options.scale;
    let store = |versions: u64| {
        let dir = Dir::new(&options.dir, &format!("versions-{versions}"));
        let store = load::open(dir.path(), Durability::Buffered);
        load::fill(&store, keys, versions);
        load::settle(&store);
        (store, dir)
    };
    let (one, many) = (store(1), store(1_000));
    let row = |how: &str, target: &str| {
        let (first, second) = (one.0.latest().expect("a view"), many.0.latest().expect("a view"));
        let ratio = scans(options.rounds, &first, &second);
        let what = format!("scan latest of {keys} keys: 1,000 versions a key beside 1, {how}");
        (what, format!("{ratio:.2}"), target.to_owned())
    };
    let as_written = row("as written", "");
    for (store, _) in [&one, &many] {
        store.reorganise().expect("background work");
        load::settle(store);
    }
    vec![as_written, row("both in files", ">= 0.9")]
}

/// A scan of an old revision, by the share of keys changed since.
pub(crate) fn changed(options: &Options) -> Vec<Row> {
    let keys = 20_000 * options.scale;
    let dir = Dir::new(&options.dir, "changed");
    let store = load::open(dir.path(), Durability::Buffered);
    load::fill(&store, keys, 1);
    let mut rows = Vec::new();
    let mut rng = Rng(1);
    for (nonce, share) in [(1, 0.01), (2, 0.1), (3, 0.5), (4, 1.0)] {
        let old = store.revision();
        let count = (keys as f64 * share) as u64;
        let start = rng.below(keys);
        // A step without a common factor: each key once.
        let step = 7_919;
        load::write(&store, (0..count).map(|n| (start + n * step) % keys), nonce);
        store.reorganise().expect("background work");
        load::settle(&store);
        let (latest, old) = (store.latest().expect("a view"), store.at(old).expect("a view"));
        let times = scans(options.rounds, &latest, &old).recip();
        rows.push((
            format!(
                "scan of an old revision, {} % of the keys changed since, times latest",
                share * 100.0
            ),
            format!("{times:.2}"),
            format!("<= {:.2}", 1.0 + 8.0 * share),
        ));
    }
    rows
}

/// Bytes written to the device for each byte of key and value.
pub(crate) fn written(options: &Options) -> Vec<Row> {
    let keys = 100_000 * options.scale;
    let updates = 10 * keys;
    let load = |name: &str, durability: Durability, hot: bool, target: &str| {
        let dir = Dir::new(&options.dir, &format!("written-{hot}"));
        let store = load::open(dir.path(), durability);
        load::write(&store, 0..keys, 0);
        load::settle(&store);
        let (before, mut rng) = (written_bytes(dir.path()), Rng(7));
        let choose = |rng: &mut Rng| {
            let of = if hot && rng.below(10) < 8 { keys / 100 } else { keys };
            rng.below(of)
        };
        for _ in 0..updates / WINDOW {
            window(&store, &mut rng, choose);
        }
        load::settle(&store);
        store.close().expect("a close");
        let bytes = updates / WINDOW * WINDOW * version_bytes();
        let times = written_bytes(dir.path()).saturating_sub(before) as f64 / bytes as f64;
        (
            format!("bytes written for a byte put, {updates} updates of {keys} keys, {name}"),
            format!("{times:.2}"),
            target.to_owned(),
        )
    };
    vec![
        load("80 % to 1 % of them", Durability::Sync, true, "<= 3.5"),
        load("uniform", Durability::Sync, false, "<= 12"),
        // Its log is not written with zeros first.
        load("80 % to 1 % of them, buffered", Durability::Buffered, true, "<= 3.5"),
        load("uniform, buffered", Durability::Buffered, false, "<= 12"),
    ]
}

/// What the device of this directory has been given to write, by whomever: so nothing else should write
/// meanwhile. 0 where that cannot be known. (`write_bytes` of `/proc/self/io` counts a folio whole each
/// time a page of it becomes dirty, which with large folios is several times too much.)
fn written_bytes(dir: &Path) -> u64 {
    const SECTOR_BYTES: u64 = 512;
    // What is still in memory counts, too.
    let _ = Command::new("sync").status();
    let device = fs::metadata(dir).map_or(0, |data| data.dev());
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
    let stats = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let sectors = stats.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let is_it =
            |field: Option<&str>, number: u64| field.is_some_and(|f| f.parse() == Ok(number));
        let found = is_it(fields.next(), major) && is_it(fields.next(), minor);
        found.then(|| fields.nth(7)?.parse::<u64>().ok()).flatten()
    });
    sectors.unwrap_or(0) * SECTOR_BYTES
}

fn filled(options: &Options, name: &str) -> (Store, Dir) {
    let dir = Dir::new(&options.dir, name);
    let store = load::open(dir.path(), Durability::Sync);
    load::fill(&store, 10_000 * options.scale, 50);
    load::settle(&store);
    (store, dir)
}

/// A reader beside a writer that always has 64 commits outstanding. Reader, writer and the background threads
/// together want more processors than two, so there are two figures: gets a second of the clock, of which a part
/// is that others have the processor, and gets a second of the reader's own time on it, which tells what others
/// do to its caches, its memory and the words that it shares with them.
///
/// Of the keys that are written some lie in memory beside the writer that lay in files without: a get of these is
/// faster then. The other half of the keys lies in files in both cases. The control is a writer of another store
/// in the same process: the two share no word but those of the allocator, so that what the reader loses is what any busy
/// neighbour takes of the machine.
pub(crate) fn beside(options: &Options) -> Vec<Row> {
    let keys = 10_000 * options.scale;
    let (store, _dir) = filled(options, "beside");
    let (other, _other_dir) = filled(options, "beside-other");
    let cells = [
        ("a writer of the same keys", &store, 1, ""),
        ("a writer of other keys", &store, 0, ">= 0.9"),
        ("a writer of another store", &other, 0, ""),
    ];
    let rows = cells.map(|(beside, written, half, target)| {
        let rows = beside_one(options, (&store, written), keys, half);
        let targets = ["", target];
        let row = |((what, ratio), target): ((_, f64), &str)| {
            let what = format!("get latest beside {beside}, {what}, times alone");
            (what, format!("{ratio:.2}"), target.to_owned())
        };
        rows.into_iter().zip(targets).map(row).collect::<Vec<_>>()
    });
    rows.into_iter().flatten().collect()
}

/// Gets of the keys with this remainder by 2, beside a writer of odd ones in the same store or another one: times what
/// they are alone.
fn beside_one(
    options: &Options,
    (store, written): (&Store, &Store),
    keys: u64,
    half: u64,
) -> [(&'static str, f64); 2] {
    let gets = |time: Duration| {
        let (begun, mut rng, mut gets) = (Instant::now(), Rng(3), 0_u32);
        let had = own_seconds();
        while begun.elapsed() < time {
            for _ in 0..100 {
                let number = rng.below(keys / 2) * 2 + half;
                black_box(store.get(key(number)).expect("a get").expect("a value"));
            }
            gets += 100;
        }
        let gets = f64::from(gets);
        (gets / begun.elapsed().as_secs_f64(), gets / (own_seconds() - had))
    };
    let ratios = |_| {
        // What the writer of the round before left to do is not done beside this.
        written.reorganise().expect("background work");
        load::settle(written);
        let alone = gets(Duration::from_secs(2));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| busy(written, keys, &done));
            let beside = gets(Duration::from_secs(2));
            done.store(true, Ordering::Relaxed);
            (beside.0 / alone.0, beside.1 / alone.1)
        })
    };
    let (clock, own): (Vec<f64>, Vec<f64>) = (0..options.rounds).map(ratios).unzip();
    [
        ("a second of the clock", median(clock)),
        ("a second of the reader's processor time", median(own)),
    ]
}

/// Seconds that this thread has been on a processor (Linux).
fn own_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").expect("the scheduler's figures");
    let nanos = stat.split_whitespace().next().and_then(|nanos| nanos.parse::<f64>().ok());
    nanos.expect("nanoseconds on a processor") / 1e9
}

/// Writes keys of odd numbers.
fn busy(store: &Store, keys: u64, done: &AtomicBool) {
    let mut rng = Rng(11);
    while !done.load(Ordering::Relaxed) {
        window(store, &mut rng, |rng| rng.below(keys / 2) * 2 + 1);
    }
}

/// Writes keys of the numbers chosen, [`WINDOW`] at a time.
fn window(store: &Store, rng: &mut Rng, choose: impl Fn(&mut Rng) -> u64) {
    let submit = |rng: &mut Rng| {
        let number = choose(rng);
        let value = value(rng.below(1 << 32), rng.below(1 << 20));
        let request = store.txn().then([annals::put(key(number), value)]);
        request.submit().expect("a commit")
    };
    let tickets: Vec<_> = (0..WINDOW).map(|_| submit(rng)).collect();
    for ticket in tickets {
        ticket.wait().expect("a commit");
    }
}

/// Commits while the space of old versions is given back.
pub(crate) fn reclaim(options: &Options) -> Vec<Row> {
    let keys = 10_000 * options.scale;
    let (store, _dir) = filled(options, "reclaim");
    let mut rng = Rng(5);
    let mut p99 = |time: Duration| {
        let (begun, mut took) = (Instant::now(), Vec::new());
        while begun.elapsed() < time {
            let before = Instant::now();
            store
                .put(key(rng.below(keys)), value(rng.below(1 << 32), rng.below(1 << 20)))
                .expect("a commit");
            took.push(before.elapsed().as_secs_f64() * 1e3);
            // Not as fast as it can: background work has room beside it in both cases.
            thread::sleep(Duration::from_millis(1));
        }
        took.sort_by(f64::total_cmp);
        took[took.len() * 99 / 100]
    };
    let idle = p99(Duration::from_secs(4));
    let begun = Instant::now();
    store.compact(store.revision() / 2).expect("a compaction");
    let call = begun.elapsed().as_secs_f64() * 1e3;
    let during = p99(Duration::from_secs(4));
    vec![
        ("compact, the call (ms)".to_owned(), format!("{call:.2}"), "<= 1".to_owned()),
        ("commit p99 idle (ms)".to_owned(), format!("{idle:.2}"), String::new()),
        (
            "commit p99 during reclaim, times idle".to_owned(),
            format!("{:.2}", during / idle),
            "<= 1.5".to_owned(),
        ),
    ]
}
