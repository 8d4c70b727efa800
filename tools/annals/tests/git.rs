//! `import git` and `tour`, on repositories made for the test.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::Tool;
use serde_json::json;

fn git(at: &Path, arguments: &[&str]) -> bool {
    let mut command = Command::new("git");
    command.arg("-C").arg(at).args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    for (name, value) in [("NAME", "A"), ("EMAIL", "a@example.org"), ("DATE", "1600000000 +0000")] {
        command
            .env(format!("GIT_AUTHOR_{name}"), value)
            .env(format!("GIT_COMMITTER_{name}"), value);
    }
    command.status().is_ok_and(|status| status.success())
}

/// A repository with a file that changes `commits` times; false where there is no git.
fn repository(path: &Path, commits: u32) -> bool {
    std::fs::create_dir_all(path.join("dir")).unwrap();
    if !git(path, &["init", "-q"]) {
        eprintln!("skipped: no git here");
        return false;
    }
    grow(path, 0, commits);
    true
}

fn grow(path: &Path, from: u32, to: u32) {
    for i in from..to {
        std::fs::write(path.join("file"), format!("version {i}\n")).unwrap();
        std::fs::write(path.join(format!("dir/{i}")), [0xff, 0, 1]).unwrap();
        assert!(git(path, &["add", "."]));
        assert!(git(path, &["commit", "-qm", &format!("commit {i}")]));
    }
}

#[test]
fn every_commit_is_a_revision() {
    let tool = Tool::new();
    let path = tool.path("repository");
    if !repository(&path, 5) {
        return;
    }
    let name = path.to_str().unwrap();
    let summary = tool.json(&["import", "git", name]);
    assert_eq!((&summary["records"], &summary["revision"]), (&json!(5), &json!(6)));
    assert_eq!(tool.ok(&["get", "file", "-o", "raw", "--at", "4"]), "version 2\n");
    assert_eq!(tool.run(&["get", "dir/0", "-o", "raw"]).code(0).0.stdout, [0xff, 0, 1]);
    let newest = &tool.lines(&["history", "file"])[0];
    assert_eq!(newest["metadata"]["subject"], "commit 4");
    assert_eq!(newest["metadata"]["author"], "A <a@example.org>");
    assert_eq!(newest["time"], "2020-09-13T12:26:40Z");
    // Nothing new, then two more.
    assert_eq!(tool.json(&["import", "git", name])["records"], 0);
    grow(&path, 5, 7);
    let summary = tool.json(&["import", "git", name]);
    assert_eq!((&summary["already_there"], &summary["records"]), (&json!(5), &json!(2)));
    assert_eq!(tool.ok(&["get", "file", "-o", "raw"]), "version 6\n");
    // Another history is something else.
    let other = tool.path("other");
    assert!(repository(&other, 3));
    std::fs::write(other.join("x"), "x").unwrap();
    assert!(git(&other, &["add", "."]) && git(&other, &["commit", "-q", "--amend", "-m", "x"]));
    tool.run(&["import", "git", other.to_str().unwrap()]).code(1).says("--append");
    let unrelated = tool.path("unrelated");
    std::fs::create_dir(&unrelated).unwrap();
    std::fs::write(unrelated.join("x"), "x").unwrap();
    assert!(git(&unrelated, &["init", "-q"]) && git(&unrelated, &["add", "."]));
    assert!(git(&unrelated, &["commit", "-qm", "x"]));
    let unrelated = ["import", "git", unrelated.to_str().unwrap()];
    tool.run(&unrelated).code(1).says("--append imports all of this");
    // What was imported can be exported and imported again.
    let again = Tool::new();
    let file = tool.file("e.jsonl", tool.ok(&["export"]));
    again.ok(&["import", "history", &file]);
    assert_eq!(again.ok(&["export"]), tool.ok(&["export"]));
    assert_eq!(again.lines(&["history", "file"])[0]["metadata"]["subject"], "commit 6");
}

