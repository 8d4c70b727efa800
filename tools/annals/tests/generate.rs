//! `completions` and `man`: what they make names every command, and shells take it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::process::Command;

use common::Tool;

const COMMANDS: [&str; 6] = ["put", "history", "retention", "checkpoint", "completions", "man"];

#[test]
fn every_shell_has_a_script_that_names_the_commands() {
    let tool = Tool::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = tool.ok(&["completions", shell]);
        for command in COMMANDS {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    // The script of bash is run by one, where there is one.
    let script = tool.file("annals.bash", tool.ok(&["completions", "bash"]));
    let line = format!("source {script} && complete -p annals");
    if let Ok(output) = Command::new("bash").args(["-c", &line]).output() {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    tool.run(&["completions", "tcl"]).code(2).says("possible values: bash");
}

#[test]
fn every_command_has_a_page_of_the_manual() {
    let tool = Tool::new();
    let page = tool.ok(&["man"]);
    assert!(page.contains(".TH annals 1") && page.contains("Exit codes"), "{page}");
    let dir = tool.path("man1");
    let made = tool.json(&["man", "--dir", dir.to_str().unwrap()]);
    let pages: Vec<&str> =
        made["pages"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
    for page in ["annals.1", "annals-put.1", "annals-lease.1", "annals-lease-grant.1"] {
        assert!(pages.contains(&page), "{page}: {pages:?}");
        assert!(dir.join(page).metadata().unwrap().len() > 500, "{page}");
    }
    assert!(pages.iter().all(|page| !page.contains("-help")), "{pages:?}");
    let put = std::fs::read_to_string(dir.join("annals-put.1")).unwrap();
    assert!(put.contains("Examples:") && put.contains("Write only if"), "{put}");
    let file = tool.file("a file", "");
    tool.run(&["man", "--dir", &file]).code(1).says("a file");
}

#[test]
fn json_is_a_word_for_the_form_json() {
    let tool = Tool::new();
    tool.ok(&["put", "k", "v"]);
    assert_eq!(tool.ok(&["get", "k", "--json"]), tool.ok(&["get", "k", "-o", "json"]));
    tool.run(&["get", "k", "--json", "-o", "raw"]).code(2);
}
