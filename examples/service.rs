//! A small service on the store: workers that are there as long as they renew a lease, a scheduler that
//! watches, gives each job to one of them, and gives it to another when a worker is gone; and a restart in
//! between.
//!
//! Run with `cargo run --example service`.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "an example prints what it shows")]

use std::time::Duration;

use annals::{
    Batch, ChangeKind, LeaseGuard, PutRequest, Result, Store, mod_revision, put, version,
};

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(directory.path())?;
    let mut scheduler = Scheduler::begin(&store)?;

    println!("two workers, three jobs:");
    let ana = register(&store, "ana")?;
    let ben = register(&store, "ben")?;
    for job in ["build", "test", "ship"] {
        store.put(format!("/jobs/{job}"), "")?;
    }
    scheduler.run(&store)?;

    println!(
        "ana stops renewing her lease; within its second her key goes, and what was hers is given to ben:"
    );
    drop(ana);
    scheduler.wait_until_gone(&store, "ana")?;

    println!("a restart: the scheduler goes on at revision {}, where it was", scheduler.next);
    drop(ben);
    store.close()?;

    let store = Store::open(directory.path())?;
    store.put("/jobs/report", "")?;
    let mut scheduler = Scheduler { next: scheduler.next };
    scheduler.run(&store)?;

    println!("who had /jobs/test, newest first:");
    for version in store.history("/jobs/test") {
        let version = version?;
        println!("  revision {}: {}", version.mod_revision, text(&version.value));
    }
    store.close()
}

/// A worker is there as long as this lease is renewed, which the store does while the guard lives.
fn register(store: &Store, name: &str) -> Result<LeaseGuard> {
    let lease = store.lease(Duration::from_secs(1))?;
    store.put_with(PutRequest::new(format!("/workers/{name}"), "").lease(lease.id()))?;
    Ok(lease)
}

/// Knows nothing but how far it has seen what happened: everything else is in the store.
struct Scheduler {
    next: u64,
}

impl Scheduler {
    /// From now on.
    fn begin(store: &Store) -> Result<Self> {
        Ok(Self { next: store.latest()?.revision() + 1 })
    }

    /// Sees to everything that has happened by now.
    fn run(&mut self, store: &Store) -> Result<()> {
        let upto = store.latest()?.revision();
        let mut watch = store.watch("/").prefix().from(self.next).start()?;
        while watch.resume_revision() <= upto
            && let Some(batch) = watch.next()
        {
            self.see(store, &batch?)?;
        }
        Ok(())
    }

    /// Sees to everything until a worker is gone, and to what follows from that.
    fn wait_until_gone(&mut self, store: &Store, name: &str) -> Result<()> {
        let key = format!("/workers/{name}");
        let mut watch = store.watch("/").prefix().from(self.next).start()?;
        for batch in &mut watch {
            let batch = batch?;
            self.see(store, &batch)?;
            let is_it = |event: &annals::Event| {
                event.kind == ChangeKind::Delete && event.kv.key == key.as_bytes()
            };
            if batch.events().iter().any(is_it) {
                break;
            }
        }
        Ok(())
    }

    /// All changes of one revision.
    fn see(&mut self, store: &Store, batch: &Batch) -> Result<()> {
        for event in batch.events() {
            let key = text(&event.kv.key);
            match event.kind {
                ChangeKind::Put if key.starts_with("/jobs/") && event.is_create() => {
                    give(store, &key)?;
                }
                ChangeKind::Delete => {
                    if let Some(gone) = key.strip_prefix("/workers/") {
                        println!("  {gone} is gone");
                        give_back(store, gone)?;
                    }
                }
                ChangeKind::Put => {}
            }
        }
        // Whatever was done may be seen and done again after a crash: giving is conditional.
        self.next = batch.revision() + 1;
        Ok(())
    }
}

/// Gives the jobs of a worker to others.
fn give_back(store: &Store, worker: &str) -> Result<()> {
    let jobs: Vec<_> = store.latest()?.prefix("/jobs/").collect::<Result<_>>()?;
    for job in jobs.iter().filter(|job| job.value == worker.as_bytes()) {
        give(store, &text(&job.key))?;
    }
    Ok(())
}

/// Gives a job to the worker with the fewest, if nobody has changed it or the worker gone meanwhile.
fn give(store: &Store, job: &str) -> Result<()> {
    loop {
        let now = store.latest()?;
        let Some(found) = now.get(job)? else { return Ok(()) };
        let jobs: Vec<_> = now.prefix("/jobs/").collect::<Result<_>>()?;
        let workers: Vec<_> = now.prefix("/workers/").collect::<Result<_>>()?;
        let name = |key: &[u8]| text(key).trim_start_matches("/workers/").to_owned();
        let count = |worker: &str| jobs.iter().filter(|job| job.value == worker.as_bytes()).count();
        let Some(worker) = workers.iter().min_by_key(|worker| count(&name(&worker.key))) else {
            println!("  nobody is there for {job}");
            return Ok(());
        };
        let to = name(&worker.key);
        let done = store
            .txn()
            .when([mod_revision(job).eq(found.mod_revision), version(&worker.key).gt(0)])
            .then([put(job, &to)])
            .commit()?;
        if done.succeeded {
            println!("  {job} goes to {to}");
            return Ok(());
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