#[test]
fn no_commit_is_imported_twice_though_others_have_written_since() {
    let tool = Tool::new();
    let (path, second) = (tool.path("repository"), tool.path("second"));
    if !repository(&path, 3) {
        return;
    }
    let (name, second_name) = (path.to_str().unwrap(), second.to_str().unwrap());
    tool.ok(&["import", "git", name]);
    tool.ok(&["put", "mine", "x"]);
    // Nothing new there: nothing to agree to.
    assert_eq!(tool.json(&["import", "git", name])["records"], 0);
    grow(&path, 3, 5);
    tool.run(&["import", "git", name])
        .code(1)
        .says("up to record 3 (revision 4), and 1 revision of something else since")
        .says("--append goes on after record 3");
    let summary = tool.json(&["import", "git", name, "--append"]);
    assert_eq!((&summary["already_there"], &summary["records"]), (&json!(3), &json!(2)));
    assert_eq!(tool.ok(&["get", "file", "-o", "raw"]), "version 4\n");
    // Two repositories in one store, in turn.
    std::fs::create_dir(&second).unwrap();
    std::fs::write(second.join("x"), "x").unwrap();
    assert!(git(&second, &["init", "-q"]) && git(&second, &["add", "."]));
    assert!(git(&second, &["commit", "-qm", "x"]));
    assert_eq!(tool.json(&["import", "git", second_name, "--append"])["records"], 1);
    grow(&path, 5, 6);
    assert_eq!(tool.json(&["import", "git", name, "--append"])["records"], 1);
    assert_eq!(tool.json(&["import", "git", second_name])["records"], 0);
    assert_eq!(tool.json(&["range", "--count-only"])["revision"], 9);
}

#[test]
fn not_a_repository() {
    let tool = Tool::new();
    let path = tool.path("empty");
    std::fs::create_dir(&path).unwrap();
    tool.run(&["import", "git", path.to_str().unwrap()]).code(1);
    assert!(!tool.store().exists());
}

#[test]
fn the_tour_of_a_repository() {
    let tool = Tool::new();
    let path = tool.path("repository");
    if !repository(&path, 12) {
        return;
    }
    let done = tool.run(&["tour", path.to_str().unwrap()]).code(0);
    let said = done.stdout();
    for part in [
        "import git",
        "history file",
        "--at",
        "diff",
        "--if",
        "compact",
        "verify",
        "stats",
        "exit code 7",
        // A note of a command that would be on standard error.
        "annals: no damage in ",
        "Before compacting every revision could be read",
        // 12 versions, of which 8 were asked for.
        "\n... 4 more\n",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Everything is in files before compaction is planned.
    assert!(!said.contains("files_that_go           []\nfiles_in_part           []"), "{said}");
    // A percentage of next to nothing says nothing.
    assert!(!said.contains(" % of that") && !said.contains("incarnation"), "{said}");
    tool.run(&["verify"]).code(0);
    // Once more, there is a store.
    tool.run(&["tour", path.to_str().unwrap()]).code(1).silent().says("there is a store already");
}

#[test]
fn the_tour_of_a_single_commit() {
    let tool = Tool::new();
    let path = tool.path("repository");
    if !repository(&path, 1) {
        return;
    }
    let said = tool.ok(&["tour", path.to_str().unwrap()]);
    assert!(said.contains("It has a single version") && !said.contains(" diff 2 2"), "{said}");
    assert!(said.contains("annals: no damage in "), "{said}");
}

#[test]
fn a_tour_that_cannot_begin() {
    let tool = Tool::new();
    let nowhere = tool.path("nowhere");
    tool.run(&["tour", nowhere.to_str().unwrap()]).code(1).silent().says("nowhere: No such file");
    for format in ["json", "ndjson", "raw"] {
        tool.run(&["tour", "-o", format]).code(2).silent().says("leave -o out");
    }
    assert!(!tool.store().exists());
}

#[test]
fn the_tour_without_git() {
    let tool = Tool::new();
    let mut command = tool.command(&["tour", "/"]);
    let output = command.env("PATH", "").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("a small generated one"), "{said}");
    for part in ["import history", " % of that", " given back."] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
