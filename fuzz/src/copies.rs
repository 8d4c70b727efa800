//! Copies of a store after arbitrary operations: a checkpoint, a backup with its increments, and a store made of
//! what this one had. Each is equal to it at every revision, by its hash and by what it holds.

use annals::vfs::MemoryVfs;
use annals::{ErrorKind, KeyValue, Load, Origin, RestoreOptions, Store, restore};

use crate::dir;
use crate::input::Input;
use crate::ops::Run;

/// Operations between two backups.
const STEPS_MAX: usize = 120;

/// Where copies lie, each on a disk of its own but the checkpoint.
const COPY: &str = "copy";

/// Bytes as operations, with a backup in the middle of them. Always true: every input means something.
pub(crate) fn copies(data: &[u8]) -> bool {
    let mut input = Input(data);
    let mut run = Run::new(input.byte());
    let mut stream = Vec::new();
    let steps = usize::from(input.byte()) % STEPS_MAX;
    run.steps(&mut input, steps);
    let made = run.store().backup(&mut stream).expect("a backup");
    let full = stream.len();
    run.steps(&mut input, STEPS_MAX);
    let store = run.store();
    match store.backup_from(made.revision, &mut stream) {
        Ok(report) => assert_eq!(report.revision, store.revision()),
        Err(error) => {
            // What the increment would have to tell is compacted, or a crash has taken back what was backed up.
            let kind = error.kind();
            let told =
                matches!(kind, ErrorKind::Compacted { .. } | ErrorKind::FutureRevision { .. });
            assert!(told, "an increment: {error}");
            stream.truncate(full);
            stream.clear();
            store.backup(&mut stream).expect("a backup");
        }
    }
    let disk = MemoryVfs::new();
    let how = RestoreOptions::new().options(dir::options(&disk));
    match restore(&stream[..], dir::DIR, &how) {
        Ok(_) => {}
        // The same revisions were written twice, with a crash of a store that acknowledges early in between.
        Err(error) if run.has_lost() => {
            assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
            return true;
        }
        Err(error) => panic!("a restore: {error}"),
    }
    let restored = Store::open_with(dir::DIR, &dir::options(&disk)).expect("what was restored");
    same(store, &restored, "restored");
    drop(restored);

    store.checkpoint(COPY).expect("a checkpoint");
    let checkpoint = Store::open_with(COPY, &dir::options(run.disk())).expect("a checkpoint");
    same(store, &checkpoint, "checkpoint");
    checkpoint.put("k", "its own").expect("a put");
    drop(checkpoint);

    let loaded = load(store);
    same(store, &loaded, "loaded");
    true
}

/// A store made of what another one had.
fn load(store: &Store) -> Store {
    let disk = MemoryVfs::new();
    let compacted = store.compacted_revision();
    // Nothing was forgotten by a compaction to what there was before anything was written.
    let compacted = if compacted <= 1 { 0 } else { compacted };
    let time = if compacted == 0 { 0 } else { store.time_of(compacted).expect("a time") };
    let origin = Origin { time, ..Origin::default() };
    let mut load =
        Load::create(dir::DIR, &dir::options(&disk), compacted, &origin).expect("a new store");
    if compacted != 0 {
        let view = store.at(compacted).expect("a view");
        let mut deleted: Vec<(Vec<u8>, u32)> = Vec::new();
        for transaction in store.log(compacted..=compacted) {
            for (sub, change) in (0..).zip(transaction.expect("a transaction").changes) {
                if change.kind == annals::ChangeKind::Delete {
                    deleted.push((change.key.to_vec(), sub));
                }
            }
        }
        let mut living: Vec<KeyValue> = view.range(..).map(|kv| kv.expect("a key")).collect();
        let mut keys: Vec<Vec<u8>> = living.iter().map(|kv| kv.key.to_vec()).collect();
        keys.extend(deleted.iter().map(|(key, _)| key.clone()));
        keys.sort();
        living.reverse();
        for key in keys {
            match living.pop_if(|kv| kv.key == key) {
                Some(kv) => {
                    let sub = view.sub_of(&kv.key).expect("its place").unwrap_or_default();
                    load.base(&kv, sub).expect("a key of the base");
                }
                None => {
                    let sub = deleted.iter().find(|one| one.0 == key).map_or(0, |one| one.1);
                    load.base_deleted(&key, sub).expect("a deleted key of the base");
                }
            }
        }
    }
    let mut loading = load.begin().expect("the base");
    for transaction in store.log(compacted + 1..).with_values() {
        loading.transaction(&transaction.expect("a transaction")).expect("it follows");
    }
    loading.finish().expect("the end")
}

/// Both have the same at every revision that can be read.
fn same(store: &Store, copy: &Store, what: &str) {
    assert_eq!(copy.revision(), store.revision(), "{what}");
    for revision in store.compacted_revision().max(1)..=store.revision() {
        let (here, there) = (store.hash_at(revision), copy.hash_at(revision));
        let (here, there) = (here.expect("a hash"), there.expect("a hash"));
        assert_eq!(here.hash, there.hash, "{what}: {here:?}, {there:?}");
    }
    let all = |store: &Store| -> Vec<KeyValue> {
        let view = store.latest().expect("a view");
        view.range(..).map(|kv| kv.expect("a key")).collect()
    };
    assert_eq!(all(store), all(copy), "{what}");
}
