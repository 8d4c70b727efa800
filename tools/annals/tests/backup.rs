//! `backup` and `restore`: a store as a file or a stream, and a store made of one.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use annals::Store;
use common::{SMALL, Tool, history};

fn filled() -> Tool {
    let tool = Tool::new();
    let file = tool.file("h.jsonl", history(400, 60, 300));
    let mut import = SMALL.to_vec();
    import.extend(["import", "history", &file]);
    tool.ok(&import);
    tool
}

#[test]
fn a_restored_store_has_the_hash_of_the_one_backed_up_also_beside_a_writer() {
    let tool = filled();
    let store = Store::open(tool.store()).unwrap();
    store.put("/more", "1").unwrap();
    let (file, copy) = (tool.path("monday.backup"), Tool::new());
    let file = file.to_str().unwrap();
    let made = tool.json(&["backup", file]);
    assert_eq!(made["revision"], 402);
    assert_eq!(made["bytes"], std::fs::metadata(file).unwrap().len());
    let hash = store.hash_at(402).unwrap();
    assert_eq!(made["hash"], hash.hash);
    let restored = copy.json(&["restore", file]);
    assert_eq!(restored["hash"], hash.hash);
    assert_eq!(restored["files"], made["files"]);
    let copy = Store::open(copy.store()).unwrap();
    assert_eq!(copy.hash_at(402).unwrap(), hash);
    assert_eq!(copy.incarnation(), 2);

    let found = tool.json(&["inspect", file]);
    for member in ["revision", "hash", "files", "file_bytes", "bytes"] {
        assert_eq!(found[member], made[member], "{member}");
    }
    assert!(tool.ok(&["inspect", file]).contains("transactions"));

    // By way of a stream; what is told goes elsewhere then.
    let done = tool.command(&["backup", "-"]).output().unwrap();
    assert!(done.status.success());
    assert!(String::from_utf8(done.stderr).unwrap().contains("revision 402"));
    assert_eq!(done.stdout.len() as u64, made["bytes"].as_u64().unwrap());
    let other = Tool::new();
    other.run_with(&["restore", "-"], &done.stdout).code(0);
    assert_eq!(Store::open(other.store()).unwrap().hash_at(402).unwrap(), hash);
}

#[test]
fn what_cannot_be_is_refused() {
    let tool = filled();
    let (file, copy) = (tool.path("monday.backup"), Tool::new());
    let file = file.to_str().unwrap();
    tool.ok(&["backup", file]);
    // Nothing is written over.
    let refused = tool.run(&["backup", file]).code(1);
    assert!(refused.stderr().contains("there is such a file already"), "{}", refused.stderr());
    let refused = tool.run(&["restore", file]).code(2);
    assert!(refused.stderr().contains("is not empty"), "{}", refused.stderr());
    copy.run(&["restore", "nothing"]).code(5);

    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = tool.file("damaged.backup", bytes);
    for done in [tool.run(&["inspect", &damaged]), copy.run(&["restore", &damaged])] {
        let said = done.code(3).stderr();
        assert!(said.contains("damaged.backup") && said.contains("offset"), "{said}");
    }
    let refused = copy.run(&["get", "k"]).code(1);
    assert!(refused.stderr().contains("not finished"), "{}", refused.stderr());
    let text = tool.file("text", "no backup");
    let new = Tool::new();
    new.run(&["restore", &text]).code(3);
    assert!(!new.store().exists());
}
