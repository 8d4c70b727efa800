//! The measures of histories: loading, disk space, reading, opening.

use std::path::Path;
use std::time::Duration;

use crate::config::Config;
use crate::past;
use crate::peer::{Contestant, Level, Peer, Result};
use crate::reads::{self, History, Kind};
use crate::report::Row;
use crate::running::{Running, open_all, progress, said, timed_open, turns};

/// Keys of the history of small values, and Pods, at scale 1.
const SMALL_KEYS: u64 = 4_000;
const POD_KEYS: u64 = 400;

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

/// What was asked for about one history.
pub fn measure(config: &Config, kind: Kind) -> Result<Vec<Row>> {
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
    let wants_past = small && (config.wants(past::REPLAY) || config.wants(past::FORGETTING));
    if wanted.is_empty() && !wants_open && !wants_load && !wants_past {
        return Ok(Vec::new());
    }
    let keys = config.keys(if small { SMALL_KEYS } else { POD_KEYS });
    let history = History::new(kind, keys, config.versions);
    let mut running = open_all(config, config.ungrouped(), phase, Level::Buffered)?;
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
    running = reopen(running, |index, contestant, dir| {
        disk.push(index, reads::disk_bytes(dir)? as f64 / versions);
        (contestant.open)(dir, Level::Sync).map_err(|e| said(contestant, "open", &e).into())
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
    if small {
        rows.extend(past::measure(config, &history, &running)?);
    }
    let mut opened = Row::new(open, "ms", false, running.len());
    for round in 0..if wants_open { config.rounds } else { 0 } {
        progress(&format!("{open}, round {round}"));
        running = reopen(running, |index, contestant, dir| {
            let (ms, peer) = timed_open(contestant, dir)?;
            opened.push(index, ms);
            Ok(peer)
        })?;
    }
    if wants_open {
        rows.push(opened);
    }
    if small {
        rows.extend(past::spoil(config, &history, &running)?);
    }
    for one in running {
        one.peer.close()?;
    }
    std::fs::remove_dir_all(config.dir.join(phase))?;
    Ok(rows)
}

/// Closes all but the bare loop, which keeps nothing, and has them opened again.
fn reopen(
    running: Vec<Running>,
    mut open: impl FnMut(usize, Contestant, &Path) -> Result<Box<dyn Peer>>,
) -> Result<Vec<Running>> {
    let mut again = Vec::new();
    for (index, one) in running.into_iter().enumerate() {
        if one.is_bare() {
            again.push(one);
            continue;
        }
        let Running { contestant, dir, peer } = one;
        peer.close().map_err(|e| said(contestant, "close", &e))?;
        let peer = open(index, contestant, &dir)?;
        again.push(Running { contestant, dir, peer });
    }
    Ok(again)
}
