//! K6: two processes, a fork, permissions, and what else can lie where a store should be.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use annals::vfs::{OsVfs, Vfs as _};
use annals::{ErrorKind, Options, ReadMode, Store, check};

use crate::process::{Ended, Running, command};
use crate::session::{self, directory, say};
use crate::support::watchdog::Watchdog;
use crate::sys;

fn options() -> Options {
    session::options(ReadMode::Mmap).background(false)
}

/// A closed store with files of every kind.
fn filled(path: &Path) {
    let store = options().open(path).unwrap();
    for round in 0..3 {
        for key in 0..40 {
            store.put(format!("key/{key}"), vec![b'a' + round; 300]).unwrap();
        }
        store.reorganise().unwrap();
    }
    // The last one is in the log alone.
    store.put("last", "1").unwrap();
    store.close().unwrap();
}

/// Reads all there is.
fn read(store: &Store) -> annals::Result<usize> {
    store.log(..).with_values().try_for_each(|item| item.map(drop))?;
    let mut count = 0;
    for item in store.latest()?.range(..) {
        store.history(item?.key).try_for_each(|version| version.map(drop))?;
        count += 1;
    }
    Ok(count)
}

/// Why nothing there can be checked.
fn not_checked(path: &Path) -> annals::Error {
    match check(path, &options(), &mut |_, _| ()) {
        Err(error) => error,
        Ok(mut report) => {
            assert!(report.damage.is_empty(), "{report:?}");
            report.unchecked.pop().expect("it says why")
        }
    }
}

/// Every file and directory below, the directory itself too.
fn all_below(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            found.extend(all_below(&entry.unwrap().path()));
        }
    }
    found
}

/// Copies a directory, and what is below.
pub fn copy_all(from: &Path, to: &Path) {
    for file in all_below(from) {
        let copy = to.join(file.strip_prefix(from).unwrap());
        if file.is_dir() {
            fs::create_dir(&copy).unwrap();
        } else {
            fs::copy(&file, &copy).unwrap();
        }
    }
}

fn set_modes(path: &Path, dir: u32, file: u32) {
    for path in all_below(path) {
        let mode = if path.is_dir() { dir } else { file };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// A child in a role, which must end well and say so.
fn child(role: &str, directory: &Path) {
    let ended = Running::start(command(role, directory)).end(Duration::from_secs(60));
    let ended = ended.unwrap_or_else(|| panic!("{role} hangs"));
    ended.is_orderly(&[]).unwrap_or_else(|why| panic!("{role}: {why}"));
    assert!(ended.heard.ended, "{role}: {ended:?}");
    for line in ended.heard.others.iter().filter(|line| line.starts_with("SKIPPED")) {
        println!("{role}: {line}");
    }
}

#[test]
fn a_second_process_is_refused_until_the_first_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    for _ in 0..3 {
        let mut running = Running::start(command("session", &path));
        assert!(running.hears("A ", 5));
        let error = options().open(&path).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Locked { .. }), "{error}");
        let reader = Store::open_read_only(&path).unwrap();
        assert!(reader.revision() >= 6 && read(&reader).is_ok());
        let report = check(&path, &options(), &mut |_, _| ()).unwrap();
        assert!(report.damage.is_empty() && report.unchecked.is_empty(), "{report:?}");
        let Ended { heard, .. } = running.kill();
        let store = options().open(&path).unwrap();
        assert!(store.revision() >= heard.acknowledged.last().unwrap().0);
        // Now the other way round.
        let other = Running::start(command("session", &path)).end(Duration::from_secs(60)).unwrap();
        assert!(other.heard.errors[0].contains("open for writing elsewhere"), "{other:?}");
        store.close().unwrap();
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn a_fork_cannot_write_and_takes_nothing_from_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    child("fork", &dir.path().join("store"));
}

pub fn fork() {
    let store = options().open(directory()).unwrap();
    store.put("a", "1").unwrap();
    let inherited = store.clone();
    let of_child = sys::in_fork(move || {
        let refused = inherited.put("b", "of the child").is_err();
        let reads = inherited.get("a").is_ok_and(|kv| kv.is_some());
        let closes = inherited.close().is_err();
        u8::from(refused) | u8::from(reads) << 1 | u8::from(closes) << 2
    });
    // It may not write, nor close as if it had written; reading does no harm.
    assert_eq!(of_child.unwrap(), 7);
    store.put("c", "of the parent").unwrap();
    let locked = Running::start(command("session", &directory())).end(Duration::from_secs(60));
    assert!(locked.unwrap().heard.errors[0].contains("elsewhere"), "the lock is the parent's");
    store.close().unwrap();
    let store = options().open(directory()).unwrap();
    assert!(store.get("b").unwrap().is_none() && store.revision() == 3);
    assert!(store.get("c").unwrap().is_some());
    store.close().unwrap();
    say("END");
}

