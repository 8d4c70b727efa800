//! Histories made by scripts, as an import reads them.

use super::*;
use std::collections::BTreeMap;

/// A repository made by a script; `None` where there is no git.
fn repository(script: &[&[&str]]) -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(directory.path()).args(arguments);
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "A U Thor");
            command.env(format!("GIT_{who}_EMAIL"), "a@example.org");
            command.env(format!("GIT_{who}_DATE"), "1700000000 +0000");
        }
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().ok()
    };
    run(&["init", "-q", "-b", "main"])?;
    for step in script {
        match step {
            ["write", path, text] => std::fs::write(directory.path().join(path), text).unwrap(),
            ["link", path, target] => {
                std::os::unix::fs::symlink(target, directory.path().join(path)).unwrap();
            }
            arguments => assert!(run(arguments)?.success(), "git {arguments:?}"),
        }
    }
    Some(directory)
}

fn read(path: &Path, after: Option<&str>) -> (Vec<Record>, Skipped, String) {
    let (repository, head) = open(path, "HEAD").unwrap();
    let mut records = repository.records(&head, after, 1).unwrap();
    let mut all = Vec::new();
    while let Some(record) = records.next().unwrap() {
        all.push(record);
    }
    assert_eq!(records.number - 1, repository.count(&head).unwrap());
    (all, records.skipped(), head)
}

#[test]
fn every_kind_of_change() {
    let Some(directory) = repository(&[
        &["write", "a", "1\n"],
        &["write", "with space\nand newline", ""],
        &["add", "."],
        &["commit", "-qm", "one"],
        &["commit", "-q", "--allow-empty", "-m", "empty"],
        &["link", "l", "a"],
        &["update-index", "--add", "--chmod=+x", "a"],
        &["add", "l"],
        &["commit", "-qm", "mode and link"],
        &[
            "update-index",
            "--add",
            "--cacheinfo",
            "160000,1111111111111111111111111111111111111111,sub",
        ],
        &["commit", "-qm", "submodule only"],
        &["checkout", "-qb", "side"],
        &["write", "s", "side"],
        &["add", "s"],
        &["commit", "-qm", "side"],
        &["checkout", "-q", "main"],
        &["write", "a", "2\n"],
        &["rm", "-q", "l"],
        &["add", "a"],
        &["commit", "-qm", "two"],
        &["merge", "-q", "--no-ff", "-m", "merge", "side"],
    ]) else {
        eprintln!("skipped: no git here");
        return;
    };
    let (records, skipped, _) = read(directory.path(), None);
    assert_eq!(skipped, Skipped { commits: 2, submodules: 1 });
    let numbers: Vec<u64> = records.iter().map(|record| record.number).collect();
    assert_eq!(numbers, [1, 3, 5, 6]);
    let puts = [("a".into(), "1\n".into()), ("with space\nand newline".into(), "".into())];
    assert_eq!(records[0].puts, puts);
    assert_eq!(records[1].puts, [("l".into(), "a".into())]);
    assert_eq!(records[2].puts, [("a".into(), "2\n".into())]);
    assert_eq!(records[2].deletes, ["l"]);
    assert_eq!(records[3].puts, [("s".into(), "side".into())]);
    let metadata = Metadata::parse(&records[3].metadata).unwrap();
    assert_eq!(metadata.subject.as_deref(), Some("merge"));
    assert_eq!(metadata.author_time, Some(1_700_000_000));
    assert_eq!(metadata.author.as_deref(), Some("A U Thor <a@example.org>"));

    let after = Metadata::parse(&records[2].metadata).unwrap().commit.unwrap();
    let (rest, head) = {
        let (repository, head) = open(directory.path(), "HEAD").unwrap();
        let history = repository.first_parents(&head).unwrap();
        assert!(history.contains(&after) && history.contains(&head));
        assert_eq!(history.len(), 6);
        let mut records = repository.records(&head, Some(&after), 6).unwrap();
        let first = records.next().unwrap().unwrap();
        assert!(records.next().unwrap().is_none());
        (first, head)
    };
    assert_eq!(rest.number, 6);
    assert_eq!(rest.name, format!("commit {head}"));
}

#[test]
fn nothing_there() {
    let directory = tempfile::tempdir().unwrap();
    assert!(open(directory.path(), "HEAD").is_err());
    if let Some(empty) = repository(&[]) {
        assert!(open(empty.path(), "HEAD").unwrap_err().contains("no commit HEAD"));
    }
}

/// The repository this is built from, where there is one: the last state is what git says.
#[test]
fn this_repository() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Ok((repository, head)) = open(here, "HEAD") else {
        eprintln!("skipped: not in a repository");
        return;
    };
    let mut state = BTreeMap::new();
    for record in read(here, None).0 {
        state.extend(record.puts);
        for key in record.deletes {
            assert!(state.remove(&key).is_some());
        }
    }
    let listed = repository.ask(&["ls-tree", "-r", "-z", "--name-only", "--full-tree", &head]);
    let listed = listed.unwrap();
    let names: Vec<&[u8]> =
        listed.as_bytes().split(|b| *b == 0).filter(|n| !n.is_empty()).collect();
    assert_eq!(state.keys().map(AsRef::as_ref).collect::<Vec<_>>(), names);
    let readme = repository.ask(&["show", &format!("{head}:Cargo.toml")]).unwrap();
    assert_eq!(state[&b"Cargo.toml"[..]], format!("{readme}\n"));
}
