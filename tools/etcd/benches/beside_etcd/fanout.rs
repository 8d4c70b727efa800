//! Many watches of one prefix, and one who puts keys below it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use annals_etcd::proto::etcdserverpb as pb;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;

use crate::clients::{self, CONNECTIONS, Clients, PREFIX};
use crate::latency::Latency;
use crate::load::Run;
use crate::servers::Server;

/// Puts that are under way at a time where the rate is measured.
const WINDOW: usize = 16;

/// What the watches have been told.
#[derive(Debug, Default)]
struct Told {
    events: Cell<u64>,
    created: Cell<usize>,
    notify: Notify,
}

impl Told {
    async fn until(&self, reached: impl Fn(&Self) -> bool) {
        while !reached(self) {
            tokio::time::timeout(Duration::from_secs(60), self.notify.notified())
                .await
                .expect("watches are told within a minute");
        }
    }
}

/// The delay of the last watch after the begin of its put, one put at a time; then the events a second of as many puts
/// as fit, and the processor time of each event.
pub(crate) async fn run(server: &Server, watches: usize, keys: u64, seconds: f64) -> Run {
    let told = Rc::new(Told::default());
    let mut streams = JoinSet::new();
    let connections = watches.min(CONNECTIONS);
    for number in 0..connections {
        let clients = Clients::connect(&server.address).await;
        let of_this = watches / connections + usize::from(number < watches % connections);
        streams.spawn_local(listen(clients, of_this, Rc::clone(&told)));
    }
    told.until(|told| told.created.get() == watches).await;
    let mut writer = Clients::connect(&server.address).await;
    let each = watches as u64;

    let (mut latency, mut due, mut key) = (Latency::default(), told.events.get(), 0);
    let ends = Instant::now() + Duration::from_secs_f64(seconds / 2.0);
    while Instant::now() < ends {
        let begun = Instant::now();
        writer.kv.put(clients::put(key % keys)).await.expect("a put");
        (due, key) = (due + each, key + 1);
        told.until(|told| told.events.get() >= due).await;
        latency.record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }

    let (begun, cpu, before) = (Instant::now(), server.cpu(), told.events.get());
    let ends = begun + Duration::from_secs_f64(seconds / 2.0);
    let mut writers = JoinSet::new();
    for number in 0..WINDOW as u64 {
        let (mut writer, told) = (writer.clone(), Rc::clone(&told));
        writers.spawn_local(async move {
            let mut puts = 0;
            while Instant::now() < ends {
                // Nobody runs away from the watches: what is behind is told in fewer, larger answers.
                let due = before + puts * WINDOW as u64 * each;
                let behind = |told: &Told| told.events.get() + 4 * WINDOW as u64 * each >= due;
                told.until(behind).await;
                writer.kv.put(clients::put((number + puts) % keys)).await.expect("a put");
                puts += 1;
            }
            puts
        });
    }
    let mut due = before;
    while let Some(puts) = writers.join_next().await {
        due += puts.expect("a writer") * each;
    }
    told.until(|told| told.events.get() >= due).await;
    let events = (due - before) as f64;
    let per_second = events / begun.elapsed().as_secs_f64();
    Run { per_second, latency, cpu: (server.cpu() - cpu) / events }
}

/// So many watches on one stream, which count what they are told.
async fn listen(mut clients: Clients, watches: usize, told: Rc<Told>) {
    let create = pb::WatchCreateRequest {
        key: PREFIX.into(),
        range_end: clients::after_prefix(),
        ..Default::default()
    };
    let request = pb::watch_request::RequestUnion::CreateRequest(create);
    let request = pb::WatchRequest { request_union: Some(request) };
    // The stream stays open: nothing comes after the requests, and they do not end.
    let requests = tokio_stream::iter(vec![request; watches]).chain(tokio_stream::pending());
    let mut answers = clients.watch.watch(requests).await.expect("a stream").into_inner();
    while let Some(answer) = answers.next().await {
        let answer = answer.expect("an answer");
        assert!(!answer.canceled, "{}", answer.cancel_reason);
        told.created.set(told.created.get() + usize::from(answer.created));
        told.events.set(told.events.get() + answer.events.len() as u64);
        told.notify.notify_waiters();
    }
}
