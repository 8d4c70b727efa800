//! The same random watches on one stream of a real etcd and of this server, between the same writes: each watch must
//! tell the same, and each request for one must be answered the same.
//!
//! `ANNALS_ETCD_SEQUENCES` sequences (4) of `ANNALS_ETCD_STEPS` (120) from `ANNALS_ETCD_SEED` (1), beside the etcd that
//! `ETCD` names. What may differ:
//! - how events are put into answers, where a revision is not cut, or is cut with the flag `fragment`;
//! - the revision in the head of events: here up to which all was told, there the newest where a watch is behind;
//! - the previous value at exactly the compacted revision, which a watch that begins later tells here and not there;
//! - when a watch tells its own progress, which is a matter of time. When it may not is checked of both;
//! - the stream's progress while a watch that compaction has ended is not cancelled: there none is told;
//! - 3.4 tells the stream's progress always, takes negative revisions for others, drops a delete exactly at the compacted
//!   revision, and keeps events from a watch with the number -1 after a refusal. Of it those are not asked.

use annals_etcd::proto::etcdserverpb as pb;
use annals_etcd::proto::mvccpb::Event;
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::support::{Ours, Real};
use crate::watch_stream::Listener;

const KEYS: [&str; 8] = ["a", "b", "b/1", "b/2", "big/3", "c", "\0", "z"];
const ENDS: [&str; 8] = ["\0", "\0", "b", "b/2", "c", "e", "~", "\0\0"];
/// The numbers that watches ask for.
const IDS: [i64; 9] = [1, 2, 5, 5, 6, -1, -7, 100, i64::MAX];
const WATCHES: usize = 16;
/// The watch that tells everything, from which what the others must tell is made.
const ALL: usize = 0;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn mod_revision(event: &Event) -> i64 {
    event.kv.as_ref().expect("a key-value").mod_revision
}

fn is_delete(event: &Event) -> bool {
    event.r#type == 1
}

/// A watch that is open on both.
#[derive(Debug)]
struct Watch {
    id: i64,
    /// Its place among all that were made.
    place: usize,
    request: pb::WatchCreateRequest,
    /// The first revision it tells.
    from: i64,
    compacted: i64,
    /// Whether it may be behind at the real one.
    behind: bool,
}

impl Watch {
    /// What it must tell, of all that has happened.
    fn expected(&self, all: &[Event]) -> Vec<Event> {
        let pb::WatchCreateRequest { key, range_end, filters, prev_kv, .. } = &self.request;
        let key = if key.is_empty() { &Bytes::from_static(b"\0") } else { key };
        let wanted = |event: &&Event| {
            let of = &event.kv.as_ref().expect("a key-value").key;
            let within = match &range_end[..] {
                b"" => of == key,
                b"\0" => of >= key,
                end => of >= key && of < end,
            };
            within && mod_revision(event) >= self.from && !filters.contains(&event.r#type)
        };
        let mut events: Vec<_> = all.iter().filter(wanted).cloned().collect();
        for event in &mut events {
            if !prev_kv {
                event.prev_kv = None;
            }
        }
        self.comparable(events)
    }

    fn comparable(&self, mut events: Vec<Event>) -> Vec<Event> {
        for event in &mut events {
            if mod_revision(event) == self.compacted {
                event.prev_kv = None;
            }
        }
        events
    }
}

struct Run {
    random: StdRng,
    real: (Real, Listener),
    ours: (Ours, Listener),
    old: bool,
    revision: i64,
    compacted: i64,
    watches: Vec<Watch>,
    /// Numbers of watches that compaction has ended, and which were not cancelled.
    ended: Vec<i64>,
    notices: usize,
    real_notices: usize,
    big: u32,
}

impl Run {
    async fn start(seed: u64) -> Option<Self> {
        let real = Real::start().await?;
        let ours = Ours::with(
            annals::Options::new().durability(annals::Durability::Buffered),
            |options| options.watch_progress_interval = std::time::Duration::from_millis(100),
        )
        .await;
        let status = real.clients.maintenance.clone().status(pb::StatusRequest {}).await;
        let old = status.expect("a status").get_ref().version.starts_with("3.4");
        let listens = Listener::open(&real.clients, format!("etcd, seed {seed}"));
        let listens_ours = Listener::open(&ours.clients, format!("ours, seed {seed}"));
        let mut run = Self {
            random: StdRng::seed_from_u64(seed),
            real: (real, listens),
            ours: (ours, listens_ours),
            old,
            revision: 1,
            compacted: 0,
            watches: Vec::new(),
            ended: Vec::new(),
            notices: 0,
            real_notices: 0,
            big: if seed.is_multiple_of(4) { 3 } else { 0 },
        };
        for id in 1..=3 {
            run.grant(id).await;
        }
        let all = pb::WatchCreateRequest {
            key: "\0".into(),
            range_end: "\0".into(),
            watch_id: 1_000_000,
            prev_kv: true,
            ..Default::default()
        };
        run.create(all).await;
        if run.big > 0 {
            // With both values, what one transaction has written is more than an answer may have.
            let big = pb::WatchCreateRequest {
                key: "big/".into(),
                range_end: "c".into(),
                prev_kv: true,
                fragment: true,
                ..Default::default()
            };
            run.create(big).await;
        }
        Some(run)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.random.random_range(0..all.len())].clone()
    }

