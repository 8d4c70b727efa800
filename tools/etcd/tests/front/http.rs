//! Health, version, metrics, and the protection of browsers.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use annals::Options;
use annals::vfs::{Fault, FaultVfs, MemoryVfs, Operation};
use serde_json::json;

use crate::common::{Answer, Running, http, post};

#[test]
fn health_and_version() {
    let ours = Running::start(&[]);
    let get = |path: &str| http(ours.address(), &format!("GET {path}"), &[], "");
    for path in ["/health", "/health?serializable=true", "/health?exclude=NOSPACE"] {
        let answer = get(path);
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, r#"{"health":"true","reason":""}"#)
        );
    }
    assert_eq!(get("/version").json()["etcdserver"], json!(annals_etcd::VERSION));
    assert_eq!(get("/livez").body, "ok\n");
    assert!(get("/readyz?verbose").body.contains("[+]linearizable_read ok\n"));
    assert_eq!(
        (get("/readyz/non_learner").status, get("/readyz/nope").status, get("/").status),
        (200, 404, 404)
    );
    for path in ["/health/", "/health/x", "/Health", "/healthz", "/livez/", "/readyz/", "/version/"]
    {
        assert_eq!(get(path).status, 404, "{path}");
    }
    let posted = http(ours.address(), "POST /health", &[], "");
    assert_eq!(posted.status, 405);
    assert!(posted.head.contains("allow: get"));
}

