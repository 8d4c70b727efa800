//! Every command's `--help` has examples, and they do what they say. They are run as they stand, in the order
//! in which they stand, by a shell in a directory that has what they name: a fresh one for each command.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
#[path = "common/schema.rs"]
mod schema;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::Tool;

/// An example that does not say otherwise ends with this.
const DONE: i32 = 0;

/// A line of an `Examples:` section.
#[derive(Debug)]
struct Example {
    command: String,
    line: String,
}

impl Example {
    /// The exit code that its comment tells.
    fn code(&self) -> i32 {
        let Some((_, said)) = self.line.rsplit_once("# exits ") else { return DONE };
        let digits = said.split(|c: char| !c.is_ascii_digit()).next().unwrap();
        digits.parse().unwrap()
    }
}

impl Example {
    /// The line with `--json`, where its command then writes one document, or several.
    fn as_json(&self) -> Option<String> {
        let line = self.line.split('#').next().unwrap().trim_end();
        let other = [
            "|",
            ">",
            "&&",
            "$(",
            " -o ",
            "--json",
            "--follow",
            "completions",
            " top ",
            "annals tour",
            "annals schema ",
        ];
        let is_plain = line.starts_with("annals ") && !other.iter().any(|part| line.contains(part));
        is_plain.then(|| format!("{line} --json"))
    }
}

/// Runs a line in a directory, as a user would type it.
fn shell(directory: &Path, line: &str) -> Output {
    let binary = Path::new(env!("CARGO_BIN_EXE_annals")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(binary.to_path_buf()).chain(std::env::split_paths(&path));
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).current_dir(directory).stdin(Stdio::null());
    command.env("PATH", std::env::join_paths(paths).unwrap()).env_remove("COLUMNS");
    command.output().unwrap()
}

/// All commands with their `--help`, groups among them: clap's tree, as the tool shows it.
fn commands() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut paths = vec!["annals".to_owned()];
    while let Some(path) = paths.pop() {
        let help = shell(Path::new("."), &format!("{path} --help"));
        assert!(help.status.success(), "{path} --help");
        let help = String::from_utf8(help.stdout).unwrap();
        let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in list.take_while(|line| !line.is_empty()) {
            let name = line.strip_prefix("  ").filter(|name| !name.starts_with(' '));
            let name = name.and_then(|name| name.split_whitespace().next());
            if let Some(name) = name.filter(|name| *name != "help") {
                paths.push(format!("{path} {name}"));
            }
        }
        found.push((path, help));
    }
    found.sort();
    found
}

/// The examples of a command.
fn examples(command: &str, help: &str) -> Vec<Example> {
    let section = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    let lines = section.take_while(|line| !line.is_empty());
    lines
        .map(|line| {
            let example = line.strip_prefix("  $ ");
            let line =
                example.unwrap_or_else(|| panic!("{command}: no example, or wrapped: {line}"));
            Example { command: command.to_owned(), line: line.to_owned() }
        })
        .collect()
}

