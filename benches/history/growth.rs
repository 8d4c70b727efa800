//! What one operation costs in stores of one size after the other. Each store is measured by a process
//! of its own, which finds it as the one before left it: closed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use annals::{At, Durability, RestoreOptions, Store};

use crate::load::{self, Dir, Rng, key, median};
use crate::options::Options;
use crate::shapes::Row;

/// Versions of a key in these stores, on average.
const VERSIONS: u64 = 100;
/// Puts that are still in the log when a store is opened.
const TAIL: u64 = 1_000;
/// Keys that these write: the same in each store that has as many.
const TAIL_KEYS: u64 = 100;
/// Keys of one scan.
const SCAN: u64 = 1_000;
/// Reads after which memory is looked at.
const READS: u64 = 100_000;
/// Revisions and times that are translated.
const TIMES: u64 = 2_000;
/// Events read of the log at most.
const EVENTS: usize = 1_000_000;

/// What one operation costs, in the order of the table: name and unit.
pub(crate) const COSTS: &[(&str, &str)] = &[
    ("open and first get", "ms"),
    ("get latest", "ns"),
    ("get at a random revision", "ns"),
    ("scan latest, a key", "ns"),
    ("scan at a random revision, a key", "ns"),
    ("count of all keys", "us"),
    ("replay, an event", "ns"),
    ("replay with values, an event", "ns"),
    ("revision at a random time", "us"),
    ("time of a random revision", "us"),
    ("checkpoint, the call", "ms"),
    ("hash of everything, a version", "ns"),
    ("backup to a file, a version", "ns"),
    ("restore of it, a version", "ns"),
    ("compact, the call", "ms"),
];

/// The others.
pub(crate) const SIZES: &[(&str, &str)] = &[
    ("resident memory after reads, not mapped files", "MiB"),
    ("resident memory after reads, with mapped files", "MiB"),
    ("HEAD", "B/version"),
    ("HISTORY", "B/version"),
    ("EVENTS", "B/version"),
    ("linked by a checkpoint", "files"),
    ("files and log before compaction", "MiB"),
    ("files and log when compaction of half has settled", "MiB"),
];

/// What was measured of one store, by name.
pub(crate) type Figures = BTreeMap<String, f64>;

/// How many times the openings of two stores are compared, for each round that is asked for.
const OPENINGS: usize = 11;

/// What a process of its own does with a store.
const OPEN: &str = "open";
const READ: &str = "read";
const READ_AND_COMPACT: &str = "read-and-compact";

/// Makes a store of this many versions, and closes it. Answers its keys, too.
fn make(options: &Options, versions: u64) -> (Dir, u64) {
    eprintln!("a store of {versions} versions");
    let dir = Dir::new(&options.dir, &format!("growth-{versions}"));
    let keys = (versions / VERSIONS).max(1);
    let store = load::open(dir.path(), Durability::Buffered);
    load::fill(&store, keys, versions / keys);
    // All of it in files, and behind it the same tail in each: as much as the log of any store has.
    store.reorganise().expect("background work");
    let once = keys.min(TAIL_KEYS);
    for nonce in 0..TAIL / once {
        load::write(&store, 0..once, versions + nonce);
    }
    load::settle(&store);
    store.close().expect("a close");
    (dir, keys)
}

/// The largest store beside the smallest: each opened anew, in turns.
pub(crate) fn opened(options: &Options) -> Vec<Row> {
    let sizes = options.versions.iter();
    let (Some(least), Some(most)) = (sizes.clone().min(), sizes.max()) else { return Vec::new() };
    if least == most {
        eprintln!("opened: one size has no other beside it");
        return Vec::new();
    }
    let (small, large) = (make(options, *least), make(options, *most));
    let open = |(dir, keys): &(Dir, u64)| child(options, dir.path(), *keys, OPEN)[COSTS[0].0];
    let turns = || (open(&small), open(&large));
    let took: Vec<(f64, f64)> = (0..options.rounds * OPENINGS).map(|_| turns()).collect();
    let ms = median(took.iter().map(|(_, large)| *large).collect());
    let ratio = median(took.iter().map(|(small, large)| large / small).collect());
    let what = format!("{} with {most} versions", COSTS[0].0);
    vec![
        (format!("{what} (ms)"), format!("{ms:.2}"), "<= 20".to_owned()),
        (format!("{what}, times {least}"), format!("{ratio:.2}"), "<= 1.2".to_owned()),
    ]
}

