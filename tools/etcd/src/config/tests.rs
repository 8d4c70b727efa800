//! Command lines, and what they are taken to mean.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use clap::CommandFactory as _;

use super::flags::{self, SWITCHES, VALUES};
use super::{AutoCompaction, Config, DEFAULT_QUOTA_BYTES, Refusal};

fn read(line: &str) -> Result<Config, String> {
    let words: Vec<_> = line.split_whitespace().map(ToOwned::to_owned).collect();
    Config::read(&words, &[]).map_err(|refusal| refusal.to_string())
}

#[test]
fn defaults_are_those_of_etcd() {
    let config = read("").unwrap();
    assert_eq!(
        (config.name.as_str(), config.data_dir.to_str().unwrap()),
        ("default", "default.etcd")
    );
    assert_eq!((config.max_txn_ops, config.max_request_bytes), (128, 1_572_864));
    assert_eq!((config.quota_backend_bytes, config.auth_token_ttl), (DEFAULT_QUOTA_BYTES, 300));
    assert_eq!(config.grpc_keepalive_interval, Duration::from_secs(7200));
    assert_eq!(config.watch_progress_notify_interval, Duration::from_secs(600));
    assert_eq!(config.advertised(), ["http://localhost:2379"]);
    assert!(config.enable_grpc_gateway && !config.client_cert_auth);
    assert_eq!(config.auto_compaction(), Ok(AutoCompaction::Off));
}

#[test]
fn a_misspelt_flag_does_not_start_a_server_without_what_it_was_to_do() {
    for (line, known) in [
        ("--data-dri x", "--data-dir"),
        ("--auto-tsl", "--auto-tls"),
        ("--client-cert-aut=true", "--client-cert-auth"),
        ("-nam x", "--name"),
    ] {
        let refused = read(line).unwrap_err();
        assert!(refused.contains(known), "{line}: {refused}");
    }
    let variable = ("ETCD_CLIENT_CERTAUTH".to_owned(), "true".to_owned());
    let refused = Config::read(&[], &[variable]).unwrap_err().to_string();
    assert!(refused.contains("did you mean --client-cert-auth?"), "{refused}");
    // Of other flags, which newer etcds may have, it warns.
    for line in ["--corruption-alarm 5", "--raft-pipeline", "--max-learner 3"] {
        assert_eq!(read(line).unwrap().warnings().len(), 1, "{line}");
    }
    let variable = ("ETCD_PORT".to_owned(), "tcp://10.0.0.1:2379".to_owned());
    assert_eq!(Config::read(&[], &[variable]).unwrap().warnings().len(), 1);
}

#[test]
fn clients_are_told_where_it_listens_unless_something_else_is_said() {
    let told = |line: &str| read(line).unwrap().advertised();
    assert_eq!(
        told("--listen-client-urls http://127.0.0.1:1,http://localhost:3"),
        ["http://127.0.0.1:1", "http://localhost:3",]
    );
    let both = "--listen-client-urls http://127.0.0.1:1 --advertise-client-urls http://there:2";
    assert_eq!(told(both), ["http://there:2"]);
}