#[test]
fn alarms_are_unhealthy() {
    let ours = Running::start(&[]);
    let raised =
        post(ours.address(), "/v3/maintenance/alarm", r#"{"action":"ACTIVATE","alarm":"CORRUPT"}"#);
    assert_eq!(raised.status, 200, "{raised:?}");
    let get = |path: &str| http(ours.address(), &format!("GET {path}"), &[], "");
    let answer = get("/health");
    assert_eq!(
        (answer.status, answer.json()),
        (503, json!({"health": "false", "reason": "ALARM CORRUPT"}))
    );
    for query in
        ["exclude=CORRUPT", "exclude=&exclude=CORRUP%54", "%65xclude=CORRUPT&serializable=true"]
    {
        assert_eq!(get(&format!("/health?{query}")).status, 200, "{query}");
    }
    for query in
        ["exclude=NOSPACE", "exclude=corrupt", "exclude=CORRUPT;", "exclude=CORRUPT%", "exclude"]
    {
        assert_eq!(get(&format!("/health?{query}")).status, 503, "{query}");
    }
    assert_eq!((get("/livez").status, get("/readyz").status), (200, 503));
    assert_eq!(get("/readyz?exclude=data_corruption").status, 200);
}

#[test]
fn metrics_are_well_formed() {
    let ours = Running::start(&["--listen-metrics-urls", "http://127.0.0.1:0"]);
    post(ours.address(), "/v3/kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#);
    post(ours.address(), "/v3/kv/put", "{}");
    let metrics = http(ours.addresses[1], "GET /metrics", &[], "");
    assert_eq!(http(ours.addresses[1], "GET /version", &[], "").status, 404);
    let mut heads = std::collections::BTreeSet::new();
    for line in metrics.body.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            assert!(heads.insert(head.to_owned()), "twice: {head}");
        } else if !line.starts_with('#') {
            let (_, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    let labels = "grpc_method=\"Put\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"";
    for line in [
        "etcd_server_has_leader 1".to_owned(),
        "etcd_debugging_mvcc_current_revision 2".to_owned(),
        format!("grpc_server_started_total{{{labels}}} 2"),
        format!("grpc_server_handled_total{{grpc_code=\"OK\",{labels}}} 1"),
        format!("grpc_server_handled_total{{grpc_code=\"InvalidArgument\",{labels}}} 1"),
    ] {
        assert!(
            metrics.body.lines().any(|found| found == line),
            "{line} is not in {}",
            metrics.body
        );
    }
    assert!(metrics.body.contains("etcd_disk_wal_fsync_duration_seconds_bucket{le=\"8.192\"}"));
    // What the status tells, and the quota counts: the usual alert divides one by the other.
    let status = post(ours.address(), "/v3/maintenance/status", "{}").body;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let size = status["dbSize"].as_str().unwrap();
    let line = format!("etcd_mvcc_db_total_size_in_bytes {size}");
    assert!(metrics.body.lines().any(|found| found == line), "{line} is not in {}", metrics.body);
}

#[test]
fn hosts_and_origins() {
    let ours = Running::start(&["--host-whitelist", "good", "--cors", "http://page"]);
    let get = |headers: &[&str]| http(ours.address(), "GET /health", headers, "");
    assert_eq!(get(&["Host: bad:80"]).status, 421);
    let good = get(&["Host: good:80", "Origin: http://page"]);
    assert!(
        good.status == 200 && good.head.contains("access-control-allow-origin: http://page"),
        "{good:?}"
    );
    let other = get(&["Host: good", "Origin: http://other"]);
    assert!(other.status == 200 && !other.head.contains("access-control"), "{other:?}");
    let open = Running::start(&[]);
    let asked = http(open.address(), "OPTIONS /v3/kv/range", &[], "");
    assert!(
        asked.status == 200 && asked.head.contains("access-control-allow-origin: *"),
        "{asked:?}"
    );
}

/// What the services have done, as etcd counts it.
#[test]
fn what_is_done_is_counted() {
    let ours = Running::start(&[]);
    let call = |path: &str, body: &str| {
        let answer = http(ours.address(), &format!("POST /v3/{path}"), &[], body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    };
    call("kv/put", r#"{"key":"YQ==","value":"MQ=="}"#);
    call("kv/put", r#"{"key":"Yg==","value":"MQ=="}"#);
    call("kv/range", r#"{"key":"YQ=="}"#);
    let put = r#"{"requestPut":{"key":"Yg==","value":"Mg=="}}"#;
    let delete = r#"{"requestDeleteRange":{"key":"YQ=="}}"#;
    call("kv/txn", &format!(r#"{{"success":[{put},{delete}]}}"#));
    call("kv/txn", &format!(r#"{{"success":[{delete}]}}"#));
    call("kv/deleterange", r#"{"key":"YQ=="}"#);
    call("lease/grant", r#"{"ID":7,"TTL":600}"#);
    call("lease/keepalive", r#"{"ID":7}"#);
    call("lease/revoke", r#"{"ID":7}"#);
    let metrics = http(ours.address(), "GET /metrics", &[], "").body;
    for line in [
        "etcd_mvcc_put_total 3",
        "etcd_mvcc_delete_total 3",
        "etcd_mvcc_range_total 1",
        "etcd_mvcc_txn_total 1",
        "etcd_debugging_lease_granted_total 1",
        "etcd_debugging_lease_renewed_total 1",
        "etcd_debugging_lease_revoked_total 1",
        "etcd_debugging_mvcc_watch_stream_total 0",
        "etcd_debugging_mvcc_watcher_total 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
}

/// After a failed sync nothing is written any more, and whoever asks how the server is learns it.
#[test]
fn a_store_that_has_failed_is_not_healthy() {
    let faulty = FaultVfs::new(Arc::new(MemoryVfs::new()));
    let ours = Running::over(&Options::new().vfs(Arc::new(faulty.clone())), &[]);
    let get = |path: &str| http(ours.address(), &format!("GET {path}"), &[], "");
    let failed = || {
        let told = get("/metrics").body;
        told.lines().find_map(|line| line.strip_prefix("annals_failed ")).map(str::to_owned)
    };
    assert_eq!((get("/health").status, get("/readyz").status), (200, 200));
    assert_eq!(failed().as_deref(), Some("0"));
    faulty.fail(Some(Operation::Sync), faulty.op_count_of(Operation::Sync), Fault::Io, false);
    let put = post(ours.address(), "/v3/kv/put", r#"{"key":"YQ=="}"#);
    assert_eq!(put.json()["code"], 14, "{put:?}");
    let health = get("/health");
    assert_eq!(health.status, 503);
    assert_eq!(health.json()["health"], "false");
    for path in ["/readyz", "/livez"] {
        assert_eq!(get(path).status, 503, "{path}");
    }
    assert_eq!(failed().as_deref(), Some("1"));
    // It is read still.
    assert_eq!(post(ours.address(), "/v3/kv/range", r#"{"key":"YQ=="}"#).status, 200);
}

/// As long as one sync takes, be it that of a write that is alone, others are answered.
#[test]
fn a_disk_that_hangs_holds_up_only_who_waits_for_it() {
    let faulty = FaultVfs::new(Arc::new(MemoryVfs::new()));
    let ours = Running::over(&Options::new().vfs(Arc::new(faulty.clone())), &[]);
    let address = ours.address();
    let put = move || post(address, "/v3/kv/put", r#"{"key":"YQ=="}"#).status;
    assert_eq!(put(), 200);
    let (enter, entered) = std::sync::mpsc::channel();
    let (leave, left) = std::sync::mpsc::channel::<()>();
    let (enter, left) = (std::sync::Mutex::new(enter), std::sync::Mutex::new(left));
    faulty.observe(move |_, operation| {
        if operation == Operation::Sync && enter.lock().unwrap().send(()).is_ok() {
            // Until the test has seen what it wants, or has failed.
            let _ = left.lock().unwrap().recv();
        }
    });
    let mut waits = vec![std::thread::spawn(put)];
    entered.recv_timeout(Duration::from_secs(60)).unwrap();
    // As many as the log has room for, and more.
    let large = format!(r#"{{"key":"YQ==","value":"{}"}}"#, "AAAA".repeat(20_000));
    for _ in 0..8 {
        let large = large.clone();
        waits.push(std::thread::spawn(move || post(address, "/v3/kv/put", &large).status));
    }
    std::thread::sleep(Duration::from_millis(300));
    for round in 0..20 {
        let (answer, answered) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let range = post(address, "/v3/kv/range", r#"{"key":"YQ=="}"#).status;
            answer.send((range, http(address, "GET /health", &[], "").status))
        });
        let told = answered.recv_timeout(Duration::from_secs(20));
        assert_eq!(told, Ok((200, 200)), "round {round}");
    }
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    drop((entered, leave));
    for wait in waits {
        assert_eq!(wait.join().unwrap(), 200);
    }
}

/// A write that finds no space on the disk raises the alarm, be it small or one that another thread evaluates.
#[test]
fn a_full_disk_raises_the_alarm() {
    let small = ("put", r#"{"key":"YQ==","value":"eA=="}"#.to_owned());
    let delete = r#"{"request_delete_range":{"key":"Yg==","range_end":"Yw=="}}"#;
    let put = r#"{"request_put":{"key":"YQ==","value":"eA=="}}"#;
    let large = ("txn", format!(r#"{{"success":[{delete},{put}]}}"#));
    let grant = ("lease", r#"{"TTL":"600"}"#.to_owned());
    for (method, request) in [small, large, grant] {
        let disk = MemoryVfs::new();
        let options = Options::new().memtable_bytes(64 << 10).wal_bytes(64 << 10);
        let ours = Running::over(&options.vfs(Arc::new(disk.clone())), &[]);
        let path = if method == "lease" { "lease/grant" } else { &format!("kv/{method}") };
        let send = || post(ours.address(), &format!("/v3/{path}"), &request);
        assert_eq!(send().status, 200);
        disk.set_capacity(Some(disk.used_bytes()));
        let refused = (0..100_000).map(|_| send()).find(|answer| answer.status != 200).unwrap();
        assert_eq!(refused.json()["code"], 8, "{method}: {refused:?}");
        let alarms = post(ours.address(), "/v3/maintenance/alarm", "{}").json();
        assert_eq!(alarms["alarms"][0]["alarm"], "NOSPACE", "{method}: {alarms}");
    }
}

/// Who goes on speaking while the server ends the connection gets the whole answer all the same: without waiting for its
/// client, a server that closes takes back what is on its way.
#[test]
fn an_answer_is_whole_though_its_client_speaks_on() {
    let ours = Running::start(&[]);
    let value = "AAAA".repeat(300_000);
    for key in ["YQ==", "Yg==", "Yw==", "ZA=="] {
        let put = format!(r#"{{"key":"{key}","value":"{value}"}}"#);
        assert_eq!(post(ours.address(), "/v3/kv/put", &put).status, 200);
    }
    let wanted = r#"{"key":"YQ==","range_end":"eg=="}"#;
    for round in 0..5 {
        let mut stream = TcpStream::connect(ours.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let length = wanted.len();
        let head = format!(
            "POST /v3/kv/range HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all((head + wanted).as_bytes()).unwrap();
        // It says more than anybody reads.
        let mut more = stream.try_clone().unwrap();
        let speaks = std::thread::spawn(move || {
            for _ in 0..40 {
                if more.write_all(&[b'x'; 4096]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        std::thread::sleep(Duration::from_millis(200));
        let answer = Answer::read(&stream).unwrap();
        assert_eq!(answer.status, 200);
        let whole: Result<serde_json::Value, _> = serde_json::from_str(&answer.body);
        assert!(whole.is_ok(), "round {round}: {} bytes", answer.body.len());
        speaks.join().unwrap();
    }
}
