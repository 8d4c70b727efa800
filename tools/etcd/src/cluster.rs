//! The service Cluster: one member, for ever.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::errors::{MEMBER_NOT_FOUND, NOT_A_LEARNER, refuse};
use crate::proto::etcdserverpb as pb;
use crate::server::Server;

/// The service.
#[derive(Debug)]
pub(crate) struct Cluster(pub(crate) Arc<Server>);

type Answer<T> = Result<Response<T>, Status>;

/// What is said to who would have more members.
const ONE_MEMBER: &str = "annals-etcd: this cluster has one member; to have more, take a snapshot of it \
                          (etcdctl snapshot save) and restore it into a cluster of etcd";

impl Cluster {
    fn members(&self) -> Vec<pb::Member> {
        let member = &self.0.member;
        vec![pb::Member {
            id: member.id,
            name: member.name.clone(),
            peer_ur_ls: member.peer_urls.clone(),
            client_ur_ls: member.client_urls.clone(),
            is_learner: false,
        }]
    }

    /// Refuses what names another member, else what would change this one.
    fn refuse_change<T>(&self, id: u64) -> Answer<T> {
        if id == self.0.member.id {
            return Err(Status::failed_precondition(ONE_MEMBER));
        }
        Err(refuse(MEMBER_NOT_FOUND))
    }
}

#[tonic::async_trait]
impl pb::cluster_server::Cluster for Cluster {
    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Answer<pb::MemberListResponse> {
        self.0.caller(&request)?.must_be_known()?;
        // As in etcd: what the cluster consists of has no revision.
        let (header, members) = (self.0.header(0), self.members());
        Ok(Response::new(pb::MemberListResponse { header, members }))
    }

    async fn member_add(
        &self,
        request: Request<pb::MemberAddRequest>,
    ) -> Answer<pb::MemberAddResponse> {
        self.0.caller(&request)?.must_be_admin()?;
        Err(Status::failed_precondition(ONE_MEMBER))
    }

    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Answer<pb::MemberRemoveResponse> {
        self.0.caller(&request)?.must_be_admin()?;
        self.refuse_change(request.get_ref().id)
    }

    async fn member_update(
        &self,
        request: Request<pb::MemberUpdateRequest>,
    ) -> Answer<pb::MemberUpdateResponse> {
        self.0.caller(&request)?.must_be_admin()?;
        self.refuse_change(request.get_ref().id)
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Answer<pb::MemberPromoteResponse> {
        self.0.caller(&request)?.must_be_admin()?;
        if request.get_ref().id == self.0.member.id {
            return Err(refuse(NOT_A_LEARNER));
        }
        Err(refuse(MEMBER_NOT_FOUND))
    }
}