#[test]
fn the_line_of_a_cluster_of_one_is_taken_as_it_is() {
    let config = read(
        "-name m1 --data-dir /tmp/x --listen-client-urls http://127.0.0.1:1,unix://s --advertise-client-urls \
         http://127.0.0.1:1 --listen-peer-urls http://127.0.0.1:2 --initial-advertise-peer-urls http://127.0.0.1:2 \
         --initial-cluster m1=http://127.0.0.1:2 --initial-cluster-token t --initial-cluster-state new \
         --snapshot-count 10000 --logger zap --log-outputs stderr --heartbeat-interval 100 --election-timeout 1000 \
         --experimental-watch-progress-notify-interval 5s --quota-backend-bytes -1 --enable-pprof --name m2",
    )
    .unwrap();
    assert_eq!((config.name.as_str(), config.quota_backend_bytes), ("m2", -1));
    assert_eq!(config.listen_client().unwrap().len(), 2);
    assert_eq!(config.peers(), ["http://127.0.0.1:2"]);
    assert_eq!(config.watch_progress_notify_interval, Duration::from_secs(5));
    let told: Vec<_> = config.warnings().into_iter().map(|(_, flag)| flag).collect();
    let expected = [
        "listen-peer-urls",
        "initial-cluster",
        "initial-cluster-token",
        "initial-cluster-state",
        "snapshot-count",
        "logger",
        "heartbeat-interval",
        "election-timeout",
        "enable-pprof",
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_line_that_names_other_members_is_refused() {
    for line in [
        "--initial-cluster a=http://127.0.0.1:1,b=http://127.0.0.1:2",
        "--initial-cluster=a=http://127.0.0.1:1,b=http://127.0.0.1:2 --name a",
        "--discovery http://127.0.0.1:3",
        "--discovery-srv example.com",
        "--discovery-endpoints=http://127.0.0.1:3",
    ] {
        let text = read(line).unwrap_err();
        assert!(text.contains("other members") && text.contains("--users-from"), "{line}: {text}");
    }
    let environment = [("ETCD_INITIAL_CLUSTER".to_owned(), "a=http://h:1,b=http://h:2".to_owned())];
    let text = Config::read(&[], &environment).unwrap_err().to_string();
    assert!(text.contains("'ETCD_INITIAL_CLUSTER' names other members"), "{text}");
    let line = ["--initial-cluster=a=http://h:1".to_owned()];
    assert_eq!(Config::read(&line, &environment).unwrap().warnings().len(), 2);
    for line in [
        "--discovery=",
        "--initial-cluster a=http://127.0.0.1:1",
        "--initial-cluster a=http://127.0.0.1:1,a=https://127.0.0.1:2",
        "--initial-cluster a=http://h:1,b=http://h:2 --initial-cluster a=http://h:1",
        "--discovery-token t",
        "--initial-cluster-state existing --initial-cluster-state new",
    ] {
        assert!(!read(line).unwrap().existing_cluster, "{line}");
    }
    assert!(read("--initial-cluster-state existing").unwrap().existing_cluster);
}

#[test]
fn a_short_interval_of_progress_is_raised_and_none_is_the_default() {
    let interval = |text: &str| {
        let config = read(&format!("--watch-progress-notify-interval {text}")).unwrap();
        config.watch_progress_notify_interval.as_millis()
    };
    assert_eq!([interval("0"), interval("1ms"), interval("99ms")], [600_000, 100, 100]);
    assert_eq!([interval("100ms"), interval("2s")], [100, 2000]);
}

#[test]
fn each_flag_of_the_parser_is_one_of_the_command_line() {
    for argument in Config::command().get_arguments().filter_map(|argument| argument.get_long()) {
        let value = match argument {
            "help" => continue,
            name if SWITCHES.contains(&name) => "true",
            name => {
                assert!(VALUES.contains(&name), "--{name} is not known to be a flag");
                "1"
            }
        };
        let given = flags::read(&[format!("--{argument}={value}")], &[]).unwrap();
        assert_eq!(given.given, [format!("--{argument}={value}")]);
    }
    for name in VALUES.iter().chain(SWITCHES) {
        let found = Config::command().get_arguments().any(|a| a.get_long() == Some(*name));
        assert!(found, "--{name} has no meaning");
    }
}

#[test]
fn what_is_wrong_is_refused() {
    let cases = [
        ("--max-txn-ops x", "max-txn-ops"),
        ("--max-concurrent-streams 4294967296", "max-concurrent-streams"),
        ("--client-cert-auth=maybe", "client-cert-auth"),
        ("--grpc-keepalive-timeout 5", "duration"),
        ("--listen-client-urls x", "http://"),
        ("--listen-client-urls http://0.0.0.0:2379", "--allow-insecure-network"),
        ("--listen-metrics-urls http://0.0.0.0:2379", "--allow-insecure-network"),
        ("--listen-client-urls https://127.0.0.1:2379", "TLS key/cert"),
        ("--cert-file a", "together"),
        ("--self-signed-cert-validity 0", "self-signed-cert-validity"),
        ("--auth-token jwt,pub-key=a", "--auth-token"),
        ("--client-cert-auth", "--trusted-ca-file"),
        ("--log-level loud", "log level"),
        ("--bcrypt-cost 3", "--bcrypt-cost"),
        ("--tls-min-version TLS1.0", "--tls-min-version"),
        ("--auto-compaction-mode x --auto-compaction-retention 1", "--auto-compaction-mode"),
        ("--auto-compaction-mode x", "--auto-compaction-mode"),
        ("--auto-compaction-mode revision --auto-compaction-retention 5m", "revisions"),
        ("--auto-compaction-retention -5", "hours"),
        ("--config-file /nowhere/at/all", "--config-file"),
        ("gateway", "not a valid flag"),
    ];
    for (line, part) in cases {
        let refusal = read(line).unwrap_err();
        assert!(refusal.contains(part), "{line}: {refusal}");
    }
}

#[test]
fn networks_are_open_where_it_was_said() {
    assert!(read("--listen-client-urls http://0.0.0.0:2379 --allow-insecure-network").is_ok());
    assert!(read("--listen-client-urls https://0.0.0.0:2379 --cert-file a --key-file b").is_ok());
}

#[test]
fn compaction_by_itself() {
    let cases = [
        ("--auto-compaction-retention 1", AutoCompaction::Periodic(Duration::from_secs(3600))),
        ("--auto-compaction-retention 5m", AutoCompaction::Periodic(Duration::from_secs(300))),
        ("--auto-compaction-retention 0s", AutoCompaction::Off),
        (
            "--auto-compaction-mode revision --auto-compaction-retention 1000",
            AutoCompaction::Revision(1000),
        ),
        ("--auto-compaction-mode revision", AutoCompaction::Off),
    ];
    for (line, expected) in cases {
        assert_eq!(read(line).unwrap().auto_compaction(), Ok(expected), "{line}");
    }
}

#[test]
fn version_and_help() {
    for line in ["--version", "-version", "--help", "-h"] {
        let refusal = Config::read(&[line.to_owned()], &[]).unwrap_err();
        assert!(matches!(&refusal, Refusal::Asked(_)), "{line}");
        assert!(refusal.to_string().contains(if line.contains('v') {
            "etcd Version: 3."
        } else {
            "--data-dir"
        }));
    }
}

#[test]
fn a_file_stands_for_all_flags() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("conf.yml");
    std::fs::write(&path, "name: filed\nmax-txn-ops: 5\nelection-timeout: 7\n").unwrap();
    let words = [
        "--name".to_owned(),
        "line".to_owned(),
        "--config-file".to_owned(),
        path.display().to_string(),
    ];
    let config =
        Config::read(&words, &[("ETCD_MAX_REQUEST_BYTES".to_owned(), "7".to_owned())]).unwrap();
    assert_eq!((config.name.as_str(), config.max_txn_ops), ("filed", 5));
    assert_eq!(config.max_request_bytes, super::DEFAULT_MAX_REQUEST_BYTES);
    assert_eq!(config.warnings().len(), 1);
}