    async fn grant(&mut self, id: i64) {
        let request = pb::LeaseGrantRequest { id, ttl: 9000 };
        for clients in [&mut self.real.0.clients, &mut self.ours.0.clients] {
            clients.lease.lease_grant(request).await.expect("granted");
        }
    }

    /// One write at both.
    async fn write(&mut self, request: pb::TxnRequest) {
        let mut revisions = [0; 2];
        let both = [&mut self.real.0.clients, &mut self.ours.0.clients];
        for (clients, revision) in both.into_iter().zip(&mut revisions) {
            let answer = clients.kv.txn(request.clone()).await.expect("written").into_inner();
            *revision = answer.header.expect("a head").revision;
        }
        assert_eq!(revisions[0], revisions[1], "{request:?}");
        self.revision = revisions[0];
    }

    async fn put(&mut self, key: Bytes) {
        self.write(txn(vec![put(key, "settled".into(), 0)])).await;
    }

    async fn random_write(&mut self) {
        if self.chance(6) {
            let id = self.of(&[1, 2, 3]);
            for clients in [&mut self.real.0.clients, &mut self.ours.0.clients] {
                let revoke = pb::LeaseRevokeRequest { id };
                let answer = clients.lease.lease_revoke(revoke).await.expect("revoked");
                self.revision = answer.into_inner().header.expect("a head").revision;
            }
            return self.grant(id).await;
        }
        if self.big > 0 && self.chance(8) {
            self.big -= 1;
            let value = Bytes::from(vec![b'v'; 30_000]);
            let op = |key| put(Bytes::from(format!("big/{key}")), value.clone(), 0);
            return self.write(txn((0..40).map(op).collect())).await;
        }
        let mut keys = KEYS.to_vec();
        let ops = (0..self.random.random_range(1..4)).map(|_| {
            let key = keys.swap_remove(self.random.random_range(0..keys.len()));
            if self.chance(65) {
                let (value, lease) = (self.of(&["", "1", "two"]), self.of(&[0, 0, 0, 1, 2, 3]));
                put(key.into(), value.into(), lease)
            } else {
                let request = pb::DeleteRangeRequest { key: key.into(), ..Default::default() };
                op(pb::request_op::Request::RequestDeleteRange(request))
            }
        });
        let ops = ops.collect();
        self.write(txn(ops)).await;
    }

