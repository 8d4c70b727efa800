//! Batches that several watches share, and what is made of them once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use annals::{Watch, WatchBuilder};

use super::{fresh, next};

fn all(store: &annals::Store) -> WatchBuilder {
    store.watch("/").prefix()
}

#[test]
fn watches_of_one_range_make_of_a_batch_once_what_they_send() {
    for background in [true, false] {
        let store = fresh(background);
        let mut watches: Vec<Watch> = (0..50).map(|_| all(&store).start().unwrap()).collect();
        let mut others = [
            all(&store).prev_kv().start().unwrap(),
            all(&store).keys_only().start().unwrap(),
            store.watch("/a").start().unwrap(),
        ];
        let mut mark = store.watch("mark").start().unwrap();
        // Of a value that the log does not repeat, too.
        for (round, value) in ["v".to_owned(), "w".repeat(100_000)].into_iter().enumerate() {
            store.put("/a", &value).unwrap();
            // A watch that looks while the batch is offered makes one of its own: once the next transaction is told, it has been.
            store.put("mark", "").unwrap();
            next(&mut mark);
            let made = AtomicUsize::new(0);
            let length = |watch: &mut Watch| {
                let batch = next(watch);
                let length = batch.derived(|batch| {
                    made.fetch_add(1, Ordering::Relaxed);
                    batch.events()[0].kv.value.len()
                });
                (batch, *length)
            };
            for watch in &mut watches {
                assert_eq!(length(watch).1, value.len());
            }
            assert_eq!(made.swap(0, Ordering::Relaxed), 1, "background: {background}");
            let [with_before, only_keys, one_key] = &mut others;
            let (batch, told) = length(with_before);
            assert_eq!((told, batch.events()[0].prev_kv.is_some()), (value.len(), round > 0));
            assert_eq!(length(only_keys).1, 0);
            assert_eq!(length(one_key).1, value.len());
            assert_eq!(made.load(Ordering::Relaxed), 3);
        }
        store.close().unwrap();
    }
}

/// Files of a directory that are removed, and still mapped by this process.
#[cfg(target_os = "linux")]
fn removed_and_mapped(directory: &std::path::Path) -> usize {
    let name = directory.display().to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|map| map.contains(&name) && map.ends_with("(deleted)")).count()
}

/// What is told of a file is not kept as a part of the file.
#[cfg(target_os = "linux")]
#[test]
fn what_watches_share_keeps_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let store = annals::Store::open(directory.path().join("store")).unwrap();
    for n in 0..100 {
        store.put(format!("/{n:03}"), "v".repeat(10_000)).unwrap();
    }
    store.reorganise().unwrap();
    let mut watches =
        [all(&store).prev_kv().start().unwrap(), all(&store).prev_kv().start().unwrap()];
    for n in 0..100 {
        // Longer than what the log repeats.
        store.put(format!("/{n:03}"), "w".repeat(2_000)).unwrap();
        for watch in &mut watches {
            let batch = next(watch);
            let before = batch.events()[0].prev_kv.as_ref().expect("it lived");
            assert_eq!(before.value.len(), 10_000);
        }
    }
    store.reorganise().unwrap();
    // What reads let go of is let go soon.
    for _ in 0..500 {
        if removed_and_mapped(directory.path()) == 0 {
            return;
        }
        drop(store.get("/000"));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} files are held", removed_and_mapped(directory.path()));
}

/// What is derived goes with the batch, by whatever thread forgets it: its end is foreign code.
struct Last {
    store: annals::Store,
    ended: Arc<AtomicUsize>,
    /// Has something to tell.
    asked: Arc<Mutex<Watch>>,
}

impl Drop for Last {
    fn drop(&mut self) {
        // It may ask a watch, use the store, and panic: here once early, and always when the store is closed.
        let _ = self.asked.lock().unwrap_or_else(PoisonError::into_inner).try_next();
        assert_ne!(self.ended.fetch_add(1, Ordering::Relaxed), 2, "as this test wants it");
        let mut watch = self.store.watch("/other").start().unwrap();
        let _ticket = self.store.txn().then([annals::put("/other", "")]).submit().unwrap();
        let _ = watch.try_next();
    }
}

#[test]
fn the_end_of_what_is_derived_holds_nothing_up() {
    for background in [true, false] {
        let (store, ended) = (fresh(background), Arc::new(AtomicUsize::new(0)));
        let fragments = || all(&store).fragment(1).start().unwrap();
        let mut watches = [fragments(), fragments()];
        let asked = Arc::new(Mutex::new(all(&store).start().unwrap()));
        let mut sleeper = store.watch("/never").start().unwrap();
        let sleeper = std::thread::spawn(move || sleeper.next());
        // More than are kept for other watches; of two batches each.
        for _ in 0..600 {
            store.txn().then([annals::put("/a", "v"), annals::put("/b", "v")]).commit().unwrap();
            for watch in &mut watches {
                let ours = std::iter::repeat_with(|| next(watch))
                    .filter(|batch| batch.events()[0].kv.key != "/other");
                for batch in ours.take(2) {
                    let (store, ended) = (store.clone(), Arc::clone(&ended));
                    batch.derived(|_| Last { store, ended, asked: Arc::clone(&asked) });
                }
            }
        }
        assert!(ended.load(Ordering::Relaxed) > 100, "they are forgotten");
        store.close().unwrap();
        let told = sleeper.join().unwrap().expect("the end is told");
        assert!(matches!(told.unwrap_err().kind(), annals::ErrorKind::Closed));
        drop(watches);
    }
}
