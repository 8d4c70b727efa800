//! The measures, phase by phase: synced commits, buffered commits, histories, opening.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cas::{Field, Shape};
use crate::config::Config;
use crate::data;
use crate::peer::{Contestant, Level, Peer, Result};
use crate::peers::bare;
use crate::reads::{self, History, Kind};
use crate::report::Row;

/// Keys the commits go to, at scale 1.
pub const FIELD_KEYS: u64 = 20_000;
/// Keys of the history of small values, and Pods, at scale 1.
const SMALL_KEYS: u64 = 4_000;
const POD_KEYS: u64 = 400;

/// Printed under the table.
pub const NOTES: &str = "\
*bare*: 1 client and 64 tickets: a pwrite and an fdatasync of the same bytes, and nothing else; \
64 threads: a mutex around a hash table, pwrite and fdatasync each; buffered: the same without the \
sync; reads: a hash table and a sorted map of version vectors in memory; disk bytes: the same \
versions sorted by key in 16 KiB blocks of zstd level 3. *64 tickets*: one thread with 64 commits \
outstanding; stores without tickets do the 64 in one native transaction.";

/// Everything that was asked for.
pub fn all(config: &Config) -> Result<Vec<Row>> {
    let mut rows = commits(config, Level::Sync)?;
    rows.extend(commits(config, Level::Buffered)?);
    rows.extend(history(config, Kind::Small)?);
    rows.extend(history(config, Kind::Pod)?);
    Ok(rows)
}

/// A contestant that is open, and where.
struct Running {
    contestant: Contestant,
    dir: PathBuf,
    peer: Box<dyn Peer>,
}

impl Running {
    fn open(contestant: Contestant, dir: PathBuf, level: Level) -> Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let peer = (contestant.open)(&dir, level).map_err(|e| said(contestant, "open", &e))?;
        Ok(Self { contestant, dir, peer })
    }

    fn is_bare(&self) -> bool {
        self.contestant.name == "bare"
    }
}

fn said(contestant: Contestant, what: &str, error: &dyn std::fmt::Display) -> String {
    format!("{}, {what}: {error}", contestant.name)
}

/// All contestants open on fresh directories.
fn open_all(config: &Config, phase: &str, level: Level) -> Result<Vec<Running>> {
    let fresh = |&contestant: &Contestant| {
        let dir = config.dir.join(phase).join(contestant.name.replace(' ', "-"));
        Running::open(contestant, dir, level)
    };
    config.contestants.iter().map(fresh).collect()
}

/// The order of a round: rotated, so that nobody always comes first or after the same other.
fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count)
        .map(move |turn| if round.is_multiple_of(2) { turn } else { count - 1 - turn })
        .map(move |turn| (turn + round / 2) % count)
}

fn progress(text: &str) {
    eprintln!("{text}");
}

