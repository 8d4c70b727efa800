//! What the kernel says about this process: memory, time and open files, from /proc where there is one.

use std::fs;

use crate::metrics::Text;

/// Ticks of the clock in which the kernel counts a process's time: 100 on every Linux of today.
const TICKS: f64 = 100.0;

/// Writes it, as far as it can be read.
pub(crate) fn write(text: &mut Text) {
    let Ok(stat) = fs::read_to_string("/proc/self/stat") else { return };
    // The name of the program may hold anything: what follows its last parenthesis is in columns.
    let columns: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let column = |number: usize| {
        columns.get(number).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default()
    };
    let cpu = (column(11) + column(12)) / TICKS;
    text.counter(
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
        cpu,
    );
    text.gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", column(20));
    let pages = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = pages.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident
        .and_then(|line| line.split_whitespace().next())
        .and_then(|text| text.parse::<f64>().ok());
    text.gauge(
        "process_resident_memory_bytes",
        "Resident memory size in bytes.",
        resident.unwrap_or_default() * 1024.0,
    );
    let booted = fs::read_to_string("/proc/stat").unwrap_or_default();
    let booted = booted
        .lines()
        .find_map(|line| line.strip_prefix("btime "))
        .and_then(|text| text.parse::<f64>().ok());
    if let Some(booted) = booted {
        let started = booted + column(19) / TICKS;
        text.gauge(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            started,
        );
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        text.gauge("process_open_fds", "Number of open file descriptors.", open.count());
    }
    if let Some(most) = max_open_files() {
        text.gauge("process_max_fds", "Maximum number of open file descriptors.", most);
    }
}

/// How many files this process may have open.
pub(crate) fn max_open_files() -> Option<usize> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