#[test]
fn files_are_for_their_owner_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    child("umask", &dir.path().join("store"));
}

pub fn umask() {
    sys::open_umask();
    let path = directory();
    let store = options().background(true).live_interval_seconds(1).open(&path).unwrap();
    for key in 0..200 {
        store.put(format!("key/{key}"), vec![0; 500]).unwrap();
    }
    store.reorganise().unwrap();
    store.checkpoint(path.with_extension("copy")).unwrap();
    for _ in 0..300 {
        if path.join("live.json").exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let wanted = |path: &Path| {
        let found = all_below(path);
        for path in &found {
            let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
            let wanted = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode, wanted, "{} has mode {mode:o}", path.display());
        }
        found
    };
    let found = wanted(&path);
    assert!(found.iter().any(|path| path.ends_with("live.json")), "{found:?}");
    wanted(&path.with_extension("copy"));
    store.close().unwrap();
    wanted(&path);
    say("END");
}

#[test]
fn permissions_are_respected_and_missing_ones_are_told() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    child("modes", &dir.path().join("store"));
    child("nowhere", &dir.path().join("other"));
}

/// Becomes somebody for whom permissions count, but who can look into `path`; else it ends well.
fn is_nobody_at(path: &Path) -> bool {
    let can = sys::be_nobody().and_then(|()| fs::read_dir(path).map(drop));
    if let Err(why) = &can {
        say(&format!("SKIPPED {why}"));
        say("END");
    }
    can.is_ok()
}

