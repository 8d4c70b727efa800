//! What others notice of abuse, in figures: `cargo test --release --test abuse -- --ignored --nocapture`.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use annals_etcd::proto::etcdserverpb as pb;
use pb::kv_client::KvClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;
use tokio_stream::{StreamExt as _, iter, pending};
use tonic::transport::Channel;

use crate::server::{Running, prefix, processor, put, watch};
use crate::wire::frame;
use crate::wire::{
    END_HEADERS, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, ask_and_leave, call, flood,
};

const CALLS: usize = 5000;

/// How long something is done to the server before its clients are measured: what it takes at first is not what it
/// takes in the long run.
const BEFORE: Duration = Duration::from_secs(4);

/// The 99th percentile of puts and of gets, one after the other, of a client that is connected.
async fn measure(kv: &mut KvClient<Channel>) -> (Duration, Duration) {
    let (mut puts, mut gets) = (Vec::new(), Vec::new());
    for number in 0..CALLS {
        let key = format!("m{}", number % 100);
        let begun = Instant::now();
        kv.put(put(key.clone(), "value")).await.unwrap();
        puts.push(begun.elapsed());
        let begun = Instant::now();
        let get = pb::RangeRequest { key: key.into(), ..Default::default() };
        kv.range(get).await.unwrap();
        gets.push(begun.elapsed());
    }
    puts.sort();
    gets.sort();
    (puts[CALLS * 99 / 100], gets[CALLS * 99 / 100])
}

fn say(what: &str, calm: (Duration, Duration), now: (Duration, Duration)) {
    let ratio = |now: Duration, calm: Duration| now.as_secs_f64() / calm.as_secs_f64();
    eprintln!(
        "{what}: p99 of puts {:?} ({:.1}x), of gets {:?} ({:.1}x)",
        now.0,
        ratio(now.0, calm.0),
        now.1,
        ratio(now.1, calm.1)
    );
}

/// Reads what has come.
fn drain(stream: &mut TcpStream) {
    let mut piece = [0; 16_384];
    while stream.read(&mut piece).is_ok_and(|length| length > 0) {}
}

/// Does something to the server again and again while its clients are measured.
async fn beside(
    server: &Running,
    what: &str,
    calm: (Duration, Duration),
    mut abuse: impl FnMut() + Send + 'static,
) {
    let mut kv = server.kv().await;
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    let thread = std::thread::spawn(move || {
        while !told.load(Ordering::Relaxed) {
            abuse();
        }
    });
    tokio::time::sleep(BEFORE).await;
    let begun = Instant::now();
    let before = (server.processor(), processor("self"));
    let now = measure(&mut kv).await;
    eprintln!(
        "{what}: {:.2} s, of the processors {:.2} s for the server and {:.2} s for its clients",
        begun.elapsed().as_secs_f64(),
        server.processor() - before.0,
        processor("self") - before.1
    );
    over.store(true, Ordering::Relaxed);
    tokio::task::block_in_place(|| thread.join().unwrap());
    say(what, calm, now);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn p99_beside_abuse() {
    let server = Arc::new(Running::start(&[]).await);
    let mut kv = server.kv().await;
    for number in 0..500 {
        kv.put(put(format!("a{number}"), vec![7; 65536])).await.unwrap();
    }
    measure(&mut kv).await;
    let calm = measure(&mut kv).await;
    say("calm", calm, calm);
    let status = "/etcdserverpb.Maintenance/Status";
    // What the flooding clients cost by themselves on the same machine: nobody answers these.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = nobody.local_addr().unwrap();
    std::thread::spawn(move || while nobody.accept().is_ok() {});
    let hello = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let resets = (0..2000_u32).map(|number| {
        let stream = 2 * number + 1;
        let asked = frame(HEADERS, END_HEADERS, stream, &call(status));
        [asked, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
    });
    let resets = [hello.clone(), resets.collect::<Vec<_>>().concat()].concat();
    let pings = [hello, frame(PING, 0, 0, &[1; 8]).repeat(20_000)].concat();
    for (what, flooding) in [("rapid resets", resets), ("pings", pings)] {
        for (where_to, to) in [("nobody", nowhere), ("the server", server.address)] {
            let (what, flooding) = (format!("{what} at {where_to}"), flooding.clone());
            let again = flooding.clone();
            beside(&server, &format!("{what}, each time by a new connection"), calm, move || {
                // Where too many come it may be hung up on at once.
                if let Ok(mut stream) = TcpStream::connect(to) {
                    flood(&mut stream, std::iter::once(again.clone()));
                }
            })
            .await;
            // Sixteen that stay: what the server does not read they cannot send.
            let mut streams: Vec<_> = (0..16)
                .map(|_| {
                    let stream = TcpStream::connect(to).unwrap();
                    stream.set_nonblocking(true).unwrap();
                    (stream, 0)
                })
                .collect();
            beside(&server, &format!("{what}, by 16 connections"), calm, move || {
                for (stream, sent) in &mut streams {
                    drain(stream);
                    if *sent == flooding.len() {
                        *sent = flooding.len() / 2;
                    }
                    *sent += stream.write(&flooding[*sent..]).unwrap_or(0);
                }
                std::thread::sleep(Duration::from_millis(1));
            })
            .await;
        }
    }
    let unread: Vec<_> = (0..100)
        .map(|_| tokio::task::block_in_place(|| ask_and_leave(&server, &prefix("a"))))
        .collect();
    say("100 answers of 32 MiB that are not read", calm, measure(&mut kv).await);
    drop(unread);
    let mut snapshots = Vec::new();
    for _ in 0..20 {
        let mut client = MaintenanceClient::new(server.patient().await);
        snapshots.push(client.snapshot(pb::SnapshotRequest {}).await);
    }
    say("20 snapshots that are not read", calm, measure(&mut kv).await);
    drop(snapshots);
    let mut lazy = Vec::new();
    for _ in 0..20 {
        let channel = server.patient().await;
        for _ in 0..100 {
            let asked = iter([watch("a", 2)]).chain(pending());
            lazy.push(WatchClient::new(channel.clone()).watch(asked).await.unwrap());
        }
    }
    say("2,000 streams that are behind and not read", calm, measure(&mut kv).await);
    for number in 0..500 {
        kv.put(put(format!("a{number}"), vec![7; 65536])).await.unwrap();
    }
    say("the same after more puts", calm, measure(&mut kv).await);
    drop(lazy);
}
