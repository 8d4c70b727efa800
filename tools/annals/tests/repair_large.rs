//! Repairing a store that is larger than the memory there is.
//!
//! `ANNALS_REPAIR_MIB=n` sets how much the values are, `ANNALS_REPAIR_LIMIT_MIB=n` what a process may have of memory that
//! no file is behind.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; it tells how much it did"
)]

mod common;

use std::process::{Command, Stdio};

use annals::{Options, put, txn};
use common::Tool;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Bytes that cannot be compressed.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = seed.wrapping_mul(2_654_435_761).wrapping_add(7);
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        noise.extend_from_slice(&random.to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}

#[test]
fn a_store_larger_than_memory() {
    let (mib, limit) = (number("ANNALS_REPAIR_MIB", 128), number("ANNALS_REPAIR_LIMIT_MIB", 80));
    let tool = Tool::new();
    let store = Options::new().open(tool.store()).unwrap();
    // Each key twice, so that there is a past, too.
    let keys = mib * 64;
    for round in 0..2 {
        for first in (0..keys).step_by(64) {
            let puts = (first..keys.min(first + 64)).map(|n| {
                // Over all keys, so that every file of L0 has keys of every other.
                let key = format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let bytes = if round == 0 { 100 } else { 16 << 10 };
                put(key, noise(n + round, bytes))
            });
            store.transact(txn().then(puts)).unwrap();
        }
    }
    store.reorganise().unwrap();
    store.close().unwrap();
    let entries = std::fs::read_dir(tool.store().join("seg")).unwrap();
    let mut heads: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    heads.retain(|path| path.extension().is_some_and(|extension| extension == "head"));
    heads.sort();
    for (damaged, way) in [(1, "copy"), (2, "rebuild")] {
        let mut content = std::fs::read(&heads[damaged - 1]).unwrap();
        content[5000] ^= 0x55;
        std::fs::write(&heads[damaged - 1], content).unwrap();
        check_repair(&tool, keys, limit, way);
    }
}

/// Repairs, with so many MiB of memory, and looks at what came of it.
fn check_repair(tool: &Tool, keys: u64, limit: u64, way: &str) {
    let to = tool.path(way);
    // Of memory, not of addresses: files are mapped.
    let script = format!("ulimit -d {}; exec \"$@\"", limit << 10);
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_annals"), "-C"]);
    command.arg(tool.store()).args(["repair", "-o", "json", "--to"]).arg(&to);
    let done = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(9), "something is lost: {said}");
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(told["way"], way, "{said}");
    let saved = Options::new().open(&to).unwrap();
    let mut lost = 0;
    for n in 0..keys {
        let key = format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        match saved.get(key).unwrap() {
            Some(kv) if kv.version == 2 => assert!(kv.value == noise(n + 1, 16 << 10), "{n}"),
            // What was there before may be known from EVENTS.
            kept => {
                assert!(kept.is_none_or(|kv| kv.value == noise(n, 100)), "{n}");
                lost += 1;
            }
        }
    }
    let named = told["lost_keys"].as_array().unwrap().len();
    println!("{keys} keys, {way}, {limit} MiB for the repair: {lost} keys lost, {named} named");
    assert!(lost > 0 && lost < 100 && lost == named, "{lost} {named}");
}
