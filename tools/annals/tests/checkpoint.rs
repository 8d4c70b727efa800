//! `checkpoint`: a copy that is a store of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use annals::Store;
use common::{SMALL, Tool};

#[test]
fn the_copy_has_the_hash_of_the_store_also_beside_a_writer() {
    let tool = Tool::new();
    let mut lines = String::new();
    for n in 0..500_u64 {
        let (key, value) = (format!("/k/{:03}", n % 90), format!("{n} ").repeat(300));
        let line = serde_json::json!({
            "commit": format!("{n:040x}"), "time": 1_700_000_000 + n,
            "puts": { key: value }, "deletes": []
        });
        lines.push_str(&line.to_string());
        lines.push('\n');
    }
    let file = tool.file("h.jsonl", lines);
    let mut import = SMALL.to_vec();
    import.extend(["import", "history", &file]);
    tool.ok(&import);
    let before = tool.json(&["hash"]);
    let copy = tool.path("copies/one");
    let made = tool.json(&["checkpoint", copy.to_str().unwrap()]);
    assert_eq!(made["revision"], before["revision"]);
    assert!(made["linked_files"].as_u64().unwrap() > 0 && made["copied_files"] == 0, "{made}");
    assert_eq!(Store::open(&copy).unwrap().hash_at(501).unwrap().hash, before["hash"]);

    // A program has the store open, and has committed more.
    let store = Store::open(tool.store()).unwrap();
    store.put("/more", "1").unwrap();
    let copy = tool.path("copies/two");
    tool.ok(&["checkpoint", copy.to_str().unwrap()]);
    let copied = Store::open_read_only(&copy).unwrap();
    assert_eq!(copied.hash_at(502).unwrap(), store.hash_at(502).unwrap());

    // Neither a store nor anything else is written over, nor is an unfinished copy taken for a store.
    tool.run(&["checkpoint", copy.to_str().unwrap()]).code(2);
    let unfinished = tool.path("unfinished");
    std::fs::create_dir(&unfinished).unwrap();
    std::fs::write(unfinished.join("LOADING"), "").unwrap();
    let refused = tool.run(&["checkpoint", unfinished.to_str().unwrap()]).code(2);
    assert!(refused.stderr().contains("was not finished"), "{}", refused.stderr());
    let refused = Store::open(&unfinished).unwrap_err().to_string();
    assert!(refused.contains("not finished"), "{refused}");
}