    fn random_create(&mut self) -> pb::WatchCreateRequest {
        let start_revision = match self.random.random_range(0..100) {
            0..40 => 0,
            40..70 => self.random.random_range(1..=self.revision),
            70..80 => (self.compacted + self.random.random_range(-1..2)).max(0),
            80..95 => self.revision + self.random.random_range(0..5),
            95..97 => i64::MAX,
            _ if self.old => 0,
            _ => self.of(&[-1, i64::MIN]),
        };
        let filters = self.of(&[vec![], vec![], vec![], vec![0], vec![1], vec![0, 1], vec![1, 7]]);
        let is_deaf = filters == [0, 1];
        let mut id = if self.chance(70) { 0 } else { self.of(&IDS) };
        if self.old && id == -1 {
            id = 0;
        }
        pb::WatchCreateRequest {
            key: if self.chance(5) { Bytes::new() } else { self.of(&KEYS).into() },
            range_end: if self.chance(40) { Bytes::new() } else { self.of(&ENDS).into() },
            // Of one that tells nothing nobody can see whether it is behind.
            start_revision: if is_deaf { 0 } else { start_revision },
            progress_notify: id != -1 && self.chance(30),
            filters,
            prev_kv: self.chance(40),
            watch_id: id,
            fragment: self.chance(if self.big > 0 { 60 } else { 20 }),
        }
    }

    async fn create(&mut self, request: pb::WatchCreateRequest) {
        let expected = self.real.1.create(request.clone()).await;
        let answer = self.ours.1.create(request.clone()).await;
        assert_eq!(answer, expected, "{request:?}");
        if answer.canceled {
            return;
        }
        let (id, place) = (answer.watch_id, self.real.1.told.len() - 1);
        let start = request.start_revision;
        if start > 0 && start < self.compacted {
            let expected = self.real.1.control().await;
            let answer = self.ours.1.control().await;
            assert_eq!(answer, expected, "{request:?}");
            assert_eq!(answer.compact_revision, self.compacted);
            self.ended.push(id);
            return;
        }
        let behind = start > 0 && start <= self.revision;
        let from = if start == 0 { self.revision + 1 } else { start };
        let compacted = self.compacted;
        self.watches.push(Watch { id, place, request, from, compacted, behind });
    }

    /// A request for a watch that is refused: when its answer is there, all before it was seen.
    async fn mark(&mut self) {
        let empty =
            pb::WatchCreateRequest { key: "b".into(), range_end: "a".into(), ..Default::default() };
        self.create(empty).await;
    }

    async fn cancel(&mut self) {
        let known =
            (self.watches.len() > 2).then(|| self.random.random_range(2..self.watches.len()));
        let id = match (self.random.random_range(0..10), known) {
            (0..6, Some(place)) => self.watches[place].id,
            (6..9, _) if !self.ended.is_empty() => self.of(&self.ended.clone()),
            _ => self.of(&IDS),
        };
        let place = self.watches.iter().position(|watch| watch.id == id);
        let is_known = place.is_some() || self.ended.contains(&id);
        // Else it may overtake what the watch still has to tell.
        self.settle().await;
        self.real.1.cancel(id).await;
        self.ours.1.cancel(id).await;
        if !is_known {
            return self.mark().await;
        }
        let expected = self.real.1.control().await;
        let answer = self.ours.1.control().await;
        assert_eq!(answer, expected, "cancel of {id}");
        self.ended.retain(|ended| *ended != id);
        self.watches.retain(|watch| watch.id != id);
    }

    async fn progress(&mut self) {
        self.settle().await;
        let asked_at = self.revision;
        self.real.1.ask_progress().await;
        self.ours.1.ask_progress().await;
        self.mark().await;
        self.put("c".into()).await;
        let all_begun = self.watches.iter().all(|watch| watch.request.start_revision <= asked_at);
        self.notices += usize::from(all_begun);
        self.real_notices += usize::from(self.old || all_begun && self.ended.is_empty());
        self.settle().await;
        self.ours.1.progress(self.notices).await;
        self.real.1.progress(self.real_notices).await;
        self.check_notices();
        assert!(!all_begun || self.ours.1.promised >= asked_at, "an old notice");
    }

    fn check_notices(&self) {
        assert_eq!(self.ours.1.notices, self.notices, "ours");
        assert_eq!(self.real.1.notices, self.real_notices, "etcd");
    }

