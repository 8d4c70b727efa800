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
    assert!(copy.incarnation() > 2, "another history");

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
    refused.says("what to do: remove it if nobody needs what is in it, or give another directory");
    copy.run(&["restore", "nothing"]).code(5);
    copy.run_with(&["restore", "-", "-"], b"").code(2).says("name - once");

    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = tool.file("damaged.backup", bytes);
    let mut told = 0;
    for done in [tool.run(&["inspect", &damaged]), copy.run(&["restore", &damaged])] {
        let said = done.code(3).stderr();
        assert!(said.contains("damaged.backup") && said.contains("offset"), "{said}");
        assert!(said.contains("take another backup") && !said.contains("repair --to"), "{said}");
        told += usize::from(said.contains("it holds a store that was not finished: remove it"));
    }
    assert_eq!(told, 1, "of the directory that the restore has left");
    let refused = copy.run(&["get", "k"]).code(1);
    assert!(refused.stderr().contains("not finished"), "{}", refused.stderr());
    copy.run(&["restore", file]).code(2).says("what to do: remove it if nobody needs");
    let text = tool.file("text", "no backup");
    let new = Tool::new();
    new.run(&["restore", &text]).code(3);
    assert!(!new.store().exists());
}

#[test]
fn increments_follow_a_backup_and_a_revision_is_raised() {
    let tool = filled();
    let path = |name: &str| tool.path(name).to_str().unwrap().to_owned();
    let (full, first, second) = (path("full"), path("first"), path("second"));
    let made = tool.json(&["backup", &full]);
    assert!(made["from"].is_null());
    tool.ok(&["put", "/more", "1"]);
    let made = tool.json(&["backup", &first, "--from", &made["revision"].to_string()]);
    assert_eq!((&made["from"], &made["revision"]), (&401.into(), &402.into()));
    tool.ok(&["put", "/more", "2"]);
    tool.ok(&["backup", &second, "--from", "402"]);
    let hash = &tool.json(&["hash"])["hash"];
    let copy = Tool::new();
    let restored = copy.json(&["restore", &full, &first, &second]);
    assert_eq!((&restored["increments"], &restored["hash"]), (&2.into(), hash));
    assert_eq!(copy.json(&["hash"])["hash"], *hash);
    assert_eq!(tool.json(&["inspect", &second])["transactions"], 1);
    let both = [std::fs::read(&full).unwrap(), std::fs::read(&first).unwrap()].concat();
    let both = tool.json(&["inspect", &tool.file("both", both)]);
    assert_eq!(
        (&both["backups"][0]["revision"], &both["backups"][1]["from"]),
        (&401.into(), &401.into())
    );

    let raised = Tool::new();
    let done = raised.json(&["restore", &full, &first, &second, "--bump-revision", "1000"]);
    assert_eq!((&done["revision"], &done["compacted_revision"]), (&1403.into(), &1403.into()));
    assert_eq!(raised.ok(&["get", "/more", "-o", "raw"]), tool.ok(&["get", "/more", "-o", "raw"]));
    raised.run(&["get", "/more", "--at", "402"]).code(6);
    raised.ok(&["verify"]);

    // What does not continue what is there, and where in which file the damage is.
    let other = Tool::new();
    let refused = other.run(&["restore", &full, &second]).code(2);
    assert!(refused.stderr().contains("continues revision 402"), "{}", refused.stderr());
    let other = Tool::new();
    let cut = std::fs::read(&first).unwrap();
    let cut = tool.file("cut", &cut[..cut.len() - 1]);
    let said = other.run(&["restore", &full, &cut]).code(3).stderr();
    assert!(said.contains("cut"), "{said}");
    let refused = Tool::new();
    refused.run(&["restore", &first]).code(2);
    assert!(!refused.store().exists());
    refused.run(&["restore", &full, "--bump-revision", "0"]).code(2);
    tool.run(&["backup", &path("later"), "--from", "9999"]).code(6);
    tool.ok(&["compact", "--at", "400", "--confirm"]);
    let late = tool.run(&["backup", &path("later"), "--from", "2"]).code(6).stderr();
    assert!(late.contains("take a full backup"), "{late}");
    assert!(!tool.path("later").exists() && !tool.path("later.part").exists());
}

#[test]
fn a_backup_is_not_written_into_the_store() {
    let tool = filled();
    let within = |name: &str| tool.store().join(name).to_str().unwrap().to_owned();
    std::os::unix::fs::symlink(tool.store(), tool.path("link")).unwrap();
    let link = tool.path("link").join("wal/own").to_str().unwrap().to_owned();
    let before = tool.snapshot();
    for file in [within("own"), within("wal/own"), within("../store/own"), link] {
        tool.run(&["backup", &file]).code(2).says("within the store itself");
    }
    let here = tool.command(&["backup", "own"]).current_dir(tool.store()).output().unwrap();
    assert_eq!(here.status.code(), Some(2));
    assert_eq!(tool.snapshot(), before);
    let beside = tool.command(&["backup", "own"]).current_dir(tool.path("")).output().unwrap();
    assert!(beside.status.success() && tool.path("own").exists());
}

/// The users of a server are beside its store.
#[test]
fn what_is_not_in_a_copy_of_a_servers_store_is_named() {
    let tool = Tool::new();
    tool.ok(&["put", "a", "1"]);
    let (users, text) = (tool.store().with_file_name("auth.json"), "are not in it: copy ");
    for (enabled, is_told) in [(true, true), (false, false)] {
        let content = format!(
            "{{\"format\":\"annals-etcd auth\"}}\n{{\"enabled\":{enabled},\"revision\":1,\"users\":[],\"roles\":[]}}\n"
        );
        std::fs::write(&users, content).unwrap();
        let (file, copy) = (format!("{enabled}.backup"), format!("copy-{enabled}"));
        let (file, copy) = (tool.path(&file), tool.path(&copy));
        for arguments in
            [["backup", file.to_str().unwrap()], ["checkpoint", copy.to_str().unwrap()]]
        {
            let said = tool.run(&arguments).code(0).stderr();
            assert_eq!(said.contains(text), is_told, "{arguments:?}: {said}");
        }
    }
}
