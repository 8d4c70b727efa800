//! The measures of commits: cells of threads, windows and keys, for every contestant in every round.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::cas::{Field, Run, Shape};
use crate::config::Config;
use crate::data;
use crate::latency::Latency;
use crate::peer::{Contestant, Level, Result, Role};
use crate::peers::bare;
use crate::peers::nothing::Nothing;
use crate::report::Row;
use crate::running::{Running, open_all, progress, said, timed_open, turns};

/// Keys the commits go to, at scale 1.
pub const FIELD_KEYS: u64 = 20_000;

/// Who commits what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub name: &'static str,
    pub level: Level,
    pub threads: u64,
    pub window: usize,
    /// Everybody writes one key.
    pub hot: bool,
    /// By updates instead of compare-and-swap.
    pub update: bool,
}

const fn durable(name: &'static str, threads: u64, window: usize, hot: bool) -> Cell {
    Cell { name, level: Level::Sync, threads, window, hot, update: false }
}

const fn buffered(name: &'static str, threads: u64, hot: bool) -> Cell {
    Cell { name, level: Level::Buffered, threads, window: 1, hot, update: false }
}

const fn durable_modify(name: &'static str, threads: u64) -> Cell {
    Cell { update: true, ..durable(name, threads, 1, true) }
}

const CELLS: &[Cell] = &[
    durable("durable CAS, 1 client", 1, 1, false),
    durable("durable CAS, 8 threads", 8, 1, false),
    durable("durable CAS, 64 threads", 64, 1, false),
    durable("durable CAS, 1 client, one hot key", 1, 1, true),
    durable("durable CAS, 8 threads, one hot key", 8, 1, true),
    durable("durable CAS, 64 threads, one hot key", 64, 1, true),
    durable_modify("durable modify, 8 threads, one hot key", 8),
    durable_modify("durable modify, 64 threads, one hot key", 64),
    durable("durable CAS, 1 thread x 64 tickets", 1, 64, false),
    buffered("buffered CAS, 1 thread", 1, false),
    buffered("buffered CAS, 2 threads", 2, false),
    buffered("buffered CAS, 4 threads", 4, false),
    buffered("buffered CAS, 8 threads", 8, false),
    buffered("buffered CAS, 1 thread, one hot key", 1, true),
    buffered("buffered CAS, 2 threads, one hot key", 2, true),
    buffered("buffered CAS, 8 threads, one hot key", 8, true),
];

/// A cell and what it came to; every row holds a sample per round of each contestant.
#[derive(Clone, Debug)]
pub struct Measured {
    pub cell: Cell,
    pub rate: Row,
    pub p50: Row,
    pub p99: Row,
    pub p999: Row,
    pub max: Row,
    pub conflicts: Row,
    pub per_sync: Row,
}

impl Measured {
    pub fn new(cell: Cell, contestants: usize) -> Self {
        let row = |what: &str, unit, higher_is_better| {
            Row::new(&format!("{}{what}", cell.name), unit, higher_is_better, contestants)
        };
        Self {
            cell,
            rate: row("", "commits/s", true),
            p50: row(": p50", "us", false),
            p99: row(": p99", "us", false),
            p999: row(": p99.9", "us", false),
            max: row(": max", "us", false),
            conflicts: row(": conflicts", "per commit", false),
            per_sync: row(": grouped", "commits/sync", true),
        }
    }

    fn push(&mut self, contestant: usize, run: &Run) {
        self.rate.push(contestant, run.per_second);
        let micros = |per_myriad| run.latency.nanos(per_myriad) as f64 / 1000.0;
        self.p50.push(contestant, micros(5_000));
        self.p99.push(contestant, micros(9_900));
        self.p999.push(contestant, micros(9_990));
        self.max.push(contestant, micros(10_000));
        self.conflicts.push(contestant, run.conflicts_per_commit);
        if let Some(per_sync) = run.per_sync.filter(|_| self.cell.level == Level::Sync) {
            self.per_sync.push(contestant, per_sync);
        }
    }

    /// All but the rate, without the rows that say nothing.
    pub fn details(&self) -> impl Iterator<Item = &Row> {
        let conflicts = Some(&self.conflicts).filter(|_| self.cell.threads > 1);
        let per_sync = Some(&self.per_sync).filter(|_| self.cell.level == Level::Sync);
        let latencies = [&self.p50, &self.p99, &self.p999, &self.max];
        latencies.into_iter().chain(conflicts).chain(per_sync)
    }
}