/// A measure of commits: name, threads, window, one hot key.
type CommitMeasure = (&'static str, u64, usize, bool);

const SYNC_MEASURES: &[CommitMeasure] = &[
    ("durable CAS, 1 client", 1, 1, false),
    ("durable CAS, 64 threads", 64, 1, false),
    ("durable CAS, 1 thread x 64 tickets", 1, 64, false),
];

const BUFFERED_MEASURES: &[CommitMeasure] = &[
    ("buffered CAS, 1 thread", 1, 1, false),
    ("buffered CAS, 2 threads", 2, 1, false),
    ("buffered CAS, 4 threads", 4, 1, false),
    ("buffered CAS, 8 threads", 8, 1, false),
    ("buffered CAS, 8 threads, one hot key", 8, 1, true),
];

fn commits(config: &Config, level: Level) -> Result<Vec<Row>> {
    let sync = level == Level::Sync;
    let kill = "open after a kill, first get";
    let measures = if sync { SYNC_MEASURES } else { BUFFERED_MEASURES };
    let wanted: Vec<_> = measures.iter().filter(|measure| config.wants(measure.0)).collect();
    let wants_kill = sync && config.wants(kill);
    if wanted.is_empty() && !wants_kill {
        return Ok(Vec::new());
    }
    let phase = if sync { "sync" } else { "buffered" };
    progress(&format!("{phase} commits: loading"));
    let mut running = open_all(config, phase, level)?;
    let mut fields = Vec::new();
    for one in &running {
        let loaded = Field::load(&*one.peer, config.keys(FIELD_KEYS));
        fields.push(loaded.map_err(|e| said(one.contestant, "load", &e))?);
    }
    let mut bare_log = bare::Log::create(&config.dir.join(phase).join("bare-loop.log"), level)?;
    let mut rows = Vec::new();
    for &&(name, threads, window, hot) in &wanted {
        progress(name);
        let shape = Shape { threads, window, hot, time: config.time };
        let mut rate = Row::new(name, "commits/s", true, running.len());
        let mut p99 = Row::new(&format!("{name}: p99"), "us", false, running.len());
        for round in 0..config.rounds {
            for index in turns(round, running.len()) {
                let (Some(one), Some(field)) = (running.get(index), fields.get_mut(index)) else {
                    continue;
                };
                if one.is_bare() && sync && threads == 1 {
                    let (per_second, slow) = bare_loop(&mut bare_log, window, config.time)?;
                    rate.push(index, per_second);
                    p99.push(index, slow);
                    continue;
                }
                let run = field.run(&*one.peer, shape);
                let run = run.map_err(|e| said(one.contestant, name, &e))?;
                if run.conflicts_per_commit > 0.01 {
                    let (who, conflicts) = (one.contestant.name, run.conflicts_per_commit);
                    progress(&format!("  {who}: {conflicts:.2} conflicts a commit"));
                }
                rate.push(index, run.per_second);
                p99.push(index, run.p99_us);
            }
        }
        rows.push(rate);
        if sync && window == 1 {
            rows.push(p99);
        }
    }
    if wants_kill {
        progress(kill);
        rows.push(open_after_kill(config, &running, kill)?);
    }
    progress("verifying");
    for (index, one) in running.drain(..).enumerate() {
        let Some(field) = fields.get_mut(index) else { continue };
        let Running { contestant, dir, peer } = one;
        if contestant.name == "bare" {
            continue;
        }
        peer.close().map_err(|e| said(contestant, "close", &e))?;
        let again = Running::open(contestant, dir, level)?;
        field.verify(&*again.peer).map_err(|e| said(contestant, "verify", &e))?;
        again.peer.close()?;
    }
    std::fs::remove_dir_all(config.dir.join(phase))?;
    Ok(rows)
}

/// The bare loop of one client: commits per second and the p99 of a write in microseconds.
fn bare_loop(log: &mut bare::Log, window: usize, time: Duration) -> Result<(f64, f64)> {
    let mut record = 0_u64.to_le_bytes().to_vec();
    record.extend(data::key(0));
    record.extend(data::value(0));
    let started = Instant::now();
    let mut nanos = Vec::new();
    let mut before = started;
    while before - started < time {
        log.bare_commit(&record, window)?;
        let now = Instant::now();
        nanos.push((now - before).as_nanos());
        before = now;
    }
    nanos.sort_unstable();
    let p99 = nanos.get(nanos.len() * 99 / 100).map_or(0.0, |&nanos| nanos as f64 / 1000.0);
    let commits = nanos.len() * window;
    Ok((commits as f64 / started.elapsed().as_secs_f64(), p99))
}

/// Opens copies of directories whose stores are still open and quiet: what a kill leaves behind.
fn open_after_kill(config: &Config, running: &[Running], name: &str) -> Result<Row> {
    let mut row = Row::new(name, "ms", false, running.len());
    let copy = config.dir.join("copy");
    for round in 0..config.rounds {
        for index in turns(round, running.len()) {
            let Some(one) = running.get(index).filter(|one| !one.is_bare()) else { continue };
            copy_dir(&one.dir, &copy)?;
            let (ms, peer) = timed_open(one.contestant, &copy)?;
            row.push(index, ms);
            peer.close()?;
            std::fs::remove_dir_all(&copy)?;
        }
    }
    Ok(row)
}

/// Milliseconds to open a store and read one key.
fn timed_open(contestant: Contestant, dir: &Path) -> Result<(f64, Box<dyn Peer>)> {
    let started = Instant::now();
    let peer = (contestant.open)(dir, Level::Sync).map_err(|e| said(contestant, "open", &e))?;
    let found = peer.get(&data::key(7), None, &mut |_, _| {})?;
    let ms = started.elapsed().as_secs_f64() * 1000.0;
    if !found {
        return Err(said(contestant, "open", &"a key is missing").into());
    }
    Ok((ms, peer))
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.metadata()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// A way to read a history.
type ReadMeasure = (&'static str, &'static str, fn(&History, &dyn Peer, Duration) -> Result<f64>);

const SMALL_READS: &[ReadMeasure] = &[
    ("get latest", "gets/s", |history, peer, time| history.gets(peer, 1, false, time)),
    ("get latest, 2 threads", "gets/s", |history, peer, time| history.gets(peer, 2, false, time)),
    ("get at an old revision", "gets/s", |history, peer, time| history.gets(peer, 1, true, time)),
    ("scan latest, 1000 keys", "keys/s", |history, peer, time| {
        history.scans(peer, 1000, false, time)
    }),
    ("scan at an old revision, 1000 keys", "keys/s", |history, peer, time| {
        history.scans(peer, 1000, true, time)
    }),
];

const POD_READS: &[ReadMeasure] = &[
    ("Pods: get latest", "gets/s", |history, peer, time| history.gets(peer, 1, false, time)),
    ("Pods: get at an old revision", "gets/s", |history, peer, time| {
        history.gets(peer, 1, true, time)
    }),
    ("Pods: scan latest", "keys/s", |history, peer, time| history.scans(peer, 200, false, time)),
];

fn history(config: &Config, kind: Kind) -> Result<Vec<Row>> {
    let small = kind == Kind::Small;
    let reads = if small { SMALL_READS } else { POD_READS };
    let (phase, open) =
        if small { ("small", "open after a close, first get") } else { ("pod", "") };
    let disk_name =
        if small { "disk, 256 B values half random" } else { "disk, Pods that differ a little" };
    let load_name = format!("{phase} values: load, 1000 revisions a batch");
    let wanted: Vec<_> = reads.iter().filter(|measure| config.wants(measure.0)).collect();
    let wants_open = small && config.wants(open);
    let wants_load = config.wants(disk_name) || config.wants(&load_name);
    if wanted.is_empty() && !wants_open && !wants_load {
        return Ok(Vec::new());
    }
    let keys = config.keys(if small { SMALL_KEYS } else { POD_KEYS });
    let history = History::new(kind, keys, config.versions);
    let mut running = open_all(config, phase, Level::Buffered)?;
    let mut load = Row::new(&load_name, "versions/s", true, running.len());
    let mut disk = Row::new(disk_name, "B/version", false, running.len());
    let versions = (history.keys * history.versions) as f64;
    for (index, one) in running.iter_mut().enumerate() {
        progress(&format!("{phase} history: loading {}", one.contestant.name));
        let rate = history.load(&*one.peer).map_err(|e| said(one.contestant, "load", &e))?;
        load.push(index, rate);
        if one.is_bare() {
            disk.push(index, history.zstd_bytes()? as f64 / versions);
            continue;
        }
        one.peer.settle().map_err(|e| said(one.contestant, "settle", &e))?;
    }
    running = reopen(running, |index, dir| {
        disk.push(index, reads::disk_bytes(dir)? as f64 / versions);
        Ok(())
    })?;
    let mut rows = vec![load, disk];
    let raw = history.raw_bytes() as f64 / versions;
    if let Some(row) = rows.last_mut() {
        row.name = format!("{disk_name} ({raw:.0} B of key and value)");
    }
    for one in &running {
        progress(&format!("{phase} history: verifying {}", one.contestant.name));
        let probes = if config.quick { 500 } else { 5000 };
        let verified = history.verify(&*one.peer, probes);
        verified.map_err(|e| said(one.contestant, "verify", &e))?;
    }
    for &&(name, unit, measure) in &wanted {
        progress(name);
        let mut row = Row::new(name, unit, true, running.len());
        for round in 0..config.rounds {
            for index in turns(round, running.len()) {
                let Some(one) = running.get(index) else { continue };
                let rate = measure(&history, &*one.peer, config.time);
                row.push(index, rate.map_err(|e| said(one.contestant, name, &e))?);
            }
        }
        rows.push(row);
    }
    let mut opened = Row::new(open, "ms", false, running.len());
    for round in 0..if wants_open { config.rounds } else { 0 } {
        progress(&format!("{open}, round {round}"));
        running = reopen_timed(running, &mut opened)?;
    }
    if wants_open {
        rows.push(opened);
    }
    for one in running {
        one.peer.close()?;
    }
    std::fs::remove_dir_all(config.dir.join(phase))?;
    Ok(rows)
}

/// Closes and opens all but the bare loop, which keeps nothing.
fn reopen(
    running: Vec<Running>,
    mut between: impl FnMut(usize, &Path) -> Result<()>,
) -> Result<Vec<Running>> {
    let mut again = Vec::new();
    for (index, one) in running.into_iter().enumerate() {
        if one.is_bare() {
            again.push(one);
            continue;
        }
        let Running { contestant, dir, peer } = one;
        peer.close().map_err(|e| said(contestant, "close", &e))?;
        between(index, &dir)?;
        again.push(Running::open(contestant, dir, Level::Sync)?);
    }
    Ok(again)
}

fn reopen_timed(running: Vec<Running>, row: &mut Row) -> Result<Vec<Running>> {
    let mut again = Vec::new();
    for (index, one) in running.into_iter().enumerate() {
        if one.is_bare() {
            again.push(one);
            continue;
        }
        let Running { contestant, dir, peer } = one;
        peer.close().map_err(|e| said(contestant, "close", &e))?;
        let (ms, peer) = timed_open(contestant, &dir)?;
        row.push(index, ms);
        again.push(Running { contestant, dir, peer });
    }
    Ok(again)
}
