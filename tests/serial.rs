//! Answers given at the same time are answers that could have been given one after another.
//!
//! Threads run random transactions on few keys: nested ones, comparisons and deletes of ranges,
//! reads of their own writes, filters by revision, leases. Every answer names the revision it has or
//! was decided at. Then the same requests are played one after another, in the order of those
//! revisions, on a fresh store, and every answer must come out the same, field by field. So whatever
//! an answer depended on and the order did not protect shows up here.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test stops where it fails")]

use std::sync::Arc;
use std::time::Duration;

use annals::vfs::MemoryVfs;
use annals::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, Durability, Op, Options, Outcome,
    PutRequest, RangeRequest, SortOrder, SortTarget, Store, Ticket, TxnRequest, TxnResponse,
};

const THREADS: u64 = 4;
const EACH: u64 = 600;
/// Keys nobody changes: counting them makes a transaction slow, so that others come in between.
const QUIET: u64 = 1000;

#[test]
fn concurrent_transactions_are_serializable() {
    let seeds = match std::env::var("ANNALS_TEST_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (1..=4).collect(),
    };
    for seed in seeds {
        println!("seed {seed} (ANNALS_TEST_SEED={seed} to run it alone)");
        let durability = if seed % 2 == 0 { Durability::Buffered } else { Durability::Sync };
        let store = fresh(durability);
        let mut done: Vec<Done> = std::thread::scope(|scope| {
            let worker = |thread| run(&store, Random::new(seed, thread));
            let workers: Vec<_> =
                (0..THREADS).map(|thread| scope.spawn(move || worker(thread))).collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
        });
        assert!(done.len() > 300, "{} answers", done.len());
        // Those that changed nothing were decided after the one that made the revision they name.
        done.sort_by_key(|done| (done.revision, !done.changed));
        let alone = fresh(durability);
        for done in done {
            let again = alone.transact(done.request.clone()).expect("it was accepted before");
            assert_eq!(again, done.response, "{:?}", done.request);
        }
        assert_eq!(alone.revision(), store.revision());
    }
}

fn fresh(durability: Durability) -> Store {
    let store = Options::new()
        .vfs(Arc::new(MemoryVfs::new()))
        .durability(durability)
        // Memtables fill and are flushed while the transactions run.
        .memtable_bytes(16 << 10)
        .wal_bytes(64 << 10)
        .open("store")
        .expect("a fresh store");
    let quiet = (0..QUIET).map(|n| annals::put(format!("quiet/{n}"), ""));
    store.txn().then(quiet).commit().expect("a transaction");
    for lease in 1..=2 {
        store.lease_grant(lease, Duration::from_secs(60)).expect("a lease");
    }
    store
}

struct Done {
    revision: u64,
    changed: bool,
    request: TxnRequest,
    response: TxnResponse,
}

fn run(store: &Store, mut random: Random) -> Vec<Done> {
    let mut done = Vec::new();
    let mut waiting = Vec::new();
    for _ in 0..EACH {
        random.at_home = random.one_in(2);
        let request = random.transaction(2);
        let Ok(ticket) = store.submit(request.clone()) else { continue };
        random.near = store.revision();
        waiting.push((request, ticket));
        if waiting.len() == 16 {
            done.extend(waiting.drain(..).map(|(request, ticket)| answer(request, ticket)));
        }
    }
    done.extend(waiting.into_iter().map(|(request, ticket)| answer(request, ticket)));
    done
}

fn answer(request: TxnRequest, ticket: Ticket) -> Done {
    let (revision, changed) = match ticket.outcome() {
        Outcome::Committed { revision } => (revision, true),
        Outcome::Unchanged { as_of } | Outcome::Failed { as_of } => (as_of, false),
        other => panic!("{other:?}"),
    };
    let response = ticket.wait().expect("it is durable");
    assert_eq!(response.revision, revision);
    Done { revision, changed, request, response }
}

/// A small generator of requests (xorshift64*), the same for the same seed.
struct Random {
    state: u64,
    thread: u64,
    /// Whether keys are the thread's own, so that nobody else's commits conflict, and answers have
    /// to be right although the revision expected was taken by somebody else.
    at_home: bool,
    /// The last revision known.
    near: u64,
}

impl Random {
    fn new(seed: u64, thread: u64) -> Self {
        let state = (seed * 1000 + thread).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { state, thread, at_home: false, near: 0 }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A revision soon to come, or just past: where it matters which one a transaction gets.
    fn revision(&mut self) -> u64 {
        (self.near + self.below(6)).saturating_sub(1)
    }

    fn key(&mut self) -> String {
        let own = if self.at_home { self.thread } else { 9 };
        format!("{own}/{}", self.below(5))
    }

    fn end(&mut self) -> String {
        match self.below(3) {
            0 => format!("{}~", self.key()),
            1 => "9/~".into(),
            _ => String::new(),
        }
    }

    fn value(&mut self) -> String {
        "v".repeat(usize::try_from(self.below(200)).expect("small"))
    }

    fn transaction(&mut self, levels: u32) -> TxnRequest {
        TxnRequest {
            compare: (0..self.below(3)).map(|_| self.compare()).collect(),
            success: (0..self.below(6)).map(|_| self.op(levels)).collect(),
            failure: (0..self.below(3)).map(|_| self.op(levels)).collect(),
        }
    }

    fn compare(&mut self) -> Compare {
        let results = [
            CompareResult::Equal,
            CompareResult::Greater,
            CompareResult::Less,
            CompareResult::NotEqual,
        ];
        Compare {
            key: self.key().into(),
            range_end: self.end().into(),
            result: results[usize::try_from(self.below(4)).expect("small")],
            target: match self.below(5) {
                0 => CompareTarget::Version(self.below(4)),
                1 => CompareTarget::CreateRevision(self.revision()),
                2 => CompareTarget::ModRevision(self.revision()),
                3 => CompareTarget::Lease(self.below(3).cast_signed()),
                _ => CompareTarget::Value(self.value().into()),
            },
        }
    }

    fn op(&mut self, levels: u32) -> Op {
        match self.below(10) {
            0 if levels > 0 => self.transaction(levels - 1).into(),
            9 => RangeRequest::prefix("quiet/").count_only().into(),
            0..=3 => {
                let mut put = PutRequest::new(self.key(), self.value());
                match self.below(6) {
                    0 => put.lease = self.below(2).cast_signed() + 1,
                    1 => put.prev_kv = true,
                    2 => put.ignore_lease = true,
                    3 => {
                        put.value.clear();
                        put.ignore_value = true;
                    }
                    _ => {}
                }
                put.into()
            }
            4 | 5 => {
                let mut delete = DeleteRangeRequest::new(self.key());
                if self.one_in(3) {
                    delete = delete.range_end(self.end());
                }
                delete.prev_kv = self.one_in(2);
                delete.into()
            }
            _ => {
                let mut range = RangeRequest::new(self.key()).range_end(self.end());
                range.limit = self.below(4);
                if self.one_in(3) {
                    range = range.sort(SortTarget::Mod, SortOrder::Descend);
                }
                match self.below(4) {
                    0 => range.min_mod_revision = self.revision(),
                    1 => range.max_create_revision = self.revision(),
                    2 => range.count_only = true,
                    _ => {}
                }
                range.into()
            }
        }
    }
}
