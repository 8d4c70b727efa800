//! Clients, as many on a connection as there must be, and what they ask for.

use annals_etcd::proto::etcdserverpb as pb;
use bytes::Bytes;
use pb::kv_client::KvClient;
use pb::watch_client::WatchClient;
use rand::RngExt as _;
use tonic::transport::Channel;

/// Clients share so many connections.
pub(crate) const CONNECTIONS: usize = 50;

/// Bytes of a value.
const VALUE_BYTES: usize = 256;

/// Where all keys are.
pub(crate) const PREFIX: &str = "/registry/things/";

/// One connection, and its stubs.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub(crate) kv: KvClient<Channel>,
    pub(crate) watch: WatchClient<Channel>,
}

impl Clients {
    pub(crate) async fn try_connect(address: &str) -> Option<Self> {
        let channel =
            Channel::from_shared(format!("http://{address}")).ok()?.connect().await.ok()?;
        let (kv, watch) = (KvClient::new(channel.clone()), WatchClient::new(channel));
        Some(Self { kv, watch })
    }

    pub(crate) async fn connect(address: &str) -> Self {
        Self::try_connect(address).await.expect("it listens")
    }

    /// As many connections as so many clients have.
    pub(crate) async fn connections(address: &str, clients: usize) -> Vec<Self> {
        let mut all = Vec::new();
        for _ in 0..clients.min(CONNECTIONS) {
            all.push(Self::connect(address).await);
        }
        all
    }

    /// Whether a linearizable get is answered.
    pub(crate) async fn answers(&mut self) -> bool {
        self.kv.range(range(0, 1, false)).await.is_ok()
    }
}

pub(crate) fn key(number: u64) -> Bytes {
    format!("{PREFIX}{number:08}").into()
}

/// The end of the range of all keys.
pub(crate) fn after_prefix() -> Bytes {
    "/registry/things0".into()
}

/// A value of which half is noise.
pub(crate) fn value() -> Bytes {
    let mut value = vec![b'v'; VALUE_BYTES];
    rand::rng().fill(&mut value[..VALUE_BYTES / 2]);
    value.into()
}

pub(crate) fn put(number: u64) -> pb::PutRequest {
    pb::PutRequest { key: key(number), value: value(), ..Default::default() }
}

/// So many keys from one on.
pub(crate) fn range(first: u64, count: u64, serializable: bool) -> pb::RangeRequest {
    let range_end = if count == 1 { Bytes::new() } else { key(first + count) };
    pb::RangeRequest { key: key(first), range_end, serializable, ..Default::default() }
}

/// Puts the keys from `first` to before `end`.
pub(crate) fn puts(first: u64, end: u64) -> pb::TxnRequest {
    let op =
        |number| pb::RequestOp { request: Some(pb::request_op::Request::RequestPut(put(number))) };
    pb::TxnRequest { success: (first..end).map(op).collect(), ..Default::default() }
}

/// Puts a key if its `mod_revision` is still this one; else reads it.
pub(crate) fn compare_and_put(number: u64, mod_revision: i64) -> pb::TxnRequest {
    use pb::request_op::Request;
    let compare = pb::Compare {
        key: key(number),
        target: pb::compare::CompareTarget::Mod.into(),
        result: pb::compare::CompareResult::Equal.into(),
        target_union: Some(pb::compare::TargetUnion::ModRevision(mod_revision)),
        ..Default::default()
    };
    let op = |request| vec![pb::RequestOp { request: Some(request) }];
    pb::TxnRequest {
        compare: vec![compare],
        success: op(Request::RequestPut(put(number))),
        failure: op(Request::RequestRange(range(number, 1, false))),
    }
}
