//! `checkpoint`: a copy that is a store of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::process::Command;

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
    let refused = tool.run(&["checkpoint", copy.to_str().unwrap()]).code(2);
    refused.says("what to do: remove it if nobody needs what is in it, or give another directory");
    let unfinished = tool.path("unfinished");
    std::fs::create_dir(&unfinished).unwrap();
    std::fs::write(unfinished.join("LOADING"), "").unwrap();
    let refused = tool.run(&["checkpoint", unfinished.to_str().unwrap()]).code(2);
    assert!(refused.stderr().contains("was not finished"), "{}", refused.stderr());
    let refused = Store::open(&unfinished).unwrap_err().to_string();
    assert!(refused.contains("not finished"), "{refused}");
}

#[test]
fn what_a_checkpoint_that_failed_has_left_is_told() {
    let tool = Tool::new();
    let mut random = 7_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{:08x}", random >> 32)
    };
    tool.ok(&["put", "k", &(0..5000).map(|_| next()).collect::<String>()]);
    let copy = tool.path("copy");
    // No file can be longer than 4 KiB: so the log of the copy is not written.
    let annals = env!("CARGO_BIN_EXE_annals");
    let line =
        format!("trap '' XFSZ; ulimit -f 8; exec {annals} -C {} {{}}", tool.store().display());
    let limited = |command: String| {
        let done = Command::new("sh").args(["-c", &line.replace("{}", &command)]).output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (code, said) = limited(format!("checkpoint {}", copy.display()));
    assert_eq!(code, Some(1), "{said}");
    let left = "copy: it holds a store that was not finished: remove it before another try";
    assert!(copy.join("LOADING").exists() && said.contains(left), "{said}");
    let refused = tool.run(&["checkpoint", copy.to_str().unwrap()]).code(2);
    refused.says("was not finished: remove it").says("what to do: remove it if nobody needs");

    // A backup leaves nothing.
    let (code, said) = limited(format!("backup {}", tool.path("backup").display()));
    assert_eq!(code, Some(1), "{said}");
    assert!(!tool.path("backup").exists() && !tool.path("backup.part").exists(), "{said}");
}
