//! The watch stream of a member: opened, and asked which revision is the oldest there is.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use http::uri::PathAndQuery;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;
use tonic::metadata::MetadataValue;
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use super::client::Client;
use super::convert::{signed, unsigned};
use super::wire::{self, WatchCall, WatchCreate, WatchRequest, WatchResponse};

const WATCH: &str = "/etcdserverpb.Watch/Watch";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";

/// For what is only asked to say more in an error, or to know what a server can do.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is still to be asked on a stream.
struct Requests(UnboundedReceiver<WatchRequest>);

impl Stream for Requests {
    type Item = WatchRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

/// Opens a stream on which the requests are made. One has to be there already: etcd answers nothing before.
pub(super) async fn open(
    client: &Client,
    at: usize,
    requests: UnboundedReceiver<WatchRequest>,
) -> Result<Streaming<WatchResponse>, Status> {
    let mut request = client.signed(at, Requests(requests)).await?;
    // A member that has lost the others says so, instead of falling silent.
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    let mut grpc = client.grpc(at).ok_or_else(|| Status::internal("no such member"))?;
    grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
    let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
    let path = PathAndQuery::from_static(WATCH);
    Ok(grpc.streaming(request, path, codec).await?.into_inner())
}

/// The oldest revision that can be read, if it is above the one that was asked for: a watch from there is told.
pub(super) async fn oldest(client: &Client, requested: u64) -> Option<u64> {
    let (ask, requests) = unbounded_channel();
    let key = client.keys.key(b"\0");
    let start_revision = signed(requested.max(1));
    let create = WatchCreate { key, start_revision, ..WatchCreate::default() };
    ask.send(WatchRequest { call: Some(WatchCall::Create(create)) }).ok()?;
    let search = async {
        let mut answers = open(client, client.member().0, requests).await.ok()?;
        while let Some(answer) = answers.message().await.ok()? {
            if answer.compact_revision > 0 {
                return Some(unsigned(answer.compact_revision));
            }
        }
        None
    };
    timeout(PATIENCE, search).await.ok().flatten()
}

/// Whether the member that is asked just now tells progress behind all changes before it: older ones let an answer overtake them.
/// Those are the versions which API servers of Kubernetes rely on, too.
pub(super) async fn tells_progress(client: &Client) -> bool {
    let asked = super::failure::Asked::reading("ask");
    let status = client.call::<_, wire::StatusResponse>(STATUS, wire::StatusRequest {}, &asked);
    match timeout(PATIENCE, status).await {
        Ok(Ok(status)) => is_recent(&status.version),
        _ => false,
    }
}

fn is_recent(version: &str) -> bool {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse::<u64>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    match (next(), next(), next()) {
        (3, 4, patch) => patch >= 31,
        (3, 5, patch) => patch >= 13,
        (major, minor, _) => (major, minor) > (3, 5),
    }
}

#[cfg(test)]
mod tests {
    use super::is_recent;

    #[test]
    fn versions_that_tell_progress_in_order() {
        for (version, is) in [
            ("3.4.23", false),
            ("3.4.30", false),
            ("3.4.31", true),
            ("3.5.0", false),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.6.0-rc.1", true),
            ("4.0.0", true),
            ("2.9.9", false),
            ("", false),
        ] {
            assert_eq!(is_recent(version), is, "{version}");
        }
    }
}
