//! The code of README's first page, as a program that runs: `cargo run --example quick_start`.
//! `tests/readme.rs` compares the two.

#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example prints what it shows")]

use std::fs::File;
use std::time::Duration;

use annals::{At, Modify, Retention, Store, get, mod_revision, put};

#[rustfmt::skip]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    std::env::set_current_dir(directory.path())?;

    // README begins
    let store = Store::open("data")?;                         // a directory; a commit that returns is durable
    let first = store.put("/pods/a", "v1")?.revision;         // every commit has a revision of the whole store
    let pod = store.get("/pods/a")?.expect("just put");       // value, create_revision, mod_revision, version, lease
    let swapped = store.txn().when([mod_revision("/pods/a").eq(pod.mod_revision)])     // If, Then, Else, as in etcd
        .then([put("/pods/a", "v2")]).or_else([get("/pods/a")]).commit()?.succeeded;
    let before = store.at(first)?.get("/pods/a")?;            // the store as it was at that revision: "v1"
    for version in store.history("/pods/a") { println!("{:?}", version?); }
    for change in store.diff(first, At::Latest, "/pods/"..)? { println!("{:?}", change?); }
    let mut watch = store.watch("/pods/").prefix().from(first).start()?;
    println!("{swapped} {before:?} {:?}", watch.next());      // each change from there on, once and in order
    // README ends

    drop(watch);
    // README begins
    let count = |kv: Option<&annals::KeyValue>| Modify::put(kv.map_or(1, |kv| kv.version + 1).to_string());
    store.modify("/count", count)?;                           // read, change and write, again until nobody came between
    store.update(|update| {                                   // any number of keys and ranges: done as if at one moment, or again
        let waiting = update.prefix("/jobs/")?.len();
        update.put("/waiting", waiting.to_string())
    })?;
    store.update(|update| update.revert(2, "/flags/".."/flags0"))?;   // these keys as they were at revision 2
    let ticket = store.submit_compare_and_put("/leader", 0, "me")?;   // ordered now; many tickets share one sync
    assert!(ticket.wait()?.succeeded);                        // durable now, and nobody was there before. Or `ticket.await`, in any async runtime
    let copy = store.checkpoint("monday")?;                   // a store of its own, by hard links, while others write
    store.backup(&mut File::create("monday.backup")?)?;       // one stream with checksums, for annals::restore
    assert_eq!(Store::open("monday")?.hash_at(At::Latest)?, store.hash_at(copy.revision)?);   // etcd's HashKV
    store.set_retention("/events/", Some(Retention::forever().keep_for(Duration::from_secs(3600))))?;
    store.compact(copy.revision)?;                            // older revisions can no longer be read, space comes back
    // README ends
    Ok(())
}
