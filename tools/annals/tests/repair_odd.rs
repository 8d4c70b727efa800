//! Repairs of stores in odd states: with leases of which the records are lost, open for writing; and output that nobody reads
//! to its end.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::process::Stdio;

use annals::{LeaseGrantRequest, PutRequest, Retention, Store};
use common::{Tool, small};

/// A store with keys that have a lease, of which each file is small.
fn leased(tool: &Tool) -> Store {
    let options = small().segment_bytes(4 << 10).event_value_bytes(0);
    let store = options.open(tool.store()).unwrap();
    for id in [7, 8] {
        store.lease_grant_with(LeaseGrantRequest::new(id, 100_000)).unwrap();
    }
    for n in 0..60_u8 {
        let request = PutRequest::new(format!("k{n:02}"), vec![n; 300]);
        store.put_with(request.lease(i64::from(7 + n % 2))).unwrap();
    }
    store.compact(store.revision()).unwrap();
    store.reorganise().unwrap();
    store
}

#[test]
fn a_lease_that_is_lost_but_for_its_keys_is_there() {
    let tool = Tool::new();
    leased(&tool).close().unwrap();
    // The files with the records of leases, every block of them.
    for file in tool.lines(&["segments"]) {
        let first = file["first_key"].to_string();
        if !first.contains("lease") || file["kind"] != "head" {
            continue;
        }
        let path = tool.store().join(file["file"].as_str().unwrap());
        let mut content = std::fs::read(&path).unwrap();
        content[84..].iter_mut().step_by(200).for_each(|byte| *byte ^= 0x55);
        std::fs::write(&path, content).unwrap();
    }
    let other = Tool::new();
    let (told, _) = tool.repaired(&other);
    assert_eq!(told["way"], "rebuild");
    let leases = other.lines(&["lease", "list"]);
    let ids: Vec<_> = leases.iter().map(|lease| lease["lease"].as_i64()).collect();
    assert_eq!(ids, [Some(7), Some(8)]);
    let keys = other.lines(&["range"]);
    assert!(keys.iter().all(|key| ids.contains(&key["lease"].as_i64())), "{keys:?}");
    let rows = told["files"].as_array().unwrap().iter();
    let told: Vec<_> = rows.filter(|row| row["what"] == "lease").collect();
    let made = leases.iter().filter(|lease| lease["ttl"] == annals::LEASE_TTL_MAX).count();
    assert!(!told.is_empty() && told.len() == made, "{told:?} {leases:?}");
    // Its keys go with it, as those of any other.
    other.ok(&["lease", "revoke", "7"]);
    let left = other.lines(&["range"]);
    assert!(left.len() < keys.len() && left.iter().all(|key| key["lease"] == 8), "{left:?}");
    other.ok(&["verify"]);
}

#[test]
fn a_store_that_is_open_for_writing_is_not_repaired() {
    let tool = Tool::new();
    let store = leased(&tool);
    let other = Tool::new();
    let to = other.store();
    let arguments = ["repair", "--to", to.to_str().unwrap()];
    tool.run(&arguments).code(4).says("open for writing elsewhere");
    assert!(!to.exists());
    store.close().unwrap();
    let before = tool.snapshot();
    tool.ok(&arguments);
    assert_eq!(tool.snapshot(), before);
    // Nor does it need a lock where there is none.
    std::fs::remove_file(tool.store().join("LOCK")).unwrap();
    tool.ok(&["repair", "--to", tool.path("again").to_str().unwrap()]);
    assert!(!tool.store().join("LOCK").exists());
}

/// EVENTS still say that keys were put of which the deletion is forgotten everywhere: a rule keeps them. Whatever of them is
/// damaged, no key is there again, and none is gone.
#[test]
fn damage_of_events_brings_nothing_back() {
    let tool = Tool::new();
    let store = small().open(tool.store()).unwrap();
    store.set_retention("", Some(Retention::forever().keep_revisions(20))).unwrap();
    store.set_retention("kept/", Some(Retention::forever().keep_revisions(1000))).unwrap();
    for n in 0..60 {
        store.put(format!("gone/{n:02}"), format!("{n:030}")).unwrap();
        store.put("kept/one", format!("{n:030}")).unwrap();
    }
    for n in 0..60 {
        store.delete(format!("gone/{n:02}")).unwrap();
    }
    for n in 0..60 {
        store.put(format!("other/{}", n % 7), format!("{n:030}")).unwrap();
    }
    store.apply_retention().unwrap();
    store.reorganise().unwrap();
    assert!(store.oldest_readable(..) > 180, "the deletions are forgotten");
    store.close().unwrap();
    let truth = tool.lines(&["range"]);
    assert_eq!(truth.len(), 8);
    let entries = std::fs::read_dir(tool.store().join("seg")).unwrap();
    let mut events: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    events.retain(|path| path.extension().is_some_and(|extension| extension == "events"));
    let mut damages = 0;
    for path in &events {
        let whole = std::fs::read(path).unwrap();
        for at in (100..whole.len()).step_by(400) {
            let mut content = whole.clone();
            content[at] ^= 0x10;
            std::fs::write(path, content).unwrap();
            let other = Tool::new();
            let (told, _) = tool.repaired(&other);
            assert_eq!(told["lost_keys"], serde_json::json!([]), "{path:?} {at}");
            assert_eq!(other.lines(&["range"]), truth, "{path:?} {at}");
            // What the rule kept before that is not there, and a line says so.
            let late = |row: &serde_json::Value| {
                let lost = row["lost"].as_str().unwrap_or_default();
                lost.contains("before revision") || lost.contains("the past is given up")
            };
            let rows = told["files"].as_array().unwrap();
            assert!(told["way"] != "rebuild" || rows.iter().any(late), "{told}");
            damages += 1;
        }
        std::fs::write(path, whole).unwrap();
    }
    println!("{damages} damages of {} files", events.len());
    assert!(damages > 5);
}

