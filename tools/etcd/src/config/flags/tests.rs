//! Spellings of the command line and the environment.

use std::time::Duration;

use super::{Note, parse_duration, parse_switch, read};

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(ToOwned::to_owned).collect()
}

fn read_ok(line: &str, environment: &[(&str, &str)]) -> (Vec<String>, Vec<Note>) {
    let environment: Vec<_> =
        environment.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    let flags = read(&words(line), &environment).unwrap_or_default();
    (flags.given, flags.notes)
}

#[test]
fn spellings_of_go() {
    for line in ["--name x", "-name x", "--name=x", "-name=x"] {
        assert_eq!(read_ok(line, &[]).0, ["--name=x"], "{line}");
    }
    let line = "-client-cert-auth --auto-tls=false --name -x";
    assert_eq!(read_ok(line, &[]).0, ["--client-cert-auth=true", "--auto-tls=false", "--name=-x"]);
    assert!(read(&words("--name"), &[]).is_err());
}

#[test]
fn flags_without_meaning_and_unknown_ones_are_told() {
    let (flags, notes) =
        read_ok("--heartbeat-interval 100 --pre-vote --frob x --grob --wal-dir=w --name y", &[]);
    assert_eq!(flags, ["--name=y"]);
    let idle = |name: &str| Note::Idle(name.to_owned());
    let unknown = |name: &str| Note::Unknown(name.to_owned());
    let expected = [
        idle("heartbeat-interval"),
        idle("pre-vote"),
        unknown("frob"),
        unknown("grob"),
        idle("wal-dir"),
    ];
    assert_eq!(notes, expected);
}

#[test]
fn flags_come_before_the_environment() {
    let environment = [
        ("ETCD_NAME", "env"),
        ("ETCD_DATA_DIR", "d"),
        ("ETCD_CERT_FILE", ""),
        ("ETCD_SERVICE_HOST", "1"),
        ("ETCD_ELECTION_TIMEOUT", "1"),
        ("HOME", "h"),
    ];
    let (flags, notes) = read_ok("--name line", &environment);
    assert_eq!(flags, ["--name=line", "--data-dir=d"]);
    let expected = [
        Note::Shadowed("ETCD_NAME".to_owned()),
        Note::UnknownVariable("ETCD_SERVICE_HOST".to_owned()),
        Note::Idle("ETCD_ELECTION_TIMEOUT".to_owned()),
    ];
    assert_eq!(notes, expected);
}

#[test]
fn durations_of_go() {
    let good = [
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("300ms", 300),
        ("1.5s", 1500),
        ("0", 0),
        ("0s", 0),
    ];
    for (text, millis) in good {
        assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    for text in ["", "5", "s", "-5s", "5x", "1..2s", "99999999999999999999999999h"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
    assert_eq!((parse_switch("T"), parse_switch("0")), (Ok(true), Ok(false)));
    assert!(parse_switch("yes").is_err());
}