/// A directory with what the examples name.
fn prepare(tool: &Tool) {
    let put = |key: &str, value: &str| drop(tool.ok(&["put", key, value, "--metadata", "by ada"]));
    put("/flags/dark", "off");
    put("/pods/a", "pending");
    put("/flags/dark", "on");
    put("/pods/a", "running");
    put("/pods/b", "pending");
    put("/config/app", r#"{"image": "app:1", "replicas": 2}"#);
    put("/config/app", r#"{"image": "app:2", "replicas": 2}"#);
    tool.ok(&["lease", "grant", "60", "--id", "7"]);
    tool.ok(&["put", "/session/ada", "here", "--lease", "7"]);
    tool.file("config.json", r#"{"replicas": 1}"#);
    tool.file("move.txn", "create(\"/leader\") = \"0\"\n\nput /leader ada\n\nget /leader\n\n");
    tool.file("history.jsonl", common::history(20, 4, 10));
    let snapshot = "../../tests/recorded/etcd-compacted.db";
    let snapshot = Path::new(env!("CARGO_MANIFEST_DIR")).join(snapshot);
    std::fs::copy(snapshot, tool.path("snapshot.db")).unwrap();
    #[cfg(feature = "kine")]
    {
        let table = rusqlite::Connection::open(tool.path("state.db")).unwrap();
        let rows = "CREATE TABLE kine (id INTEGER PRIMARY KEY, name INTEGER, created INTEGER, deleted INTEGER,
            create_revision INTEGER, prev_revision INTEGER, lease INTEGER, value BLOB, old_value BLOB);
            INSERT INTO kine VALUES (2, '/a', 1, 0, 0, 0, 30, 'one', NULL)";
        table.execute_batch(rows).unwrap();
    }
    std::fs::create_dir(tool.path("backups")).unwrap();
    let repository = "git init -q repo && cd repo && echo one > README && git add README && \
        git -c user.name=ada -c user.email=ada@example.com commit -qm first";
    assert!(shell(tool.path("").as_path(), repository).status.success(), "git is needed");
}

/// Copies a directory.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to: PathBuf = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// The examples of one command run, one after the other; what is wrong with them.
fn play(prepared: &Path, examples: &[Example]) -> Vec<String> {
    let place = tempfile::tempdir().unwrap();
    copy(prepared, place.path());
    let mut wrong = Vec::new();
    for example in examples {
        let output = shell(place.path(), &example.line);
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(example.code()) || said.contains("panicked") {
            let Example { command, line } = example;
            wrong.push(format!("{command}: {line}\n    {:?} {said}", output.status.code()));
        }
    }
    wrong
}

#[test]
fn every_command_has_examples_and_they_do_what_they_say() {
    let tool = Tool::new();
    prepare(&tool);
    let commands = commands();
    assert!(commands.len() > 30, "{commands:?}");
    let mut wrong = Vec::new();
    for (command, help) in &commands {
        let examples = examples(command, help);
        if examples.is_empty() {
            wrong.push(format!("{command}: no examples"));
        }
        let own = |example: &Example| example.line.contains("annals ");
        assert!(examples.iter().any(own), "{command}: {examples:?}");
        wrong.extend(play(&tool.path(""), &examples));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_the_examples_write_as_json_is_as_the_schemas_say() {
    let tool = Tool::new();
    prepare(&tool);
    let schemas = schema::all();
    let mut seen = std::collections::BTreeSet::new();
    let mut wrong = Vec::new();
    for (command, help) in &commands() {
        let place = tempfile::tempdir().unwrap();
        copy(&tool.path(""), place.path());
        for example in examples(command, help) {
            let line = example.as_json().unwrap_or_else(|| example.line.clone());
            let output = shell(place.path(), &line);
            if !line.ends_with(" --json") {
                continue;
            }
            let documents = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
            for document in documents {
                let document: serde_json::Value =
                    document.unwrap_or_else(|error| panic!("{line}: {error}"));
                let name =
                    document["schema"].as_str().unwrap_or_else(|| panic!("{line}: no schema"));
                let Some(found) = schemas.get(name) else {
                    wrong.push(format!("{line}: there is no schema {name}"));
                    continue;
                };
                wrong.extend(
                    schema::check(found, &document).into_iter().map(|why| format!("{line}: {why}")),
                );
                seen.insert(name.to_owned());
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unseen: Vec<&String> = schemas.keys().filter(|name| !seen.contains(*name)).collect();
    // It writes one document a picture, without end: a test of its own looks at one.
    assert_eq!(unseen, ["annals.top/1"]);
    // Each command that has a schema shows it.
    let listed = tool.json(&["schema"]);
    assert_eq!(listed["commands"].as_array().unwrap().len(), schemas.len());
    for command in listed["commands"].as_array().unwrap() {
        let words: Vec<&str> = command.as_str().unwrap().split(' ').collect();
        let shown = tool.ok(&[&["schema"], &words[..]].concat());
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert!(schemas.contains_key(shown["$id"].as_str().unwrap()));
    }
    tool.run(&["schema", "nothing"]).code(5).says("`annals schema` lists them");
}
