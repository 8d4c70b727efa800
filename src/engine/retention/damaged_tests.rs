//! Records of rules that say nothing, or say what cannot be: the check finds them, and opening names
//! where they are.

use std::path::Path;

use annals_format::FileKind;
use annals_format::name::FileName;
use annals_format::retention::Rule;

use crate::engine::tests::{DIR, commit, memory, open, put, system, tiny, user};
use crate::engine::{CheckReport, Engine, check};
use crate::error::ErrorKind;
use crate::options::Options;
use crate::sync::plain::lock;

fn store(options: &Options, value: &[u8]) -> Engine {
    let engine = open(options).unwrap();
    commit(&engine, vec![put(user("p/a"), "1"), put(user("q"), "1")]).unwrap();
    commit(&engine, vec![put(system("Rp/"), value)]).unwrap();
    engine
}

fn checked(options: &Options) -> CheckReport {
    check(DIR, options, &mut |_, _| ()).unwrap()
}

fn above() -> Vec<u8> {
    Rule { floor: 3, ..Rule::default() }.encode()
}

#[test]
fn the_check_finds_a_rule_that_cannot_be_and_names_the_file() {
    let undecodable = [&Rule::default().encode()[..], b"and more"].concat();
    for (value, what) in [(undecodable, "retention value"), (above(), "retention value: floor")] {
        let (_, vfs) = memory();
        let options = tiny(&vfs);
        let engine = store(&options, &value);
        // First in L0, then in HEAD.
        engine.0.door.0.chain.freeze();
        assert!(engine.run_background().unwrap());
        for fold in [false, true] {
            if fold {
                engine.reorganise().unwrap();
            }
            let files = engine.0.door.0.shared.tables().files;
            assert_eq!(files.l0.is_empty(), fold);
            let found = files.l0.iter().chain(&files.head).map(|file| file.open().unwrap().path());
            let found: Vec<_> = found.collect();
            let report = checked(&options);
            let damage = report.damage.iter().find(|damage| found.contains(&&*damage.file));
            let damage = damage.unwrap_or_else(|| panic!("{report:?}"));
            assert!(damage.structure.starts_with(what), "{damage:?}");
        }
    }
}

#[test]
fn a_rule_that_is_as_it_must_be_is_no_damage() {
    let (_, vfs) = memory();
    let options = tiny(&vfs);
    let engine = store(&options, &Rule { floor: 2, ..Rule::default() }.encode());
    assert!(checked(&options).damage.is_empty());
    engine.reorganise().unwrap();
    assert!(checked(&options).damage.is_empty());
    engine.set_rule(b"p/", None).unwrap();
    engine.reorganise().unwrap();
    assert!(checked(&options).damage.is_empty());
}

/// Where opening finds the damage, and where the check does.
fn named(options: &Options) -> (String, String) {
    let name = |file: &Path| file.strip_prefix(DIR).unwrap().to_str().unwrap().to_owned();
    let report = checked(options);
    let [damage] = &report.damage[..] else { panic!("{report:?}") };
    let error = open(options).unwrap_err();
    let ErrorKind::Corrupt(found) = error.kind() else { panic!("{error}") };
    assert!(found.structure.starts_with("retention value: floor"), "{error}");
    (name(&found.file), name(&damage.file))
}

#[test]
fn opening_names_the_file_of_a_rule_that_cannot_be() {
    let (_, vfs) = memory();
    let options = tiny(&vfs);
    let engine = store(&options, &above());
    engine.close().unwrap();
    let (opening, checking) = named(&options);
    let last = lock(&engine.0.door.0.state).manifest.wal.last().map(|file| file.number);
    assert_eq!(opening, FileName::new(FileKind::Wal, last.unwrap()).to_string());
    assert_eq!(checking, opening);

    let (_, vfs) = memory();
    let options = tiny(&vfs);
    let engine = store(&options, &above());
    engine.reorganise().unwrap();
    let head = engine.0.door.0.shared.tables().files.head[0].open().unwrap().path().to_owned();
    engine.close().unwrap();
    let (opening, checking) = named(&options);
    assert!(head.ends_with(&opening) && checking == opening, "{opening} {checking}");
}
