//! What a commit allocates, beside the memtable's arena: nothing, or one list for the answer. A get of
//! the newest state: the key and a value that is copied. A log of a range: nothing for what changed nothing there.
//!
//! Counted in the calling thread. Every commit is of a key that the memtable knows, and what comes up
//! once in thousands of commits (a chunk of the arena, garbage of the epochs) is allowed for.

#![allow(unsafe_code, reason = "an allocator that counts is unsafe to write")]
#![allow(clippy::expect_used, reason = "a test stops where it fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use annals::{Durability, KeyRange, Options, Outcome, Store, TxnRequest, mod_revision, put, txn};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // Not there any more while the thread ends.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: everything is the system's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's contract.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const KEYS: u64 = 100;
const COMMITS: u64 = 2_000;
/// What comes up now and then, in all of them.
const SELDOM: u64 = 200;

fn key(n: u64) -> String {
    format!("/registry/pods/default/{:04}", n % KEYS)
}

/// Allocations of the calling thread while `work` is done for each number; the keys are made before.
fn allocations(mut work: impl FnMut(&str)) -> u64 {
    let keys: Vec<String> = (0..COMMITS).map(key).collect();
    let before = COUNT.with(Cell::get);
    for key in &keys {
        work(key);
    }
    COUNT.with(Cell::get) - before
}

/// Puts, and compares and puts; then transactions whose requests are there.
fn commits(store: &Store) -> [(u64, u64); 3] {
    let value = [7; 256];
    let mut seen = 0;
    for n in 0..KEYS {
        seen = store.put(key(n), value).expect("a commit").revision;
    }
    let mut next = || {
        seen += 1;
        seen - KEYS
    };
    let swaps = allocations(|key| {
        let done = store.compare_and_put(key, next(), value).expect("an answer");
        assert!(matches!(done, Outcome::Committed { .. }));
    });
    let request = |n| {
        let key = key(n);
        txn().when([mod_revision(&key).eq(next())]).then([put(&key, value)])
    };
    let mut requests: Vec<TxnRequest> = (0..COMMITS).map(request).collect();
    requests.reverse();
    let transactions = allocations(|_| {
        let request = requests.pop().expect("one for each");
        assert!(store.transact(request).expect("an answer").succeeded);
    });
    let puts = allocations(|key| {
        store.put(key, value).expect("a commit");
    });
    [(puts, 0), (swaps, 0), (transactions, 1)]
}

#[test]
fn a_commit_allocates_at_most_its_answer() {
    for durability in [Durability::Buffered, Durability::Sync] {
        let directory = tempfile::tempdir().expect("a directory");
        let options = Options::new().durability(durability).background(false);
        let store = options.open(directory.path()).expect("a store");
        for (index, (counted, each)) in commits(&store).into_iter().enumerate() {
            assert!(
                counted <= each * COMMITS + SELDOM,
                "{durability:?}, measure {index}: {counted} allocations in {COMMITS} commits"
            );
        }
        store.close().expect("closed");
    }
}

#[test]
fn a_get_allocates_at_most_its_key_and_its_value() {
    for durability in [Durability::Buffered, Durability::Sync] {
        let directory = tempfile::tempdir().expect("a directory");
        let options = Options::new().durability(durability).background(false);
        let store = options.open(directory.path()).expect("a store");
        for n in 0..KEYS {
            store.put(key(n), [7; 256]).expect("a commit");
        }
        let gets = || {
            allocations(|key| {
                let found = store.get(key).expect("an answer").expect("a value");
                assert_eq!((found.key.as_ref(), found.value.len()), (key.as_bytes(), 256));
            })
        };
        let counted = gets();
        assert!(counted <= 2 * COMMITS + SELDOM, "{durability:?}, memory: {counted}");
        store.reorganise().expect("in files");
        let counted = gets();
        assert!(counted <= COMMITS + SELDOM, "{durability:?}, a mapped file: {counted}");
        store.close().expect("closed");
    }
}

#[test]
fn a_log_of_a_range_allocates_nothing_for_other_keys() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = Options::new().durability(Durability::Buffered).background(false);
    let store = options.open(directory.path()).expect("a store");
    for n in 0..COMMITS {
        store.put(key(n), [7; 256]).expect("a commit");
    }
    store.put("/wanted", "").expect("a commit");
    let read = || {
        let before = COUNT.with(Cell::get);
        let found =
            store.log_of(.., KeyRange::key("/wanted")).next().expect("one").expect("readable");
        assert_eq!(found.revision, COMMITS + 2);
        COUNT.with(Cell::get) - before
    };
    let counted = read();
    assert!(counted <= SELDOM, "memory: {counted} for {COMMITS} transactions");
    store.reorganise().expect("in files");
    let counted = read();
    assert!(counted <= SELDOM, "a file: {counted} for {COMMITS} transactions");
}
