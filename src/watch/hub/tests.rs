//! The hub, one step at a time: what must not come between two of them.

use std::sync::Arc as StdArc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::options::Options;
use crate::vfs::MemoryVfs;

fn store() -> Store {
    let options = Options::new().vfs(StdArc::new(MemoryVfs::new())).background(false);
    options.open("store").expect("a store in memory")
}

fn put(store: &Store, key: &str) -> u64 {
    store.put(key, "").expect("it is written").revision
}

#[test]
fn a_watch_is_cancelled_before_it_is_out_of_the_registry() {
    let store = store();
    let hub = Hub::of(&store).expect("a hub");
    let (slot, _) =
        hub.register(&store, KeyRange::key("a"), After::Revision(1)).expect("registered");
    thread::scope(|scope| {
        let registry = lock(&hub.registry);
        scope.spawn(|| hub.remove(&slot));
        // It cannot be taken out while this is locked.
        for _ in 0..5_000 {
            if slot.is_cancelled() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        assert!(slot.is_cancelled(), "else it finds nothing due, and what is scanned was not told");
        drop(registry);
    });
}

#[test]
fn a_watch_of_the_newest_begins_where_it_is_registered() {
    let store = store();
    let hub = Hub::of(&store).expect("a hub");
    let all = KeyRange::all;
    let first = hub.register(&store, all(), After::Newest(1)).expect("registered");
    assert_eq!((first.0.after, first.1), (1, 1));
    for _ in 0..3 {
        put(&store, "a");
    }
    hub.turn().expect("it reads on");
    // As if all that had come after the newest revision was asked for.
    let (slot, scanned) = hub.register(&store, all(), After::Newest(1)).expect("registered");
    assert_eq!((slot.after, scanned), (4, 4));
    let last = put(&store, "a");
    let (slot, scanned) = hub.register(&store, all(), After::Newest(last)).expect("registered");
    assert_eq!((slot.after, scanned), (5, 4));
}
