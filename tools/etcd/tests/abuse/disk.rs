//! What reads on the same connection notice of a slow disk:
//! `cargo test --release -p annals-etcd --test abuse slow_disk -- --ignored --nocapture`.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use annals_etcd::proto::etcdserverpb as pb;

use crate::server::{Running, put};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement, by strace"]
async fn reads_beside_a_slow_disk() {
    let server = Running::start(&[]).await;
    let mut kv = server.kv().await;
    kv.put(put("a", "value")).await.unwrap();
    for slow in [0, 200, 2_000, 20_000] {
        let strace = Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=fdatasync", "-o", "/dev/null", "-e"])
            .arg(format!("inject=fdatasync:delay_exit={slow}"))
            .args(["-p", &server.pid().to_string()])
            .stderr(Stdio::null())
            .spawn();
        let mut strace = match strace {
            Ok(strace) => strace,
            Err(error) => return eprintln!("skipped: no strace: {error}"),
        };
        tokio::time::sleep(Duration::from_millis(500)).await;
        let over = Arc::new(AtomicBool::new(false));
        let (told, mut writing) = (Arc::clone(&over), kv.clone());
        let writer = tokio::spawn(async move {
            let mut puts = Vec::new();
            while !told.load(Ordering::Relaxed) {
                let begun = Instant::now();
                writing.put(put("b", vec![7; 256])).await.unwrap();
                puts.push(begun.elapsed());
            }
            puts
        });
        let mut gets = Vec::new();
        let all = Instant::now();
        while all.elapsed() < Duration::from_secs(4) {
            let begun = Instant::now();
            let get = pb::RangeRequest { key: "a".into(), ..Default::default() };
            kv.range(get).await.unwrap();
            gets.push(begun.elapsed());
            tokio::time::sleep(Duration::from_micros(300)).await;
        }
        over.store(true, Ordering::Relaxed);
        let mut puts = writer.await.unwrap();
        strace.kill().unwrap();
        strace.wait().unwrap();
        for (what, times) in [("puts", &mut puts), ("gets", &mut gets)] {
            times.sort();
            let at = |part: usize| times[(times.len() - 1) * part / 1000];
            eprintln!(
                "syncs {slow} us longer, {} {what}: p50 {:?}, p90 {:?}, p99 {:?}, max {:?}",
                times.len(),
                at(500),
                at(900),
                at(990),
                at(1000)
            );
        }
    }
}
