//! The past in four ways: the history of a key, the state at a time, what changed between two
//! revisions, and who changed it.
//!
//! Run with `cargo run --example time_travel`.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "an example prints what it shows")]

use annals::{At, Diff, Result, Store, delete, put};

/// One day, in the microseconds in which transactions count time.
const DAY: i64 = 86_400_000_000;
const MONDAY: i64 = 20_000 * DAY;

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(directory.path())?;

    // Transactions may carry a time and any metadata; here, the days of a week and an author.
    let changes = [
        ("ana", vec![put("/flags/dark", "off"), put("/flags/beta", "off")]),
        ("ben", vec![put("/flags/beta", "on")]),
        ("ana", vec![put("/flags/dark", "on"), delete("/flags/beta")]),
        ("eve", vec![put("/flags/new", "on")]),
    ];
    for (day, (author, ops)) in (0..).zip(changes) {
        store.txn().then(ops).time(MONDAY + day * DAY).metadata(author).commit()?;
    }

    println!("history of /flags/beta, newest first:");
    for version in store.history("/flags/beta") {
        let version = version?;
        let what = if version.tombstone { "deleted".into() } else { text(&version.value) };
        println!("  revision {}: {what}", version.mod_revision);
    }

    println!("on Tuesday evening:");
    for kv in store.at(At::Time(MONDAY + DAY + DAY / 2))?.prefix("/flags/") {
        let kv = kv?;
        println!("  {} = {}", text(&kv.key), text(&kv.value));
    }

    println!("from revision 3 to Wednesday evening:");
    for diff in store.diff(3, At::Time(MONDAY + 2 * DAY + DAY / 2), "/flags/"..)? {
        match diff? {
            Diff::Added(kv) => println!("  + {} = {}", text(&kv.key), text(&kv.value)),
            Diff::Removed(kv) => println!("  - {}", text(&kv.key)),
            Diff::Changed { old, new } => {
                println!("  ~ {}: {} -> {}", text(&new.key), text(&old.value), text(&new.value));
            }
        }
    }

    println!("the log:");
    for transaction in store.log(..) {
        let transaction = transaction?;
        let keys: Vec<String> = transaction.changes.iter().map(|c| text(&c.key)).collect();
        println!(
            "  {} by {}: {}",
            transaction.revision,
            text(&transaction.metadata),
            keys.join(" ")
        );
    }
    store.close()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
