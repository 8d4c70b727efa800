//! The service Lease.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use annals::{ErrorKind, LeaseGrantRequest, Store};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use crate::auth::Caller;
use crate::errors::{LEASE_TTL, refuse, status};
use crate::proto::etcdserverpb as pb;
use crate::server::{PeerCommonName, Server};

/// Answers to renewals that wait for a client which reads slowly.
const ANSWERS: usize = 16;

/// The service.
#[derive(Debug)]
pub(crate) struct Leases(pub(crate) Arc<Server>);

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl pb::lease_server::Lease for Leases {
    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Answer<pb::LeaseGrantResponse> {
        let caller = self.0.caller(&request)?;
        caller.may_lease_grant()?;
        let wanted = request.into_inner();
        // etcd looks at the time before it looks whether there is such a lease.
        if wanted.ttl > annals::LEASE_TTL_MAX {
            return Err(refuse(LEASE_TTL));
        }
        self.0.alarms.check_intact()?;
        self.0.alarms.check_space(0)?;
        let place = self.0.begin_write(0)?;
        let lease = LeaseGrantRequest::new(wanted.id, wanted.ttl);
        let grant = move |store: &Store| store.lease_grant_with(lease);
        let (lease, _place) = self.0.writing((place, true), grant).await?;
        self.0.metrics.leases_granted.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(pb::LeaseGrantResponse {
            header: self.0.header(lease.revision),
            id: lease.id,
            ttl: lease.ttl,
            error: String::new(),
        }))
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Answer<pb::LeaseRevokeResponse> {
        let caller = self.0.caller(&request)?;
        let id = request.get_ref().id;
        self.0.alarms.check_intact()?;
        let mut place = self.0.begin_write(0)?;
        let revoked = loop {
            if !caller.is_restricted() {
                caller.must_be_known()?;
                let options = caller.commit_options();
                let revoke = move |store: &Store| store.lease_revoke_with(id, options);
                let (revoked, _) = self.0.writing((place, true), revoke).await?;
                break revoked;
            }
            let keys = self.0.keys_of(vec![id]).await?;
            caller.may_lease_revoke(&keys)?;
            // A key that was attached since is asked about as well.
            let by = caller.commit_options().metadata;
            let revoke = move |store: &Store| store.with_metadata(by)?.lease_revoke_only(id, &keys);
            let only;
            (only, place) = self.0.writing((place, true), revoke).await?;
            if let Some(revoked) = only {
                break revoked;
            }
        };
        self.0.metrics.leases_revoked.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(pb::LeaseRevokeResponse { header: self.0.header(revoked.revision) }))
    }

    type LeaseKeepAliveStream =
        Pin<Box<dyn Stream<Item = Result<pb::LeaseKeepAliveResponse, Status>> + Send>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Answer<Self::LeaseKeepAliveStream> {
        let server = Arc::clone(&self.0);
        let name = request.extensions().get::<PeerCommonName>().map(|name| name.0.clone());
        let (metadata, _, mut requests) = request.into_parts();
        let (to, answers) = mpsc::channel(ANSWERS);
        tokio::spawn(async move {
            loop {
                // Whose answers have ended, as when the server stops, is asked for nothing more: while somebody holds the
                // requests the connection cannot end.
                let request = tokio::select! {
                    request = requests.next() => request,
                    () = to.closed() => return,
                };
                let Some(request) = request else { return };
                let answer = match request {
                    Ok(request) => {
                        // Asked anew each time: what the client may do changes while the stream is open.
                        let caller = server.auth.caller(&metadata, name.as_deref());
                        keep_alive(&server, caller, request.id).await
                    }
                    Err(_) => return,
                };
                let is_over = answer.is_err();
                if to.send(answer).await.is_err() || is_over {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Answer<pb::LeaseTimeToLiveResponse> {
        let caller = self.0.caller(&request)?;
        caller.must_be_known()?;
        let pb::LeaseTimeToLiveRequest { id, keys } = *request.get_ref();
        let lease = self.0.blocking(move |store| store.lease_time_to_live(id, keys)).await?;
        let header = self.0.header_now();
        let Some(lease) = lease else {
            let answer = pb::LeaseTimeToLiveResponse { header, id, ttl: -1, ..Default::default() };
            return Ok(Response::new(answer));
        };
        if keys {
            caller.may_lease_time_to_live(&lease.keys)?;
        }
        let ttl = i64::try_from(lease.remaining.as_secs()).unwrap_or(i64::MAX);
        let granted_ttl = lease.granted_ttl;
        let keys = lease.keys;
        Ok(Response::new(pb::LeaseTimeToLiveResponse { header, id, ttl, granted_ttl, keys }))
    }

    async fn lease_leases(
        &self,
        request: Request<pb::LeaseLeasesRequest>,
    ) -> Answer<pb::LeaseLeasesResponse> {
        let caller = self.0.caller(&request)?;
        let leases = self.0.blocking(Store::lease_list).await?;
        let ids = leases.iter().map(|lease| lease.id).collect();
        let ids = if caller.is_restricted() { ids } else { Vec::new() };
        caller.may_lease_leases(self.0.keys_of(ids).await?)?;
        let leases = leases.iter().map(|lease| pb::LeaseStatus { id: lease.id }).collect();
        Ok(Response::new(pb::LeaseLeasesResponse { header: self.0.header_now(), leases }))
    }
}

/// Renews one. A lease that is not there has a time to live of 0; the head is of before.
async fn keep_alive(
    server: &Arc<Server>,
    caller: Result<Caller, Status>,
    id: i64,
) -> Result<pb::LeaseKeepAliveResponse, Status> {
    let caller = caller?;
    let leases = if caller.is_restricted() { vec![id] } else { Vec::new() };
    caller.may_lease_keep_alive(server.keys_of(leases).await?)?;
    let header = server.header_now();
    let renewed = server.blocking(move |store| Ok(store.lease_keep_alive(id))).await?;
    let ttl = match renewed {
        Ok(ttl) => {
            server.metrics.leases_renewed.fetch_add(1, Ordering::Relaxed);
            ttl
        }
        Err(error) if matches!(error.kind(), ErrorKind::LeaseNotFound { .. }) => 0,
        Err(error) => return Err(status(&error)),
    };
    Ok(pb::LeaseKeepAliveResponse { header, id, ttl })
}
