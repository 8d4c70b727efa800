//! Batches that several watches share, and what is made of them once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
        // Of a value that the log does not repeat, too.
        for (round, value) in ["v".to_owned(), "w".repeat(100_000)].into_iter().enumerate() {
            store.put("/a", &value).unwrap();
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

/// What is derived goes with the batch, by whatever thread forgets it: its end is foreign code.
struct Last(annals::Store, Arc<AtomicUsize>);

impl Drop for Last {
    fn drop(&mut self) {
        // It may use the store, ask its watches, and panic.
        let mut watch = self.0.watch("/other").start().unwrap();
        let _ticket = self.0.txn().then([annals::put("/other", "")]).submit().unwrap();
        let _ = watch.try_next();
        self.1.fetch_add(1, Ordering::Relaxed);
        assert!(self.1.load(Ordering::Relaxed) != 3, "as this test wants it");
    }
}

#[test]
fn the_end_of_what_is_derived_holds_nothing_up() {
    for background in [true, false] {
        let (store, ended) = (fresh(background), Arc::new(AtomicUsize::new(0)));
        let mut watches = [all(&store).start().unwrap(), all(&store).start().unwrap()];
        // More than are kept for other watches.
        for _ in 0..600 {
            store.put("/a", "v").unwrap();
            for watch in &mut watches {
                while next(watch).events()[0].kv.key != "/a" {}
            }
            store.put("/b", "v").unwrap();
            for watch in &mut watches {
                let batch = loop {
                    let batch = next(watch);
                    if batch.events()[0].kv.key == "/b" {
                        break batch;
                    }
                };
                batch.derived(|_| Last(store.clone(), Arc::clone(&ended)));
            }
        }
        assert!(ended.load(Ordering::Relaxed) > 100, "they are forgotten");
        drop(watches);
        store.close().unwrap();
    }
}
