//! Clients that each ask, wait for the answer, and ask again.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use annals_etcd::proto::etcdserverpb as pb;
use bytes::Bytes;
use prost::Message as _;
use rand::RngExt as _;
use tokio::task::JoinSet;

use crate::clients::{self, CONNECTIONS, Clients};
use crate::latency::Latency;
use crate::servers::Server;
use crate::wire::Wire;

/// What the clients of a cell ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    /// A put of a random key.
    Put,
    /// A read of so many keys from a random one on.
    Range { count: u64, serializable: bool },
    /// A put if the key is as this client left it. Each client has keys of its own.
    CompareAndPut,
}

/// What one run has shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) per_second: f64,
    pub(crate) latency: Latency,
    /// Seconds of the server's processor time for each operation.
    pub(crate) cpu: f64,
}

/// Keys that a client of [`Ask::CompareAndPut`] has to itself.
const OWN: usize = 16;

/// Clients that ask for so long, after a moment that is not counted.
pub(crate) async fn run(server: &Server, ask: Ask, clients: usize, keys: u64, seconds: f64) -> Run {
    let connections = clients.min(CONNECTIONS);
    let begins = Instant::now() + Duration::from_secs_f64((seconds / 10.0).min(0.3) + 0.1);
    let ends = begins + Duration::from_secs_f64(seconds);
    let counted = Rc::new(RefCell::new((Latency::default(), 0_u64)));
    let mut tasks = JoinSet::new();
    for first in 0..connections {
        let clients = (first..clients).step_by(connections);
        let clients = clients.map(|number| Client { ask, number, keys, known: [0; OWN], which: 0 });
        let (wire, counted) = (Wire::connect(&server.address).await, Rc::clone(&counted));
        tasks.spawn_local(drive(wire, clients.collect(), (begins, ends), counted));
    }
    tokio::time::sleep_until(begins.into()).await;
    let cpu = server.cpu();
    tokio::time::sleep_until(ends.into()).await;
    let cpu = server.cpu() - cpu;
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a client");
    }
    let (latency, count) = counted.take();
    let count = count.max(1) as f64;
    Run { per_second: count / seconds, latency, cpu: cpu / count }
}

/// The clients of a connection: each asks again when it has its answer.
async fn drive(
    mut wire: Wire,
    mut clients: Vec<Client>,
    (begins, ends): (Instant, Instant),
    counted: Rc<RefCell<(Latency, u64)>>,
) {
    let mut open = HashMap::new();
    let mut done = Vec::new();
    for (index, client) in clients.iter_mut().enumerate() {
        let begun = Instant::now();
        open.insert(client.ask(&mut wire), (index, begun));
    }
    while !open.is_empty() {
        wire.flush().await;
        wire.answers(&mut done).await;
        for (call, answer) in done.drain(..) {
            let (index, begun) = open.remove(&call).expect("it was asked");
            let now = Instant::now();
            clients[index].take(answer);
            // Counted by when it ended, so that the rate is that of the time between.
            if now >= begins && now < ends {
                let nanos = u64::try_from((now - begun).as_nanos()).unwrap_or(u64::MAX);
                let (latency, count) = &mut *counted.borrow_mut();
                latency.record(nanos);
                *count += 1;
            }
            if now < ends {
                open.insert(clients[index].ask(&mut wire), (index, now));
            }
        }
    }
}

#[derive(Debug)]
struct Client {
    ask: Ask,
    number: usize,
    keys: u64,
    /// Where it left its own keys, and which of them it has asked for.
    known: [i64; OWN],
    which: usize,
}

impl Client {
    fn ask(&mut self, wire: &mut Wire) -> u32 {
        match self.ask {
            Ask::Put => {
                let key = rand::rng().random_range(0..self.keys);
                wire.ask("/etcdserverpb.KV/Put", &clients::put(key))
            }
            Ask::Range { count, serializable } => {
                let first = rand::rng().random_range(0..=self.keys - count);
                wire.ask("/etcdserverpb.KV/Range", &clients::range(first, count, serializable))
            }
            Ask::CompareAndPut => {
                self.which = rand::rng().random_range(0..OWN);
                let key = (self.number * OWN + self.which) as u64 % self.keys;
                let txn = clients::compare_and_put(key, self.known[self.which]);
                wire.ask("/etcdserverpb.KV/Txn", &txn)
            }
        }
    }

    fn take(&mut self, answer: Bytes) {
        match self.ask {
            Ask::Put => {
                let answer = pb::PutResponse::decode(answer).expect("an answer");
                assert!(answer.header.is_some_and(|header| header.revision > 1), "it has put");
            }
            Ask::Range { count, .. } => {
                let found = pb::RangeResponse::decode(answer).expect("an answer").kvs.len();
                assert_eq!(found as u64, count, "all keys are there");
            }
            Ask::CompareAndPut => {
                let answer = pb::TxnResponse::decode(answer).expect("an answer");
                self.known[self.which] = if answer.succeeded {
                    answer.header.map_or(0, |header| header.revision)
                } else {
                    left_by_others(&answer)
                };
            }
        }
    }
}

/// The `mod_revision` of what a comparison that failed has read.
fn left_by_others(answer: &pb::TxnResponse) -> i64 {
    use pb::response_op::Response;
    match answer.responses.first().and_then(|response| response.response.as_ref()) {
        Some(Response::ResponseRange(range)) => range.kvs.first().map_or(0, |kv| kv.mod_revision),
        _ => 0,
    }
}

/// Puts all keys, a hundred in a transaction, from eight clients: keys a second.
pub(crate) async fn fill(server: &Server, keys: u64) -> f64 {
    const CLIENTS: usize = 8;
    const BATCH: u64 = 100;
    let connections = Clients::connections(&server.address, CLIENTS).await;
    let next = Rc::new(RefCell::new(0));
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for mut clients in connections {
        let next = Rc::clone(&next);
        tasks.spawn_local(async move {
            loop {
                let first = next.replace_with(|first| *first + BATCH);
                if first >= keys {
                    return;
                }
                let puts = clients::puts(first, keys.min(first + BATCH));
                clients.kv.txn(puts).await.expect("a transaction");
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a client");
    }
    keys as f64 / begun.elapsed().as_secs_f64()
}