/// Makes a store of this many versions and measures it.
pub(crate) fn measure(options: &Options, versions: u64) -> Figures {
    let (dir, keys) = make(options, versions);
    let mut rounds: Vec<Figures> = Vec::new();
    for round in 0..options.rounds {
        let what = if round + 1 == options.rounds { READ_AND_COMPACT } else { READ };
        rounds.push(child(options, dir.path(), keys, what));
    }
    let names: Vec<String> = rounds.iter().flat_map(Figures::keys).cloned().collect();
    let median_of = |name: &String| {
        median(rounds.iter().filter_map(|round| round.get(name)).copied().collect())
    };
    names.iter().map(|name| (name.clone(), median_of(name))).collect()
}

fn child(options: &Options, dir: &Path, keys: u64, what: &str) -> Figures {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.arg("child").arg(dir).arg(keys.to_string()).arg(what);
    let output = command.args(&options.setup_args).output().expect("a process");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let figure = |line: &str| {
        let (name, value) = line.rsplit_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    text.lines().filter_map(figure).collect()
}

/// In the process of its own: prints `name=value` lines.
pub(crate) fn in_child(dir: &Path, keys: u64, what: &str) {
    let say = |name: &str, value: f64| println!("{name}={value}");
    let begun = Instant::now();
    let store = load::open(dir, Durability::Sync);
    black_box(store.get(key(0)).expect("a get"));
    say(COSTS[0].0, begun.elapsed().as_secs_f64() * 1e3);
    if what == OPEN {
        return store.close().expect("a close");
    }

    let mut rng = Rng(keys);
    let revision = store.revision();
    let nanos = |n: u64, begun: Instant| begun.elapsed().as_secs_f64() * 1e9 / n as f64;
    let old = |rng: &mut Rng| 2 + rng.below(revision - 1);
    for (name, is_old) in [("get latest", false), ("get at a random revision", true)] {
        // The first half warms up.
        let mut begun = Instant::now();
        for read in 0..READS {
            if read == READS / 2 {
                begun = Instant::now();
            }
            let key = key(rng.below(keys));
            let got = if is_old {
                store.at(old(&mut rng)).and_then(|view| view.get(key))
            } else {
                store.get(key)
            };
            black_box(got.expect("a get"));
        }
        say(name, nanos(READS / 2, begun));
    }
    for (field, name) in [("RssAnon:", SIZES[0].0), ("VmRSS:", SIZES[1].0)] {
        say(name, status_kib(field) / 1024.0);
    }
    for (name, is_old) in
        [("scan latest, a key", false), ("scan at a random revision, a key", true)]
    {
        let (begun, mut scanned) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_secs(1) {
            let view =
                if is_old { store.at(old(&mut rng)) } else { store.latest() }.expect("a view");
            let from = key(rng.below(keys));
            for kv in view.range(from..).limit(SCAN) {
                black_box(kv.expect("a key"));
                scanned += 1_u64;
            }
        }
        say(name, nanos(scanned.max(1), begun));
    }
    let begun = Instant::now();
    black_box(store.latest().and_then(|view| view.count(..)).expect("a count"));
    say("count of all keys", begun.elapsed().as_secs_f64() * 1e6);
    for (name, values) in [("replay, an event", false), ("replay with values, an event", true)] {
        let log = store.log(2..);
        let log = if values { log.with_values() } else { log };
        let (begun, mut events) = (Instant::now(), 0);
        for transaction in log {
            events += transaction.expect("a transaction").changes.len();
            if events >= EVENTS {
                break;
            }
        }
        say(name, nanos(events.max(1) as u64, begun));
    }
    times(&store, revision, &mut rng, &say);
    checkpoint(&store, dir, &say);
    if what == READ_AND_COMPACT {
        let versions = keys * VERSIONS;
        let begun = Instant::now();
        black_box(store.hash_at(At::Latest).expect("a hash"));
        say("hash of everything, a version", nanos(versions + TAIL, begun));
        backup(&store, dir, versions + TAIL, &say);
        let stats = store.stats();
        for (name, bytes) in [
            ("HEAD", stats.head.bytes),
            ("HISTORY", stats.history.bytes),
            ("EVENTS", stats.events.bytes),
        ] {
            say(name, bytes as f64 / versions as f64);
        }
        compact(&store, revision, &say);
    }
    store.close().expect("a close");
}

/// Revisions to times, and times to revisions.
fn times(store: &Store, revision: u64, rng: &mut Rng, say: &dyn Fn(&str, f64)) {
    let micros = |begun: Instant| begun.elapsed().as_secs_f64() * 1e6 / TIMES as f64;
    let mut found = Vec::new();
    let begun = Instant::now();
    for _ in 0..TIMES {
        found.push(store.time_of(2 + rng.below(revision - 1)).expect("a time"));
    }
    say("time of a random revision", micros(begun));
    let begun = Instant::now();
    for time in found {
        black_box(store.revision_at_time(time).expect("a revision"));
    }
    say("revision at a random time", micros(begun));
}

/// A copy as a stream in a file, synced, and a store made of that.
fn backup(store: &Store, dir: &Path, versions: u64, say: &dyn Fn(&str, f64)) {
    let (path, copy) = (dir.with_extension("backup"), dir.with_extension("restored"));
    let each = |begun: Instant| begun.elapsed().as_secs_f64() * 1e9 / versions as f64;
    let begun = Instant::now();
    let file = File::create(&path).expect("a file");
    let mut to = BufWriter::with_capacity(1 << 20, &file);
    let made = store.backup(&mut to).expect("a backup");
    to.flush().expect("the rest");
    drop(to);
    file.sync_all().expect("a sync");
    say("backup to a file, a version", each(begun));
    let begun = Instant::now();
    let from = BufReader::with_capacity(1 << 20, File::open(&path).expect("the backup"));
    let restored = annals::restore(from, &copy, &RestoreOptions::new()).expect("a store");
    assert_eq!(restored.hash, made.hash);
    say("restore of it, a version", each(begun));
    fs::remove_dir_all(copy).expect("the store is there");
    fs::remove_file(path).expect("the backup is there");
}

/// A copy by links.
fn checkpoint(store: &Store, dir: &Path, say: &dyn Fn(&str, f64)) {
    let copy = dir.with_extension("checkpoint");
    let begun = Instant::now();
    let made = store.checkpoint(&copy).expect("a checkpoint");
    let took = begun.elapsed().as_secs_f64();
    say("checkpoint, the call", took * 1e3);
    say("linked by a checkpoint", made.linked_files as f64);
    fs::remove_dir_all(copy).expect("the checkpoint is there");
}

fn compact(store: &Store, revision: u64, say: &dyn Fn(&str, f64)) {
    say("files and log before compaction", disk_mib(store.path()));
    let begun = Instant::now();
    store.compact(revision / 2 + 1).expect("a compaction");
    say("compact, the call", begun.elapsed().as_secs_f64() * 1e3);
    let mut least = f64::MAX;
    // A minute at most: less when it stays the same for longer than a store takes to notice that nobody
    // writes to it.
    let (mut same, begun) = (0, Instant::now());
    while same < 12 && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_secs(1));
        let now = disk_mib(store.path());
        same = if now < least { 0 } else { same + 1 };
        least = least.min(now);
    }
    say("files and log when compaction of half has settled", least);
}

/// What the files of a store take, as they are listed.
fn disk_mib(dir: &Path) -> f64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0.0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => disk_mib(&entry.path()),
        Ok(data) => data.len() as f64 / f64::from(1 << 20),
        Err(_) => 0.0,
    };
    entries.flatten().map(size).sum()
}

/// A field of `/proc/self/status`; 0 where there is none.
fn status_kib(field: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}
