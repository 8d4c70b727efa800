//! Clients that each ask, wait for the answer, and ask again.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rand::RngExt as _;
use tokio::task::JoinSet;

use crate::clients::{self, Clients};
use crate::latency::Latency;
use crate::servers::Server;

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
    let connections = Clients::connections(&server.address, clients).await;
    let begins = Instant::now() + Duration::from_secs_f64((seconds / 10.0).min(0.3) + 0.1);
    let ends = begins + Duration::from_secs_f64(seconds);
    let counted = Rc::new(RefCell::new((Latency::default(), 0_u64)));
    let mut tasks = JoinSet::new();
    for number in 0..clients {
        let client = connections[number % connections.len()].clone();
        let client = Client { clients: client, ask, number, keys };
        tasks.spawn_local(client.run(begins, ends, Rc::clone(&counted)));
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

#[derive(Debug)]
struct Client {
    clients: Clients,
    ask: Ask,
    number: usize,
    keys: u64,
}

impl Client {
    async fn run(mut self, begins: Instant, ends: Instant, counted: Rc<RefCell<(Latency, u64)>>) {
        let mut known = [0; OWN];
        loop {
            let begun = Instant::now();
            if begun >= ends {
                return;
            }
            self.once(&mut known).await;
            let now = Instant::now();
            // Counted by when it ended, so that the rate is that of the time between.
            if now >= begins && now < ends {
                let nanos = u64::try_from((now - begun).as_nanos()).unwrap_or(u64::MAX);
                let (latency, count) = &mut *counted.borrow_mut();
                latency.record(nanos);
                *count += 1;
            }
        }
    }

    async fn once(&mut self, known: &mut [i64]) {
        let kv = &mut self.clients.kv;
        match self.ask {
            Ask::Put => {
                let key = rand::rng().random_range(0..self.keys);
                kv.put(clients::put(key)).await.expect("a put");
            }
            Ask::Range { count, serializable } => {
                let first = rand::rng().random_range(0..=self.keys - count);
                let answer = kv.range(clients::range(first, count, serializable)).await;
                let found = answer.expect("a range").into_inner().kvs.len();
                assert_eq!(found as u64, count, "all keys are there");
            }
            Ask::CompareAndPut => {
                let which = rand::rng().random_range(0..known.len());
                let key = (self.number * OWN + which) as u64 % self.keys;
                let txn = clients::compare_and_put(key, known[which]);
                let answer = kv.txn(txn).await.expect("a transaction").into_inner();
                known[which] = if answer.succeeded {
                    answer.header.map_or(0, |header| header.revision)
                } else {
                    left_by_others(&answer)
                };
            }
        }
    }
}

/// The `mod_revision` of what a comparison that failed has read.
fn left_by_others(answer: &annals_etcd::proto::etcdserverpb::TxnResponse) -> i64 {
    use annals_etcd::proto::etcdserverpb::response_op::Response;
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
