//! The services Lock and Election beside those of a real etcd: the same calls, equal answers. Without an etcd here ours
//! alone has to give what is written down.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use annals_etcd::proto::etcdserverpb as pb;
use annals_etcd::proto::v3electionpb as election;
use annals_etcd::proto::v3lockpb as lock;
use election::election_client::ElectionClient;
use lock::lock_client::LockClient;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::support::{Clients, Ours, Real};

/// One is below zero: etcd takes any.
const LEASES: [i64; 3] = [0x101, 0x102, -0x103];

/// What must have happened by then would not happen later either.
const LONG: Duration = Duration::from_secs(120);

/// A client of a server, and what it was told.
struct Session {
    clients: Clients,
    lock: LockClient<Channel>,
    election: ElectionClient<Channel>,
    told: Vec<String>,
}

/// An answer without who gave it.
fn text<T: Debug>(answer: &Result<Response<T>, Status>) -> String {
    let answer = match answer {
        Ok(answer) => format!("{:?}", answer.get_ref()),
        Err(status) => format!("{:?}: {}", status.code(), status.message()),
    };
    // The head: only its revision is everywhere the same.
    let mut rest = answer.as_str();
    let mut plain = String::new();
    while let Some((before, after)) = rest.split_once("cluster_id: ") {
        plain += before;
        let (_, after) = after.split_once("revision: ").unwrap();
        let (revision, after) = after.split_once(", raft_term: ").unwrap();
        let (_, after) = after.split_once(' ').unwrap();
        plain = plain + "revision: " + revision + " ";
        rest = after;
    }
    plain + rest
}

/// What waits: it is not done yet, and goes on.
async fn waits<T>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T>
where
    T: Send + 'static,
{
    let task = tokio::spawn(future);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!task.is_finished(), "somebody is before it");
    task
}

async fn done<T>(task: JoinHandle<T>) -> T {
    tokio::time::timeout(LONG, task).await.expect("in time").expect("no panic")
}

impl Session {
    async fn new(clients: &Clients) -> Self {
        let channel = || clients.channel.clone();
        let (lock, election) = (LockClient::new(channel()), ElectionClient::new(channel()));
        let mut session = Self { clients: clients.clone(), lock, election, told: Vec::new() };
        for id in LEASES {
            let request = pb::LeaseGrantRequest { ttl: 600, id };
            session.clients.lease.lease_grant(request).await.unwrap();
        }
        session
    }

    fn note<T: Debug>(&mut self, what: &str, answer: &Result<Response<T>, Status>) {
        self.told.push(format!("{what}: {}", text(answer)));
    }

    /// All keys there are.
    async fn keys(&mut self, what: &str) {
        let all = pb::RangeRequest { key: "\0".into(), range_end: "\0".into(), ..<_>::default() };
        let found = self.clients.kv.range(all).await;
        self.note(what, &found);
    }

