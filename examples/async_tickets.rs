//! Many tasks that await their commits, on one thread: no thread waits for a commit of its own, and
//! tasks that come during a sync share the next one.
//!
//! The library depends on no runtime: a ticket is a plain `Future`, here driven by tokio's, and is
//! woken when its commit is durable. `submit` itself is short. It waits for no disk unless commits
//! come faster than they can be moved from memory to files.
//!
//! Run with `cargo run --example async_tickets`.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "an example prints what it shows")]

use annals::{Error, Outcome, Result, Store, put, txn};
use tokio::task::JoinSet;

const TASKS: u64 = 500;
const COMMITS: u64 = 4;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(directory.path())?;

    let mut tasks = JoinSet::new();
    for n in 0..TASKS {
        tasks.spawn(work(store.clone(), n));
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics")?;
    }
    let stats = store.stats();
    println!("{} commits of {TASKS} tasks, {} syncs", stats.batch_transactions, stats.batches);
    println!("{:.0} commits per sync", stats.transactions_per_sync());
    assert_eq!(stats.durable_revision, 1 + TASKS * COMMITS);

    // A task that gives up, because of a timeout or because it is aborted, drops its ticket. That
    // does not take the commit back: its place in the order was fixed when it was submitted.
    let mut given_up = store.submit(txn().then([put("/given-up", "written all the same")]))?;
    let Outcome::Committed { revision } = given_up.outcome() else {
        panic!("a put changes something");
    };
    let timeout = tokio::task::yield_now();
    tokio::select! {
        biased;
        answer = &mut given_up => println!("durable at once: {:?}", answer?.revision),
        () = timeout => println!("revision {revision}: given up waiting"),
    }
    drop(given_up);
    // Durable in order: what came before an awaited commit is durable, too.
    store.submit(txn().then([put("/later", "")]))?.await?;
    let found = store.get("/given-up")?.expect("a dropped ticket takes nothing back");
    assert_eq!(found.mod_revision, revision);
    println!("revision {revision} is there");
    store.close()
}

/// Counts a key of its own up; each step is a compare-and-swap, and durable before the next.
async fn work(store: Store, n: u64) -> Result<(), Error> {
    let key = format!("/tasks/{n}");
    let mut seen = 0;
    for count in 1..=COMMITS {
        let answer = store.submit_compare_and_put(&key, seen, count.to_string())?.await?;
        assert!(answer.succeeded, "nobody else writes {key}");
        seen = answer.revision;
    }
    Ok(())
}
