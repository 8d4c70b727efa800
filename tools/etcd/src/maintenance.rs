//! The service Maintenance: state, hashes, alarms, snapshots.

use std::pin::Pin;
use std::sync::Arc;

use annals::At;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::VERSION;
use crate::alarm::store_bytes;
use crate::answers::signed;
use crate::errors::{BAD_TRANSFEREE, refuse};
use crate::proto::etcdserverpb as pb;
use crate::server::Server;

/// The service.
#[derive(Debug)]
pub(crate) struct Maintenance(pub(crate) Arc<Server>);

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl pb::maintenance_server::Maintenance for Maintenance {
    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Answer<pb::AlarmResponse> {
        use pb::alarm_request::AlarmAction;
        self.0.caller(&request)?;
        let request = request.into_inner();
        let alarm = pb::AlarmType::try_from(request.alarm).unwrap_or(pb::AlarmType::None);
        let is_ours = request.member_id == self.0.member.id;
        let alarms = match AlarmAction::try_from(request.action) {
            Ok(AlarmAction::Get) => self.0.alarms.all(),
            Ok(AlarmAction::Activate) => {
                if alarm != pb::AlarmType::None {
                    self.0.alarms.raise(alarm);
                }
                vec![alarm]
            }
            // Of another member, or of none: there is nothing to take back.
            Ok(AlarmAction::Deactivate) if is_ours && self.0.alarms.disarm(alarm) => vec![alarm],
            Ok(AlarmAction::Deactivate) => Vec::new(),
            Err(_) => return Err(Status::invalid_argument("etcdserver: unknown alarm action")),
        };
        let member_id = self.0.member.id;
        let wanted = |each: &pb::AlarmType| {
            alarm == pb::AlarmType::None || *each == alarm || request.action != 0
        };
        let alarms = alarms
            .into_iter()
            .filter(wanted)
            .map(|alarm| pb::AlarmMember { member_id, alarm: alarm.into() })
            .collect();
        Ok(Response::new(pb::AlarmResponse { header: self.0.header_now(), alarms }))
    }

    async fn status(&self, request: Request<pb::StatusRequest>) -> Answer<pb::StatusResponse> {
        self.0.caller(&request)?;
        let server = &self.0;
        let stats = server.store.stats();
        let bytes = store_bytes(&server.store);
        let errors = server.alarms.all().into_iter();
        let member = server.member.id;
        let errors =
            errors.map(|alarm| format!("memberID:{member} alarm:{} ", alarm.as_str_name()));
        Ok(Response::new(pb::StatusResponse {
            header: server.header(stats.revision),
            version: VERSION.to_owned(),
            db_size: signed(bytes),
            leader: member,
            // Nothing counts what a log of raft would have; what stands for it grows with each change.
            raft_index: stats.revision,
            raft_term: server.member.term,
            raft_applied_index: stats.revision,
            errors: errors.collect(),
            db_size_in_use: signed(bytes.saturating_sub(stats.dead_bytes)),
            is_learner: false,
            storage_version: "3.6.0".to_owned(),
            db_size_quota: signed(server.alarms.quota()),
            downgrade_info: Some(pb::DowngradeInfo::default()),
        }))
    }

    /// Does nothing: room on the disk is given back by background work, without a stall.
    async fn defragment(
        &self,
        request: Request<pb::DefragmentRequest>,
    ) -> Answer<pb::DefragmentResponse> {
        self.0.caller(&request)?.must_be_admin()?;
        crate::log::warn("defragment does nothing: room is given back without it", &[]);
        Ok(Response::new(pb::DefragmentResponse { header: self.0.header_now() }))
    }

    /// The hash of keys and values as of now. etcd hashes its whole file, which no two members share either.
    async fn hash(&self, request: Request<pb::HashRequest>) -> Answer<pb::HashResponse> {
        self.0.caller(&request)?.must_be_admin()?;
        let hash = self.0.blocking(|store| store.hash_at(At::Latest)).await?;
        let header = self.0.header(hash.revision);
        Ok(Response::new(pb::HashResponse { header, hash: hash.hash }))
    }

    async fn hash_kv(&self, request: Request<pb::HashKvRequest>) -> Answer<pb::HashKvResponse> {
        self.0.caller(&request)?;
        let at = match u64::try_from(request.get_ref().revision) {
            Ok(0) | Err(_) => At::Latest,
            Ok(revision) => At::Revision(revision),
        };
        let hash = self.0.blocking(move |store| store.hash_at(at)).await?;
        Ok(Response::new(pb::HashKvResponse {
            header: self.0.header_now(),
            hash: hash.hash,
            // etcd's -1: nothing was ever compacted.
            compact_revision: if hash.compacted == 0 { -1 } else { signed(hash.compacted) },
            hash_revision: signed(hash.revision),
        }))
    }

    type SnapshotStream = Pin<Box<dyn Stream<Item = Result<pb::SnapshotResponse, Status>> + Send>>;

    async fn snapshot(
        &self,
        request: Request<pb::SnapshotRequest>,
    ) -> Answer<Self::SnapshotStream> {
        self.0.caller(&request)?.must_be_admin()?;
        Err(Status::unimplemented("snapshot"))
    }

    async fn move_leader(
        &self,
        request: Request<pb::MoveLeaderRequest>,
    ) -> Answer<pb::MoveLeaderResponse> {
        self.0.caller(&request)?.must_be_admin()?;
        if request.get_ref().target_id == self.0.member.id {
            return Ok(Response::new(pb::MoveLeaderResponse { header: self.0.header_now() }));
        }
        Err(refuse(BAD_TRANSFEREE))
    }

    async fn downgrade(
        &self,
        request: Request<pb::DowngradeRequest>,
    ) -> Answer<pb::DowngradeResponse> {
        self.0.caller(&request)?.must_be_admin()?;
        Err(Status::unimplemented("annals-etcd: there is no other version of the files to go to"))
    }
}