/// As somebody for whom permissions count.
pub fn modes() {
    let path = directory();
    if !is_nobody_at(path.parent().unwrap()) {
        return;
    }
    filled(&path);
    // A directory that everybody may write to is no matter of ours.
    set_modes(&path, 0o777, 0o666);
    let store = options().open(&path).unwrap();
    assert_eq!(read(&store).unwrap(), 41);
    store.close().unwrap();
    assert!(check(&path, &options(), &mut |_, _| ()).unwrap().damage.is_empty());
    // Nothing may be written: reading works.
    set_modes(&path, 0o555, 0o444);
    let error = options().open(&path).unwrap_err();
    let ErrorKind::Io { path: at, source, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(source.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
    assert!(at.starts_with(&path), "{error}");
    let reader = Store::open_read_only(&path).unwrap();
    assert_eq!(read(&reader).unwrap(), 41);
    let report = check(&path, &options(), &mut |_, _| ()).unwrap();
    assert!(report.damage.is_empty() && report.unchecked.is_empty(), "{report:?}");
    drop(reader);
    // The directories alone: what is there may be written, nothing new made.
    set_modes(&path, 0o555, 0o600);
    assert!(options().open(&path).is_err());
    // Nothing may be read: no damage is told.
    set_modes(&path, 0o700, 0o000);
    let error = Store::open_read_only(&path).unwrap_err();
    assert!(error.corruption().is_none(), "{error}");
    let report = check(&path, &options(), &mut |_, _| ()).unwrap();
    assert!(report.damage.is_empty() && !report.unchecked.is_empty(), "{report:?}");
    let error = options().open(&path).unwrap_err();
    assert!(error.corruption().is_none(), "{error}");
    // Nor looked into.
    set_modes(&path, 0o700, 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    for error in [
        options().open(&path).unwrap_err(),
        options().create(false).open(&path).unwrap_err(),
        Store::open_read_only(&path).unwrap_err(),
    ] {
        assert!(error.to_string().contains("ermission denied"), "{error}");
    }
    // All as it was.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    let store = options().open(&path).unwrap();
    assert_eq!(read(&store).unwrap(), 41);
    store.close().unwrap();
    say("END");
}

/// In a working directory that may not be looked into, a relative path leads nowhere.
pub fn nowhere() {
    let path = directory();
    fs::create_dir(&path).unwrap();
    std::env::set_current_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if !is_nobody_at(Path::new("/")) {
        return;
    }
    for path in ["data", "data/deep", "."] {
        // Its parents do not end: that of `.` is `.`.
        let error = OsVfs::new().create_dir_all(Path::new(path)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{path}: {error}");
        for error in [
            options().open(path).unwrap_err(),
            Store::open_read_only(path).unwrap_err(),
            not_checked(Path::new(path)),
        ] {
            assert!(error.to_string().contains("ermission denied"), "{path}: {error}");
        }
    }
    say("END");
}

/// Puts something else in the place of each file, one after another: it is refused at once, by whoever
/// needs the file, nothing is written through it, and with the file back all is well.
fn in_the_place_of_each_file(what: &str, replace: impl Fn(&Path, &Path) -> bool) {
    let dir = tempfile::tempdir().unwrap();
    let (path, away) = (dir.path().join("store"), dir.path().join("away"));
    filled(&path);
    let watchdog = Watchdog::new(Duration::from_secs(30));
    let files = all_below(&path).into_iter().filter(|path| path.is_file());
    let files: Vec<_> = files.map(|file| (fs::read(&file).unwrap(), file)).collect();
    let mut refused = 0;
    for (bytes, file) in &files {
        let case = format!("{what} in the place of {}", file.display());
        watchdog.begin(&case);
        fs::rename(file, &away).unwrap();
        if !replace(file, &away) {
            return println!("{what}: skipped, it cannot be made here");
        }
        let is_lock = file.ends_with("LOCK");
        let opened = options().open(&path);
        let with_reader = Store::open_read_only(&path).and_then(|store| read(&store));
        // Of the manifest there is a copy: who reads goes on by that, who writes makes it again or is refused.
        let has_copy =
            file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("MANIFEST"));
        if !is_lock {
            if has_copy {
                assert_eq!(with_reader.expect(&case), 41, "{case}");
            } else {
                assert!(!with_reader.expect_err(&case).to_string().is_empty());
            }
            let report = check(&path, &options(), &mut |_, _| ());
            let sound = report.is_ok_and(|r| r.damage.is_empty() && r.unchecked.is_empty());
            assert!(!sound || has_copy, "{case}");
        }
        // A file that is read later only is refused when it is read.
        let error = opened.and_then(|store| {
            read(&store)?;
            store.close()
        });
        if !has_copy {
            error.expect_err(&case);
            refused += 1;
        }
        if away.exists() {
            assert_eq!(&fs::read(&away).unwrap(), bytes, "{case}: it was written to");
        }
        let _ = fs::remove_file(file).or_else(|_| fs::remove_dir(file));
        // A writer that got as far has left other files of its own.
        fs::remove_dir_all(&path).unwrap();
        for dir in ["", "wal", "seg"] {
            fs::create_dir(path.join(dir)).unwrap();
        }
        for (bytes, file) in &files {
            fs::write(file, bytes).unwrap();
        }
        let _ = fs::remove_file(&away);
    }
    let store = options().open(&path).unwrap();
    assert_eq!(read(&store).unwrap(), 41);
    store.close().unwrap();
    println!("{what}: refused in {refused} places");
}

#[test]
fn links_pipes_devices_and_directories_are_refused_at_once() {
    in_the_place_of_each_file("a link", |file, away| symlink(away, file).is_ok());
    in_the_place_of_each_file("a link to nothing", |file, _| {
        symlink("/nowhere/at/all", file).is_ok()
    });
    in_the_place_of_each_file("a link to itself", |file, _| symlink(file, file).is_ok());
    in_the_place_of_each_file("a directory", |file, _| fs::create_dir(file).is_ok());
    let made = |command: &mut Command| command.output().is_ok_and(|out| out.status.success());
    in_the_place_of_each_file("a pipe", |file, _| made(Command::new("mkfifo").arg(file)));
    in_the_place_of_each_file("a socket", |file, _| {
        std::os::unix::net::UnixListener::bind(file).is_ok()
    });
    for (what, minor) in [("a device that is full of zeros", "5"), ("one that takes all", "3")] {
        in_the_place_of_each_file(what, |file, _| {
            made(Command::new("mknod").arg(file).args(["c", "1", minor]))
        });
    }
}

#[test]
fn names_of_all_kinds() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        &b"\xff\xfe not text"[..],
        b"new\nline",
        &[b'n'; 255],
        b" ",
        b"-rf",
        "\u{1f4d6}".as_bytes(),
    ] {
        let path = dir.path().join(OsStr::from_bytes(name));
        filled(&path);
        let store = options().open(&path).unwrap();
        assert_eq!(read(&store).unwrap(), 41);
        store.checkpoint(dir.path().join("copy")).unwrap();
        // What is not ours stays there, whatever its name.
        store.close().unwrap();
        let foreign = path.join("seg").join(OsStr::from_bytes(b"\xff.seg"));
        fs::write(&foreign, "kept").unwrap();
        options().open(&path).unwrap().close().unwrap();
        assert_eq!(fs::read(&foreign).unwrap(), b"kept");
        assert_eq!(read(&Store::open_read_only(&path).unwrap()).unwrap(), 41);
        fs::remove_dir_all(dir.path().join("copy")).unwrap();
    }
    let deep = "d/".repeat(2_100);
    for name in [&b"with\0nul"[..], &[b'n'; 256], deep.as_bytes()] {
        let path = dir.path().join(OsStr::from_bytes(name));
        for error in [
            options().open(&path).unwrap_err(),
            Store::open_read_only(&path).unwrap_err(),
            not_checked(&path),
        ] {
            assert!(!matches!(error.kind(), ErrorKind::Corrupt(_)), "{error}");
        }
    }
}