/// The cells of one level that were asked for, and the time the store takes to open after a kill.
pub fn measure(config: &Config, level: Level) -> Result<(Vec<Measured>, Option<Row>)> {
    let wanted: Vec<Cell> = CELLS
        .iter()
        .copied()
        .filter(|cell| cell.level == level && config.wants(cell.name))
        .collect();
    let kill = "open after a kill, first get";
    let wants_kill = level == Level::Sync && config.wants(kill);
    if wanted.is_empty() && !wants_kill {
        return Ok((Vec::new(), None));
    }
    let phase = if level == Level::Sync { "sync" } else { "buffered" };
    progress(&format!("{phase} commits: loading"));
    // Groups matter to commits alone.
    let grouped = if wanted.is_empty() { config.ungrouped() } else { &config.contestants };
    let mut running = open_all(config, grouped, phase, level)?;
    let mut fields = Vec::new();
    for one in &running {
        let loaded = Field::load(&*one.peer, config.keys(FIELD_KEYS));
        fields.push(loaded.map_err(|e| said(one.contestant, "load", &e))?);
    }
    let mut loop_log = match level {
        Level::Sync => {
            Some(bare::Log::create(&config.dir.join(phase).join("bare-loop.log"), level)?)
        }
        Level::Buffered => None,
    };
    let mut cells = Vec::new();
    for cell in wanted {
        progress(cell.name);
        let mut measured = Measured::new(cell, running.len());
        for round in 0..config.rounds {
            for index in turns(round, running.len()) {
                let (Some(one), Some(field)) = (running.get(index), fields.get_mut(index)) else {
                    continue;
                };
                let run = match &mut loop_log {
                    Some(log) if one.is_bare() && cell.threads == 1 => {
                        bare_loop(log, cell.window, config.time)
                    }
                    _ => field.run(&*one.peer, cell.shape(one.contestant.role, config.time)),
                };
                measured.push(index, &run.map_err(|e| said(one.contestant, cell.name, &e))?);
                if one.is_bare() {
                    field.forget();
                }
            }
        }
        cells.push(measured);
    }
    let opened = if wants_kill {
        progress(kill);
        Some(open_after_kill(config, &running, kill)?)
    } else {
        None
    };
    progress("verifying");
    for (one, mut field) in running.drain(..).zip(fields) {
        let Running { contestant, dir, peer } = one;
        peer.close().map_err(|e| said(contestant, "close", &e))?;
        if contestant.role == Role::Bare {
            continue;
        }
        let again = Running::open(contestant, dir, level)?;
        field.verify(&*again.peer).map_err(|e| said(contestant, "verify", &e))?;
        again.peer.close()?;
    }
    std::fs::remove_dir_all(config.dir.join(phase))?;
    Ok((cells, opened))
}

impl Cell {
    fn shape(&self, role: Role, time: Duration) -> Shape {
        let &Self { threads, window, hot, update, .. } = self;
        Shape { threads, window, one_by_one: role == Role::Peer, hot, update, time }
    }
}

/// The bare loop of one client, with the key and the value of every commit the same.
fn bare_loop(log: &mut bare::Log, window: usize, time: Duration) -> Result<Run> {
    let mut record = 0_u64.to_le_bytes().to_vec();
    record.extend(data::key(0));
    record.extend(data::value(0));
    let mut latency = Latency::default();
    let mut syncs = 0;
    let started = Instant::now();
    let mut before = started;
    while before - started < time {
        log.bare_commit(&record, window)?;
        let now = Instant::now();
        latency.record((now - before).as_nanos() as u64);
        before = now;
        syncs += 1;
    }
    Ok(Run {
        per_second: (syncs * window) as f64 / (before - started).as_secs_f64(),
        conflicts_per_commit: 0.0,
        latency,
        per_sync: Some(window as f64),
    })
}

/// Nanoseconds the bench itself takes for a commit, and for a commit of a window, in the median.
pub fn own_work(config: &Config) -> Result<(f64, f64)> {
    let nothing = Nothing::default();
    let mut field = Field::load(&nothing, config.keys(FIELD_KEYS))?;
    let time = config.time.min(Duration::from_millis(200));
    let mut nanos = |window: usize| -> Result<f64> {
        let shape =
            Shape { threads: 1, window, one_by_one: false, hot: false, update: false, time };
        let run = field.run(&nothing, shape)?;
        Ok(run.latency.nanos(5_000) as f64 / window as f64)
    };
    Ok((nanos(1)?, nanos(64)?))
}

/// Opens copies of directories whose stores are still open and quiet: what a kill leaves behind.
fn open_after_kill(config: &Config, running: &[Running], name: &str) -> Result<Row> {
    let mut row = Row::new(name, "ms", false, running.len());
    let copy = config.dir.join("copy");
    for round in 0..config.rounds {
        for index in turns(round, running.len()) {
            let Some(one) = running.get(index).filter(|one| is_opened(one.contestant)) else {
                continue;
            };
            copy_dir(&one.dir, &copy)?;
            let (ms, peer) = timed_open(one.contestant, &copy)?;
            row.push(index, ms);
            peer.close()?;
            std::fs::remove_dir_all(&copy)?;
        }
    }
    Ok(row)
}

/// The bare loop keeps nothing, and a group commit changes nothing about opening.
fn is_opened(contestant: Contestant) -> bool {
    matches!(contestant.role, Role::Annals | Role::Peer)
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
