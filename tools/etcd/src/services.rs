//! All gRPC services as one, chosen by the first part of a path.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;

use crate::auth::service::AuthService;
use crate::errors::not_taken;
use crate::proto::etcdserverpb as pb;
use crate::proto::v3electionpb::election_server::ElectionServer;
use crate::proto::v3lockpb::lock_server::LockServer;
use crate::server::Server;
use crate::{cluster, kv, lease, line, maintenance, watch};

/// The services of a server.
#[derive(Clone, Default)]
pub struct Services(Arc<[(&'static str, Box<dyn Grpc>)]>);

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// One service, generated or not.
trait Grpc: Send + Sync {
    fn answer(&self, request: Request<axum::body::Body>) -> Answer;
}

impl<S> Grpc for S
where
    S: Service<
            Request<axum::body::Body>,
            Response = Response<Body>,
            Error = Infallible,
            Future = Answer,
        > + Clone
        + Send
        + Sync,
{
    fn answer(&self, request: Request<axum::body::Body>) -> Answer {
        // It is always ready, and a clone of it one of a pointer.
        self.clone().call(request)
    }
}

fn named<S: NamedService + Grpc + 'static>(service: S) -> (&'static str, Box<dyn Grpc>) {
    (S::NAME, Box::new(service))
}

impl Services {
    /// Those of this server.
    pub fn new(server: &Arc<Server>) -> Self {
        // gRPC's own limit: more than a request may have, so that the texts are etcd's.
        let max = server.options.max_request_bytes + (512 << 10);
        let own = || Arc::clone(server);
        // One limit for all: which service a message is for makes it no more costly.
        macro_rules! limited {
            ($service:expr) => {
                named($service.max_decoding_message_size(max).max_encoding_message_size(usize::MAX))
            };
        }
        let told = own();
        let headers = move || told.header_now().unwrap_or_default();
        let auth = AuthService::new(&server.auth, headers);
        let maintenance = maintenance::Maintenance(own());
        // Those first that are asked most: they are looked for in this order.
        Self(Arc::new([
            limited!(pb::kv_server::KvServer::new(kv::Kv(own()))),
            limited!(pb::lease_server::LeaseServer::new(lease::Leases(own()))),
            // Not generated: it takes the limit itself, and its answers have none.
            named(watch::Watches::new(own(), max)),
            limited!(LockServer::new(line::lock::Locks(own()))),
            limited!(ElectionServer::new(line::election::Elections(own()))),
            limited!(pb::maintenance_server::MaintenanceServer::new(maintenance)),
            limited!(pb::cluster_server::ClusterServer::new(cluster::Cluster(own()))),
            limited!(pb::auth_server::AuthServer::new(auth)),
        ]))
    }

    /// One service alone.
    #[cfg(test)]
    pub(crate) fn of<S>(service: S) -> Self
    where
        S: NamedService
            + Service<
                Request<axum::body::Body>,
                Response = Response<Body>,
                Error = Infallible,
                Future = Answer,
            > + Clone
            + Send
            + Sync
            + 'static,
    {
        Self(Arc::new([named(service)]))
    }

    /// Does one call.
    pub async fn call(&self, request: Request<axum::body::Body>) -> Response<Body> {
        let path = request.uri().path().strip_prefix('/');
        let name = path.and_then(|path| path.split_once('/')).map_or("", |(name, _)| name);
        let Some((_, service)) = self.0.iter().find(|(known, _)| *known == name) else {
            return Status::unimplemented("").into_http();
        };
        let Ok(answer) = service.answer(request).await;
        not_taken(answer)
    }
}
