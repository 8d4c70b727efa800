//! Optimistic concurrency: two writers change different fields of one object and lose nothing.
//!
//! Each reads the object, changes its field, and writes it back *if the object is still the one it
//! read*. Who comes second finds the newer object in the answer, applies the change to that, and
//! tries again. Without the comparison one of the changes would be lost. Where nobody has to look at
//! the object in between, `Store::modify` does the same in one call.
//!
//! Run with `cargo run --example cas_loop`.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "an example prints what it shows")]

use annals::{KeyValue, Modify, Result, Store, get, mod_revision, put};

const KEY: &str = "/configmaps/foo";

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(directory.path())?;
    store.put(KEY, "bar=zero baz=zero")?;

    // Both read the same version ...
    let (one, two) = (read(&store)?, read(&store)?);
    // ... and write one after the other.
    update(&store, one, |object| object.replace("bar=zero", "bar=one"))?;
    update(&store, two, |object| object.replace("baz=zero", "baz=two"))?;

    // Four at once, by the store itself: each adds a letter to what is there.
    let add = |kv: Option<&KeyValue>| {
        let before = kv.map_or(String::new(), |kv| text(&kv.value));
        Modify::put(before + "!")
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| store.modify(KEY, add).expect("a modification"));
        }
    });

    let end = read(&store)?;
    println!("{} (version {})", text(&end.value), end.version);
    assert_eq!(end.value, "bar=one baz=two!!!!");
    store.close()
}

/// Applies a change to the newest version, starting from one that may be stale.
fn update(store: &Store, mut seen: KeyValue, change: impl Fn(&str) -> String) -> Result<()> {
    loop {
        let done = store
            .txn()
            .when([mod_revision(KEY).eq(seen.mod_revision)])
            .then([put(KEY, change(&text(&seen.value)))])
            .or_else([get(KEY)])
            .commit()?;
        if done.succeeded {
            println!("written at revision {}", done.revision);
            return Ok(());
        }
        println!("revision {} is stale: again", seen.mod_revision);
        seen = done.responses[0].kvs()[0].clone();
    }
}

fn read(store: &Store) -> Result<KeyValue> {
    Ok(store.get(KEY)?.expect("the object is never deleted"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
