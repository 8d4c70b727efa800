//! What an idle watch takes: counted by an allocator, over ten thousand of them.

#![allow(unsafe_code, reason = "an allocator that counts is unsafe to write")]
#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test stops where it fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use annals::vfs::MemoryVfs;
use annals::{Options, Watch, WatchBuilder};

struct Counting;

/// Bytes given out and not given back.
static BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is the system's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WATCHES: u64 = 10_000;

/// The longest key for which this is promised, less the number.
const KEY: &str = "/registry/pods/some-namespace/some-pod-with-a-long-name-";

/// A name, and how the n-th watch is made.
type Kind<'a> = (&'static str, &'a dyn Fn(u64) -> WatchBuilder);

#[test]
fn an_idle_watch_takes_less_than_a_kib() {
    // Nobody else allocates.
    let options = Options::new().vfs(Arc::new(MemoryVfs::new())).background(false);
    let store = options.open("store").expect("it opens");
    let kinds: [Kind<'_>; 3] = [
        ("of one key each", &|n| store.watch(format!("{KEY}{n:08}"))),
        ("of one prefix each", &|n| store.watch(format!("{KEY}{n:08}")).prefix()),
        ("of one key", &|_| store.watch(format!("{KEY}{:08}", 0)).prev_kv()),
    ];
    for (kind, make) in kinds {
        // What the first one takes, the others share.
        let _first = make(WATCHES).start().expect("it starts");
        let mut watches: Vec<Watch> = Vec::with_capacity(10_000);
        let before = BYTES.load(Ordering::Relaxed);
        for n in 0..WATCHES {
            watches.push(make(n).start().expect("it starts"));
        }
        // The watches themselves lie in the vector.
        let taken = BYTES.load(Ordering::Relaxed) - before;
        let each = taken / WATCHES + size_of::<Watch>() as u64;
        println!("a watch {kind}: {each} bytes, {} of them the watch", size_of::<Watch>());
        assert!(each <= 1024, "a watch {kind} takes {each} bytes");
        drop(watches);
        let left = BYTES.load(Ordering::Relaxed).saturating_sub(before);
        println!("  {left} bytes are left");
        assert!(left < 1 << 20, "{left} bytes are left of watches that are gone");
    }
}
