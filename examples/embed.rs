//! A store in a few lines: open, write, read, look back.
//!
//! Run with `cargo run --example embed`.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "an example prints what it shows")]

use annals::{Result, Store};

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(directory.path())?;

    // Every write gets a revision; it is durable when the call returns.
    let first = store.put("/pods/web-1", r#"{"phase":"Pending"}"#)?;
    store.put("/pods/web-2", r#"{"phase":"Pending"}"#)?;
    store.put("/pods/web-1", r#"{"phase":"Running"}"#)?;
    store.delete("/pods/web-2")?;

    // Now.
    let now = store.latest()?;
    println!("at revision {}:", now.revision());
    for kv in now.prefix("/pods/") {
        let kv = kv?;
        println!("  {} = {}", text(&kv.key), text(&kv.value));
    }

    // Then.
    println!("at revision {}:", first.revision);
    for kv in store.at(first.revision)?.prefix("/pods/") {
        let kv = kv?;
        println!("  {} = {}", text(&kv.key), text(&kv.value));
    }
    store.close()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