    async fn has_keys(&mut self, count: i64) {
        let begun = std::time::Instant::now();
        while begun.elapsed() < LONG {
            let all =
                pb::RangeRequest { key: "\0".into(), range_end: "\0".into(), ..<_>::default() };
            if self.clients.kv.range(all).await.unwrap().into_inner().count == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("there are not {count} keys");
    }

    async fn locks(&mut self) {
        let of = |lease| lock::LockRequest { name: "l".into(), lease };
        let refused = self.lock.lock(of(77)).await;
        self.note("no lease", &refused);
        let refused = self.lock.unlock(lock::UnlockRequest { key: "".into() }).await;
        self.note("no key", &refused);
        let first = self.lock.lock(of(LEASES[0])).await;
        self.note("first", &first);
        let again = self.lock.lock(of(LEASES[0])).await;
        self.note("the same again", &again);
        let mut client = self.lock.clone();
        let second = waits(async move { client.lock(of(LEASES[1])).await }).await;
        // In this order, however slow the machine is.
        self.has_keys(2).await;
        let mut client = self.lock.clone();
        let third = waits(async move { client.lock(of(LEASES[2])).await }).await;
        self.has_keys(3).await;
        self.keys("all wait").await;
        // Whoever goes leaves its place.
        second.abort();
        self.has_keys(2).await;
        let key = first.unwrap().into_inner().key;
        let unlocked = self.lock.unlock(lock::UnlockRequest { key: key.clone() }).await;
        self.note("unlocked", &unlocked);
        let third = done(third).await;
        self.note("third", &third);
        let unlocked = self.lock.unlock(lock::UnlockRequest { key }).await;
        self.note("what is not locked", &unlocked);
        // Its place goes with its lease, and whoever waited for it is told.
        let mut client = self.lock.clone();
        let waiting = waits(async move { client.lock(of(LEASES[0])).await }).await;
        self.has_keys(2).await;
        self.clients.lease.lease_revoke(pb::LeaseRevokeRequest { id: LEASES[0] }).await.unwrap();
        let key = third.unwrap().into_inner().key;
        let unlocked = self.lock.unlock(lock::UnlockRequest { key }).await;
        self.note("unlocked", &unlocked);
        let waiting = done(waiting).await;
        self.note("without a lease any more", &waiting);
        self.keys("locks").await;
    }

    async fn elections(&mut self) {
        let stands = |lease, value: &'static str| election::CampaignRequest {
            name: "e".into(),
            lease,
            value: value.into(),
        };
        let of = || election::LeaderRequest { name: "e".into() };
        let nobody = self.election.leader(of()).await;
        self.note("nobody", &nobody);
        let missing = self.election.proclaim(election::ProclaimRequest::default()).await;
        self.note("no leader", &missing);
        let missing = self.election.resign(election::ResignRequest::default()).await;
        self.note("no leader", &missing);
        // An observer may miss what is over when it looks; it ends with what is.
        let mut client = self.election.clone();
        let observer = tokio::spawn(async move {
            let mut observed = client.observe(of()).await.unwrap().into_inner();
            let mut seen = Vec::new();
            while seen.last() != Some(&"second".into()) {
                let next = observed.message().await.unwrap();
                seen.push(next.expect("it goes on").kv.expect("a leader").value);
            }
            seen
        });
        let refused = self.election.campaign(stands(77, "a")).await;
        self.note("no lease", &refused);
        let first = self.election.campaign(stands(LEASES[1], "a")).await;
        self.note("first", &first);
        let again = self.election.campaign(stands(LEASES[1], "b")).await;
        self.note("the same again, with another value", &again);
        let leads = self.election.leader(of()).await;
        self.note("leads", &leads);
        let mut client = self.election.clone();
        let second = waits(async move { client.campaign(stands(LEASES[2], "second")).await }).await;
        self.has_keys(2).await;
        let leader = first.unwrap().into_inner().leader;
        let request =
            election::ProclaimRequest { leader: leader.clone(), value: "proclaimed".into() };
        let told = self.election.proclaim(request.clone()).await;
        self.note("proclaimed", &told);
        self.keys("two stand").await;
        let resigned =
            self.election.resign(election::ResignRequest { leader: leader.clone() }).await;
        self.note("resigned", &resigned);
        let second = done(second).await;
        self.note("second", &second);
        let refused = self.election.proclaim(request).await;
        self.note("no leader any more", &refused);
        let again = self.election.resign(election::ResignRequest { leader }).await;
        self.note("resigned again", &again);
        let seen = done(observer).await;
        assert!(seen.is_sorted_by_key(|value| {
            ["a", "b", "proclaimed", "second"]
                .iter()
                .position(|known| value == known)
                .expect("it was proclaimed")
        }));
        self.keys("elections").await;
    }
}

async fn all(clients: &Clients) -> Vec<String> {
    let mut session = Session::new(clients).await;
    session.locks().await;
    session.elections().await;
    session.told
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_and_elections_are_as_in_etcd() {
    let ours = Ours::start().await;
    let told = all(&ours.clients).await;
    let starts = |what: &str, text: &str| {
        assert!(told.iter().any(|line| line.starts_with(what) && line.contains(text)), "{told:#?}");
    };
    starts("no lease", "Unknown: etcdserver: requested lease not found");
    starts("without a lease any more", "Unknown: mutex: session is expired");
    starts("no leader any more", "Unknown: election: not leader");
    if let Some(real) = Real::start().await {
        // What a 3.4 does not look for: whether the place is there still.
        let same = |told: Vec<String>| {
            let told = told.into_iter();
            told.filter(|line| !line.starts_with("without a lease any more")).collect::<Vec<_>>()
        };
        assert_eq!(same(told), same(all(&real.clients).await));
    }
}

/// A place in the name of somebody: a lease is made for whoever brings none.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_without_a_lease_gets_one() {
    let mut ours = Ours::start().await;
    let mut lock = LockClient::new(ours.clients.channel.clone());
    let held = lock.lock(lock::LockRequest { name: "l".into(), lease: 0 }).await.unwrap();
    let leases = ours.clients.lease.lease_leases(pb::LeaseLeasesRequest {}).await.unwrap();
    let [lease] = leases.into_inner().leases.try_into().expect("one");
    assert_eq!(held.into_inner().key, format!("l/{:x}", lease.id));
    let request = pb::LeaseTimeToLiveRequest { id: lease.id, keys: false };
    let left = ours.clients.lease.lease_time_to_live(request).await.unwrap().into_inner();
    assert_eq!(left.granted_ttl, 60);
}