    async fn compact(&mut self) {
        self.settle().await;
        let all = &self.real.1.told[ALL].events;
        let newer = all.iter().filter(|event| mod_revision(event) > self.compacted);
        let mut revisions: Vec<_> = newer.map(mod_revision).collect();
        if self.old {
            let deletes = all.iter().filter(|event| is_delete(event)).map(mod_revision);
            let deletes: Vec<_> = deletes.collect();
            revisions.retain(|revision| !deletes.contains(revision));
        }
        if revisions.is_empty() {
            return;
        }
        let revision = self.of(&revisions);
        for clients in [&mut self.real.0.clients, &mut self.ours.0.clients] {
            let request = pb::CompactionRequest { revision, physical: true };
            clients.kv.compact(request).await.expect("compacted");
        }
        self.compacted = revision;
    }

    /// Waits until everything is told at both, and compares it.
    async fn settle(&mut self) {
        let behind: Vec<_> = self.watches.iter().filter(|watch| watch.behind).collect();
        let keys: Vec<_> = behind.iter().map(|watch| watch.request.clone()).collect();
        for request in keys {
            let key = if request.key.is_empty() { Bytes::from_static(b"\0") } else { request.key };
            self.put(key.clone()).await;
            if request.filters.contains(&0) {
                let delete = pb::DeleteRangeRequest { key, ..Default::default() };
                let delete = pb::request_op::Request::RequestDeleteRange(delete);
                self.write(txn(vec![op(delete)])).await;
            }
        }
        if self.real.1.told[ALL].events.last().map_or(1, mod_revision) < self.revision {
            self.real.1.reaches(ALL, self.revision).await;
            self.ours.1.reaches(ALL, self.revision).await;
        }
        let (real, ours) = (&mut self.real.1, &mut self.ours.1);
        let all = real.told[ALL].events.clone();
        for watch in &mut self.watches {
            let expected = watch.expected(&all);
            for side in [&mut *real, &mut *ours] {
                side.events(watch.place, expected.len()).await;
                let told = watch.comparable(side.told[watch.place].events.clone());
                let place =
                    told.iter().zip(&expected).position(|(told, expected)| told != expected);
                if let Some(place) = place {
                    let (told, expected) = (&told[place], &expected[place]);
                    panic!("{}: {watch:?}: event {place}: {told:?}, not {expected:?}", side.name);
                }
                assert_eq!(told.len(), expected.len(), "{watch:?}");
            }
            watch.behind = false;
        }
    }

    async fn step(&mut self) {
        match self.random.random_range(0..100) {
            0..58 => self.random_write().await,
            58..82 if self.watches.len() < WATCHES => {
                let request = self.random_create();
                self.create(request).await;
            }
            58..90 => self.cancel().await,
            90..96 => self.progress().await,
            _ => self.compact().await,
        }
    }
}

fn op(request: pb::request_op::Request) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

fn put(key: Bytes, value: Bytes, lease: i64) -> pb::RequestOp {
    op(pb::request_op::Request::RequestPut(pb::PutRequest {
        key,
        value,
        lease,
        ..Default::default()
    }))
}

fn txn(success: Vec<pb::RequestOp>) -> pb::TxnRequest {
    pb::TxnRequest { success, ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_tell_what_those_of_a_real_etcd_tell() {
    let (first, steps) = (number("ANNALS_ETCD_SEED", 1), number("ANNALS_ETCD_STEPS", 120));
    let (mut watches, mut events, mut notices, mut parts) = (0, 0, 0, [0; 2]);
    for seed in first..first + number("ANNALS_ETCD_SEQUENCES", 4) {
        println!("seed {seed}");
        let Some(mut run) = Run::start(seed).await else { return };
        for _ in 0..steps {
            run.step().await;
        }
        run.settle().await;
        run.mark().await;
        run.check_notices();
        assert_eq!((run.real.1.controls_left(), run.ours.1.controls_left()), (0, 0));
        watches += run.ours.1.told.len();
        events += run.ours.1.told.iter().map(|told| told.events.len()).sum::<usize>();
        notices += run.notices;
        parts = [parts[0] + run.real.1.parts, parts[1] + run.ours.1.parts];
    }
    println!("{watches} watches, {events} events, {notices} notices of progress, parts {parts:?}");
}