#[test]
fn a_backup_that_nobody_reads_to_its_end_has_failed() {
    let tool = Tool::new();
    leased(&tool).close().unwrap();
    for arguments in [&["backup", "-"][..], &["export"], &["export", "--base"]] {
        let mut command = tool.command(arguments);
        let done = command.stdout(unread()).spawn().unwrap().wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{arguments:?} {said}");
        assert!(said.contains("standard output: "), "{arguments:?} {said}");
    }
    // What is looked at may be left.
    let mut child = tool.command(&["range"]).stdout(unread()).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// A pipe that nobody reads from any more.
fn unread() -> Stdio {
    let (_, writer) = std::io::pipe().unwrap();
    writer.into()
}

/// Where `CURRENT` is damaged, whatever may be a manifest is looked into.
#[test]
fn a_pipe_in_the_place_of_the_manifest_does_not_hold_a_repair_up() {
    let tool = Tool::new();
    tool.ok(&["put", "/a", "1"]);
    let manifest = tool.json(&["inspect", "CURRENT"])["manifest"].as_str().unwrap().to_owned();
    let manifest = tool.store().join(manifest);
    std::fs::write(tool.store().join("CURRENT"), [0; 300]).unwrap();
    std::fs::remove_file(&manifest).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&manifest).status();
    if !made.is_ok_and(|made| made.success()) {
        return println!("skipped: no pipe can be made here");
    }
    let saved = Tool::new();
    let to = saved.store();
    let mut repair = tool.command(&["repair", "--to", to.to_str().unwrap()]).spawn().unwrap();
    let mut polls = 0;
    while repair.try_wait().unwrap().is_none() {
        polls += 1;
        if polls > 600 {
            repair.kill().unwrap();
            panic!("it waits for the pipe");
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(saved.json(&["get", "/a"])["value"], "1");
}

/// What the user may not read is not lost: whoever may reads it.
#[cfg(unix)]
#[test]
fn what_may_not_be_read_is_not_taken_for_damaged() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;

    let tool = Tool::new();
    leased(&tool).close().unwrap();
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let entries = |name: &str| {
        let entries = std::fs::read_dir(tool.store().join(name)).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    // Others may read all of it, and make something beside it.
    mode(&tool.path(""), 0o777);
    for directory in ["", "wal", "seg"] {
        mode(&tool.store().join(directory), 0o755);
        entries(directory).iter().filter(|path| path.is_file()).for_each(|path| mode(path, 0o644));
    }
    let one_of = |name: &str| entries(name).into_iter().min().unwrap();
    let manifest = entries("").into_iter().find(|path| path.to_string_lossy().contains("MANIFEST"));
    let to = tool.path("to");
    for path in [one_of("wal"), one_of("seg"), tool.store().join("wal"), manifest.unwrap()] {
        let before = std::fs::metadata(&path).unwrap().permissions();
        mode(&path, 0);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_annals"));
        command.arg("-C").arg(tool.store()).args(["repair", "--to"]).arg(&to);
        // Nothing is forbidden to root.
        if std::fs::read_dir(&path).is_ok() || std::fs::read(&path).is_ok() {
            command.uid(65534).gid(65534);
        }
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => return eprintln!("skipped: others may not run the tool: {error}"),
        };
        let said = String::from_utf8(output.stderr).unwrap();
        std::fs::set_permissions(&path, before).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(path.to_str().unwrap()), "{said}");
        assert!(said.contains("ermission denied") && said.contains("may read"), "{said}");
        assert!(!to.exists(), "{said}");
    }
    tool.ok(&["repair", "--to", to.to_str().unwrap()]);
}

/// What compactions and rules would forget is what a repair may need.
#[test]
fn a_store_with_damaged_newest_versions_forgets_nothing() {
    let tool = Tool::new();
    let store = leased(&tool);
    store.put("k07", "another").unwrap();
    store.set_retention("", Some(Retention::forever().keep_revisions(1))).unwrap();
    store.close().unwrap();
    let files = tool.lines(&["segments"]);
    let damaged = |kind: &str| {
        let of_kind = files.iter().rfind(|file| file["kind"] == kind).unwrap();
        let path = tool.store().join(of_kind["file"].as_str().unwrap());
        let whole = std::fs::read(&path).unwrap();
        let mut content = whole.clone();
        content[whole.len() / 2] ^= 0x10;
        std::fs::write(&path, content).unwrap();
        (path, whole)
    };
    let (path, whole) = damaged("head");
    let before = tool.snapshot();
    for line in
        [&["compact", "--at", "latest", "--confirm"][..], &["retention", "apply"], &["reorganise"]]
    {
        let done = tool.run(line).code(3).says("nothing was changed");
        done.says(path.to_str().unwrap()).says("annals repair");
        assert_eq!(tool.snapshot(), before);
    }
    std::fs::write(&path, whole).unwrap();
    // Damage of the past may be forgotten with it.
    damaged("events");
    tool.run(&["verify"]).code(3);
    tool.ok(&["compact", "--at", "latest", "--confirm"]);
}
